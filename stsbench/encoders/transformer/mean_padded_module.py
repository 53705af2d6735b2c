"""The pooler mean_padded:N as a module of sentence-transformers: the mean over all N positions, padding included."""

from __future__ import annotations

from typing import Any

from sentence_transformers.base.modules import Module
from torch import Tensor

from stsbench.errors import EncoderError


class MeanPaddedPooling(Module):
    """token_embeddings (n, N, d) -> sentence_embedding (n, d).

    The Transformer before it pads to N by the processing_kwargs of its sentence_bert_config.json.
    SentenceTransformer(FOLDER, trust_remote_code=True) finds the module where stsbench is installed.
    """

    config_keys = ("length", "width")

    def __init__(self, length: int, width: int) -> None:
        """length: N; width: d."""
        super().__init__()
        self.length, self.width = length, width

    def forward(self, features: dict[str, Tensor | Any], **kwargs: Any) -> dict[str, Tensor | Any]:
        """`features` with "sentence_embedding", from "token_embeddings". EncoderError: they are not of N positions."""
        states = features["token_embeddings"]
        if states.shape[1] != self.length:
            raise EncoderError(
                f"mean_padded:{self.length} has states of {states.shape[1]} positions: the Transformer has to pad texts to "
                f'{self.length} tokens (its processing_kwargs: {{"text": {{"padding": "max_length", ...}}}})'
            )
        features["sentence_embedding"] = states.mean(1)
        return features

    def get_embedding_dimension(self) -> int:
        """The width of a sentence vector."""
        return self.width

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write config.json into the folder."""
        self.save_config(output_path)
