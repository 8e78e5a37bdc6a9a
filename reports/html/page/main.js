// Starts the page: decodes the data, runs the library, draws the chart, and handles the reader's input.

/** Runs the charting library; the page's policy names its hash, and no other script added this way could run. */
async function library() {
  const script = document.createElement("script");
  script.textContent = new TextDecoder().decode(await inflated("library"));
  document.head.append(script);
  if (!window.echarts) throw new Error("the charting library did not run");
  return window.echarts;
}

function begin(model, echarts) {
  const charts = [];
  const latency = byId("latency"); // a page without RPCs has none
  const ways = {
    chosen: (item) => {
      if (!item) return;
      if ((item.kind === "rpc" || item.kind === "wait") && item.count === 1) timeline.mark(item.kind, item.row);
      details.show(item);
    },
    moved: (shown) => say(model, timeline, shown),
    hint: (item) => details.hint(item),
  };
  const timeline = new Timeline(model, echarts, byId("chart"), ways);
  const go = {
    packet: (packet, finding = null) => toPacket(model, timeline, details, packet, finding),
    zoom: (from, to) => {
      const pad = Math.max((to - from) * 0.06, 1000);
      timeline.zoom(from - pad, to + pad);
    },
    connection: (number) => choose(timeline, number),
    members: (lane) => timeline.view.layout.members?.[lane] ?? [],
    lane: (lane) => ({ connection: timeline.view.connection, ...timeline.view.layout.lanes[lane] }),
    back: (finding) => {
      const home = byId(`finding-${finding}`);
      if (home.tagName === "DETAILS") home.open = true;
    },
  };
  const details = new Details(model, byId("details"), go);
  choices(model, timeline);
  buttons(timeline);
  links(model, timeline, details, go);
  keys(model, timeline, details);
  legend(model);
  const pictures = new Pictures(model, echarts, (picture, row) => {
    if (row === undefined) choose(timeline, picture.connections.length === 1 ? picture.connections[0] : ALL, [picture.begin_ns, picture.end_ns]);
    else toRpc(model, timeline, details, row);
    arrive();
  });
  const paint = (everything) => {
    timeline.build();
    if (latency) drawLatencies(model, echarts, latency, charts);
    pictures.repaint(everything);
  };
  if (latency) new ResizeObserver(() => charts.forEach((chart) => chart.resize())).observe(latency);
  choose(timeline, model.connections.size === 1 ? [...model.connections.keys()][0] : ALL);
  if (latency) drawLatencies(model, echarts, latency, charts);
  useTools(paint);
  followAddress(timeline);
  byId("chart").dataset.ready = "yes";
}

function say(model, timeline, shown) {
  const [from, to] = timeline.range;
  const { connection } = timeline.view;
  const what = connection === ALL ? `all ${counted(model.connections.size, "connection")}` : `connection ${connection}`;
  const bare = connection !== ALL && !model.by.packets.has(connection) ? "; this page does not have its frames and packets" : "";
  byId("moment").href = `#at-${connection === ALL ? "all" : connection}-${Math.round(from)}-${Math.round(to)}`;
  byId("status").textContent = `${what}, ${seconds(Math.max(from, model.first))} to ${seconds(Math.min(to, model.last))} (${duration(Math.min(to, model.last) - Math.max(from, model.first))}), ${counted(shown, "item")}${bare}`;
}

function choices(model, timeline) {
  const select = byId("connection");
  const busiest = [...model.connections.values()].sort((a, b) => b.rpcs - a.rpcs).slice(0, model.facts.named).sort((a, b) => a.number - b.number);
  if (model.connections.size > 1) select.append(element("option", { value: String(ALL) }, `all ${model.connections.size.toLocaleString("en")}`));
  for (const { number, ends, rpcs } of busiest) select.append(element("option", { value: String(number) }, `${number}: ${ends}, ${counted(rpcs, "RPC")}`));
  select.addEventListener("change", () => choose(timeline, Number(select.value)));
}

function choose(timeline, connection, range = null) {
  if (connection !== ALL && !timeline.model.connections.has(connection)) return;
  const select = byId("connection");
  if (![...select.options].some((option) => option.value === String(connection))) select.append(element("option", { value: String(connection) }, `${connection}`));
  select.value = String(connection);
  timeline.show(connection, range);
}

