"""lm-eval against `foretoken serve`: the same scores and the same answers, whoever drafts.

    python benches/evaluate.py --binary target/release/foretoken --model ~/.cache/foretoken/models/M.gguf

Makes two tasks of its own: `choices` (multiple choice, scored by the log-probabilities of echoed prompts) and `answers`
(texts written up to a line break). Starts a server for every way to draft, lets lm-eval ask it as `local-completions`, and
compares scores, log-probabilities and texts item by item: a difference ends the run with an error. Tokens are made by the
server, which lm-eval finds out by itself. Needs `pip install "lm-eval[api]"`; nothing is downloaded at run time."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--binary", default="target/release/foretoken")
parser.add_argument("--model", required=True)
parser.add_argument("--drafts", nargs="*", default=["none", "auto"])
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--clients", type=int, default=4)
parser.add_argument("--items", type=int, default=100, help="of each task")
parser.add_argument("--port", type=int, default=18112)
args = parser.parse_args()
os.environ.update(HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", OPENAI_API_KEY="none", LOGLEVEL="ERROR")

import lm_eval  # noqa: E402  after the environment, which it reads when it is imported
from lm_eval.tasks import TaskManager  # noqa: E402

CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "Japan": "Tokyo", "Russia": "Moscow",
    "Egypt": "Cairo", "Greece": "Athens", "Portugal": "Lisbon", "Austria": "Vienna", "Ireland": "Dublin", "Norway": "Oslo",
    "Cuba": "Havana", "Peru": "Lima", "China": "Beijing", "Poland": "Warsaw", "Hungary": "Budapest", "Kenya": "Nairobi",
    "Canada": "Ottawa", "Sweden": "Stockholm",
}
WORDS = ["river", "stone", "cloud", "apple", "paper", "garden", "window", "silver", "table", "forest"]


def choices(n):
    """Capitals, sums and successors in turn, with four choices each."""
    countries, cities = list(CAPITALS), list(CAPITALS.values())
    for index in range(n):
        turn = index // 3
        if index % 3 == 0:
            country = countries[turn % len(countries)]
            wrong = [city for city in cities if city != CAPITALS[country]]
            asked = ["The capital of {} is", "Question: What is the capital of {}?\nAnswer:"][turn // len(countries) % 2]
            others = [wrong[(turn * 7 + step) % len(wrong)] for step in (0, 5, 11)]
            yield asked.format(country), CAPITALS[country], others, turn % 4
        elif index % 3 == 1:
            a, b = 2 + turn % 9, 3 + turn * 5 % 8
            yield f"Question: What is {a} plus {b}?\nAnswer:", str(a + b), [str(a + b + d) for d in (1, 3, 10)], (turn + 1) % 4
        else:
            start, step = 1 + turn % 12, 1 + turn % 3
            row = [start + step * place for place in range(5)]
            yield ", ".join(map(str, row[:4])) + ",", str(row[4]), [str(row[4] + d) for d in (step, -step, 7)], (turn + 2) % 4


def answers(n):
    """Lines to repeat, lists to go on with, and sums, after an example of each."""
    for index in range(n):
        words = [WORDS[(index * step + 1) % len(WORDS)] for step in (1, 3, 7, 9)]
        if index % 3 == 0:
            line = " ".join(words)
            yield f"Input: red blue\nOutput: red blue\nInput: {line}\nOutput:", line
        elif index % 3 == 1:
            start = 2 + index % 40
            yield f"Count: {', '.join(str(start + place) for place in range(6))},", str(start + 6)
        else:
            yield f"2 + 2 = 4\n3 + 5 = 8\n{index % 9 + 1} + {index % 7 + 2} =", str(index % 9 + index % 7 + 3)


def write_tasks(folder):
    with open(folder / "choices.jsonl", "w") as file:
        for text, right, wrong, place in choices(args.items):
            listed = wrong[:place] + [right] + wrong[place:]
            file.write(json.dumps({"question": text, "choices": listed, "label": place}) + "\n")
    with open(folder / "answers.jsonl", "w") as file:
        for text, right in answers(args.items):
            file.write(json.dumps({"question": text, "answer": right}) + "\n")
    shared = "task: {0}\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {1}/{0}.jsonl\ntest_split: test\ndoc_to_text: \"{{{{question}}}}\"\n"
    (folder / "choices.yaml").write_text(
        shared.format("choices", folder)
        + "output_type: multiple_choice\ndoc_to_target: label\ndoc_to_choice: \"{{choices}}\"\nmetric_list:\n  - metric: acc\n  - metric: acc_norm\n")
    (folder / "answers.yaml").write_text(
        shared.format("answers", folder)
        + "output_type: generate_until\ndoc_to_target: \"{{answer}}\"\ngeneration_kwargs:\n  until: [\"\\n\"]\n  max_gen_toks: 24\n"
        + "filter_list:\n  - name: stripped\n    filter:\n      - function: regex\n        regex_pattern: \"^\\\\s*(.*?)\\\\s*$\"\n      - function: take_first\n"
        + "metric_list:\n  - metric: exact_match\n")


def get(path):
    with urllib.request.urlopen(f"http://127.0.0.1:{args.port}{path}") as response:
        return json.loads(response.read())


def wait_until_ready(server):
    for _ in range(600):
        try:
            return get("/ready")
        except OSError:
            assert server.poll() is None, "the server ended"
            time.sleep(0.2)
    raise TimeoutError


def evaluate(draft, folder):
    """Scores, what was said of every item, the server's totals, and seconds."""
    command = [args.binary, "serve", "-m", args.model, "--draft", draft, "--port", str(args.port), "--threads", str(args.threads)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_ready(server)
        model = get("/v1/models")["data"][0]["id"]
        url = f"http://127.0.0.1:{args.port}/v1/completions"
        begun = time.perf_counter()
        found = lm_eval.simple_evaluate(
            model="local-completions",
            model_args=dict(model=model, base_url=url, num_concurrent=args.clients, max_retries=1, max_length=2048),
            tasks=["choices", "answers"], task_manager=TaskManager(include_path=str(folder), include_defaults=False),
            bootstrap_iters=0, verbosity="ERROR",
        )
        seconds = time.perf_counter() - begun
        said = {task: [(sample["doc_id"], sample["resps"]) for sample in samples] for task, samples in found["samples"].items()}
        return found["results"], said, get("/stats"), seconds
    finally:
        server.terminate()
        server.wait()


with tempfile.TemporaryDirectory() as folder:
    write_tasks(Path(folder))
    first = None
    for draft in args.drafts:
        scores, said, stats, seconds = evaluate(draft, Path(folder))
        numbers = {task: {name: value for name, value in row.items() if isinstance(value, float)} for task, row in scores.items()}
        line = "; ".join(f"{task}: " + ", ".join(f"{name} {value:.3f}" for name, value in row.items()) for task, row in numbers.items())
        print(f"draft {draft:5} {line}; {sum(map(len, said.values()))} items, {seconds:.0f} s, "
              f"{stats['output_tokens']} tokens in {stats['passes']} passes", flush=True)
        assert all(len(items) >= args.items for items in said.values()), "items are missing"
        if first is None:
            first = numbers, said
        for task, items in said.items():
            different = [index for (index, one), (_, other) in zip(first[1][task], items) if one != other]
            if different or first[0][task] != numbers[task]:
                sys.exit(f"{task}: drafts have changed items {different[:10]}, scores {first[0][task]} and {numbers[task]}")
print("equal: scores, log-probabilities and texts")
