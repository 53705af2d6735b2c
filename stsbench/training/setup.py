"""What a run needs before its first step: the accelerator, the backbone's folder, the rows of each stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs, GradientAccumulationPlugin, InitProcessGroupKwargs
from numpy.typing import NDArray

from stsbench.data.examples import Rows
from stsbench.data.store import TextStore, open_store
from stsbench.data.tokens import TokenStore, tokenised
from stsbench.encoders.checkpoint import tokenizer_digest
from stsbench.encoders.trainable import backbone_folder as backbone_folder
from stsbench.errors import DataError, StsbenchError
from stsbench.modules.backbone import Backbone
from stsbench.training.batches import Batches
from stsbench.training.loop import Stage
from stsbench.training.method import Method
from stsbench.training.recipe import DataSettings, Recipe
from stsbench.training.streams import stream

_ONE_DOCUMENT = 1000  # lines without a blank one between them that make one wonder
_MIXED = {"float32": "no", "bf16": "bf16", "fp16": "fp16"}


def make_accelerator(
    precision: str, device: str | None, trackers: Sequence[str] = (), folder: Path | None = None
) -> Accelerator:
    """accelerate's view of this process and its device. Raises StsbenchError for a device or precision that is not there."""
    if device not in (None, "cpu", "cuda", "mps"):
        raise StsbenchError(f"--device {device}: write cpu, cuda or mps; CUDA_VISIBLE_DEVICES=1 chooses among several GPUs")
    if (device == "cuda" and not torch.cuda.is_available()) or (device == "mps" and not torch.backends.mps.is_available()):
        raise StsbenchError(f"--device {device} is not available on this machine")
    if precision == "fp16" and (device == "cpu" or not torch.cuda.is_available()):
        raise StsbenchError("precision fp16 needs a CUDA device: use --dtype bf16 or --dtype float32 here")
    # accelerate keeps one state a process: a second run in it may have another precision or device.
    AcceleratorState._reset_state(reset_partial_state=not torch.distributed.is_initialized())
    found = Accelerator(
        # said outright: on a machine without accelerator accelerate would make every process of torchrun a lone one
        cpu=device == "cpu" or not (torch.cuda.is_available() or torch.backends.mps.is_available()),
        mixed_precision=_MIXED[precision], log_with=list(trackers) or None, project_dir=folder,
        # by a plugin: the number would yield to a variable of accelerate's, which divides the gradient unseen
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
        kwargs_handlers=[
            DistributedDataParallelKwargs(gradient_as_bucket_view=True),
            InitProcessGroupKwargs(timeout=timedelta(hours=6)),  # the others wait while one scores or tokenises
        ],
    )  # fmt: skip
    if found.distributed_type not in ("NO", "MULTI_GPU", "MULTI_CPU"):
        raise StsbenchError(f"accelerate's {found.distributed_type} is not supported: use plain data parallelism")
    return found


@dataclass
class StageData:
    """The rows of one stage. trained, held_out: row numbers."""

    store: TextStore
    tokens: TokenStore
    trained: NDArray[np.int64]
    held_out: NDArray[np.int64]

    def rows(self, numbers: Any) -> Rows:
        """The texts and tokens of these rows."""
        return Rows(self.store, self.tokens, numbers)


