#!/usr/bin/env python3
"""Measures what the literature claims about multi-token decoding, and writes the figures into docs/claims.md.

usage: claims.py --sets DIR          a folder with spec_bench.jsonl and humaneval.jsonl (see docs/claims.md for where they come from);
                                     without it the few prompts in benches/ stand in
       --limit N                     prompts of each category with the small model (default 2); --large-limit for the large one (default 1)
       --max-tokens 128 --threads 2
       --foretoken PATH              default: target/release/foretoken, built first
       --small, --large, --draft     model files; default SmolLM2-135M, Qwen2.5-Coder-1.5B, and its draft model of 0.5B
       --json FILE                   default target/claims.json. Steps that it has are not measured again; delete it to begin anew
       --minutes N                   stop before the next step when so much time is over; run again to go on
       --write                       put the tables into docs/claims.md; otherwise print them

Every step is one `foretoken bench decode` run, greedy, each method against plain decoding on the same prompts in turning order.
"""
import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path

from peers import MODELS, ROOT, commit, machine, run_json

PAGE = ROOT / "docs/claims.md"
SMALL = "SmolLM2-135M-Instruct.Q4_1.gguf"
LARGE = "Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf"
DRAFT = "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf"


def main() -> None:
    args = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    args.add_argument("--sets", type=Path)
    args.add_argument("--limit", type=int, default=2)
    args.add_argument("--large-limit", type=int, default=1)
    args.add_argument("--max-tokens", type=int, default=128)
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--foretoken", type=Path, default=ROOT / "target/release/foretoken")
    args.add_argument("--small", type=Path, default=MODELS / SMALL)
    args.add_argument("--large", type=Path, default=MODELS / LARGE)
    args.add_argument("--draft", type=Path, default=MODELS / DRAFT)
    args.add_argument("--json", type=Path, default=ROOT / "target/claims.json")
    args.add_argument("--minutes", type=float, default=math.inf)
    args.add_argument("--write", action="store_true")
    opt = args.parse_args()
    if opt.foretoken == ROOT / "target/release/foretoken":
        subprocess.run(["cargo", "build", "--release", "--package", "foretoken-cli"], cwd=ROOT, check=True)

    done = json.loads(opt.json.read_text()) if opt.json.exists() else {"steps": {}}
    done |= {"machine": machine(), "commit": commit()}
    started = time.monotonic()
    for name, step in steps(opt).items():
        if name in done["steps"]:
            continue
        if time.monotonic() - started > opt.minutes * 60:
            print(f"stopped before {name}; run again to go on", file=sys.stderr)
            break
        began = time.monotonic()
        command = [opt.foretoken, "bench", "decode", "--max-tokens", opt.max_tokens, "--threads", opt.threads, "--json", *step]
        found = run_json(command)
        shown = "foretoken bench decode " + " ".join(Path(str(word)).name if isinstance(word, Path) else str(word) for word in step)
        done["steps"][name] = {"command": shown, "results": found["results"]}
        opt.json.parent.mkdir(parents=True, exist_ok=True)
        opt.json.write_text(json.dumps(done, indent=1) + "\n")
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    text = tables(done)
    if not opt.write:
        return print(text)
    page = PAGE.read_text()
    before, rest = page.split("<!-- figures -->", 1)
    after = rest.split("<!-- end of figures -->", 1)[1]
    PAGE.write_text(f"{before}<!-- figures -->\n\n{text}\n\n<!-- end of figures -->{after}")


