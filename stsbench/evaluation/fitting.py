"""What `--post` and `--fit-on` ask for: an encoder with a post-processing, and the texts of a set that it is fitted on."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stsbench.data.sets.catalog import entries
from stsbench.data.sets.sets import DataSet, LabelledSet, PairSet, RetrievalSet, fed
from stsbench.encoders.base import Encoder, Progress
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.encoder import PostProcessed, fitted_on_data
from stsbench.encoders.post.source import ListedTexts, vector_format
from stsbench.errors import StsbenchError

TARGET = "target"
_CHOICES = (
    "'target' fits on each data set's own texts, of all its splits and without labels (transductive: the scores are of an "
    "encoder that saw the test sentences); FILE fits once, on a file of sentences or of NLI pairs"
)
_SPLITS = ("train", "dev", "trial", "test")


def check_fitting(post: str, fit_on: str | Path | None) -> None:
    """Raise StsbenchError, one line: nothing to fit on, an unknown post-processing or setting, or no such file."""
    if not Chain.parse(post).needs_texts:
        if fit_on is not None:
            raise StsbenchError(f"--fit-on {fit_on}: the model's own weights determine {post}: leave --fit-on out")
        return
    if fit_on is None:
        raise StsbenchError(f"--post {post} needs --fit-on target or --fit-on FILE: {_CHOICES}")
    if str(fit_on) != TARGET and not Path(fit_on).is_file() and vector_format(Path(fit_on)) is None:
        raise StsbenchError(f"--fit-on {fit_on}: there is no such file; {_CHOICES}")


def post_processed(
    encoder: Encoder, post: str, fit_on: str | Path | None, cache: EmbeddingCache | None, log: Callable[[str], None],
    progress: Callable[[int], Progress] | None = None,
) -> PostProcessed:
    """Return `encoder` with `post`: fitted on a file, for "target" to be fitted set by set, for None made from its weights.

    StsbenchError, one line.
    """
    if encoder.spec.post is not None:
        raise StsbenchError(f"{encoder.spec.name} is post-processed already ({encoder.spec.post}): leave --post out")
    wrapped = PostProcessed(encoder, Chain.parse(post))
    wrapped.use_cache(cache)
    if fit_on is None:
        return wrapped.fit_weights()
    if str(fit_on) == TARGET:
        wrapped.notes = (
            f"{post} is fitted on each set's own texts, the test sentences among them: its scores are transductive",
            *wrapped.notes,
        )
        return wrapped
    fitted = fitted_on_data(wrapped, Path(fit_on), log, progress, post)[0]
    fitted.fitting = lambda base: post_processed(base, post, fit_on, cache, log, progress)
    return fitted


def siblings(set_id: str, text_version: str) -> list[str]:
    """Return the splits that make up a set's data, itself among them, in the catalog's order; of any other set itself alone.

    STS-B: train, dev and test; SICK-R: train, trial and test. A set that holds all of them (SICK-R as MTEB has it, with
    9,927 pairs) has none beside it.
    """
    family, _, split = set_id.partition("/")
    ids = [item.id for item in entries("senteval" if text_version == "sample" else text_version)]
    known = [id for id in ids if id.partition("/")[0] == family and id.partition("/")[2] in _SPLITS]
    return known if split in _SPLITS and set_id in known else [set_id]


def target_texts(data: DataSet, load: Callable[[str], DataSet]) -> ListedTexts:
    """Return every text of the data that a set belongs to, duplicates too and no label: what "target" fits on.

    STS12-16: both sides of the year's scored pairs, all subsets together; STS-B and SICK-R: of all splits. load: a set by
    its id. DataError where a split is missing.
    """
    parts = [data if id == data.id else load(id) for id in siblings(data.id, data.text_version)]
    ids = "+".join(part.id for part in parts)
    digests = [part.digest for part in parts]
    digest = digests[0] if len(parts) == 1 else hashlib.sha256(json.dumps(digests).encode()).hexdigest()
    sides = zip(*(_columns(part) for part in parts), strict=True)
    return ListedTexts([[text for column in side for text in column] for side in sides], f"{ids}@{digest}")


class Targets:
    """`target_texts` of the sets of a run, put together once each."""

    def __init__(self, load: Callable[[str], DataSet]) -> None:
        self._load = load
        self._known: dict[str, ListedTexts] = {}

    def __call__(self, data: DataSet) -> ListedTexts:
        """DataError or StsbenchError, one line: a split is missing, or the texts cannot be seen."""
        key = f"{data.id}@{data.digest}"
        if key not in self._known:
            self._known[key] = target_texts(data, self._load)
        return self._known[key]

    def all(self, sets: Iterable[DataSet]) -> list[str]:
        """Return the distinct texts of these sets and of what they are fitted on; a set that cannot be fitted on is
        skipped."""
        distinct: dict[str, None] = {}
        for data in sets:
            with contextlib.suppress(StsbenchError):  # said when the set is measured
                distinct.update(dict.fromkeys(self(data)))
            distinct.update(dict.fromkeys(data.texts))
        return list(distinct)


def _columns(data: DataSet) -> tuple[Sequence[str], ...]:
    """Return a set's texts as they stand there, by side."""
    if isinstance(data, PairSet):
        return data.first, data.second
    if isinstance(data, LabelledSet):
        return (fed(data.first), fed(data.second)) if data.second else (fed(data.first),)
    if isinstance(data, RetrievalSet):
        return ((*data.queries, *data.corpus),)
    if not data.texts:
        raise StsbenchError(f"{data.id}: --fit-on target cannot see the texts that mteb itself loads; use --fit-on FILE")
    return (data.texts,)
