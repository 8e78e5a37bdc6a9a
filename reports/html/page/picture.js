// Draws the pictures of findings: series of points in a few forms, over one axis of time.

const MOST_DOTS = 10000; // calls of a picture; of more, the slowest and an even sample of the others
const MOST_FAILED = 2000;
const LANE = 18;
const LINES = ["step", "limit", "stack"];

/** Draws each picture when it comes into view, and all of them again in other colours. */
class Pictures {
  constructor(model, echarts, go) {
    Object.assign(this, { model, echarts, go, charts: new Map() });
    this.seen = new IntersectionObserver((entries) => entries.filter((one) => one.isIntersecting).forEach((one) => this.draw(one.target)));
    const whole = { kind: "latency", unit: "ns", begin_ns: 0, end_ns: model.facts.duration, series: [], lanes: [], marks: [], connections: [], methods: [] };
    this.figures = new Map([...document.querySelectorAll("figure[data-picture]")].map((figure) => [figure, model.facts.pictures[figure.dataset.picture - 1] ?? whole]));
    for (const [figure, picture] of this.figures) {
      this.seen.observe(figure);
      figure.querySelector("button.range")?.addEventListener("click", () => go(picture));
    }
    new ResizeObserver(() => this.resize()).observe(document.body);
  }

  draw(figure) {
    if (!figure.clientWidth || this.charts.has(figure)) return;
    this.charts.set(figure, drawPicture(this.model, this.echarts, figure, this.figures.get(figure), this.go));
    figure.dataset.drawn = "yes";
  }

  resize() {
    if (this.width !== document.body.clientWidth) this.charts.forEach((chart) => chart.resize());
    this.width = document.body.clientWidth;
  }

  /** Draws what was drawn again, or everything. */
  repaint(everything = false) {
    const again = everything ? [...this.figures.keys()] : [...this.charts.keys()];
    this.charts.forEach((chart) => chart.dispose());
    this.charts.clear();
    again.forEach((figure) => this.draw(figure));
  }
}

function drawPicture(model, echarts, figure, picture, go) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const plot = figure.querySelector(".plot");
  const { lanes, kind } = picture;
  const series = kind === "latency" ? latencySeries(model, picture) : picture.series;
  const ends = kind === "latency" ? axisEnds(series.flatMap(({ points }) => points).map(([, value]) => [value, value]).sort(([a], [b]) => a - b)) : null;
  const marks = [...picture.marks.map(([xAxis, name]) => ({ xAxis, name })), ...(kind === "latency" ? quantilesOf(model, picture, ends) : [])];
  if (lanes.length) plot.style.height = `${70 + LANE * lanes.length}px`;
  const chart = echarts.init(plot, null, { renderer: "canvas" });
  const left = lanes.length ? 88 : 64;
  const label = { color: colour("faint"), fontSize: 10 };
  const grey = { lineStyle: { color: colour("line"), opacity: 0.6 } };
  const asItem = lanes.length || kind === "latency" || kind === "delay";
  chart.setOption({
    animation: false,
    textStyle: { fontFamily: "system-ui, sans-serif" },
    grid: { left, right: 20, top: 24, bottom: 26, outerBoundsMode: "none" },
    tooltip: {
      trigger: asItem ? "item" : "axis", confine: true, renderMode: "html", transitionDuration: 0, backgroundColor: colour("page"), borderColor: colour("line"),
      formatter: (params) => pictureWords(model, picture, series, Array.isArray(params) ? params : [params]),
    },
    xAxis: { type: "value", min: picture.begin_ns, max: Math.max(picture.end_ns, picture.begin_ns + 1000), splitNumber: plot.clientWidth < 560 ? 3 : 7, splitLine: grey, axisLine: grey, axisLabel: { ...label, hideOverlap: true, showMinLabel: false, showMaxLabel: false, formatter: (value) => timeTick(value, picture) } },
    yAxis: lanes.length
      ? { type: "category", inverse: true, data: lanes, axisLine: { show: false }, axisTick: { show: false }, axisLabel: { ...label, interval: 0, width: left - 12, overflow: "truncate" } }
      : { type: "value", ...(ends ? { min: ends[0], max: ends[1], axisTick: { customValues: ticks(...ends) } } : {}), name: picture.unit === "ns" ? "" : picture.unit, nameTextStyle: { ...label, align: "right" }, minInterval: picture.unit === "RPCs" ? 1 : undefined, splitNumber: 4, splitLine: { ...grey, show: !ends }, axisLabel: ends ? { ...label, customValues: ticks(...ends), formatter: (value) => plain(10 ** value) } : { ...label, formatter: (value) => amount(Math.abs(value), picture.unit) } },
    series: series.map((one, place) => ({ ...drawSeries(one, colour, model, echarts), name: one.name, ...(place || !marks.length ? {} : { markLine: markLines(marks, colour) }) })),
  });
  chart.on("click", ({ seriesIndex, data }) => series[seriesIndex].form === "dots" && data[2] !== undefined && go(picture, data[2]));
  figure.querySelector(".keys").replaceChildren(...series.map(({ name, colour: key, form }) => element("li", {}, swatch(colour(key), form), name)));
  return chart;
}

