"""Two encoders of which one has a planted fault: B is made by transformers and numpy alone, text by text, and no part of the
diagnosis is asked."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from model_folders import WIDTH, adapter, declare, dense, normalize, pooling, tokenizer, transformer, weights
from transformers import AutoModel, AutoTokenizer

PROMPT = "query: "
LIMIT = 200
LONG = {"max_position_embeddings": 520}
Pipeline = Callable[[Sequence[str]], Any]


def bert(folder: Path, *modules: Any, limit: int = LIMIT, **settings: Any) -> Path:
    """A folder of sentence-transformers: a tiny BERT, mean pooling, Normalize."""
    behind = modules or (normalize(),)
    return declare(transformer(folder, **LONG), pooling("mean"), *behind, limit=limit, settings=settings or None)


class Naive:
    """transformers' own pass, a text at a time."""

    def __init__(self, folder: Path, limit: int = LIMIT, prompt: str = "", **changes: Any) -> None:
        """changes: pool, head (of (d,) to (k,)), lower, drop_first, model, reads (of the
        tokenizer's call)."""
        self.model = changes.get("model") or AutoModel.from_pretrained(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.limit, self.prompt, self.changes = limit, prompt, changes
        self.known: dict[str, Any] = {}  # a diagnosis asks again and again

    def ids(self, text: str) -> list[int]:
        """With special tokens, cut between them."""
        text = self.prompt + (text.lower() if self.changes.get("lower") else text)
        size = self.limit + (1 if self.changes.get("drop_first") else 0)
        ids = self.tokenizer(text, truncation=True, max_length=size, **self.changes.get("reads", {}))["input_ids"]
        return ids[1:] if self.changes.get("drop_first") else ids

    def __call__(self, texts: Sequence[str]) -> Any:
        with torch.no_grad():
            self.known |= {text: self.vector(text) for text in texts if text not in self.known}
        return np.stack([self.known[text] for text in texts])

    def vector(self, text: str) -> Any:
        """(k,) of one text."""
        states = self.model(input_ids=torch.tensor([self.ids(text)])).last_hidden_state[0]
        pool = self.changes.get("pool", lambda states: states.float().mean(0))
        head = self.changes.get("head", lambda vector: vector / vector.norm())
        return head(pool(states).float()).numpy()


def moved_weights(folder: Path, target: Path, by: float = 0.05) -> Path:
    """Another revision: every weight matrix moved a little, at random."""
    shutil.copytree(folder, target)
    generator = torch.Generator().manual_seed(3)

    def edit(tensors: dict[str, Any]) -> None:
        for tensor in tensors.values():
            if tensor.dim() == 2:
                tensor += by * tensor.std() * torch.randn(tensor.shape, generator=generator)

    weights(target / "model.safetensors", edit)
    return target


def overflowing(folder: Path) -> Path:
    """A model whose inner numbers go beyond 65,504 where a text holds certain tokens; its vectors do not."""
    bert(folder)

    def edit(tensors: dict[str, Any]) -> None:
        for name, tensor in tensors.items():
            if name.endswith("layer.1.intermediate.dense.weight"):
                tensor[0] *= 20000
            if name.endswith("layer.1.output.dense.weight"):
                tensor[:, 0] *= 1e-3

    weights(folder / "model.safetensors", edit)
    return folder


def quantised(folder: Path) -> Any:
    model = AutoModel.from_pretrained(folder).eval()
    return torch.ao.quantization.quantize_dynamic(copy.deepcopy(model), {torch.nn.Linear}, dtype=torch.qint8)


__all__ = ["PROMPT", "WIDTH", "Naive", "adapter", "bert", "dense", "moved_weights", "overflowing", "quantised", "tokenizer"]
