// The second view: a slider through the passes of the last text, and what was guessed in each.

import { colour, element, shown, tokenSpan } from "./tokens.js";

const by = (id) => document.getElementById(id);
let passes = [];

function guessSpan(guess) {
  const classes = ["guess", ...colour(guess.source)];
  if (!guess.run) classes.push("unrun");
  if (guess.accepted) classes.push("accepted");
  const span = element("span", { text: `${guess.accepted ? "✓ " : ""}${shown(guess.text)}`, classes, title: `by ${guess.source}` });
  span.append(element("small", { text: ` ${Math.round(100 * guess.p)} %`, title: "how sure the drafter was" }));
  return span;
}

/** A guess and those that follow it: on its line while there is one each time, in a list below where they branch. */
function branch(guesses, below, index) {
  const item = document.createElement("li");
  for (;;) {
    item.append(guessSpan(guesses[index]));
    const next = below.get(index) ?? [];
    if (next.length !== 1) {
      if (next.length) item.append(branches(guesses, below, next));
      return item;
    }
    [index] = next;
  }
}

function branches(guesses, below, indices) {
  const list = document.createElement("ul");
  list.append(...indices.map((index) => branch(guesses, below, index)));
  return list;
}

function tree(guesses) {
  const below = new Map();
  guesses.forEach(({ parent }, index) => below.set(parent, [...(below.get(parent) ?? []), index]));
  return branches(guesses, below, below.get(null) ?? []);
}

function show() {
  const slider = by("pass");
  const at = Number(slider.value);
  const pass = passes[at - 1];
  by("pass-of").textContent = pass ? `${at} of ${passes.length}` : "write a text first";
  by("pass-before").disabled = !pass || at === 1;
  by("pass-after").disabled = !pass || at === passes.length;
  by("pass-text").replaceChildren(...passes.flatMap((pass, index) => pass.tokens.map((token) => {
    const span = tokenSpan(token, index);
    if (index === at - 1) span.classList.add("new");
    if (index > at - 1) span.classList.add("later");
    return span;
  })));
  const none = element("p", { text: pass ? "Nothing was guessed in this pass." : "" });
  by("tree").replaceChildren(pass?.guesses?.length ? tree(pass.guesses) : none);
}

/** Moves to a pass, from 1. */
function move(at) {
  by("pass").value = String(at);
  show();
}

export function showPasses(made, at = 1) {
  passes = made;
  const slider = by("pass");
  slider.max = String(Math.max(1, passes.length));
  slider.disabled = passes.length === 0;
  move(at);
}

export function start() {
  by("pass").addEventListener("input", show);
  by("pass-before").addEventListener("click", () => move(Number(by("pass").value) - 1));
  by("pass-after").addEventListener("click", () => move(Number(by("pass").value) + 1));
  by("pass-text").addEventListener("click", (event) => {
    const token = event.target.closest(".token");
    if (token) move(Number(token.dataset.pass) + 1);
  });
  show();
}