/** Turns a series of the report into one of the library. */
function drawSeries({ form, colour: key, points }, colour, model, echarts) {
  const fill = colour(key);
  const line = { type: "line", step: "end", symbol: "none", connectNulls: false, itemStyle: { color: fill }, data: points };
  const custom = (renderItem, encode = { x: [0, 1] }) => ({ type: "custom", clip: true, encode, itemStyle: { color: fill }, data: points, renderItem });
  const forms = {
    step: () => ({ ...line, z: 2, lineStyle: { width: 1.5, color: fill }, areaStyle: { color: fill, opacity: 0.25 } }),
    limit: () => ({ ...line, z: 4, lineStyle: { width: 2.5, color: fill } }),
    stack: () => ({ ...line, stack: "all", lineStyle: { width: 0 }, areaStyle: { color: fill, opacity: 0.9 } }),
    dots: () => ({ type: "scatter", symbolSize: 5, large: points.length > 2000, itemStyle: { color: fill, opacity: 0.75 }, data: points }),
    rings: () => ({ type: "scatter", symbolSize: 9, z: 5, silent: true, itemStyle: { color: "transparent", borderColor: fill, borderWidth: 1.5 }, data: points }),
    spikes: () => custom((params, api) => {
      const [[x, y], [, zero]] = [api.coord([api.value(0), api.value(1)]), api.coord([api.value(0), 0])];
      return { type: "rect", shape: { x: x - 1, y: Math.min(y, zero), width: 2, height: Math.abs(zero - y) }, style: { fill } };
    }, { x: 0, y: 1 }),
    shade: () => ({ ...custom((params, api) => {
      const [x0, x1] = [api.coord([api.value(0), 0])[0], api.coord([api.value(1), 0])[0]];
      return { type: "rect", shape: { x: x0, y: params.coordSys.y, width: Math.max(x1 - x0, 1), height: params.coordSys.height }, style: { fill, opacity: 0.3 } };
    }), silent: true, z: 1 }),
    bars: () => custom((params, api) => {
      const [[x0, y], [x1]] = [api.coord([api.value(0), api.value(2)]), api.coord([api.value(1), api.value(2)])];
      const shape = echarts.graphic.clipRectByRect({ x: x0, y: y - LANE * 0.36, width: Math.max(x1 - x0, 1.5), height: LANE * 0.72 }, params.coordSys);
      return shape && { type: "rect", shape, style: { fill } };
    }, { x: [0, 1], y: 2 }),
    arrows: () => custom((params, api) => {
      const [[x0, y], [x1]] = [api.coord([api.value(0), api.value(2)]), api.coord([api.value(1), api.value(2)])];
      const head = { type: "polygon", shape: { points: [[x1, y], [x1 - 7, y - 4], [x1 - 7, y + 4]] }, style: { fill } };
      return { type: "group", children: [{ type: "line", shape: { x1: x0, y1: y, x2: x1, y2: y }, style: { stroke: fill, lineWidth: 2 } }, { type: "circle", shape: { cx: x0, cy: y, r: 3 }, style: { fill } }, head] };
    }, { x: [0, 1], y: 2 }),
  };
  return forms[form]();
}

