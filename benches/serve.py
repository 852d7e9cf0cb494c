"""Our server and llama-cpp-python's, on the same model and prompts: total tokens/s, time to the first token, gaps.

    python benches/serve.py --binary target/release/foretoken --model ~/.cache/foretoken/models/M.gguf --prompts P.jsonl

Starts a server for every line of the table, so that nothing is cached or learned from the line before, warms it up, and
asks with 1 and with 8 clients at a time. Texts of ours are compared between drafts on and off and between client counts:
a difference ends the run. Gaps are between chunks that a client reads; `around` is the share of our engine's time that is
neither drafting nor verifying, `http` the processor time of all threads but the engine's, as a share of the time that passes
took. At last, the time to the first token of a prompt that no other came before, and of three that share its beginning.
Needs `pip install llama-cpp-python[server]` for the peer; --peer none leaves it out."""

import argparse
import hashlib
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--binary", default="target/release/foretoken")
parser.add_argument("--model", required=True)
parser.add_argument("--prompts", required=True, help="JSON lines with a prompt each")
parser.add_argument("--clients", type=int, nargs="*", default=[1, 8])
parser.add_argument("--requests", type=int, default=8, help="for each client count")
parser.add_argument("--tokens", type=int, default=64)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--drafts", nargs="*", default=["none", "auto"])
parser.add_argument("--peer", default="llama-cpp-python", choices=["llama-cpp-python", "none"])
parser.add_argument("--port", type=int, default=18111)
args = parser.parse_args()


def prompt_of(line):
    value = json.loads(line)
    text = value.get("prompt") or value.get("text") or value["messages"][0]["content"]
    return text if isinstance(text, str) else text[0]


PROMPTS = [prompt_of(line) for line in Path(args.prompts).read_text().splitlines() if line.strip()][: args.requests]


def ask(prompt, more):
    """The text, the times at which chunks came, and the number of tokens."""
    body = {"prompt": prompt, "max_tokens": args.tokens, "temperature": 0, "stream": True, **more}
    connection = http.client.HTTPConnection("127.0.0.1", args.port, timeout=600)
    begun = time.perf_counter()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    text, times, tokens = "", [], 0
    for line in response:
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        chunk = json.loads(line[6:])
        piece = "".join(choice.get("text") or "" for choice in chunk.get("choices", []))
        if piece:
            times.append(time.perf_counter() - begun)
            text += piece
            tokens += 1
        if chunk.get("usage"):
            tokens = chunk["usage"]["completion_tokens"]
    connection.close()
    return text, times, tokens


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def measure(n_clients, more):
    left, results, lock = list(enumerate(PROMPTS)), {}, threading.Lock()

    def client():
        while True:
            with lock:
                if not left:
                    return
                index, prompt = left.pop(0)
            results[index] = ask(prompt, more)

    begun = time.perf_counter()
    threads = [threading.Thread(target=client) for _ in range(n_clients)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    seconds = time.perf_counter() - begun
    tokens = sum(n for _, _, n in results.values())
    first = [times[0] for _, times, _ in results.values() if times]
    gaps = [b - a for _, times, _ in results.values() for a, b in zip(times, times[1:])]
    row = {
        "tokens_per_second": tokens / seconds, "first_p50_ms": 1e3 * percentile(first, 0.5),
        "first_p95_ms": 1e3 * percentile(first, 0.95), "gap_p50_ms": 1e3 * percentile(gaps, 0.5),
        "gap_p95_ms": 1e3 * percentile(gaps, 0.95),
    }
    return row, [results[index][0] for index in range(len(PROMPTS))]


def shared_beginning():
    """Milliseconds to the first token: of a new prompt, and the median of three that differ from it in their last line. For models
    with room for a thousand tokens."""
    beginning = "".join(f"Item {i} of the list has the number {i * 37 % 101} and weighs {i * i % 97} grams.\n" for i in range(BEGINNING_LINES))
    times = [1e3 * ask(beginning + f"Item {name}", {"max_tokens": 8})[1][0] for name in ("one", "two", "three", "four")]
    cold, shared = times[0], percentile(times[1:], 0.5)
    return {"first_ms": cold, "sharing_ms": shared, "times_sooner": cold / shared}


class Server:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)

    def __enter__(self):
        for _ in range(600):
            try:
                connection = http.client.HTTPConnection("127.0.0.1", args.port, timeout=5)
                connection.request("GET", "/v1/models")
                connection.getresponse().read()
                return self
            except OSError:
                assert self.process.poll() is None, "the server ended"
                time.sleep(0.2)
        raise TimeoutError

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def show(name, n_clients, row):
    cells = "  ".join(f"{key} {value:8.1f}" for key, value in row.items())
    print(f"{name:28} {n_clients} clients  {cells}", flush=True)


ours = [args.binary, "serve", "-m", args.model, "--port", str(args.port), "--threads", str(args.threads)]
peer = [sys.executable, "-m", "llama_cpp.server", "--model", args.model, "--port", str(args.port), "--n_threads",
        str(args.threads), "--n_ctx", "8192", "--interrupt_requests", "false"]
BEGINNING_LINES = 52  # some 1,000 tokens
WARM_UP = "The sea was calm and the sky was"


def engine_seconds():
    """In passes: around drafting and verifying, and in all."""
    connection = http.client.HTTPConnection("127.0.0.1", args.port, timeout=60)
    connection.request("GET", "/stats")
    stats = json.loads(connection.getresponse().read())
    return stats["rest_seconds"], stats["draft_seconds"] + stats["verify_seconds"] + stats["rest_seconds"]


def http_seconds(pid):
    """Processor time of the threads that neither schedule nor compute, where Linux tells it."""
    seconds = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        if not (task / "comm").read_text().startswith(("engine", "foretoken-")):
            seconds += int((task / "schedstat").read_text().split()[0]) / 1e9
    return seconds


texts = None
for draft in args.drafts:
    for n_clients in args.clients:
        with Server(ours) as server:
            ask(WARM_UP, {"draft": draft, "max_tokens": 8})
            before = (*engine_seconds(), http_seconds(server.process.pid))
            row, now = measure(n_clients, {"draft": draft, "stream_options": {"include_usage": True}})
            around, passes, of_http = map(float.__sub__, (*engine_seconds(), http_seconds(server.process.pid)), before)
            row |= {"around_%": 100 * around / passes, "http_%": 100 * of_http / passes}
            assert texts in (None, now), "a text has changed"
            texts = now
            show(f"foretoken, draft {draft}", n_clients, row)
if texts:
    print("texts:", hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16])
if args.peer != "none":
    for n_clients in args.clients:
        with Server(peer):
            ask(WARM_UP, {"max_tokens": 8})
            row, _ = measure(n_clients, {})
            show("llama-cpp-python", n_clients, row)

for name, command in [("foretoken", ours), *([("llama-cpp-python", peer)] if args.peer != "none" else [])]:
    with Server(command):
        ask(WARM_UP, {"max_tokens": 8})
        show(f"{name}, shared beginning", 1, shared_beginning())
