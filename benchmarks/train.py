"""Sentences a second and peak memory of unsupervised SimCSE: our training loop against sentence-transformers' trainer.

    python benchmarks/train.py --data ../shared/data/train/wiki_sentences.txt
    python benchmarks/train.py --data FILE --model bert-base-random --batch 512 --precision bf16 --device cuda

Both train the same model from the same file with the same batch size, 32 tokens, cls pooling, a dense layer and tanh,
dropout of the model's config, cosine / 0.05, AdamW, a linear schedule and clipping at 1. `ours` is what `stsbench train
simcse` runs, `padded` the same with transformers' own forward pass in place of the packed one (--padded), `st` is
SentenceTransformerTrainer with MultipleNegativesRankingLoss (scale 20) on pairs (s, s), `simcse` (--trainer) SimCSE's
padded batches and its loss in transformers' Trainer, which its own trainer copies. With --chunk N also `chunked`, ours
with training.chunk N, and `st-cached`, theirs with CachedMultipleNegativesRankingLoss in mini-batches
of N. Every measurement is a process of its own; the sides take turns, and the order of a round is the reverse of the
one before. Steps are timed from one optimiser step to a later one by the same hook on both sides, which then ends the
run: loading, the first --warm-up steps and the export are left out, and so is our tokenising, once before the first
step (sentence-transformers' is part of its steps). On a machine with company, processor seconds on --threads 1 are
the steadier figure. Memory: on a CPU the peak resident size over the timed steps, on a GPU torch's peak of allocated
memory.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SHARED = Path(__file__).resolve().parents[2] / "shared"


class Finished(Exception):  # noqa: N818
    """All that is measured has been."""


class Clock:
    """Seconds and peak memory between two optimiser steps, whoever takes them; raises Finished one step later."""

    def __init__(self, first: int, last: int, cuda: bool) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self.first, self.last, self.cuda, self.step = first, last, cuda, 0
        self.seconds = self.mib = 0.0
        self.began = (0.0, 0.0)
        self.processor = 0.0
        register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, *_: Any) -> None:
        import torch

        self.step += 1
        if self.step > self.last:
            raise Finished
        if self.step not in (self.first, self.last):
            return
        if self.cuda:
            torch.cuda.synchronize()
        if self.step == self.first:
            if self.cuda:
                torch.cuda.reset_peak_memory_stats()
            else:
                Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
            self.began = time.perf_counter(), time.process_time()
            return
        self.seconds = time.perf_counter() - self.began[0]
        self.processor = time.process_time() - self.began[1]
        if self.cuda:
            self.mib = torch.cuda.max_memory_allocated() / 2**20
        else:
            lines = Path("/proc/self/status").read_text().splitlines()
            self.mib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def run_stsbench(folder: Path, data: Path, work: Path, args: argparse.Namespace, side: str) -> list[float]:
    """Our run; its losses, each the mean of 10 steps."""
    from stsbench.training.modules import backbone
    from stsbench.training.recipes.recipes import load_recipe
    from stsbench.training.runs.options import TrainOptions
    from stsbench.training.runs.run import train

    if side == "padded":
        backbone.packable = lambda model: False  # "auto" then takes transformers' own pass
    values = {
        "backbone.model": str(folder), "data.file": str(data), "training.batch_size": args.batch,
        "training.max_steps": args.warm_up + args.steps + 1, "precision": args.precision, "selection.by": "none",
        "options.head": "none" if args.no_head else "mlp_train_only",
        "training.chunk": args.chunk if side == "chunked" else None,
    }
    recipe = load_recipe("simcse", None, [], values)
    options = TrainOptions(recipe=recipe, output=work / "run", device=args.device, offline=True)
    with contextlib.suppress(Finished):
        train(options, log=lambda line: None)
    lines = [json.loads(line) for line in (work / "run" / "log.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "train"]


def library(folder: Path, data: Path, work: Path, args: argparse.Namespace, side: str) -> list[float]:
    """sentence-transformers' run; its losses, each the mean of 10 steps."""
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import (
        CachedMultipleNegativesRankingLoss,
        MultipleNegativesRankingLoss,
    )
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer

    torch.manual_seed(0)  # the head's weights are drawn before the trainer sets its seed
    transformer = Transformer(str(folder), model_kwargs={"dtype": torch.float32}, max_seq_length=32)
    width = transformer.get_embedding_dimension()
    head = [] if args.no_head else [Dense(width, width, activation_function=torch.nn.Tanh())]
    model = SentenceTransformer(modules=[transformer, Pooling(width, "cls"), *head], device=args.device)
    texts = data.read_text(encoding="utf-8").splitlines()
    loss = (CachedMultipleNegativesRankingLoss(model, scale=20.0, mini_batch_size=args.chunk) if side == "st-cached"
            else MultipleNegativesRankingLoss(model, scale=20.0))
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(work / "st"), per_device_train_batch_size=args.batch, max_steps=args.warm_up + args.steps + 1,
            learning_rate=3e-5, lr_scheduler_type="linear", warmup_steps=0, weight_decay=0.0, max_grad_norm=1.0,
            bf16=args.precision == "bf16", fp16=args.precision == "fp16", use_cpu=args.device == "cpu",
            save_strategy="no", report_to="none",
            logging_steps=10, disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict({"anchor": texts, "positive": texts}),
        loss=loss,
    )
    with contextlib.suppress(Finished):
        trainer.train()
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