def steps(opt) -> dict[str, list]:
    """Name and options of each run, the most telling first."""
    general = opt.sets / "spec_bench.jsonl" if opt.sets else ROOT / "benches/prompts.jsonl"
    code = opt.sets / "humaneval.jsonl" if opt.sets else ROOT / "benches/tasks/edits.jsonl"
    small = ["--model", opt.small, "--prompts", general, "--limit", opt.limit]
    small_code = ["--model", opt.small, "--prompts", code, "--limit", 4 * opt.limit]
    large = ["--model", opt.large, "--prompts", general, "--limit", opt.large_limit]
    large_code = ["--model", opt.large, "--prompts", code, "--limit", 5 * opt.large_limit]
    found = {
        "auto": [*small, "--draft", "auto"],
        "auto, F32": [*small, "--draft", "auto", "--weights", "f32"],
        "lookahead and jacobi": [*small, "--draft", "lookahead,jacobi", "--draft-width", 16],
        "lookahead and jacobi, code": [*small_code, "--draft", "lookahead,jacobi", "--draft-width", 16],
        "combined": [*small, "--draft", "suffix,recycle,suffix+recycle", "--draft-width", 8],
    }
    if opt.large.exists():
        if opt.draft.exists():
            draft = ["--draft", "draft_model", "--draft-model", opt.draft, "--draft-width", 4]
            found["draft model, code"] = [*large_code, *draft]
            found["draft model"] = [*large, *draft]
        found["auto, 1.5B"] = [*large, "--draft", "auto"]
    return found


# --- figures of the steps


class Steps:
    """Results by step, method and category; `None` for what was not measured."""

    def __init__(self, done: dict):
        self.steps = done["steps"]

    def of(self, step: str, method: str, category: str | None = None) -> dict | None:
        results = self.steps.get(step, {"results": []})["results"]
        found = [r for r in results if r["method"] == method]
        if category is None:
            return next((r for r in found if r["category"] == "all"), found[-1] if found else None)
        return next((r for r in found if r["category"] == category), None)

    def commands(self) -> list[str]:
        return [f"- {name}: `{step['command']}`" for name, step in self.steps.items()]


def speedup(result: dict | None) -> str:
    if result is None:
        return "not measured yet"
    low, high = result["speedup_interval"] or (math.nan, math.nan)
    return f"{result['speedup']:.2f}x ({low:.2f} to {high:.2f}) at {result['tokens_per_pass']:.2f} tokens a pass"


def status(result: dict | None, least: float) -> str:
    """For a claimed gain of at least `least`, by the 95 % interval of ours."""
    if result is None:
        return "not measured yet"
    low, high = result["speedup_interval"] or (result["speedup"], result["speedup"])
    if high <= 1:
        return "contradicted"
    if low <= 1:
        return "undecided"
    return "reproduced" if result["speedup"] >= least else "only the sign"


def conditional(result: dict, depth: int) -> float | None:
    """Share of the guesses so deep that came true, given those before, over all drafters."""
    counts = [d["by_depth"][depth - 1] for d in result["drafters"].values() if len(d["by_depth"]) >= depth]
    tested = sum(count["tested"] for count in counts)
    return sum(count["accepted"] for count in counts) / tested if tested else None


def depths(result: dict | None) -> str:
    """The second token of a pass is the guess at depth 1, the fourth that at depth 3."""
    if result is None:
        return "not measured yet"
    given = [conditional(result, depth) for depth in (1, 2, 3)]
    if None in given:
        return "no guesses so deep"
    return f"second {given[0]:.0%}; fourth {given[2]:.0%} given those before, {math.prod(given):.0%} in all"


def depth_status(result: dict | None) -> str:
    if result is None:
        return "not measured yet"
    given = [conditional(result, depth) for depth in (1, 2, 3)]
    if None in given:
        return "not testable here"
    inside = 0.4 <= given[0] <= 0.7 and 0.2 <= math.prod(given) <= 0.4
    return "reproduced" if inside else "only the sign" if given[0] > math.prod(given) else "contradicted"


def groups(steps: Steps, step: str, method: str, names: list[str]) -> float | None:
    found = [r for r in (steps.of(step, method, name) for name in names) if r]
    return sum(r["tokens"] for r in found) / sum(r["passes"] for r in found) if found else None


REPETITIVE = ["summarization", "rag", "code_edit", "code_editing", "extraction"]
CREATIVE = ["writing", "roleplay"]


