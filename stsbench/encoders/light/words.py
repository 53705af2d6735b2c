"""`words:FILE`: the average of a text's word vectors (GloVe text format), in two named variants.

"Avg. GloVe" rows of different papers are not the same encoder, so the variant is part of the spec:

senteval               SentEval's examples/bow.py: whitespace tokens as they stand, case kept, an empty text is ".",
                       nothing left out; the zero vector when no token is in the file
sentence-transformers  its WhitespaceTokenizer with do_lower_case=False: stop words are dropped; a token is looked up as
                       it stands, then stripped of punctuation, then lower-cased
"""

from __future__ import annotations

import gzip
import hashlib
import string
import zlib
from collections.abc import Iterator, Sequence, Set
from functools import partial
from pathlib import Path
from typing import IO, cast
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.base import Encoded, Encoder, EncoderOptions, EncoderSpec, Progress
from stsbench.errors import EncoderError
from stsbench.files import sha256_file, stamp
from stsbench.wording import counted

# What sentence-transformers' WordTokenizer drops beyond scikit-learn's 318 words: every ASCII punctuation mark, the two
# Penn Treebank quotes, and these, mostly what is left of contractions (checked against its 386 entries in the tests).
_CONTRACTIONS = (
    "ain", "aren", "couldn", "d", "did", "didn", "does", "doesn", "doing", "don", "hadn", "hasn", "haven", "having",
    "isn", "just", "ll", "m", "ma", "mightn", "mustn", "needn", "o", "s", "shan", "shouldn", "t", "theirs", "ve", "wasn",
    "weren", "won", "wouldn", "y",
)

STOP_WORD_LISTS = ("none", "sklearn", "sentence-transformers")
Vector = NDArray[np.float32]
WIDEST = 65_536  # most numbers of a vector, so that no file can fill the memory
LONGEST = 32 * WIDEST  # most bytes of a line
_MARK = b"\xef\xbb\xbf"  # some editors begin a UTF-8 file with it; it is not a part of the first word
VARIANTS = {"senteval": "none", "sentence-transformers": "sentence-transformers"}  # variant -> its stop-word list


def stop_words(name: str) -> frozenset[str]:
    """Return the stop words of the list called `name`. EncoderError: there is no such list."""
    if name == "none":
        return frozenset()
    if name not in STOP_WORD_LISTS:
        raise EncoderError(f"unknown stop-word list '{name}': choose one of {', '.join(STOP_WORD_LISTS)}")
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    words = frozenset(ENGLISH_STOP_WORDS)
    return words if name == "sklearn" else words.union(_CONTRACTIONS, string.punctuation, ("``", "''"))


def open_words(path: Path) -> IO[bytes]:
    """Return the file, unpacked if its name ends in .gz; as bytes, since words hold characters str takes for line ends."""
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def read_dimension(path: Path) -> int:
    """Return the width of the vectors, from the word2vec header line or the first line. EncoderError if there are none."""
    try:
        with open_words(path) as stream:
            first = stream.readline(LONGEST).removeprefix(_MARK).rstrip(b" \r\n")
            header = header_dimension(first)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error
    width = first.count(b" ") if header is None else header
    if width < 1:
        raise EncoderError(f"{path}:1: no word vector: expected a word and its numbers, separated by spaces")
    if width > WIDEST:
        raise EncoderError(f"{path}:1: vectors of more than {WIDEST:,} numbers are not read")
    return width


def header_dimension(line: bytes) -> int | None:
    """Return the d of a word2vec header line `count d`; None for any other line."""
    fields = line.split(b" ")
    return int(fields[1]) if len(fields) == 2 and all(field.isdigit() and len(field) < 19 for field in fields) else None


