// Shows details of a selected item: words, figures, packets. Everything is built as elements, never as markup.

function figures(pairs) {
  const rows = pairs.filter(([, value]) => value !== null).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)));
  return element("dl", { className: "metrics" }, ...rows);
}

class Details {
  constructor(model, panel, actions) {
    Object.assign(this, { model, panel, actions });
  }

  put(...children) {
    this.panel.replaceChildren(...children);
  }

  button(text, action, properties = {}) {
    return element("button", { type: "button", onclick: action, ...properties }, text);
  }

  packetButton(packet) {
    return packet ? this.button(`#${packet}`, () => this.actions.packet(packet), { className: "see" }) : "none";
  }

  /** Builds the text of a tooltip. */
  hint(item) {
    const [title, ...lines] = this.words(item);
    return element("div", { className: "hint" }, element("b", {}, title), ...lines.map((line) => element("div", {}, line)));
  }

  words(item) {
    const { model } = this;
    if (!item) return [""];
    if (item.kind === "bytes") return this.byteWords(item.points);
    if (item.kind === "missing") return ["Not in this page", "The page has packets and frames only around the findings' evidence and in the slowest RPCs."];
    if (item.kind === "open") return this.openWords(item);
    if (item.kind === "evidence") return [`packet #${item.packet}`, seconds(item.start), `evidence of ${[...new Set(item.findings)].join(", ")}`];
    if (item.count > 1) return this.joinedWords(item);
    return { rpc: () => this.rpcWords(item.row), wait: () => this.waitWords(item.row), step: () => this.stepWords(item.row), frame: () => this.frameWords(item.row), packet: () => this.packetWords(item.row) }[item.kind]();
  }

  byteWords(points) {
    const known = points.filter(({ data }) => data && data[1] !== null);
    return [known.length ? seconds(known[0].data[0]) : "", ...known.map(({ seriesName, data }) => `${seriesName}: ${bytes(data[1])}`)];
  }

  openWords({ lane, count, colour, start, end }) {
    const numbers = this.actions.members(lane);
    const connection = numbers.length === 1 ? this.model.connections.get(numbers[0]) : null;
    const title = connection ? `connection ${connection.number} ${connection.ends}` : counted(numbers.length, "connection");
    return [title, `${counted(count, "RPC")} between ${seconds(start)} and ${seconds(end)}`, `main cause of their time: ${colour}`];
  }

  joinedWords({ kind, failed, count, start, end, longest, lane }) {
    const noun = { rpc: "RPC", wait: "blocked interval", step: "step of threads", frame: "frame", packet: "packet" }[kind];
    const lines = [counted(count, noun), `${seconds(start)} to ${seconds(end)}`];
    if (failed) lines.push("some of them failed");
    if (kind === "rpc") lines.push(`longest: ${this.rpcWords(longest).slice(0, 3).join(", ")}`);
    if (kind === "wait") lines.push(`longest: ${this.waitWords(longest)[0]}`);
    if (kind === "step") lines.push(`longest: ${this.stepWords(longest).slice(0, 2).join(", ")}`);
    if (kind === "frame") lines.push(this.frameKinds(lane, start, end));
    return lines;
  }

  frameKinds(lane, start, end) {
    const { frames } = this.model;
    const { connection, side } = this.actions.lane(lane);
    const kinds = new Map();
    for (const row of this.model.by.frames.get(connection) ?? []) {
      if (frames.direction[row] !== side || frames.start_ns[row] < start || frames.start_ns[row] > end) continue;
      const name = frameName(this.model, frames.kind[row]);
      kinds.set(name, (kinds.get(name) ?? 0) + 1);
    }
    return [...kinds].map(([name, number]) => `${name} ×${number.toLocaleString("en")}`).join(", ");
  }

  rpcWords(row) {
    const { rpcs, facts } = this.model;
    const shares = sharesOf(this.model, row).slice(0, 3).map(([cause, share]) => `${cause} ${percent(share)}`);
    return [facts.methods[rpcs.method[row]], `stream ${rpcs.stream[row]} of connection ${rpcs.connection[row]}`,
      `${duration(rpcs.duration_ns[row])} from ${seconds(rpcs.start_ns[row])}`, this.ending(row), shares.join(", ")];
  }

  ending(row) {
    const { rpcs } = this.model;
    return rpcs.last_packet[row] ? `status ${status(this.model, rpcs.status[row])}${rpcs.complete[row] ? "" : ", started before the capture"}` : "its end is not in the capture";
  }

