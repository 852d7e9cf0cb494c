// The second view: a slider through the passes of the last text, and what was guessed in each.

import { colour, element, tokenSpan } from "./tokens.js";

const by = (id) => document.getElementById(id);
let passes = [];

function guessItem(pass, index) {
  const guess = pass.guesses[index];
  const classes = ["guess", ...colour(guess.source)];
  if (!guess.run) classes.push("unrun");
  if (guess.accepted) classes.push("accepted");
  const item = document.createElement("li");
  const text = `${guess.accepted ? "✓ " : ""}${guess.text.replaceAll("\n", "⏎")}`;
  item.append(element("span", { text, classes, title: `by ${guess.source}` }));
  item.append(element("span", { text: guess.p.toFixed(2), classes: ["p"], title: "how sure the drafter was" }));
  const below = children(pass, index);
  if (below) item.append(below);
  return item;
}

function children(pass, parent) {
  const list = document.createElement("ul");
  (pass.guesses ?? []).forEach((guess, index) => {
    if (guess.parent === parent) list.append(guessItem(pass, index));
  });
  return list.childElementCount ? list : null;
}

function show() {
  const at = Number(by("pass").value);
  const pass = passes[at - 1];
  by("pass-of").textContent = pass ? `${at} of ${passes.length}` : "write a text first";
  by("pass-text").replaceChildren(...passes.flatMap((pass, index) => pass.tokens.map((token) => {
    const span = tokenSpan(token);
    if (index === at - 1) span.classList.add("new");
    if (index > at - 1) span.classList.add("later");
    return span;
  })));
  const tree = pass && children(pass, null);
  by("tree").replaceChildren(tree ?? element("p", { text: pass ? "Nothing was guessed in this pass." : "" }));
  document.querySelector("#pass-text .new")?.scrollIntoView({ block: "nearest" });
}

export function showPasses(made) {
  passes = made;
  const slider = by("pass");
  slider.max = String(Math.max(1, passes.length));
  slider.value = "1";
  slider.disabled = passes.length === 0;
  show();
}

export function start() {
  by("pass").addEventListener("input", show);
  show();
}
