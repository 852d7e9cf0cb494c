// Small line charts, drawn as SVG.

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, LEFT, BOTTOM] = [300, 120, 34, 16];

function svg(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** A curve through `points` [x, y]; `mark` is a point to show, `from` and `to` label the ends of the x axis. */
export function lineChart(points, { label, from = "", to = "", mark } = {}) {
  const chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  const top = Math.max(1e-9, ...points.map(([, y]) => y)) * 1.1;
  const [first, last] = [points[0]?.[0] ?? 0, points.at(-1)?.[0] ?? 1];
  const x = (value) => LEFT + ((value - first) / Math.max(1e-9, last - first)) * (WIDTH - LEFT - 4);
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - 4);
  chart.append(
    svg("line", { class: "axis", x1: LEFT, x2: WIDTH, y1: y(0), y2: y(0) }),
    svg("text", { x: LEFT - 4, y: y(top) + 10, "text-anchor": "end" }, top >= 100 ? top.toFixed(0) : top.toPrecision(2)),
    svg("text", { x: LEFT - 4, y: y(0), "text-anchor": "end" }, "0"),
    svg("text", { x: LEFT, y: HEIGHT - 3 }, from),
    svg("text", { x: WIDTH - 2, y: HEIGHT - 3, "text-anchor": "end" }, to),
    svg("polyline", { class: "curve", points: points.map(([px, py]) => `${x(px)},${y(py)}`).join(" ") }),
  );
  if (mark) chart.append(svg("circle", { class: "mark", cx: x(mark[0]), cy: y(mark[1]), r: 4 }));
  return chart;
}
