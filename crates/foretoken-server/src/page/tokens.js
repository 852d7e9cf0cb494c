// Tokens as coloured text: the colour says who guessed a token.

const PALETTE = 10;
let drafters = [];

export function setDrafters(names) {
  drafters = names.filter((name) => name !== "none");
}

/** The class of a drafter's colour; none for tokens that nobody guessed. */
export function colour(source) {
  const index = drafters.indexOf(source);
  return index < 0 ? [] : [`s${(index % PALETTE) + 1}`];
}

/** A text whose white space can be seen. */
export const shown = (text) => text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll(" ", "␣");

export function element(name, { text, classes = [], title } = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  made.classList.add(...classes);
  if (title) made.title = title;
  return made;
}

/** A token of the pass of this index. */
export function tokenSpan(token, pass) {
  const title = token.source ? `guessed by ${token.source}` : "written by the model";
  const classes = ["token", ...colour(token.source)];
  if (/^<\|.*\|>$/.test(token.text)) classes.push("control");
  const span = element("span", { text: token.text, classes, title });
  span.dataset.pass = String(pass);
  return span;
}

/** Which drafters gave how many tokens. */
export function legend(list, passes) {
  const counts = new Map([[null, 0]]);
  for (const token of passes.flatMap((pass) => pass.tokens)) {
    counts.set(token.source, (counts.get(token.source) ?? 0) + 1);
  }
  list.replaceChildren(...[...counts].map(([source, count]) => {
    const item = document.createElement("li");
    item.append(element("span", { text: `${source ?? "the model itself"}: ${count}`, classes: colour(source) }));
    return item;
  }));
}
