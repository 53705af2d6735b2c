"""Sentences per second: ours, sentence-transformers as its documents recommend it, SimCSE's evaluation, and the limit.

    python benchmarks/encode --data-dir ../shared/data --threads 1 --cpu-time --peer-python PEERS/bin/python

- `st`: SentenceTransformer.encode with its defaults, and what its page "Speeding up Inference" recommends: half precision,
  on CUDA with flash attention, which leaves the padding out; on a CPU int8 by onnxruntime and by OpenVINO, in a process of
  `--peer-python` (sentence-transformers[onnx,openvino] and datasets, in versions of their own). What cannot run is named
  with its reason.
- `simcse`: SimCSE's evaluation as it is: every split of STS-B and SICK-R, duplicates included, batches of 128 in its order,
  padded to the longest, transformers' own pass. Sentences a second count those texts: it has 2.4 times as many to encode.
- `ours`: in every dtype, float16 on an accelerator alone. The limit is the multiply-adds of the texts' real tokens at the
  rate of a large product measured in the same run and dtype.

All but `simcse` encode the same sample of the 26,083 distinct texts of the seven STS tasks, in turn, and the best of
`--repeats` counts. Weights are random but for MiniLM, whose rows also have the points of Spearman (x 100, mean over --tasks)
that they lose to float32.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import texts as sts

Encode = Callable[[list[str]], Any]


def main() -> None:
    """Read the options, run each model, print or dump."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path(__file__).resolve().parents[3] / "shared" / "data")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", default=",".join(models.NAMES))
    parser.add_argument("--layers", type=int, help="of the random models, where all of them take too long")
    parser.add_argument("--texts", type=int, default=1500, help="sampled")
    parser.add_argument("--tasks", default="STS12,STS13,STS14,STS15,STS16,STS-B,SICK-R", help="for MiniLM's loss")
    parser.add_argument("--repeats", type=int, default=3, help="the best of so many")
    parser.add_argument("--cpu-time", action="store_true", help="processor seconds, for a machine that is busy otherwise")
    parser.add_argument("--peer-python", help="a Python with sentence-transformers[onnx] and [openvino]; '' for none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)  # the tokenizers' own pool
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch

    torch.set_num_threads(args.threads)
    results = []
    for name in args.models.split(","):
        results.append(measure(name, args))
        if not args.json:
            show(results[-1], args)
    if args.json:
        print(json.dumps(results, indent=1))


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One model: by row, seconds for the sample, dtype of its limit, largest 1 - cosine to float32 here, points lost."""
    clock = time.process_time if args.cpu_time else time.perf_counter
    every, scored = sts.read_tasks(args.data_dir / "downstream")
    distinct = list(dict.fromkeys(text for batch in sts.batches_of(list(scored.values())) for text in batch))
    some = sts.sample(distinct, args.texts, args.seed)
    tasks = {task: scored[task] for task in args.tasks.split(",") if task} if name == "minilm" else {}
    scoring = list(dict.fromkeys(text for batch in sts.batches_of(list(tasks.values())) for text in batch))
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        folder = models.model_folder(name, work / "model", args.layers)
        sides, skipped, built = _sides(folder, args)
        if name in ("minilm", "bert-base"):
            naive, count = _simcse(folder, every, args)
            sides["simcse"] = ("float32", naive)
        seconds, vectors = _timed(sides, some, clock, args.repeats)
        lengths = [len(ids) for ids in built.tokeniser(some)[0]]
        rates = {dtype: _rate(built.model, dtype, clock, args) for dtype in {kind for kind, _ in sides.values()}}
        work_of = models.multiply_adds(built.model, lengths)
        start = clock()
        built.tokeniser(some)
        tokenising = clock() - start
        rows: dict[str, Any] = {}
        for side, (dtype, encode) in sides.items():
            naive_row = side == "simcse"
            rows[side] = {
                "per_second": (count if naive_row else len(some)) / seconds[side], "seconds": seconds[side],
                "of_limit": None if naive_row else work_of / rates[dtype] / seconds[side],
                "gap": None if naive_row else _gap(vectors["ours float32"], vectors[side]),
                "score": None if naive_row or not tasks else _score(encode(scoring), scoring, tasks),
            }
        for backend in ("onnx-int8", "openvino-int8") if args.device == "cpu" else ():
            written = _peer(backend, folder, some, scoring, distinct, work, args)
            if isinstance(written, str):
                skipped[f"st {backend}"] = written
                continue
            rows[f"st {backend}"] = {
                "per_second": len(some) / float(written["seconds"]), "seconds": float(written["seconds"]), "of_limit": None,
                "gap": _gap(vectors["ours float32"], written["vectors"]),
                "score": _score(written["more"], scoring, tasks) if tasks else None,
            }
        return {"model": name, "layers": built.model.config.num_hidden_layers, "engine": built.engine, "texts": len(some),
                "tokens": sum(lengths), "limit": {dtype: work_of / rate for dtype, rate in rates.items()},
                "rows": rows, "skipped": skipped, "tokenising": tokenising / seconds["ours float32"]}


def _sides(folder: Path, args: argparse.Namespace) -> tuple[dict[str, tuple[str, Encode]], dict[str, str], Any]:
    """Row -> the dtype whose limit it has, and how it encodes; what is left out, and why; our float32 encoder."""
    from sentence_transformers import SentenceTransformer

    from stsbench.encoders.load import load_encoder

    encoders = {dtype: load_encoder(str(folder), device=args.device, dtype=dtype).built
                for dtype in ("float32", "bfloat16", "float16")[:2 if args.device == "cpu" else 3]}
    half: dict[str, dict[str, Any]] = {"st bfloat16": {"dtype": "bfloat16"}}
    if args.device != "cpu":
        half["st float16"] = {"dtype": "float16"}
        half |= {f"{side}, flash": {**how, "attn_implementation": "flash_attention_2"} for side, how in half.items()}
    sides: dict[str, tuple[str, Encode]] = {}
    skipped: dict[str, str] = {}
    for side, how in {"st": {"dtype": "float32"}, **half}.items():
        try:
            library = SentenceTransformer(str(folder), device=args.device, model_kwargs=how)
        except Exception as error:  # flash attention that is not installed, or that the family lacks
            skipped[side] = " ".join(str(error).split())[:160]
            continue
        sides[side] = (str(how["dtype"]), lambda texts, library=library: library.encode(texts, show_progress_bar=False))
    for dtype, encoder in encoders.items():
        encoder.ready()
        sides[f"ours {dtype}"] = (dtype, lambda texts, encoder=encoder: encoder.run(texts).vectors)
    return sides, skipped, encoders["float32"]


def _simcse(folder: Path, every: list[Any], args: argparse.Namespace) -> tuple[Encode, int]:
    """SimCSE's loop over a sample of its own batches, and how many sentences those hold."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    naive = sts.batches_of(every)
    some = random.Random(args.seed).sample(naive, max(2, round(args.texts / 26_083 * len(naive))))
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval().to(args.device)
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def encode(texts: list[str]) -> Any:
        for batch in some:
            inputs = tokenizer(batch, return_tensors="pt", padding=True).to(args.device)
            with torch.no_grad():
                hidden = model(**inputs, output_hidden_states=True, return_dict=True).last_hidden_state
            mask = inputs["attention_mask"].unsqueeze(-1)
            ((hidden * mask).sum(1) / mask.sum(1)).cpu()

    return encode, sum(map(len, some))


def _timed(
    sides: dict[str, tuple[str, Encode]], some: list[str], clock: Callable[[], float], repeats: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """The best seconds and the vectors of each row: in turn, so that a busy minute does not hit one of them alone."""
    seconds: dict[str, float] = {}
    vectors: dict[str, Any] = {}
    for _, encode in sides.values():
        encode(some[:64])
    for _ in range(repeats):
        for side, (_, encode) in sides.items():
            start = clock()
            vectors[side] = encode(some)
            seconds[side] = min(seconds.get(side, float("inf")), clock() - start)
    return seconds, vectors


def _rate(model: Any, dtype: str, clock: Callable[[], float], args: argparse.Namespace) -> float:
    import torch

    config = model.config
    return models.product_rate(config.hidden_size, config.intermediate_size, getattr(torch, dtype), args.device, clock, 0.5)


def _peer(
    backend: str, folder: Path, some: list[str], scoring: list[str], distinct: list[str], work: Path,
    args: argparse.Namespace,
) -> Any:
    """The arrays that the peer's process wrote, or why there are none."""
    if not args.peer_python:
        return "no --peer-python"
    import numpy as np

    home = work / backend
    home.mkdir()
    job = {"backend": backend, "folder": str(folder), "texts": some, "more": scoring, "work": str(home / "model"),
           "calibration": random.Random(args.seed).sample(distinct, 300), "threads": args.threads,
           "repeats": args.repeats, "cpu_time": args.cpu_time}
    (home / "model").mkdir()
    (home / "job.json").write_text(json.dumps(job), "utf-8")
    command = [args.peer_python, str(Path(__file__).with_name("peer.py")), str(home / "job.json"), str(home / "out.npz")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return (done.stdout.strip().splitlines() or ["it ended without a word"])[-1]
    return dict(np.load(home / "out.npz"))


def _gap(want: Any, got: Any) -> float:
    import numpy as np

    a, b = np.asarray(want, np.float64), np.asarray(got, np.float64)
    return float((1 - (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).max())


def _score(vectors: Any, scoring: list[str], tasks: dict[str, Any]) -> float:
    vector_of = dict(zip(scoring, vectors.tolist(), strict=True))
    return sum(sts.spearman(vector_of, pairs) for pairs in tasks.values()) / len(tasks)


def show(result: dict[str, Any], args: argparse.Namespace) -> None:
    """Print one model's table."""
    rows, first = result["rows"], result["rows"]["st"]
    print(f"\n{result['model']}, {result['layers']} layers, {args.device}, {args.threads} thread(s), {result['texts']:,} "
          f"texts of {result['tokens']:,} tokens, {'processor' if args.cpu_time else 'wall'} time; ours: {result['engine']}")
    heads = ("sentences/s", "over st", "of the limit", "1 - cosine", "points lost")
    print(f"{'':18}" + "".join(f"{head:>14}" for head in heads))
    best = rows["ours float32"]["score"]
    for side, row in rows.items():
        cells = [
            f"{row['per_second']:.0f}", "" if side == "simcse" else f"{first['seconds'] / row['seconds']:.2f}",
            "" if row["of_limit"] is None else f"{row['of_limit']:.2f}", "" if row["gap"] is None else f"{row['gap']:.0e}",
            "" if row["score"] is None else f"{best - row['score']:.3f}",
        ]
        print(f"{side:18}" + "".join(f"{cell:>14}" for cell in cells))
    for dtype, seconds in result["limit"].items():
        print(f"{'limit ' + dtype:18}{result['texts'] / seconds:14.0f}{first['seconds'] / seconds:14.2f}")
    for side, why in result["skipped"].items():
        print(f"{side}: left out, {why}")
    if best is not None:
        print(f"Spearman x 100 in float32: {best:.3f}, mean over {args.tasks}")
    print(f"tokenising: {result['tokenising']:.1%} of ours float32")


if __name__ == "__main__":
    sys.exit(main())
