#!/usr/bin/env python3
"""Experiments with small models that predict several tokens ahead: trains them, measures, writes docs/experiments/NAME.json and .svg.

usage: experiments.py NAME... --texts DIR     DIR has train.tokens and held-out.tokens, as `foretoken-train prepare` leaves them
                                              (crates/foretoken-train/recipes says how to fetch the texts)

NAME is one of
  heads       1, 2, 4, 8, 16 heads on equal bytes: head 1's loss, the bytes needed for a loss, time of a step
  kinds       heads of four kinds: right guesses, drafts accepted, pairs that are likeliest alone and rejected together
  curricula   all heads always, one after another, one fewer after another
  ablations   without clipping, without heads that begin as head 1
  induction   a name of two tokens that comes back: is its second token known? (needs no texts)
  induction_wide    the same with 1.4 instead of 0.4 million weights
  throughput  tokens a pass, throughput and latency of the model inside `foretoken`, by heads used, with 1 and 8 texts at a time

       --seeds 3 --steps 256         runs of each setting, and their length in steps of 1,024 bytes
       --workers 1                   runs at a time, one thread each
       --train PATH, --foretoken PATH    default: in target/release, built before (cargo build --release -p foretoken-train -p foretoken-cli)
       --prompts FILE                throughput: what `foretoken-train prompts` writes
       --work DIR                    default: target/experiments. Runs that ended are kept there and not run again; one that was interrupted goes on
       --plan                        only say what would run, and for how long

Seeds decide first weights and the order of texts; run k of one setting is compared with run k of another. A difference is called lower or
higher when it has one sign in all seeds and its 95 % interval (Student's t over the seeds) leaves out zero; *all seeds* when only the sign
holds, else undecided.
"""
import argparse
import json
import math
import os
import random
import re
import statistics
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import svg
from peers import ROOT, commit, machine
from trials import BASE, EXPERIMENTS, SETTINGS, Runner, merged, settings_of

PAGES = ROOT / "docs/experiments"

# --- figures


# 97.5 % of Student's t by degrees of freedom.
STUDENT = [math.nan, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]


def interval(values: list[float]) -> list[float]:
    """The mean's 95 % interval over the seeds."""
    n, mean = len(values), statistics.fmean(values)
    half = STUDENT[n - 1] * statistics.stdev(values) / math.sqrt(n) if n > 1 else math.nan
    return [mean - half, mean + half]


def summary(values: list[float]) -> dict:
    return {"mean": statistics.fmean(values), "interval": interval(values), "seeds": values}


def difference(name: str, figure: str, of: list[float], against_name: str, against: list[float]) -> dict:
    """Run by run, and in words."""
    values = [a - b for a, b in zip(of, against)]
    found = {"figure": figure, "of": name, "against": against_name} | summary(values)
    low, high = found["interval"]
    word = "higher" if all(v > 0 for v in values) else "lower" if all(v < 0 for v in values) else "undecided"
    if word != "undecided" and low <= 0 <= high:
        word += " in all seeds"
    return found | {"verdict": word}


def figures(run: dict) -> dict[str, float]:
    """The numbers of one run."""
    held_out, log = run["held_out"], run["log"]
    found = {f"bits, head {k}": head["bits"] for k, head in enumerate(held_out["heads"], 1)}
    found |= {f"right, head {k}": head["top_1"] for k, head in enumerate(held_out["heads"], 1)}
    acceptance = held_out["acceptance"]
    accepted = sum(agreed for _, agreed in acceptance["by_head"])
    found["tokens a pass"] = 1 + accepted / max(acceptance["n_positions"], 1)
    for k, (asked, agreed) in enumerate(acceptance["by_head"], 2):
        found[f"accepted, head {k}"] = agreed / max(asked, 1)
    if acceptance["by_head"]:
        shifted = acceptance["shifted"]
        found["control"] = shifted[1] / max(shifted[0], 1)
        found["whole drafts rejected"] = 1 - acceptance["by_head"][-1][1] / max(acceptance["n_positions"], 1)
    if "joint" in held_out:
        joint = held_out["joint"]
        for key, label in (("rejected", "pairs rejected"), ("apart", "likeliest alone, not together"), ("drafted_apart", "drafted so")):
            found[label] = joint[key] / joint["n"]
    train = [line for line in log if line["kind"] == "train"]
    loss = [line["loss"][0] / math.log(2) for line in train]
    found["greatest rise of the loss"] = max(x - min(loss[: i + 1]) for i, x in enumerate(loss))
    for group, label in ((0, "trunk"), (1, "heads")):
        norms = [line["norms"][group] for line in train]
        found[f"gradient norm, {label}, median"], found[f"gradient norm, {label}, greatest"] = statistics.median(norms), max(norms)
    found["skipped steps"] = train[-1]["skipped"]
    tenth = [line for line in log if line["kind"] == "held_out" and line["step"] >= train[-1]["step"] / 8]
    found["early bits, head 1"] = tenth[0]["loss"][0] / math.log(2)
    return found