def simcse(folder: Path, data: Path, work: Path, args: argparse.Namespace, side: str) -> list[float]:
    """SimCSE's loop: transformers' Trainer, both views in one padded batch; its losses, each the mean of 10 steps."""
    import torch
    from transformers import AutoModel, AutoTokenizer, Trainer, TrainingArguments

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(folder)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = AutoModel.from_pretrained(folder, dtype=torch.float32)
            width = self.encoder.config.hidden_size
            self.head = (torch.nn.Identity() if args.no_head
                         else torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh()))

        def forward(self, **inputs: Any) -> dict[str, Any]:
            vectors = self.head(self.encoder(**inputs).last_hidden_state[:, 0])
            first, second = vectors[0::2], vectors[1::2]
            cosines = torch.nn.functional.cosine_similarity(first.unsqueeze(1), second.unsqueeze(0), dim=-1) / 0.05
            return {"loss": torch.nn.functional.cross_entropy(cosines, torch.arange(len(first), device=cosines.device))}

    def collate(batch: list[dict[str, Any]]) -> Any:
        return tokenizer.pad([row for row in batch for _ in range(2)], return_tensors="pt")

    texts = data.read_text(encoding="utf-8").splitlines()
    encoded = tokenizer(texts, max_length=32, truncation=True)
    rows = [{key: encoded[key][i] for key in encoded} for i in range(len(texts))]
    trainer = Trainer(
        model=Model(), data_collator=collate, train_dataset=rows,
        args=TrainingArguments(
            output_dir=str(work / "simcse"), per_device_train_batch_size=args.batch, max_steps=args.warm_up + args.steps + 1,
            learning_rate=3e-5, lr_scheduler_type="linear", warmup_steps=0, weight_decay=0.0, max_grad_norm=1.0,
            bf16=args.precision == "bf16", fp16=args.precision == "fp16", use_cpu=args.device == "cpu", save_strategy="no",
            report_to="none", logging_steps=10, disable_tqdm=True, remove_unused_columns=False,
        ),
    )
    with contextlib.suppress(Finished):
        trainer.train()
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def one(side: str, folder: Path, data: Path, args: argparse.Namespace) -> None:
    """Measure one side in this process and print JSON."""
    import torch

    torch.set_num_threads(args.threads)
    clock = Clock(args.warm_up, args.warm_up + args.steps, args.device == "cuda")
    with tempfile.TemporaryDirectory() as temporary, contextlib.redirect_stdout(io.StringIO()):
        work = Path(temporary)
        measure = simcse if side == "simcse" else library if side.startswith("st") else run_stsbench
        losses = measure(folder, data, work, args, side)
    if not clock.seconds:
        raise SystemExit(f"{side}: {clock.step} steps were taken, {args.warm_up + args.steps} were asked for")
    measured = {"seconds": clock.seconds, "processor": clock.processor, "mib": clock.mib, "losses": losses}
    print(json.dumps({"side": side, **measured}))


def model_folder(args: argparse.Namespace, work: Path) -> Path:
    """The transformers folder of --model; a random BERT of the base shape is made, with MiniLM's tokenizer."""
    if args.model != "bert-base-random":
        if args.layers is not None:
            raise SystemExit("--layers is for --model bert-base-random")
        return Path(args.model).resolve()
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    config = BertConfig(vocab_size=len(tokenizer), num_hidden_layers=args.layers or 12)
    BertModel(config, add_pooling_layer=False).save_pretrained(work / "model")
    tokenizer.save_pretrained(work / "model")
    return work / "model"


