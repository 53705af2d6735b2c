"""A training step of the methods against SimCSE's: seconds and peak memory, what a step consists of, the generator.

    python benchmarks/methods.py --data ../shared/data/train/wiki_sentences.txt
    python benchmarks/methods.py --model bert-base-random --precision bf16 --what parts
    python benchmarks/methods.py --what generator
    python benchmarks/methods.py --what prompts --batch 128   # NLI triplets: the shape of DiffAug's Table 4

Each runs what `stsbench train METHOD` runs, with the method's own defaults, from the same file and the same checkpoint,
batches of 64 sentences cut at 32 tokens. `attended` is DiffCSE with rtd_mean attended, `no decoder` SARCSE with beta and
gamma 0. The checkpoint is --model, which gets a random masked-LM head where it has none (DiffCSE's generator is the same
checkpoint), or a random one of BERT-base's shape, with a random generator of DistilBERT's shape. Random weights take as
long as trained ones. Every measurement is a separate process; they take turns, and the order of a round is the reverse
of the one before. Steps are timed as in train.py, which has the clock.

--what prompts: SimCSE, PromptBERT and DiffAug (both stages) on the triplets of --triplets, supervised; PromptBERT with the
tanh head. `diffaug prefix` is stage 1, `diffaug` stage 2.
--what parts: seconds of the parts of DiffCSE's step. Backward is split where the gradient reaches the sentence vectors.
--what generator: filling in all tokens by Generator.fill, against AutoModelForMaskedLM's logits of the whole padded batch
at once and their argmax: seconds a batch, and peak memory above what was there before.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from train import SHARED, Clock, Finished

SIDES: dict[str, tuple[str, str, dict[str, Any]]] = {  # name -> method, pooler, options
    "simcse": ("simcse", "cls", {}),
    "diffcse": ("diffcse", "cls", {}),
    "diffcse attended": ("diffcse", "cls", {"rtd_mean": "attended"}),
    "sarcse": ("sarcse", "text_cnn", {}),
    "sarcse no decoder": ("sarcse", "text_cnn", {"beta": 0.0, "gamma": 0.0}),
}
PROMPTED = {"max_length": 34}
TRIPLETS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "simcse": ("simcse", "cls", {"view": "given", "head": "mlp"}),
    "promptbert": ("promptbert", "mask", {"view": "given", "second_template": None}),
    "diffaug prefix": ("diffaug", "mask", {"view": "given", "diagnose": 0}),
    "diffaug": ("diffaug", "mask", {"view": "given", "diagnose": 0}),
}
WAYS = ("fill", "whole")  # of the generator


def run_method(side: str, work: Path, args: argparse.Namespace) -> float | None:
    """Train by one side until the clock ends it; the last logged loss, the mean of 10 steps, None where there were fewer."""
    from stsbench.training.recipes.recipe import checked
    from stsbench.training.runs.options import TrainOptions
    from stsbench.training.runs.run import train

    method, pooler, options = (TRIPLETS if args.what == "prompts" else SIDES)[side]
    if method == "diffcse" and (work / "generator").is_dir():
        options = {**options, "generator": str(work / "generator")}
    data: dict[str, Any] = {"file": str(work / "data.txt"), "format": "text"}
    more: dict[str, Any] = {}
    if args.what == "prompts":
        columns = {"anchor": "sent0", "positive": "sent1", "negative": "hard_neg"}
        data = {"file": str(work / "triplets.csv"), "columns": columns}
        if method == "diffaug":
            steps: dict[str, Any] = {} if side.endswith("prefix") else {"max_steps": 1}
            more = {"labelled": data, "stages": {"prefix": {"training": steps}}}
    recipe = checked(
        {
            "name": "benchmark", "method": method,
            "backbone": {"model": str(work / "model"), "pooler": pooler, **(PROMPTED if pooler == "mask" else {})},
            "options": options, "data": data,
            "training": {"batch_size": args.batch, "max_steps": args.warm_up + args.steps + 1, "learning_rate": 1e-5},
            "selection": {"by": "none"}, "precision": args.precision, **more,
        },
        "benchmark",
    )
    with tempfile.TemporaryDirectory(dir=work) as output:
        with contextlib.suppress(Finished):
            train(TrainOptions(recipe=recipe, output=Path(output) / "run", device=args.device), log=lambda line: None)
        lines = [json.loads(line) for line in (Path(output) / "run" / "log.jsonl").read_text().splitlines()]
    return next((line["loss"] for line in reversed(lines) if line["kind"] == "train"), None)


class Parts(Clock):
    """A clock that also knows the seconds of named parts within the timed steps."""

    def __init__(self, first: int, last: int, cuda: bool) -> None:
        super().__init__(first, last, cuda)
        self.parts: dict[str, float] = {}
        self.kept: dict[str, float] = {}
        self.backward = 0.0  # when it began

    def _stepped(self, *about: Any) -> None:
        super()._stepped(*about)
        if self.step == self.first:
            self.parts.clear()
        elif self.step == self.last:
            self.kept = dict(self.parts)  # one more step is begun before the run ends

    def now(self) -> float:
        if self.cuda:
            import torch

            torch.cuda.synchronize()
        return time.perf_counter()

    def add(self, name: str, since: float) -> None:
        self.parts[name] = self.parts.get(name, 0.0) + self.now() - since

    def watch(self, owner: Any, attribute: str, name: str) -> None:
        """Time every call of owner.attribute."""
        inner = getattr(owner, attribute)

        def timed(*arguments: Any, **named: Any) -> Any:
            since = self.now()
            result = inner(*arguments, **named)
            self.add(name, since)
            return result

        setattr(owner, attribute, timed)

    def watch_diffcse(self) -> None:
        """Put the clock into DiffCSE's parts, and into its backward pass where it reaches the sentence vectors."""
        from accelerate import Accelerator

        from stsbench.methods.diffcse.method import DiffCSE
        from stsbench.training.modules.backbone import Backbone
        from stsbench.training.modules.copies import Conditioned
        from stsbench.training.modules.masked_lm import Generator

        self.watch(Backbone, "pooled", "encoder, forward")
        self.watch(Generator, "fill", "generator")
        self.watch(Generator, "_tokens", "generator: vocabulary logits")
        self.watch(Conditioned, "forward", "discriminator, forward")
        project, backward = DiffCSE._project, Accelerator.backward

        def projected(method: Any, *arguments: Any) -> Any:
            vectors = project(method, *arguments)
            vectors.register_hook(lambda _: self.add("discriminator and losses, backward", self.backward))
            return vectors

        def timed(accelerator: Any, *arguments: Any, **named: Any) -> None:
            self.backward = self.now()
            backward(accelerator, *arguments, **named)
            self.add("backward", self.backward)

        DiffCSE._project, Accelerator.backward = projected, timed  # type: ignore[method-assign]

    def table(self) -> dict[str, float]:
        """Seconds of each part, which together are the timed ones."""
        parts = dict(self.kept)
        parts["generator: transformer"] = parts.pop("generator") - parts["generator: vocabulary logits"]
        parts["encoder, backward"] = parts.pop("backward") - parts["discriminator and losses, backward"]
        parts["optimiser, clipping, projector, losses, batches"] = self.seconds - sum(parts.values())
        return parts


