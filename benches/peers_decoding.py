#!/usr/bin/env python3
"""Measures multi-token decoding of foretoken beside llama.cpp's on the same prompts, in one run, greedy.

usage: peers_decoding.py [MODEL.gguf] [--draft-model DRAFT.gguf]
       --prompts FILE...             default: benches/prompts.jsonl and benches/tasks/edits.jsonl
       --limit N                     prompts of each category, spread over the file
       --draft auto,suffix           foretoken's methods
       --max-tokens 128 --threads 2
       --foretoken PATH              default: target/release/foretoken, built first
       --llama-python PATH           a Python with llama-cpp-python and numpy; default ~/.cache/foretoken/peers/bin/python
       --json FILE                   default target/peers_decoding.json. What it has already is not measured again
       --minutes N                   stop after the unit at hand when so much time is over; run again to go on

How it measures. A unit is one category of one prompt file. In every unit both engines run as processes of their own, one after the other,
in turning order, so that a slow quarter of an hour hits both; within a unit every prompt is answered by all modes of an engine one after the
other, in turning order. Times are of the answers after their first token, and figures are total tokens over total seconds.

llama.cpp's modes, through llama-cpp-python's C interface:
  plain      one row a pass
  lookup N   llama_cpp.llama_speculative.LlamaPromptLookupDecoding (n-grams of up to 3 tokens) with N drafts, the n-gram mode of the package;
             the n-gram modes of llama.cpp's own programs are not in the package
  draft N    the draft model, greedy chains of up to N drafts that end where its probability falls below 0.75, llama.cpp's default.
             The package has no draft-model loop, so this is one in the manner of llama.cpp's speculative-simple: the drafts and the last token
             are one batch with logits at every row, and what was not drawn is removed from the cache
The text of a mode is compared with plain's; llama.cpp does not promise that they agree.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from peers import MODELS, ROOT, commit, machine, run_json

DEFAULT_MODEL = "Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf"
DEFAULT_DRAFT = "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf"
DRAFTS = (2, 4, 8)
P_MIN = 0.75  # llama.cpp's --draft-p-min


def main() -> None:
    args = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    args.add_argument("model", nargs="?", type=Path, default=MODELS / DEFAULT_MODEL)
    args.add_argument("--draft-model", type=Path)
    args.add_argument("--prompts", type=Path, nargs="+", default=[ROOT / "benches/prompts.jsonl", ROOT / "benches/tasks/edits.jsonl"])
    args.add_argument("--limit", type=int)
    args.add_argument("--draft", default="auto")
    args.add_argument("--max-tokens", type=int, default=128)
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--foretoken", type=Path, default=ROOT / "target/release/foretoken")
    args.add_argument("--llama-python", default=str(Path.home() / ".cache/foretoken/peers/bin/python"))
    args.add_argument("--json", type=Path, default=ROOT / "target/peers_decoding.json")
    args.add_argument("--minutes", type=float, default=math.inf)
    args.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    opt = args.parse_args()
    if opt.draft_model is None and opt.model.name == DEFAULT_MODEL and (MODELS / DEFAULT_DRAFT).exists():
        opt.draft_model = MODELS / DEFAULT_DRAFT
    if opt.worker:
        print(json.dumps(llama_unit(opt)))
        return
    if opt.foretoken == ROOT / "target/release/foretoken":
        subprocess.run(["cargo", "build", "--release", "--package", "foretoken-cli"], cwd=ROOT, check=True)

    if os.getloadavg()[0] > 0.5:
        print("peers_decoding: the machine is busy; llama.cpp's threads wait actively and suffer most from that", file=sys.stderr)
    done = json.loads(opt.json.read_text()) if opt.json.exists() else {"units": {}}
    done |= {"machine": machine(), "commit": commit()}
    started = time.monotonic()
    for number, (name, prompts) in enumerate(units(opt)):
        key = f"{opt.model.name} {name} x{len(prompts)} {opt.draft} {opt.max_tokens}"
        if key in done["units"]:
            continue
        if time.monotonic() - started > opt.minutes * 60:
            print(f"stopped before {name}; run again to go on", file=sys.stderr)
            break
        engines = {"foretoken": foretoken_unit, "llama.cpp": llama_process}
        found = {}
        for engine in list(engines) if number % 2 == 0 else reversed(engines):
            found[engine] = engines[engine](opt, prompts)
        check_prompts(found, name)
        done["units"][key] = {"model": opt.model.name, "category": name.split(" ", 1)[1], "file": name.split(" ", 1)[0], **found}
        opt.json.parent.mkdir(parents=True, exist_ok=True)
        opt.json.write_text(json.dumps(done, indent=1) + "\n")
        print(f"{name}: {len(prompts)} prompts", file=sys.stderr, flush=True)
    print(table([unit for unit in done["units"].values() if unit["model"] == opt.model.name]))
    print(f"\n{done['machine']['cpu']}, {opt.threads} threads, commit {done['commit']}; all figures in {opt.json}")


def units(opt):
    """`(file and category, prompts)`, the prompts spread over each category as `bench decode --limit` does it."""
    for path in opt.prompts:
        by_category = {}
        for line in filter(str.strip, path.read_text().splitlines()):
            by_category.setdefault(json.loads(line).get("category", "all prompts"), []).append(json.loads(line))
        for category, prompts in by_category.items():
            n, limit = len(prompts), min(opt.limit or len(prompts), len(prompts))
            yield f"{path.stem} {category}", [p for i, p in enumerate(prompts) if i == 0 or i * limit // n != (i - 1) * limit // n]


def check_prompts(found: dict, name: str) -> None:
    """Both engines must have read the same number of tokens for every prompt."""
    ours = [answer["prompt_tokens"] for answer in found["foretoken"]["answers"] if answer["method"] == "none"]
    if ours != found["llama.cpp"]["prompt_tokens"]:
        raise SystemExit(f"peers_decoding: {name}: prompts differ in tokens: {ours} {found['llama.cpp']['prompt_tokens']}")


# --- one unit: {"modes": {mode: {"tokens", "seconds", "passes"}}} and what each engine says beside it


def foretoken_unit(opt, prompts) -> dict:
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(prompt) + "\n" for prompt in prompts)
        file.flush()
        command = [opt.foretoken, "bench", "decode", "--model", opt.model, "--prompts", file.name, "--draft", opt.draft]
        command += ["--max-tokens", opt.max_tokens, "--threads", opt.threads, "--json"]
        if opt.draft_model:
            command += ["--draft-model", opt.draft_model]
        found = run_json(command)
    modes = {}
    for answer in found["answers"]:
        mode = modes.setdefault(answer["method"], {"tokens": 0, "seconds": 0.0, "passes": 0, "same": True})
        mode["tokens"] += answer["later_tokens"]
        mode["seconds"] += answer["seconds"]
        mode["passes"] += answer["later_passes"]
    return {"modes": modes, "answers": found["answers"], "results": found["results"]}


def llama_process(opt, prompts) -> dict:
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(prompt) + "\n" for prompt in prompts)
        file.flush()
        command = [opt.llama_python, __file__, opt.model, "--worker", "--prompts", file.name, "--max-tokens", opt.max_tokens]
        command += ["--threads", opt.threads] + (["--draft-model", opt.draft_model] if opt.draft_model else [])
        return run_json(command)


# --- llama.cpp, in the Python that has llama-cpp-python


def llama_unit(opt) -> dict:
    import llama_cpp as lc
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    silent = lc.llama_log_callback(lambda *_: None)  # must outlive the library's use of it
    lc.llama_log_set(silent, None)
    lc.llama_backend_init()
    prompts = [json.loads(line) for line in opt.prompts[0].read_text().splitlines()]
    target = Llama(lc, opt.model, opt.threads)
    inputs = [target.encode(prompt) for prompt in prompts]
    longest = max(map(len, inputs)) + opt.max_tokens + max(DRAFTS) + 8
    target.open(longest)
    modes = {"plain": None}
    for n in DRAFTS:
        modes[f"lookup {n}"] = Lookup(LlamaPromptLookupDecoding(max_ngram_size=3, num_pred_tokens=n))
    if opt.draft_model:
        small = Llama(lc, opt.draft_model, opt.threads)
        small.open(longest)
        for n in DRAFTS:
            modes[f"draft {n}"] = DraftModel(small, n)
    found = {mode: {"tokens": 0, "seconds": 0.0, "passes": 0, "same": True} for mode in modes}
    for index, tokens in enumerate(inputs):
        turn = index % len(modes)
        texts = {}
        for mode in (list(modes) * 2)[turn : turn + len(modes)]:
            texts[mode], passes, seconds = target.write(tokens, opt.max_tokens, modes[mode])
            found[mode]["tokens"] += len(texts[mode]) - 1
            found[mode]["passes"] += passes
            found[mode]["seconds"] += seconds
        for mode, text in texts.items():
            found[mode]["same"] &= text == texts["plain"]
    return {"modes": found, "prompt_tokens": [len(tokens) for tokens in inputs]}


class Llama:
    """A model with one sequence, greedy."""

    def __init__(self, lc, path: Path, threads: int):
        self.lc, self.threads = lc, threads
        self.model = lc.llama_model_load_from_file(str(path).encode(), lc.llama_model_default_params())
        self.vocabulary = lc.llama_model_get_vocab(self.model)
        self.n_vocabulary = lc.llama_vocab_n_tokens(self.vocabulary)
        self.cached = []

    def encode(self, prompt: dict) -> list[int]:
        """A function to complete stands as it is, everything else is a user's message in the model's chat template."""
        lc, text = self.lc, prompt.get("prompt") or prompt["turns"][0]
        if not (prompt.get("category") == "humaneval" or prompt.get("entry_point")):
            from llama_cpp.llama_chat_format import Jinja2ChatFormatter

            piece = lambda token: (lc.llama_vocab_get_text(self.vocabulary, token) or b"").decode()
            end, begin = (piece(of(self.vocabulary)) for of in (lc.llama_vocab_eos, lc.llama_vocab_bos))
            template = lc.llama_model_chat_template(self.model, None).decode()
            formatter = Jinja2ChatFormatter(template=template, eos_token=end, bos_token=begin)
            return self.tokenize(formatter(messages=[{"role": "user", "content": text}]).prompt.encode(), True)
        return self.tokenize(text.encode(), False)

    def tokenize(self, text: bytes, special: bool) -> list[int]:
        room = (self.lc.llama_token * (len(text) + 8))()
        count = self.lc.llama_tokenize(self.vocabulary, text, len(text), room, len(room), True, special)
        return list(room[:count])

    def open(self, length: int) -> None:
        params = self.lc.llama_context_default_params()
        params.n_ctx = length
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = self.threads
        self.context = self.lc.llama_init_from_model(self.model, params)
        self.memory = self.lc.llama_get_memory(self.context)

    def follow(self, tokens: list[int]) -> None:
        """Keeps of the cache what `tokens` begin with."""
        same = next((i for i, (a, b) in enumerate(zip(self.cached, tokens)) if a != b), min(len(self.cached), len(tokens)))
        if same < len(self.cached):
            self.lc.llama_memory_seq_rm(self.memory, 0, same, -1)
            del self.cached[same:]

    def run(self, tokens: list[int], every: bool) -> None:
        """Runs tokens behind the cached ones; logits at every row, or at the last alone."""
        for start in range(0, len(tokens), 512):
            part = tokens[start : start + 512]
            batch = self.lc.llama_batch_init(len(part), 0, 1)
            batch.n_tokens = len(part)
            for i, token in enumerate(part):
                batch.token[i], batch.pos[i] = token, len(self.cached) + i
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
                batch.logits[i] = every or start + i == len(tokens) - 1
            if self.lc.llama_decode(self.context, batch):
                raise SystemExit("peers_decoding: llama.cpp's pass failed")
            self.lc.llama_batch_free(batch)
            self.cached += part

    def logits(self, row: int):
        import numpy as np

        return np.ctypeslib.as_array(self.lc.llama_get_logits_ith(self.context, row), shape=(self.n_vocabulary,))

    def write(self, prompt: list[int], n: int, drafter) -> tuple[list[int], int, float]:
        """Answers a prompt: the tokens, and passes and seconds after the first of them."""
        self.follow(prompt[:-1])  # the prompt is run once for all modes, but for its last token
        self.run(prompt[len(self.cached) :], False)
        text = [int(self.logits(-1).argmax())]
        passes, started = 0, time.perf_counter()
        while len(text) < n and not self.lc.llama_vocab_is_eog(self.vocabulary, text[-1]):
            room = n - len(text) - 1
            drafts = drafter.draft(prompt + text)[:room] if drafter and room else []
            self.run([text[-1], *drafts], True)
            passes += 1
            for row in range(len(drafts) + 1):
                text.append(int(self.logits(row).argmax()))
                over = self.lc.llama_vocab_is_eog(self.vocabulary, text[-1])
                if over or row == len(drafts) or text[-1] != drafts[row]:
                    break
            self.follow((prompt + text)[:-1])
        return text, passes, time.perf_counter() - started


class Lookup:
    """llama-cpp-python's own prompt lookup."""

    def __init__(self, inner):
        self.inner = inner

    def draft(self, tokens: list[int]) -> list[int]:
        import numpy as np

        return [int(token) for token in self.inner(np.array(tokens, dtype=np.intc))]


