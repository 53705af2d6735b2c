"""Text augmentation, by pure functions of words or token ids and a numpy Generator: cropping, word deletion and synonym
replacement; deletion and repetition of tokens; insertion and deletion of tokens with labels for a discriminator; and BERT's
masking."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.data.sets.readers import read_lines
from stsbench.errors import DataError

Row = NDArray[np.int64]
Rows = list[Row]
Ids = Sequence[int] | NDArray[np.integer]
Given = Sequence[Ids]
IGNORED = -100
"""The label of a position that is not predicted: torch's cross-entropy ignores it."""
Thesaurus = dict[str, tuple[str, ...]]  # lower-case word -> its synonyms
_WORD = re.compile(r"(\W*)(.*?)(\W*)", re.DOTALL)  # punctuation, the word itself, punctuation
_ROUNDING = 1e-9  # 0.29 * 100 is 28.999... in floating point


def insert_masks(
    ids: Given,
    special_ids: Iterable[int],
    mask_id: int,
    rng: np.random.Generator,
    ratio: float,
    max_length: int | None = None,
) -> tuple[Rows, Rows]:
    """Return each list of token ids with mask_id inserted at places drawn without replacement, and labels: 1 at inserted
    tokens, 0 elsewhere.

    A row with n tokens that are not special gets ratio * n insertions, rounded to the nearest whole number, halves up; so a
    short row may get none. A place is a gap between two tokens of the row, one of them not special; no gap gets two. Rows
    of more than max_length tokens are cut as the tokenizer cuts them: a special last token stays. Source: Chuang et al.
    (2022), DiffCSE, Table 4, "insert".
    """
    rows = _Flat(ids, special_ids)
    gaps = np.zeros(len(rows.tokens), bool)  # after each token
    gaps[:-1] = rows.joined & (rows.ordinary[:-1] | rows.ordinary[1:])
    chosen = rows.drawn(gaps, np.minimum(rows.shares(ratio), rows.count(gaps)), rng)
    indices = np.flatnonzero(chosen) + 1
    lengths = rows.lengths + rows.count(chosen)
    copies = _split(np.insert(rows.tokens, indices, mask_id), lengths)
    labels = _split(np.insert(np.zeros_like(rows.tokens), indices, 1), lengths)
    if max_length is None:
        return copies, labels
    kept = [_kept_places(len(copy), max_length, last) for copy, last in zip(copies, rows.ends_special(), strict=True)]
    return [row[at] for row, at in zip(copies, kept, strict=True)], [row[at] for row, at in zip(labels, kept, strict=True)]


def delete_tokens(ids: Given, special_ids: Iterable[int], rng: np.random.Generator, ratio: float) -> tuple[Rows, Rows]:
    """Return each list of token ids with some tokens deleted, and labels of those that stay: 1 if the token just before was
    deleted, else 0.

    Of a row's n tokens that are not special, ratio * n are deleted, rounded to the nearest whole number, halves up, but
    never all; special tokens stay, and [SEP] gets a label, too. Source: Chuang et al. (2022), DiffCSE, Table 4, "delete".
    """
    rows = _Flat(ids, special_ids)
    most = np.maximum(rows.count(rows.ordinary) - 1, 0)
    gone = rows.drawn(rows.ordinary, np.minimum(rows.shares(ratio), most), rng)
    labels = np.zeros_like(rows.tokens)
    labels[1:] = rows.joined & gone[:-1]
    lengths = rows.lengths - rows.count(gone)
    return _split(rows.tokens[~gone], lengths), _split(labels[~gone], lengths)


def with_deletions(ids: Ids, rng: np.random.Generator, rate: float = 0.2) -> Row:
    """Return the m ids without round(rate * m) of them, halves to the even number.

    For each deletion one of the remaining ids is drawn (rng.integers(their number)), and the first id of the same value is
    deleted. Source: Wu et al. (2022), PCL, `de` of the authors' code.
    """
    left = np.asarray(ids, np.int64).tolist()
    for _ in range(round(rate * len(ids))):
        left.remove(left[int(rng.integers(len(left)))])
    return np.array(left, np.int64)


