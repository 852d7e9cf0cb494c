#!/usr/bin/env python3
"""How many completions of functions run in circles, beside the true texts: writes docs/experiments/loops.json and .svg.

usage: loops.py --prompts FILE --texts DIR     FILE as `foretoken-train prompts` writes it, DIR with held-out.tokens of `foretoken-train prepare`
       --foretoken PATH          default: target/release/foretoken, built before (cargo build --release -p foretoken-cli)
       --stage NAME=FILE ...     other models, such as earlier stages of the one inside `foretoken`, at temperature 0 and 0.8
       --work DIR                default: target/loops

A text runs in circles when some 32 bytes of it come three times or more. 256 bytes are written after each signature and docstring. Told are the
share of such texts by temperature, by stage and under penalties, that of the texts that really follow the prompts, and the share when a
text is taken only up to the end of its function: the first line that is indented no deeper than its `def`. Then the bytes a pass of `mtp` at
width 8 over all texts, over those that do not run in circles, and over all texts with each circle cut off where it comes round for the first
time. A shorter text is the start of the longer one, so its passes are counted by writing it again with its length as the limit.
"""
import argparse
import json
import math
import struct
import subprocess
from collections import Counter
from pathlib import Path

import svg
from experiments import PAGES, compact
from peers import ROOT, commit, machine

LENGTH, SPAN, TIMES = 256, 32, 3
TEMPERATURES = [0, 0.2, 0.4, 0.6, 0.8, 1.0]
PENALTIES = [{"repetition_penalty": 1.1}, {"frequency_penalty": 0.1}, {"frequency_penalty": 0.3}]


def circle(text: bytes) -> list[int] | None:
    """Where the 32 bytes that first come for the third time are found."""
    seen = {}
    for i in range(len(text) - SPAN + 1):
        places = seen.setdefault(text[i : i + SPAN], [])
        places.append(i)
        if len(places) == TIMES:
            return places
    return None


def function_end(prompt: str, text: bytes) -> int:
    """Bytes of the function's body."""
    head = prompt.split("\n", 1)[0]
    indent, end = len(head) - len(head.lstrip()), 0
    for line in text.splitlines(keepends=True):
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        end += len(line)
    return end


def kind(text: bytes) -> str:
    """What comes round in a text that runs in circles."""
    first, second, _ = circle(text)
    if not text[first : first + SPAN].strip():
        return "spaces"
    if text[:first].count(b'"""') % 2:
        return "in a later docstring"
    return "lines" if b"\n" in text[first:second] else "words of a line"


def share(n: int, of: int) -> dict:
    """With Wilson's 95 % interval."""
    z, p = 1.96, n / of
    centre, half = p + z * z / (2 * of), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return {"n": n, "of": of, "share": p, "interval": [(centre - half) / (1 + z * z / of), (centre + half) / (1 + z * z / of)]}


def judged(prompts: list[str], texts: list[bytes]) -> dict:
    bodies = [text[: function_end(prompt, text)] for prompt, text in zip(prompts, texts)]
    circles = [text for text in texts if circle(text)]
    return {
        "in circles": share(len(circles), len(texts)),
        "up to the function's end": share(sum(circle(body) is not None for body in bodies), len(texts)),
        "functions that end": sum(len(body) < len(text) for body, text in zip(bodies, texts)) / len(texts),
        "what comes round": dict(Counter(map(kind, circles)).most_common()),
    }


def true_texts(folder: Path, prompts: list[dict]) -> list[bytes]:
    """What follows each prompt in its document, whose number its id has."""
    data = (folder / "held-out.tokens").read_bytes()
    assert data[:8] == b"FTTOKEN1", "a token file"
    n_tokens, n_documents = struct.unpack_from("<QQ", data, 8)
    ends = struct.unpack_from(f"<{n_documents}Q", data, 24)
    tokens = data[24 + 8 * n_documents :][: 2 * n_tokens : 2]
    found = []
    for prompt in prompts:
        document = int(prompt["id"].split("/")[-2])
        text = tokens[ends[document - 1] if document else 0 : ends[document]].rstrip(b"\0")
        at = text.index(prompt["prompt"].encode()) + len(prompt["prompt"])
        found.append(text[at : at + LENGTH])
    return found


