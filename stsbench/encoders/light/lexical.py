"""Lexical encoders, bags of tokens or characters: the baselines that any trained encoder has to beat.

`lexical:token-set`    binary vector of the distinct tokens of a text, split as bert-base-uncased does before word pieces
`lexical:char-ngrams`  binary vector of the distinct character n-grams of a text, whatever stands between its words
`lexical:tfidf`        scikit-learn's TfidfVectorizer, which must be fitted on named texts first

All give scipy CSR matrices, and none is cached: computing them costs less than reading them back.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import unicodedata
from abc import abstractmethod
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_matrix

from stsbench.data.sets.sentences import unified
from stsbench.encoders.base import Counts, Encoded, Encoder, EncoderOptions, EncoderSpec, Progress
from stsbench.encoders.traits import named_source, shortened
from stsbench.errors import EncoderError
from stsbench.wording import counted


def _spec(name: str, revision: int, options: dict[str, Any]) -> EncoderSpec:
    # There are no weights; raise the revision whenever a change here changes a vector.
    weights = hashlib.sha256(f"stsbench {name} {revision}".encode()).hexdigest()
    return EncoderSpec(name=name, kind="lexical", weights=weights, options=options)


class Lexical(Encoder):
    """The kind `lexical`; the argument names one of its encoders."""

    usage = "lexical:token-set, lexical:char-ngrams, lexical:tfidf"

    cacheable = False

    def counts(self, texts: Sequence[str]) -> Counts:
        """Return 0 parameters."""
        return Counts(0)

    @classmethod
    def load(cls, argument: str, options: EncoderOptions) -> Encoder:
        """Return the encoder `lexical:ARGUMENT`. EncoderError: there is no such encoder, or options are for transformers."""
        options.refuse_changes()
        if argument not in LEXICAL:
            close = difflib.get_close_matches(argument, LEXICAL, n=1)
            known = ", ".join(f"lexical:{name}" for name in LEXICAL)
            hint = f"did you mean 'lexical:{close[0]}'?" if close else f"known are {known}"
            raise EncoderError(f"unknown encoder 'lexical:{argument}'; {hint}")
        return LEXICAL[argument]()


class Bag(Lexical):
    """Binary bag of the tokens that `tokens` returns for a text.

    The vocabulary grows with every call, so a column means the same token in all matrices of one instance; a later
    matrix may be wider than an earlier one (`earlier.resize(...)` widens it). A text without tokens is a zero row.
    """

    def __init__(self) -> None:
        self._columns: dict[str, int] = {}

    @abstractmethod
    def tokens(self, text: str) -> list[str]:
        """Return the tokens of one text, in order, repeats included."""

    def as_timed(self, texts: Sequence[str]) -> Self:
        """Return a copy with a vocabulary of its own."""
        return type(self)()

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Return float32 CSR (n, size of the vocabulary so far), ones at the tokens each text contains."""
        indices, starts = array("q"), array("q", [0])  # lists of numbers take four times the memory
        for text in texts:
            row = {self._columns.setdefault(token, len(self._columns)) for token in self.tokens(text)}
            indices.extend(sorted(row))
            starts.append(len(indices))
        shape = (len(texts), max(1, len(self._columns)))  # never (n, 0): cosine code may not expect it
        at, ends = np.frombuffer(indices, dtype=np.int64), np.frombuffer(starts, dtype=np.int64)
        vectors = csr_matrix((np.ones(len(at), np.float32), at, ends), shape=shape)
        if progress is not None:
            progress(len(texts))
        return Encoded(vectors, np.zeros(len(texts), dtype=bool))


