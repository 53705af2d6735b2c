"""Hypotheses on why B's vectors differ from A's, each as a change of A."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from stsbench.extensions.parity.measures import Floats, turned
from stsbench.extensions.parity.parts import INT8, NO_ADAPTER, NORMALIZE, ROUNDED, has_adapter
from stsbench.extensions.parity.variant import INSIDE, OTHER, TOKENIZERS, Sealed, Variant, Workshop

POOLERS = (
    "cls", "mean", "last", "max", "weighted_mean", INSIDE, "cls+dense", "first_last:layer1", "first_last:embeddings",
    "last2", "cls_avg",
)
# Limits that are a program's default or common choices: tried where other faults hide which texts are cut.
LIMITS = (32, 64, 75, 77, 100, 128, 192, 200, 256, 300, 350, 384, 500, 512, 1024, 2048, 4096, 8192, 32768)
_TOGETHER = 4  # number of modules up to which every subset is tried as missing
_CLOSE = 200  # most limits that are tried between the longest text that agrees and the shortest that does not


@dataclass(frozen=True)
class Hypothesis:
    """One possible difference. kind: of the part; words: what B does if it holds; change: makes A's variant do the same.

    rough: B's vectors cannot be reproduced exactly, as other programs round at other points of the computation.
    """

    kind: str
    words: str
    change: Callable[[Variant], Variant] = field(compare=False)
    rough: bool = False


def hypotheses(shop: Workshop | Sealed, width: int) -> list[Hypothesis]:
    """Return all hypotheses that depend on nothing of B's vectors but their width."""
    if isinstance(shop, Sealed):
        return [*_text("", shop.encoder.traits.prompts), *_finished(width)]
    parts = shop.parts
    return [*_text(parts.prompt, parts.prompts), *_tokens(shop), *_weights(shop), *_vectors(shop), *_finished(width)]


def _text(prompt: str, prompts: Mapping[str, str]) -> Iterator[Hypothesis]:
    if prompt:
        yield _guess("prompt", f"the prompt {prompt!r} is left out", prompt="")
        yield _guess("prompt", f"the prompt {prompt!r} stands before a text twice", prompt=prompt + prompt)
        if prompt.rstrip() != prompt:
            yield _guess("prompt", f"the prompt {prompt!r} has lost the blank at its end", prompt=prompt.rstrip())
    for name, text in prompts.items():
        if text and text != prompt:
            yield _guess("prompt", f"the stored prompt {name!r} ({text!r}) stands before every text", prompt=text)
            words = f"the stored prompt {name!r} ({text!r}) stands before every text twice"
            yield _guess("prompt", words, prompt=text + text)
    yield _guess("case", "texts are lower-cased", lower=True)


def _tokens(shop: Workshop) -> Iterator[Hypothesis]:
    tokenizer, (before, behind) = shop.parts.tokenizer, shop.special()
    first = getattr(tokenizer, "bos_token", None) or getattr(tokenizer, "cls_token", None)
    last = getattr(tokenizer, "eos_token", None) or getattr(tokenizer, "sep_token", None)
    if before:
        yield _guess("special tokens", f"{first} before a text is missing", first=-1)
    if behind:
        yield _guess("special tokens", f"{last} behind a text is missing", last=-1)
    if before and behind:
        yield _guess("special tokens", f"{first} before a text and {last} behind it are missing", first=-1, last=-1)
    if first:
        yield _guess("special tokens", f"{first} stands before a text{' twice' if before else ', where A has none'}",
                     first=1)
    if last:
        yield _guess("special tokens", f"{last} stands behind a text{' twice' if behind else ', where A has none'}", last=1)
    for name in TOKENIZERS:
        if shop.has_tokenizer(name):
            yield _guess("tokenizer", f"the tokenizer {name}", tokens=name)
    if shop.other is not None:
        yield _guess("tokenizer", "the tokenizer is another one", tokens=OTHER)


def _weights(shop: Workshop) -> Iterator[Hypothesis]:
    if has_adapter(shop.parts.model):
        yield _guess("adapter", "the adapter is not applied", weights=NO_ADAPTER)
    for name in ROUNDED:
        yield _guess("precision", f"computed in {name}", rough=True, weights=name)
    for name in INT8:
        yield _guess("precision", name, rough=True, weights=name)
    if shop.other is not None:
        yield _guess("weights", "the weights of the transformer are others", weights=OTHER)


def _vectors(shop: Workshop) -> Iterator[Hypothesis]:
    parts = shop.parts
    if len(parts.poolers) == 1:
        for name in POOLERS:
            if name != parts.poolers[0]:
                yield _guess("pooling", f"pooling is {name} instead of {parts.poolers[0]}", poolers=(name,))
        yield _guess("layer", "the layer before the last is pooled", layer=-2)
    for some in _left_out([name for name, _ in parts.steps]):
        yield Hypothesis("module", some[0], _without(some[1]))
    if parts.post is not None:
        yield _guess("post-processing", f"the post-processing {parts.post.names} is left out", post=False)


