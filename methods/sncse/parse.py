"""The released code's rule: a parsed sentence's negation by its first auxiliary or its root."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from stsbench.errors import StsbenchError

MODEL = "en_core_web_sm"
_TAKES_NOT = {"am", "is", "was", "were", "are", "can", "could", "will", "would", "shall", "should", "may", "must", "might"}
_SUPPORT = {"VBP": "do", "VBZ": "does", "VBD": "did"}


class Token(NamedTuple):
    """A word of a parse: its text, dependency label, fine-grained tag and lemma, as spaCy names them."""

    text: str
    dep: str
    tag: str
    lemma: str


def negated(tokens: Sequence[Token]) -> str | None:
    """The negation of a parsed sentence, its tokens joined by blanks; None where no rule fits: `Not` is put in front.

    The first that fits: the first token `not` (so written) is left out; `not` is put behind the first auxiliary (aux,
    auxpass) if that is before the root; behind the root if it is a form of be or a modal; `do not`, `does not` or `did not`
    and the lemma take the root's place, by its tag VBP, VBZ or VBD.
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
        """Raises StsbenchError, one line, without spaCy or the model."""
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
        """The parses of the texts, in their order."""
        for parsed in self._model.pipe(texts):
            yield [Token(str(token), token.dep_, token.tag_, token.lemma_) for token in parsed]
