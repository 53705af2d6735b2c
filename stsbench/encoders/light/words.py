"""`words:FILE`: the average of a text's word vectors (GloVe text format), in two named variants.

"Avg. GloVe" rows of different papers are not the same encoder, so the variant is part of the spec:

senteval               SentEval's examples/bow.py: whitespace tokens as they stand, case kept, an empty text is ".",
                       nothing left out; the zero vector when no token is in the file
sentence-transformers  its WhitespaceTokenizer with do_lower_case=False: stop words are dropped; a token is looked up as
                       it stands, then stripped of punctuation, then lower-cased
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np

from stsbench.encoders.base import Encoded, Encoder, EncoderOptions, EncoderSpec, Progress
from stsbench.encoders.light.stopwords import stop_words, words_digest
from stsbench.encoders.light.wordfile import Vector, read_dimension, read_words
from stsbench.errors import EncoderError
from stsbench.files import sha256_file, stamp
from stsbench.wording import counted

VARIANTS = {"senteval": "none", "sentence-transformers": "sentence-transformers"}  # and its stop-word list


class WordAverage(Encoder):
    """Mean of the vectors of the words found. Reads the file once for each set of new words (see `prepare`)."""

    usage = "words:GLOVE.txt"
    dimension: int

    def __init__(self, path: Path, variant: str = "senteval", stop: str | None = None, name: str | None = None) -> None:
        if variant not in VARIANTS:
            raise EncoderError(f"unknown variant '{variant}' of words: choose one of {', '.join(VARIANTS)}")
        if variant == "senteval" and stop not in (None, "none"):
            raise EncoderError("words: the variant 'senteval' leaves no stop words out; drop stop_words or the variant")
        if not path.is_file():
            raise EncoderError(f"no word vectors at {path}: expected a GloVe text file, .gz allowed")
        self.path = path
        self.dimension = read_dimension(path)
        self._variant = variant
        self._stop = stop_words(stop or VARIANTS[variant])
        self._state = stamp(path)
        self._vectors: dict[str, Vector] = {}
        self._looked_up: set[str] = set()  # words looked for already, found or not
        self.spec = EncoderSpec(
            name=name or f"words:{path}",
            kind="words",
            weights=sha256_file(path),
            options={
                "variant": variant,
                "stop_words": stop or VARIANTS[variant],
                "stop_words_sha256": words_digest(self._stop),
            },
        )
        self._check_unchanged()

    @classmethod
    def load(cls, argument: str, options: EncoderOptions) -> WordAverage:
        """`words:PATH` or `words:PATH?variant=sentence-transformers&stop_words=sklearn`."""
        options.refuse_changes()
        path, _, query = argument.rpartition("?")
        if not path or Path(argument).is_file():  # a question mark may be part of a file name
            return cls(Path(argument), name=options.model)
        settings = dict(parse_qsl(query, keep_blank_values=True))
        if unknown := sorted(set(settings) - {"variant", "stop_words"}):
            raise EncoderError(f"{options.model}: unknown option '{unknown[0]}': known are variant and stop_words")
        return cls(Path(path), settings.get("variant", "senteval"), settings.get("stop_words"), options.model)

    def prepare(self, texts: Sequence[str]) -> None:
        """Read the vectors that `texts` need in one pass over the file, so that later calls need none."""
        wanted = {word for text in texts for form in self._forms(text) for word in form} - self._looked_up
        if not wanted:
            return
        self._check_unchanged()
        # A lone surrogate cannot be in a UTF-8 file; surrogatepass turns it into bytes that match nothing.
        vectors, again = read_words(self.path, {word.encode("utf-8", "surrogatepass") for word in wanted}, self.dimension)
        self._check_unchanged()  # while it was read
        self._vectors.update((word.decode("utf-8", "surrogatepass"), vector) for word, vector in vectors.items())
        self._looked_up |= wanted
        self.notes = (*self.notes, self._coverage(texts), *self._doubles(again))

    def _coverage(self, texts: Sequence[str]) -> str:
        """How many tokens have a vector. Few: the file is of another case, language or tokenisation than the texts."""
        hits = [self._lookup(form) is not None for text in texts for form in self._forms(text) if form]
        return f"{self.path}: {sum(hits):,} of {counted(len(hits), 'token')} of the texts have a vector"

    def _doubles(self, again: Sequence[bytes]) -> list[str]:
        if not again:
            return []
        words = "'" + again[0].decode("utf-8", "replace") + "'"
        if len(again) > 1:
            words += f" and {counted(len(again) - 1, 'other word')}"
        return [f"warning: {self.path} lists {words} more than once, with different numbers; the last ones count"]

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """float32 (n, d); summed in float64. A text of which no word is found gets the zero vector."""
        self.prepare(texts)
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            hits = [hit for form in self._forms(text) if (hit := self._lookup(form)) is not None]
            if hits:
                vectors[row] = np.mean(hits, axis=0, dtype=np.float64)
        if progress is not None:
            progress(len(texts))
        return Encoded(vectors, np.zeros(len(texts), dtype=bool))

    def _forms(self, text: str) -> Iterator[tuple[str, ...]]:
        """For each token of a text, the forms to look up, the first found wins; none for a stop word."""
        if self._variant == "senteval":
            yield from ((token,) for token in text.split() or ["."])
            return
        for token in text.split():
            forms: list[str] = []
            stripped = token.strip(string.punctuation)
            for form in (token, stripped, stripped.lower()):
                if form in self._stop:  # ends the search: "the," is dropped, whatever the file holds further on
                    break
                if form:
                    forms.append(form)
            yield tuple(forms)

    def _lookup(self, forms: tuple[str, ...]) -> Vector | None:
        return next((self._vectors[form] for form in forms if form in self._vectors), None)

    def _check_unchanged(self) -> None:
        if stamp(self.path) != self._state:
            raise EncoderError(f"{self.path} has changed since it was opened: its digest no longer names these vectors")
