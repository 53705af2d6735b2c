"""Which backbones SNCSE trains."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.training.modules.backbone import Backbone


def check_pooler(backbone: Backbone) -> None:
    """Raise StsbenchError, one line, for another pooler than mask."""
    if backbone.pooler != "mask":
        raise StsbenchError(f"sncse trains the pooler mask, not {backbone.pooler}: set backbone.pooler mask")
