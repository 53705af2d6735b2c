"""Token ids of training text: computed once and kept on disk, or when a batch asks for them."""

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
_CHUNK = 10_000  # texts handed to the tokenizer at a time
_CHUNK_BYTES = 4 * 1024 * 1024  # texts that are not cut may have any length
Encode = Callable[[list[str]], tuple[list[list[int]], int]]  # texts -> their ids, and how many were cut
_LOOKED_AT = 10_000  # texts of a role that the share of those cut is estimated from


def tokenised(
    store: TextStore, tokenizer: Any, tokenizer_digest: str, max_length: int | None, roles: Sequence[str], *,
    log: Callable[[str], None] | None = None, progress: Callable[[int], None] | None = None, cache: Path | None = None,
) -> TokenStore:
    """Return token ids of every text of `roles` (but label and score), as the transformers `tokenizer` gives them with
    truncation.

    tokenizer_digest: of the tokenizer's files, part of the key under which the ids are kept; max_length: tokens, special
    ones included, or None for the word pieces of whole texts, however long, without special tokens (`whole`); log: called
    with one line when there is something to tokenise; progress: called with the number of texts just done.
    The tokenizer's stored truncation and padding have no effect and are left as they were. Raises DataError, one line.
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
    """Return sha256 over all that the ids follow from: the texts, the tokenizer and its versions, the length, the roles."""
    import tokenizers
    import transformers

    # The class and its special tokens may come from the model's config.json, which is not a file of the tokenizer.
    kind = [type(tokenizer).__name__, tokenizer.all_special_ids, tokenizer.cls_token_id, tokenizer.truncation_side]
    versions = [tokenizers.__version__, transformers.__version__]  # a new release may split a text otherwise
    parts = [_VERSION, store.digest, tokenizer_digest, kind, max_length, list(roles), versions]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class TokenStore:
    """Token ids of a TextStore's rows.

    truncated: role -> how many texts were cut; digest: sha256 over the ids themselves.
    """

    def __init__(self, folder: Path, roles: Sequence[str], max_length: int | None) -> None:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        self.roles, self.max_length = tuple(roles), max_length
        self.digest: str = meta["digest"]
        self.truncated: dict[str, int] = meta["truncated"]
        self._ids = {role: Ragged(folder, f"ids{i}", "<i4") for i, role in enumerate(roles)}

    def ids(self, role: str, rows: RowNumbers) -> list[NDArray[np.int32]]:
        """Return token ids of a role's text, one read-only int32 array per row, special tokens included."""
        ids = self._ids[role]
        return [ids[int(row)] for row in rows]

    def lengths(self, role: str) -> NDArray[np.int64]:
        """Return int64 (n,): tokens of each row's text."""
        return self._ids[role].lengths()

    def highest(self) -> NDArray[np.int32]:
        """Return int32 (roles,): the highest id of each role's texts, of those that have any."""
        values = (self._ids[role].values for role in self.roles)
        return np.array([array.max() for array in values if len(array)], dtype=np.int32)


def _chunks(store: TextStore, role: str, bounded: bool) -> Iterator[range]:
    """Yield the store's rows in order, so many at a time. bounded: their bytes are bounded, too, but for one text alone.
    Of texts that are cut they are not: the digest, which holds the lengths chunk by chunk, would be another than it was."""
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
    """Yield the tokenizer, cut at `max_length` as transformers cuts and without padding, for as long as the block lasts."""
    if not getattr(tokenizer, "is_fast", False):
        yield lambda texts: _slow(tokenizer, texts, max_length)
        return
    backend = tokenizer.backend_tokenizer
    encode_batch = getattr(backend, "encode_batch_fast", backend.encode_batch)  # fast: without offsets

    def encode(texts: list[str]) -> tuple[list[list[int]], int]:
        encodings = encode_batch(texts)
        return [encoding.ids for encoding in encodings], sum(bool(encoding.overflowing) for encoding in encodings)

    with keep_settings(tokenizer):
        backend.no_padding()
        backend.enable_truncation(max_length, direction=tokenizer.truncation_side)
        yield encode


@contextmanager
def whole(tokenizer: Any) -> Iterator[Encode]:
    """Yield the tokenizer's word pieces of whole documents: neither cut nor padded, and without special tokens.

    White space becomes single spaces, with one in front: the first word is then spelled as it is elsewhere, also by the
    byte-level tokenizers of RoBERTa's kind.
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
    """Restore a tokenizer's padding and truncation at the end of the block: each call of a fast one changes them."""
    if not getattr(tokenizer, "is_fast", False):
        yield
        return
    backend = tokenizer.backend_tokenizer
    stored = backend.truncation, backend.padding
    try:
        yield
    finally:  # the object is shared: what is tokenised elsewhere must not be cut in silence
        backend.no_truncation() if stored[0] is None else backend.enable_truncation(**stored[0])
        backend.no_padding() if stored[1] is None else backend.enable_padding(**stored[1])


def _slow(tokenizer: Any, texts: list[str], max_length: int) -> tuple[list[list[int]], int]:
    ids = tokenizer(texts, truncation=True, max_length=max_length, padding=False, verbose=False)["input_ids"]
    full = [text for text, row in zip(texts, ids, strict=True) if len(row) == max_length]
    whole = tokenizer(full, padding=False, verbose=False)["input_ids"] if full else []
    return [list(row) for row in ids], sum(len(row) > max_length for row in whole)


class TokensOnDemand:
    """As TokenStore, for the same arguments as `tokenised`: the same ids, without a wait for those of all texts.

    digest: sha256 over all that the ids follow from (text, tokenizer, length), which is known before they are; truncated:
    role -> None, as nobody has counted. Raises DataError, one line.
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
        """Return token ids of a role's text, one read-only int32 array per row, special tokens included."""
        if self._all is not None:
            return self._all.ids(role, rows)
        with cutting(self._tokenizer, self.max_length) as encode:
            ids, _ = encode(self._store.texts(role, checked(rows, len(self._store))))
        arrays = [np.array(row, dtype=np.int32) for row in ids]
        for array in arrays:
            array.flags.writeable = False
        return arrays

    def lengths(self, role: str) -> NDArray[np.int64]:
        """Return int64 (n,): tokens of each row's text. Whoever asks waits for the ids of all texts, which are then kept."""
        if self._all is None:
            self._all = self._build()
        return self._all.lengths(role)

    def share_cut(self) -> float:
        """Of texts evenly spread over the rows, the share that is cut at max_length."""
        rows = np.unique(np.linspace(0, len(self._store) - 1, _LOOKED_AT).astype(np.int64))
        with cutting(self._tokenizer, self.max_length) as encode:
            cut = [encode(self._store.texts(role, rows))[1] for role in self.roles]
        return sum(cut) / (len(cut) * len(rows))


Tokens = TokenStore | TokensOnDemand
