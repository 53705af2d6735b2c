"""`vectors:FILE.npz`, `vectors:DIR`: vectors computed elsewhere, in arrays `texts` (n strings) and `vectors` (n, d)."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.base import Encoded, Encoder, EncoderOptions, EncoderSpec, Progress
from stsbench.encoders.post.source import vector_formats
from stsbench.errors import EncoderError, StsbenchError
from stsbench.files import sha256_file, stamp
from stsbench.wording import sized

_MOST_BYTES, _MOST_SHARE = 500_000_000, 50  # what a file may always unpack to, or so many times its size


class StoredVectors(Encoder):
    """Vectors looked up by text, exactly as written. They are not cached: the file is itself a cache."""

    usage = "vectors:FILE.npz, vectors:DIR"

    cacheable = False
    computes_in = "nothing"

    def __init__(self, file: str | Path) -> None:
        self.path = path = Path(file)
        state = stamp(path)
        texts, self._vectors = _read(path)
        self._rows = _rows(path, texts, self._vectors)
        self.dimension = self._vectors.shape[1]
        self.spec = EncoderSpec(name=f"vectors:{path}", kind="vectors", weights=sha256_file(path))
        if stamp(path) != state:
            raise EncoderError(f"{path} changed while it was being read: start again")

    @classmethod
    def load(cls, argument: str, options: EncoderOptions) -> Encoder:
        """Return the encoder of `vectors:FILE.npz`, or of `vectors:DIR`, whose format an extension reads."""
        options.refuse_changes()
        return _of_folder(Path(argument), options.model) if Path(argument).is_dir() else cls(argument)

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Return float32 (n, d). Raises EncoderError naming the first text that is not in the file, and how many are not."""
        missing = [text for text in texts if text not in self._rows]
        if missing:
            raise EncoderError(
                f"{self.path} has no vector for {len(missing)} of {len(texts)} texts, the first: {missing[0]!r} "
                "(texts must match to the letter; is this another text version?)"
            )
        if progress is not None:
            progress(len(texts))
        rows = np.array([self._rows[text] for text in texts], dtype=np.intp)
        return Encoded(self._vectors[rows], np.zeros(len(texts), dtype=bool))


def _of_folder(folder: Path, name: str) -> Encoder:
    """Return the encoder of a folder of vectors. EncoderError, one line: why no installed format can read it."""
    reasons = []
    for folder_format in vector_formats():
        try:
            return folder_format.encoder(folder, name)
        except StsbenchError as error:
            reasons.append(str(error))
    raise EncoderError("; ".join(reasons) or f"{folder} is a folder, and no installed extension reads vectors from folders")


def _read(path: Path) -> tuple[NDArray[np.str_], NDArray[np.float32]]:
    """Return texts (n,) and float32 vectors (n, d) of the file, or an EncoderError saying what is wrong with it."""
    try:
        with path.open("rb") as stream:
            archive_at_all = stream.read(2) == b"PK"
        loaded = np.load(path, allow_pickle=False) if archive_at_all else None
        if not isinstance(loaded, np.lib.npyio.NpzFile):  # a text, or a single array from a .npy file
            raise EncoderError(f"{path} is not an .npz archive with the arrays 'texts' and 'vectors'")
        filled = sum(part.file_size for part in zipfile.ZipFile(path).infolist())  # zipfile unpacks no more than is stated
        if filled > max(_MOST_BYTES, _MOST_SHARE * path.stat().st_size):
            raise EncoderError(f"{path} unpacks to {sized(filled)}, over {_MOST_SHARE} times its size: use np.savez")
        with loaded as archive:
            if lacking := [key for key in ("texts", "vectors") if key not in archive.files]:
                raise EncoderError(f"{path} has no array '{lacking[0]}': it holds {', '.join(archive.files) or 'none'}")
            texts, vectors = archive["texts"], archive["vectors"]
    except OSError as error:
        raise EncoderError(f"cannot read {path}: {error.strerror or error}") from error
    except EncoderError:
        raise
    except ValueError as error:
        # Mostly an object array, which numpy would have to unpickle, and so run code from the file.
        hint = "save texts as np.array(list_of_str), not as dtype=object"
        raise EncoderError(f"cannot read {path}: {error} ({hint})") from error
    except Exception as error:  # zipfile, zlib and numpy have a dozen kinds of errors for a damaged file
        raise EncoderError(f"cannot read {path}, it is damaged: {type(error).__name__}: {error}") from error
    if texts.dtype.kind != "U" or texts.ndim != 1:
        raise EncoderError(f"{path}: 'texts' must be n strings, not {texts.dtype} of shape {texts.shape}")
    if vectors.ndim != 2 or vectors.dtype.kind not in "fiu":
        raise EncoderError(f"{path}: 'vectors' must be (n, d) numbers, not {vectors.dtype} of shape {vectors.shape}")
    if len(texts) != len(vectors):
        raise EncoderError(f"{path}: {len(texts)} texts but {len(vectors)} vectors")
    with np.errstate(over="ignore"):  # what overflows float32 is reported below
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        raise EncoderError(f"{path}: {len(bad)} vectors hold NaN or infinity, the first that of {str(texts[bad[0]])!r}")
    return texts, vectors


def _rows(path: Path, texts: NDArray[np.str_], vectors: NDArray[np.float32]) -> dict[str, int]:
    """Return text -> row. EncoderError: a text occurs twice with different vectors."""
    rows: dict[str, int] = {}
    for row, text in enumerate(texts.tolist()):
        first = rows.setdefault(text, row)
        if first != row and not np.array_equal(vectors[first], vectors[row]):
            raise EncoderError(f"{path}: rows {first} and {row} give different vectors to the same text {text!r}")
    return rows
