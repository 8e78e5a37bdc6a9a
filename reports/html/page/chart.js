// The chart: lanes of items, and below them the bytes in flight of both sides, over one time axis.

const ROW = 22;
const BYTES = 96;
const LEAST_SPAN = 2000; // nanoseconds
const KIND_COLOURS = ["data", "headers", "ping", "window_update", "settings", "other_payload", "ack_only"].map((kind) => `kind_${kind}`);

class Timeline {
  constructor(model, echarts, element, { chosen, moved, hint }) {
    Object.assign(this, { model, echarts, element, chosen, moved, hint });
    this.top = model.top;
    this.items = [];
    this.cursor = null;
    const pad = (model.last - model.first) * 0.005 + 1000;
    this.limits = [model.first - pad, model.last + pad];
    this.range = [...this.limits];
    this.chart = echarts.init(element, null, { renderer: "canvas" });
    this.chart.on("datazoom", () => this.rangeChanged());
    this.chart.on("click", (event) => {
      if (event.seriesId === "items") this.chosen(this.items[event.dataIndex]);
      else if (event.seriesId?.startsWith("dots")) this.chosen({ kind: "wait", row: event.data[2], count: 1 });
    });
    // the library takes every wheel event, even those that it ignores: let the page scroll
    element.addEventListener("wheel", (event) => event.ctrlKey || event.stopPropagation(), { capture: true, passive: true });
    new ResizeObserver(() => this.resized()).observe(element);
  }

  /** Shows a connection, or all of them. */
  show(connection, range = null) {
    const layout = connection === ALL ? connectionLanes(this.model) : streamLanes(this.model, connection);
    this.view = { connection, layout, top: this.top };
    this.cursor = null;
    if (range) this.range = this.within(...range);
    this.build();
  }

  /** Rebuilds lanes, sizes and colours. */
  build() {
    const style = getComputedStyle(document.documentElement);
    const names = ["text", "faint", "line", "ground", "page", "accent", "critical", "flight", ...KIND_COLOURS, ...this.model.facts.causes];
    this.colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.colours.mark = this.colours.accent;
    this.narrow = this.element.clientWidth < 560;
    this.hasBytes = this.view.connection !== ALL && this.model.by.packets.has(this.view.connection);
    const lanes = this.laneNames();
    this.height = lanes.length * ROW;
    const total = 30 + this.height + (this.hasBytes ? 2 * (BYTES + 46) : 0) + 74;
    this.element.style.height = `${total}px`;
    this.chart.resize();
    this.chart.setOption(this.option(lanes), { notMerge: true });
    this.zoom(...this.range);
    this.draw();
  }

  laneNames() {
    if (this.view.connection !== ALL) return this.view.layout.lanes.map((lane) => lane.name);
    return this.view.layout.members.map((numbers) => (numbers.length === 1 ? `#${numbers[0]}` : `${numbers.length.toLocaleString("en")} conn.`));
  }

