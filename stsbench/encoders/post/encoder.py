"""An encoder with a post-processing (`--post`), fitted on a file or on the texts of each set (`--fit-on`). The cache holds
the vectors before the post-processing, as without one."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from stsbench.data.sets.catalog import entries
from stsbench.data.sets.sets import DataSet, LabelledSet, PairSet, RetrievalSet, fed
from stsbench.encoders.base import Call, Encoded, Encoder, EncoderSpec, Progress, Wrapper
from stsbench.encoders.cache.cache import EmbeddingCache
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.cache.encode import encode_cached
from stsbench.encoders.post.base import VectorSource
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.source import EncodedTexts, FitTexts, ListedTexts, listed_texts, read_texts, vector_format
from stsbench.encoders.traits import STATE, named_source
from stsbench.errors import EncoderError, StsbenchError
from stsbench.torch_state import fresh_torch
from stsbench.wording import counted

TARGET = "target"
_CHOICES = (
    "'target' fits on each data set's own texts, of all its splits and without labels (transductive: the scores are of an "
    "encoder that saw the test sentences); FILE fits once, on a file of sentences or of NLI pairs"
)
_SPLITS = ("train", "dev", "trial", "test")


class PostProcessed(Wrapper):
    """The encoder `base` with a post-processing, `chain`. Without `fitted_on` it is unfitted: `fit` returns a fitted copy.

    Another k, other texts or another order of steps give another fingerprint. EncoderError: `base` cannot be post-processed.
    """

    cacheable = False  # the vectors of `base` are

    def __init__(self, base: Encoder, chain: Chain, fitted_on: str | None = None) -> None:
        if base.spec.post is not None:
            raise EncoderError(f"{base.spec.name} is post-processed already ({base.spec.post}): leave --post out")
        if base.fitted_per_set:
            raise EncoderError(f"{base.spec.name} is fitted on each set itself: --post does not apply")
        super().__init__(base)
        self.chain, self.fitted_per_set = chain, fitted_on is None
        try:
            self.dimension = None if base.dimension is None else chain.dimension(base.dimension)
        except StsbenchError as error:
            raise EncoderError(str(error)) from error
        options = dict(base.spec.options) if fitted_on is None else {**base.spec.options, STATE: chain.digest()}
        self.spec = replace(base.spec, post=chain.spelled(), fitted_on=fitted_on, options=options)
        self.notes = (*chain.notes, *base.notes)
        self._cache: Any = None
        self._memory: Embed | None = None
        self.fitting: Callable[[Encoder], PostProcessed] | None = None  # fits another base on the same texts

    @property
    def identity(self) -> EncoderSpec:
        """Return the base's identity with this post-processing."""
        named = self.base.identity
        if named is self.base.spec:
            return self.spec
        state = {STATE: self.spec.options[STATE]} if STATE in self.spec.options else {}
        return replace(named, post=self.spec.post, fitted_on=self.spec.fitted_on, options={**named.options, **state})

    def use_cache(self, cache: Any) -> None:
        """Set the cache for the vectors of `base`; None: no cache."""
        self._cache = cache

    def hold(self, texts: Sequence[str], progress: Progress | None = None) -> None:
        """Encode texts with `base` and hold the vectors in memory, so that each set can be fitted on and transformed."""
        self._memory = Embed(self.base, self._cache, progress)
        self._memory.add(texts)

    def fit(self, texts: Sequence[str], source: str) -> PostProcessed:
        """Return a copy fitted on `texts`, known as `source`; ListedTexts may be pairs, whose texts are all fitted on."""
        return self.fit_on(texts if isinstance(texts, ListedTexts) else ListedTexts((texts,), named_source(texts, source)))

    def fit_on(self, texts: FitTexts, progress: Progress | None = None) -> PostProcessed:
        """Return a copy fitted on any number of texts, encoded in blocks. StsbenchError, one line: it cannot be fitted."""
        return self.fit_vectors(EncodedTexts(texts, lambda block: self._encoded(block, progress), self.base))

    def fit_vectors(self, source: VectorSource) -> PostProcessed:
        """Return a copy fitted on vectors of `base`, named `source.name`. StsbenchError, one line: it cannot be fitted."""
        with fresh_torch(gradients=True):  # a flow is trained
            return self._with(self.chain.with_token_weights(self.base).unfitted().fit(source), source.name)

    def fit_weights(self) -> PostProcessed:
        """Return a copy fitted from the weights of `base` alone, without any text. StsbenchError, one line: `chain` needs
        texts."""
        if self.chain.needs_texts:
            raise StsbenchError(f"{self.chain.names} is fitted on texts")
        return self._with(self.chain.with_token_weights(self.base), self.chain.table)

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Return float32 (n, k) vectors of n texts; NaN where the base's are not finite. EncoderError: it is not fitted."""
        if self.spec.fitted_on is None:
            raise EncoderError(f"{self.spec.post} has to be fitted first: encoder.fit(texts, source='what they are')")
        encoded = self._encoded(texts, progress)
        with np.errstate(invalid="ignore"):
            vectors = self.chain.transform(encoded.vectors).astype(np.float32)
        return Encoded(vectors, encoded.truncated)

    def as_timed(self, texts: Sequence[str]) -> Encoder:
        """Return a copy without cached or held vectors; the base's copy alone where the chain is fitted on each
        set."""
        base = self.base.as_timed(texts)
        return base if self.spec.fitted_on is None else PostProcessed(base, self.chain, self.spec.fitted_on)

    def on(self, base: Encoder, call: Call) -> Encoder:
        """Return another base with the same fitted chain (`anew` fits it again)."""
        other = PostProcessed(base, self.chain, self.spec.fitted_on)
        other._cache, other.fitting = self._cache, self.fitting
        return other

    def anew(self) -> Encoder:
        """Return a copy fitted again on the same texts, as the base reads them now; itself where they are not known."""
        if self.fitting is None:
            return self
        other = self.fitting(self.base)
        other.fitting = self.fitting
        return other

    def _with(self, chain: Chain, fitted_on: str) -> PostProcessed:
        fitted = PostProcessed(self.base, chain, fitted_on)
        fitted._cache, fitted._memory = self._cache, self._memory
        return fitted

    def _encoded(self, texts: Sequence[str], progress: Progress | None) -> Encoded:
        if self._memory is not None:
            encoded = Encoded(self._memory(texts), self._memory.truncated(texts))
        else:
            encoded = encode_cached(self.base, texts, self._cache, progress, tolerant=True)
        if issparse(encoded.vectors):
            raise EncoderError(f"{self.base.spec.name} gives sparse vectors, which cannot be post-processed")
        self.take_notes()
        return encoded


