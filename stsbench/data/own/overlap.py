"""Overlap of data with test sets: texts that are equal, or equal except for case and punctuation.

STS-B, including its dev split, is built from STS12-17.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stsbench.data.fetch.sources import load_data
from stsbench.data.sets.sentences import normalise
from stsbench.data.sets.sets import DataSet, LabelledSet, PairSet
from stsbench.errors import DataError

EXAMPLES = 2  # examples for each set and kind, so that exact duplicates do not crowd out the near ones
_BLOCK = 20_000  # training texts that are looked up at a time
KINDS = ("exact", "normalised", "near")
TESTS = (  # ids in the catalog of the sets that the protocols test on
    "sts12/test", "sts13/test", "sts14/test", "sts15/test", "sts16/test", "stsb/test", "sick-r/test", "mr", "cr", "subj",
    "mpqa", "sst2", "trec", "mrpc",
)
PAIRED_TESTS = (*TESTS[:7], "mrpc")  # test sets of pairs


def overlapping_pairs(target: DataSet, others: Sequence[DataSet]) -> NDArray[np.bool_]:
    """Return bool (n,): true where either sentence of a pair occurs in `others`; `target.keep(~mask)` keeps unseen pairs.

    Raises DataError for a set that does not hold scored pairs.
    """
    for item in others:
        _pairs(item)
    target, known = _pairs(target), sentences(others)
    return np.array(
        [normalise(first) in known or normalise(second) in known
         for first, second in zip(target.first, target.second, strict=True)],
        dtype=np.bool_,
    )


def _pairs(item: DataSet) -> PairSet:
    if not isinstance(item, PairSet):
        raise DataError(f"{item.id} holds labelled texts, not scored pairs: only sets of scored pairs are compared")
    return item


def sentences(sets: Iterable[DataSet]) -> set[str]:
    """Return the distinct sentences of `sets`, normalised for comparison."""
    return {normalise(text) for item in sets for text in item.texts} - {""}


@dataclass(frozen=True)
class Example:
    """A training text, on `line`, that matches a test text. similarity: 1, or the Jaccard index of near duplicates."""

    kind: str
    line: int
    training: str
    test: str
    similarity: float = 1.0


@dataclass
class Shared:
    """What one test set shares with a training file: counts of distinct test texts by kind, each counted once, as its
    nearest kind; the number of rows with a shared text; some examples."""

    id: str
    texts: int
    exact: int = 0
    normalised: int = 0
    near: int = 0
    rows: int = 0
    examples: list[Example] = field(default_factory=list)

    @property
    def any(self) -> int:
        """Return the number of distinct test texts that the file shares, of any kind."""
        return self.exact + self.normalised + self.near


def available_tests(
    ids: Sequence[str] = TESTS, *, data_dir: Path | None = None, sample: bool = False, offline: bool = True
) -> tuple[list[DataSet], list[str]]:
    """Return the sets of `ids` that can be loaded, and the ids of those that cannot. Nothing is downloaded with
    `offline`."""
    sets: list[DataSet] = []
    missing = []
    for name in ids:
        try:
            sets.append(load_data(name, data_dir=data_dir, sample=sample, offline=offline))
        except DataError:
            missing.append(name)
    return sets, missing


def shared_texts(
    training: Iterable[tuple[int, str]], tests: Sequence[DataSet],
    lookup: Callable[[Sequence[list[str]]], KnownTexts] | None = None,
) -> list[Shared]:
    """Return what training texts share with each of `tests`, of whose splits only "test" counts where there is one.

    training: (row number, text without white space around it), by which `Shared.rows` and `Example.line` count; lookup: the
    class that compares texts, KnownTexts by default.
    """
    looked_up = (lookup or KnownTexts)([_test_texts(data) for data in tests])
    shared = [Shared(data.id, len(texts)) for data, texts in zip(tests, looked_up.sets, strict=True)]
    nearest: list[dict[int, int]] = [{} for _ in tests]  # for each set: position of a test text -> index into KINDS
    rows: list[set[int]] = [set() for _ in tests]
    texts = iter(training)
    while block := list(islice(texts, _BLOCK)):
        for at, number, kind, similarity in looked_up.matches([text for _, text in block]):
            line, text = block[at]
            owner, position = looked_up.owners[number]
            rows[owner].add(line)
            if kind < nearest[owner].get(position, len(KINDS)):
                nearest[owner][position] = kind
                if sum(example.kind == KINDS[kind] for example in shared[owner].examples) < EXAMPLES:
                    example = Example(KINDS[kind], line, text, looked_up.sets[owner][position], similarity)
                    shared[owner].examples.append(example)
    for result, kinds, lines in zip(shared, nearest, rows, strict=True):
        counts = [sum(kind == number for kind in kinds.values()) for number in range(len(KINDS))]
        result.exact, result.normalised, result.near = counts
        result.rows = len(lines)
    return shared


def refuse_tests(pairs: PairSet, tests: Sequence[DataSet], use: str) -> list[str]:
    """Return a warning for each test set that shares pairs with `pairs`, on which weights are chosen. use: what the warnings
    call `pairs`. Raises DataError where `pairs` hold all pairs of a test set."""
    lines = []
    for test in tests:
        shared, tested = same_pairs(pairs, test)
        if shared and shared == tested:
            raise DataError(f"{pairs.origin} holds the pairs of {test.shown}, a test set: choose the weights on other pairs")
        if shared:
            holds = f"it holds {shared:,} of the {tested:,} pairs of {test.shown}, a test set"
            lines.append(f"{use}: {holds}: a score there is of pairs that chose the weights")
    return lines


def same_pairs(pairs: PairSet, test: DataSet) -> tuple[int, int]:
    """Return how many distinct pairs of a test set are among `pairs`, in either order of the two texts, and how many it
    has; (0, 0) for a set without pairs. Scores and labels are ignored.

    >>> one, other = (PairSet("", "", "own", ("a", "c"), (second, "d"), np.zeros(2), ("all",) * 2) for second in "bx")
    >>> same_pairs(one, other)
    (1, 2)
    """
    if isinstance(test, PairSet):
        tested = set(map(frozenset, zip(test.first, test.second, strict=True)))
    elif isinstance(test, LabelledSet) and test.second:
        rows = zip(test.first, test.second, test.splits, strict=True)
        tested = {frozenset((first, second)) for first, second, split in rows if split == "test"}
    else:
        return 0, 0
    return len(tested & set(map(frozenset, zip(pairs.first, pairs.second, strict=True)))), len(tested)


def _test_texts(data: DataSet) -> list[str]:
    """Return the distinct texts that a set is tested on."""
    if not isinstance(data, LabelledSet) or "test" not in data.splits:
        return list(data.texts)
    sides = [side for side in (data.first, data.second) if side]
    return list(dict.fromkeys(text for side in sides for text, split in zip(side, data.splits, strict=True)
                              if split == "test" and text))


class KnownTexts:
    """Index of the test texts of several sets. owners: number of a text -> (index of its set, position in that set)."""

    def __init__(self, sets: Sequence[list[str]]) -> None:
        self.sets = sets
        self.owners = [(owner, position) for owner, texts in enumerate(sets) for position in range(len(texts))]
        every = [text for texts in sets for text in texts]
        self.plain = [normalise(text) for text in every]
        self.exact: dict[str, list[int]] = {}
        self.normalised: dict[str, list[int]] = {}
        for number, (text, plain) in enumerate(zip(every, self.plain, strict=True)):
            self.exact.setdefault(text.strip(), []).append(number)
            if plain:
                self.normalised.setdefault(plain, []).append(number)

    def matches(self, texts: Sequence[str]) -> Iterator[tuple[int, int, int, float]]:
        """Yield (position in `texts`, number of a test text, index into KINDS, similarity), each pair once."""
        for at, text in enumerate(texts):
            same = self.exact.get(text, [])
            yield from ((at, number, 0, 1.0) for number in same)
            yield from ((at, number, 1, 1.0) for number in self.normalised.get(normalise(text), []) if number not in same)
