#!/usr/bin/env python3
"""How many completions of functions run in circles, beside the true texts: writes docs/experiments/loops.json and .svg.

usage: loops.py --prompts FILE --texts DIR     FILE as `foretoken-train prompts` writes it, DIR with held-out.tokens of `foretoken-train prepare`
       --foretoken PATH          default: target/release/foretoken, built before (cargo build --release -p foretoken-cli)
       --stage NAME=FILE ...     other models, such as earlier stages of the one inside `foretoken`, at temperature 0 and 0.8, beside those that
                                 loops.json has already
       --larger NAME=FILE ...    only this: models of other sizes and vocabularies at temperature 0, beside what loops.json has already
       --work DIR                default: target/loops

A text runs in circles when some 32 bytes of it come three times or more. 256 bytes are written after each signature and docstring. Told are the
share of such texts by temperature, by stage and under penalties, that of the texts that really follow the prompts, and the share when a
text is taken only up to the end of its function: the first line that is indented no deeper than its `def`. Then the bytes a pass of `mtp` at
width 8 over all texts, over those that do not run in circles, and over all texts with each circle cut off where it comes round for the first
time. A shorter text is the start of the longer one, so its passes are counted by writing it again with its length as the limit.

Larger models write tokens, of which the first 256 bytes count, and may end their texts before; the model inside `foretoken` is held to the
same there.
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
    draft = ["--draft", "mtp", "--draft-width", "8", "--concurrency", "1"] if mtp else ["--draft", "none", "--concurrency", "8", "--cache-tokens", "8192"]
    words = [opt.foretoken, "batch", requests, output, *draft, *(["-m", model] if model else [])]
    subprocess.run([str(word) for word in words], check=True, capture_output=True)
    answers = {int(line["custom_id"]): line["response"]["body"] for line in map(json.loads, output.read_text().splitlines())}
    answers = [answers[i] for i in range(len(prompts))]
    counts = {"bytes": "predicted_n", "passes": "passes", "guessed": "draft_n", "accepted": "draft_n_accepted"}
    return [{"text": a["choices"][0]["text"].encode()} | {name: a["timings"].get(key, 0) for name, key in counts.items()} for a in answers]


def bytes_a_pass(opt, prompts: list[str], temperature: float) -> dict:
    def rate(texts: list[dict]) -> dict:
        total = {name: sum(text[name] for text in texts) for name in ("bytes", "passes", "guessed", "accepted")}
        return {"bytes a pass": total["bytes"] / total["passes"], "guesses accepted": total["accepted"] / total["guessed"]}

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


def first_bytes(opt, prompts: list[str], model: Path | None) -> list[bytes]:
    """Greedy texts of a model of any vocabulary, of 256 bytes or what it writes before its end of text. Few tokens are asked for first."""
    texts, ended, wanted = [b""] * len(prompts), set(), list(range(len(prompts)))
    for n_tokens in (LENGTH // 3, LENGTH) if model else (LENGTH,):
        found = written(opt, [prompts[i] for i in wanted], model, [n_tokens] * len(wanted), ignore_eos=False)
        for i, answer in zip(wanted, found):
            texts[i] = answer["text"][:LENGTH]
            if answer["bytes"] < n_tokens:
                ended.add(i)
        wanted = [i for i in wanted if len(texts[i]) < LENGTH and i not in ended]
    return texts


def larger(opt, prompts: list[str]) -> dict:
    models = [("inside foretoken", None), *((name, Path(file)) for name, file in (text.split("=", 1) for text in opt.larger))]
    found = {}
    for name, model in models:
        path = opt.work / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps([text.decode("latin-1") for text in first_bytes(opt, prompts, model)]))
        texts = [text.encode("latin-1") for text in json.loads(path.read_text())]
        found[name] = judged(prompts, texts) | {"shorter texts": sum(len(text) < LENGTH for text in texts)}
    return found


def picture(found: dict) -> str:
    by_temperature = found["by temperature"]

    def line(name: str, figure: str) -> svg.Line:
        return svg.Line(name, [(float(t), 100 * at[figure]["share"]) for t, at in by_temperature.items()])

    truly = svg.Line("true texts", [(t, 100 * found["true texts"]["in circles"]["share"]) for t in (TEMPERATURES[0], TEMPERATURES[-1])])
    shares = [(name, [100 * at["0"]["in circles"]["share"]]) for name, at in found["by stage"].items()]
    sizes = [(name, [100 * at["in circles"]["share"]]) for name, at in found["larger models, temperature 0"].items()]
    panels = [
        svg.Lines("texts in circles", "temperature", "%", [line("256 bytes", "in circles"), line("up to the function's end", "up to the function's end"), truly]),
        svg.Dots("in circles at temperature 0, by stage", "%", shares),
        svg.Dots("in circles at temperature 0, other models", "%", sizes),
    ]
    return svg.figure([panel for panel in panels if not isinstance(panel, svg.Dots) or panel.values])


def told(found: dict, n_prompts: int) -> None:
    groups = [("true texts", found["true texts"]), *((f"temperature {t}", f) for t, f in found["by temperature"].items())]
    for name, figures in [*groups, *found["greedy with penalties"].items(), *found["larger models, temperature 0"].items()]:
        n, short = figures["in circles"]["n"], figures["up to the function's end"]["n"]
        print(f"{name}: {n} of {n_prompts} in circles, {short} up to the function's end")
    for t, figures in found["mtp at width 8, by temperature"].items():
        rates = {name: rate for name, rate in figures.items() if isinstance(rate, dict)}
        said = (f"{name} {rate['bytes a pass']:.2f} ({100 * rate['guesses accepted']:.0f} % of guesses)" for name, rate in rates.items())
        print(f"temperature {t}, bytes a pass: " + ", ".join(said))


def main() -> None:
    args = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    args.add_argument("--prompts", type=Path, required=True)
    args.add_argument("--texts", type=Path, required=True)
    args.add_argument("--foretoken", type=Path, default=ROOT / "target/release/foretoken")
    args.add_argument("--stage", nargs="*", default=[], metavar="NAME=FILE")
    args.add_argument("--larger", nargs="*", default=[], metavar="NAME=FILE")
    args.add_argument("--work", type=Path, default=ROOT / "target/loops")
    opt = args.parse_args()
    opt.work.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in opt.prompts.read_text().splitlines()]
    prompts = [line["prompt"] for line in lines]
    stages = [stage.split("=", 1) for stage in opt.stage]

    def of(model: Path | None = None, **settings) -> dict:
        return judged(prompts, [text["text"] for text in written(opt, prompts, model, **settings)])

    page = PAGES / "loops.json"
    before = json.loads(page.read_text()) if page.exists() else {}
    if opt.larger:
        found = before | {"larger models, temperature 0": larger(opt, prompts)}
    else:
        by_temperature = {t: of(temperature=t) for t in TEMPERATURES}
        by_stage = before.get("by stage", {}) | {name: {t: of(Path(file), temperature=t) for t in (0, 0.8)} for name, file in stages}
        by_stage["inside foretoken"] = {t: by_temperature[t] for t in (0, 0.8)}
        found = {
            "experiment": "loops", "machine": machine(), "commit": commit(), "bytes a text": LENGTH, "true texts": judged(prompts, true_texts(opt.texts, lines)),
            "by temperature": by_temperature, "by stage": by_stage,
            "greedy with penalties": {" ".join(f"{k} {v}" for k, v in penalty.items()): of(**penalty) for penalty in PENALTIES},
            "mtp at width 8, by temperature": {t: bytes_a_pass(opt, prompts, t) for t in (0, 0.8)},
            "larger models, temperature 0": before.get("larger models, temperature 0", {}),
        }
    page.write_text(compact(found))
    # As it reads back: keys are text.
    found = json.loads(page.read_text())
    (PAGES / "loops.svg").write_text(picture(found))
    told(found, len(prompts))


if __name__ == "__main__":
    main()
