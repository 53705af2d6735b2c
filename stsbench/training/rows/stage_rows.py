"""The rows of each stage, and the labelled ones: read, tokenised, sampled, and what is held out of them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.data.text.columns import LABEL
from stsbench.data.text.examples import TextRows
from stsbench.data.text.store import TextStore, open_store
from stsbench.data.text.tokens import TokenStore, tokenised
from stsbench.encoders.forward.checkpoint import tokenizer_digest
from stsbench.errors import DataError, StsbenchError
from stsbench.training.api.labelled import TRIPLET
from stsbench.training.api.method import Method
from stsbench.training.modules.backbone import Backbone
from stsbench.training.recipes.recipe import DataSettings, Recipe
from stsbench.training.rows.streams import stream

LABELLED = "labelled"  # their key beside the stages' names
LABELS = "labels"  # the key of their classes among what a run reads
_OF_TRIPLETS = ("contradiction", "entailment")  # what classes 0 and 1 of triplets are
_ONE_DOCUMENT = 1000  # lines without a blank one between them that make one wonder
_OF_DATA = re.compile(r"(?<![\w/.])data\.(columns|where|format)\b")
_AT_ONCE = 10_000  # rows whose texts are compared at a time


@dataclass
class StageData:
    """The rows of one stage. trained, held_out: row numbers."""

    store: TextStore
    tokens: TokenStore
    trained: NDArray[np.int64]
    held_out: NDArray[np.int64]

    def rows(self, numbers: Any) -> TextRows:
        """The texts and tokens of these rows."""
        return TextRows(self.store, self.tokens, numbers)


def open_rows(recipe: Recipe, kind: type[Method], options: Any, backbone: Backbone, folder: Path, stages: Sequence[str],
              say: Callable[[str], None]) -> dict[str, StageData]:  # fmt: skip
    """The rows of those of `stages` that have data of their own, by stage, and under LABELLED the labelled ones if a stage
    uses them. What is trained on holds no text that is held out of either. Raises DataError, one line."""
    uses = {stage: kind.labelled(options, stage) for stage in kind.stages}
    if recipe.labelled is not None and all(use == "none" for use in uses.values()):
        raise StsbenchError(
            f"labelled acts in no way: {recipe.method} uses no labelled rows by these options; leave it out, or set "
            "semi.procedure (joint, sup-unsup, sup-joint)"
        )
    found = {
        stage: open_data(recipe.stage_data(stage), recipe, kind, options, backbone, folder, say)
        for stage in stages if uses[stage] != "instead"
    }  # fmt: skip
    if any(uses[stage] != "none" for stage in stages):
        settings: DataSettings = recipe.labelled or DataSettings()
        labelled = open_data(settings, recipe, kind, options, backbone, folder, say, what=LABELLED)
        for other in found.values():
            apart(labelled, other.store, other.tokens.roles, other.held_out, say)
            apart(other, labelled.store, labelled.tokens.roles, labelled.held_out, say)
        found[LABELLED] = labelled
    return found


def open_data(settings: DataSettings, recipe: Recipe, kind: type[Method], options: Any, backbone: Backbone, folder: Path,
              say: Callable[[str], None], what: str = "data") -> StageData:  # fmt: skip
    """Read and tokenise a stage's training text, or find it in the cache. what: the recipe's section. Raises DataError."""
    labelled = what == LABELLED
    called = "labelled data" if labelled else "training data"
    if settings.file is None:
        raise DataError(f"no {called}: give a file by --{what} FILE" + (", or labelled.file" if labelled else ""))
    path = Path(settings.file).expanduser()
    if path.exists() and not path.is_file():
        raise DataError(f"the {called} {path} are {'a folder' if path.is_dir() else 'no plain file'}: name a file")
    if not path.is_file():
        raise DataError(f"the {called} {path} are not here: give your copy by --{what} FILE")
    with _of_section(what):
        store = open_store(
            path, format=settings.format, columns=settings.columns, where=settings.where, drop_blank=settings.drop_blank,
            drop_duplicates=settings.drop_duplicates, contiguous=settings.contiguous, log=say,
        )  # fmt: skip
    roles = kind.labelled_roles(options, store.roles) if labelled else kind.roles(options, store.roles)
    say(f"{path.name}: {store.report()}, used as {', '.join(roles)}")
    texts = tuple(role for role in roles if role != "label")
    tokens = tokenised(store, backbone.tokenizer, tokenizer_digest(folder), backbone.max_length, texts, log=say)
    if cut := sum(tokens.truncated.values()):
        say(f"{path.name}: {cut:,} of {len(texts) * len(store):,} texts are cut at {backbone.max_length} tokens")
    numbers = np.arange(len(store), dtype=np.int64)
    seed = recipe.seed if settings.sample_seed is None else settings.sample_seed
    if settings.share < 1:
        numbers = numbers[_draws(store, seed) < settings.share]
        say(f"{path.name}: {len(numbers):,} of {len(store):,} rows, drawn by {what}.share {settings.share:g}, seed {seed}")
        if not len(numbers):
            raise DataError(f"{path}: {what}.share {settings.share:g} leaves no row of {len(store)}: raise it")
    usable = None if labelled else kind.usable(options, TextRows(store, tokens, np.arange(len(store), dtype=np.int64)))
    if usable is not None:
        say(f"{path.name}: {int((~usable).sum())} rows cannot be used by these options (no sentence follows them, say)")
        if store.meta.documents == 1 and len(store) > _ONE_DOCUMENT:
            lines = f"{path.name}: {len(store):,} lines without a blank one between them"
            say(f"warning: {lines}: is it one text whose sentences follow one another?")
        numbers = numbers[usable[numbers]]
    if settings.sample is not None:
        if settings.sample > len(numbers):
            raise DataError(f"{path}: {what}.sample {settings.sample} is more than the {len(numbers)} rows there are")
        numbers = stream(seed, "sample").permutation(numbers)[: settings.sample]
    contrasts = kind.needs_negatives and not labelled
    return _held_out(settings, recipe.seed, contrasts, store, tokens, numbers, what)


@contextlib.contextmanager
def _of_section(what: str) -> Iterator[None]:
    """Let a DataError about the settings that a file is read by name those of this section, not of `data`."""
    try:
        yield
    except DataError as error:
        raise DataError(_OF_DATA.sub(rf"{what}.\1", str(error))) from error


def _draws(store: TextStore, seed: int) -> NDArray[np.float64]:
    """(rows,) uniform on [0, 1): a number for each line of the file, of which a row has that of the line it starts on.

    So a row's is the same in whatever stage or role the file is used, and whatever other rows of it are left out there.
    """
    header = store.settings.format in ("csv", "tsv")
    lines = store.lines - (2 if header else 1)  # from 0: the row's place, where every line is one
    draws: NDArray[np.float64] = stream(seed, "share").random(int(lines[-1]) + 1)[lines]
    return draws


def _held_out(settings: DataSettings, seed: int, contrasts: bool, store: TextStore, tokens: TokenStore,
              numbers: NDArray[np.int64], what: str) -> StageData:  # fmt: skip
    """Rows to train on and rows held out. What is trained on holds no text of a held-out row."""
    path = store.path
    if not settings.held_out:
        return StageData(store, tokens, np.sort(numbers), numbers[:0])
    if settings.held_out >= len(numbers):
        raise DataError(
            f"{path}: {what}.held_out {settings.held_out} leaves no row of {len(numbers)} to train on: "
            f"--set {what}.held_out={max(1, len(numbers) // 10)}"
        )
    if settings.contiguous:
        raise DataError(f"{what}.held_out and {what}.contiguous exclude each other: a row's next sentence may be held out")
    if contrasts and settings.held_out < 2:
        raise DataError(f"{what}.held_out 1: the other rows of a batch are the negatives, so 2 at least")
    order = stream(seed, "held-out rows").permutation(numbers)
    cut = len(numbers) - settings.held_out
    found = StageData(store, tokens, np.sort(order[:cut]), np.sort(order[cut:]))
    found.trained = found.trained[~_known(found, _texts(store, tokens.roles, found.held_out))]
    return found


def apart(data: StageData, store: TextStore, roles: Iterable[str], held_out: NDArray[np.int64],
          say: Callable[[str], None]) -> None:  # fmt: skip
    """Take out of `data` what shares a text with rows that are held out of another file. DataError where none is left."""
    if not len(held_out):
        return
    known = _known(data, _texts(store, roles, held_out))
    if known.any():
        path = data.store.path
        say(f"{path.name}: {int(known.sum()):,} rows left out, with a text that is held out of {store.path.name}")
        data.trained = data.trained[~known]
        if not len(data.trained):
            raise DataError(f"{path}: every row has a text that is held out of {store.path}: other data, or less held out")


def _texts(store: TextStore, roles: Iterable[str], numbers: NDArray[np.int64]) -> set[str]:
    return {text for role in roles for text in store.texts(role, numbers)}


def _known(data: StageData, texts: set[str]) -> NDArray[np.bool_]:
    """(rows trained on,) whether one of their texts is among `texts`."""
    known = np.zeros(len(data.trained), dtype=np.bool_)
    for start in range(0, len(known), _AT_ONCE):
        part = data.trained[start : start + _AT_ONCE]
        for role in data.tokens.roles:
            known[start : start + len(part)] |= [text in texts for text in data.store.texts(role, part)]
    return known


def label_names(data: Mapping[str, StageData], kind: type[Method], options: Any) -> dict[str, str]:
    """LABELS -> the names of the classes that labelled rows are told apart by, in their order, as JSON; {} without any."""
    if LABELLED not in data:
        return {}
    store = data[LABELLED].store
    roles = kind.labelled_roles(options, store.roles)
    names = store.label_names if LABEL in roles else _OF_TRIPLETS if roles == TRIPLET else ()
    return {LABELS: json.dumps(names, ensure_ascii=False)} if names else {}


def digests(data: Mapping[str, StageData]) -> dict[str, str]:
    """What the rows are, by what a user would call them -> sha256."""
    found = {}
    for name, each in data.items():
        both = f"{each.store.digest} {each.tokens.digest} {each.store.label_names}"
        found["labelled data" if name == LABELLED else f"data of stage {name}"] = hashlib.sha256(both.encode()).hexdigest()
    return found