  option(lanes) {
    const { text, faint, line, ground, page } = this.colours;
    const left = this.narrow ? 64 : 92;
    const right = this.narrow ? 12 : 24;
    const tops = [22, ...(this.hasBytes ? [0, 1].map((n) => 22 + this.height + 52 + n * (BYTES + 46)) : [])];
    const grids = tops.map((top, n) => ({ left, right, top, outerBoundsMode: "none", height: n === 0 ? this.height : BYTES, tooltip: n === 0 ? {} : { trigger: "axis" } }));
    const axes = tops.map((_, n) => n);
    const label = { color: faint, fontSize: this.narrow ? 10 : 11 };
    return {
      animation: false,
      textStyle: { fontFamily: "system-ui, sans-serif" },
      grid: grids,
      tooltip: {
        trigger: "item", confine: true, renderMode: "html", backgroundColor: page, borderColor: line, textStyle: { color: text }, transitionDuration: 0,
        formatter: (params) => this.hint(Array.isArray(params) ? { kind: "bytes", points: params } : this.hovered(params)),
      },
      axisPointer: { link: [{ xAxisIndex: "all" }], triggerTooltip: false },
      xAxis: axes.map((n) => ({
        gridIndex: n, type: "value", min: this.limits[0], max: this.limits[1],
        axisLine: { lineStyle: { color: line } }, axisTick: { show: true }, splitLine: { lineStyle: { color: line, opacity: 0.5 } },
        splitNumber: this.narrow ? 3 : 7,
        axisLabel: { ...label, hideOverlap: true, showMinLabel: false, showMaxLabel: false, formatter: (value) => this.tick(value) },
        axisPointer: { show: true, type: "line", label: { show: n === 0, formatter: ({ value }) => seconds(value, 6), backgroundColor: faint } },
      })),
      yAxis: [
        { gridIndex: 0, type: "category", inverse: true, data: lanes.map((_, n) => n), axisLine: { show: false }, axisTick: { show: false }, axisLabel: { ...label, color: text, interval: 0, width: left - 10, overflow: "truncate", formatter: (value) => lanes[value] }, splitLine: { show: true, lineStyle: { color: line, opacity: 0.35 } } },
        ...axes.slice(1).map((n) => ({
          gridIndex: n, type: "value", min: 0, splitNumber: 3, name: this.bytesName(n - 1),
          nameTextStyle: { color: text, align: "left", padding: [0, 0, 0, -left + 8], fontSize: 11 }, nameGap: 8,
          axisLabel: { ...label, showMaxLabel: false, formatter: short }, splitLine: { lineStyle: { color: line, opacity: 0.5 } }, axisLine: { show: false },
        })),
      ],
      dataZoom: [
        { id: "inside", type: "inside", xAxisIndex: axes, filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseMove: true, moveOnMouseWheel: false, minValueSpan: LEAST_SPAN },
        { id: "slider", type: "slider", xAxisIndex: axes, filterMode: "none", left, right, bottom: 12, height: 20, showDataShadow: false, minValueSpan: LEAST_SPAN, borderColor: line, backgroundColor: ground, fillerColor: `${this.colours.accent}33`, handleStyle: { color: this.colours.accent }, moveHandleStyle: { color: faint }, brushSelect: false, showDetail: false },
      ],
      series: [
        { id: "items", type: "custom", xAxisIndex: 0, yAxisIndex: 0, clip: true, progressive: 0, encode: { x: [0, 1], y: 2 }, renderItem: (params, api) => this.shape(params, api), data: [] },
        ...(this.hasBytes ? [0, 1].flatMap((side) => this.byteSeries(side)) : []),
      ],
    };
  }

  bytesName(side) {
    const [from, to] = side === 0 ? ["client", "server"] : ["server", "client"];
    const arrived = this.model.connections.get(this.view.connection)?.vantage === to ? ", as received" : "";
    return this.narrow ? `${SIDES[side]} in flight, receive window` : `${from} → ${to}: bytes in flight (filled${arrived}), ${to}'s receive window (line)`;
  }

  byteSeries(side) {
    const axis = { xAxisIndex: side + 1, yAxisIndex: side + 1 };
    const line = { type: "line", step: "end", symbol: "none", ...axis, data: [], connectNulls: false };
    const dots = DOTS.map(([name, , colour, symbol], n) => ({ id: `dots${side}${n}`, name, type: "scatter", symbol, symbolSize: 6, ...axis, data: [], itemStyle: { color: this.colours[colour], opacity: 0.75 } }));
    return [
      { ...line, id: `flight${side}`, name: "in flight", lineStyle: { width: 1, color: this.colours.flight }, itemStyle: { color: this.colours.flight }, areaStyle: { color: this.colours.flight, opacity: 0.3 } },
      { ...line, id: `window${side}`, name: "receive window", lineStyle: { width: 1.5, color: this.colours.receive_window }, itemStyle: { color: this.colours.receive_window } },
      ...dots,
    ];
  }

  hovered(params) {
    if (params.seriesId === "items") return this.items[params.dataIndex];
    return { kind: "wait", row: params.data[2], count: 1 };
  }

