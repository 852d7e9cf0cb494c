"""Asks a running server for minutes, mixed and with clients that leave, and watches its memory.

    foretoken serve -m smollm2 --cache-tokens 2048 & python benches/soak.py http://127.0.0.1:8080 --pid $! --minutes 15

The cache is so small that it is full within a minute, and requests wait or are put off: what grows after that is no cache.
Fails when an answer is no good one, when the same request gives two texts, when choices are left over at the end, or when
resident memory grows by more than 1 % in the last five minutes, or in the last half of a shorter time."""

import argparse
import http.client
import json
import random
import threading
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("--pid", type=int, required=True)
parser.add_argument("--minutes", type=float, default=15)
parser.add_argument("--clients", type=int, default=6)
args = parser.parse_args()
HOST = args.url.removeprefix("http://").rstrip("/")
TEXTS = ["Once upon a time", "def add(a, b):", "One, two, three,", "The capital of France is", "{\"name\": \"Ada\","]
until = time.monotonic() + 60 * args.minutes
known, wrong, counts, lock = {}, [], {"answered": 0, "left": 0, "busy": 0}, threading.Lock()


def ask(random_):
    prompt = random_.choice(TEXTS) + " and so on" * random_.randrange(4)
    if random_.random() < 0.2:  # never comes again: kept beginnings have to go
        prompt += f" {random_.randrange(10**9)}" * 12
    body = {
        "prompt": prompt, "max_tokens": random_.choice([4, 16, 60]),
        "seed": random_.randrange(4), "temperature": random_.choice([0, 0.8]), "n": random_.choice([1, 1, 2]),
    }
    request = json.dumps(body)
    draft = random_.choice(["auto", "none", "suffix+recycle"])
    leaves = random_.random() < 0.2
    connection = http.client.HTTPConnection(HOST, timeout=300)
    connection.request("POST", "/v1/completions", json.dumps({**body, "draft": draft, "stream": leaves}), {"Content-Type": "application/json"})
    response = connection.getresponse()
    kind = "answered"
    if response.status == 429:
        kind = "busy"
        time.sleep(1)
    elif response.status != 200:
        wrong.append((response.status, response.read()))
    elif leaves:
        response.read(200)
        kind = "left"
    else:
        texts = [choice["text"] for choice in json.loads(response.read())["choices"]]
        with lock:
            if known.setdefault(request, texts) != texts:
                wrong.append((request, known[request], texts))
    connection.close()
    with lock:
        counts[kind] += 1


def client(index):
    random_ = random.Random(index)
    while time.monotonic() < until and not wrong:
        ask(random_)


def resident():
    lines = Path(f"/proc/{args.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


threads = [threading.Thread(target=client, args=(index,)) for index in range(args.clients)]
[thread.start() for thread in threads]
sizes = []
while any(thread.is_alive() for thread in threads):
    time.sleep(5)
    sizes.append(resident())
    if len(sizes) % 6 == 0:
        print(f"{len(sizes) * 5:5} s  {sizes[-1] / 1024:.1f} MB  {counts}", flush=True)
assert not wrong, wrong[0]
before, end = sizes[-1 - min(60, len(sizes) // 2)], sizes[-1]
connection = http.client.HTTPConnection(HOST, timeout=60)
for _ in range(50):
    connection.request("GET", "/stats")
    stats = json.loads(connection.getresponse().read())
    if stats["requests_running"] + stats["requests_waiting"] == 0:
        break
    time.sleep(0.1)
else:
    raise AssertionError(f"choices are left over: {stats}")
print(f"{counts}; memory {before / 1024:.1f} MB before the last part, {end / 1024:.1f} MB at the end; {len(known)} different requests")
assert end <= 1.01 * before, "memory grows"
