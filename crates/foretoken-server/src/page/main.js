// The page: four views over one server.

import { get } from "./server.js";
import { element, setDrafters } from "./tokens.js";
import * as write from "./write.js";
import * as passes from "./passes.js";
import * as load from "./load.js";
import * as play from "./play.js";

const tabs = [...document.querySelectorAll("[role=tab]")];

function select(tab) {
  for (const other of tabs) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", String(chosen));
    other.tabIndex = chosen ? 0 : -1;
    document.getElementById(other.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (tab.id === "tab-load") load.draw();
}

for (const [index, tab] of tabs.entries()) {
  tab.addEventListener("click", () => select(tab));
  tab.addEventListener("keydown", (event) => {
    const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = tabs[(to + tabs.length) % tabs.length];
    select(next);
    next.focus();
  });
}

async function model() {
  const place = document.getElementById("model");
  try {
    const { data: [model] } = await get("/v1/models");
    place.textContent = `${model.id} · ${model.max_model_len} tokens of context`;
    setDrafters(model.drafters);
    const names = ["auto", "none", ...model.drafters.filter((name) => name !== "none")];
    if (!(await get("/tokenizer_info")).chat_template) write.onlyContinue();
    document.getElementById("draft").replaceChildren(...names.map((text) => element("option", { text })));
  } catch (error) {
    place.textContent = error.message;
  }
}

document.getElementById("key").addEventListener("change", model);
for (const view of [write, passes, load, play]) view.start();
model();
