"""Which backbones SARCSE trains."""

from __future__ import annotations

from stsbench.errors import StsbenchError


def check_pooler(pooler: str) -> None:
    """Raise StsbenchError for another sentence encoder than SARCSE's."""
    if pooler != "text_cnn":
        raise StsbenchError(f"sarcse trains the pooler text_cnn, not {pooler}: set backbone.pooler text_cnn")