/** Shows a packet on the timeline, with the two nearest packets of evidence, or with a little time around it. */
function toPacket(model, timeline, details, packet, finding) {
  const row = packetRow(model, packet);
  if (row < 0) {
    const known = model.evidence.find((one) => one.packet === packet);
    if (known) timeline.zoom(known.time - 5e6, known.time + 5e6);
    details.put(element("h3", {}, `packet #${packet}`), element("p", {}, "This page does not have it, or it belongs to no connection. Open the capture in Wireshark to see it."));
    return;
  }
  const connection = model.packets.connection[row];
  const time = model.packets.time_ns[row];
  const others = finding ? model.facts.findings[finding - 1].evidence.map(([, at]) => Math.abs(at - time)).filter((far) => far > 0) : [];
  const far = others.sort((a, b) => a - b)[Math.min(1, others.length - 1)]; // the second nearest is mostly the stop or the release
  const span = Math.min(Math.max(far === undefined ? 2e6 : far * 1.15, 1e5), 2e9);
  if (timeline.view.connection !== connection) choose(timeline, connection, [time - span, time + span]);
  else timeline.zoom(time - span, time + span);
  timeline.markPacket(row);
  details.showPackets(row, finding);
}

/** Shows all evidence of a finding. */
function toFinding(model, timeline, details, number) {
  const { evidence } = model.facts.findings[number - 1];
  const rows = evidence.map(([packet]) => packetRow(model, packet)).filter((row) => row >= 0);
  const [first] = rows;
  if (first === undefined) return toPacket(model, timeline, details, evidence[0][0], number);
  const connection = model.packets.connection[first];
  const times = rows.filter((row) => model.packets.connection[row] === connection).map((row) => model.packets.time_ns[row]);
  const [from, to] = [Math.min(...times), Math.max(...times)];
  const pad = Math.max((to - from) * 0.08, 1e5);
  choose(timeline, connection, [from - pad, to + pad]);
  timeline.markPacket(first);
  return details.showPackets(first, number);
}

function arrive() {
  byId("timeline").scrollIntoView({ block: "start" });
  byId("details").focus({ preventScroll: true });
}

function links(model, timeline, details, go) {
  for (const button of document.querySelectorAll("button.see, button.all")) {
    button.disabled = false;
    button.addEventListener("click", () => {
      const { packet, finding, rpc, connection } = button.dataset;
      if (packet) go.packet(Number(packet), Number(finding));
      else if (finding) toFinding(model, timeline, details, Number(finding));
      else if (rpc) toRpc(model, timeline, details, Number(rpc));
      else choose(timeline, Number(connection));
      arrive();
    });
  }
  byId("packet").addEventListener("change", (event) => event.target.value && go.packet(Number(event.target.value)));
}

function toRpc(model, timeline, details, row) {
  const { start_ns: start, duration_ns: length, connection } = model.rpcs;
  const pad = length[row] * 0.1 + 1000;
  choose(timeline, connection[row], [start[row] - pad, start[row] + length[row] + pad]);
  timeline.mark("rpc", row);
  details.showRpc(row);
}

function buttons(timeline) {
  const acts = { left: () => timeline.move(-0.4), right: () => timeline.move(0.4), closer: () => timeline.scale(0.5), farther: () => timeline.scale(2), whole: () => timeline.whole() };
  for (const [id, act] of Object.entries(acts)) byId(id).addEventListener("click", act);
}

function keys(model, timeline, details) {
  const acts = {
    ArrowLeft: () => timeline.move(-0.25), ArrowRight: () => timeline.move(0.25), ArrowUp: () => timeline.scale(0.6), ArrowDown: () => timeline.scale(1 / 0.6),
    "+": () => timeline.scale(0.6), "=": () => timeline.scale(0.6), "-": () => timeline.scale(1 / 0.6), Home: () => timeline.whole(), 0: () => timeline.whole(),
    n: () => stepped(model, timeline, details, 1), p: () => stepped(model, timeline, details, -1),
    Enter: () => timeline.cursor?.end > timeline.cursor?.start && timeline.zoom(timeline.cursor.start - 0.1 * (timeline.cursor.end - timeline.cursor.start), timeline.cursor.end + 0.1 * (timeline.cursor.end - timeline.cursor.start)),
  };
  byId("chart").addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  });
}

