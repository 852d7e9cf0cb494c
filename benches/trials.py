"""Settings of the experiments with training, and their runs: see experiments.py."""
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BASE = {
    "run": {"windows": 8, "precision": "bf16", "log_every": 5, "evaluate_every": 16, "evaluate_windows": 48, "checkpoint_every": 100},
    "model": {"vocabulary": 256, "width": 96, "layers": 3, "attention_heads": 3, "kv_heads": 1, "feed_forward": 256, "context": 128},
    "model.heads": {"n": 4, "kind": "resblock"},
    "loss": {"lambda": 3.0},
    "optimiser": {"method": "muon", "learning_rate": 3e-3, "warm_up": 30, "decay": 0.2, "final_rate": 0.05},
}


def heads(n: int, **more) -> dict:
    """n heads that weigh the same, as in Meta's models."""
    return {"model.heads": {"n": n}, "loss": {"lambda": float(max(n - 1, 1))}} | more


def kind(name: str) -> dict:
    return {"model.heads": {"kind": name}}


# What each setting changes in BASE.
SETTINGS = {
    "n = 1": heads(1),
    "n = 2": heads(2),
    "n = 4": heads(4),
    "n = 8": heads(8),
    "n = 16": heads(16),
    "n = 4, lambda 0.3": {"loss": {"lambda": 0.3}},
    "linear": kind("linear"),
    "transformer": kind("transformer"),
    "sequential": kind("sequential"),
    "forward": {"loss": {"curriculum": {"forward": 1.0}}},
    "reverse": {"loss": {"curriculum": {"reverse": 1.0}}},
    "not clipped": {"optimiser": {"clip": 0.0}},
    "random heads": {"model.heads": {"start": "random"}},
}
EXPERIMENTS = {
    "heads": ["n = 1", "n = 2", "n = 4", "n = 8", "n = 16", "n = 4, lambda 0.3"],
    "kinds": ["n = 4", "linear", "transformer", "sequential"],
    "curricula": ["n = 1", "n = 4", "forward", "reverse"],
    "ablations": ["n = 4", "not clipped", "random heads"],
}
EVALUATED = 256
"""Held-out windows of the last evaluation."""


def settings_of(experiments: list[str]) -> dict:
    return dict.fromkeys(name for experiment in experiments for name in EXPERIMENTS.get(experiment, []))


# --- runs


def toml(settings: dict) -> str:
    def value(x) -> str:
        if isinstance(x, dict):
            return "{ " + ", ".join(f"{k} = {value(v)}" for k, v in x.items()) + " }"
        return json.dumps(x)

    return "\n".join(f"[{name}]\n" + "\n".join(f"{k} = {value(v)}" for k, v in part.items()) + "\n" for name, part in settings.items())


def merged(base: dict, more: dict) -> dict:
    return {part: base.get(part, {}) | more.get(part, {}) for part in base | more}


class Runner:
    """Trains and measures; a run whose figures are there is not run again."""

    def __init__(self, opt):
        self.opt = opt

    def command(self, *words) -> float:
        """Runs the trainer on one thread and returns its CPU seconds."""
        words = [str(word) for word in (self.opt.train, *words)]
        process = subprocess.Popen(words, env=os.environ | {"RAYON_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        errors = process.stderr.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"experiments: {' '.join(words)} failed:\n{errors[-1500:]}")
        return usage.ru_utime + usage.ru_stime

    def folder(self, name: str, settings: dict) -> Path:
        """The run's folder with its TOML file; emptied when it is of other settings."""
        folder = self.opt.work / re.sub(r"[^a-z0-9.]+", "-", name.lower())
        settings = merged(settings, {"run": {"folder": str(folder / "run")}})
        text, file = toml(settings), folder / "run.toml"
        if file.exists() and file.read_text() != text:
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return folder

    def trained(self, name: str, seed: int) -> dict:
        """Figures of a setting's run with a seed."""
        opt = self.opt
        run = {"run": {"steps": opt.steps, "seed": seed}, "data": {"folder": str(opt.texts)}}
        folder = self.folder(f"{name} seed {seed}", merged(merged(BASE, SETTINGS[name]), run))
        path = folder / "figures.json"
        if path.exists():
            return json.loads(path.read_text())
        began, held_out = time.monotonic(), folder / "held-out.json"
        seconds = self.command("train", folder / "run.toml")
        joint = ["--joint"] * (name in EXPERIMENTS["kinds"])
        seconds += self.command("evaluate", folder / "run.toml", "--windows", EVALUATED, "--json", held_out, *joint)
        log = [json.loads(line) for line in (folder / "run/log.jsonl").read_text().splitlines()]
        found = {"cpu_seconds": seconds, "held_out": json.loads(held_out.read_text()), "log": log}
        path.write_text(json.dumps(found))
        print(f"{name}, seed {seed}: {seconds:.0f} CPU seconds, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        return found

    def all(self, names: list[str]) -> dict[str, list[dict]]:
        """By setting: the runs, in the order of the seeds, which are run one after another."""
        jobs = [(name, seed) for seed in range(1, self.opt.seeds + 1) for name in names]
        with ThreadPoolExecutor(self.opt.workers) as pool:
            done = list(pool.map(lambda job: self.trained(*job), jobs))
        return {name: [run for (n, _), run in zip(jobs, done) if n == name] for name in names}
