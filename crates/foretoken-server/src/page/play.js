// The fourth view: the reader drafts, the model checks; and when drafting pays at all.

import { post } from "./server.js";
import { element } from "./tokens.js";
import { lineChart } from "./chart.js";

const by = (id) => document.getElementById(id);
const TEXTS = [
  "def fibonacci(n):\n    if n < 2:\n        return n\n",
  "The quick brown fox jumps over the lazy",
  "One, two, three, four,",
  "{\"name\": \"Ada\", \"born\": 1815}\n{\"name\": \"Alan\",",
];
const game = { text: TEXTS[0], index: 0, passes: 0, tokens: 0, guessed: 0, accepted: 0 };

async function ids(text) {
  return (await (await post("/tokenize", { prompt: text, with_pieces: true })).json());
}

/** What the model writes next, greedily, as pieces of text. */
async function written(n) {
  const body = { prompt: game.text, max_tokens: n, temperature: 0, trace: true, draft: "auto" };
  const answer = await (await post("/v1/completions", body)).json();
  return answer.choices[0].foretoken.passes.flatMap((pass) => pass.tokens);
}

async function check(guess) {
  const [before, whole] = [await ids(game.text), await ids(game.text + guess)];
  // A guess that changes how the text before it is cut begins with the first token that differs.
  let same = 0;
  while (same < before.count && before.tokens[same] === whole.tokens[same]) same += 1;
  const guessed = whole.tokens.slice(before.count).map((id, index) => ({ id, text: whole.pieces[before.count + index] }));
  const model = await written(guessed.length + 1);
  let right = 0;
  if (same === before.count) {
    while (right < guessed.length && right < model.length && guessed[right].id === model[right].id) right += 1;
  }
  const kept = model.slice(0, right + 1);
  game.text += kept.map((token) => token.text).join("");
  game.passes += 1;
  game.tokens += kept.length;
  game.guessed += guessed.length;
  game.accepted += right;
  const verdict = by("verdict");
  verdict.replaceChildren(
    element("span", { text: guessed.slice(0, right).map((token) => token.text).join(""), classes: ["right"] }),
    element("span", { text: guessed.slice(right).map((token) => token.text).join(""), classes: ["wrong"] }),
    document.createTextNode(` ${right} of ${guessed.length} tokens accepted, and the model adds “${kept.at(-1)?.text ?? ""}”.`),
  );
  show();
}

function show() {
  by("play-text").textContent = game.text;
  by("score").textContent = game.passes === 0 ? "" :
    `${game.tokens} tokens in ${game.passes} passes: ${(game.tokens / game.passes).toFixed(2)} a pass. Without drafts it is 1.`;
  if (game.guessed > 0) {
    by("acceptance").value = String(Math.min(99, Math.round((100 * game.accepted) / game.guessed)));
    pays();
  }
}

/** Tokens a pass when each guess of a chain is accepted with chance a: 1 + a + a^2 + ... (Leviathan et al. 2023). */
const tokensPerPass = (a, width) => Array.from({ length: width + 1 }, (_, depth) => a ** depth).reduce((x, y) => x + y);

function pays() {
  const [a, width, cost] = [by("acceptance").value / 100, Number(by("width").value), by("row-cost").value / 100];
  by("acceptance-value").textContent = `${by("acceptance").value} %`;
  by("width-value").textContent = String(width);
  by("row-cost-value").textContent = `${by("row-cost").value} % of a pass`;
  const speedup = (n) => tokensPerPass(a, n) / (1 + cost * n);
  const points = Array.from({ length: 17 }, (_, n) => [n, speedup(n)]);
  const best = points.reduce((x, y) => (y[1] > x[1] ? y : x));
  const label = "Speed-up by the number of guesses a pass";
  by("pays").replaceChildren(lineChart(points, { label, from: "no guesses", to: "16 guesses a pass", mark: [width, speedup(width)] }));
  const worth = best[0] === 0 ? "No guess pays here." : `The best is ${best[0]}: ${best[1].toFixed(2)} times.`;
  by("pays-text").textContent = `${width} guesses give ${tokensPerPass(a, width).toFixed(2)} tokens a pass and `
    + `${speedup(width).toFixed(2)} times the speed. ${worth}`;
}

export function start() {
  by("guess-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const guess = by("guess").value;
    by("guess").value = "";
    by("verdict").textContent = "…";
    try {
      await check(guess);
    } catch (error) {
      by("verdict").textContent = error.message;
    }
    by("guess").focus();
  });
  by("play-again").addEventListener("click", () => {
    const index = (game.index + 1) % TEXTS.length;
    Object.assign(game, { text: TEXTS[index], index, passes: 0, tokens: 0, guessed: 0, accepted: 0 });
    by("verdict").textContent = "";
    show();
  });
  for (const id of ["acceptance", "width", "row-cost"]) by(id).addEventListener("input", pays);
  show();
  pays();
}
