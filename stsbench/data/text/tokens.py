"""Token ids of training text, either computed once and kept on disk, or computed for each batch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.data.text.cache import Ragged, RaggedWriter, RowNumbers, built_folder, checked
from stsbench.data.text.rows import VALUES
from stsbench.data.text.store import TextStore
from stsbench.errors import DataError
from stsbench.files import training_cache
from stsbench.wording import counted

META = "meta.json"
_VERSION = 1
_CHUNK = 10_000  # texts that are tokenised at a time
_CHUNK_BYTES = 4 * 1024 * 1024  # limit for chunks of whole texts, which may have any length
Encode = Callable[[list[str]], tuple[list[list[int]], int]]  # texts -> their ids, and the number of truncated texts
_LOOKED_AT = 10_000  # texts of a role from which the share of truncated texts is estimated


def tokenised(
    store: TextStore, tokenizer: Any, tokenizer_digest: str, max_length: int | None, roles: Sequence[str], *,
    log: Callable[[str], None] | None = None, progress: Callable[[int], None] | None = None, cache: Path | None = None,
) -> TokenStore:
    """Return the token ids of all texts of `roles` (except label and score) from a transformers `tokenizer` with truncation,
    kept on disk.

    tokenizer_digest: digest of the tokenizer's files, part of the key under which the ids are kept; max_length: tokens,
    including special ones, or None for whole texts of any length without special tokens (`whole`); log: called with one line
    before texts are tokenised; progress: called with the number of texts just done.
    The tokenizer's stored truncation and padding have no effect and do not change. Raises DataError, one line.
    """
    roles = text_roles(roles)
    if max_length is not None:
        check_max_length(tokenizer, max_length)
    key = tokens_key(store, tokenizer, tokenizer_digest, max_length, roles)

    def build(folder: Path) -> None:
        if log is not None:
            log(f"tokenising {counted(len(roles) * len(store), 'text')} of {store.path} once")
        sha = hashlib.sha256()
        truncated = {}
        with whole(tokenizer) if max_length is None else cutting(tokenizer, max_length) as encode:
            for i, role in enumerate(roles):
                sha.update(f"{role}\n".encode())
                chunks = _chunks(store, role, bounded=max_length is None)
                truncated[role] = _write(store, role, folder, f"ids{i}", encode, sha, chunks, progress)
        meta = {"digest": sha.hexdigest(), "truncated": truncated}
        (folder / META).write_text(json.dumps(meta), encoding="utf-8")

    return TokenStore(built_folder((cache or training_cache()) / "tokens", key, build), roles, max_length)


def text_roles(roles: Sequence[str]) -> tuple[str, ...]:
    """Return those of `roles` that hold texts to tokenise."""
    return tuple(role for role in roles if role not in VALUES)


def check_max_length(tokenizer: Any, max_length: int) -> None:
    """Raise DataError where the special tokens leave no room for a sentence."""
    around = int(tokenizer.num_special_tokens_to_add(pair=False))
    if max_length <= around:
        raise DataError(f"backbone.max_length {max_length} leaves no room for the sentence: {around} tokens are special")


def tokens_key(
    store: TextStore, tokenizer: Any, tokenizer_digest: str, max_length: int | None, roles: Sequence[str]
) -> str:
    """Return the sha256 of all that determines the ids: texts, tokenizer, versions of its libraries, length and roles."""
    import tokenizers
    import transformers

    # Class and special tokens may come from the model's config.json, which the digest of the tokenizer's files leaves out.
    kind = [type(tokenizer).__name__, tokenizer.all_special_ids, tokenizer.cls_token_id, tokenizer.truncation_side]
    versions = [tokenizers.__version__, transformers.__version__]  # a new release may tokenise differently
    parts = [_VERSION, store.digest, tokenizer_digest, kind, max_length, list(roles), versions]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class TokenStore:
    """Token ids of a TextStore's rows, on disk.

    truncated: role -> number of texts that were truncated; digest: sha256 of the ids.
    """

    def __init__(self, folder: Path, roles: Sequence[str], max_length: int | None) -> None:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        self.roles, self.max_length = tuple(roles), max_length
        self.digest: str = meta["digest"]
        self.truncated: dict[str, int] = meta["truncated"]
        self._ids = {role: Ragged(folder, f"ids{i}", "<i4") for i, role in enumerate(roles)}

    def ids(self, role: str, rows: RowNumbers) -> list[NDArray[np.int32]]:
        """Return the token ids of a role's texts, special tokens included, one read-only int32 array per row."""
        ids = self._ids[role]
        return [ids[int(row)] for row in rows]

    def lengths(self, role: str) -> NDArray[np.int64]:
        """Return int64 (n,), the number of tokens of each row's text."""
        return self._ids[role].lengths()

    def highest(self) -> NDArray[np.int32]:
        """Return int32, at most one number per role: the highest id of the role's texts, unless it has no tokens."""
        values = (self._ids[role].values for role in self.roles)
        return np.array([array.max() for array in values if len(array)], dtype=np.int32)