def curve(run: dict) -> list[tuple[float, float]]:
    """Bytes seen and head 1's bits on held-out text."""
    return [(line["tokens"], line["loss"][0] / math.log(2)) for line in run["log"] if line["kind"] == "held_out"]


def bytes_to(run: dict, bits: float) -> float | None:
    """Where a run's curve first reaches a loss, between its points in a line; none when it never does."""
    before = None
    for tokens, found in curve(run):
        if found <= bits:
            if before is None:
                return float(tokens)
            return before[0] + (tokens - before[0]) * (before[1] - bits) / (before[1] - found)
        before = (tokens, found)
    return None


def table(runs: dict[str, list[dict]]) -> dict[str, dict]:
    """By setting and figure: mean, interval and the seeds' values."""
    found = {}
    for name, of_seeds in runs.items():
        rows = [figures(run) for run in of_seeds]
        found[name] = {figure: summary([row[figure] for row in rows]) for figure in rows[0]}
    return found


def differences(found: dict[str, dict], wanted: list[str], base: str, names: list[str]) -> list[dict]:
    pairs = [(name, figure) for figure in wanted for name in names if figure in found[name] and figure in found[base]]
    return [difference(n, f, found[n][f]["seeds"], base, found[base][f]["seeds"]) for n, f in pairs]


def spread(found: dict[str, dict], names: list[str], figure: str, base: str = "n = 4") -> list[tuple[str, list[float]]]:
    """For dots; `base` is what a picture calls the setting that others are compared with."""
    return [(base if name == "n = 4" else name, found[name][figure]["seeds"]) for name in names if figure in found[name]]


def mean_curves(runs: dict[str, list[dict]], names: list[str], base: str = "n = 4") -> list:
    return [svg.Line(base if name == "n = 4" else name, mean_curve(runs[name])) for name in names]


def mean_curve(runs: list[dict]) -> list[tuple[float, float]]:
    return [(points[0][0] / 1e6, statistics.fmean(bits for _, bits in points)) for points in zip(*map(curve, runs))]


# --- experiments: each gives what goes into its JSON file and the panels of its picture


def experiment_heads(runner: Runner) -> tuple[dict, list]:
    names = EXPERIMENTS["heads"]
    runs = runner.all(names)
    found = table(runs)
    compared = differences(found, ["bits, head 1", "right, head 1"], "n = 1", names[1:])
    needed = {}
    for name in names[1:]:
        # Where the curves of a pair of runs reach the worse end of the two.
        parts = []
        for run, base in zip(runs[name], runs["n = 1"]):
            end, base_end = curve(run)[-1][1], curve(base)[-1][1]
            worse = max(end, base_end)
            parts.append(bytes_to(run, worse) / bytes_to(base, worse))
        reached = [bytes_to(run, curve(base)[-1][1]) for run, base in zip(runs[name], runs["n = 1"])]
        needed[name] = {"bytes to the final loss of n = 1": reached, "bytes for the worse final loss, over those of n = 1": summary(parts)}
    steps = step_seconds(runner.opt)
    times = {name: seconds / steps["n = 1"] for name, seconds in steps.items()}
    panels = [
        svg.Lines("head 1 on held-out text", "MB seen", "bits a byte", mean_curves(runs, names)),
        svg.Dots("at the end", "bits a byte, head 1", spread(found, names, "bits, head 1")),
        svg.Dots("tokens a pass, given text", "tokens", spread(found, names, "tokens a pass")),
    ]
    return {"settings": found, "differences": compared, "bytes needed": needed, "step over n = 1": times, "step, seconds": steps}, panels


