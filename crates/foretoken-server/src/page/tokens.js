// Tokens as coloured text: the colour says who guessed a token.

const PALETTE = 7;
let drafters = [];

export function setDrafters(names) {
  drafters = names;
}

/** The class of a drafter's colour; none for tokens that nobody guessed. */
export function colour(source) {
  const index = drafters.indexOf(source);
  return index < 0 ? [] : [`s${(index % PALETTE) + 1}`];
}

export function element(name, { text, classes = [], title } = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  made.classList.add(...classes);
  if (title) made.title = title;
  return made;
}

export function tokenSpan(token) {
  const title = token.source ? `guessed by ${token.source}` : "written by the model";
  const classes = ["token", ...colour(token.source)];
  if (/^<\|.*\|>$/.test(token.text)) classes.push("control");
  return element("span", { text: token.text, classes, title });
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
