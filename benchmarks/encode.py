"""Sentences per second on the seven STS tasks: ours, SimCSE's evaluation, sentence-transformers and the limit.

    python benchmarks/encode.py --data-dir ../shared/data --threads 1

(a) `simcse`: SimCSE's evaluation as it is: 62,198 sentences (every split of STS-B and SICK-R, duplicates included),
    batches of 128 in its order, padded to the longest, transformers' own forward pass.
(b) `st`: SentenceTransformer.encode with its defaults on the 26,083 distinct texts of the test sets.
(c) `limit`: the multiply-adds of those texts' real tokens at this machine's measured matrix-product rate.
Ours encodes the texts of (b) in float32 and bfloat16. Only a sample is run and scaled up to each whole workload by
tokens: random batches of (a), random batches of (b)'s own length order (so that the sample is padded exactly as the
whole is), and for ours the same texts as (b)'s sample, which favours (b): fewer texts, fewer of equal length.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

Pair = tuple[str, str, float]
FRACTIONS = {"minilm": 0.05, "bert-base": 0.02}
BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}


def read_tasks(downstream: Path) -> tuple[list[list[Pair]], list[list[Pair]]]:
    """The pair lists that SimCSE encodes, in its order, and those of them that the reported scores need."""
    every: list[list[Pair]] = []
    for year in range(12, 17):
        for inputs in sorted((downstream / "STS" / f"STS{year}-en-test").glob("STS.input.*.txt")):
            texts = inputs.read_text(encoding="utf-8").splitlines()
            gold = (inputs.parent / inputs.name.replace("input", "gs")).read_text(encoding="utf-8").splitlines()
            rows = [(*text.split("\t"), float(g)) for text, g in zip(texts, gold, strict=True) if g.strip()]
            every.append(sorted(rows, key=lambda r: (len(r[0].split()), len(r[1].split()), r[2])))
    needed = list(every)
    for split in ("train", "dev", "test"):
        lines = (downstream / "STS" / "STSBenchmark" / f"sts-{split}.csv").read_text(encoding="utf-8").split("\n")
        fields = [line.strip().split("\t") for line in lines if line.strip()]
        every.append([(f[5], f[6], float(f[4])) for f in fields])
    needed.append(every[-1])
    for split in ("train", "trial", "test_annotated"):
        lines = (downstream / "SICK" / f"SICK_{split}.txt").read_text(encoding="utf-8").split("\n")
        fields = [line.strip().split("\t") for line in lines[1:] if line.strip()]
        every.append([(f[1], f[2], float(f[3])) for f in fields])
    needed.append(every[-1])
    return every, needed


def batches_of(tasks: list[list[Pair]], size: int = 128) -> list[list[str]]:
    """SimCSE's batches: first and second sentences of the same rows apart."""
    return [
        [" ".join(row[side].split()) for row in task[start:start + size]]
        for task in tasks for start in range(0, len(task), size) for side in (0, 1)
    ]


def model_folder(name: str, folder: Path) -> Path:
    """A sentence-transformers folder: official or fp16 MiniLM, or a random BERT-base with MiniLM's tokenizer."""
    from stsbench.encoders.transformer.minilm import find_minilm
    from stsbench.errors import EncoderError

    shared = Path(__file__).resolve().parents[2] / "shared" / "models" / "minilm-l6-fp16"
    try:
        minilm = find_minilm()
    except EncoderError:
        minilm = shared
    if name == "minilm":
        return minilm
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=30522, **BASE)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(minilm).save_pretrained(folder)
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
               for i, (path, kind) in enumerate(kinds.items())]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 768, "pooling_mode_mean_tokens": True})
    )
    return folder


def product_rate(width: int, dtype: Any, seconds: float = 1.0) -> float:
    """Multiply-adds a second of a large matrix product: the best of several shapes that an encoder meets."""
    import torch

    best = 0.0
    for rows, inner, columns in ((1024, width, 4 * width), (1024, 4 * width, width), (1024, 1024, 1024)):
        a, b = torch.randn(rows, inner).to(dtype), torch.randn(columns, inner).to(dtype)
        torch.nn.functional.linear(a, b)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            start = time.perf_counter()
            for _ in range(4):
                torch.nn.functional.linear(a, b)
            best = max(best, 4 * rows * inner * columns / (time.perf_counter() - start))
    return best