def step_seconds(opt) -> dict[str, float]:
    """The time of a step by heads, one core, the median of three benches; measured once, on a machine that should do nothing else."""
    path = opt.work / "steps.json"
    if not path.exists():
        shape = ["--width", 96, "--layers", 3, "--windows", 8, "--context", 128, "--steps", 15, "--bf16"]
        times = {n: [] for n in (1, 2, 4, 8, 16)}
        for _ in range(3):
            for n in times:
                words = [str(x) for x in (opt.train, "bench", "--heads", n, *shape)]
                out = subprocess.run(words, check=True, capture_output=True, text=True, env=os.environ | {"RAYON_NUM_THREADS": "1"}).stdout
                times[n].append(float(re.search(r"step ([\d.]+) s", out)[1]))
        path.write_text(json.dumps({f"n = {n}": statistics.median(seconds) for n, seconds in times.items()}))
    return json.loads(path.read_text())


def experiment_kinds(runner: Runner) -> tuple[dict, list]:
    names = EXPERIMENTS["kinds"]
    found = table(runner.all(names))
    wanted = ["bits, head 1", *(f"right, head {k}" for k in (2, 3, 4)), "tokens a pass", "pairs rejected", "drafted so"]
    compared = differences(found, wanted, "sequential", names[:-1])
    by_head = [svg.Line("resblock" if name == "n = 4" else name, [(k, found[name][f"right, head {k}"]["mean"]) for k in (1, 2, 3, 4)]) for name in names]
    panels = [
        svg.Lines("likeliest token is right", "head", "share", by_head),
        svg.Dots("tokens a pass, given text", "tokens", spread(found, names, "tokens a pass", "resblock")),
        svg.Dots("likeliest alone, rejected together", "share of drafted pairs", spread(found, names, "drafted so", "resblock")),
    ]
    return {"settings": found, "differences": compared}, panels


def experiment_curricula(runner: Runner) -> tuple[dict, list]:
    names = EXPERIMENTS["curricula"]
    runs = runner.all(names)
    found = table(runs)
    wanted = ["bits, head 1", "tokens a pass"]
    compared = differences(found, wanted, "n = 4", ["n = 1", "forward", "reverse"]) + differences(found, wanted[:1], "n = 1", ["reverse"])
    panels = [
        svg.Lines("head 1 on held-out text", "MB seen", "bits a byte", mean_curves(runs, names, "static")),
        svg.Dots("at the end", "bits a byte, head 1", spread(found, names, "bits, head 1", "static")),
        svg.Dots("tokens a pass, given text", "tokens", spread(found, names, "tokens a pass", "static")),
    ]
    return {"settings": found, "differences": compared}, panels


def experiment_ablations(runner: Runner) -> tuple[dict, list]:
    names = EXPERIMENTS["ablations"]
    runs = runner.all(names)
    found = table(runs)
    wanted = ["bits, head 1", "bits, head 4", "early bits, head 1", "greatest rise of the loss", "gradient norm, trunk, greatest"]
    compared = differences(found, wanted, "n = 4", names[1:])
    panels = [
        svg.Lines("head 1 on held-out text", "MB seen", "bits a byte", mean_curves(runs, names, "as it is")),
        svg.Dots("at the end", "bits a byte, head 1", spread(found, names, "bits, head 1", "as it is")),
        svg.Dots("greatest rise of the loss", "bits", spread(found, names, "greatest rise of the loss", "as it is")),
    ]
    return {"settings": found, "differences": compared}, panels


# --- induction


FILLERS, NAMES = range(1, 17), 32
FIRSTS, SECONDS = range(17, 17 + NAMES), range(17 + NAMES, 17 + 2 * NAMES)
LENGTH = 64


def induction_document(rng: random.Random, follows: list[list[int]]) -> list[int]:
    """Filler words of a chain, and between them the two-token names of four people who are new in every document."""
    people = list(zip(rng.sample(FIRSTS, 4), rng.sample(SECONDS, 4)))
    words, filler = [], rng.choice(FILLERS)
    while len(words) < LENGTH - 1:
        if rng.random() < 0.25:
            words += rng.choice(people)
        else:
            filler = rng.choice(follows[filler - 1])
            words.append(filler)
    return words[: LENGTH - 1] + [0]


