"""Poolers over tokens that sentence-transformers lacks, as modules for that library, which exported folders name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from sentence_transformers.base.modules import Module
from torch import Tensor

from stsbench.encoders.forward.token_pooler import MeanCNN, TokenPooler
from stsbench.errors import EncoderError


class TokenPooling(Module):
    """A learned pooler as a module: token_embeddings (n, L, d) -> sentence_embedding (n, vector_width).

    SentenceTransformer(FOLDER, trust_remote_code=True) finds a subclass where stsbench is installed.
    """

    pooler_class: ClassVar[type[TokenPooler]]

    def __init__(self, head: TokenPooler) -> None:
        super().__init__()
        self.head = head

    def forward(self, features: dict[str, Tensor | Any], **kwargs: Any) -> dict[str, Tensor | Any]:
        """Return `features` with "sentence_embedding", from "token_embeddings" and "attention_mask", padded at either
        side."""
        states, mask = features["token_embeddings"], features["attention_mask"]
        positions = mask.argmax(1, keepdim=True) + torch.arange(mask.shape[1], device=mask.device)
        positions = positions.clamp(max=mask.shape[1] - 1)  # moves each text to the front, as a tokenizer may pad left
        real = torch.arange(mask.shape[1], device=mask.device) < mask.sum(1, keepdim=True)
        moved = states.gather(1, positions.unsqueeze(-1).expand_as(states)).to(next(self.head.parameters()).dtype)
        features["sentence_embedding"] = self.head(moved, real.long())
        return features

    def get_embedding_dimension(self) -> int:
        """Return the width of a sentence vector."""
        return self.head.vector_width

    def get_config_dict(self) -> dict[str, Any]:
        """Return the pooler's settings."""
        return self.head.settings()

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write config.json and model.safetensors into the folder, in safetensors whatever is asked for."""
        self.head.save(Path(output_path))

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Self:
        """Load the module from a folder or a Hub id. kwargs: those that say where to look for it; others are not used."""
        hub = {key: kwargs[key] for key in ("token", "cache_folder", "revision", "local_files_only") if key in kwargs}
        return cls(cls.pooler_class.load(Path(cls.load_dir_path(model_name_or_path, subfolder, **hub))))


class MeanCNNPooling(TokenPooling):
    """The pooler mean_cnn."""

    pooler_class = MeanCNN


class MeanPaddedPooling(Module):
    """The pooler mean_padded:N: the mean over all N positions, padding included. token_embeddings (n, N, d) -> (n, d).

    The Transformer before it pads to N by the processing_kwargs of its sentence_bert_config.json.
    SentenceTransformer(FOLDER, trust_remote_code=True) finds the module where stsbench is installed.
    """

    config_keys = ("length", "width")

    def __init__(self, length: int, width: int) -> None:
        """length: N; width: d."""
        super().__init__()
        self.length, self.width = length, width

    def forward(self, features: dict[str, Tensor | Any], **kwargs: Any) -> dict[str, Tensor | Any]:
        """Return `features` with "sentence_embedding", from "token_embeddings". EncoderError: they are not of N
        positions."""
        states = features["token_embeddings"]
        if states.shape[1] != self.length:
            raise EncoderError(
                f"mean_padded:{self.length} has states of {states.shape[1]} positions: the Transformer has to pad texts to "
                f'{self.length} tokens (its processing_kwargs: {{"text": {{"padding": "max_length", ...}}}})'
            )
        features["sentence_embedding"] = states.mean(1)
        return features

    def get_embedding_dimension(self) -> int:
        """Return the width of a sentence vector."""
        return self.width

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write config.json into the folder."""
        self.save_config(output_path)