  rangeChanged() {
    const { startValue, endValue } = this.chart.getOption().dataZoom[0];
    this.range = [startValue, endValue];
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  /** Draws the items of the range. */
  draw() {
    const [from, to] = this.range;
    const width = Math.max(this.element.clientWidth - (this.narrow ? 76 : 116), 100);
    const pixel = (to - from) / width;
    const all = this.view.connection === ALL;
    this.items = (all ? overviewItems : connectionItems)(this.model, this.view, from, to, pixel);
    if (!all) this.items.unshift(...this.missing(from, to));
    const shown = this.items.length;
    if (this.cursor) this.items.push({ ...this.cursor, outlined: true, height: 1 });
    const series = [{ id: "items", data: this.items.map((item) => [item.start, item.end, item.lane]) }];
    const tops = [{}];
    if (this.hasBytes) {
      for (const side of [0, 1]) {
        const lines = sideLines(this.model, this.view.connection, side, from, to, pixel);
        const dots = sideDots(this.model, this.view.connection, side, from, to);
        const max = topOf(lines, dots);
        tops.push({ max, name: this.bytesName(side) + (lines.window.length ? above(lines.window, max) : ": unknown") });
        series.push({ id: `flight${side}`, data: lines.flight }, { id: `window${side}`, data: lines.window });
        dots.forEach((data, n) => series.push({ id: `dots${side}${n}`, data }));
      }
    }
    this.chart.setOption({ series, yAxis: tops });
    Object.assign(this.element.dataset, { from: String(Math.round(from)), to: String(Math.round(to)), items: String(shown), connection: String(this.view.connection) });
    this.moved(shown);
  }

  /** Lists the ranges whose frames and packets the page does not have. */
  missing(from, to) {
    const lanes = this.view.layout.lanes.map((lane, place) => [lane.kind, place]).filter(([kind]) => kind === "frame" || kind === "packet");
    if (this.model.facts.whole || !lanes.length) return [];
    const { time_ns: time } = this.model.packets;
    const known = (this.model.by.spans.get(this.view.connection) ?? []).map((span) => {
      const rows = [this.model.spans.first_packet[span], this.model.spans.last_packet[span]].map((packet) => packetRow(this.model, packet));
      return rows.every((row) => row >= 0) ? [time[rows[0]], time[rows[1]]] : null;
    }).filter(Boolean);
    const gaps = [];
    let end = from;
    for (const [start, stop] of known) {
      if (start > end && end < to) gaps.push([end, Math.min(start, to)]);
      end = Math.max(end, stop);
    }
    if (end < to) gaps.push([end, to]);
    return gaps.flatMap(([start, stop]) => lanes.map(([, lane]) => ({ kind: "missing", start, end: stop, lane, count: 1, colour: "ground", height: 1 })));
  }

  shape(params, api) {
    const item = this.items[params.dataIndex];
    if (!item) return null;
    const [x0, y] = api.coord([item.start, item.lane]);
    const x1 = api.coord([item.end, item.lane])[0];
    const tall = Math.max(ROW * (item.height ?? 0.8), 2);
    const colour = this.colours[item.colour] ?? this.colours.faint;
    if (item.kind === "evidence") return this.diamond(x0, y, item, colour, params.coordSys);
    const rectangle = { x: x0, y: y - tall / 2, width: Math.max(x1 - x0, 1.5), height: tall };
    if (item.kind === "open") rectangle.y = y + ROW * 0.45 - tall; // columns stand on the line
    const shape = this.echarts.graphic.clipRectByRect(rectangle, params.coordSys);
    if (!shape) return null;
    if (item.outlined) return { type: "rect", shape, silent: true, style: { fill: "none", opacity: 1, stroke: this.colours.text, lineWidth: 2 }, z2: 1e6 };
    const style = { fill: colour, opacity: item.kind === "missing" ? 0.9 : item.count > 1 && item.kind !== "open" ? 0.7 : 1 };
    Object.assign(style, item.failed ? { stroke: this.colours.critical, lineWidth: 2 } : { stroke: null, lineWidth: 0 });
    const label = shape.width > 44 && !item.overlaps ? this.label(item) : "";
    const children = item.parts ? this.segments(item, shape, style, api) : [{ type: "rect", shape, style }];
    if (label) children.push(this.text(item, label, shape, colour));
    // marks are reused: their children must not be, which would keep an old text or colour
    return { type: "group", $mergeChildren: false, children: children.map((child) => ({ ...child, z2: params.dataIndex })) };
  }

  text(item, text, shape, colour) {
    const fill = item.kind === "missing" ? this.colours.faint : contrasting(colour);
    const place = { x: shape.x + 4, y: shape.y + shape.height / 2 + 0.5, verticalAlign: "middle", width: shape.width - 8 };
    return { type: "text", silent: true, style: { text, fill, fontSize: 11, overflow: "truncate", ellipsis: "…", ...place } };
  }

  /** Divides a bar among its causes by height, and draws blocked intervals over it at their times. */
  segments(item, shape, style, api) {
    const total = item.parts.reduce((sum, [, size]) => sum + size, 0) || 1;
    const bars = [];
    let { y } = shape;
    for (const [cause, size] of item.parts) {
      const height = (shape.height * size) / total;
      bars.push({ type: "rect", shape: { ...shape, y, height }, style: { fill: this.colours[cause], opacity: style.opacity } });
      y += height;
    }
    for (const { start, end, colour } of item.inside ?? []) {
      const [x0, x1] = [start, end].map((time) => Math.min(Math.max(api.coord([time, item.lane])[0], shape.x), shape.x + shape.width));
      if (x1 > x0) bars.push({ type: "rect", shape: { ...shape, x: x0, width: x1 - x0 }, style: { fill: this.colours[colour] } });
    }
    if (item.failed) bars.push({ type: "rect", shape, style: { ...style, fill: "none" } });
    return bars;
  }

  diamond(x, y, item, colour, { x: left, width }) {
    const points = [[x, y - 7], [x + 5, y], [x, y + 7], [x - 5, y]];
    const group = [{ type: "polygon", shape: { points }, style: { fill: colour } }];
    if (item.labelled) group.push({ type: "text", style: { text: `#${item.packet}`, x: x + 60 > left + width ? x - 7 : x + 7, y: y - 5, align: x + 60 > left + width ? "right" : "left", fill: this.colours.text, fontSize: 10 } });
    return { type: "group", $mergeChildren: false, children: group };
  }

  label(item) {
    const { model } = this;
    if (item.kind === "missing") return "not in this page";
    if (item.kind === "open") return "";
    if (item.count > 1) return item.kind === "packet" ? "" : item.count.toLocaleString("en");
    if (item.kind === "rpc") return `stream ${model.rpcs.stream[item.row]}, ${duration(item.end - item.start)}`;
    if (item.kind === "wait") return `${item.colour}, ${duration(item.end - item.start)}`;
    if (item.kind === "step") return item.covered ? "" : `${partName(model.facts.parts[model.steps.part[item.row]])}, ${duration(item.end - item.start)}`;
    return item.kind === "frame" ? frameName(model, model.frames.kind[item.row]) : "";
  }

  tick(value) {
    const [from, to] = this.range;
    const digits = Math.min(Math.max(Math.ceil(-Math.log10((to - from) / 8e9)), 0), 9);
    return `${(value / 1e9).toFixed(digits)} s`;
  }

  within(from, to) {
    const [first, last] = this.limits;
    const span = Math.min(Math.max(to - from, LEAST_SPAN), last - first);
    const start = Math.min(Math.max((from + to - span) / 2, first), last - span);
    return [start, start + span];
  }

  zoom(from, to) {
    const [startValue, endValue] = this.within(from, to);
    this.range = [startValue, endValue];
    this.chart.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, startValue, endValue });
  }

  /** Zooms by a factor; below 1 zooms in. */
  scale(factor) {
    const [from, to] = this.range;
    const [middle, half] = [(from + to) / 2, ((to - from) / 2) * factor];
    this.zoom(middle - half, middle + half);
  }

  /** Moves by a part of the visible range. */
  move(part) {
    const [from, to] = this.range;
    this.zoom(from + (to - from) * part, to + (to - from) * part);
  }

  whole() {
    this.zoom(...this.limits);
  }

  /** Outlines an RPC or blocked interval. */
  mark(kind, row) {
    const { model, view } = this;
    const table = model[`${kind}s`];
    let lane;
    if (kind === "rpc") lane = view.layout.slots[view.layout.rows.indexOf(row)] + view.layout.lanes.findIndex((one) => one.kind === "rpc");
    else lane = view.layout.lanes.findIndex((one) => one.kind === "wait" && one.side === table.direction[row]);
    this.cursor = { kind, row, lane, start: table.start_ns[row], end: table.start_ns[row] + table.duration_ns[row], count: 1 };
    const [from, to] = this.range;
    if (this.cursor.end < from || this.cursor.start > to) this.zoom(this.cursor.start - (to - from) * 0.3, this.cursor.start + (to - from) * 0.7);
    this.draw();
  }

  /** Outlines a packet. */
  markPacket(row) {
    const { packets } = this.model;
    const lane = this.view.layout.lanes.findIndex((one) => one.kind === "packet" && one.side === packets.direction[row]);
    const time = packets.time_ns[row];
    this.cursor = { kind: "packet", row, lane, start: time, end: time, count: 1 };
    this.draw();
  }

  resized() {
    if (!this.view || this.element.clientWidth === this.chart.getWidth()) return;
    if (this.element.clientWidth < 560 !== this.narrow) this.build();
    else {
      this.chart.resize();
      this.draw();
    }
  }
}

/** Describes a receive window that lies above the axis. */
function above(line, max) {
  const least = Math.min(...line.map(([, value]) => value ?? Infinity).filter((value) => value > 0));
  return least > max && Number.isFinite(least) ? `; above: ${short(least)} or more` : "";
}

function short(value) {
  if (value >= 1e6) return `${Number((value / 1e6).toPrecision(3))} MB`;
  return value >= 1e3 ? `${Number((value / 1e3).toPrecision(3))} kB` : `${Math.round(value)} B`;
}

/** Picks black or white, whichever is easier to read on a colour written as #rrggbb. */
function contrasting(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) || 0);
  return red * 0.299 + green * 0.587 + blue * 0.114 > 140 ? "#101418" : "#ffffff";
}
