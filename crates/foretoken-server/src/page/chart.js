// Small line charts, drawn as SVG.

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, LEFT, BOTTOM] = [300, 120, 40, 16];

function svg(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** The parts of a curve between points without a value. */
function runs(points) {
  const runs = [[]];
  for (const point of points) {
    if (point[1] === null) runs.push([]);
    else runs.at(-1).push(point);
  }
  return runs.filter((run) => run.length > 0);
}

/**
 * A curve through `points` [x, y], with gaps where y is null. `least`: the y axis reaches this far at least; `most`: and
 * no farther; `unit` names its values; `mark` is a point to show; `level` a value to compare with; `from` and `to` label the ends of the x axis.
 */
export function lineChart(points, { label, from = "", to = "", mark, level, least = 0, most = Infinity, unit = (y) => y.toPrecision(2) } = {}) {
  const chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  const top = Math.min(most, Math.max(least, 1.1 * Math.max(0, level ?? 0, ...points.map(([, y]) => y ?? 0))) || 1);
  const [first, last] = [points[0]?.[0] ?? 0, points.at(-1)?.[0] ?? 1];
  const x = (value) => LEFT + ((value - first) / Math.max(1e-9, last - first)) * (WIDTH - LEFT - 4);
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - 4);
  chart.append(
    svg("line", { class: "axis", x1: LEFT, x2: WIDTH, y1: y(0), y2: y(0) }),
    svg("text", { x: LEFT - 4, y: y(top) + 10, "text-anchor": "end" }, unit(top)),
    svg("text", { x: LEFT - 4, y: y(0), "text-anchor": "end" }, "0"),
    svg("text", { x: LEFT, y: HEIGHT - 3 }, from),
    svg("text", { x: WIDTH - 2, y: HEIGHT - 3, "text-anchor": "end" }, to),
  );
  if (level !== undefined) chart.append(svg("line", { class: "level", x1: LEFT, x2: WIDTH, y1: y(level), y2: y(level) }));
  for (const run of runs(points)) {
    // A value between gaps is a line too short to see: the dot at its end shows it.
    const [endX, endY] = run.at(-1);
    chart.append(
      svg("polyline", { class: "curve", points: run.map(([px, py]) => `${x(px)},${y(py)}`).join(" ") }),
      svg("circle", { class: "end", cx: x(endX), cy: y(endY), r: 1.5 }),
    );
  }
  if (mark) chart.append(svg("circle", { class: "mark", cx: x(mark[0]), cy: y(mark[1]), r: 4 }));
  return chart;
}