def _chunks(store: TextStore, role: str, bounded: bool) -> Iterator[range]:
    """Yield the store's rows in order, in chunks. bounded: limit also the bytes of a chunk of several texts. Chunks of
    truncated texts have no such limit, as the digest depends on the chunks and must not change."""
    sizes = store.sizes(role) if bounded else np.zeros(len(store), np.int64)
    start = size = 0
    for row, bytes_ in enumerate(sizes.tolist()):
        if row > start and (row - start == _CHUNK or size + bytes_ > _CHUNK_BYTES):
            yield range(start, row)
            start, size = row, 0
        size += bytes_
    yield range(start, len(sizes))


def _write(
    store: TextStore, role: str, folder: Path, name: str, encode: Encode, sha: Any, chunks: Iterator[range],
    progress: Callable[[int], None] | None,
) -> int:
    truncated = 0
    with RaggedWriter(folder, name, "<i4") as writer:
        for rows in chunks:
            ids, cut = encode(store.texts(role, rows))
            lengths = [len(row) for row in ids]
            flat = np.fromiter(chain.from_iterable(ids), np.dtype("<i4"), sum(lengths)).tobytes()
            sha.update(np.asarray(lengths, "<i8").tobytes() + flat)
            writer.add(flat, lengths)
            truncated += cut
            if progress is not None:
                progress(len(rows))
    return truncated


@contextmanager
def cutting(tokenizer: Any, max_length: int) -> Iterator[Encode]:
    """Yield a function that tokenises as transformers does, truncated at `max_length`, without padding, in the block."""
    if not getattr(tokenizer, "is_fast", False):
        yield lambda texts: _slow(tokenizer, texts, max_length)
        return
    backend = tokenizer.backend_tokenizer
    encode_batch = getattr(backend, "encode_batch_fast", backend.encode_batch)  # faster, as it computes no offsets

    def encode(texts: list[str]) -> tuple[list[list[int]], int]:
        encodings = encode_batch(texts)
        return [encoding.ids for encoding in encodings], sum(bool(encoding.overflowing) for encoding in encodings)

    with keep_settings(tokenizer):
        backend.no_padding()
        backend.enable_truncation(max_length, direction=tokenizer.truncation_side)
        yield encode


@contextmanager
def whole(tokenizer: Any) -> Iterator[Encode]:
    """Yield a function that tokenises whole documents: without truncation, padding and special tokens.

    White space becomes single spaces, with one in front, so that byte-level tokenizers such as RoBERTa's split the first
    word as they do within a text.
    """

    def spaced(texts: list[str]) -> list[str]:
        return [" " + " ".join(text.split()) for text in texts]

    if not getattr(tokenizer, "is_fast", False):
        yield lambda texts: (tokenizer(spaced(texts), add_special_tokens=False, verbose=False)["input_ids"], 0)
        return
    backend = tokenizer.backend_tokenizer
    encode_batch = getattr(backend, "encode_batch_fast", backend.encode_batch)
    with keep_settings(tokenizer):
        backend.no_padding()
        backend.no_truncation()
        yield lambda texts: ([encoding.ids for encoding in encode_batch(spaced(texts), add_special_tokens=False)], 0)