def write_tokens(path: Path, documents: list[list[int]]) -> None:
    """The trainer's format: a magic word, tokens and documents, where documents end, the tokens."""
    tokens = [token for document in documents for token in document]
    ends, end = [], 0
    for document in documents:
        end += len(document)
        ends.append(end)
    head = b"FTTOKEN1" + struct.pack("<QQ", len(tokens), len(documents)) + struct.pack(f"<{len(ends)}Q", *ends)
    path.write_bytes(head + struct.pack(f"<{len(tokens)}H", *tokens))


INDUCTION = {
    "run": BASE["run"] | {"windows": 16, "evaluate_every": 0, "checkpoint_every": 1000},
    "model": {"vocabulary": 17 + 2 * NAMES, "width": 128, "layers": 2, "attention_heads": 4, "kv_heads": 4, "feed_forward": 256, "context": LENGTH},
    "optimiser": BASE["optimiser"],
}


def second_tokens(path: Path) -> float:
    """The share of second tokens, of names that came before in the window, that head 1 knew."""
    right = asked = 0
    for line in path.read_text().splitlines():
        window = json.loads(line)
        tokens, likeliest, seen = window["tokens"], window["heads"][0], set()
        for i, token in enumerate(tokens[:-1]):
            if token == 0:
                seen.clear()
            elif token in FIRSTS and tokens[i + 1] in SECONDS:
                if token in seen:
                    asked += 1
                    right += likeliest[i] == tokens[i + 1]
                seen.add(token)
    return right / asked


def experiment_induction(runner: Runner) -> tuple[dict, list]:
    return induction(runner, "induction", {}, 6000)


def experiment_induction_wide(runner: Runner) -> tuple[dict, list]:
    return induction(runner, "induction wide", {"model": {"width": 256, "feed_forward": 512}}, 5000)


