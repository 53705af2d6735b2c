"""Handing a run to others: a model card with its index of scores, and results as mteb writes them.

The names load on first use: the card needs huggingface_hub.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stsbench.publish.model_card import card, export_card
    from stsbench.publish.mteb_export import MtebEncoder, export_mteb

_PUBLIC = {"MtebEncoder": "mteb_export", "card": "model_card", "export_card": "model_card", "export_mteb": "mteb_export"}
__all__ = ["MtebEncoder", "card", "export_card", "export_mteb"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f"stsbench.publish.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'stsbench.publish' has no attribute '{name}'")