def _finished(width: int) -> Iterator[Hypothesis]:
    yield _guess("cut", f"vectors are cut to their first {width} numbers", width=width)
    for name in ROUNDED:
        yield _guess("precision", f"the finished numbers are rounded to {name}", stored=name)


def _guess(kind: str, words: str, rough: bool = False, **change: object) -> Hypothesis:
    return Hypothesis(kind, words, lambda variant: replace(variant, **change), rough)  # type: ignore[arg-type]


def _left_out(names: list[str]) -> Iterator[tuple[str, frozenset[int]]]:
    """Yield sets of steps after the pooling that may be missing, in words and as indices: every subset of up to four steps;
    of more steps each one, and all. A final Normalize changes lengths alone, see `explain.lengths_cause`."""
    last = len(names) - 1 if names and names[-1] == NORMALIZE else len(names)
    shown = [name if names.count(name) == 1 else f"{name} {names[: at + 1].count(name)}" for at, name in enumerate(names)]
    sizes = range(1, last + 1) if last <= _TOGETHER else (1, last)
    for some in (some for size in sizes for some in combinations(range(last), size)):
        words = " and ".join(shown[at] for at in some) if len(some) < last or last == 1 else "all modules"
        if words == "all modules" and last < len(names):
            words = f"all modules but {NORMALIZE}"
        yield f"{words} behind the pooling {'is' if len(some) == 1 else 'are'} left out", frozenset(some)


def _without(numbers: frozenset[int]) -> Callable[[Variant], Variant]:
    return lambda variant: replace(variant, without=variant.without | numbers)


def limits(
    shop: Workshop | Sealed, texts: tuple[str, ...], variant: Variant, b: Floats, distance: Floats, tolerance: float
) -> list[Hypothesis]:
    """Return hypotheses on B's limit of tokens. distance: (n,) between b's vectors and the variant's, which agree up to
    `tolerance`.

    Texts that B does not cut agree, so its limit lies between the longest text that agrees and the shortest that does not,
    for which every limit in between is tried. Where no text agrees, because of other faults, the usual limits are tried.
    """
    if isinstance(shop, Sealed) or bool((distance <= tolerance).all()):
        return []
    lengths, now = np.array(shop.lengths(texts, variant)), variant.cut_limit(shop.parts)
    most, off = shop.parts.positions or 1 << 30, np.flatnonzero(distance > tolerance)
    least = 2
    if now is not None and bool((lengths[off] > now).all()):  # B may have a longer limit of tokens than A
        beyond = replace(variant, limit=most)
        further = _distances(shop, texts, off, beyond, b)
        if bool((further <= tolerance).all()):
            return [_limited(most, True, now)] if int(lengths.max()) > most else [
            _guess("truncation", f"texts are not cut at {now} tokens: each is read whole", limit=most)]
        if bool((further <= tolerance).any()):
            least, off = int(lengths[off[further <= tolerance]].max()), off[further > tolerance]
    shortest = int(off[np.argmin(lengths[off])])
    least = max(least, int(lengths[distance <= tolerance].max(initial=0)) if least == 2 else least)
    between = range(least, int(lengths[shortest]))[:_CLOSE] if len(off) < len(texts) else range(0)
    usual = [size for size in LIMITS if size != now and size <= most and size < int(lengths[shortest])]
    made = [_limited(size, whole, now) for size in usual for whole in (True, False)]
    for whole in (True, False):
        tried = [_limited(size, whole, now) for size in between if size != now]
        distances = [_distances(shop, texts, [shortest], known.change(variant), b)[0] for known in tried]
        if distances and min(distances) <= tolerance:
            made.insert(0, tried[int(np.argmin(distances))])
    return list(dict.fromkeys(made))


def _distances(
    shop: Workshop, texts: tuple[str, ...], rows: Sequence[int] | NDArray[np.intp], variant: Variant, b: Floats
) -> Floats:
    """Return (m,) distances between the variant's and b's vectors of some texts; 2, the largest, where widths differ."""
    vectors, some = shop.vectors([texts[i] for i in rows], variant), b[list(rows)]
    return turned(vectors, some) if vectors is not None and vectors.shape == some.shape else np.full(len(rows), 2.0)


def _limited(size: int, whole: bool, now: int | None) -> Hypothesis:
    stated = "where A has no limit" if now is None else f"instead of {now}"
    end = "" if whole else ", and lose the special token behind them"
    return _guess("truncation", f"texts are cut at {size} tokens {stated}{end}", limit=size, keeps_end=whole)
