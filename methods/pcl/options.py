"""Options of PCL (Wu et al. 2022): as in the released code, or with its errors corrected. Imports no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from stsbench.options import GIVEN, Where
from stsbench.settings import Settings, setting
from stsbench.training.api.options import Options

_CODE = "qiyuw/PeerCL@5e40ea5"
_OWN, _SHARED = ("contrastive_peer_weight", "group_peer_weight"), ("cross_weight", "symmetric_weight")
_PEER = {"peer": GIVEN}
_OF_GROUPS = Where(lambda options: options.group_weight + options.peer_weights["group_peer_weight"] > 0,
                   "a weight of a group term above 0")
_AGREEMENT = Where(lambda options: options.cross_weight + options.symmetric_weight > 0,
                   "cross_weight or symmetric_weight above 0")
Augmentation = Literal["shuffle", "reverse", "delete", "repeat", "copy"]  # sf, rv, de, rp, dp in the released code


def _trained(weight: str) -> Where:
    """Return the condition for the weight of a term of the peer alone, which has no effect where the peer is frozen."""
    return Where(lambda options: not options.peer.frozen or not getattr(options, weight), "a peer that is trained")


class PeerOptions(Settings):
    """The peer, PCL's second network."""

    model: str | None = setting(
        None, "where it is read from, a model of the backbone's vocabulary and width; null: it starts as the backbone",
        f"null: {_CODE}",
    )
    frozen: bool = setting(
        False, "nothing is trained by its vectors, neither its weights nor a head that it shares, and its own two terms are "
        "left out; its dropout stays on", f"true: {_CODE}, --fix_peer_model",
    )
    mask: bool = setting(
        False, "whether it is told which tokens are padding; the released code's is not", f"false: {_CODE}",
    )
    head: Literal["shared", "own"] = setting(
        "shared", "the encoder's MLP over its pooler's vector, or one of its own", f"shared: {_CODE}",
    )


class PCLOptions(Options):
    """Defaults: as in the released code. A weight of 0 leaves its term out."""

    default_recipe = "released-bert-base"

    temperature: float = setting(0.05, "divides the cosine", _CODE, gt=0)
    head: Literal["mlp_train_only", "mlp", "none"] = setting(
        "mlp_train_only", "the MLP over the pooler cls, as SimCSE's: dropped at test, kept, or none", _CODE,
    )
    augmentations: tuple[Augmentation, ...] = setting(
        ("shuffle", "reverse", "delete", "repeat", "shuffle", "reverse", "delete", "repeat"),
        "a view each, after the sentence twice", f"{_CODE}: sf+rv+de+rp+sf+rv+de+rp; copy: dp",
    )
    peer: PeerOptions | None = setting(
        PeerOptions(), "the second network: model, frozen, mask, head; null: none", f"null: {_CODE}, peer_coop off",
    )
    group_positive: Literal["bce_of_softmax", "bce"] = setting(
        "bce_of_softmax", "binary cross-entropy of sigmoid(softmax) (released code); of softmax", _CODE,
        goes_with=_OF_GROUPS,
    )
    reduce: Literal["element", "row"] = setting(
        "element", "cross, symmetric: mean over all elements (released code), or over rows", _CODE,
        goes_with=(_PEER, _AGREEMENT),
    )
    contrastive_weight: float = setting(1.0, "InfoNCE of the encoder", _CODE, gt=0)
    contrastive_peer_weight: float = setting(
        1.0, "InfoNCE of the peer", _CODE, ge=0, goes_with=(_PEER, _trained("contrastive_peer_weight")),
    )
    group_weight: float = setting(
        1.0, "own views against other texts, by the encoder", f"0, and no augmentations: {_CODE}, posi_cst off", ge=0,
    )
    group_peer_weight: float = setting(
        1.0, "own views against other texts, by the peer", _CODE, ge=0, goes_with=(_PEER, _trained("group_peer_weight")),
    )
    cross_weight: float = setting(
        1.0, "agreement of anchors of one network with views of the other", _CODE, ge=0, goes_with=_PEER,
    )
    symmetric_weight: float = setting(
        1.0, "agreement of what one network finds with what the other does", _CODE, ge=0, goes_with=_PEER,
    )

    @property
    def peer_weights(self) -> dict[str, float]:
        """Return the weights of the terms with the peer, by option: all 0 without a peer, and 0 for the own terms of a
        frozen peer, which would train nothing (the released code leaves them out, too)."""
        idle = (*_OWN, *_SHARED) if self.peer is None else _OWN if self.peer.frozen else ()
        return {name: 0.0 if name in idle else getattr(self, name) for name in (*_OWN, *_SHARED)}

    @model_validator(mode="after")
    def _weights_leave_a_use(self) -> Self:
        peer, weights = self.peer, self.peer_weights
        if peer is not None and not any(weights.values()):
            names = _SHARED if peer.frozen else weights
            raise ValueError(f"peer has no effect: {', '.join(names)} are 0; set it to null")
        terms = [self.group_weight, *(weight for name, weight in weights.items() if name != "contrastive_peer_weight")]
        if self.augmentations and not any(terms):
            raise ValueError(
                "augmentations has no effect: InfoNCE reads the first two views, and the weights of all other terms are 0; "
                "set it to []"
            )
        if peer is not None and self.head == "none" and peer.head != "shared":
            raise ValueError("peer.head own has no effect: head is none; leave it at shared")
        return self
