// The third view: what the server has been doing, from its totals.

import { get } from "./server.js";
import { element } from "./tokens.js";
import { lineChart } from "./chart.js";

const KEPT = 120;
const samples = [];

const ratio = (a, b) => (b > 0 ? a / b : 0);
const CHARTS = [
  ["Tokens a second", (d, seconds) => ratio(d.output_tokens, seconds)],
  ["Tokens a pass", (d) => ratio(d.output_tokens, d.passes)],
  ["Guesses accepted", (d) => ratio(d.accepted_tokens, d.draft_tokens)],
  ["Speed-up over no drafts, estimated", (d) => ratio(d.plain_seconds_estimated, d.draft_seconds + d.verify_seconds + d.rest_seconds)],
  ["Requests under way", (d, seconds, now) => now.requests_running],
  ["Requests waiting", (d, seconds, now) => now.requests_waiting],
];

function differences() {
  return samples.slice(1).map((now, index) => {
    const before = samples[index];
    const d = Object.fromEntries(Object.keys(now.totals).map((name) => [name, now.totals[name] - before.totals[name]]));
    return { d, seconds: (now.at - before.at) / 1000, now: now.totals };
  });
}

function draw() {
  const steps = differences();
  document.getElementById("charts").replaceChildren(...CHARTS.map(([label, value]) => {
    const points = steps.map((step, index) => [index, value(step.d, step.seconds, step.now)]);
    const figure = document.createElement("figure");
    const caption = element("figcaption", { text: label });
    caption.append(element("b", { text: (points.at(-1)?.[1] ?? 0).toFixed(2) }));
    figure.append(caption, lineChart(points, { label, from: `${steps.length} s ago`, to: "now" }));
    return figure;
  }));
}

async function sample() {
  try {
    samples.push({ at: performance.now(), totals: await get("/stats") });
    if (samples.length > KEPT) samples.shift();
    if (!document.getElementById("view-load").hidden) draw();
  } catch { /* the next try may do */ }
  setTimeout(sample, 1000);
}

export function start() {
  sample();
}

export { draw };
