"""DiffCSE's choices (Chuang et al. 2022), each ablation of the paper one or two of them. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options, Queue, Repetition

Operator = Literal["replace", "insert", "delete"]


class DiffCSEOptions(Options):
    """Defaults: what produced the published scores; rates and weights are those of BERT-base on STS."""

    default_recipe = "bert-base-sts"

    view: Literal["dropout", "given"] = "dropout"  # the positive: the sentence again, or what the data give
    similarity: Literal["cosine", "dot"] = "cosine"
    temperature: float = Field(default=0.05, gt=0)
    contrastive: bool = True  # false: the auxiliary term alone, with the weight it has
    projector: Literal["batchnorm", "tanh", "none"] = "batchnorm"  # in training only; tanh: SimCSE's MLP
    rtd_weight: float = Field(default=0.005, ge=0)  # lambda of the auxiliary term; 0: neither generator nor discriminator
    # what the discriminator does with the changed sentence: tell replaced tokens (Eq. 3), guess masked ones, or correct it
    task: Literal["rtd", "conditional_mlm", "corrective_lm"] = "rtd"
    sentence: Literal["same", "next", "same+next"] = "same"  # which sentence is changed; next needs data.contiguous
    operators: tuple[Operator, ...] = ("replace",)  # how it is changed (Table 4)
    combine: Literal["sum", "choice"] = "sum"  # several operators: all for every batch, or one drawn for each
    augmented_as: Literal["positive", "negative"] | None = None  # the changed sentence as a further view; needs rtd_weight 0
    mask_ratio: float = Field(default=0.30, gt=0, lt=1)  # of replace: the share of tokens that are chosen
    masked: float = Field(default=0.8, ge=0, le=1)  # of the chosen tokens these become [MASK],
    random: float = Field(default=0.1, ge=0, le=1)  # and these a random token; the rest stay
    edit_ratio: float = Field(default=0.15, gt=0, lt=1)  # of insert and delete, per token
    generator: str | None = None  # folder or Hub id of the masked LM with the encoder's vocabulary; null: the encoder's own
    generator_mode: Literal["train", "eval"] = "train"  # train: its dropout is on, though it never learns
    replacement: Literal["argmax", "sampling"] = "argmax"  # how the generator's token is taken
    replace: Literal["all", "masked"] = "all"  # at every token but the first, or at the masked ones only
    condition: Literal["projected", "raw"] = "projected"  # the vector that the discriminator reads in slot 0
    detach: bool = False  # true: no gradient from the discriminator to the encoder
    rtd_mean: Literal["all", "attended", "attended_without_specials"] = "all"  # all: padding and slot 0 count, too
    repeat: Repetition | None = None  # ESimCSE: sub-words or words repeated in every view but the first; null: none
    queue: Queue | None = None  # ESimCSE: vectors of earlier batches as further negatives; null: none
