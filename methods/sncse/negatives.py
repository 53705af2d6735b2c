"""Soft negatives: each sentence's negation, by the released rule, a file or verb lists, and how many have none."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from stsbench.data.sets.readers import read_lines
from stsbench.encoders.prompt.template import with_full_stop
from stsbench.errors import DataError, StsbenchError
from stsbench.files import sha256_file
from stsbench.wording import counted

from . import verbs
from .options import SNCSEOptions

Reason = Literal["source", "unknown", "full stop"]
MODEL = "en_core_web_sm"
_TAKES_NOT = {"am", "is", "was", "were", "are", "can", "could", "will", "would", "shall", "should", "may", "must", "might"}
_SUPPORT = {"VBP": "do", "VBZ": "does", "VBD": "did"}


class Negatives:
    """The negations of sentences by `options.negation` and `options.lookup`.

    A sentence without one gets "Not " in front, as in the released code: where no form of the rule fits, in front of its
    tokens, joined by blanks. `count` says how many those are, and why: the file or the rule has none for the line
    ("unknown"), or the lookup is by the sentence behind which a full stop was put, and so by another text than the line
    ("full stop").
    """

    def __init__(self, options: SNCSEOptions) -> None:
        """Raise StsbenchError, one line: no spaCy for the rule, a file that cannot be read."""
        self.options = options
        self.table: dict[str, str] = {}
        self.unfit: set[str] = set()  # lines of the table that no form of the rule fits
        self.parser = Parser() if options.negation == "rule" else None
        if options.negation == "file":
            self.table = read_pairs(Path(options.negations or ""))
        self.counted: Counter[Reason] = Counter()

    def __call__(self, lines: Sequence[str]) -> list[str]:
        """Return the negation of each line, with a full stop behind it by `options.full_stop`."""
        stop = stop_rule(self.options)
        return [with_full_stop(negation, stop) for negation, _ in self._all(lines)]

    def count(self, lines: Sequence[str]) -> None:
        """Add these lines to what `report` tells."""
        self.counted.update(reason for _, reason in self._all(lines))

    def report(self) -> list[str]:
        """Return a line for people on where the negations of the counted lines are from; none before any was counted."""
        total = self.counted.total()
        if not total:
            return []
        options = self.options
        source = {"rule": "the released rule", "verbs": "verb lists", "file": str(options.negations)}[options.negation]
        if self.parser is not None:
            source += f" ({self.parser.version})"
        why: dict[Reason, str] = {
            "unknown": "that it lacks" if options.negation == "file" else "without a verb that it knows",
            "full stop": "looked up behind a full stop (options.lookup after_full_stop)",
        }
        reasons = [f"{_share(number, total)} {words}" for reason, words in why.items() if (number := self.counted[reason])]
        rest = f'; "Not " in front of {" and of ".join(reasons)}' if reasons else ""
        known = self.counted["source"]
        return [f"soft negatives of {counted(total, 'sentence')}: {_share(known, total)} by {source}{rest}"]

    def inputs(self) -> dict[str, str]:
        """Return the file's sha256, or a digest of the parser's versions."""
        if self.options.negation == "file":
            return {"negations": sha256_file(Path(self.options.negations or ""))}
        if self.parser is not None:
            return {"parser": hashlib.sha256(self.parser.version.encode()).hexdigest()}
        return {}

    def _all(self, lines: Sequence[str]) -> list[tuple[str, Reason]]:
        stop = stop_rule(self.options)
        sentences = [with_full_stop(line, stop) for line in lines]
        stripped = [line.strip() for line in lines]
        keys = stripped if self.options.lookup == "line" else sentences
        results: list[tuple[str, Reason]] = []
        for sentence, key, line, negation in zip(sentences, keys, stripped, self._looked_up(keys, stripped), strict=True):
            if negation is not None:
                results.append((negation, "unknown" if line in self.unfit else "source"))
            else:
                results.append((f"Not {sentence}", "unknown" if key == line else "full stop"))
        return results

    def _looked_up(self, keys: Sequence[str], lines: Sequence[str]) -> list[str | None]:
        """Return the negations of the stripped `lines` by their `keys`: None where the two differ, or there is none."""
        if self.options.negation == "file":
            return [self.table.get(key) for key in keys]
        if self.parser is not None:
            lacking = [line for key, line in zip(keys, lines, strict=True) if key == line and line not in self.table]
            for line, tokens in zip(lacking, self.parser(lacking), strict=True):
                if (negation := negated(tokens)) is None:
                    self.unfit.add(line)
                    negation = " ".join(["Not", *(token.text for token in tokens)])
                self.table[line] = negation
            return [self.table[line] if key == line else None for key, line in zip(keys, lines, strict=True)]
        return [verbs.negated(line) if key == line else None for key, line in zip(keys, lines, strict=True)]


def stop_rule(options: SNCSEOptions) -> Literal["punctuation32", False]:
    """Return `options.full_stop` as `with_full_stop` and Prompt have it."""
    return "punctuation32" if options.full_stop == "punctuation32" else False


def read_pairs(path: Path) -> dict[str, str]:
    """Return sentence -> negation, of a file of JSON lines [sentence, negation]; blank lines are skipped, a later line
    holds.

    Raises DataError, one line, naming file and line.
    """
    pairs: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            sentence, negation = json.loads(line)
        except (ValueError, TypeError):
            sentence = negation = None
        if not isinstance(sentence, str) or not isinstance(negation, str) or not negation.strip():
            raise DataError(f'{path}:{number}: not a pair of texts; expected ["sentence", "negation"] in JSON')
        pairs[sentence] = negation
    if not pairs:
        raise DataError(f'{path} contains no pairs; expected JSON lines ["sentence", "negation"]')
    return pairs


def _share(part: int, total: int) -> str:
    return f"{part:,} ({100 * part / total:.1f} %)"


class Token(NamedTuple):
    """A word of a parse: its text, dependency label, fine-grained tag and lemma, as spaCy names them."""

    text: str
    dep: str
    tag: str
    lemma: str


def negated(tokens: Sequence[Token]) -> str | None:
    """Return the negation of a parsed sentence, its tokens joined by blanks; None where no rule fits: `Not` is put in front.

    The released code's rule, by the first auxiliary or the root. The first that fits: the first token `not` (so written) is
    left out; `not` is put behind the first auxiliary (aux, auxpass) if that is before the root; behind the root if it is a
    form of be or a modal; `do not`, `does not` or `did not` and the lemma take the root's place, by its tag VBP, VBZ or VBD.
    Source: Wang et al. (2022), SNCSE, generate_soft_negative_samples.py.

    >>> parse = [("He", "nsubj", "PRP", "he"), ("left", "ROOT", "VBD", "leave"), (".", "punct", ".", ".")]
    >>> negated([Token(*word) for word in parse])
    'He did not leave .'
    """
    words = [token.text for token in tokens]
    if "not" in words:
        words.remove("not")
        return " ".join(words)
    at = next((i for i, token in enumerate(tokens) if token.dep in ("aux", "auxpass", "ROOT")), None)
    if at is None:
        return None
    token = tokens[at]
    if token.dep != "ROOT" or token.text.lower() in _TAKES_NOT:
        words[at] = f"{token.text} not"
    elif token.tag in _SUPPORT:
        words[at] = f"{_SUPPORT[token.tag]} not {token.lemma}"
    else:
        return None
    return " ".join(words)


class Parser:
    """spaCy's English model en_core_web_sm, if it is installed."""

    def __init__(self) -> None:
        """Load the model. Raises StsbenchError, one line, without spaCy or the model."""
        try:
            import spacy

            self._model: Any = spacy.load(MODEL)
        except (ImportError, OSError) as error:  # OSError: no such model
            raise StsbenchError(
                f"options.negation rule needs spaCy and its model {MODEL} (pip install spacy; python -m spacy download "
                f"{MODEL}): set options.negation to verbs, a rule without a parser, or to file with options.negations"
            ) from error
        self.version = f"spaCy {spacy.__version__}, {MODEL} {self._model.meta['version']}"

    def __call__(self, texts: Sequence[str]) -> Iterator[list[Token]]:
        """Yield the parses of the texts, in their order."""
        for parsed in self._model.pipe(texts):
            yield [Token(str(token), token.dep_, token.tag_, token.lemma_) for token in parsed]
