// The first view: a text, each token coloured by who guessed it.

import { stream } from "./server.js";
import { element, legend, tokenSpan } from "./tokens.js";
import { showPasses } from "./passes.js";

const by = (id) => document.getElementById(id);
let running = null;
/** Of the latest text. */
let passes = [];

function body() {
  const chat = document.querySelector("input[name=mode]:checked").value === "chat";
  const text = by("prompt").value;
  const shared = {
    draft: by("draft").value,
    temperature: Number(by("temperature").value),
    max_tokens: Number(by("max-tokens").value),
    trace: true,
    stream_options: { include_usage: true },
  };
  return chat
    ? ["/v1/chat/completions", { ...shared, messages: [{ role: "user", content: text }] }]
    : ["/v1/completions", { ...shared, prompt: text }];
}

function summary(timings, usage) {
  const rate = timings.predicted_per_second.toFixed(1);
  const perPass = timings.tokens_per_pass.toFixed(2);
  return `${usage.completion_tokens} tokens, ${rate} a second, ${perPass} a pass; `
    + `${timings.draft_n_accepted} of ${timings.draft_n} guesses accepted; first after ${timings.prompt_ms.toFixed(0)} ms`;
}

async function write() {
  running?.abort();
  const own = (running = new AbortController());
  by("run").disabled = true;
  by("stop").disabled = false;
  const output = by("text");
  by("summary").textContent = "…";
  const made = (passes = []);
  const [path, request] = body();
  output.replaceChildren(...(request.prompt ? [element("span", { text: request.prompt, classes: ["given"] })] : []));
  try {
    for await (const chunk of stream(path, request, own.signal)) {
      const pass = chunk.choices[0]?.foretoken;
      if (pass) {
        made.push(pass);
        output.append(...pass.tokens.map((token) => tokenSpan(token, made.length - 1)));
      }
      if (chunk.usage) by("summary").textContent = summary(chunk.timings, chunk.usage);
    }
  } catch (error) {
    by("summary").textContent = error.name === "AbortError" ? "Stopped." : error.message;
  }
  // Another may have begun.
  if (running !== own) return;
  legend(by("legend"), made);
  by("hint").hidden = made.length === 0;
  showPasses(made);
  by("run").disabled = false;
  by("stop").disabled = true;
}

/** For models without a chat template, which can only go on with a text. */
export function onlyContinue() {
  document.querySelector("input[name=mode][value=chat]").disabled = true;
  document.querySelector("input[name=mode][value=completion]").checked = true;
  if (by("prompt").value === by("prompt").defaultValue) by("prompt").value = "def is_prime(n):\n";
}

export function start() {
  by("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    write();
  });
  by("text").addEventListener("click", (event) => {
    const token = event.target.closest(".token");
    if (!token) return;
    showPasses(passes, Number(token.dataset.pass) + 1);
    by("tab-passes").click();
  });
  by("stop").addEventListener("click", () => running?.abort());
  by("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) write();
  });
}
