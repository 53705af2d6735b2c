"""The learned poolers over tokens, by name."""

from __future__ import annotations

from pathlib import Path

from stsbench.encoders.forward.mean_cnn import MeanCNN
from stsbench.encoders.forward.text_cnn import TextCNN
from stsbench.encoders.forward.token_pooler import TokenPooler
from stsbench.encoders.forward.token_pooler_files import stored_token_pooler

CLASSES: dict[str, type[TokenPooler]] = {kind.kind.pooler: kind for kind in (TextCNN, MeanCNN)}


def load_token_pooler(folder: Path, pooler: str, name: str) -> TokenPooler:
    """The learned pooler that the model `name` keeps in `folder`. EncoderError: it has none, or its files are broken."""
    return CLASSES[pooler].load(stored_token_pooler(folder, pooler, name))
