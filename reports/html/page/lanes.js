// Assigns RPCs and connections to the lanes of the chart.

const MOST_LANES = 16;
const MOST_METHODS = 7; // of one connection, with lanes of their own
const COLUMN = 4; // width in pixels of a column in the view of all connections

/** Gives each interval, sorted by start, the first free lane; the last lane takes the rest. */
function lanesOf(starts, ends, most = MOST_LANES) {
  const until = [];
  const lanes = new Int32Array(starts.length);
  let overflow = 0;
  for (let i = 0; i < starts.length; i += 1) {
    let lane = until.findIndex((end) => end <= starts[i]);
    if (lane < 0) lane = until.length < most ? until.push(0) - 1 : most;
    if (lane === most) overflow += 1;
    else until[lane] = ends[i];
    lanes[i] = lane;
  }
  return { lanes, count: until.length + (overflow ? 1 : 0), overflow };
}

/** Assigns lanes in the view of all connections; connections that do not overlap may share one. */
function connectionLanes(model) {
  const list = [...model.connections.values()].sort((a, b) => a.start - b.start || a.number - b.number);
  const few = list.length <= MOST_LANES;
  const ordered = few ? list.sort((a, b) => a.number - b.number) : list;
  const { lanes, count } = few
    ? { lanes: ordered.map((_, place) => place), count: ordered.length }
    : lanesOf(ordered.map((c) => c.start), ordered.map((c) => c.end));
  const of = new Map();
  const members = Array.from({ length: count }, () => []);
  ordered.forEach((connection, place) => {
    of.set(connection.number, lanes[place]);
    members[lanes[place]].push(connection.number);
  });
  return { of, members, count };
}

/** Assigns lanes in the view of one connection: RPCs by method, then threads, blocked intervals, frames and packets by
 side. */
function streamLanes(model, connection) {
  const { rows, slots, lanes } = methodLanes(model, model.by.rpcs.get(connection) ?? []);
  const waits = model.by.waits.get(connection) ?? [];
  const steps = model.by.steps.get(connection) ?? [];
  SIDES.forEach((arrow, side) => {
    if (steps.some((row) => model.steps.direction[row] === side)) lanes.push({ name: `threads ${arrow}`, kind: "step", side });
  });
  SIDES.forEach((arrow, side) => {
    if (waits.some((row) => model.waits.direction[row] === side)) lanes.push({ name: `blocked ${arrow}`, kind: "wait", side });
  });
  const kinds = [["frames", "frame"], ["packets", "packet"]];
  for (const [table, kind] of kinds) {
    SIDES.forEach((arrow, side) => {
      if (model.by[table].has(connection)) lanes.push({ name: `${table} ${arrow}`, kind, side });
    });
  }
  if (evidenceOf(model, connection).length) lanes.unshift({ name: "evidence", kind: "evidence" });
  return { rows, slots, lanes };
}

/** Assigns lanes to RPCs by method; the method with the slowest RPC comes first, and the last lanes share one. */
function methodLanes(model, all) {
  const { start_ns: start, duration_ns: length, method } = model.rpcs;
  const groups = new Map();
  for (const row of all) {
    if (!groups.has(method[row])) groups.set(method[row], { name: shortName(model.facts.methods[method[row]]), rows: [], worst: 0 });
    const group = groups.get(method[row]);
    group.rows.push(row);
    group.worst = Math.max(group.worst, length[row]);
  }
  const ordered = [...groups.values()].sort((a, b) => b.worst - a.worst);
  const rest = ordered.splice(MOST_METHODS);
  if (rest.length) ordered.push({ name: counted(rest.length, "method"), rows: rest.flatMap(({ rows }) => rows).sort((a, b) => start[a] - start[b]) });
  const most = Math.max(Math.floor(MOST_LANES / Math.max(ordered.length, 1)) - 1, 1);
  const [rows, slots, lanes] = [[], [], []];
  for (const group of ordered) {
    const packed = lanesOf(group.rows.map((row) => start[row]), group.rows.map((row) => start[row] + length[row]), most);
    group.rows.forEach((row, place) => {
      rows.push(row);
      slots.push(lanes.length + packed.lanes[place]);
    });
    for (let place = 0; place < packed.count; place += 1) {
      const piled = packed.overflow > 0 && place === packed.count - 1;
      lanes.push({ name: place === 0 ? group.name : piled ? "more" : "", kind: "rpc", piled });
    }
  }
  return { rows, slots, lanes };
}

/** Shortens the name of a method to what follows its last slash. */
const shortName = (name) => name.slice(name.lastIndexOf("/") + 1) || name;

/** Lists the evidence packets that belong to a connection. */
function evidenceOf(model, connection) {
  return model.evidence.filter(({ packet, finding }) => {
    const row = packetRow(model, packet);
    if (row >= 0) return model.packets.connection[row] === connection;
    return model.facts.findings[finding - 1].connections.length === 1 && model.facts.findings[finding - 1].connections[0] === connection;
  });
}