def induction(runner: Runner, name: str, change: dict, steps: int) -> tuple[dict, list]:
    opt = runner.opt
    data = opt.work / "induction-data"
    if not (data / "train.tokens").exists():
        rng = random.Random(1)
        follows = [[rng.choice(FILLERS) for _ in range(3)] for _ in FILLERS]
        data.mkdir(parents=True, exist_ok=True)
        write_tokens(data / "held-out.tokens", [induction_document(rng, follows) for _ in range(128)])
        write_tokens(data / "train.tokens", [induction_document(rng, follows) for _ in range(120_000)])
    stages = [(opt.induction_steps or steps) * i // 10 for i in range(1, 11)]

    def learned(job: tuple[int, int]) -> list[float]:
        n, seed = job
        run = {"run": {"steps": stages[-1], "seed": seed}, "data": {"folder": str(data)}}
        settings = merged(merged(merged(INDUCTION, change), run), {"model.heads": {"n": n, "kind": "resblock"}, "loss": {"lambda": 1.0}})
        folder = runner.folder(f"{name} n {n} seed {seed}", settings)
        path = folder / "figures.json"
        found = json.loads(path.read_text()) if path.exists() else {"right": [], "cpu_seconds": 0.0}
        for stage in stages[len(found["right"]) :]:
            found["cpu_seconds"] += runner.command("train", folder / "run.toml", "--until", stage)
            found["cpu_seconds"] += runner.command("evaluate", folder / "run.toml", "--windows", 128, "--guesses", folder / "guesses.jsonl")
            found["right"].append(second_tokens(folder / "guesses.jsonl"))
            path.write_text(json.dumps(found))
        print(f"{name}, n = {n}, seed {seed}: {found['cpu_seconds']:.0f} CPU seconds", file=sys.stderr, flush=True)
        return found["right"]

    jobs = [(n, seed) for seed in range(1, opt.seeds + 1) for n in (1, 2)]
    with ThreadPoolExecutor(opt.workers) as pool:
        done = dict(zip(jobs, pool.map(learned, jobs)))
    tokens = [stage * INDUCTION["run"]["windows"] * LENGTH for stage in stages]
    by_n = {n: [done[n, seed] for seed in range(1, opt.seeds + 1)] for n in (1, 2)}
    compared = []
    for label, read in (("second tokens known, mean over the run", statistics.fmean), ("second tokens known, at the end", lambda c: c[-1])):
        compared.append(difference("n = 2", label, [read(c) for c in by_n[2]], "n = 1", [read(c) for c in by_n[1]]))
    lines = [svg.Line(f"n = {n}, seed {seed}", list(zip([t / 1e6 for t in tokens], done[n, seed])), n - 1) for n, seed in jobs]
    panels = [
        svg.Lines("second token of a name seen before", "million tokens seen", "share known", lines),
        svg.Dots("mean over the run", "share known", [(f"n = {n}", [statistics.fmean(c) for c in by_n[n]]) for n in (1, 2)]),
    ]
    return {"tokens": tokens, "second tokens known": {f"n = {n}": by_n[n] for n in by_n}, "differences": compared}, panels


# --- throughput


def with_heads(model: Path, count: int, path: Path) -> Path:
    """A copy of a GGUF file that says it has fewer heads: the number behind the key, its type (u32) between."""
    data = bytearray(model.read_bytes())
    at = data.index(b"foretoken.heads.count") + len(b"foretoken.heads.count")
    assert data[at : at + 4] == struct.pack("<I", 4), "a u32"
    data[at + 4 : at + 8] = struct.pack("<I", count)
    path.write_bytes(data)
    return path


def answered(opt, model: Path, used: int, at_a_time: int, requests: Path) -> dict:
    """One `foretoken batch` over all requests."""
    output = opt.work / "answers.jsonl"
    output.unlink(missing_ok=True)
    draft = ["--draft", "mtp", "--draft-width", used - 1] if used > 1 else ["--draft", "none"]
    words = [opt.foretoken, "batch", requests, output, "-m", model, "--concurrency", at_a_time, "--cache-tokens", 512 * at_a_time, *draft]
    done = subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True)
    told = re.search(r"(\d+) answered, 0 refused or failed; \d+ tokens in [\d.]+ s \(([\d.]+) tokens/s, ([\d.]+) a CPU-second", done.stderr)
    bodies = [json.loads(line) for line in output.read_text().splitlines()]
    texts = {line["custom_id"]: line["response"]["body"]["choices"][0]["text"] for line in bodies}
    timings = [line["response"]["body"]["timings"] for line in bodies]
    tokens, passes = sum(t["predicted_n"] for t in timings), sum(t["passes"] for t in timings)
    return {
        "texts": texts,
        "tokens a pass": tokens / passes,
        "tokens a second": float(told[2]),
        "tokens a CPU second": float(told[3]),
        "latency, ms a token": statistics.fmean(t["predicted_ms"] / t["predicted_n"] for t in timings),
    }