class DraftModel:
    """Greedy chains of a smaller model."""

    def __init__(self, model: Llama, n: int):
        self.model, self.n = model, n

    def draft(self, tokens: list[int]) -> list[int]:
        import numpy as np

        model, drafts = self.model, []
        model.follow(tokens[:-1])
        model.run(tokens[len(model.cached) :], False)
        while len(drafts) < self.n:
            logits = model.logits(-1)
            best = int(logits.argmax())
            if 1.0 / float(np.exp(logits - logits[best]).sum()) < P_MIN:
                break
            drafts.append(best)
            if len(drafts) < self.n:
                model.run([best], False)
        return drafts


# --- the table


def table(units: list[dict]) -> str:
    """Tokens per second of every mode, by category and over all; llama.cpp's best mode is the best over all."""
    if not units:
        return "nothing measured"
    rate = lambda modes: sum(m["tokens"] for m in modes) / max(sum(m["seconds"] for m in modes), 1e-9)
    ours = [m for m in units[0]["foretoken"]["modes"]]
    theirs = [m for m in units[0]["llama.cpp"]["modes"]]
    total = lambda engine, mode: rate([u[engine]["modes"][mode] for u in units])
    best = max(theirs, key=lambda mode: total("llama.cpp", mode))
    lines = [
        "| category | " + " | ".join(f"foretoken {m}" for m in ours) + " | " + " | ".join(f"llama.cpp {m}" for m in theirs) + f" | {ours[-1]} / plain | {ours[-1]} / llama.cpp's best ({best}) |",
        "|---" * (len(ours) + len(theirs) + 3) + "|",
    ]

    def line(label: str, some: list[dict]) -> None:
        our_rates = [rate([u["foretoken"]["modes"][m] for u in some]) for m in ours]
        their_rates = [rate([u["llama.cpp"]["modes"][m] for u in some]) for m in theirs]
        ratios = [our_rates[-1] / our_rates[0], our_rates[-1] / their_rates[theirs.index(best)]]
        cells = [f"{r:.1f}" for r in our_rates + their_rates] + [f"{r:.2f}x" for r in ratios]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")

    for unit in units:
        line(f"{unit['file']}: {unit['category']}", [unit])
    line("all", units)
    differ = [m for m in theirs if not all(u["llama.cpp"]["modes"][m]["same"] for u in units)]
    lines.append(f"\nTokens per second, total over total. foretoken's texts are those of its plain decoding. llama.cpp's differ from its plain decoding's in: {', '.join(differ) or 'none'}.")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
