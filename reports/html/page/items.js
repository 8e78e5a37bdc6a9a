// Lists the items drawn between two instants; neighbours closer than a pixel become one item.

/** Joins the marks of one lane. Call `add` in order of start times, with the colours that share the mark; `piled` joins all
 marks that overlap. */
class Joined {
  constructor(lane, pixel, piled = false) {
    Object.assign(this, { lane, pixel, piled, items: [], narrow: 3 * pixel, broad: 14 * pixel });
  }

  add(start, end, row, weight, parts, failed = false) {
    const last = this.items[this.items.length - 1];
    const near = last && end - start < this.narrow && start - last.end < this.pixel && end - last.start < this.broad;
    if ((near && (last.count > 1 || last.end - last.start < this.narrow)) || (last && this.piled && start < last.end)) {
      last.end = Math.max(last.end, end);
      last.count += 1;
      last.failed ||= failed;
      for (const [colour, size] of parts) last.colours.set(colour, (last.colours.get(colour) ?? 0) + size);
      if (weight > last.weight) [last.weight, last.longest] = [weight, row];
      last.lastRow = row;
      return;
    }
    const overlaps = last !== undefined && start < last.end;
    if (overlaps) last.covered = true;
    this.items.push({ overlaps, failed, lane: this.lane, start, end, row, longest: row, lastRow: row, weight, count: 1, colours: new Map(parts) });
  }
}

function commonest(colours) {
  let best;
  let most = -1;
  for (const [colour, weight] of colours) if (weight > most) [best, most] = [colour, weight];
  return best;
}

/** Lists the items in the view of one connection. */
function connectionItems(model, view, from, to, pixel) {
  const { connection, layout } = view;
  const items = [];
  layout.lanes.forEach((lane, number) => {
    if (lane.kind === "rpc") return;
    if (lane.kind === "evidence") items.push(...evidenceItems(model, connection, number, from, to, pixel));
    else items.push(...sideItems(model, connection, lane, number, from, to, pixel));
  });
  const offset = layout.lanes.findIndex((lane) => lane.kind === "rpc");
  const joined = new Map();
  const { start_ns: start, duration_ns: length, status: code } = model.rpcs;
  layout.rows.forEach((row, place) => {
    const end = start[row] + length[row];
    if (end < from || start[row] > to) return;
    const lane = layout.slots[place] + offset;
    if (!joined.has(lane)) joined.set(lane, new Joined(lane, pixel, layout.lanes[lane].piled));
    joined.get(lane).add(start[row], end, row, length[row] + 1, partsOf(model, row), code[row] !== 0 && code[row] < 255);
  });
  for (const { items: found } of joined.values()) {
    for (const item of found) items.push(segmented(model, connection, item));
  }
  return items;
}

/** Lists the causes of an RPC by place, with their time. */
function partsOf(model, row) {
  const length = model.rpcs.duration_ns[row] + 1;
  const parts = [];
  for (const { place, column } of model.shares) if (column[row] > 0) parts.push([place, (column[row] / 1000) * length]);
  return parts.length ? parts : [[model.top[row], length]];
}

/** Divides the bar of RPCs among its causes: blocked intervals at their times, the rest by height. */
function segmented(model, connection, item) {
  const { causes } = model.facts;
  const { waits } = model;
  const colours = new Map(item.colours);
  const inside = [];
  if (item.count === 1) {
    for (const row of waitsOf(model, connection).get(model.rpcs.stream[item.row]) ?? []) {
      const [start, length] = [waits.start_ns[row], waits.duration_ns[row]];
      if (start < item.start || start + length > item.end || !colours.has(waits.cause[row])) continue;
      inside.push({ start, end: start + length, colour: causes[waits.cause[row]] });
      colours.set(waits.cause[row], Math.max(colours.get(waits.cause[row]) - length, 0));
    }
  }
  const parts = [...colours].filter(([, size]) => size > 0).sort((a, b) => a[0] - b[0]).map(([place, size]) => [causes[place], size]);
  return { ...item, kind: "rpc", colour: causes[commonest(item.colours)], height: 0.8, parts, inside };
}

/** Groups the blocked intervals of a connection by stream. */
function waitsOf(model, connection) {
  if (model.waitsByStream?.connection !== connection) {
    const groups = new Map();
    for (const row of model.by.waits.get(connection) ?? []) {
      if (!groups.has(model.waits.stream[row])) groups.set(model.waits.stream[row], []);
      groups.get(model.waits.stream[row]).push(row);
    }
    model.waitsByStream = { connection, groups };
  }
  return model.waitsByStream.groups;
}

function evidenceItems(model, connection, lane, from, to, pixel) {
  const at = new Map();
  for (const one of evidenceOf(model, connection).sort((a, b) => a.time - b.time)) {
    if (one.time < from || one.time > to) continue;
    if (at.has(one.packet)) at.get(one.packet).findings.push(one.id);
    else at.set(one.packet, { lane, start: one.time, end: one.time, kind: "evidence", packet: one.packet, finding: one.finding, findings: [one.id], count: 1, height: 0.7, colour: "mark" });
  }
  const items = [...at.values()];
  items.forEach((item, place) => {
    const room = 52 * pixel; // a number that would cover another mark is omitted
    const leftwards = to - item.start < 1.2 * room && item.start - items[place - 1]?.start < room;
    item.labelled = !(items[place + 1]?.start - item.start < room) && !leftwards;
  });
  return items;
}

