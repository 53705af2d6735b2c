"""Small encoders from all-mpnet-base-v2: three layers in an hour on two cores, and a table of 256 numbers.

    python benchmarks/small_encoder.py --data ../shared/data --teacher MODELS/all-mpnet-base-v2 --output small

Each student learns the cosines that the teacher gives to the sentences of a batch (`distil`, kl), then NLI's pairs with
their hard negatives weighed by how hard they are (`simcse` with `contrast.hardness`), from several seeds, whose weights are
averaged (`soup`). Seeds are trained side by side, a core each: two threads of one training wait for each other. The texts
are the training part of --data: Wikipedia's sentences, NLI's, one caption of each photo. Every step is a command of
stsbench, which is printed with its seconds; what is there already is not made again.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

SETTINGS = {"training.adam": "torch", "precision": "float32"}
# Each student: its backbone and its settings in both stages. A table's rows take a greater learning rate than layers.
STUDENTS = {
    "static": (
        {"training.learning_rate": 3e-3, "training.epochs": 3, "training.batch_size": 256, "training.schedule": "constant",
         "training.warmup": 0, "backbone.layers": None, "options.center": False},
        {"training.learning_rate": 3e-3, "training.epochs": 5},
    ),
    "layers": (
        {"training.learning_rate": 3e-4, "training.epochs": 1, "training.batch_size": 128, "training.warmup": 100,
         "backbone.layers": [1, 3, 5]},
        {"training.learning_rate": 5e-5, "training.epochs": 1, "training.batch_size": 128},
    ),
}


def main() -> None:
    """Read the options, run the steps, print what they cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="with downstream/ and train/")
    parser.add_argument("--teacher", required=True)
    parser.add_argument("--start", default="minilm", help="of whose six layers the second student keeps three")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=60_000)
    parser.add_argument("--seeds", default="42,43")
    parser.add_argument("--students", default=",".join(STUDENTS))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    args = parser.parse_args()
    os.environ["STSBENCH_DATA"] = str(args.data.resolve())
    args.output.mkdir(parents=True, exist_ok=True)
    if not (args.output / "texts.txt").exists():
        write_texts(args.data, args.output / "texts.txt", args.texts)
    write_triplets(args.data, args.output / "triplets.csv")
    steps = Steps(args.output)
    teacher = Path(args.teacher).resolve() if Path(args.teacher).is_dir() else args.teacher
    steps.run("taught", "encode", "--input", "texts.txt", "--column", "0", "--model", teacher, "--dtype", "bfloat16",
              "--max-length", "128", "--output", "taught")
    for student in args.students.split(","):
        start = args.start
        if student == "static":
            start = "table"
            steps.run("table", "distil-static", "--model", teacher, "--dimensions", "256", "--output", "table")
        with ThreadPoolExecutor(args.processes) as pool:
            seeds = list(pool.map(partial(train, steps, student, start), args.seeds.split(",")))
        steps.run(f"{student}-soup", "soup", *seeds, "--output", f"{student}-soup")
        steps.run(f"{student}-test", "eval", "--model", f"{student}-soup", "--protocol", "sts", "--quantise", "int8",
                  "--output", f"{student}-test")
    print(json.dumps(steps.seconds, indent=1))


def train(steps: Steps, student: str, start: str, seed: str) -> str:
    """Both stages of one seed; returns the second's folder."""
    distil, contrast = STUDENTS[student]
    taught, pairs = f"{student}-taught-{seed}", f"{student}-{seed}"
    steps.run(taught, "train", "distil", "--recipe", "layers-4-similarities", "--backbone", start, "--data", "texts.txt",
              "--seed", seed, "--output", taught, *settings({
                  **SETTINGS, "options.teachers": [{"model": "vectors:taught"}], "data.held_out": 2000,
                  "selection.every": 200, "options.projection": "auto", **distil,
              }), threads=1)
    steps.run(pairs, "train", "simcse", "--recipe", "sup-bert-base", "--backbone", taught, "--data", "triplets.csv",
              "--seed", seed, "--output", pairs, *settings({
                  **SETTINGS, "backbone.pooler": "mean", "backbone.dropout": None, "options.head": "none",
                  "training.gather": "exact", "selection.by": "none", "contrast.hardness": "hard_negatives",
                  "contrast.strength": 5.0, **contrast,
              }), threads=1)
    return pairs


def settings(values: dict[str, object]) -> list[str]:
    """Return --set NAME=VALUE for each."""
    return list(itertools.chain.from_iterable(("--set", f"{name}={json.dumps(value)}") for name, value in values.items()))


class Steps:
    """Commands that are run once each in one folder, and their seconds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, dict[str, float]] = {}

    def run(self, name: str, *words: object, threads: int | None = None) -> None:
        """Run `stsbench WORDS`, unless NAME stands in the folder; RuntimeError where it fails."""
        if (self.folder / name).exists():
            return
        command = [str(Path(sys.executable).with_name("stsbench")), *map(str, words)]
        print(f"$ {' '.join(command)}", flush=True)
        environment = os.environ | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)})
        start = time.perf_counter()
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, env=environment)
            _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise RuntimeError(f"failed: see {log.name}")
        processor = usage.ru_utime + usage.ru_stime
        self.seconds[name] = {"wall": round(time.perf_counter() - start, 1), "processor": round(processor, 1)}
        print(f"  {name}: {self.seconds[name]}", flush=True)


def write_texts(data: Path, path: Path, number: int) -> None:
    """Write so many sentences, drawn by one seed, a line each: Wikipedia's, NLI's, one caption of each photo."""
    train = data / "train"
    texts = (train / "wiki_sentences.txt").read_text("utf-8").splitlines()
    texts += [text for row in rows(train / "nli_for_simcse.csv") for text in row]
    captions = (data / "flickr30k" / "results_20130124.token").read_text("utf-8").splitlines()
    texts += [line.split("\t")[1] for line in captions if "#0\t" in line]
    distinct = sorted({" ".join(text.split()) for text in texts} - {""})
    path.write_text("\n".join(random.Random(0).sample(distinct, number)) + "\n", "utf-8")


def write_triplets(data: Path, path: Path) -> None:
    """Write NLI's triplets: sent0, sent1, hard_neg."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sent0", "sent1", "hard_neg"])
        for name in ("nli_for_simcse.csv", "flickr_snli_triplets.csv"):
            writer.writerows(rows(data / "train" / name))


def rows(path: Path) -> list[list[str]]:
    """Return the rows of a CSV file but its header."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


if __name__ == "__main__":
    main()