  waitWords(row) {
    const { waits, facts } = this.model;
    return [`${duration(waits.duration_ns[row])} ${facts.causes[waits.cause[row]]}`, `the ${waits.direction[row] ? "server" : "client"} still had to send ${waits.owed_bytes[row] ? bytes(waits.owed_bytes[row]) : "the next frame"} of stream ${waits.stream[row]}`,
      `from ${seconds(waits.start_ns[row])}`, `stopped at #${waits.stopped_at_packet[row]}, resumed at #${waits.resumed_at_packet[row]}`];
  }

  stepWords(row) {
    const { steps, facts } = this.model;
    const thread = steps.thread[row];
    return [`${duration(steps.duration_ns[row])} ${partName(facts.parts[steps.part[row]])}`, thread ? `thread ${facts.threads[thread]} (${thread})` : "thread not known",
      `from ${seconds(steps.start_ns[row])}`, `before the ${steps.direction[row] ? "server" : "client"} sent packet #${steps.packet[row]} of stream ${steps.stream[row]}`];
  }

  frameWords(row) {
    const { frames } = this.model;
    const stream = frames.stream[row] ? `stream ${frames.stream[row]}` : "the connection";
    const [first, last] = [frames.first_packet[row], frames.last_packet[row]];
    return [`${frameName(this.model, frames.kind[row])} of ${stream}`, `${bytes(frames.length[row])}, flags 0x${frames.flags[row].toString(16)}`,
      seconds(frames.start_ns[row]), first === last ? `packet #${first}` : `packets #${first} to #${last}, ${duration(frames.duration_ns[row])}`];
  }

  packetWords(row) {
    const { packets, facts } = this.model;
    const note = facts.notes[packets.note[row]];
    return [`packet #${packets.packet[row]} of the ${packets.direction[row] ? "server" : "client"}`, seconds(packets.time_ns[row]),
      `${flagNames(packets.flags[row])}, ${bytes(packets.payload_bytes[row])}${note ? `, ${note}` : ""}`];
  }

  /** Shows an item that was selected in the chart. */
  show(item) {
    if (item.kind === "open") return this.showLane(item);
    if (item.kind === "evidence") return this.actions.packet(item.packet, item.finding);
    if (item.kind === "packet" && item.count === 1) return this.actions.packet(this.model.packets.packet[item.row]);
    if (item.count > 1 || item.kind === "missing") {
      const [title, ...lines] = this.words(item);
      const closer = this.button("zoom to them", () => this.actions.zoom(item.start, item.end));
      return this.put(element("h3", {}, title), ...lines.map((line) => element("p", {}, line)), item.kind === "missing" ? null : closer);
    }
    if (item.kind === "rpc") return this.showRpc(item.row);
    if (item.kind === "wait") return this.showWait(item.row);
    const [title, ...lines] = this.words(item);
    const packet = item.kind === "step" ? this.model.steps.packet[item.row] : this.model.frames.first_packet[item.row];
    return this.put(element("h3", {}, title), element("p", {}, lines.join("; ")), this.packetButton(packet));
  }

  showLane(item) {
    const [title, ...lines] = this.openWords(item);
    const numbers = this.actions.members(item.lane).filter((number) => {
      const { start, end } = this.model.connections.get(number);
      return start <= item.end && end >= item.start;
    });
    const buttons = numbers.slice(0, 12).map((number) => this.button(`connection ${number}`, () => this.actions.connection(number)));
    const more = numbers.length > 12 ? element("span", {}, ` and ${numbers.length - 12} more`) : null;
    this.put(element("h3", {}, title), ...lines.map((line) => element("p", {}, line)), element("p", {}, ...buttons.flatMap((b) => [b, " "]), more));
  }

  showRpc(row) {
    const { rpcs, facts } = this.model;
    const shares = sharesOf(this.model, row).map(([cause, share]) => `${cause} ${percent(share)}`).join(", ");
    const last = rpcs.last_packet[row];
    this.put(
      element("h3", {}, element("bdi", {}, facts.methods[rpcs.method[row]])),
      figures([
        ["connection, stream", `${rpcs.connection[row]}, ${rpcs.stream[row]}`], ["start", seconds(rpcs.start_ns[row])],
        ["duration", duration(rpcs.duration_ns[row])], ["end", this.ending(row)], ["time by cause", shares || "unknown"],
      ]),
      element("p", {}, "packets ", this.packetButton(rpcs.first_packet[row]), last ? " to " : "", last ? this.packetButton(last) : ""),
      this.button("zoom to it", () => this.actions.zoom(rpcs.start_ns[row], rpcs.start_ns[row] + rpcs.duration_ns[row])),
    );
  }