def with_repetitions(ids: Ids, rng: np.random.Generator, rate: float = 0.2, most: int | None = None) -> Row:
    """Return the m ids with round(rate * m) repetitions, halves to the even number, `most` at most.

    For each repetition an id of the growing list is drawn (rng.integers(k) of k ids), and inserted before an index from 0 to
    k (rng.integers(k + 1)), not necessarily beside it. Source: Wu et al. (2022), PCL, `rp` of the authors' code.
    """
    grown, count = np.asarray(ids, np.int64).tolist(), round(rate * len(ids))
    for _ in range(count if most is None else min(count, most)):
        repeated = grown[int(rng.integers(len(grown)))]
        grown.insert(int(rng.integers(len(grown) + 1)), repeated)
    return np.array(grown, np.int64)


class _Flat:
    """Concatenated token lists. ordinary: which tokens are not special; joined: which are in the next token's row."""

    def __init__(self, ids: Given, special_ids: Iterable[int]) -> None:
        rows = [np.asarray(row, dtype=np.int64) for row in ids]
        self.lengths = np.array([len(row) for row in rows], np.int64)
        self.tokens = np.concatenate([np.zeros(0, np.int64), *rows])
        self.row_of = np.repeat(np.arange(len(rows)), self.lengths)
        self.ordinary = ~np.isin(self.tokens, list(special_ids))
        self.joined = self.row_of[1:] == self.row_of[:-1]

    def count(self, which: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return how many of each row's tokens are true in `which`."""
        return np.bincount(self.row_of[which], minlength=len(self.lengths))

    def shares(self, ratio: float) -> NDArray[np.int64]:
        """Return the share `ratio` of the number of each row's ordinary tokens, rounded."""
        return np.array([round_share(int(n), ratio) for n in self.count(self.ordinary)], np.int64)

    def drawn(self, candidates: NDArray[np.bool_], counts: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
        """Return a mask with `counts` of each row's candidates, drawn uniformly without replacement."""
        keys = np.where(candidates, rng.random(len(candidates)), np.inf)
        order = np.lexsort((keys, self.row_of))  # each row's candidates in random order, before its other tokens
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - np.searchsorted(self.row_of, self.row_of)
        return rank < counts[self.row_of]

    def ends_special(self) -> list[bool]:
        """Return whether each row's last token is special."""
        ends = np.cumsum(self.lengths)
        return [bool(n) and not self.ordinary[end - 1] for n, end in zip(self.lengths, ends, strict=True)]


def _split(tokens: NDArray[np.int64], lengths: NDArray[np.int64]) -> Rows:
    return np.split(tokens, np.cumsum(lengths)[:-1]) if len(lengths) else []


def _kept_places(length: int, most: int, ends_special: bool) -> NDArray[np.int64]:
    """Return the indices of a row's tokens that stay when it is cut at `most` tokens."""
    indices = np.arange(min(length, most))
    if ends_special and length > most:
        indices[-1] = length - 1
    return indices


def mask_tokens(
    ids: Given, tokenizer: Any, rng: np.random.Generator, probability: float = 0.15, masked: float = 0.8,
    random: float = 0.1, mask_id: int | None = None,
) -> tuple[Rows, Rows]:
    """Return a masked copy of each list of token ids, and its labels: the token at a chosen position, IGNORED elsewhere.

    Every token that is not special is chosen with `probability`, each on its own; of the chosen ones the share `masked`
    becomes mask_id, by default the tokenizer's own, the share `random` an id uniform in [0, V), V tokens being in the
    vocabulary, and the rest stays (Devlin et al. 2019, section 3.1). masked + random must not exceed 1.
    """
    rows = _Flat(ids, tokenizer.all_special_ids)
    chosen = (rng.random(len(rows.tokens)) < probability) & rows.ordinary
    fate = rng.random(len(rows.tokens))
    other = chosen & (fate >= masked) & (fate < masked + random)
    copy = np.where(chosen & (fate < masked), tokenizer.mask_token_id if mask_id is None else mask_id, rows.tokens)
    copy[other] = rng.integers(0, len(tokenizer), int(other.sum()))
    return _split(copy, rows.lengths), _split(np.where(chosen, rows.tokens, IGNORED), rows.lengths)


def crop(words: Sequence[str], rate: float, rng: np.random.Generator) -> list[str]:
    """Return one contiguous span of ceil((1 - rate) * n) of the n words, its start uniform; no words give no words.

    rate: the share cut off, in [0, 1), so that one word stays one word.
    """
    kept = len(words) - int(rate * len(words) + _ROUNDING)
    start = int(rng.integers(0, len(words) - kept + 1))
    return list(words[start : start + kept])


def delete_words(words: Sequence[str], rate: float, rng: np.random.Generator) -> list[str]:
    """Return the n words without round_share(n, rate) of them, drawn without replacement, n - 1 at most."""
    return _without(words, min(round_share(len(words), rate), len(words) - 1), rng)


def delete_one_word(words: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Return the words without one that is drawn uniformly; a single word stays."""
    return _without(words, 1 if len(words) > 1 else 0, rng)


def synonym(words: Sequence[str], thesaurus: Thesaurus, rng: np.random.Generator) -> list[str]:
    """Return the words with one replaced by a synonym: a word that has synonyms, if any, and the synonym drawn uniformly.

    Punctuation around the word stays. The synonym of a capitalised word is capitalised.
    """
    split = [(i, *_parts(word)) for i, word in enumerate(words)]
    candidates = [entry for entry in split if entry[2].lower() in thesaurus]
    changed = list(words)
    if candidates:
        index, before, word, after = candidates[int(rng.integers(len(candidates)))]
        synonyms = thesaurus[word.lower()]
        other = synonyms[int(rng.integers(len(synonyms)))]
        changed[index] = before + (other[0].upper() + other[1:] if word[0].isupper() else other) + after
    return changed


def round_share(count: int, rate: float) -> int:
    """Return rate * count rounded to the nearest whole number, halves up."""
    return int(rate * count + 0.5 + _ROUNDING)


def read_thesaurus(path: Path) -> Thesaurus:
    """Return the thesaurus in a file of rows "word TAB synonym TAB synonym ...". Case is ignored, several rows of a word are
    joined, blank lines skipped.

    Raises DataError naming file and line for a row without a synonym other than the word, or with an empty cell.
    """
    synonyms: dict[str, dict[str, None]] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        word, *alternatives = (cell.strip() for cell in line.split("\t"))
        if not word or not all(alternatives):
            raise DataError(f"{path}:{number}: an empty cell; expected word TAB synonym TAB synonym ...")
        alternatives = [other for other in alternatives if other.lower() != word.lower()]
        if not alternatives:
            raise DataError(f"{path}:{number}: no synonym of '{word}'; expected word TAB synonym TAB synonym ...")
        synonyms.setdefault(word.lower(), {}).update(dict.fromkeys(alternatives))
    if not synonyms:
        raise DataError(f"{path} contains no synonyms; expected rows of word TAB synonym TAB synonym ...")
    return {word: tuple(alternatives) for word, alternatives in synonyms.items()}


def _without(words: Sequence[str], count: int, rng: np.random.Generator) -> list[str]:
    if count < 1:
        return list(words)
    dropped = set(rng.choice(len(words), count, replace=False).tolist())
    return [word for index, word in enumerate(words) if index not in dropped]


def _parts(word: str) -> tuple[str, str, str]:
    match = _WORD.fullmatch(word)
    assert match is not None  # the pattern takes any text
    before, inner, after = match.groups()
    return before, inner, after
