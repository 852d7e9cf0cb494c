#!/usr/bin/env python3
"""Measures foretoken beside llama.cpp and candle on the same GGUF files, in one run, and prints the README's table.

usage: peers.py [MODEL.gguf ...]     default: every model of the project in $FORETOKEN_MODELS or ~/.cache/foretoken/models
       --rows 1,2,3,4,8,16,32 --context 256 --prompt-tokens 512 --decode-tokens 128 --threads 2 --rounds 5
       --foretoken PATH              default: target/release/foretoken, built first
       --llama-python PATH           a Python with llama-cpp-python and numpy; default ~/.cache/foretoken/peers/bin/python
       --candle                      also build and time benches/candle (a first build takes some minutes)
       --prompts FILE.jsonl          prompts for `bench decode`; default benches/prompts.jsonl
       --json FILE                   default target/peers.json

How it measures. Every process is started anew for each round, and the engines take turns within a round, so that a slow minute of the
machine hits all of them; a process that waits actively for its next pass would otherwise steal a core from the others. Within a round
an engine runs each row count several times and reports its median. The table gives the median of the rounds, and as ratio the median of
the ratios within the rounds. One forward pass is n rows after a context, logits at every row (candle: at the last row only, all that it
offers). The prompt is one pass from an empty cache with the last row's logits. Plain decoding is one row at a time from a
context of one token, as llama-bench does it.
The floor of a pass is max(bytes of the tensors read / bandwidth, rows x MACs / peak) as `foretoken bench forward` reports it: it measures
the bandwidth between its passes; the peak is --peak-gmac.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = Path(os.environ.get("FORETOKEN_MODELS", Path.home() / ".cache/foretoken/models"))
KNOWN = ["SmolLM2-135M-Instruct.Q4_1.gguf", "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf", "Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf"]
REPEATS = 5


def main() -> None:
    args = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    args.add_argument("models", nargs="*", type=Path)
    args.add_argument("--rows", default="1,2,3,4,8,16,32")
    args.add_argument("--context", type=int, default=256)
    args.add_argument("--prompt-tokens", type=int, default=512)
    args.add_argument("--decode-tokens", type=int, default=128)
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--peak-gmac", type=float, default=160.0)
    args.add_argument("--foretoken", type=Path)
    args.add_argument("--llama-python", default=str(Path.home() / ".cache/foretoken/peers/bin/python"))
    args.add_argument("--candle", action="store_true")
    args.add_argument("--prompts", type=Path, default=ROOT / "benches/prompts.jsonl")
    args.add_argument("--json", type=Path, default=ROOT / "target/peers.json")
    args.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    opt = args.parse_args()
    if opt.worker:
        return llama_worker(opt)

    models = opt.models or [MODELS / name for name in KNOWN if (MODELS / name).exists()]
    if not models:
        raise SystemExit(f"peers: no model in {MODELS}")
    engines = {"foretoken": foretoken_engine(opt), "llama.cpp": llama_engine(opt)}
    if opt.candle:
        engines["candle"] = candle_engine(opt)
    result = {"machine": machine(), "commit": commit(), "options": {k: str(v) for k, v in vars(opt).items()}, "models": {}}
    for model in models:
        print(f"\n## {model.name}\n", flush=True)
        rounds = []
        for number in range(opt.rounds):
            # Every other round in the opposite order, and without candle, which takes as long as all the rest.
            names = list(engines) if number % 2 == 0 else [name for name in reversed(engines) if name != "candle"]
            rounds.append({name: engines[name](model) for name in names})
            print(f"round {number + 1} of {opt.rounds}", file=sys.stderr, flush=True)
        decode = decode_by_drafts(opt, model)
        result["models"][model.name] = {"rounds": rounds, "bench_decode": decode}
        print(table(opt, rounds, engines, decode), flush=True)
    opt.json.parent.mkdir(parents=True, exist_ok=True)
    opt.json.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\n{result['machine']['cpu']}, {opt.threads} threads, commit {result['commit']}; all figures in {opt.json}")


# --- engines: each is a function from a model file to {"rows": {n: {"median_ms"}}, "prompt": {...}, "decode": {...}}


def foretoken_engine(opt):
    binary = foretoken_binary(opt)
    common = ["--threads", opt.threads, "--json"]

    def engine(model: Path) -> dict:
        numbers = ["--rows", opt.rows, "--context", opt.context, "--prompt-tokens", opt.prompt_tokens, "--repeats", REPEATS]
        found = run_json([binary, "bench", "forward", "--model", model, *numbers, "--peak-gmac", opt.peak_gmac, *common])
        plain = ["--prompt", "The", "--max-tokens", opt.decode_tokens + 1, "--ignore-eos", "--temperature", 0, "--draft", "none"]
        text = run_json([binary, "generate", "--model", model, *plain, *common])
        first = run_json([binary, "generate", "--model", model, "--prompt", "The", "--max-tokens", 1, *common])
        return found | {"decode": {"tokens_per_second": text["tokens_per_second"]}, "first_token": first["process"]}

    return engine


def foretoken_binary(opt) -> Path:
    if opt.foretoken:
        return opt.foretoken
    subprocess.run(["cargo", "build", "--release", "--package", "foretoken-cli"], cwd=ROOT, check=True)
    return ROOT / "target/release/foretoken"


def llama_engine(opt):
    def engine(model: Path) -> dict:
        numbers = ["--rows", opt.rows, "--context", opt.context, "--prompt-tokens", opt.prompt_tokens]
        numbers += ["--decode-tokens", opt.decode_tokens, "--threads", opt.threads]
        return run_json([opt.llama_python, __file__, "--worker", *numbers, model])

    return engine


def candle_engine(opt):
    folder = ROOT / "benches/candle"
    subprocess.run(["cargo", "build", "--release", "--locked"], cwd=folder, check=True)
    binary = folder / "target/release/candle-peer"

    def engine(model: Path) -> dict:
        numbers = [opt.rows, opt.context, opt.prompt_tokens, opt.decode_tokens, REPEATS]
        found = run_json([binary, model, *numbers], RAYON_NUM_THREADS=str(opt.threads))
        found["prompt"]["tokens_per_second"] = opt.prompt_tokens / found["prompt"]["median_ms"] * 1e3
        return found

    return engine


def llama_worker(opt) -> None:
    """Runs in the Python that has llama-cpp-python."""
    import llama_cpp as lc

    silent = lc.llama_log_callback(lambda *_: None)  # must outlive the library's use of it
    lc.llama_log_set(silent, None)
    lc.llama_backend_init()
    model = lc.llama_model_load_from_file(str(opt.models[0]).encode(), lc.llama_model_default_params())
    rows = [int(n) for n in opt.rows.split(",")]
    params = lc.llama_context_default_params()
    params.n_ctx = max(opt.context + max(rows), opt.prompt_tokens, opt.decode_tokens) + 64
    params.n_batch = params.n_ubatch = max(512, opt.prompt_tokens)
    params.n_threads = params.n_threads_batch = opt.threads
    context = lc.llama_init_from_model(model, params)
    memory = lc.llama_get_memory(context)
    vocabulary = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))

    def decode_ms(first: int, count: int, logits) -> float:
        """Milliseconds of one pass over `count` tokens at `first`; `logits(i)` says whether row i's are computed."""
        started = time.perf_counter()
        batch = lc.llama_batch_init(count, 0, 1)
        batch.n_tokens = count
        for i in range(count):
            batch.token[i] = 100 + (first + i) * 37 % (vocabulary - 1000)
            batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = first + i, 1, 0, logits(i)
        if lc.llama_decode(context, batch):
            raise SystemExit("peers: llama.cpp's pass failed")
        lc.llama_synchronize(context)
        lc.llama_batch_free(batch)
        return (time.perf_counter() - started) * 1e3

    decode_ms(0, opt.context, lambda _: False)
    by_rows = {}
    for n in rows:
        times = []
        for _ in range(REPEATS + 1):
            times.append(decode_ms(opt.context, n, lambda _: True))
            lc.llama_memory_seq_rm(memory, 0, opt.context, -1)
        by_rows[str(n)] = {"median_ms": statistics.median(times[1:]), "min_ms": min(times[1:])}
    prompts = []
    for _ in range(REPEATS):
        lc.llama_memory_clear(memory, True)
        prompts.append(decode_ms(0, opt.prompt_tokens, lambda i: i == opt.prompt_tokens - 1))
    lc.llama_memory_clear(memory, True)
    decode_ms(0, 1, lambda _: True)
    steps = [decode_ms(position, 1, lambda _: True) for position in range(1, opt.decode_tokens + 1)]
    prompt = {"tokens": opt.prompt_tokens, "tokens_per_second": opt.prompt_tokens / statistics.median(prompts) * 1e3}
    decode = {"tokens_per_second": opt.decode_tokens / sum(steps) * 1e3}
    print(json.dumps({"rows": by_rows, "prompt": prompt, "decode": decode}))


