"""Which of PCL's options go together: whatever would have no effect is refused."""

from __future__ import annotations

from stsbench.errors import StsbenchError
from stsbench.training.api.options import changed, refuse_idle

from .options import PCLOptions

_OWN, _SHARED = ("contrastive_peer_weight", "group_peer_weight"), ("cross_weight", "symmetric_weight")


def peer_weights(options: PCLOptions) -> dict[str, float]:
    """Return the weights of the terms that read the peer, by the options' names: 0 of all without one, and of a frozen
    one's own terms, which would train nothing (the released code leaves them out, too)."""
    peer = options.peer
    idle = (*_OWN, *_SHARED) if peer is None else _OWN if peer.frozen else ()
    return {name: 0.0 if name in idle else getattr(options, name) for name in (*_OWN, *_SHARED)}


def check_options(options: PCLOptions) -> None:
    """Raises StsbenchError, one line, for an option without an effect."""
    peer, weights = options.peer, peer_weights(options)
    if peer is None:
        refuse_idle(options, (*weights, "reduce"), "options.peer is null")
    else:
        if peer.frozen:
            idle = [name for name in _OWN if getattr(options, name)]
            refuse_idle(options, idle, "a frozen peer's own terms train nothing and are left out")
        if not any(weights.values()):
            names = _SHARED if peer.frozen else weights
            raise StsbenchError(f"options.peer has no effect: {', '.join(names)} are 0; set it to null")
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
    if peer is not None and options.head == "none" and peer.head != "shared":
        raise StsbenchError("options.peer.head own has no effect: options.head is none; leave it at shared")


def check_head(options: PCLOptions, pooler: str) -> None:
    """Raises StsbenchError for an MLP head on another vector than the first token's."""
    if options.head != "none" and pooler != "cls":
        raise StsbenchError(f"options.head {options.head} stands on the pooler cls, not on {pooler}: set options.head none")
