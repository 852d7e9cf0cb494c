"use strict";
// The passes of a trace: a slider, the tree of the pass it stands at, and the token at hand. Text is set as text only.
const { names, colours, fates, passes } = JSON.parse(document.getElementById("data").textContent);
const at = id => document.getElementById(id);
const marks = { accepted: "✓", not_drawn: "✗", unreached: "·", past_end: "‖", trimmed: "○", missed: "◎" };
const visible = text => JSON.stringify(text).slice(1, -1);

function make(tag, parent, text, kind) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (kind) node.className = kind;
  parent.append(node);
  return node;
}

// Guesses one below the other stand in one line; where they part, each way gets its own.
function tree(box, sequence) {
  const below = sequence.guesses.map(() => []);
  const first = [];
  sequence.guesses.forEach(([, parent], index) => (parent === null ? first : below[parent]).push(index));
  const branch = (list, index) => {
    const item = make("li", list);
    let drafter = 0;
    for (let next = [index]; next.length === 1; next = below[index]) {
      index = next[0];
      const [word, , by, p, fate] = sequence.guesses[index];
      if (by !== drafter) make("span", item, `${names[by]}: `, "dim");
      drafter = by;
      make("span", item, visible(word), `g k${colours[by]} ${fate}`).title = `${names[by]}, ${p} %: ${fates[fate]}`;
      make("span", item, ` ${marks[fate]} ${p} %  `, "dim");
    }
    if (below[index].length) {
      const inner = make("ul", item);
      below[index].forEach(child => branch(inner, child));
    }
  };
  const list = make("ul", box, undefined, "tree");
  first.forEach(index => branch(list, index));
  if (!first.length) make("li", list, "no guesses", "dim");
  make("p", box, `drawn: ${sequence.tokens.map(visible).join(" | ") || "nothing"}`);
}

function show(index) {
  const pass = passes[index];
  at("pass").value = index;
  at("number").value = `${index + 1} of ${passes.length}`;
  const foreseen = pass.predicted ? `, foreseen ${pass.predicted} ms` : "";
  at("facts").textContent =
    `${pass.rows} rows; draft ${pass.draft} ms, verify ${pass.verify} ms, rest ${pass.rest} ms${foreseen}`;
  at("why").textContent = pass.why ?? "";
  at("tree").replaceChildren();
  pass.sequences.forEach(sequence => tree(at("tree"), sequence));
  document.querySelectorAll(".t.now").forEach(token => token.classList.remove("now"));
  document.querySelectorAll(`.t[data-pass="${index}"]`).forEach(token => token.classList.add("now"));
}

function tell(token) {
  document.querySelector(".t.here")?.classList.remove("here");
  token.classList.add("here");
  const { by, depth, p, pass } = token.dataset;
  const origin = by === "0" ? "drawn by the model" : `guessed by ${names[by]}, ${depth} ahead, at ${p}`;
  at("token").textContent = `${visible(token.textContent)}: ${origin}; pass ${Number(pass) + 1}`;
}

for (const box of document.querySelectorAll(".tokens")) {
  const near = event => event.target.closest(".t");
  box.addEventListener("pointerover", event => near(event) && tell(near(event)));
  box.addEventListener("click", event => near(event) && show(Number(near(event).dataset.pass)));
  box.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !box.children.length) return;
    event.preventDefault();
    const tokens = [...box.children];
    const here = tokens.findIndex(token => token.classList.contains("here"));
    const next = tokens[Math.min(Math.max(here + step, 0), tokens.length - 1)];
    tell(next);
    show(Number(next.dataset.pass));
    next.scrollIntoView({ block: "nearest" });
  });
}
if (passes.length) {
  at("pass").max = passes.length - 1;
  at("pass").addEventListener("input", event => show(Number(event.target.value)));
  at("passes").hidden = false;
  show(0);
}
