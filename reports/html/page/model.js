// The page's data: tables, the rows of each connection, and the words for them.

const ALL = -1;
const NOT_KNOWN = -1e12; // HTTP/2 windows may be negative, but never this low
const SIDES = ["→", "←"];
const FLAGS = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR", "AE"];

function modelOf(facts, tables) {
  const by = {};
  for (const name of ["rpcs", "waits", "frames", "packets", "spans", "steps"]) by[name] = grouped(tables[name]);
  const connections = new Map(facts.connections.map(([number, start, end, ends, rpcs, vantage]) => [number, { number, start, end, ends, rpcs, vantage }]));
  for (const number of by.rpcs.keys()) {
    if (!connections.has(number)) connections.set(number, spanOf(number, tables.rpcs, by.rpcs.get(number)));
  }
  let [first, last] = [0, Math.max(facts.duration, 1)];
  for (const { start, end } of connections.values()) [first, last] = [Math.min(first, start), Math.max(last, end)];
  const evidence = [];
  facts.findings.forEach((finding, index) => finding.evidence.forEach(([packet, time]) => {
    evidence.push({ packet, time, finding: index + 1, id: finding.id });
  }));
  return { facts, ...tables, by, connections, evidence, first, last, top: topCauses({ facts, rpcs: tables.rpcs }), shares: facts.causes.map((_, place) => ({ place, column: tables.rpcs[`share${place}`] })).filter(({ column }) => column) };
}

function grouped(table) {
  const groups = new Map();
  for (let row = 0; row < table.rows; row += 1) {
    const number = table.connection[row];
    if (!groups.has(number)) groups.set(number, []);
    groups.get(number).push(row);
  }
  return groups;
}

function spanOf(number, rpcs, rows) {
  const span = { number, start: Infinity, end: -Infinity, ends: "", rpcs: rows.length };
  for (const row of rows) {
    span.start = Math.min(span.start, rpcs.start_ns[row]);
    span.end = Math.max(span.end, rpcs.start_ns[row] + rpcs.duration_ns[row]);
  }
  return span;
}

/** Finds the row of a packet, or -1. */
function packetRow(model, packet) {
  const { packet: numbers } = model.packets;
  let [low, high] = [0, numbers.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] < packet) low = middle + 1;
    else high = middle;
  }
  return numbers[low] === packet ? low : -1;
}

/** Says whether the page has the frames and packets around a connection's packet. */
function detailed(model, connection, packet) {
  if (model.facts.whole) return true;
  const { first_packet: first, last_packet: last } = model.spans;
  return (model.by.spans.get(connection) ?? []).some((row) => first[row] <= packet && packet <= last[row]);
}

/** Lists the causes of an RPC's time with their shares, largest first. */
function sharesOf(model, row) {
  const shares = [];
  model.facts.causes.forEach((cause, place) => {
    const column = model.rpcs[`share${place}`];
    if (column && column[row] > 0) shares.push([cause, column[row] / 1000, place]);
  });
  return shares.sort((a, b) => b[1] - a[1]);
}

function topCauses(model) {
  const { rpcs, facts } = model;
  const top = new Uint8Array(rpcs.rows);
  const best = new Float64Array(rpcs.rows);
  facts.causes.forEach((_, place) => {
    const column = rpcs[`share${place}`];
    if (!column) return;
    for (let row = 0; row < rpcs.rows; row += 1) {
      if (column[row] > best[row]) {
        best[row] = column[row];
        top[row] = place;
      }
    }
  });
  return top;
}

function duration(ns) {
  const rounded = significant(Math.abs(ns));
  const [unit, name] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]].find(([size]) => rounded >= size) ?? [1, "ns"];
  const shown = rounded / unit;
  const digits = unit === 1 || shown >= 100 ? 0 : shown >= 10 ? 1 : 2;
  return `${(shown >= 1000 ? Math.abs(ns) / unit : shown).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${name}`;
}

/** Rounds to three digits, halves to even, as the tables of the page do. */
function significant(value) {
  if (!value) return 0;
  const unit = 10 ** (Math.floor(Math.log10(value)) - 2);
  const whole = Math.round(value / unit);
  return (value / unit - Math.floor(value / unit) === 0.5 && whole % 2 ? whole - 1 : whole) * unit;
}

const seconds = (ns, digits = 6) => `${(ns / 1e9).toFixed(digits)} s`;
const bytes = (number) => `${number.toLocaleString("en")} B`;
const percent = (share) => `${(share * 100).toFixed(1)} %`;
const status = (model, code) => model.facts.statuses[code] ?? "unknown";
const partName = (part) => part.replace("_", " ");
const frameName = (model, kind) => model.facts.frames[Math.min(kind, model.facts.frames.length - 1)];
const flagNames = (flags) => FLAGS.filter((_, bit) => flags & (1 << bit)).join(" ") || "-";