def train_side(side: str, work: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds, processor seconds, peak MiB of the timed steps, and with --what parts the parts."""
    kind = Parts if args.what == "parts" else Clock
    clock = kind(args.warm_up, args.warm_up + args.steps, args.device == "cuda")
    if isinstance(clock, Parts):
        clock.watch_diffcse()
    loss = run_method(side, work, args)
    if not clock.seconds:
        raise SystemExit(f"{side}: {clock.step} steps were taken, {args.warm_up + args.steps} were asked for")
    measured: dict[str, Any] = {"seconds": clock.seconds, "processor": clock.processor, "mib": clock.mib, "loss": loss}
    if isinstance(clock, Parts):
        measured["parts"] = clock.table()
    return measured


def generate(way: str, work: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds and peak MiB of filling in every token of --steps batches."""
    import torch
    from transformers import AutoModelForMaskedLM

    from stsbench.training.modules.backbone import load_backbone
    from stsbench.training.modules.masked_lm import Generator

    torch.manual_seed(0)
    folder = work / "generator" if (work / "generator").is_dir() else work / "model"
    backbone = load_backbone(work / "model", "model")
    backbone.folder, backbone.name = work / "model", "model"
    generator = Generator(backbone, str(folder), "train").train().to(args.device)
    batches = [batch for _, batch in zip(range(args.warm_up + args.steps), _masked(backbone, work, args), strict=False)]
    fill: Callable[[Any, Any], Any]
    if way == "fill":
        def fill(ids: Any, mask: Any) -> Any:
            chosen = mask.bool()
            chosen[:, 0] = False
            return generator.fill(ids, mask, chosen)
    else:
        del generator
        whole = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).train().to(args.device)

        def fill(ids: Any, mask: Any) -> Any:
            with torch.no_grad():
                return whole(input_ids=ids, attention_mask=mask).logits.argmax(-1)
    del backbone
    memory = Memory(args.device == "cuda")
    with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "bf16"):
        for number, (ids, mask) in enumerate(batches):
            if number == args.warm_up:
                memory.begin()
                began = time.perf_counter(), time.process_time()
            fill(ids, mask)
        mib = memory.above()  # waits for the device
        seconds, processor = time.perf_counter() - began[0], time.process_time() - began[1]
    return {"seconds": seconds, "processor": processor, "mib": mib}


