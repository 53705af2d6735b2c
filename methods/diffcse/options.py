"""Options of DiffCSE (Chuang et al. 2022), including the paper's ablations. Imports no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from stsbench.options import POSITIVE, Values, Where
from stsbench.settings import setting
from stsbench.training.api.options import Options, Queue, Repetition, check_shares

Operator = Literal["replace", "insert", "delete"]

_CODE = "voidism/DiffCSE@f724b2c"
_AUXILIARY = {"rtd_weight": POSITIVE}
_CONTRASTIVE = {"contrastive": True}


def has_changed_copies(options: DiffCSEOptions) -> bool:
    """Return whether the method makes changed copies of sentences."""
    return options.rtd_weight > 0 or options.augmented_as is not None


def has_discriminator(options: DiffCSEOptions) -> bool:
    """Return whether a discriminator classifies every token as changed or not. Its loss may include padding."""
    return options.rtd_weight > 0 and options.task == "rtd"


def has_generator(options: DiffCSEOptions) -> bool:
    """Return whether a generator fills in tokens of the changed copies."""
    return has_changed_copies(options) and options.task != "conditional_mlm" and options.operators != ("delete",)


_CHANGED = Where(has_changed_copies, "rtd_weight above 0, or augmented_as")
_WORDS = {"task": ("rtd", "corrective_lm")}  # the tasks that read the generator's tokens
_GENERATED = (_CHANGED, _WORDS, {"operators": Values(lambda operators: operators != ("delete",), "with replace or insert")})
_REPLACED = {"operators": Values(lambda operators: "replace" in operators, "with replace")}


class DiffCSEOptions(Options):
    """Defaults: the settings that produced the published scores, with rates and weights of BERT-base on STS.

    With projector none, condition makes no difference, as there is no projected vector: its default, projected, is accepted,
    and raw is refused.
    """

    default_recipe = "bert-base-sts"

    view: Literal["dropout", "given"] = setting("dropout", "the positive: the sentence again, or what the data give")
    similarity: Literal["cosine", "dot"] = setting(
        "cosine", "of the contrastive term; dot: without temperature", "Eq. 1", goes_with=_CONTRASTIVE,
    )
    temperature: float = setting(
        0.05, "divides the cosine", "Eq. 1", gt=0, goes_with=(_CONTRASTIVE, {"similarity": "cosine"}),
    )
    contrastive: bool = setting(
        True, "false: the auxiliary term alone, with the weight it has", "Table 3", excludes={"rtd_weight": 0},
        why="no term is left",
    )
    projector: Literal["batchnorm", "tanh", "none"] = setting(
        "batchnorm", "in training only; tanh: SimCSE's MLP", "Table 5",
    )
    rtd_weight: float = setting(
        0.005, "lambda of the auxiliary term; 0: neither generator nor discriminator", "Table 8", ge=0,
    )
    task: Literal["rtd", "conditional_mlm", "corrective_lm"] = setting(
        "rtd", "what the discriminator does with the changed sentence: tell replaced tokens, guess masked ones, correct it",
        "Eq. 3, Table 3", goes_with=_AUXILIARY, excludes={"operators": Values(lambda chosen: chosen != ("replace",), "")},
        why="it guesses the tokens behind masked ones, for which operators must be [replace]",
    )
    sentence: Literal["same", "next", "same+next"] = setting(
        "same", "which sentence is changed; next needs data.contiguous", "Table 3", goes_with=_AUXILIARY,
        excludes={"view": "given"}, why="pairs have no sentence that follows",
    )
    operators: tuple[Operator, ...] = setting(("replace",), "how it is changed", "Table 4", goes_with=_CHANGED)
    combine: Literal["sum", "choice"] = setting(
        "sum", "several operators: all for every batch, or one drawn for each", 'Table 4, "combine all", inferred',
        goes_with={"operators": Values(lambda operators: len(operators) > 1, "of several kinds")},
    )
    augmented_as: Literal["positive", "negative"] | None = setting(
        None, "the changed sentence as a further view", "Table 15", goes_with=_CONTRASTIVE, excludes=_AUXILIARY,
        why="the changed sentence is a further view or has the auxiliary term; set rtd_weight 0",
    )
    mask_ratio: float = setting(
        0.30, "of replace: the share of tokens that are chosen", "Table 7", gt=0, lt=1, goes_with=(_CHANGED, _REPLACED),
    )
    masked: float = setting(
        0.8, "share of the chosen tokens that become [MASK]", _CODE, ge=0, le=1, goes_with=(_CHANGED, _REPLACED),
    )
    random: float = setting(
        0.1, "share of them that become a random token; the rest stay", _CODE, ge=0, le=1, goes_with=(_CHANGED, _REPLACED),
    )
    edit_ratio: float = setting(
        0.15, "of insert and delete, per token", "Table 4", gt=0, lt=1,
        goes_with={"operators": Values(lambda operators: operators != ("replace",), "with insert or delete")},
    )
    generator: str | None = setting(
        None, "folder or Hub id of the masked LM with the encoder's vocabulary; null: the encoder's own", "Table 6",
        goes_with=_GENERATED,
    )
    generator_mode: Literal["train", "eval"] = setting(
        "train", "train: the generator's dropout is on, though it never learns", f"train: {_CODE}; eval: the paper",
        goes_with=_GENERATED,
    )
    replacement: Literal["argmax", "sampling"] = setting(
        "argmax", "how the generator's token is taken", f"argmax: {_CODE}; sampling: the paper", goes_with=_GENERATED,
    )
    replace: Literal["all", "masked"] = setting(
        "all", "it is taken at every token but the first, or at the masked ones only", f"all: {_CODE}; masked: the paper",
        goes_with=(_CHANGED, _WORDS, _REPLACED),
    )
    condition: Literal["projected", "raw"] = setting(
        "projected", "the vector that the discriminator reads in slot 0", f"projected: {_CODE}; raw: the paper",
        goes_with=(_AUXILIARY, {"projector": ("batchnorm", "tanh")}), excludes={"contrastive": False},
        why="nothing reads the projector; set projector none and leave condition at projected",
    )
    detach: bool = setting(
        False, "true: no gradient from the discriminator to the encoder", goes_with=_AUXILIARY,
        excludes={"contrastive": False}, why="the encoder is left without a gradient",
    )
    rtd_mean: Literal["all", "attended", "attended_without_specials"] = setting(
        "all", "tokens that the auxiliary term is the mean over; all: padding and slot 0 count, too", f"all: {_CODE}",
        goes_with=(_AUXILIARY, _WORDS),
    )
    repeat: Repetition | None = setting(
        None, "sub-words or words repeated in every view but the first; null: none", "ESimCSE (Wu et al. 2022)",
    )
    queue: Queue | None = setting(
        None, "vectors of earlier batches as further negatives; null: none", "ESimCSE (Wu et al. 2022)",
        goes_with=_CONTRASTIVE,
    )

    @model_validator(mode="after")
    def _check_change(self) -> Self:
        """Raise ValueError for options of the changed sentences that contradict each other or have no effect."""
        operators = f"[{', '.join(self.operators)}]"
        if not self.operators or len(set(self.operators)) < len(self.operators):
            raise ValueError(f"operators takes one or more of replace, insert, delete, each once, not {operators}")
        check_shares(self)
        if self.task == "corrective_lm" and self.rtd_mean == "attended":
            raise ValueError("rtd_mean attended has no effect: task corrective_lm never counts padding; leave it at all")
        if self.augmented_as is not None and len(self.operators) > 1 and self.combine == "sum":
            raise ValueError(
                f"augmented_as {self.augmented_as} adds one view, and operators {operators} would add several: name one of "
                "them, or set combine choice"
            )
        return self
