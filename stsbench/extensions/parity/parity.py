"""Compare two encoders on the same texts: whether their vectors are equal, how far they are apart, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.config import checked_options
from stsbench.encoders.base import Encoder
from stsbench.encoders.load import load_encoder
from stsbench.encoders.options import EncoderOptions
from stsbench.errors import DegenerateError, EncoderError, StsbenchError
from stsbench.evaluation.announce import described_encoder
from stsbench.evaluation.options import split_names
from stsbench.extensions.parity.explain import Cause, Explanation, explain, lengths_cause, reordered
from stsbench.extensions.parity.measures import TOLERANCES, Floats, measure_scores, same_lengths, stretched, turned
from stsbench.extensions.parity.options import ParityOptions, encoder_options
from stsbench.extensions.parity.parts import take_apart
from stsbench.extensions.parity.result import DIFFERENT, EQUAL, SCALED, WIDTHS, Parity, Side
from stsbench.extensions.parity.texts import ProbeTexts
from stsbench.extensions.parity.variant import Sealed, Variant, Workshop, dense
from stsbench.wording import counted

_ALWAYS = ("stsbench", "numpy")  # libraries whose version is stated of every encoder
_ROUGH = TOLERANCES["bfloat16"]
_ALONE = 12  # texts that are first encoded each in a call of its own, before all are


def parity(
    a: Any, b: Any, *, texts: str | Path | Iterable[str] | None = None, a_options: Mapping[str, Any] = MappingProxyType({}),
    b_options: Mapping[str, Any] = MappingProxyType({}), tolerance: str = "float32", why: bool = True,
    protocols: str | Sequence[str] | None = None, tasks: str | Sequence[str] | None = None, margin: float = 0.1,
    resamples: int = 5000, data_dir: str | Path | None = None, sample: bool = False,
) -> Parity:
    """Return whether B gives the vectors of A on the same texts, and if not, why, as `stsbench parity` does.

    a: the reference, best an encoder whose parts are known (a transformer, a sentence-transformers folder); b: any encoder.
    Both are as for `load_encoder`; a_options, b_options: its options, for encoders by name. texts: a file with one text per
    line, or an iterable; default: the package's texts. tolerance: the type whose rounding counts as equal. why: look for the
    causes by changing A part by part until it gives B's vectors. protocols, tasks, data_dir, sample: as for `evaluate`; both
    are measured, and scores are equivalent where the interval of their difference lies within +-margin points.

    Raises StsbenchError, one line, for an encoder that cannot be loaded, no text, or an unknown option.

    >>> import stsbench
    >>> def halves(texts):
    ...     return [[len(text), 1] for text in texts]
    >>> stsbench.parity(halves, lambda texts: [[2 * len(text), 2] for text in texts], texts=["four", "seven"])
    <Parity: equal up to scale; vectors are 2 times as long>
    """
    return compare_encoders(
        a, b, texts, a_options, b_options, tolerance=tolerance, why=why, protocols=protocols, tasks=tasks, margin=margin,
        resamples=resamples, data_dir=data_dir, sample=sample,
    )


def compare_encoders(
    a: Any, b: Any, texts: str | Path | Iterable[str] | None, a_options: Mapping[str, Any], b_options: Mapping[str, Any],
    log: Callable[[str], None] = lambda line: None, **how: Any,
) -> Parity:
    """Return the same as `parity`. log: called with the verdict before the search for its causes begins."""
    names = {name: split_names(how[name]) for name in ("protocols", "tasks")}
    options = checked_options(ParityOptions, "parity", **{**how, **names})
    if not options.margin > 0:
        raise StsbenchError(f"parity: margin={options.margin}: must be more than 0 points")
    probe = ProbeTexts.load(texts)
    asked = [_side_options(side, settings) for side, settings in ((a, a_options), (b, b_options))]
    encoders = [_loaded(side, how) for side, how in zip((a, b), asked, strict=True)]
    (of_a, lost_a), (of_b, lost_b) = (encoded(encoder, probe.texts) for encoder in encoders)
    if lost_a is not None:
        raise EncoderError(f"the reference cannot stand for a correct encoder: {lost_a}")
    level = TOLERANCES[options.tolerance]
    verdict = _verdict(of_a, of_b, level)
    if options.why and verdict != EQUAL:
        log(f"{verdict} on {counted(len(probe.texts), 'text')}; looking for the cause can take minutes (--no-why: without)")
    explanation, remarks = _explained(encoders, probe.texts, of_a, of_b, level) if options.why else (None, ())
    scores, heard = measure_scores(encoders, options) if options.protocols is not None else ((), ())
    notes = tuple(filter(None, [*remarks, lost_b, *heard]))
    return Parity(
        (_side(encoders[0]), _side(encoders[1])), probe, options.tolerance, level, verdict, of_a, of_b, explanation, scores,
        notes,
    )


def encoded(encoder: Encoder, texts: Sequence[str]) -> tuple[Floats, str | None]:
    """Return float64 (n, d) vectors of n distinct texts, and the reason where some are not finite, else None."""
    try:
        vectors = dense(encoder.run(texts).vectors)
    except DegenerateError as error:
        return _encode_single(encoder, texts), str(error)
    lost = int((~np.isfinite(vectors).all(1)).sum())
    return vectors, f"{encoder.spec.name} returned NaN or infinity for {lost} of {len(texts)} texts" if lost else None


def _encode_single(encoder: Encoder, texts: Sequence[str]) -> Floats:
    rows: list[Floats | None] = []
    for text in texts:
        try:
            rows.append(dense(encoder.run([text]).vectors)[0])
        except DegenerateError:
            rows.append(None)
    width = next((len(row) for row in rows if row is not None), encoder.dimension or 1)
    return np.stack([np.full(width, np.nan) if row is None else row for row in rows])


def _side_options(side: Any, settings: Mapping[str, Any]) -> EncoderOptions | None:
    """Return the options of an encoder by name; None for a loaded one. Raises StsbenchError for options of a loaded one."""
    if isinstance(side, str | Path):
        return encoder_options(str(side), settings)
    if settings:
        raise StsbenchError(f"parity: {', '.join(settings)} would have no effect on an encoder that is loaded: set it there")
    return None


def _loaded(side: Any, options: EncoderOptions | None) -> Encoder:
    encoder = load_encoder(side) if options is None else load_encoder(side, options)
    if encoder.fitted_per_set and encoder.spec.fitted_on is None:
        raise EncoderError(f"{encoder.spec.name} is fitted on the texts of each set: it has no vectors of its own")
    encoder.ready()
    return encoder


def _verdict(a: Floats, b: Floats, tolerance: float) -> str:
    if a.shape != b.shape:
        return WIDTHS
    if (turned(a, b) > tolerance).any() or not np.isfinite(b).all():
        return DIFFERENT
    return EQUAL if same_lengths(a, b, tolerance) else SCALED


def _explained(
    encoders: Sequence[Encoder], texts: tuple[str, ...], a: Floats, b: Floats, tolerance: float
) -> tuple[Explanation | None, tuple[str, ...]]:
    """Return the explanation of B's vectors, None where they are equal, and remarks on vectors that are not reproducible and
    on changes that could not be tried.

    Both encoders first encode the texts again, together and each alone: vectors that depend on the batch are replaced."""
    equal = _verdict(a, b, tolerance) == EQUAL
    off = np.flatnonzero(turned(a, b) > tolerance) if a.shape == b.shape else np.zeros(0, np.intp)
    off = off if len(off) else np.arange(len(texts))
    sides, unsteady = list[Floats](), list[Cause]()
    for letter, encoder, vectors in zip("AB", encoders, (a, b), strict=True):
        steady, cause = _steady(letter, encoder, texts, vectors, off, tolerance)
        sides.append(steady)
        unsteady += [] if cause is None else [cause]
    if equal:
        return None, tuple(map(str, unsteady))
    if any(cause.kind == "draws" for cause in unsteady):
        return Explanation(tuple(unsteady), tried=("the same texts once more",)), ()
    a, b = sides
    shop, remark = workshop(encoders[0], encoders[1], texts, a)
    verdict = _verdict(a, b, tolerance)
    if verdict == EQUAL:
        return Explanation(tuple(unsteady), 0.0, ("each text alone",)), ()
    if verdict == SCALED:
        last = lengths_cause(shop, texts, Variant(), a, a, b, tolerance)
        causes = () if last is None or not last.certain else (last,)
        explanation = Explanation(causes, 0.0, ("vectors are not normalised", "vectors are scaled"))
    else:
        explanation = explain(shop, texts, a, b, tolerance, _ROUGH)
    if unsteady and not explanation.causes:  # a part of the differences has no cause
        return explanation, (*map(str, unsteady), remark)
    return replace(explanation, causes=(*unsteady, *explanation.causes)), (remark,)


def _steady(
    letter: str, encoder: Encoder, texts: tuple[str, ...], vectors: Floats, off: NDArray[np.intp], tolerance: float
) -> tuple[Floats, Cause | None]:
    """Return a side's vectors, of each text alone where they depend on the batch, and the cause if they are not
    reproducible: two calls differ, or the vectors depend on the batch. off: indices of the texts to check."""
    try:
        second, _ = encoded(encoder, texts)
        if (by := _moved(vectors, second)) > tolerance:
            return vectors, Cause("draws", f"{letter} draws: two calls for the same texts differ, by up to {by:.2g}")
        by_length = off[np.argsort([len(texts[at]) for at in off], kind="stable")]
        some = by_length[np.linspace(0, len(off) - 1, min(_ALONE, len(off))).round().astype(int)]
        if _moved(vectors[some], _encode_single(encoder, [texts[at] for at in some])) <= tolerance:
            return vectors, None
        alone = _encode_single(encoder, texts)
    except EncoderError:  # it may need several texts
        return vectors, None
    if reordered(alone, vectors, tolerance):
        return vectors, None
    by = _moved(vectors, alone)
    return alone, Cause("batch", f"{letter}'s vectors depend on the batch: a text's alone and among the others are up to "
                                 f"{by:.2g} apart")


def _moved(vectors: Floats, changed: Floats) -> float:
    """Return the largest difference between two sets of vectors of the same texts, in direction or relative length."""
    if vectors.shape != changed.shape:
        return np.inf
    ratio = stretched(vectors, changed)
    ratio = np.abs(ratio[np.isfinite(ratio)] - 1)
    return float(max(turned(vectors, changed).max(initial=0), ratio.max(initial=0)))


def workshop(
    a: Encoder, b: Encoder, texts: tuple[str, ...], vectors: Floats
) -> tuple[Workshop | Sealed, str]:
    """Return the maker of variants of `a`, whose vectors are given, and a remark where its parts are not known or do not
    reproduce the vectors."""
    parts = take_apart(a)
    if parts is None:
        return Sealed(a), f"the parts of A ({a.spec.name}) are not known: little could be tried"
    shop = Workshop(parts, take_apart(b))
    again = shop.vectors(texts, Variant())
    level = TOLERANCES[a.spec.dtype if a.spec.dtype in TOLERANCES else "float32"]
    if again is None or again.shape != vectors.shape or (turned(again, vectors) > level).any():
        return Sealed(a), f"the parts of A ({a.spec.name}) do not give its vectors: little could be tried"
    return shop, ""


def _side(encoder: Encoder) -> Side:
    spec = encoder.identity
    libraries = {name: text for name in (*_ALWAYS, *encoder.traits.libraries) if (text := _version(name))}
    words = described_encoder(encoder).removeprefix("encoder ")
    return Side(spec.name, words, spec, encoder.dimension, encoder.engine, libraries, tuple(encoder.notes))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