def kinds(steps: Steps, step: str) -> tuple[str, str]:
    repetitive, creative = groups(steps, step, "auto", REPETITIVE), groups(steps, step, "auto", CREATIVE)
    if repetitive is None or creative is None:
        return "not measured yet", "not measured yet"
    said = f"{repetitive:.2f} tokens a pass on summaries, retrieval and extraction, {creative:.2f} on writing and roleplay"
    return said, "reproduced" if repetitive > creative else "contradicted"


def combined(steps: Steps) -> tuple[str, str]:
    gains = [steps.of("combined", method) for method in ("suffix", "recycle", "suffix+recycle")]
    if None in gains:
        return "not measured yet", "not measured yet"
    first, second, both = (r["tokens_per_pass"] for r in gains)
    said = f"suffix {first:.2f}, recycle {second:.2f}, together {both:.2f} tokens a pass; the product would be {first * second:.2f}"
    if both >= first * second:
        return said, "reproduced"
    return said, "only the sign" if both > max(first, second) else "contradicted"


def tables(done: dict) -> str:
    steps = Steps(done)
    rows = [["claim", "source", "our figure (95 % interval)", "run", "status"]]

    def row(claim: str, source: str, figure: str, step: str, state: str) -> None:
        rows.append([claim, source, figure, step, state])

    for step, label in (("draft model, code", "code"), ("draft model", "all kinds of prompts")):
        result = steps.of(step, "draft_model")
        row(f"speculative decoding with a draft model: 2-3x ({label})", "Leviathan et al. 2023; Chen et al. 2023", speedup(result), step, status(result, 2.0))
    for step, label in (("auto", "SmolLM2"), ("auto, F32", "SmolLM2 in F32, where more rows cost less"), ("auto, 1.5B", "Qwen2.5-Coder-1.5B")):
        result = steps.of(step, "auto")
        row(f"the same without a draft model, by text alone: 2-3x ({label})", "Saxena 2023 (prompt lookup); Oliaro et al. 2024", speedup(result), step, status(result, 2.0))
    for step, label in (("lookahead and jacobi", "all kinds of prompts"), ("lookahead and jacobi, code", "code")):
        result = steps.of(step, "lookahead")
        row(f"lookahead decoding: 2-4x ({label})", "Fu et al. 2024: up to 1.8x in conversations, 4x with several devices", speedup(result), step, status(result, 2.0))
        result = steps.of(step, "jacobi")
        row(f"Jacobi decoding: 3-5x ({label})", "overviews; Kou et al. 2024 say 2.4-3.4x after training for it, about 1.05x without", speedup(result), step, status(result, 3.0))
    for step, method in (("draft model, code", "draft_model"), ("combined", "suffix"), ("combined", "recycle")):
        result = steps.of(step, method)
        row(f"acceptance: 40-70 % of second, 20-40 % of fourth tokens ({method})", "overviews of multi-token prediction", depths(result), step, depth_status(result))
    row("the same of trained prediction heads", "overviews of multi-token prediction", "these models have none", "", "not testable here")
    for step in ("auto", "auto, 1.5B"):
        said, state = kinds(steps, step)
        row("more on repetitive text, less on creative text", "Saxena 2023; Xia et al. 2024 (Spec-Bench)", said, step, state)
    said, state = combined(steps)
    row("combined methods multiply", "overviews", said, "combined", state)
    lines = ["| " + " | ".join(cells) + " |" for cells in rows]
    lines.insert(1, "|---" * len(rows[0]) + "|")
    lines += ["", "Expected tokens a pass by the formula 1 + a1 + a1 a2 + ..., beside what was measured:", ""]
    lines += ["| step | method | formula | measured |", "|---|---|---|---|"]
    for step, found in steps.steps.items():
        for method in dict.fromkeys(r["method"] for r in found["results"] if r["drafted"]):
            result = steps.of(step, method)
            lines.append(f"| {step} | {method} | {result['formula_tokens_per_pass']:.2f} | {result['tokens_per_pass']:.2f} |")
    lines += ["", "The runs:", "", *steps.commands()]
    cpu = done["machine"]
    lines.append(f"\nMachine: {cpu['cpu']}, {cpu['cores']} cores, {', '.join(cpu['simd'])}. Commit {done['commit']}.")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