def measure(name: str, fraction: float, args: argparse.Namespace) -> dict[str, Any]:
    """One model's seconds for each whole workload, its ratios, and how far our vectors are from (a)'s."""
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel, AutoTokenizer

    from stsbench.encoders.load import load_encoder

    every, needed = read_tasks(args.data_dir / "downstream")
    rng = random.Random(args.seed)
    naive = batches_of(every)
    texts = list(dict.fromkeys(text for batch in batches_of(needed) for text in batch))
    by_length = sorted(texts, key=len, reverse=True)
    blocks = [by_length[i:i + 32] for i in range(0, len(texts), 32)]
    some_naive = rng.sample(naive, max(2, round(fraction * len(naive))))
    some = [t for i in sorted(rng.sample(range(len(blocks)), max(4, round(fraction * len(blocks))))) for t in blocks[i]]

    with tempfile.TemporaryDirectory() as temporary:
        folder = model_folder(name, Path(temporary))
        encoders = {d: load_encoder(str(folder), pooler="mean", dtype=d).built for d in ("float32", "bfloat16")}
        for encoder in encoders.values():
            encoder.normalize = False  # as the others
        library = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
        model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenise = encoders["float32"].tokeniser
    lengths = {t: len(ids) for t, ids in zip(texts, tokenise(texts)[0], strict=True)}
    lengths |= {t: len(ids) for b in naive for t, ids in zip(b, tokenise(b)[0], strict=True) if t not in lengths}

    def simcse() -> list[Any]:
        vectors = []
        for batch in some_naive:
            inputs = tokenizer(batch, return_tensors="pt", padding=True)
            with torch.no_grad():
                hidden = model(**inputs, output_hidden_states=True, return_dict=True).last_hidden_state
            mask = inputs["attention_mask"].unsqueeze(-1)
            vectors.append(((hidden * mask).sum(1) / mask.sum(1)).numpy())
        return vectors

    calls = {
        "simcse": simcse,
        "st": lambda: library.encode(some),
        "ours float32": lambda: encoders["float32"].run(some),
        "ours bfloat16": lambda: encoders["bfloat16"].run(some),
        "tokeniser": lambda: tokenise(some),
    }
    clock = time.process_time if args.cpu_time else time.perf_counter
    taken: dict[str, float] = {}
    rates = dict.fromkeys(encoders, 0.0)
    for _ in range(args.repeats):  # in turn, so that a busy minute of the machine does not hit one of them alone
        for dtype in encoders:
            rates[dtype] = max(rates[dtype], product_rate(model.config.hidden_size, getattr(torch, dtype), 0.5))
        for key, call in calls.items():
            start = clock()
            result = call()
            taken[key] = min(taken.get(key, 1e9), clock() - start)
            if key == "simcse":
                reference = result
    padded = [max(lengths[t] for t in b) * len(b) for b in naive]
    scale_naive = sum(padded) / sum(max(lengths[t] for t in b) * len(b) for b in some_naive)
    scale = sum(lengths[t] for t in texts) / sum(lengths[t] for t in some)
    whole = {key: seconds * (scale_naive if key == "simcse" else scale) for key, seconds in taken.items()}
    config = model.config
    width, layers = config.hidden_size, config.num_hidden_layers
    linear = layers * (4 * width**2 + 2 * width * config.intermediate_size)
    work = sum(n * linear + 2 * layers * width * n * n for n in (lengths[t] for t in texts))
    limits = {dtype: work / rate for dtype, rate in rates.items()}
    gaps = {}
    distinct = list(dict.fromkeys(t for batch in some_naive for t in batch))[:400]
    row: dict[str, Any] = {}
    for batch, vectors in zip(some_naive, reference, strict=True):
        row.update(zip(batch, vectors, strict=True))
    want = np.stack([row[t] for t in distinct]).astype(np.float64)
    for dtype, encoder in encoders.items():
        got = encoder.run(distinct).vectors.astype(np.float64)
        cosines = (got * want).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(want, axis=1)
        gaps[dtype] = float(np.abs(1 - cosines).max())
    return {
        "model": name, "threads": args.threads, "fraction": fraction,
        "sentences": sum(map(len, naive)), "distinct": len(texts),
        "seconds": whole, "limit": limits, "max_1_minus_cosine": gaps,
        "tokens": {"simcse, padded": sum(padded), "distinct": sum(lengths[t] for t in texts)},
    }


def show(result: dict[str, Any]) -> None:
    """Print one model's table."""
    seconds, limit, distinct = result["seconds"], result["limit"], result["distinct"]
    print(f"\n{result['model']}: {result['threads']} thread(s), a sample of {result['fraction']:.1%} scaled up")
    print("tokens: " + ", ".join(f"{key} {count:,}" for key, count in result["tokens"].items()))
    heads = ("sentences", "seconds", "per s", "over (a)", "over (b)", "of limit", "1-cos")
    print(" " * 16 + "".join(f"{head:>10}" for head in heads))
    for key in ("simcse", "st", "ours float32", "ours bfloat16"):
        count = result["sentences"] if key == "simcse" else distinct
        dtype = "bfloat16" if "bfloat16" in key else "float32"
        share = f"{limit[dtype] / seconds[key]:.2f}" if key != "simcse" else ""
        gap = f"{result['max_1_minus_cosine'][dtype]:.0e}" if "ours" in key else ""
        print(f"{key:16}{count:10,}{seconds[key]:10.0f}{count / seconds[key]:10.0f}"
              f"{seconds['simcse'] / seconds[key]:9.2f}x{seconds['st'] / seconds[key]:9.2f}x{share:>10}{gap:>10}")
    for dtype in limit:
        print(f"limit {dtype:10}{distinct:10,}{limit[dtype]:10.0f}{distinct / limit[dtype]:10.0f}")
    print(f"tokenising: {seconds['tokeniser'] / seconds['ours float32']:.1%} of ours float32")


def main() -> None:
    """Read the options, run each model, print or dump."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", default="minilm,bert-base")
    parser.add_argument("--sample-fraction", type=float, help="of the batches; default .05 MiniLM, .02 BERT-base")
    parser.add_argument("--repeats", type=int, default=2, help="the best of so many")
    parser.add_argument("--cpu-time", action="store_true", help="CPU seconds, for a machine with company")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)  # the tokenizers' own pool
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch

    torch.set_num_threads(args.threads)
    results = []
    for name in args.models.split(","):
        results.append(measure(name, args.sample_fraction or FRACTIONS[name], args))
        if not args.json:
            show(results[-1])
    if args.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
