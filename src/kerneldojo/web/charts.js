// Line charts in SVG: series with optional bands, a legend, and values on hover. No library, no markup from strings.

const COLOURS = Array.from({ length: 8 }, (_, at) => `var(--s${at + 1})`);
const FEW = 3;  // more bands than this hide each other
const NARROW = matchMedia("(max-width: 640px)");  // there a chart is drawn smaller, for its words would shrink with it

function svg(name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function niceStep(span, count) {
  const rough = span / count, power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 2.5, 5, 10].find(f => f * power >= rough * 0.999);
}

// Of counts that are there the powers of two and the last; of other amounts 1, 2, 5, 10, 20, ... as far as they go.
function logTicks(xs) {
  const least = Math.min(...xs), most = Math.max(...xs);
  if (xs.every(Number.isInteger) && least < 16) return [...new Set(xs)].filter(x => Number.isInteger(Math.log2(x)) || x === most);
  const ladder = Array.from({ length: 40 }, (_, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3)).filter(x => x >= least && x <= most);
  return ladder.length > 1 ? ladder : [least, most].map(Math.round);
}

// series: [{name, points: [[x, y, low, high]], dots, dashed}]; options: {xTitle, format, tick, xTicks, yMax, log, aria}
function lineChart(series, options) {
  const all = series.flatMap(one => one.points).filter(point => point[1] !== null);
  if (!all.length) return el("p", { class: "soft" }, "Nothing to draw: no times were taken.");
  const legend = el("div", { class: "legend" }, series.map((one, at) => {
    const mark = el("i"); mark.style.background = COLOURS[at % COLOURS.length];
    return el("span", {}, mark, harmless(one.name));
  }));
  const chart = el("div", { class: "chart" });
  const draw = () => chart.replaceChildren(picture(series, all, options), ...(series.length > 1 ? [legend] : []));
  draw();
  NARROW.addEventListener("change", draw);
  return chart;
}

function picture(series, all, options) {
  const W = NARROW.matches ? 340 : 560, H = NARROW.matches ? 230 : 280, left = 52, right = 16, top = 14, bottom = 42;
  const fx = options.log ? Math.log2 : x => x;
  const xs = all.map(p => p[0]), xMin = fx(Math.min(...xs)), xMax = Math.max(fx(Math.max(...xs)), xMin + 1e-9);
  const banded = series.length <= FEW, yTop = options.yMax ?? (Math.max(...all.map(p => Math.max(p[1], banded ? p[3] ?? p[1] : p[1]))) * 1.08 || 1);
  const step = niceStep(yTop, 4), X = x => left + (W - left - right) * (xMax - xMin < 1e-6 ? 0.5 : (fx(x) - xMin) / (xMax - xMin));
  const Y = y => H - bottom - (H - top - bottom) * Math.min(y, yTop) / yTop;
  const root = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": options.aria || "chart" });
  for (let y = 0; y <= yTop * 1.001; y += step) {
    root.append(svg("line", { x1: left, x2: W - right, y1: Y(y), y2: Y(y), class: y ? "rule" : "axis" }));
    root.append(svg("text", { x: left - 8, y: Y(y) + 4, "text-anchor": "end" }, (options.tick || options.format)(y)));
  }
  const span = xMax - xMin, xStep = niceStep(span, 6);
  const ticks = options.xTicks || (options.log ? logTicks(xs) :
    Array.from({ length: Math.floor(span / xStep + 1e-6) + 1 }, (_, i) => xMin + i * xStep));
  let reach = -99;
  for (const x of [...ticks].sort((a, b) => a - b)) {
    if (X(x) - reach < 26) continue;
    reach = X(x);
    root.append(svg("text", { x: X(x), y: H - bottom + 18, "text-anchor": "middle" }, x >= 1000 ? thousands(x) : String(Number(x.toFixed(2)))));
  }
  root.append(svg("text", { x: (left + W - right) / 2, y: H - 6, "text-anchor": "middle" }, options.xTitle));
  series.forEach((one, at) => {
    const points = one.points.filter(p => p[1] !== null), colour = COLOURS[at % COLOURS.length];
    const width = series.length <= FEW ? 2.2 + 3 * (series.length - 1 - at) : 2.2;  // a line below an equal one still shows
    const band = points.filter(p => p[2] !== undefined && p[2] !== null);
    if (band.length > 1 && banded) {
      const path = [...band.map(p => `${X(p[0])},${Y(p[3])}`), ...band.slice().reverse().map(p => `${X(p[0])},${Y(p[2])}`)];
      root.append(svg("polygon", { points: path.join(" "), style: `fill:${colour};opacity:.1` }));
    }
    root.append(svg("polyline", { points: points.map(p => `${X(p[0])},${Y(p[1])}`).join(" "), style: `fill:none;stroke:${colour};stroke-width:${width};stroke-linejoin:round${one.dashed ? ";stroke-dasharray:6 4" : ""}` }));
    for (const p of points) {
      if (one.dots === false && points.length > 1) continue;
      const dot = svg("circle", { cx: X(p[0]), cy: Y(p[1]), r: 4, style: `fill:${colour}` });
      const interval = p[2] !== undefined && p[2] !== null ? ` (${options.format(p[2])} to ${options.format(p[3])})` : "";
      dot.append(svg("title", {}, `${one.name}, ${options.xTitle} ${thousands(Number(p[0].toFixed(2)))}: ${options.format(p[1])}${interval}`));
      root.append(dot);
    }
  });
  return root;
}
