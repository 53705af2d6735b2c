"""Boards of invented entries, as large as wanted: how long a build takes, cold and after three additions, and its memory.

    python benchmarks/board.py --entries 17 100 300 1000 --folder /tmp/boards

An invented entry is a committed one's records with noise in what its encoder gave: similarities, cosines and predictions.
Its scores are computed anew, so that each record is admitted as a real one is. The figures are CPU seconds of all processes
and the largest process's memory; `--what board` stops where ranks begin, `--what build` writes the page and the tables, too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stsbench.comparison.comparability import Measured, measured
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.records import Record, record_name
from stsbench.evaluation.run_file import RUN, load_records, read_observations, shared_bytes, write_run
from stsbench.files import create_whole
from stsbench.leaderboard.records.add import BoardRecord, board_forms
from stsbench.leaderboard.records.admission import draw_many
from stsbench.leaderboard.records.entries import run_name

ROOT = Path(__file__).resolve().parents[1]
BATCH = 32  # entries whose scores are computed together
NEW = 3
TIMED = """
import resource, sys, time
from pathlib import Path
if __name__ == "__main__":
    board, what = Path(sys.argv[1]), sys.argv[2]
    if what == "board":
        from stsbench.leaderboard.ranks.scored import scored_entries
        scored_entries(board)
    else:
        from stsbench.leaderboard.board_files import build
        build(board, board / "out")
    mine, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(sum(each.ru_utime + each.ru_stime for each in (mine, children)), max(mine.ru_maxrss, children.ru_maxrss) / 1e3)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, nargs="+", default=[17, 100])
    parser.add_argument("--template", type=Path, help="a run folder of a board; default: the committed minilm-mean")
    parser.add_argument("--protocols", nargs="+", default=["sts", "geometry"])
    parser.add_argument("--seeds", type=int, default=1, help="runs of an entry")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--what", choices=("board", "build"), default="board")
    args = parser.parse_args()
    template = args.template or next((ROOT / "leaderboard" / "measured" / "minilm-mean").glob("*/"))
    items = [(record, read_observations(template, record)) for _, record in load_records(template)
             if record.protocol.name in args.protocols]
    board = args.folder / "board"
    made = 0
    for count in sorted(args.entries):
        for at in range(made, count + NEW, BATCH):
            add_entries(board, items, range(at, min(at + BATCH, count + NEW)), args.seeds)
        made = count + NEW
        aside = [board / "measured" / f"entry-{number:04}" for number in range(count, count + NEW)]
        for path in aside:
            path.rename(args.folder / path.name)
        environment = {**os.environ, "STSBENCH_CACHE": str(args.folder / "cache")}
        shutil.rmtree(args.folder / "cache", ignore_errors=True)
        figures = [timed(board, args.what, environment)]
        for path in aside:
            (args.folder / path.name).rename(path)
        figures += [timed(board, args.what, environment) for _ in range(2)]
        size = sum(path.stat().st_size for path in (args.folder / "cache").rglob("*") if path.is_file())
        print(json.dumps({"entries": count, "records": len(items) * count * args.seeds, "cache MB": round(size / 1e6), **{
            name: dict(zip(("CPU s", "seconds", "MB"), figure, strict=True))
            for name, figure in zip(("cold", f"{NEW} new", "nothing new"), figures, strict=True)}}), flush=True)


def timed(board: Path, what: str, environment: dict[str, str]) -> tuple[float, float, int]:
    """CPU seconds, seconds and megabytes of one build in a process of its own."""
    script = board.parent / "timed.py"
    script.write_text(TIMED)
    began = time.monotonic()
    done = subprocess.run([sys.executable, str(script), str(board), what], env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    cpu, memory = done.stdout.split()
    return round(float(cpu), 1), round(time.monotonic() - began, 1), round(float(memory))


def add_entries(board: Path, items: list[tuple[Record, Observations]], numbers: range, seeds: int) -> None:
    """Entries of these numbers, which are not there yet."""
    invented = [item for number in numbers if not (board / "measured" / f"entry-{number:04}").exists()
                for seed in range(seeds) for item in invented_records(items, number, seed)]
    draw_many(item for item in invented)
    for one in invented:
        one.record.scores = one.protocol.score(one.observed(), one.set_id, one.task)
    runs: dict[Path, list[BoardRecord]] = {}
    for made in board_forms([(item.path, item.record, item.observed()) for item in invented]):
        runs.setdefault(board / "measured" / made.path.parent.name / run_name(made.record), []).append(made)
    for folder, records in runs.items():
        for made in records:
            if shared := made.record.observations.shared:
                create_whole(board / "observations" / Path(shared.file).name, shared_bytes(made.shared))
        write_run(folder / RUN, [(made.record, made.kept) for made in records])
        described = {"method": folder.parent.name, "backbone": "invented", "setting": "unsup"}
        (folder.parent / "entry.yaml").write_text(json.dumps(described))


def invented_records(items: list[tuple[Record, Observations]], number: int, seed: int) -> Iterator[Measured]:
    """One encoder's records: the template's with noise, as much of it for all seeds, and another digest of weights."""
    noise = 0.02 + 0.3 * np.random.default_rng(number).random()
    rng = np.random.default_rng([number, seed])
    weights = hashlib.sha256(f"entry {number}, seed {seed}".encode()).hexdigest()
    for record, observations in items:
        arrays = dict(observations.arrays)
        for key in {"similarity", "cosine"} & arrays.keys():
            arrays[key] = np.clip(arrays[key] + noise * rng.normal(size=arrays[key].shape), -1, 1)  # cosines, all of them
        if "predicted" in arrays and arrays["predicted"].dtype.kind == "i":
            wrong = rng.random(len(arrays["predicted"])) < noise / 3
            arrays["predicted"] = np.where(wrong, rng.permutation(arrays["gold"]), arrays["predicted"])
        elif "predicted" in arrays:
            arrays["predicted"] = arrays["predicted"] + noise * rng.normal(size=len(arrays["predicted"]))
        spec = {**record.encoder.spec, "weights": weights}
        hashed = json.dumps({key: value for key, value in spec.items() if key != "name"}, sort_keys=True)
        encoder = record.encoder.model_copy(
            update={"spec": spec, "fingerprint": hashlib.sha256(hashed.encode()).hexdigest()}
        )
        copy = record.model_copy(update={"encoder": encoder})
        yield measured(Path(f"entry-{number:04}", record_name(copy)), copy, Observations(arrays, observations.names))


if __name__ == "__main__":
    main()
