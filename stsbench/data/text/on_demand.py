"""Token ids of training text, made when a batch asks for them: for texts too many to be tokenised before the first step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.data.text.ragged import RowNumbers, checked
from stsbench.data.text.store import TextStore
from stsbench.data.text.tokens import TokenStore, check_max_length, cutting, text_roles, tokenised, tokens_key

_LOOKED_AT = 10_000  # texts of a role that the share of those cut is estimated from


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
        """Token ids of a role's text, one read-only int32 array per row, special tokens included."""
        if self._all is not None:
            return self._all.ids(role, rows)
        with cutting(self._tokenizer, self.max_length) as encode:
            ids, _ = encode(self._store.texts(role, checked(rows, len(self._store))))
        arrays = [np.array(row, dtype=np.int32) for row in ids]
        for array in arrays:
            array.flags.writeable = False
        return arrays

    def lengths(self, role: str) -> NDArray[np.int64]:
        """int64 (n,): tokens of each row's text. Whoever asks waits for the ids of all texts, which are then kept."""
        if self._all is None:
            self._all = self._build()
        return self._all.lengths(role)

    def share_cut(self) -> float:
        """Of texts evenly spread over the rows, the share that is cut at max_length."""
        rows = np.unique(np.linspace(0, len(self._store) - 1, _LOOKED_AT).astype(np.int64))
        with cutting(self._tokenizer, self.max_length) as encode:
            cut = [encode(self._store.texts(role, rows))[1] for role in self.roles]
        return sum(cut) / (len(cut) * len(rows))
