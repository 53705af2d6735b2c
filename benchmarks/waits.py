"""Seconds of the commands that a user waits for: least, median and most of ten calls, each a process of its own.

    python benchmarks/waits.py --data ../shared/data

`eval` measures the seven tasks with MiniLM, whose vectors are in the cache, and with words; `compare` and `score` read
these runs. `call` and `second call` are `stsbench.evaluate` in one Python, imports included in the first. --stsbench
names the command of another checkout: both are then called in turn, for a before and an after.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from markdown_table import line

ROOT = Path(__file__).resolve().parents[1]
CALL = """import time
start = time.perf_counter()
import stsbench
stsbench.evaluate("minilm")
first = time.perf_counter()
stsbench.evaluate("minilm")
print("seconds", first - start, time.perf_counter() - first)
"""


def main() -> None:
    """Make two runs, then call every command, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--stsbench", type=Path, action="append", help="default: that of this Python; may be repeated")
    parser.add_argument("--board", action="store_true", help="also `leaderboard build --check` in the checkout of each")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        sides = [Side(path.absolute(), Path(temporary) / str(number), args.data.resolve())
                 for number, path in enumerate(args.stsbench or [Path(sys.executable).with_name("stsbench")])]
        line("command", *(f"{side.name}: {what}" for side in sides for what in ("least", "median", "most")))
        line("---", *["---:"] * 3 * len(sides))
        names = [*COMMANDS, "call", "second call", *(["leaderboard build --check"] if args.board else [])]
        for name in names:
            seconds: list[list[float]] = [[] for _ in sides]
            for _ in range(args.repeats):
                for side, of_side in zip(sides, seconds, strict=True):
                    of_side.append(side.seconds(name))
            line(name, *(f"{value:.2f}" for of_side in seconds for value in
                         (min(of_side), statistics.median(of_side), max(of_side))))


COMMANDS = {
    "--help": ("--help",), "eval --help": ("eval", "--help"), "list encoders": ("list", "encoders"), "doctor": ("doctor",),
    "eval, in the cache": ("eval", "--model", "minilm", "--output"),
    "eval, words": ("eval", "--model", "lexical:token-set", "--output"),
    "score": ("score", "first"), "compare": ("compare", "first", "second"),
}


class Side:
    """The command of one checkout, with a folder and a cache of its own."""

    def __init__(self, program: Path, folder: Path, data: Path) -> None:
        self.program, self.folder, self.count = program, folder, 0
        self.name = program.parents[2].name
        self.environment = os.environ | {
            "STSBENCH_DATA": str(data), "STSBENCH_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1",
        }
        folder.mkdir()
        self.run("eval", "--model", "minilm", "--output", "first")
        self.run("eval", "--model", "lexical:token-set", "--output", "second")
        self.seconds("second call")

    def run(self, *words: str, program: Path | None = None, folder: Path | None = None) -> str:
        """Return what the command printed; the process ends where it fails."""
        command = [str(program or self.program), *words]
        done = subprocess.run(command, cwd=folder or self.folder, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
        return done.stdout

    def seconds(self, name: str) -> float:
        """Return those of one call."""
        if name.endswith("call"):
            printed = self.run("-c", CALL, program=self.program.with_name("python")).splitlines()[-1].split()
            return float(printed[2 if name.startswith("second") else 1])
        words, folder = [*COMMANDS.get(name, name.split())], self.folder
        if words[-1] == "--output":
            self.count += 1
            words.append(f"run-{self.count}")
        if words[0] == "leaderboard":
            folder = self.program.parents[2]
        start = time.perf_counter()
        self.run(*words, folder=folder)
        return time.perf_counter() - start


if __name__ == "__main__":
    main()