@contextmanager
def keep_settings(tokenizer: Any) -> Iterator[None]:
    """Restore a tokenizer's padding and truncation after the block, as each call of a fast tokenizer changes them."""
    if not getattr(tokenizer, "is_fast", False):
        yield
        return
    backend = tokenizer.backend_tokenizer
    stored = backend.truncation, backend.padding
    try:
        yield
    finally:  # other code shares the tokenizer, and its texts must not be truncated silently
        backend.no_truncation() if stored[0] is None else backend.enable_truncation(**stored[0])
        backend.no_padding() if stored[1] is None else backend.enable_padding(**stored[1])


def _slow(tokenizer: Any, texts: list[str], max_length: int) -> tuple[list[list[int]], int]:
    ids = tokenizer(texts, truncation=True, max_length=max_length, padding=False, verbose=False)["input_ids"]
    full = [text for text, row in zip(texts, ids, strict=True) if len(row) == max_length]
    whole = tokenizer(full, padding=False, verbose=False)["input_ids"] if full else []
    return [list(row) for row in ids], sum(len(row) > max_length for row in whole)


class TokensOnDemand:
    """Token ids as in the TokenStore that `tokenised` returns for the same arguments, but computed for each batch.

    digest: sha256 of all that determines the ids (texts, tokenizer, length), not of the ids as in TokenStore; truncated:
    role -> None, as truncated texts are not counted. Raises DataError, one line.
    """

    def __init__(
        self, store: TextStore, tokenizer: Any, tokenizer_digest: str, max_length: int, roles: Sequence[str], *,
        log: Callable[[str], None] | None = None, cache: Path | None = None,
    ) -> None:
        check_max_length(tokenizer, max_length)
        self.roles, self.max_length = text_roles(roles), max_length
        self.digest = tokens_key(store, tokenizer, tokenizer_digest, max_length, self.roles)
        self.truncated: dict[str, int | None] = dict.fromkeys(self.roles)
        self._store, self._tokenizer = store, tokenizer
        self._all: TokenStore | None = None
        self._build: Callable[[], TokenStore] = partial(
            tokenised, store, tokenizer, tokenizer_digest, max_length, self.roles, log=log, cache=cache
        )

    def ids(self, role: str, rows: RowNumbers) -> list[NDArray[np.int32]]:
        """Return the token ids of a role's texts, special tokens included, one read-only int32 array per row."""
        if self._all is not None:
            return self._all.ids(role, rows)
        with cutting(self._tokenizer, self.max_length) as encode:
            ids, _ = encode(self._store.texts(role, checked(rows, len(self._store))))
        arrays = [np.array(row, dtype=np.int32) for row in ids]
        for array in arrays:
            array.flags.writeable = False
        return arrays

    def lengths(self, role: str) -> NDArray[np.int64]:
        """Return int64 (n,), the number of tokens of each row's text; the first call tokenises and stores all texts."""
        if self._all is None:
            self._all = self._build()
        return self._all.lengths(role)

    def share_cut(self) -> float:
        """Return the share, from 0 to 1, of texts truncated at max_length, estimated from evenly spaced rows."""
        rows = np.unique(np.linspace(0, len(self._store) - 1, _LOOKED_AT).astype(np.int64))
        with cutting(self._tokenizer, self.max_length) as encode:
            cut = [encode(self._store.texts(role, rows))[1] for role in self.roles]
        return sum(cut) / (len(cut) * len(rows))


Tokens = TokenStore | TokensOnDemand