def decode_by_drafts(opt, model: Path) -> list:
    """Prompt lookup under the budget against plain decoding; the command itself fails when a text differs."""
    if not opt.prompts.exists():
        return []
    command = [foretoken_binary(opt), "bench", "decode", "--model", model, "--prompts", opt.prompts]
    command += ["--draft", "none,prompt_lookup", "--max-tokens", opt.decode_tokens, "--threads", opt.threads, "--json"]
    return run_json(command)["results"]


def run_json(command, **environment) -> dict:
    """Runs a command that prints one JSON object; adds the process's seconds and greatest resident size as `process`."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
            env=os.environ | {"OMP_WAIT_POLICY": "active"} | environment,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            words = " ".join(map(str, command))
            raise SystemExit(f"peers: {words} failed ({process.returncode}):\n{errors.read().decode()[-2000:]}")
        return json.loads(output.read()) | {"process": {"seconds": seconds, "peak_mb": usage.ru_maxrss / 1e3}}


# --- the table


def table(opt, rounds: list[dict], engines, decode: list) -> str:
    def median(name: str, read) -> float:
        return statistics.median(read(r[name]) for r in rounds if name in r)

    def ratio(peer: str, read, larger_is_better: bool) -> float:
        pairs = ((read(r["foretoken"]), read(r[peer])) for r in rounds if peer in r)
        return statistics.median(ours / theirs if larger_is_better else theirs / ours for ours, theirs in pairs)

    peers = [name for name in engines if name != "foretoken"]
    lines = ["| | foretoken | " + " | ".join(f"{p} | faster by" for p in peers) + " | of the floor |"]
    lines.append("|---|" + "---|" * (2 * len(peers) + 2))

    def line(label: str, unit: str, read, larger_is_better: bool, floor: str) -> None:
        cells = [f"{median('foretoken', read):.1f} {unit}"]
        for peer in peers:
            cells += [f"{median(peer, read):.1f} {unit}", f"{ratio(peer, read, larger_is_better):.2f}x"]
        lines.append(f"| {label} | " + " | ".join(cells) + f" | {floor} |")

    for n in opt.rows.split(","):
        read = lambda engine, n=n: engine["rows"][n]["median_ms"]
        line(f"{n} row{'s' * (n != '1')}", "ms", read, False, f"{median('foretoken', lambda e, n=n: e['rows'][n]['floor_ratio']):.2f}x")
    line(f"prompt of {opt.prompt_tokens}", "tokens/s", lambda e: e["prompt"]["tokens_per_second"], True, "")
    line("plain decoding", "tokens/s", lambda e: e["decode"]["tokens_per_second"], True, "")
    if decode:
        lines += ["", "| category | drafts | tokens/s | tokens per pass | speed-up | same text |", "|---|---|---|---|---|---|"]
    for entry in decode:
        numbers = [f"{entry['tokens_per_second']:.1f}", f"{entry['tokens_per_pass']:.2f}", f"{entry['speedup']:.2f}x"]
        lines.append(f"| {entry['category']} | {entry['method']} | " + " | ".join(numbers) + f" | {'yes' if entry['identical'] else 'NO'} |")
    seconds = median("foretoken", lambda e: e["first_token"]["seconds"])
    peak_mb = median("foretoken", lambda e: e["first_token"]["peak_mb"])
    bandwidth = median("foretoken", lambda e: e["bandwidth_gb_per_s"])
    lines.append(f"\nforetoken from its start to its end with one token: {seconds:.2f} s, {peak_mb:.0f} MB resident at most.")
    lines.append(f"Memory bandwidth in this run {bandwidth:.1f} GB/s; peak for the floor {opt.peak_gmac:.0f} GMAC/s.")
    return "\n".join(lines)


def machine() -> dict:
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    flags = next((line.split(":")[1].split() for line in open("/proc/cpuinfo") if line.startswith("flags")), [])
    return {"cpu": cpu, "cores": os.cpu_count(), "simd": [f for f in flags if f.startswith("avx")], "kernel": platform.release()}


def commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
