// The third view: what the server has been doing, from its totals.

import { get } from "./server.js";
import { element } from "./tokens.js";
import { lineChart } from "./chart.js";

const KEPT = 120;
const EVERY_MS = 1000;
/** After a try that failed: the server may be away, or want a key. */
const LATER_MS = 5000;
const samples = [];

/** Nothing where nothing was done. */
const ratio = (a, b) => (b > 0 ? a / b : null);
const number = (y) => (y >= 100 ? y.toFixed(0) : y.toPrecision(2));
const whole = (y) => y.toFixed(0);
const percent = (y) => `${(100 * y).toFixed(0)} %`;
const spent = (d) => d.draft_seconds + d.verify_seconds + d.rest_seconds;
const CHARTS = [
  ["Tokens a second", (d, seconds) => ratio(d.output_tokens, seconds), { unit: number }],
  ["Tokens a pass", (d) => ratio(d.output_tokens, d.passes), { unit: number }],
  ["Guesses accepted", (d) => ratio(d.accepted_tokens, d.draft_tokens), { unit: percent, least: 1, most: 1 }],
  ["Speed-up over no drafts, estimated", (d) => ratio(d.plain_seconds_estimated, spent(d)), { unit: number, level: 1 }],
  ["Requests under way", (d, seconds, now) => now.requests_running, { unit: whole, least: 1 }],
  ["Requests waiting", (d, seconds, now) => now.requests_waiting, { unit: whole, least: 1 }],
];

function differences() {
  return samples.slice(1).map((now, index) => {
    const before = samples[index];
    const d = Object.fromEntries(Object.keys(now.totals).map((name) => [name, now.totals[name] - before.totals[name]]));
    return { d, at: now.at / 1000, seconds: (now.at - before.at) / 1000, now: now.totals };
  });
}

function draw() {
  const steps = differences();
  const age = steps.length > 1 ? Math.round(steps.at(-1).at - steps[0].at) : 0;
  document.getElementById("charts").replaceChildren(...CHARTS.map(([label, value, how]) => {
    const points = steps.map((step) => [step.at, value(step.d, step.seconds, step.now)]);
    const latest = points.at(-1)?.[1] ?? null;
    const figure = document.createElement("figure");
    const caption = element("figcaption", { text: label });
    caption.append(element("b", { text: latest === null ? "–" : how.unit(latest) }));
    figure.append(caption, lineChart(points, { label, from: `${age} s ago`, to: "now", ...how }));
    return figure;
  }));
}

async function sample() {
  let pause = EVERY_MS;
  try {
    samples.push({ at: performance.now(), totals: await get("/stats") });
    if (samples.length > KEPT) samples.shift();
    if (!document.getElementById("view-load").hidden) draw();
  } catch {
    pause = LATER_MS;
  }
  setTimeout(sample, pause);
}

export function start() {
  sample();
}

export { draw };
