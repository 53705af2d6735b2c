"""How long a training on a text of many lines takes to its first step, from a cold start, and its memory.

Writes invented sentences (12 words on average) to FOLDER/lines.txt, starts `stsbench train simcse` on them with an empty
cache, and waits for the first line of its log. A second start finds the rows in the cache.

    python benchmarks/first_step.py --lines 1000000 10000000 --model MODEL --folder FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

AT_ONCE = 100_000


def write_lines(path: Path, count: int) -> None:
    """Sentences of 6 to 18 words, their words as frequent as Zipf's law has it."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(["".join(rng.choice(letters, rng.integers(2, 10))) for _ in range(20_000)])
    with path.open("w", encoding="utf-8") as stream:
        for start in range(0, count, AT_ONCE):
            lengths = rng.integers(6, 19, min(AT_ONCE, count - start))
            drawn = words[np.minimum(rng.zipf(1.3, lengths.sum()) - 1, len(words) - 1)]
            stream.writelines(" ".join(part) + "\n" for part in np.split(drawn, np.cumsum(lengths))[: len(lengths)])


def first_step(text: Path, model: str, folder: Path, held_out: int) -> dict[str, float]:
    """Seconds to the log's first line of a step; processor seconds and peak resident MiB, also without files' pages."""
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    settings = {
        "data.held_out": held_out, "selection.by": "none", "training.max_steps": 1, "training.batch_size": 64,
        "precision": "float32",
    }
    command = [
        sys.executable, "-m", "stsbench", "train", "simcse", "--backbone", model, "--data", str(text), "--output", str(run),
        *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")),
    ]
    began = time.perf_counter()
    log = run / "log.jsonl"
    anonymous = 0.0
    with (folder / "said.txt").open("w") as stdout:
        process = subprocess.Popen(
            command, stdout=stdout, stderr=stdout, env={**os.environ, "STSBENCH_CACHE": str(folder / "cache")}
        )
        while not (log.exists() and '"train"' in log.read_text()):
            if os.wait4(process.pid, os.WNOHANG)[0]:
                raise SystemExit((folder / "said.txt").read_text())
            anonymous = max(anonymous, resident(process.pid))
            time.sleep(0.05)
        seconds = time.perf_counter() - began
        _, _, used = os.wait4(process.pid, 0)
    return {
        "seconds": seconds,
        "processor": used.ru_utime + used.ru_stime,
        "peak MiB": used.ru_maxrss / 1024,
        "without files": anonymous,
    }


def resident(process: int) -> float:
    """MiB of a process that are not pages of files, which the system takes back when others need them."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, nargs="+", default=[100_000])
    parser.add_argument("--model", required=True)
    parser.add_argument("--held-out", type=int, default=0)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for count in arguments.lines:
        text = arguments.folder / "lines.txt"
        write_lines(text, count)
        shutil.rmtree(arguments.folder / "cache", ignore_errors=True)
        for start in ("cold", "again"):
            figures = first_step(text, arguments.model, arguments.folder, arguments.held_out)
            print(json.dumps({"lines": count, "start": start, **{key: round(value, 1) for key, value in figures.items()}}))


if __name__ == "__main__":
    main()