def _masked(backbone: Any, work: Path, args: argparse.Namespace) -> Iterator[tuple[Any, Any]]:
    """Batches of both views of --batch sentences, masked as DiffCSE does, padded to the longest."""
    import numpy as np
    import torch

    from stsbench.training.modules.edits import mask_tokens

    tokenizer, rng = backbone.tokenizer, np.random.default_rng(0)
    texts = (work / "data.txt").read_text(encoding="utf-8").splitlines()
    for start in range(0, len(texts) - args.batch + 1, args.batch):
        plain = tokenizer(texts[start : start + args.batch], truncation=True, max_length=32)["input_ids"]
        masked, _ = mask_tokens(
            [*plain, *plain], tokenizer.all_special_ids, tokenizer.mask_token_id, len(tokenizer), rng, 0.3
        )
        longest = max(map(len, masked))
        ids = torch.full((len(masked), longest), tokenizer.pad_token_id)
        for row, tokens in zip(ids, masked, strict=True):
            row[: len(tokens)] = torch.from_numpy(tokens)
        mask = torch.arange(longest) < torch.tensor([[len(tokens)] for tokens in masked])
        yield ids.to(args.device), mask.long().to(args.device)


class Memory:
    """Peak memory above a beginning: resident size on a CPU, torch's allocations on a GPU. MiB."""

    def __init__(self, cuda: bool) -> None:
        self.cuda, self.before = cuda, 0.0

    def begin(self) -> None:
        if self.cuda:
            import torch

            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated() / 2**20
        else:
            Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
            self.before = _status("VmRSS")

    def above(self) -> float:
        if not self.cuda:
            return _status("VmHWM") - self.before
        import torch

        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() / 2**20 - self.before