def show(rows: list[dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    """Medians over the rounds, and how many times as long sentence-transformers takes as each side. Printed."""
    by_side: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_side.setdefault(row["side"], []).append(row)
    summary: dict[str, Any] = {}
    print(f"{Path(args.model).name}, batch {args.batch} x 2 views, {args.precision}, {args.device}, "
          f"{args.threads} thread(s), {args.steps} steps after {args.warm_up}; ratios: median (least, most) of "
          f"{args.rounds} round(s)")
    print(f"{'':10}{'sentences/s':>12}{'s a step':>10}{'ratio':>20}{'processor s':>13}{'ratio':>20}{'MiB':>8}{'loss':>9}")
    for side, of_side in by_side.items():
        cells = [f"{side:10}"]
        summary[side] = {}
        for key, digits in (("seconds", 10), ("processor", 13)):
            a_step = statistics.median(row[key] for row in of_side) / args.steps
            ratios = [there[key] / row[key] for there, row in zip(by_side["st"], of_side, strict=True)]
            cells += [f"{args.batch / a_step:12.1f}"] if key == "seconds" else []
            cells += [f"{a_step:{digits}.3f}"]
            cells += [f"{f'{statistics.median(ratios):.2f} ({min(ratios):.2f}, {max(ratios):.2f})':>20}"]
            summary[side] |= {f"{key} a step": a_step, f"{key}, ratios": ratios}
        summary[side]["mib"] = statistics.median(row["mib"] for row in of_side)
        loss = f"{of_side[-1]['losses'][-1]:9.4f}" if of_side[-1]["losses"] else f"{'-':>9}"
        print(*cells, f"{summary[side]['mib']:8.0f}", loss, sep="")
    return summary


def main() -> None:
    """Run the rounds, print the table; --json writes the figures too."""
    minilm = str(SHARED / "models" / "minilm-l6-fp16")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=minilm, help="a transformers folder, or bert-base-random")
    parser.add_argument("--layers", type=int, help="of bert-base-random; default 12")
    parser.add_argument("--tokenizer", default=minilm, help="for bert-base-random")
    parser.add_argument("--data", type=Path, default=SHARED / "data" / "train" / "wiki_sentences.txt")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="float32", choices=["float32", "bf16", "fp16"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--no-head", action="store_true", help="neither side has the dense layer and tanh")
    parser.add_argument("--padded", action="store_true", help="also our loop with transformers' own forward pass")
    parser.add_argument("--trainer", action="store_true", help="also SimCSE's loop in transformers' Trainer")
    parser.add_argument("--chunk", type=int, help="also both with so many texts' activations at a time")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", choices=["ours", "padded", "chunked", "st", "st-cached", "simcse"], help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        return one(args.side, Path(args.model), args.work / "data.txt", args)
    chunked = ["chunked", "st-cached"] if args.chunk else []
    sides = ["ours", *(["padded"] if args.padded else []), *chunked, "st", *(["simcse"] if args.trainer else [])]
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        needed = args.batch * (args.warm_up + args.steps + 1)
        with args.data.open(encoding="utf-8") as stream:
            texts = list(itertools.islice((line for line in stream if line.strip()), needed))
        if len(texts) < needed:
            raise SystemExit(f"{args.data} has {len(texts)} sentences, {needed} are needed: lower --steps or --batch")
        (work / "data.txt").write_text("".join(texts), encoding="utf-8")
        folder = model_folder(args, work)
        threads = {name: str(args.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        environment = os.environ | threads | {"STSBENCH_CACHE": str(work / "cache"), "TOKENIZERS_PARALLELISM": "false"}
        for number in range(args.rounds):
            for side in sides if number % 2 == 0 else reversed(sides):
                command = [sys.executable, __file__, *sys.argv[1:], "--side", side, "--work", str(work)]
                command += ["--model", str(folder)]
                done = subprocess.run(command, env=environment, capture_output=True, text=True)
                if done.returncode:
                    raise SystemExit(f"{side} failed:\n{done.stderr[-2000:]}")
                rows.append(json.loads(done.stdout.splitlines()[-1]))
    summary = show(rows, args)
    if args.json:
        args.json.write_text(json.dumps({"summary": summary, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