def written(opt, prompts: list[str], model: Path | None, lengths: list[int] | None = None, mtp: bool = False, **settings) -> list[dict]:
    """One `foretoken batch`: text and passes of each prompt; with `mtp`, at width 8, one at a time."""
    requests, output = opt.work / "requests.jsonl", opt.work / "answers.jsonl"
    output.unlink(missing_ok=True)
    body = {"temperature": 0, "ignore_eos": True} | settings
    lengths = lengths or [LENGTH] * len(prompts)
    asked = [
        {"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body | {"prompt": prompt, "seed": i, "max_tokens": length}}
        for i, (prompt, length) in enumerate(zip(prompts, lengths))
    ]
    requests.write_text("".join(json.dumps(line) + "\n" for line in asked))
    draft = ["--draft", "mtp", "--draft-width", "8", "--concurrency", "1"] if mtp else ["--draft", "none", "--concurrency", "8", "--cache-tokens", "4096"]
    words = [opt.foretoken, "batch", requests, output, *draft, *(["-m", model] if model else [])]
    subprocess.run([str(word) for word in words], check=True, capture_output=True)
    answers = {int(line["custom_id"]): line["response"]["body"] for line in map(json.loads, output.read_text().splitlines())}
    answers = [answers[i] for i in range(len(prompts))]
    return [{"text": a["choices"][0]["text"].encode(), "bytes": a["timings"]["predicted_n"], "passes": a["timings"]["passes"]} for a in answers]


def bytes_a_pass(opt, prompts: list[str], temperature: float) -> dict:
    def rate(texts: list[dict]) -> float:
        return sum(text["bytes"] for text in texts) / sum(text["passes"] for text in texts)

    texts = written(opt, prompts, None, mtp=True, temperature=temperature)
    circles = [circle(text["text"]) for text in texts]
    cuts = [found[1] if found else LENGTH for found in circles]
    ends = [max(function_end(prompt, text["text"]), 1) for prompt, text in zip(prompts, texts)]
    return {
        "all": rate(texts),
        "without those in circles": rate([text for text, found in zip(texts, circles) if not found]),
        "circles cut off": rate(written(opt, prompts, None, cuts, True, temperature=temperature)),
        "bytes cut off": 1 - sum(cuts) / (LENGTH * len(cuts)),
        "up to the function's end": rate(written(opt, prompts, None, ends, True, temperature=temperature)),
    }


def main() -> None:
    args = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    args.add_argument("--prompts", type=Path, required=True)
    args.add_argument("--texts", type=Path, required=True)
    args.add_argument("--foretoken", type=Path, default=ROOT / "target/release/foretoken")
    args.add_argument("--stage", nargs="*", default=[], metavar="NAME=FILE")
    args.add_argument("--work", type=Path, default=ROOT / "target/loops")
    opt = args.parse_args()
    opt.work.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in opt.prompts.read_text().splitlines()]
    prompts = [line["prompt"] for line in lines]
    stages = [stage.split("=", 1) for stage in opt.stage]

    def of(model: Path | None = None, **settings) -> dict:
        return judged(prompts, [text["text"] for text in written(opt, prompts, model, **settings)])

    true = judged(prompts, true_texts(opt.texts, lines))
    by_temperature = {t: of(temperature=t) for t in TEMPERATURES}
    by_stage = {name: {t: of(Path(file), temperature=t) for t in (0, 0.8)} for name, file in stages}
    by_stage["inside foretoken"] = {t: by_temperature[t] for t in (0, 0.8)}
    penalised = {" ".join(f"{k} {v}" for k, v in penalty.items()): of(**penalty) for penalty in PENALTIES}
    rates = {t: bytes_a_pass(opt, prompts, t) for t in (0, 0.8)}
    found = {
        "experiment": "loops", "machine": machine(), "commit": commit(), "bytes a text": LENGTH, "true texts": true, "by temperature": by_temperature,
        "by stage": by_stage, "greedy with penalties": penalised, "bytes a pass of mtp at width 8, by temperature": rates,
    }
    (PAGES / "loops.json").write_text(compact(found))

    def line(name: str, figure: str) -> svg.Line:
        return svg.Line(name, [(t, 100 * by_temperature[t][figure]["share"]) for t in TEMPERATURES])

    truly = svg.Line("true texts", [(t, 100 * true["in circles"]["share"]) for t in (TEMPERATURES[0], TEMPERATURES[-1])])
    shares = [(name, [100 * at[0]["in circles"]["share"]]) for name, at in by_stage.items()]
    panels = [
        svg.Lines("texts in circles", "temperature", "%", [line("256 bytes", "in circles"), line("up to the function's end", "up to the function's end"), truly]),
        svg.Dots("in circles at temperature 0, by stage", "%", shares),
    ]
    (PAGES / "loops.svg").write_text(svg.figure(panels))
    for name, figures in [("true texts", true), *((f"temperature {t}", f) for t, f in by_temperature.items()), *penalised.items()]:
        n, short = figures["in circles"]["n"], figures["up to the function's end"]["n"]
        print(f"{name}: {n} of {len(prompts)} in circles, {short} up to the function's end")
    for t, figures in rates.items():
        print(f"temperature {t}, bytes a pass: " + ", ".join(f"{name} {value:.2f}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
