// The fourth view: the reader drafts, the model checks; and when drafting pays at all.

import { post } from "./server.js";
import { element, shown } from "./tokens.js";
import { lineChart } from "./chart.js";

const by = (id) => document.getElementById(id);
const TEXTS = [
  "def fibonacci(n):\n    if n < 2:\n        return n\n",
  "The quick brown fox jumps over the lazy",
  "One, two, three, four,",
  "{\"name\": \"Ada\", \"born\": 1815}\n{\"name\": \"Alan\",",
];
const game = { text: TEXTS[0], index: 0, passes: 0, tokens: 0, tried: 0, accepted: 0 };

/** Tokens of a text that begins in the midst of another. */
async function count(text) {
  if (!text) return 0;
  return (await (await post("/tokenize", { prompt: text, add_special_tokens: false, parse_special: false })).json()).count;
}

/** What the model writes next, greedily: its tokens, and whether the text ends after them. */
async function written(n) {
  const body = { prompt: game.text, max_tokens: n, temperature: 0, trace: true, draft: "auto" };
  const answer = await (await post("/v1/completions", body)).json();
  const [{ foretoken, finish_reason: reason }] = answer.choices;
  const tokens = foretoken.passes.flatMap((pass) => pass.tokens);
  // The token that ends a text is no part of it.
  return reason === "stop" ? { tokens: tokens.slice(0, -1), ends: true } : { tokens, ends: false };
}

/** How many of the model's first tokens a guess has foreseen. They are compared as texts: tokens could be cut otherwise. */
function foreseen(tokens, guess) {
  let [right, text] = [0, ""];
  while (right < tokens.length && guess.startsWith(text + tokens[right].text)) {
    text += tokens[right].text;
    right += 1;
  }
  return { right, text };
}

async function check(guess) {
  const { tokens, ends } = await written(await count(guess) + 1);
  const { right, text } = foreseen(tokens, guess);
  const wrong = guess.slice(text.length);
  const [n, added] = [right + (await count(wrong)), tokens[right]?.text ?? ""];
  game.text += text + added;
  game.passes += 1;
  game.tokens += Math.min(right + 1, tokens.length);
  // What follows a wrong guess is not looked at.
  game.tried += right + (wrong ? 1 : 0);
  game.accepted += right;
  by("verdict").replaceChildren(
    element("span", { text: shown(text), classes: ["right"] }),
    element("span", { text: shown(wrong), classes: ["wrong"] }),
    document.createTextNode(` ${right} of ${n} tokens accepted, and the model ${added || !ends ? `adds “${shown(added)}”` : "ends here"}.`),
  );
  show();
}

const many = (n, word, ending = "s") => `${n} ${word}${n === 1 ? "" : ending}`;

function show() {
  by("play-text").textContent = game.text;
  by("score").textContent = game.passes === 0 ? "" :
    `${many(game.tokens, "token")} in ${many(game.passes, "pass", "es")}: ${(game.tokens / game.passes).toFixed(2)} a pass. Without drafts it is 1.`;
  if (game.tried > 0) {
    by("acceptance").value = String(Math.min(99, Math.round((100 * game.accepted) / game.tried)));
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
  by("pays").replaceChildren(lineChart(points, { label, from: "no guesses", to: "16 guesses a pass", mark: [width, speedup(width)], level: 1 }));
  const worth = best[0] === 0 ? "No guess pays here." : `The best is ${best[0]}: ${best[1].toFixed(2)} times.`;
  by("pays-text").textContent = `${many(width, "guess", "es")} give${width === 1 ? "s" : ""} ${tokensPerPass(a, width).toFixed(2)} tokens a pass and `
    + `${speedup(width).toFixed(2)} times the speed. ${worth}`;
}

export function start() {
  by("guess-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    // The field has one line; \n stands for the end of one.
    const guess = by("guess").value.replaceAll("\\n", "\n");
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
    Object.assign(game, { text: TEXTS[index], index, passes: 0, tokens: 0, tried: 0, accepted: 0 });
    by("verdict").textContent = "";
    show();
  });
  for (const id of ["acceptance", "width", "row-cost"]) by(id).addEventListener("input", pays);
  show();
  pays();
}
