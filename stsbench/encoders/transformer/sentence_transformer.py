"""Encoders run by sentence-transformers: folders whose modules only that library can compute."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stsbench.encoders.base import Counts, Encoded, Encoder, Progress, count_parameters
from stsbench.encoders.cache.encode import within_float16
from stsbench.encoders.forward import batching
from stsbench.encoders.forward.batching import NO_LIMIT, restore, sharing_limit
from stsbench.encoders.forward.checkpoint import check_code, check_weights, first_line, loading, quiet
from stsbench.encoders.forward.identity import BLIND, Opened, walk
from stsbench.encoders.forward.model import position_limit
from stsbench.encoders.model_folder import check_module, check_tokenizer, read_settings
from stsbench.encoders.prompt.tokenizer import check_ids, reads_as
from stsbench.encoders.transformer.config import EncoderConfig
from stsbench.encoders.transformer.declared import library_settings
from stsbench.encoders.transformer.parts import check_bases, choose_device, end_notes
from stsbench.errors import EncoderError
from stsbench.parsing import read_json

if TYPE_CHECKING:
    import torch

_CHUNK = 1024  # texts between two reports of progress
_BATCH = 32  # texts, the library's own default


class SentenceTransformerEncoder(Encoder):
    """A folder run by sentence-transformers itself, with its own modules and default prompt."""

    engine = "sentence-transformers"

    def __init__(self, config: EncoderConfig, device: str | None = None) -> None:
        """Raise EncoderError when the library is not installed or cannot load the folder as its files declare it."""
        assert config.folder is not None
        name = config.name
        for path in walk(config.folder):
            if path.name.endswith("config.json") and path.is_file():
                check_module(path, config.trust_remote_code)
        settings = [path for path in walk(config.folder) if path.name in ("config.json", "adapter_config.json")]
        of_models = (path for path in settings if path.name != "config.json" or "model_type" in read_settings(path))
        for folder in sorted({path.parent for path in of_models}):
            check_code(folder, name, config.trust_remote_code)
            missing = check_weights(folder, name, config.trust_remote_code)
            if missing and "pooler_output" in json.dumps(library_settings(folder)):
                raise EncoderError(f"{name} reads its model's pooler and stores no weights of it, e.g. {min(missing)}")
        check_bases(config)
        self._opened = Opened(config.sources, native=config.trust_remote_code)
        with self._opened:
            self.model = _loaded(config, device)
        sparse = (part for part in self.model.modules() if hasattr(part, "config") and hasattr(part, "attention_type"))
        self._models = [self.model, *sparse]
        self._check_tokenizer(name)
        if config.normalize is False and type(self.model[-1]).__name__ == "Normalize":
            del self.model[len(self.model) - 1]
        inner = self.model.transformers_model
        self._positions = None if inner is None else position_limit(inner, self.model.tokenizer)
        limit = self.model.max_seq_length if config.max_length is None else config.max_length
        config = replace(config, stored_length=limit if isinstance(limit, int) and limit < 1_000_000 else None)
        self.notes, self.traits = config.notes, config.traits
        self._set(config)
        if config.max_length is not None:
            self.model.max_seq_length = config.max_length
        self.model.truncate_dim = None  # the library's own setting; ours is passed with the texts
        self.width = self.model.get_embedding_dimension()
        self.dimension = min((size for size in (self.width, config.truncate_dim) if size), default=None)
        self._probe()
        self._set(replace(config, weights=self._opened.digest(name, config.weights)))
        if self._opened.blind:
            self.cacheable, self.notes = False, (*self.notes, f"{name}: {BLIND}")
        modes = [mode for part in self.model for mode in np.atleast_1d(getattr(part, "pooling_mode", []))]
        if "lasttoken" in modes and _is_fast(self.model.tokenizer):
            self.notes = (*self.notes, *end_notes(self.model.tokenizer, self._ids(batching.SHORT, True), name))

    @property
    def device(self) -> torch.device:
        """Return the device of the library's model."""
        device: torch.device = self.model.device
        return device

    def _check_tokenizer(self, name: str) -> None:
        """Raise EncoderError where transformers made another tokenizer than a module's tokenizer.json declares: the modules
        would read other tokens than their author's."""
        for part in self.model.modules():
            tokenizer = getattr(part, "tokenizer", None) if part is not self.model else None
            file = Path(str(getattr(tokenizer, "name_or_path", ""))) / "tokenizer.json"
            if not _is_fast(tokenizer) or not file.is_file() or library_settings(file.parent).get("do_lower_case"):
                continue  # the library makes the tokenizer lower-case its texts
            if not reads_as(tokenizer, file):
                raise EncoderError(
                    f"{name}: transformers makes another tokenizer of its class's name ({type(tokenizer).__name__}) than "
                    f"{file} says: choose a --pooler, or set tokenizer_class there to PreTrainedTokenizerFast"
                )

    def _set(self, config: EncoderConfig) -> None:
        length = getattr(self.model[0], f"{config.role}_length", None)  # of a role, instead of max_seq_length
        self.config, self.spec = config, config.spec(self._positions)
        self.spec = self.spec if length is None else replace(self.spec, max_length=length)

    def _probe(self) -> None:
        """Find out whether texts may share a batch with longer ones. EncoderError: the pooler gives all texts one vector."""
        short, long = self._encode([batching.SHORT], 1), self._encode([batching.LONG], 1)
        within_float16(self.spec, batching.PROBES, np.concatenate([short, long]))
        modes = [mode for part in self.model for mode in np.atleast_1d(getattr(part, "pooling_mode", []))]
        if "cls" in modes and np.array_equal(short, long) and short.any():
            raise EncoderError(
                f"{self.config.name} declares the pooling cls of a causal model, whose first state knows the first token "
                "alone: choose a --pooler (last, mean, weighted_mean)"
            )
        cut = _is_fast(self.model.tokenizer) and len({len(self._ids(text, True)) for text in batching.PROBES}) == 1
        if cut or batching.depends_on_batch(lambda texts: self._encode(texts, len(texts)), self.config.dtype):
            self.keep_lengths_apart()  # where all are cut to one length, nothing was padded, so nothing was tested

    def for_role(self, role: str | None, prompt: str | None = None) -> Encoder:
        """Return the same model as encode_query and encode_document run it, or with `prompt`."""
        config = self.config.for_role(role, prompt)
        if config == self.config:
            return self
        other = copy.copy(self)
        other._set(config)
        return other

    def with_prompt(self, prompt: str) -> Encoder:
        """Return the same model with one prompt before all texts."""
        other = copy.copy(self)
        other._set(self.config.with_prompt(prompt))
        other.traits = other.config.traits
        return other

    def counts(self, texts: Sequence[str]) -> Counts:
        """Return the parameters of all modules, and the tokens of `texts` where the tokenizer is one of transformers'."""
        tokens = sum(len(self._ids(text, True)) for text in texts) if _is_fast(self.model.tokenizer) else None
        return Counts(count_parameters(self.model), tokens)

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Return float32 (n, d) vectors from the stored modules."""
        vectors: Any = None
        for rows in self._batches(texts):
            batch = [texts[row] for row in rows]
            part = self._encode(batch, _BATCH)
            within_float16(self.spec, batch, part)
            if vectors is None:
                vectors = np.zeros((len(texts), part.shape[1]), dtype=np.float32)
            vectors[rows] = part
            if progress:
                progress(len(rows))
        self._opened.check(self.config.name)
        if vectors is None:
            vectors = np.zeros((0, self.dimension or 0), dtype=np.float32)
        return Encoded(vectors, np.array([self._cut(text) for text in texts], dtype=np.bool_))

    def _encode(self, texts: list[str], batch: int) -> Any:
        """Return float32 (n, d) vectors; raise any error of the library as an EncoderError, one line."""
        config = self.config
        for part in self._models:
            restore(part)
        how = {"query": "encode_query", "document": "encode_document"}.get(config.role or "", "encode")
        task = {} if config.role is None or how != "encode" else {"task": config.role}
        try:
            with self._opened:
                vectors = getattr(self.model, how)(
                    texts, **task, prompt=config.prompt.text_prompt or "", batch_size=batch, show_progress_bar=False,
                    normalize_embeddings=config.rescale, truncate_dim=config.truncate_dim,
                )
        except Exception as error:  # the library's modules raise whatever they like
            if isinstance(error, IndexError) and self.model.transformers_model is not None:
                highest = np.array([max(self._ids(text, True), default=0) for text in texts])
                check_ids(highest, self.model.transformers_model, self.model.tokenizer, config.name)
            raise EncoderError(f"sentence-transformers cannot encode with {config.name}: {first_line(error)}") from error
        return np.asarray(vectors, dtype=np.float32)

    def _batches(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Yield the indices of texts for one call: any texts, or only those of one length where the batch matters."""
        limit = 0 if self.equal_lengths else min(map(sharing_limit, self._models), default=NO_LIMIT)
        if limit == NO_LIMIT:
            for start in range(0, len(texts), _CHUNK):
                yield list(range(start, min(len(texts), start + _CHUNK)))
            return
        if not _is_fast(self.model.tokenizer):  # modules such as word vectors read each text by itself
            yield from ([row] for row in range(len(texts)))
            return
        lengths = [len(self._ids(text, truncation=True)) for text in texts]
        order = sorted(range(len(texts)), key=lambda row: -lengths[row])
        for _, rows in groupby(order, key=lambda row: max(limit, lengths[row])):
            same = list(rows)
            yield from (same[start:start + _CHUNK] for start in range(0, len(same), _CHUNK))

    def _ids(self, text: str, truncation: bool) -> list[int]:
        prompt = self.config.prompt.text_prompt or ""
        ids: list[int] = self.model.tokenizer(prompt + text, truncation=truncation, verbose=False)["input_ids"]
        return ids

    def _cut(self, text: str) -> bool:
        whole, tokenizer = (self.config.prompt.text_prompt or "") + text, self.model.tokenizer
        static: Any = getattr(tokenizer, "truncation", None)  # a table's tokenizer.json may set truncation
        limit = static["max_length"] if static else self.spec.max_length
        # a token holds at least one byte, so most texts need not be tokenised a second time
        if limit is None or len(whole.encode("utf-8", "replace")) + 2 <= limit:
            return False
        if static:
            return bool(tokenizer.encode(whole, add_special_tokens=False).overflowing)
        if not _is_fast(tokenizer):  # word vectors and the like have no limit, or no ids
            return False
        return len(self._ids(text, truncation=False)) > limit


