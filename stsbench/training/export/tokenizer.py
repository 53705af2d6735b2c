"""The tokenizer of an exported folder: every reader has the tokens that training had, and can pad them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stsbench.encoders.forward.checkpoint import first_line, quiet
from stsbench.encoders.prompt.tokenizer import READ_ALIKE
from stsbench.errors import StsbenchError

# what a tokenizer.json or the call that loaded it left in a tokenizer's settings
_LEFT_OVER = (
    "max_length", "stride", "truncation_strategy", "pad_to_multiple_of", "name_or_path", "local_files_only", "is_local",
)
_PADDING = ("eos_token", "sep_token", "unk_token", "bos_token", "cls_token")  # any will do: what is padded is masked


def write_tokenizer(tokenizer: Any, folder: Path, limit: int | None) -> None:
    """Write `tokenizer`, which stays as it is, beside a model, without truncation and padding of its own: they would act in
    readers that ask for none. One without a padding token gets one of its special tokens.

    Raises StsbenchError where transformers would read another tokenizer there, or one that cannot pad.
    """
    plain = copy.deepcopy(tokenizer)
    if getattr(plain, "is_fast", False):
        plain.backend_tokenizer.no_truncation()
        plain.backend_tokenizer.no_padding()
    for key in _LEFT_OVER:
        plain.init_kwargs.pop(key, None)
    if limit is not None:
        plain.model_max_length = limit
    if plain.pad_token_id is None:
        plain.pad_token = next(_special(plain), None)
    if plain.pad_token_id is None:
        raise StsbenchError("its tokenizer has no special token to pad texts by: sentence-transformers cannot encode two")
    plain.save_pretrained(folder)
    if not (differs := _differs(plain, folder)):
        return
    # a tokenizer that transformers makes anew from the name of its class, unlike tokenizer.json
    path = folder / "tokenizer_config.json"
    stored = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**stored, "tokenizer_class": "PreTrainedTokenizerFast"}, indent=2) + "\n", "utf-8")
    if not (folder / "tokenizer.json").is_file() or _differs(plain, folder):
        raise StsbenchError(f"transformers reads another tokenizer from the folder ({differs})")


def _special(tokenizer: Any) -> Iterator[str]:
    """Special tokens that the vocabulary has, the usual one for padding first."""
    return (token for name in _PADDING if (token := getattr(tokenizer, name, None)) and
            getattr(tokenizer, f"{name}_id", None) is not None)


def _differs(tokenizer: Any, folder: Path) -> str:
    """How the tokenizer that transformers reads from `folder` differs from `tokenizer`; "" where it does not."""
    from transformers import AutoTokenizer

    try:
        with quiet():
            read = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        expected = [tokenizer(text, padding=False, truncation=False)["input_ids"] for text in READ_ALIKE]
        padded = read(list(READ_ALIKE), padding=True, truncation=False)
    except Exception as error:
        return first_line(error)
    for text, ids, row, mask in zip(READ_ALIKE, expected, padded["input_ids"], padded["attention_mask"], strict=True):
        real = [token for token, counts in zip(row, mask, strict=True) if counts]
        if real != list(ids):
            return f"{text!r}: tokens {real[:9]} instead of {list(ids)[:9]}"
    return ""