/** Selects the next or previous RPC or blocked interval; in the view of all connections, the first connection. */
function stepped(model, timeline, details, way) {
  const { connection } = timeline.view;
  if (connection === ALL) {
    choose(timeline, [...model.connections.keys()].sort((a, b) => a - b)[0]);
    return;
  }
  if (timeline.steps?.connection !== connection) {
    const all = ["rpc", "wait"].flatMap((kind) => (model.by[`${kind}s`].get(connection) ?? []).map((row) => ({ kind, row, start: model[`${kind}s`].start_ns[row] })));
    timeline.steps = { connection, all: all.sort((a, b) => a.start - b.start) };
  }
  const { all } = timeline.steps;
  const here = timeline.cursor ? all.findIndex(({ kind, row }) => kind === timeline.cursor.kind && row === timeline.cursor.row) : -1;
  const first = all.findIndex(({ start }) => start >= timeline.range[0]);
  const next = here < 0 ? all[Math.max(first, 0)] : all[Math.min(Math.max(here + way, 0), all.length - 1)];
  if (!next) return;
  timeline.mark(next.kind, next.row);
  if (next.kind === "rpc") details.showRpc(next.row);
  else details.showWait(next.row);
}

function legend(model) {
  const seen = new Set(model.shares.map(({ place }) => place));
  for (const cause of model.waits.cause) seen.add(cause);
  const key = (colour, text, symbol = "rect") => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 10 10");
    const square = document.createElementNS("http://www.w3.org/2000/svg", "path");
    square.setAttribute("d", { rect: "M0 0h10v10h-10z", circle: "M0 5a5 5 0 1 1 10 0a5 5 0 1 1 -10 0z", triangle: "M5 0L10 10H0z" }[symbol]);
    square.setAttribute("class", colour === "failed" ? "outlined" : "");
    square.style.fill = colour === "failed" ? "none" : `var(--${colour})`;
    svg.append(square);
    return element("li", {}, svg, text);
  };
  const causes = [...seen].sort((a, b) => a - b).map((place) => model.facts.causes[place]);
  const failed = model.rpcs.status.some((code) => code !== 0 && code < 255);
  const frames = [...new Set(model.frames.kind)].map((kind) => frameName(model, kind));
  const group = (name, keys) => keys.length && byId("legend").append(element("li", {}, name), element("ul", {}, ...keys));
  const ends = [["flight", "payload"], ["kind_ack_only", "no payload"], ["critical", "retransmitted"], ["accent", "SYN, FIN, RST"]];
  group("RPCs and blocked intervals by cause", [...causes.map((cause) => key(cause, cause)), ...(failed ? [key("failed", "outlined: failed")] : [])]);
  group("threads, until the side sent", [...new Set(model.steps.part)].sort((a, b) => a - b).map((n) => key(partColour(model.facts.parts[n]), partName(model.facts.parts[n]))));
  group("frames", frames.map((name) => key(frameColour(name), name)));
  group("packets", model.packets.rows ? ends.map(([colour, name]) => key(colour, name)) : []);
  group("windows at the start of a blocked interval", model.waits.rows ? DOTS.map(([name, , colour, symbol]) => key(colour, name, symbol)) : []);
}

/** Goes to the finding or the moment that the address names: `#finding-2`, `#at-CONNECTION-FROM-TO`. */
function followAddress(timeline) {
  const go = () => {
    const [, connection, from, to] = location.hash.match(/^#at-(\w+)-(-?\d+)-(-?\d+)$/) ?? [];
    if (connection) {
      choose(timeline, connection === "all" ? ALL : Number(connection), [Number(from), Number(to)]);
      byId("timeline").scrollIntoView({ block: "start" });
    }
    const finding = /^#finding-\d+$/.test(location.hash) ? document.querySelector(location.hash) : null;
    if (finding?.tagName === "DETAILS") finding.open = true;
  };
  addEventListener("hashchange", go);
  go();
}

async function start() {
  document.documentElement.classList.add("live");
  try {
    if (!window.DecompressionStream) throw new Error("this browser lacks DecompressionStream: use a browser of 2023 or later");
    const facts = JSON.parse(byId("facts").textContent);
    begin(modelOf(facts, decoded(await inflated("columns"), facts.layout)), await library());
  } catch (error) {
    byId("problem").hidden = false;
    byId("problem").textContent = `The timeline cannot be drawn: ${error.message}.`;
    throw error;
  }
}

start();
