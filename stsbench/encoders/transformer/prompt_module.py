"""A prompted encoder as the only module of a sentence-transformers model: template, full stop, prefix, denoising, head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.modules import InputModule
from torch import Tensor

from stsbench.encoders.forward import batching
from stsbench.encoders.forward.checkpoint import load_model
from stsbench.encoders.forward.model import position_limit
from stsbench.encoders.forward.passes import PackedForward, PaddedForward, known_family
from stsbench.encoders.prompt.modules import attached
from stsbench.encoders.prompt.prompt import Prompt, read_prompt, write_prompt
from stsbench.encoders.prompt.prompted import PromptedVectors, SplicedTokeniser, placed, tokeniser
from stsbench.encoders.prompt.template import TokenTemplate
from stsbench.encoders.prompt.tokenizer import load_tokenizer
from stsbench.encoders.transformer.exported import FILE, Exported, read_with_layout, write_exported
from stsbench.errors import EncoderError


class PromptEncoding(InputModule):
    """A prompted encoder as a module: texts -> sentence_embedding (n, d), as stsbench computes it.

    SentenceTransformer(FOLDER, trust_remote_code=True) finds it where stsbench is installed. It only encodes: no gradient
    reaches the model, and in train mode (`model.train()`) `forward` raises an error. A prompt of sentence-transformers
    (`encode(..., prompt=...)`, `prompts=`) goes directly before the text, inside the template.
    """

    save_in_root = True
    config_file_name = FILE

    def __init__(
        self, model: Any, tokenizer: Any, prompt: Prompt, max_length: int | None = None, pooler: str = "mask"
    ) -> None:
        """max_length: tokens that texts are cut at, template and special ones included; None: the model's positions.
        pooler: mask, or last, the last token of text and template."""
        super().__init__()
        self.model, self.tokenizer, self.prompt, self.pooler = model, tokenizer, prompt, pooler
        self.template = None if pooler == "last" else TokenTemplate(
            tokenizer, prompt.template, "template", prompt.word_places)
        self.max_seq_length = max_length
        self._trained_on: tuple[str, ...] = ()  # test data, kept for `save`
        self._training_overlap: tuple[Mapping[str, Any], ...] = ()

    @property
    def max_seq_length(self) -> int | None:
        """Return the number of tokens that a text is cut at; the sentence loses its last ones. It may be set, up to the
        model's positions."""
        return self._limit

    @max_seq_length.setter
    def max_seq_length(self, limit: int | None) -> None:
        most = position_limit(self.model, self.tokenizer)
        most = None if most is None else most - self.prompt.shift
        if limit is not None and most is not None and limit > most:
            raise EncoderError(f"max_seq_length {limit} is more than the {most} positions of this model and prompt")
        self._limit = most if limit is None else limit
        self._max_length = limit
        self._tokeniser = tokeniser(self.tokenizer, self.template, self.prompt, self._limit)

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Tensor | Any]:
        """Return input_ids and attention_mask (n, L) of n strings inside the template, padded right. ValueError: not
        strings."""
        if not all(isinstance(text, str) for text in inputs):
            raise ValueError("a prompted encoder reads single texts: no pairs, messages, images or sounds")
        rows, _ = self._tokeniser([(prompt or "") + text for text in inputs])
        lengths = torch.tensor([len(row) for row in rows])
        mask = (torch.arange(int(lengths.max())) < lengths.unsqueeze(1)).long()
        pad = self.tokenizer.pad_token_id
        ids = torch.full(mask.shape, 0 if pad is None else pad)
        ids[mask.bool()] = torch.tensor([token for row in rows for token in row])
        return {"input_ids": ids, "attention_mask": mask}

    def forward(self, features: dict[str, Tensor | Any], **kwargs: Any) -> dict[str, Tensor | Any]:
        """Return `features` with "sentence_embedding", float32 (n, d), from what `preprocess` made.

        EncoderError: train mode, or input_ids without the template.
        """
        if self.model.training:
            raise EncoderError("a prompted encoder is not trained by sentence-transformers: call .eval() on it")
        ids, mask = features["input_ids"], features["attention_mask"].bool()
        lengths = mask.sum(1).cpu()
        order = torch.from_numpy(batching.longest_first(lengths.numpy()))
        rows = [row[real].tolist() for row, real in zip(ids.cpu(), mask.cpu(), strict=True)]
        marks = torch.tensor([self._mark(rows[i]) for i in order.tolist()])
        starts = lengths[order].cumsum(0) - lengths[order]
        tokens = torch.tensor([token for i in order.tolist() for token in rows[i]])
        groups = batching.groups(lengths[order].numpy())
        with self._vectors() as vectors:
            ordered = vectors(tokens.to(ids.device), groups, (marks + starts).to(ids.device))
        features["sentence_embedding"] = torch.empty_like(ordered).index_copy(0, order.to(ordered.device), ordered)
        return features

    def _mark(self, row: list[int]) -> int:
        """Return the index of the pooled token, the template's mask or the last. EncoderError: there is no such mask."""
        if self.template is None:
            return len(row) - 1
        before, after = self.template.before, self.template.after
        spliced = isinstance(self._tokeniser, SplicedTokeniser)
        # where the filled template is tokenised, text and template may share a token; the mask is never shared
        if spliced and (len(row) < self.template.length or row[: len(before)] != before or row[-len(after):] != after):
            raise EncoderError("input_ids do not hold the template: make them with this model's `preprocess` or `tokenize`")
        return self._tokeniser.mark(row, "input_ids that this model did not make")

    @contextmanager
    def _vectors(self) -> Iterator[PromptedVectors]:
        """Yield the pass from packed batches to vectors, with the present weights and device."""
        model, prompt = self.model, placed(self.prompt, self.model, "the prompt")
        if prompt.bottlenecks is None and known_family(model):
            yield PromptedVectors(prompt, self.template, PackedForward(model), model)
            return
        padded = PaddedForward(model, self.tokenizer.pad_token_id or 0)
        with nullcontext() if prompt.bottlenecks is None else attached(model, prompt.bottlenecks, 0):
            yield PromptedVectors(prompt, self.template, padded, model)

    def get_embedding_dimension(self) -> int:
        """Return the width of a sentence vector."""
        return int(self.model.config.hidden_size)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the prompt's settings and the length limit, where one was set."""
        return {"prompt": self.prompt.settings(), "max_length": self._max_length}

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write model, tokenizer, prompt.safetensors and stsbench.json, in safetensors whatever is asked for."""
        folder = Path(output_path)
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        write_prompt(folder, self.prompt)
        exported = Exported(
            self.pooler, self._max_length, prompt=self.prompt.settings(), trained_on=self._trained_on,
            training_overlap=self._training_overlap,
        )
        write_exported(folder, exported)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> PromptEncoding:
        """Load the module from a folder or a Hub id, in eval mode. kwargs: where to look for it, and model_kwargs' dtype;
        others are not used. EncoderError, one line: a broken folder.
        """
        hub = {key: kwargs[key] for key in ("token", "cache_folder", "revision", "local_files_only") if key in kwargs}
        folder = Path(cls.load_dir_path(model_name_or_path, subfolder, **hub))
        exported = read_with_layout(folder)[0] if (folder / FILE).is_file() else None
        if exported is None or exported.prompt is None:
            raise EncoderError(f"{model_name_or_path} stores no prompt in its {FILE}")
        prompt = read_prompt(folder, exported.prompt)
        model, _ = load_model(folder, model_name_or_path, "float32")
        if (dtype := (kwargs.get("model_kwargs") or {}).get("dtype")) not in (None, "auto"):
            model = model.to(getattr(torch, dtype) if isinstance(dtype, str) else dtype)
        loaded = cls(model, load_tokenizer(folder, model_name_or_path), prompt, exported.max_length,
                     exported.pooler or "mask")
        loaded._trained_on, loaded._training_overlap = exported.trained_on, exported.training_overlap
        loaded.eval()
        return loaded
