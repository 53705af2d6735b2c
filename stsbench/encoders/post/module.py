"""A fitted chain as a module of sentence-transformers, for maps that its own modules cannot compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.modules import Module
from torch import Tensor

from stsbench.encoders.post.chain import Chain, read_post, write_post


class PostProcessing(Module):
    """A chain as a module: sentence_embedding (n, d) -> (n, k), in the precision of the chain, without gradients.

    SentenceTransformer(FOLDER, trust_remote_code=True) finds it where stsbench is installed.
    """

    def __init__(self, chain: Chain, fitted_on: str, width: int) -> None:
        super().__init__()
        self.chain, self.fitted_on, self.width = chain, fitted_on, width

    def forward(self, features: dict[str, Tensor | Any], **kwargs: Any) -> dict[str, Tensor | Any]:
        """Return `features` with another "sentence_embedding", on the same device and of the same type."""
        before = features["sentence_embedding"]
        vectors = self.chain.transform(before.detach().float().cpu().numpy())
        features["sentence_embedding"] = torch.from_numpy(vectors).to(before)
        return features

    def get_embedding_dimension(self) -> int:
        """Return the width of a sentence vector."""
        return self.chain.dimension(self.width)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the spelled chain, what it was fitted on, and the width of its input."""
        return {"post": self.chain.spelled(), "fitted_on": self.fitted_on, "width": self.width}

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write post.json, post.safetensors and config.json, which holds the width that goes in."""
        folder = Path(output_path)
        folder.mkdir(parents=True, exist_ok=True)
        write_post(folder, self.chain, self.fitted_on)
        self.save_config(output_path)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> PostProcessing:
        """Load the module from a folder or a Hub id. kwargs: those that say where to look for it; others are not used."""
        hub = {key: kwargs[key] for key in ("token", "cache_folder", "revision", "local_files_only") if key in kwargs}
        config = cls.load_config(model_name_or_path, subfolder=subfolder, **hub)
        chain, fitted_on = read_post(Path(cls.load_dir_path(model_name_or_path, subfolder, **hub)))
        return cls(chain, fitted_on, int(config["width"]))