function sideItems(model, connection, { kind, side }, lane, from, to, pixel) {
  const joined = new Joined(lane, pixel);
  const table = model[`${kind}s`];
  const starts = kind === "packet" ? table.time_ns : table.start_ns;
  for (const row of model.by[`${kind}s`].get(connection) ?? []) {
    if (table.direction[row] !== side) continue;
    const start = starts[row];
    const end = kind === "packet" ? start : start + table.duration_ns[row];
    if (end < from || start > to) continue;
    if (kind === "step") joined.add(start, end, row, end - start + 1, [[table.part[row], end - start + 1]]);
    else if (kind === "wait") joined.add(start, end, row, end - start + 1, [[table.cause[row], end - start + 1]]);
    else if (kind === "frame") joined.add(start, end, row, table.length[row] + 1, [[Math.min(table.kind[row], model.facts.frames.length - 1), table.length[row] + 1]]);
    else joined.add(start, end, row, table.payload_bytes[row] + 1, [[packetColour(model, row), table.payload_bytes[row] + 1]]);
  }
  const colour = { step: (n) => partColour(model.facts.parts[n]), wait: (n) => model.facts.causes[n], frame: (n) => frameColour(model.facts.frames[n]), packet: (n) => n }[kind];
  return joined.items.map((item) => ({ ...item, kind, colour: again(model, kind, item) ?? colour(commonest(item.colours)), height: item.overlaps ? 0.35 : kind === "wait" || kind === "step" ? 0.85 : 0.7 }));
}

/** Gives an item with a retransmitted packet that colour, however many other packets it joins. */
const again = (model, kind, item) => (kind === "packet" && item.colours.has("critical") ? "critical" : null);

function packetColour(model, row) {
  if (model.facts.notes[model.packets.note[row]] === "retransmission") return "critical";
  if (model.packets.flags[row] & 7) return "mark"; // SYN, FIN, RST
  return model.packets.payload_bytes[row] ? "flight" : "kind_ack_only";
}

function partColour(name) {
  const known = { running: "transmission", runnable: "kind_headers", other_processes: "critical", wake_up: "kind_ack_only", throttled: "loss_recovery", lock: "receive_window", other_rpc: "head_of_line", timer: "kind_settings", io: "kind_other_payload" };
  return known[name] ?? "unexplained";
}

function frameColour(name) {
  const known = { DATA: "kind_data", HEADERS: "kind_headers", CONTINUATION: "kind_headers", PING: "kind_ping", WINDOW_UPDATE: "kind_window_update", SETTINGS: "kind_settings", RST_STREAM: "critical", GOAWAY: "critical" };
  return known[name] ?? "kind_other_payload";
}

/** Builds the columns in the view of all connections: the number of open RPCs, coloured by the main cause of their time. */
function overviewItems(model, view, from, to, pixel) {
  const width = pixel * COLUMN;
  const columns = Math.min(Math.max(Math.ceil((to - from) / width), 1), 2000);
  const { count } = view.layout;
  const kinds = model.facts.causes.length;
  const open = new Float64Array(count * (columns + 1) * kinds);
  const { start_ns: start, duration_ns: length, connection } = model.rpcs;
  for (let row = 0; row < model.rpcs.rows; row += 1) {
    const end = start[row] + length[row];
    if (end < from || start[row] > to) continue;
    const lane = view.layout.of.get(connection[row]);
    const first = Math.max(Math.floor((start[row] - from) / width), 0);
    const last = Math.min(Math.floor((end - from) / width), columns - 1);
    const base = lane * (columns + 1);
    open[(base + first) * kinds + view.top[row]] += 1;
    open[(base + last + 1) * kinds + view.top[row]] -= 1;
  }
  const items = [];
  for (let lane = 0; lane < count; lane += 1) items.push(...laneColumns(open, lane, columns, kinds, from, width, model));
  return items;
}

function laneColumns(open, lane, columns, kinds, from, width, model) {
  const running = new Float64Array(kinds);
  const items = [];
  let most = 1;
  for (let column = 0; column < columns; column += 1) {
    let sum = 0;
    let best = 0;
    for (let kind = 0; kind < kinds; kind += 1) {
      running[kind] += open[(lane * (columns + 1) + column) * kinds + kind];
      sum += running[kind];
      if (running[kind] > running[best]) best = kind;
    }
    if (sum <= 0) continue;
    most = Math.max(most, sum);
    const last = items[items.length - 1];
    const begin = from + column * width;
    if (last && last.end === begin && last.count === sum && last.best === best) last.end = begin + width;
    else items.push({ lane, start: begin, end: begin + width, kind: "open", count: sum, best, colour: model.facts.causes[best], parts: [...running].map((size, kind) => [model.facts.causes[kind], size]).filter(([, size]) => size > 0) });
  }
  for (const item of items) item.height = 0.25 + 0.65 * (item.count / most);
  return items;
}
