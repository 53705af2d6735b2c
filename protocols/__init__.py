"""How to measure: one file a protocol, YAML presets for papers that differ only in settings.

The classes load on first use: some need libraries that others do without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .geometry import GeometryProtocol
    from .mteb import MtebProtocol
    from .regression import RegressionProtocol
    from .retrieval import RetrievalProtocol
    from .sts import StsProtocol
    from .transfer import TransferProtocol

__all__ = [
    "GeometryProtocol", "MtebProtocol", "RegressionProtocol", "RetrievalProtocol", "StsProtocol", "TransferProtocol",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"stsbench.protocols.{name.removesuffix('Protocol').lower()}"), name)
    raise AttributeError(f"module 'stsbench.protocols' has no attribute '{name}'")
