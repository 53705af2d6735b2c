"""Which of PCL's options go together: whatever would have no effect is refused."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.training.api.options import changed, refuse_idle

from .options import PCLOptions

_OF_THE_PEER = ("contrastive_peer_weight", "group_peer_weight", "cross_weight", "symmetric_weight")


def check_options(options: PCLOptions) -> None:
    """Raises StsbenchError, one line, for an option without an effect."""
    peer, weights = options.peer, {name: getattr(options, name) for name in _OF_THE_PEER}
    if peer is None:
        refuse_idle(options, (*_OF_THE_PEER, "reduce"), "options.peer is null")
        weights = dict.fromkeys(weights, 0.0)
    elif not any(weights.values()):
        raise StsbenchError(f"options.peer has no effect: {', '.join(weights)} are 0; set it to null")
    if weights["cross_weight"] == weights["symmetric_weight"] == 0 and peer is not None:
        refuse_idle(options, ("reduce",), "cross_weight and symmetric_weight are 0")
    groups = options.group_weight + weights["group_peer_weight"]
    if groups == 0 and changed(options, "group_positive"):
        refuse_idle(options, ("group_positive",), "no weight of a group term is above 0")
    if groups + weights["cross_weight"] + weights["symmetric_weight"] == 0 and options.augmentations:
        raise StsbenchError(
            "options.augmentations has no effect: InfoNCE reads the first two views, and the weights of all other terms "
            "are 0; set it to []"
        )
    if peer is not None and options.head == "none":
        if peer.head != "shared":
            raise StsbenchError("options.peer.head own has no effect: options.head is none; leave it at shared")
        if peer.frozen and (idle := next((name for name in _OF_THE_PEER[:2] if weights[name]), None)):
            raise StsbenchError(
                f"options.{idle} has no effect: options.peer.frozen and options.head none leave nothing for it to train; "
                "set it to 0"
            )


def check_head(options: PCLOptions, pooler: str) -> None:
    """Raises StsbenchError for an MLP head on another vector than the first token's."""
    if options.head != "none" and pooler != "cls":
        raise StsbenchError(f"options.head {options.head} stands on the pooler cls, not on {pooler}: set options.head none")
