// The first view: a text, each token coloured by who guessed it.

import { stream } from "./server.js";
import { legend, tokenSpan } from "./tokens.js";
import { showPasses } from "./passes.js";

const by = (id) => document.getElementById(id);
let running = null;

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
  output.replaceChildren();
  by("summary").textContent = "…";
  const passes = [];
  try {
    const [path, request] = body();
    for await (const chunk of stream(path, request, own.signal)) {
      const pass = chunk.choices[0]?.foretoken;
      if (pass) {
        passes.push(pass);
        output.append(...pass.tokens.map(tokenSpan));
      }
      if (chunk.usage) by("summary").textContent = summary(chunk.timings, chunk.usage);
    }
  } catch (error) {
    by("summary").textContent = error.name === "AbortError" ? "Stopped." : error.message;
  }
  legend(by("legend"), passes);
  showPasses(passes);
  by("run").disabled = false;
  by("stop").disabled = true;
}

export function start() {
  by("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    write();
  });
  by("stop").addEventListener("click", () => running?.abort());
  by("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) write();
  });
}
