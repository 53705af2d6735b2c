"""The backend for sentence-transformers folders whose modules only the library itself can run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stsbench.encoders.base import Encoded, Encoder, Progress
from stsbench.encoders.forward.checkpoint import first_line, position_limit
from stsbench.encoders.transformer.config import EncoderConfig
from stsbench.errors import EncoderError


class SentenceTransformerEncoder(Encoder):
    """A folder run by sentence-transformers itself, with its own modules and default prompt."""

    def __init__(self, config: EncoderConfig, device: str | None = None) -> None:
        """EncoderError when the library is not installed or cannot load the folder."""
        name = config.name
        try:
            import torch
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise EncoderError(f"{name} needs sentence-transformers: pip install 'stsbench[st]'") from error
        kind = {"dtype": getattr(torch, config.dtype)}
        try:
            self.model = SentenceTransformer(
                str(config.folder), device=device, local_files_only=True, model_kwargs=kind
            ).eval()
        except Exception as error:  # the library's modules raise whatever they like
            raise EncoderError(f"cannot load {name}: {first_line(error)}") from error
        inner = getattr(self.model[0], "auto_model", None)
        self.spec = config.spec(None if inner is None else position_limit(inner, self.model.tokenizer))
        if self.spec.max_length is not None:
            self.model.max_seq_length = self.spec.max_length
        self._prompt = config.prompt.text_prompt or ""

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """float32 (n, d) vectors from the stored modules."""
        parts, chunk = [], 1024
        for start in range(0, len(texts), chunk):
            part = list(texts[start:start + chunk])
            parts.append(np.asarray(self.model.encode(part, show_progress_bar=False), dtype=np.float32))
            if progress:
                progress(len(part))
        width = self.model.get_embedding_dimension() or 0
        vectors = np.concatenate(parts) if parts else np.zeros((0, width), dtype=np.float32)
        return Encoded(vectors, np.array([self._cut(text) for text in texts], dtype=np.bool_))

    def _cut(self, text: str) -> bool:
        # a token holds one character or more, so most texts are cleared without tokenising them a second time
        limit = self.spec.max_length
        if limit is None or len(text) + len(self._prompt) + 2 <= limit:
            return False
        ids = self.model.tokenizer(self._prompt + text, truncation=False, add_special_tokens=True)["input_ids"]
        return len(ids) > limit