def read_words(path: Path, tokens: Set[bytes], dimension: int) -> tuple[dict[bytes, Vector], list[bytes]]:
    """Return float32 (d,) vectors of those `tokens` words (UTF-8, without spaces) that the file has, and which of them it
    lists again with other numbers.

    A word listed twice takes its last vector, as SentEval and sentence-transformers do. Raises EncoderError naming file
    and line when a line is too short anywhere, or when a wanted word's numbers are not finite.
    """
    vectors: dict[bytes, Vector] = {}
    again: dict[bytes, None] = {}
    try:
        with open_words(path) as stream:
            for number, raw in enumerate(iter(partial(stream.readline, LONGEST), b""), start=1):
                if len(raw) == LONGEST:
                    raise EncoderError(f"{path}:{number}: the line is longer than {LONGEST:,} bytes: not read")
                line = (raw.removeprefix(_MARK) if number == 1 else raw).rstrip(b" \r\n")
                if not line or (number == 1 and header_dimension(line) is not None):
                    continue
                if line.count(b" ") < dimension:
                    count = line.count(b" ")
                    raise EncoderError(f"{path}:{number}: {count} numbers after the word, expected {dimension}")
                # A word with a space in it (840B has ". . .") cannot equal a wanted one, but its first part can.
                word, _, rest = line.partition(b" ")
                if word in tokens:
                    vector = _numbers(path, number, rest, dimension)
                    if vector is None:
                        continue
                    if word in vectors and not np.array_equal(vectors[word], vector):
                        again[word] = None
                    vectors[word] = vector
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error
    return vectors, list(again)


def _numbers(path: Path, number: int, rest: bytes, dimension: int) -> Vector | None:
    """Return the last d fields as float32 (d,); None if the fields before them show that the word itself holds spaces."""
    fields = rest.split(b" ")
    if len(fields) > dimension:
        if not _is_number(fields[-dimension - 1]):
            return None
        raise EncoderError(f"{path}:{number}: {len(fields)} numbers after the word, expected {dimension}")
    try:
        vector = np.array([float(field) for field in fields], dtype=np.float32)
    except ValueError as error:
        raise EncoderError(f"{path}:{number}: not a number among the values: {error}") from error
    if not np.isfinite(vector).all():
        raise EncoderError(f"{path}:{number}: a value is infinite or not a number")
    return vector


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _unreadable(path: Path, error: BaseException) -> EncoderError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return EncoderError(f"cannot read word vectors from {path}: {reason}")


class WordAverage(Encoder):
    """Mean of a text's word vectors. The file is read once for each set of new words (see `prepare`)."""

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
        words = hashlib.sha256("\n".join(sorted(self._stop)).encode()).hexdigest()  # a library may edit its list
        about = {"variant": variant, "stop_words": stop or VARIANTS[variant], "stop_words_sha256": words}
        self.spec = EncoderSpec(name=name or f"words:{path}", kind="words", weights=sha256_file(path), options=about)
        self._check_unchanged()

    @classmethod
    def load(cls, argument: str, options: EncoderOptions) -> WordAverage:
        """Return the encoder of `words:PATH` or `words:PATH?variant=sentence-transformers&stop_words=sklearn`."""
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
        self._check_unchanged()  # it may have changed while it was read
        self._vectors.update((word.decode("utf-8", "surrogatepass"), vector) for word, vector in vectors.items())
        self._looked_up |= wanted
        # A low coverage shows that the file differs from the texts in case, language or tokenisation.
        hits = [self._lookup(form) is not None for text in texts for form in self._forms(text) if form]
        coverage = f"{self.path}: {sum(hits):,} of {counted(len(hits), 'token')} of the texts have a vector"
        self.notes = (*self.notes, coverage, *self._doubles(again))

    def _doubles(self, again: Sequence[bytes]) -> list[str]:
        if not again:
            return []
        words = "'" + again[0].decode("utf-8", "replace") + "'"
        if len(again) > 1:
            words += f" and {counted(len(again) - 1, 'other word')}"
        return [f"warning: {self.path} lists {words} more than once, with different numbers; the last ones count"]

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Return float32 (n, d); summed in float64. A text of which no word is found gets the zero vector."""
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
        """Yield for each token of a text the forms to look up, of which the first found counts; none for a stop word."""
        if self._variant == "senteval":
            yield from ((token,) for token in text.split() or ["."])
            return
        for token in text.split():
            forms: list[str] = []
            stripped = token.strip(string.punctuation)
            for form in (token, stripped, stripped.lower()):
                if form in self._stop:  # ends the search: "the," is dropped unless the file has it as it stands
                    break
                if form:
                    forms.append(form)
            yield tuple(forms)

    def _lookup(self, forms: tuple[str, ...]) -> Vector | None:
        return next((self._vectors[form] for form in forms if form in self._vectors), None)

    def _check_unchanged(self) -> None:
        if stamp(self.path) != self._state:
            raise EncoderError(f"{self.path} has changed since it was opened: its digest no longer names these vectors")