def open_data(settings: DataSettings, recipe: Recipe, kind: type[Method], options: Any, backbone: Backbone, folder: Path,
              say: Callable[[str], None]) -> StageData:  # fmt: skip
    """Read and tokenise a stage's training text, or find it in the cache. Raises DataError, one line."""
    if settings.file is None:
        raise DataError("no training data: give a file by --data FILE")
    path = Path(settings.file).expanduser()
    if path.exists() and not path.is_file():
        raise DataError(f"the training data {path} are {'a folder' if path.is_dir() else 'no plain file'}: name a file")
    if not path.is_file():
        raise DataError(f"the training data {path} are not here: give your copy by --data FILE")
    store = open_store(
        path, format=settings.format, columns=settings.columns, where=settings.where, drop_blank=settings.drop_blank,
        drop_duplicates=settings.drop_duplicates, contiguous=settings.contiguous, say=say,
    )  # fmt: skip
    roles = kind.roles(options, store.roles)
    say(f"{path.name}: {store.report()}, used as {', '.join(roles)}")
    texts = tuple(role for role in roles if role != "label")
    tokens = tokenised(store, backbone.tokenizer, tokenizer_digest(folder), backbone.max_length, texts, say=say)
    if cut := sum(tokens.truncated.values()):
        say(f"{path.name}: {cut:,} of {len(texts) * len(store):,} texts are cut at {backbone.max_length} tokens")
    numbers = np.arange(len(store), dtype=np.int64)
    usable = kind.usable(options, Rows(store, tokens, numbers))
    if usable is not None:
        say(f"{path.name}: {int((~usable).sum())} rows cannot be used by these options (no sentence follows them, say)")
        if store.meta.documents == 1 and len(store) > _ONE_DOCUMENT:
            lines = f"{path.name}: {len(store):,} lines without a blank one between them"
            say(f"warning: {lines}: is it one text whose sentences follow one another?")
        numbers = numbers[usable]
    if settings.sample is not None:
        if settings.sample > len(numbers):
            raise DataError(f"{path}: data.sample {settings.sample} is more than the {len(numbers)} rows there are")
        numbers = stream(recipe.seed, "sample").permutation(numbers)[: settings.sample]
    trained, held_out = _held_out(settings, recipe.seed, kind, store, texts, numbers, path)
    return StageData(store, tokens, trained, held_out)


def _held_out(settings: DataSettings, seed: int, kind: type[Method], store: TextStore, texts: tuple[str, ...],
              numbers: NDArray[np.int64], path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # fmt: skip
    """Rows to train on and rows held out. What is trained on holds no text of a held-out row."""
    if not settings.held_out:
        return np.sort(numbers), numbers[:0]
    if settings.held_out >= len(numbers):
        raise DataError(
            f"{path}: data.held_out {settings.held_out} leaves no row of {len(numbers)} to train on: "
            f"--set data.held_out={max(1, len(numbers) // 10)}"
        )
    if settings.contiguous:
        raise DataError("data.held_out and data.contiguous exclude each other: a row's next sentence may be held out")
    if kind.needs_negatives and settings.held_out < 2:
        raise DataError("data.held_out 1: the other rows of a batch are the negatives, so 2 at least")
    order = stream(seed, "held-out rows").permutation(numbers)
    cut = len(numbers) - settings.held_out
    trained, held_out = np.sort(order[:cut]), np.sort(order[cut:])
    unseen = {text for role in texts for text in store.texts(role, held_out)}
    known = np.zeros(len(trained), dtype=np.bool_)
    for start in range(0, len(trained), 10_000):
        part = trained[start : start + 10_000]
        for role in texts:
            known[start : start + len(part)] |= [text in unseen for text in store.texts(role, part)]
    return trained[~known], held_out


def make_stage(number: int, name: str, recipe: Recipe, data: StageData, kind: type[Method], backbone: Backbone,
               processes: int) -> Stage:  # fmt: skip
    """The batches of a stage. Raises StsbenchError where a batch would hold nothing to contrast with."""
    settings = recipe.stage_training(name)
    if kind.needs_negatives and settings.batch_size < 2:
        raise StsbenchError(
            f"training.batch_size {settings.batch_size}: the other examples of a batch are the negatives, so 2 at least"
        )
    if settings.batch_size < processes:
        raise StsbenchError(f"training.batch_size {settings.batch_size} is less than the {processes} processes")
    # each process's own rows are all the negatives there are where nothing is gathered
    least = (2 * processes if settings.gather == "local" else 2) if kind.needs_negatives else 1
    if settings.batch_size < least:
        raise StsbenchError(
            f"training.batch_size {settings.batch_size} with training.gather local leaves a process one example and so no "
            f"negative: {least} at least"
        )
    found = data.store.meta
    if kind.needs_negatives and found.rows - found.left_out - found.duplicates < 2:
        raise DataError(f"{data.store.path}: there are not two different rows, and the negatives of one are the others")
    lengths = None
    if settings.order == "length":
        lengths = np.sum([data.tokens.lengths(role) for role in data.tokens.roles], axis=0)
    batches = Batches(
        data.trained, settings, recipe.seed, number, least=least, processes=processes, lengths=lengths,
    )  # fmt: skip
    pad = backbone.tokenizer.pad_token_id
    return Stage(number, name, settings, batches, data.rows, pad if pad is not None else 0)