def experiment_throughput(runner: Runner) -> tuple[dict, list]:
    opt = runner.opt
    model = ROOT / "crates/foretoken-cli/models/python-bytes.gguf"
    requests = opt.work / "requests.jsonl"
    prompts = [json.loads(line)["prompt"] for line in opt.prompts.read_text().splitlines()][: opt.requests]
    body = {"max_tokens": 256, "temperature": 0.8, "ignore_eos": True}
    asked = [{"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body | {"prompt": p, "seed": i}} for i, p in enumerate(prompts)]
    requests.write_text("".join(json.dumps(line) + "\n" for line in asked))
    found, texts = {1: {}, 8: {}}, None
    models = {used: with_heads(model, used, opt.work / f"heads-{used}.gguf") if used > 1 else model for used in range(1, 9)}
    rounds = {(at_a_time, used): [] for at_a_time in found for used in models}
    for _ in range(opt.rounds):
        for at_a_time, used in rounds:
            one = answered(opt, models[used], used, at_a_time, requests)
            texts = texts or one["texts"]
            assert one.pop("texts") == texts, "drafts changed a text"
            rounds[at_a_time, used].append(one)
    for (at_a_time, used), ones in rounds.items():
        gains = [one["tokens a second"] / plain["tokens a second"] for one, plain in zip(ones, rounds[at_a_time, 1])]
        found[at_a_time][used] = {key: statistics.median(one[key] for one in ones) for key in ones[0]} | {"speed-up": summary(gains)}

    def lines(key: str) -> list:
        return [svg.Line(f"{b} at a time", [(used, found[b][used][key]) for used in found[b]]) for b in found]

    panels = [
        svg.Lines("tokens a pass and text", "heads used", "tokens", lines("tokens a pass")),
        svg.Lines("throughput", "heads used", "tokens a second", lines("tokens a second")),
        svg.Lines("latency", "heads used", "ms a token of a text", lines("latency, ms a token")),
    ]
    return {"prompts": len(prompts), "rounds": opt.rounds, "texts": "equal in all rounds", "by texts at a time and heads used": found}, panels


# ---


def main() -> None:
    args = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    args.add_argument("names", nargs="+", choices=[*EXPERIMENTS, "induction", "induction_wide", "throughput"], metavar="NAME")
    args.add_argument("--texts", type=Path)
    args.add_argument("--work", type=Path, default=ROOT / "target/experiments")
    args.add_argument("--train", type=Path, default=ROOT / "target/release/foretoken-train")
    args.add_argument("--foretoken", type=Path, default=ROOT / "target/release/foretoken")
    args.add_argument("--prompts", type=Path)
    args.add_argument("--seeds", type=int, default=3)
    args.add_argument("--steps", type=int, default=256)
    args.add_argument("--induction-steps", type=int, help=argparse.SUPPRESS)
    args.add_argument("--requests", type=int, default=16, help=argparse.SUPPRESS)
    args.add_argument("--rounds", type=int, default=3, help=argparse.SUPPRESS)
    args.add_argument("--workers", type=int, default=1)
    args.add_argument("--plan", action="store_true")
    opt = args.parse_args()
    opt.work = opt.work.resolve()
    if opt.texts:
        opt.texts = opt.texts.resolve()
    if not opt.texts and set(opt.names) & set(EXPERIMENTS):
        raise SystemExit("experiments: --texts names the folder that `foretoken-train prepare` wrote")
    if not opt.prompts and "throughput" in opt.names:
        raise SystemExit("experiments: --prompts names the file that `foretoken-train prompts` wrote")
    if opt.plan:
        return plan(opt)
    opt.work.mkdir(parents=True, exist_ok=True)
    PAGES.mkdir(parents=True, exist_ok=True)
    # Experiments share runs; a seed is run for all settings before the next one begins.
    Runner(opt).all(list(settings_of(opt.names)))
    for name in opt.names:
        found, panels = globals()[f"experiment_{name}"](Runner(opt))
        about = {"experiment": name, "machine": machine(), "commit": commit()}
        if name in EXPERIMENTS:
            about |= {"seeds": opt.seeds, "bytes a run": opt.steps * BASE["run"]["windows"] * BASE["model"]["context"], "settings of all": BASE}
        (PAGES / f"{name}.json").write_text(compact(about | found))
        (PAGES / f"{name}.svg").write_text(svg.figure(panels))
        for line in found.get("differences", []):
            print(f"{line['figure']}: {line['of']} against {line['against']} {line['mean']:+.4f} ({line['interval'][0]:+.4f} to {line['interval'][1]:+.4f}): {line['verdict']}")


def plan(opt) -> None:
    names = settings_of(opt.names)
    per_run = opt.steps * BASE["run"]["windows"] * BASE["model"]["context"]
    print(f"{len(names) * opt.seeds} runs of {per_run / 1e6:.2f} MB each")
    for name in names:
        for seed in range(1, opt.seeds + 1):
            run = {"run": {"steps": opt.steps, "seed": seed}, "data": {"folder": str(opt.texts)}}
            print(Runner(opt).folder(f"{name} seed {seed}", merged(merged(BASE, SETTINGS[name]), run)))


def compact(value) -> str:
    """JSON with five digits, and lists of numbers on one line."""
    text = json.dumps(rounded(value), indent=1)
    return re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda found: "[" + re.sub(r"\s*\n\s*", " ", found[1]) + "]", text) + "\n"


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {str(k): rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, (list, tuple)) else value


if __name__ == "__main__":
    main()