def _check_classes(folder: Path, name: str) -> None:
    """Raise EncoderError where a file names as a module anything of sentence-transformers that is not one: it would be
    called."""
    from sentence_transformers.util import import_from_string
    from torch import nn

    modules = read_json(folder / "modules.json", EncoderError) if (folder / "modules.json").is_file() else []
    named = [(folder / "modules.json", str(entry.get("type"))) for entry in modules]
    for path in walk(folder):
        types = read_settings(path).get("types") if path.name in ("config.json", "router_config.json") else None
        named += [(path, str(kind)) for kind in (types.values() if isinstance(types, dict) else ())]
    for path, kind in named:
        try:
            known = import_from_string(kind) if kind.startswith("sentence_transformers.") else nn.Identity
        except Exception as error:
            raise EncoderError(f"{path}: sentence-transformers has no {kind} ({first_line(error)})") from error
        if not (isinstance(known, type) and issubclass(known, nn.Module)) or issubclass(known, nn.Sequential):
            raise EncoderError(f"{path}: the type {kind} of {name} is no module of sentence-transformers")


def _is_fast(tokenizer: Any) -> bool:
    """Return whether a tokenizer is one of transformers' fast ones."""
    return bool(getattr(tokenizer, "is_fast", False))


def _loaded(config: EncoderConfig, device: str | None) -> Any:
    name = config.name
    try:
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
        from tokenizers import Tokenizer

        from stsbench.torch_random import seeded
    except ImportError as error:
        raise EncoderError(f"{name} needs sentence-transformers: pip install 'stsbench[st]'") from error
    folder = Path(str(config.folder))
    for file in sorted(folder.rglob("tokenizer.json")):
        check_tokenizer(file)
    _check_classes(folder, name)
    static = not (folder / "modules.json").is_file()
    if static and (missing := [file for file in ("tokenizer.json", "model.safetensors") if not (folder / file).is_file()]):
        raise EncoderError(f"{name} is a table of model2vec, and {missing[0]} is missing: fetch the whole model")
    how: dict[str, Any] = {"model_name_or_path": str(folder), "model_kwargs": {"dtype": getattr(torch, config.dtype)}}
    with loading(folder, f"{name} as a table of model2vec" if static else name), quiet(), seeded():
        if static:  # as model2vec's own modules.json would have it
            table = StaticEmbedding(Tokenizer.from_file(str(folder / "tokenizer.json")), table_rows(folder))
            how = {"modules": [table, *([Normalize()] if config.normalize else [])]}
        model = SentenceTransformer(
            **how, device=device and str(choose_device(device)), local_files_only=True,
            trust_remote_code=config.trust_remote_code,
        ).to(getattr(torch, config.dtype) if static else None).eval()
    for part in model.modules():
        if hasattr(part, "support_avx512bf16_for_cpu"):
            part.support_avx512bf16_for_cpu = False  # else bitsandbytes computes in bfloat16 on some CPUs
    return model


def table_rows(folder: Path) -> torch.Tensor:
    """Return the float32 (V, d) token vectors of a table of model2vec or of sentence-transformers, stored in any type.
    KeyError: it has none."""
    from safetensors.torch import load_file

    stored = load_file(folder / "model.safetensors")
    rows: torch.Tensor = stored["embedding.weight" if "embedding.weight" in stored else "embeddings"].float()
    if "mapping" in stored:
        rows = rows[stored["mapping"].long()]
    if "weights" in stored:
        rows = rows * stored["weights"].float()[:, None]
    return rows