class TokenSet(Bag):
    """Lower-cased tokens, accents stripped, split as BERT's BasicTokenizer does.

    Every ideograph is a token; a phrase in kana or Thai, which have no spaces between words, is a single one, and combining
    vowel signs are stripped with the accents: `CharNgrams` is for those.
    """

    def __init__(self) -> None:
        super().__init__()
        from tokenizers.normalizers import BertNormalizer
        from tokenizers.pre_tokenizers import BertPreTokenizer

        # Every setting stated: BertNormalizer's defaults tie strip_accents to lowercase only implicitly.
        settings = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": True, "lowercase": True}
        self._normalizer = BertNormalizer(**settings)
        self._splitter = BertPreTokenizer()
        self.spec = _spec("lexical:token-set", 1, {"tokens": "bert-pretokenizer", "values": "binary", **settings})

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of one text, in order, repeats included."""
        normal = self._normalizer.normalize_str(text)
        return [token for token, _ in self._splitter.pre_tokenize_str(normal)]


class CharNgrams(Bag):
    """Runs of one to three characters, without case and width, one space for any white space.

    Nothing is cut into words, so that scripts without spaces between words are read like others: two characters are a common
    length of a word written in ideographs, three of a stem elsewhere. Accents and vowel signs count; characters that only
    say how a text is laid out (its direction, where it may break) do not.

    >>> CharNgrams().tokens("ＡＢ　東")
    ['a', 'b', '東', 'ab', 'b ', ' 東', 'ab ', 'b 東']
    """

    lengths = (1, 2, 3)

    def __init__(self) -> None:
        super().__init__()
        about = {"tokens": "character n-grams", "lengths": list(self.lengths), "values": "binary", "lowercase": True}
        self.spec = _spec("lexical:char-ngrams", 1, about)

    def tokens(self, text: str) -> list[str]:
        """Return the n-grams of one text, the shortest first, repeats included; a space alone is none."""
        visible = "".join(letter for letter in unified(text) if letter.isascii() or unicodedata.category(letter) != "Cf")
        plain = " ".join(visible.casefold().split())
        grams = (plain[at : at + length] for length in self.lengths for at in range(len(plain) - length + 1))
        return [gram for gram in grams if gram != " "]


class TfIdf(Lexical):
    """Scikit-learn's TfidfVectorizer with its defaults: lower-cased words of two characters or more, smoothed idf, l2 rows.

    Inverse document frequencies come from `fit`, and what they were fitted on is part of the spec.
    """

    fitted_per_set = True

    def __init__(self, vectorizer: Any = None, fitted_on: str | None = None) -> None:
        options = {"tokens": r"(?u)\b\w\w+\b", "lowercase": True, "idf": "smooth", "norm": "l2", "sublinear_tf": False}
        self._vectorizer = vectorizer
        self.spec = dataclasses.replace(_spec("lexical:tfidf", 1, options), fitted_on=fitted_on)

    def fit(self, texts: Sequence[str], source: str) -> TfIdf:
        """Return a copy fitted on `texts`, known as `source`. Raises EncoderError when the texts hold no word at all."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        try:
            vectorizer = TfidfVectorizer(dtype=np.float32).fit(texts)
        except ValueError as error:
            on = f"{shortened(source)} ({counted(len(texts), 'text')})"
            raise EncoderError(f"lexical:tfidf cannot be fitted on {on}: {error}") from error
        return TfIdf(vectorizer, fitted_on=named_source(texts, source))

    def as_timed(self, texts: Sequence[str]) -> TfIdf:
        """Return a fitted encoder: itself, or a copy fitted on `texts`."""
        return self if self._vectorizer is not None else self.fit(texts, "probe")

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Return float32 CSR (n, size of the fitted vocabulary); words not seen in fitting count for nothing."""
        if self._vectorizer is None:
            raise EncoderError("lexical:tfidf has to be fitted first: encoder.fit(texts, source='what they are')")
        if texts:
            vectors = csr_matrix(self._vectorizer.transform(texts))
        else:  # scikit-learn refuses an empty list
            vectors = csr_matrix((0, len(self._vectorizer.vocabulary_)), dtype=np.float32)
        if progress is not None:
            progress(len(texts))
        return Encoded(vectors, np.zeros(len(texts), dtype=bool))


LEXICAL: dict[str, Callable[[], Encoder]] = {"token-set": TokenSet, "char-ngrams": CharNgrams, "tfidf": TfIdf}