def fitted_on_data(
    wrapped: PostProcessed, data: Path | Iterable[str], log: Callable[[str], None],
    progress: Callable[[int], Progress] | None = None, post: str | None = None,
) -> tuple[PostProcessed, int]:
    """Return `wrapped` fitted on texts, on a file of them or on a folder of vectors, and how many texts there are.

    post: what the fit is called in `log`, by default with all its settings. StsbenchError, one line: not readable, or the
    folder holds the vectors of another encoder.
    """
    label = post or wrapped.chain.spelled()
    if isinstance(data, Path) and (folder_format := vector_format(data)):
        stored = folder_format.source(data, wrapped.base)
        log(f"fitting {label} on {stored.name.partition('@')[0]}: {counted(len(stored), 'text')}, whose vectors are read")
        return wrapped.fit_vectors(stored), len(stored)
    texts: FitTexts = read_texts(data, log) if isinstance(data, Path) else listed_texts(data)
    count = texts.items * texts.sides
    log(f"fitting {label} on {texts.name.partition('@')[0]}: {counted(count, 'text')}")
    return wrapped.fit_on(texts, progress(count) if progress else None), count


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
    """Return `encoder` with `post`: fitted on a file; for "target" unfitted, as each set has its fit; for None from weights.

    StsbenchError, one line: it cannot be fitted, or `encoder` has a post-processing already.
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
    """Return the ids of all splits of a set's data, its own among them, in the catalog's order; else its own id alone.

    STS-B: train, dev and test; SICK-R: train, trial and test. A set that holds all of them (SICK-R as MTEB has it, with
    9,927 pairs) has none beside it.
    """
    family, _, split = set_id.partition("/")
    ids = [item.id for item in entries("senteval" if text_version == "sample" else text_version)]
    known = [id for id in ids if id.partition("/")[0] == family and id.partition("/")[2] in _SPLITS]
    return known if split in _SPLITS and set_id in known else [set_id]


def target_texts(data: DataSet, load: Callable[[str], DataSet]) -> ListedTexts:
    """Return every text of the data that a set belongs to, duplicates included, without labels: what "target" fits on.

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
    """The `target_texts` of the sets of a run, made once for each set."""

    def __init__(self, load: Callable[[str], DataSet]) -> None:
        self._load = load
        self._known: dict[str, ListedTexts] = {}

    def __call__(self, data: DataSet) -> ListedTexts:
        """Return a set's `target_texts`. DataError or StsbenchError, one line: a split is missing, or mteb has the texts."""
        key = f"{data.id}@{data.digest}"
        if key not in self._known:
            self._known[key] = target_texts(data, self._load)
        return self._known[key]

    def all(self, sets: Iterable[DataSet]) -> list[str]:
        """Return the distinct texts of these sets and of what they are fitted on; a set that cannot be fitted on is
        skipped."""
        distinct: dict[str, None] = {}
        for data in sets:
            with contextlib.suppress(StsbenchError):  # raised again when the set is measured
                distinct.update(dict.fromkeys(self(data)))
            distinct.update(dict.fromkeys(data.texts))
        return list(distinct)


def _columns(data: DataSet) -> tuple[Sequence[str], ...]:
    """Return a set's texts, duplicates included, by side. StsbenchError: mteb itself loads them."""
    if isinstance(data, PairSet):
        return data.first, data.second
    if isinstance(data, LabelledSet):
        return (fed(data.first), fed(data.second)) if data.second else (fed(data.first),)
    if isinstance(data, RetrievalSet):
        return ((*data.queries, *data.corpus),)
    if not data.texts:
        raise StsbenchError(f"{data.id}: --fit-on target cannot see the texts that mteb itself loads; use --fit-on FILE")
    return (data.texts,)
