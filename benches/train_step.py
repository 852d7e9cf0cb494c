#!/usr/bin/env python3
"""Times one training step of the same model in PyTorch and in foretoken-train, in turns, and prints the ratio.

usage: train_step.py [--heads 1] [--vocabulary 256] [--windows 16] [--context 256] [--width 256] [--layers 6]
       --rounds 3                    rounds; in each both engines run --steps steps after one that is not timed
       --bf16                        foretoken's products in bfloat16, and PyTorch's under autocast
       --foretoken-train PATH        default: target/release/foretoken-train, built before (cargo build --release -p foretoken-train)
       --python PATH                 a Python with torch; default ~/.cache/foretoken/torch/bin/torch-python
       --json FILE                   also write the figures there

The model is that of `foretoken-train bench`: a Llama-type trunk with a tied embedding and n residual heads, random tokens, AdamW,
f32. PyTorch computes all heads' logits at once and runs one backward pass (the plain way), foretoken head after head. A step is
forward, backward and optimiser. Each round starts both processes anew, one after the other, so that a slow minute of the machine hits
both; the ratio is the median of the rounds' ratios.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path.home() / ".cache/foretoken"


def torch_steps(a):
    """Runs in the Python that has torch; prints the seconds of each timed step."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.manual_seed(1)
    torch.set_num_threads(a.threads)
    d, head_dim = a.width, 32
    n_heads, feed_forward = d // head_dim, (d * 8 // 3 + 1) // 2 * 2
    angles = torch.arange(a.context)[:, None] * 1e4 ** (-torch.arange(0, head_dim, 2) / head_dim)
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

    def turned(x):
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat([-right, left], -1) * sin

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList(nn.RMSNorm(d, eps=1e-5) for _ in range(2))
            self.qkv, self.output = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
            self.gate_up = nn.Linear(d, 2 * feed_forward, bias=False)
            self.down = nn.Linear(feed_forward, d, bias=False)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, n_heads, head_dim).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
            x = x + self.output(y.transpose(1, 2).reshape(b, t, d))
            gate, up = self.gate_up(self.norms[1](x)).chunk(2, -1)
            return x + self.down(F.silu(gate) * up)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(a.vocabulary, d)
            nn.init.normal_(self.embedding.weight, std=d**-0.5)
            self.layers = nn.ModuleList(Layer() for _ in range(a.layers))
            self.norm = nn.RMSNorm(d, eps=1e-5)
            self.blocks = nn.ModuleList(nn.Linear(d, d) for _ in range(a.heads - 1))

        def forward(self, tokens):
            x = self.embedding(tokens[:, : a.context])
            for layer in self.layers:
                x = layer(x)
            y = self.norm(x)
            loss = 0
            for k in range(1, a.heads + 1):
                features = y if k == 1 else y + F.silu(self.blocks[k - 2](y))
                logits = features @ self.embedding.weight.T
                loss = loss + F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, k : k + a.context].flatten())
            return loss

    model = Model()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    for step in range(a.steps + 1):
        tokens = torch.randint(a.vocabulary, (a.windows, a.context + a.heads))
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=a.bf16):
            loss = model(tokens)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        if step:
            print(time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(usage=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in dict(heads=1, vocabulary=256, windows=16, context=256, width=256, layers=6, steps=4, rounds=3, threads=2).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--foretoken-train", type=Path, default=ROOT / "target/release/foretoken-train")
    parser.add_argument("--python", type=Path, default=CACHE / "torch/bin/torch-python")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--torch-steps", action="store_true", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.torch_steps:
        return torch_steps(a)
    shape = ["heads", "vocabulary", "windows", "context", "width", "layers", "steps"]
    flags = [part for name in shape for part in (f"--{name}", str(getattr(a, name)))] + ["--bf16"] * a.bf16
    ours = [str(a.foretoken_train), "bench", *flags]
    theirs = [str(a.python), __file__, "--torch-steps", "--threads", str(a.threads), *flags]
    tokens = a.windows * a.context
    rounds = []
    for i in range(a.rounds):
        out = subprocess.run(theirs, check=True, capture_output=True, text=True).stdout
        torch = statistics.median(map(float, out.split()))
        out = subprocess.run(ours, check=True, capture_output=True, text=True).stdout
        foretoken = float(re.search(r"step ([\d.]+) s", out)[1])
        rounds.append((torch, foretoken))
        print(f"round {i + 1}: PyTorch {torch:.3f} s ({tokens / torch:.0f} tokens/s), "
              f"foretoken-train {foretoken:.3f} s ({tokens / foretoken:.0f} tokens/s), ratio {torch / foretoken:.2f}", flush=True)
    ratio = statistics.median(t / f for t, f in rounds)
    print(f"foretoken-train runs at {ratio:.2f} times PyTorch's speed")
    if a.json:
        a.json.write_text(json.dumps({"settings": {name: getattr(a, name) for name in shape} | {"bf16": a.bf16}, "rounds": rounds, "ratio": ratio}))


if __name__ == "__main__":
    sys.exit(main())
