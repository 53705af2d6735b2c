"""The tokenizer that a model folder declares: its tokenizer.json is what runs, whatever transformers makes of the folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from stsbench.data.text.tokens import keep_settings
from stsbench.encoders.forward.checkpoint import first_line, quiet
from stsbench.encoders.model_folder import check_settings, check_tokenizer, read_settings
from stsbench.errors import EncoderError

# Texts on which tokenizers differ: case, accents, digits, contractions, white space, marks, scripts, wide characters.
READ_ALIKE = (
    "a", "The harbour was built in 1840.", "HELLO World, hello WORLD", "na\u00efve caf\u00e9 cr\u00e8me",
    "nai\u0308ve cafe\u0301", "it's we'll don't I'm", " leading and trailing ", "two  spaces\tand a tab",
    "a line\nand another", "3.14, 1,000 and 50%", "e-mail@example.org https://example.org/a?b=c",
    "(brackets) [square] {curly} <angle>", "\u6d77\u6e2f\u57281840\u5e74\u5efa\u6210",
    "\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440", "\u0645\u0631\u062d\u0628\u0627", "\ud55c\uad6d\uc5b4",
    "\U0001f642 \U0001f9ff", "\uff21\uff22\uff23 \ufb01 \u00bd", "\u201cquoted\u201d \u2014 dashes \u2026",
    "supercalifragilistic antidisestablishment",
)
_VOCABULARIES = {"tokenizer.json", "vocab.txt", "vocab.json", "tekken.json", "bpe.codes", "dict.txt"}
_WITHOUT_VOCABULARY = ("Byt5", "ByT5", "Canine", "Perceiver")
_WITHOUT_FILES = {"canine", "perceiver"}


def load_tokenizer(folder: Path, name: str, trust_remote_code: bool = False, base: Path | None = None) -> Any:
    """Return the tokenizer that the folder declares: its tokenizer.json where there is one; that of its base where an
    adapter's folder has none. EncoderError if there is none, or if transformers makes another one of the files."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    adapter = read_settings(folder / "adapter_config.json").get("base_model_name_or_path")
    files = ("config.json", "tokenizer_config.json", "tokenizer.json")
    alone = adapter and not any((folder / file).is_file() for file in files)
    source = str((base or adapter) if alone else folder)
    if Path(source).is_dir() and not _has_tokenizer(Path(source)):
        raise EncoderError(f"{name} holds no tokenizer: {source} lacks tokenizer.json, vocab.txt or the like")
    check_settings(folder)
    file = Path(source) / "tokenizer.json"
    check_tokenizer(file)
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True, trust_remote_code=trust_remote_code)
            of_folder = type(tokenizer).__module__.startswith("transformers_modules.")  # the folder's own code
            if not file.is_file() or of_folder or reads_as(tokenizer, file):
                return tokenizer
            # transformers rebuilds some tokenizers from the name of their class and the vocabulary alone
            tokenizer = PreTrainedTokenizerFast.from_pretrained(source, local_files_only=True)
    except EncoderError:
        raise
    except Exception as error:
        broken = "tokenizer.json: " if file.is_file() and not _is_whole(file) else ""
        raise EncoderError(f"cannot load the tokenizer of {name}: {broken}{first_line(error)}") from error
    if not reads_as(tokenizer, file):
        raise EncoderError(
            f"the tokenizer of {name}: what tokenizer_config.json says (its class, added or special tokens) makes another "
            f"one of {file}: make the two agree"
        )
    return tokenizer


def known_text(tokenizer: Any) -> str:
    """Return a text that the tokenizer reads without special tokens: "a" for nearly all, else the first such entry of its
    vocabulary. It serves to find the tokens put around a text. EncoderError: there is none."""
    special = set(tokenizer.all_special_ids)
    others = (str(tokenizer.decode([token])) for token in range(len(tokenizer)) if token not in special)
    for text in chain(["a"], others):
        ids = tokenizer(text, add_special_tokens=False, padding=False, truncation=False)["input_ids"]
        if ids and not special & set(ids):
            return text
    name = getattr(tokenizer, "name_or_path", "") or "this model"
    raise EncoderError(f"the tokenizer of {name} reads none of its own words")