  showWait(row) {
    const { waits } = this.model;
    const [title, ...lines] = this.waitWords(row);
    const size = (column, unknown = -1) => (waits[column][row] > unknown ? bytes(waits[column][row]) : null);
    this.put(
      element("h3", {}, `blocked interval: ${title}`),
      element("p", {}, `${lines.slice(0, 2).join(" ")}.`),
      figures([
        ["in flight", size("in_flight_bytes")], ["congestion window", waits.congestion_window_bytes[row] > 0 ? size("congestion_window_bytes") : null],
        ["receive window", size("receive_window_bytes")], ["HTTP/2 stream window", size("stream_window_bytes", NOT_KNOWN)],
        ["HTTP/2 connection window", size("connection_window_bytes", NOT_KNOWN)],
      ]),
      element("p", {}, "stopped at ", this.packetButton(waits.stopped_at_packet[row]), ", released by ", this.packetButton(waits.released_by_packet[row]), ", resumed at ", this.packetButton(waits.resumed_at_packet[row])),
      this.button("zoom to it", () => this.actions.zoom(waits.start_ns[row], waits.start_ns[row] + waits.duration_ns[row])),
    );
  }

  /** Shows a packet and those around it; the packet is evidence of a finding or was asked for. */
  showPackets(row, finding) {
    const { packets, facts } = this.model;
    const connection = packets.connection[row];
    const all = this.model.by.packets.get(connection);
    const place = all.indexOf(row);
    const shown = all.slice(Math.max(place - 10, 0), place + 11);
    const title = `packet #${packets.packet[row]} and those around it on connection ${connection}`;
    const back = finding ? element("p", {}, element("a", { href: `#finding-${finding}`, onclick: () => this.actions.back(finding) }, `back to ${facts.findings[finding - 1].id}`)) : null;
    const proofs = new Map();
    for (const { packet, id } of this.model.evidence) proofs.set(packet, [...new Set([...(proofs.get(packet) ?? []), id])]);
    const head = ["packet", "time", "from", "TCP flags", "payload", "in flight", "frames in it", ""];
    const body = shown.map((one) => this.packetCells(one, row, proofs));
    this.put(
      element("h3", {}, title), back,
      element("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "Packets" },
        element("table", {}, element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))), element("tbody", {}, ...body))),
    );
  }

  packetCells(row, chosen, proofs) {
    const { packets, facts } = this.model;
    const number = packets.packet[row];
    const side = packets.direction[row];
    const note = [facts.notes[packets.note[row]], proofs.has(number) ? `evidence of ${proofs.get(number).join(", ")}` : ""].filter(Boolean).join("; ");
    const flight = (side ? packets.server_in_flight : packets.client_in_flight)[row];
    const cells = [this.packetButton(number), seconds(packets.time_ns[row]), side ? "← server" : "→ client", flagNames(packets.flags[row]), bytes(packets.payload_bytes[row]), bytes(flight), this.framesIn(row), note];
    return element("tr", { className: row === chosen ? "here" : "" }, ...cells.map((cell) => element("td", {}, cell)));
  }

  framesIn(row) {
    const { frames, packets } = this.model;
    if (!packets.payload_bytes[row]) return "";
    const number = packets.packet[row];
    const names = new Map();
    for (const frame of this.model.by.frames.get(packets.connection[row]) ?? []) {
      if (frames.direction[frame] !== packets.direction[row] || frames.first_packet[frame] > number || frames.last_packet[frame] < number) continue;
      const parts = [frames.first_packet[frame] < number ? "…" : "", frameName(this.model, frames.kind[frame]), frames.stream[frame] ? `[${frames.stream[frame]}]` : "", frames.last_packet[frame] > number ? "…" : ""];
      const name = parts.join("");
      names.set(name, (names.get(name) ?? 0) + 1);
    }
    const texts = [...names].map(([name, times]) => (times > 1 ? `${name} ×${times}` : name));
    return texts.slice(0, 6).join(" ") + (texts.length > 6 ? ` and ${texts.length - 6} more` : "");
  }
}