def _status(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def make_models(args: argparse.Namespace, work: Path) -> None:
    """work/model, a masked LM of --model's weights or random; work/generator, DistilBERT's shape, for a random one."""
    import torch
    from transformers import (
        AutoModelForMaskedLM,
        AutoTokenizer,
        BertConfig,
        BertForMaskedLM,
        DistilBertConfig,
        DistilBertForMaskedLM,
    )
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer if args.model == "bert-base-random" else args.model)
    if args.model != "bert-base-random":
        if args.layers is not None:
            raise SystemExit("--layers is for --model bert-base-random")
        AutoModelForMaskedLM.from_pretrained(args.model, dtype=torch.float32).save_pretrained(work / "model")
    else:
        layers, size = args.layers or 12, {"vocab_size": len(tokenizer)}
        BertForMaskedLM(BertConfig(**size, num_hidden_layers=layers)).save_pretrained(work / "model")
        DistilBertForMaskedLM(DistilBertConfig(**size, n_layers=max(1, layers // 2))).save_pretrained(work / "generator")
        tokenizer.save_pretrained(work / "generator")
    tokenizer.save_pretrained(work / "model")


def one(side: str, work: Path, args: argparse.Namespace) -> None:
    """Measure one side in this process and print JSON."""
    import torch

    torch.set_num_threads(args.threads)
    with contextlib.redirect_stdout(io.StringIO()):
        measured = generate(side, work, args) if args.what == "generator" else train_side(side, work, args)
    print(json.dumps({"side": side, **measured}))


def show(rows: list[dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    """Medians over the rounds, and how many times as long (and as much) as the first side each takes. Printed."""
    by_side: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["number"]):
        by_side.setdefault(row["side"], []).append(row)
    first = next(iter(by_side))
    unit, units = ("batch", "batches") if args.what == "generator" else ("step", "steps")
    print(f"{Path(args.model).name}, batch {args.batch} x 2 views, {args.precision}, {args.device}, {args.threads} "
          f"thread(s), {args.steps} {units} after {args.warm_up}; ratios to {first}: median (least, most) of "
          f"{args.rounds} round(s)")
    print(f"{'':18}{f's a {unit}':>10}{'ratio':>20}{'processor s':>13}{'ratio':>20}{'MiB':>8}{'ratio':>7}{'loss':>9}")
    summary: dict[str, Any] = {}
    for side in (side for side in _sides(args) if side in by_side):
        of_side, cells, summary[side] = by_side[side], [f"{side:18}"], {}
        for key, digits in (("seconds", 10), ("processor", 13)):
            median = statistics.median(row[key] for row in of_side) / args.steps
            ratios = [row[key] / other[key] for row, other in zip(of_side, by_side[first], strict=True)]
            cells.append(f"{median:{digits}.3f}")
            cells.append(f"{f'{statistics.median(ratios):.2f} ({min(ratios):.2f}, {max(ratios):.2f})':>20}")
            summary[side] |= {f"{key} a {unit}": median, f"{key}, ratios": ratios}
        summary[side]["mib"] = mib = statistics.median(row["mib"] for row in of_side)
        share = mib / statistics.median(row["mib"] for row in by_side[first])
        loss = f"{'-':>9}" if of_side[-1].get("loss") is None else f"{of_side[-1]['loss']:9.4f}"
        print(*cells, f"{mib:8.0f}{share:7.2f}", loss, sep="")
    if args.what == "parts":
        for side, of_side in by_side.items():
            total = statistics.median(row["seconds"] for row in of_side)
            print(f"\n{side}: seconds a step, share")
            summary[side]["parts"] = {
                name: statistics.median(row["parts"][name] for row in of_side) / args.steps for name in of_side[0]["parts"]
            }
            for name, seconds in summary[side]["parts"].items():
                print(f"  {name:50}{seconds:8.3f}{100 * seconds * args.steps / total:7.1f} %")
    return summary


def _sides(args: argparse.Namespace) -> list[str]:
    parts = [side for side in SIDES if side.startswith("diffcse")]
    known = {"steps": list(SIDES), "prompts": list(TRIPLETS), "parts": parts, "generator": list(WAYS)}
    chosen = args.sides.split(",") if args.sides else known[args.what]
    if wrong := [side for side in chosen if side not in known[args.what]]:
        raise SystemExit(f"--sides {wrong[0]}: --what {args.what} has {', '.join(known[args.what])}")
    return chosen


def main() -> None:
    """Run the rounds, print the table; --json writes the figures too."""
    minilm = str(SHARED / "models" / "minilm-l6-fp16")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", default="steps", choices=["steps", "prompts", "parts", "generator"])
    parser.add_argument("--sides", help="only these, with commas; ratios are to the first. Default: all")
    parser.add_argument("--model", default=minilm, help="a transformers folder, or bert-base-random")
    parser.add_argument("--layers", type=int, help="of bert-base-random; default 12, and half of them for the generator")
    parser.add_argument("--tokenizer", default=minilm, help="for bert-base-random")
    parser.add_argument("--data", type=Path, default=SHARED / "data" / "train" / "wiki_sentences.txt")
    parser.add_argument("--triplets", type=Path, default=SHARED / "data" / "train" / "nli_for_simcse.csv")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="float32", choices=["float32", "bf16"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        return one(args.side, args.work, args)
    sides, rows = _sides(args), []
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        needed = args.batch * (args.warm_up + args.steps + 1)
        with args.data.open(encoding="utf-8") as stream:
            texts = list(itertools.islice((line for line in stream if line.strip()), needed))
        if len(texts) < needed:
            raise SystemExit(f"{args.data} has {len(texts)} sentences, {needed} are needed: lower --steps or --batch")
        (work / "data.txt").write_text("".join(texts), encoding="utf-8")
        if args.what == "prompts":
            (work / "triplets.csv").write_bytes(args.triplets.read_bytes())
        make_models(args, work)
        threads = {name: str(args.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        environment = os.environ | threads | {"STSBENCH_CACHE": str(work / "cache"), "TOKENIZERS_PARALLELISM": "false"}
        for number in range(args.rounds):
            for side in sides if number % 2 == 0 else reversed(sides):
                command = [sys.executable, __file__, *sys.argv[1:], "--side", side, "--work", str(work)]
                done = subprocess.run(command, env=environment, capture_output=True, text=True)
                if done.returncode:
                    raise SystemExit(f"{side} failed:\n{done.stderr[-2000:]}")
                rows.append({"number": number, **json.loads(done.stdout.splitlines()[-1])})
    summary = show(rows, args)
    if args.json:
        args.json.write_text(json.dumps({"summary": summary, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