@contextmanager
def panics_are_errors(name: str) -> Iterator[None]:
    """Raise a panic of the library tokenizers, mostly of a pattern that takes too long, as an EncoderError. Rust's panics
    are not Exceptions in Python: they would end the program."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise EncoderError(f"the tokenizer of {name} cannot read a text: {first_line(error)}") from error


def _is_whole(file: Path) -> bool:
    from tokenizers import Tokenizer

    try:
        Tokenizer.from_file(str(file))
    except Exception:  # the library raises plain Exceptions
        return False
    return True


def _has_tokenizer(folder: Path) -> bool:
    """Return whether a folder holds a vocabulary, or declares a tokenizer of bytes or characters, which needs none: from
    the name of a class alone transformers would make an empty tokenizer."""
    declared = read_settings(folder / "tokenizer_config.json")
    if any(word in str(declared.get("tokenizer_class", "")) for word in _WITHOUT_VOCABULARY) or declared.get("auto_map"):
        return True
    if read_settings(folder / "config.json").get("model_type") in _WITHOUT_FILES:
        return True
    return any(path.name in _VOCABULARIES or path.suffix in (".model", ".bpe", ".tiktoken") for path in folder.iterdir())


def reads_as(tokenizer: Any, file: Path) -> bool:
    """Return whether a tokenizer gives the ids of tokenizer.json, on READ_ALIKE and at added tokens in which the two differ.
    Special tokens at either end are not compared where tokenizer_config.json asks for them (add_bos_token, add_eos_token),
    which tokenizer.json cannot say."""
    from tokenizers import Tokenizer

    declared = Tokenizer.from_file(str(file))
    declared.no_truncation()
    declared.no_padding()
    ends = any(tokenizer.init_kwargs.get(key) is not None for key in ("add_bos_token", "add_eos_token"))
    texts = (*READ_ALIKE, *(f"a {token} b{token}c" for token in _added_otherwise(tokenizer, declared)))
    plain: dict[str, Any] = {"add_special_tokens": not ends, "padding": False, "truncation": False, "verbose": False}
    with keep_settings(tokenizer), panics_are_errors(str(file)):
        return all(
            declared.encode(text, add_special_tokens=not ends).ids == list(tokenizer(text, **plain)["input_ids"])
            for text in texts
        )


def _added_otherwise(tokenizer: Any, declared: Any) -> list[str]:
    """Return the added tokens that only one of the two has, or with other settings; special tokens (mask, ...) left out."""
    backend = getattr(tokenizer, "backend_tokenizer", declared)
    here, there = (
        {str(token): (key, token.lstrip, token.rstrip, token.single_word, token.normalized)
         for key, token in part.get_added_tokens_decoder().items()} for part in (backend, declared)
    )
    named = {str(getattr(tokenizer, key, None)) for key in type(tokenizer).SPECIAL_TOKENS_ATTRIBUTES}
    return sorted(token for token in (here.keys() | there.keys()) - named if here.get(token) != there.get(token))


def table_size(model: Any) -> int | None:
    """Return how many token ids a model has embeddings for; None where it has no table of them (CANINE)."""
    try:
        table = model.get_input_embeddings()
    except NotImplementedError:
        return None
    size: int | None = getattr(table, "num_embeddings", None)
    if size is not None:
        return size
    weight = getattr(table, "weight", None)  # I-BERT and peft have kinds of tables of their own
    return None if weight is None else len(weight)


def check_ids(ids: Any, model: Any, tokenizer: Any, name: str) -> None:
    """Raise EncoderError for a token id, of an integer array, that the model has no embedding for."""
    table = table_size(model)
    if table is None or not len(ids) or int(ids.max()) < table:
        return
    highest = int(ids.max())
    token = tokenizer.convert_ids_to_tokens(highest)
    raise EncoderError(
        f"{name}: its tokenizer gives {token!r} the token id {highest}, and the model has a vocabulary of {table}: the "
        "tokenizer is another model's, or the embeddings were not resized when tokens were added"
    )