/** Lists the calls of a picture as dots, a series per main cause; failed calls get a ring. */
function latencySeries(model, picture) {
  const { rpcs, facts } = model;
  const methods = new Set(picture.methods.map((name) => facts.methods.indexOf(name)));
  const connections = new Set(picture.connections);
  let rows = [];
  for (let row = 0; row < rpcs.rows; row += 1) {
    if ((!connections.size || connections.has(rpcs.connection[row])) && (!methods.size || methods.has(rpcs.method[row]))) rows.push(row);
  }
  if (rows.length > MOST_DOTS) rows = worstAndSample(rows, rpcs.duration_ns);
  const causes = new Map();
  const failed = [];
  for (const row of rows) {
    const point = [rpcs.start_ns[row], Math.log10(Math.max(rpcs.duration_ns[row], 1000)), row];
    const cause = model.top[row];
    if (!causes.has(cause)) causes.set(cause, []);
    causes.get(cause).push(point);
    if (rpcs.status[row] !== 0 && rpcs.status[row] < 255) failed.push(point);
  }
  const series = [...causes].sort((a, b) => b[1].length - a[1].length).map(([cause, points]) => ({ name: facts.causes[cause], form: "dots", colour: facts.causes[cause], points }));
  return failed.length ? [...series, { name: "failed", form: "rings", colour: "critical", points: failed.slice(0, MOST_FAILED) }] : series;
}

function worstAndSample(rows, durations) {
  const sorted = Float64Array.from(rows, (row) => durations[row]).sort();
  const least = sorted[rows.length - MOST_DOTS / 2];
  const [worst, rest] = [[], []];
  for (const row of rows) (durations[row] > least ? worst : rest).push(row);
  const every = rest.length / (MOST_DOTS - worst.length);
  return [...worst, ...Array.from({ length: MOST_DOTS - worst.length }, (_, place) => rest[Math.floor(place * every)])];
}

const markLines = (marks, colour) => ({
  silent: true, symbol: "none", lineStyle: { color: colour("text"), type: "dotted", opacity: 0.7 },
  label: { color: colour("text"), fontSize: 10, formatter: ({ name }) => name },
  data: marks.map((mark) => (mark.yAxis === undefined ? mark : { ...mark, label: { position: "insideEndTop" } })),
});

/** Lists the quantiles of the only method of a picture. */
function quantilesOf({ facts }, { methods }, ends) {
  const names = methods.length ? methods : facts.methods;
  const found = names.length === 1 ? facts.latencies.find(({ method }) => method === names[0]) : null;
  return found ? apart(found.quantiles.map(([name, ns]) => ({ xAxis: Math.log10(Math.max(ns, 1)), name })), ends, 0.08).map(({ xAxis, name }) => ({ yAxis: xAxis, name })) : [];
}

function pictureWords(model, picture, series, params) {
  const [{ data, seriesIndex }] = params;
  const { name, form } = series[seriesIndex];
  if (data?.[2] !== undefined && form === "dots") {
    const { rpcs, facts } = model;
    const row = data[2];
    return hintOf(facts.methods[rpcs.method[row]], [`stream ${rpcs.stream[row]} of connection ${rpcs.connection[row]}`, `${duration(rpcs.duration_ns[row])} from ${seconds(rpcs.start_ns[row])}`, `status ${status(model, rpcs.status[row])}`, `main cause: ${name}`]);
  }
  if (form === "bars" || form === "arrows") return hintOf(name, [picture.lanes[data[2]], `${seconds(data[0])} to ${seconds(data[1])} (${duration(data[1] - data[0])})`]);
  const known = params.filter((one) => one.data && one.data[1] !== null && series[one.seriesIndex].form !== "shade");
  return hintOf(data ? seconds(data[0]) : "", known.map((one) => `${series[one.seriesIndex].name}: ${amount(Math.abs(one.data[1]), picture.unit)}`));
}

const hintOf = (title, lines) => element("div", { className: "hint" }, element("b", {}, title), ...lines.map((line) => element("div", {}, line)));

function amount(value, unit) {
  if (unit === "ns") return plain(value);
  return unit === "bytes" ? short(value) : value.toLocaleString("en");
}

function timeTick(value, { begin_ns: from, end_ns: to }) {
  const digits = Math.min(Math.max(Math.ceil(-Math.log10(Math.max(to - from, 1) / 8e9)), 0), 9);
  return `${(value / 1e9).toFixed(digits)} s`;
}

/** Draws the key of a series: a square, or a line for a limit. */
function swatch(fill, form) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", "0 0 10 10");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", form === "limit" ? "M0 4h10v3h-10z" : form === "dots" || form === "rings" ? "M0 5a5 5 0 1 1 10 0a5 5 0 1 1 -10 0z" : "M0 0h10v10h-10z");
  path.setAttribute(form === "rings" ? "stroke" : "fill", fill);
  if (form === "rings") path.setAttribute("fill", "none");
  svg.append(path);
  return svg;
}
