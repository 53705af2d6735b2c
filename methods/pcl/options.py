"""PCL's choices (Wu et al. 2022): what the released code does, and the same with its slips mended. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from stsbench.training.api.options import Options

Augmentation = Literal["shuffle", "reverse", "delete", "repeat", "copy"]  # sf, rv, de, rp, dp in the released code


class PeerOptions(BaseModel):
    """The second network.

    model: where it is read from, a model of the backbone's vocabulary and width; null: it starts as the backbone. frozen:
    nothing is trained by its vectors, neither its weights nor a head that it shares, and its own two terms are left out, as
    in the released code; its dropout stays on. mask: whether it is told which tokens are padding; the released code's is
    not. head: the encoder's MLP over its pooler's vector, or one of its own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    model: str | None = None
    frozen: bool = False
    mask: bool = False
    head: Literal["shared", "own"] = "shared"


class PCLOptions(Options):
    """Defaults: what the released code does. Weights of 0 leave a term out."""

    default_recipe = "released-bert-base"

    temperature: float = Field(default=0.05, gt=0)
    head: Literal["mlp_train_only", "mlp", "none"] = "mlp_train_only"  # as SimCSE's: dropped at test, kept, no MLP
    # a view each, after the sentence twice
    augmentations: tuple[Augmentation, ...] = (
        "shuffle", "reverse", "delete", "repeat", "shuffle", "reverse", "delete", "repeat",
    )
    peer: PeerOptions | None = PeerOptions()  # model, frozen, mask, head; null: no second network
    group_positive: Literal["bce_of_softmax", "bce"] = "bce_of_softmax"  # of sigmoid(softmax) (released code); of softmax
    reduce: Literal["element", "row"] = "element"  # cross, symmetric: mean over all elements (released code), or over rows
    contrastive_weight: float = Field(default=1.0, gt=0)  # InfoNCE of the encoder
    contrastive_peer_weight: float = Field(default=1.0, ge=0)  # InfoNCE of the peer
    group_weight: float = Field(default=1.0, ge=0)  # own views against other texts, by the encoder
    group_peer_weight: float = Field(default=1.0, ge=0)  # the same by the peer
    cross_weight: float = Field(default=1.0, ge=0)  # agreement of anchors of one network with views of the other
    symmetric_weight: float = Field(default=1.0, ge=0)  # agreement of what one network finds with what the other does
