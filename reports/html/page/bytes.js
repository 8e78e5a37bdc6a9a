// Bytes in flight and the windows that limit them, for each side, as lines and dots.

const DOTS = [
  ["congestion window", "congestion_window_bytes", "congestion_window", "circle"],
  ["HTTP/2 stream window", "stream_window_bytes", "stream_window", "triangle"],
  ["HTTP/2 connection window", "connection_window_bytes", "connection_window", "rect"],
];

/** Builds the lines of one side: bytes in flight after every packet, and the receive window of the other side. */
function sideLines(model, connection, side, from, to, pixel) {
  const { packets } = model;
  const flight = side === 0 ? packets.client_in_flight : packets.server_in_flight;
  const lines = { flight: [], window: [] };
  let before = { flight: null, window: null };
  let spanEnd = -Infinity;
  let inside = false;
  for (const row of model.by.packets.get(connection) ?? []) {
    const time = packets.time_ns[row];
    const values = { flight: flight[row], window: packets.direction[row] === side || packets.window[row] < 0 ? null : packets.window[row] };
    if (packets.packet[row] > spanEnd) {
      if (inside) for (const line of Object.values(lines)) line.push([before.time, null]);
      spanEnd = endOfSpan(model, connection, packets.packet[row]);
      before = { flight: null, window: null };
    }
    if (time >= from && !inside) {
      inside = true;
      for (const name of ["flight", "window"]) if (before[name] !== null) lines[name].push([from, before[name]]);
    }
    if (inside) for (const name of ["flight", "window"]) if (values[name] !== null) step(lines[name], time, values[name], pixel);
    for (const name of ["flight", "window"]) if (values[name] !== null) before[name] = values[name];
    before.time = time;
    if (time > to) break;
  }
  return lines;
}

/** Adds a value to a line; within a pixel only the first, the largest and the last value are drawn. */
function step(line, time, value, pixel) {
  const last = line[line.length - 1];
  if (last && last[1] !== null && last[2] !== undefined && time - last[2] < pixel) {
    if (value > last[1]) last[1] = value;
    else if (value < last[1]) line.push([time, value]);
    return;
  }
  line.push([time, value, time]);
}

function endOfSpan(model, connection, packet) {
  if (model.facts.whole) return Infinity;
  const { first_packet: first, last_packet: last } = model.spans;
  const row = (model.by.spans.get(connection) ?? []).find((span) => first[span] <= packet && packet <= last[span]);
  return row === undefined ? packet : last[row];
}

/** Lists the windows at the start of a side's blocked intervals. */
function sideDots(model, connection, side, from, to) {
  const { waits } = model;
  const rows = (model.by.waits.get(connection) ?? []).filter(
    (row) => waits.direction[row] === side && waits.start_ns[row] >= from && waits.start_ns[row] <= to,
  );
  const every = Math.ceil(rows.length / 2000);
  return DOTS.map(([, column]) => rows.filter((row, place) => place % every === 0 && waits[column][row] > (column === "congestion_window_bytes" ? 0 : NOT_KNOWN))
    .map((row) => [waits.start_ns[row], waits[column][row], row]));
}

/** Finds the top of the axis: all bytes in flight fit, and windows of about that size. */
function topOf(lines, dots) {
  let flight = 0;
  for (const [, value] of lines.flight) flight = Math.max(flight, value ?? 0);
  let most = Math.max(flight, 100);
  const near = Math.max(4 * flight, 1);
  for (const points of [lines.window, ...dots]) for (const [, value] of points) if (value !== null && value <= near) most = Math.max(most, value);
  return most * 1.08;
}
