// Draws the distributions of latencies: the RPCs in each class, on a logarithmic axis.

const LABEL = 28; // pixels of the name of a quantile

function drawLatencies(model, echarts, container, charts) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  container.replaceChildren();
  charts.splice(0).forEach((chart) => chart.dispose());
  for (const { method, first, counts, quantiles } of model.facts.latencies) {
    const plot = element("div", { className: "plot" });
    const text = quantiles.map(([name, ns]) => `${name} ${duration(ns)}`).join(", ");
    container.append(element("figure", {}, element("figcaption", {}, element("bdi", {}, method), element("small", {}, text)), plot));
    const chart = echarts.init(plot, null, { renderer: "canvas" });
    const bins = counts.map((count, place) => [(first + place) / model.facts.bins, (first + place + 1) / model.facts.bins, count]);
    const lines = quantiles.map(([name, ns]) => ({ xAxis: Math.log10(Math.max(ns, 1)), name }));
    const ends = axisEnds(bins);
    const label = { color: colour("faint"), fontSize: 10 };
    chart.setOption({
      animation: false,
      grid: { left: 52, right: 16, top: 22, bottom: 24 },
      tooltip: { trigger: "item", confine: true, renderMode: "html", transitionDuration: 0, backgroundColor: colour("page"), borderColor: colour("line"), formatter: (params) => binWords(params, bins) },
      xAxis: { type: "value", min: ends[0], max: ends[1], axisTick: { customValues: ticks(...ends) }, splitLine: { show: false }, axisLine: { lineStyle: { color: colour("line") } }, axisLabel: { ...label, customValues: ticks(...ends), hideOverlap: true, formatter: (value) => plain(10 ** value) } },
      yAxis: { type: "value", minInterval: 1, splitNumber: 3, splitLine: { lineStyle: { color: colour("line"), opacity: 0.5 } }, axisLabel: { ...label, formatter: (value) => value.toLocaleString("en") } },
      series: [{
        type: "custom", encode: { x: [0, 1], y: 2 }, data: bins, itemStyle: { color: colour("accent") }, clip: true,
        renderItem: (params, api) => {
          const [x0, y] = api.coord([api.value(0), api.value(2)]);
          const [x1, bottom] = api.coord([api.value(1), 0]);
          return { type: "rect", shape: { x: x0, y, width: Math.max(x1 - x0 - 1, 1), height: bottom - y }, style: { fill: colour("accent"), opacity: 0.8 } };
        },
        markLine: { silent: true, symbol: "none", lineStyle: { color: colour("text"), type: "dashed" }, label: { color: colour("text"), fontSize: 10, formatter: ({ name }) => name }, data: apart(lines, ends, LABEL / Math.max(plot.clientWidth - 68, LABEL)) },
      }],
    });
    charts.push(chart);
  }
}

/** Finds the ends of the axis, at least a factor of three apart, so that one class does not look like many. */
function axisEnds(bins) {
  if (!bins.length) return [6, 7];
  const [first, last] = [bins[0][0], bins[bins.length - 1][1]];
  const pad = Math.max((0.5 - (last - first)) / 2, 0.05);
  return [first - pad, last + pad];
}

/** Lists the logarithms of 1, 2 and 5 times the powers of ten; on a long axis of 1, on a short one of all digits. */
function ticks(from, to) {
  const digits = to - from > 3 ? [1] : to - from > 1.2 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
  const values = [];
  for (let power = Math.floor(from); power <= to; power += 1) {
    for (const digit of digits) values.push(power + Math.log10(digit));
  }
  return values.filter((value) => value >= from && value <= to);
}

/** Formats round figures without trailing zeros: `200 ms`. */
function plain(ns) {
  const [unit, name] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]].find(([size]) => ns >= size * 0.999) ?? [1, "ns"];
  return `${Number((ns / unit).toPrecision(3))} ${name}`;
}

/** Joins the lines of quantiles that are less than a share of the axis apart. */
function apart(lines, [from, to], share) {
  const kept = [];
  for (const line of lines) {
    const last = kept[kept.length - 1];
    if (last && line.xAxis - last.xAxis < share * (to - from)) last.name += `, ${line.name}`;
    else kept.push({ ...line });
  }
  return kept;
}

function binWords({ dataIndex }, bins) {
  const [from, to, count] = bins[dataIndex];
  return element("div", { className: "hint" }, `${counted(count, "RPC")} from ${duration(10 ** from)} to ${duration(10 ** to)}`);
}
