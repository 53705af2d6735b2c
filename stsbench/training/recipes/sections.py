"""The parts of a recipe: every choice by name, its allowed values, and its default. Imports no torch."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from stsbench.encoders.forward.pooling import MEAN_PADDED, padded_length

_TRAINED = ("cls", "mean", "first_last:embeddings", "first_last:layer1", "last2", "max", "text_cnn", "mean_cnn", "mask")


AVG_STS, AVG_STS_SETS = "avg_sts", ("stsb/dev", "sick-r/trial")  # the mean over both, as SimCSE's code calls it
SELECTED_BY, OWN_PAIRS = ("sts-b dev", AVG_STS, "transfer dev", "held-out", "none"), "sts:"  # of selection.by
LABELLED_PAIRS = "pairs:"  # the same of pairs that match or do not
MOST = 2**31 - 1  # of a batch's rows and the like: beyond it C's integers overflow
CHANNELS = 8192  # of a learned pooler: a recipe may be somebody else's, and memory is the machine's
Kernels = Annotated[tuple[Annotated[int, Field(ge=1, le=512)], ...], Field(min_length=1, max_length=16)]


def _layers_in_order(layers: tuple[int, ...]) -> tuple[int, ...]:
    if any(later <= earlier for earlier, later in pairwise(layers)):
        raise ValueError("layers are different numbers from 0, in their order")
    return layers


Layers = Annotated[tuple[Annotated[int, Field(ge=0, le=512)], ...], Field(min_length=1, max_length=512),
                   AfterValidator(_layers_in_order)]
_Beta = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A part of a recipe; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Source(Section):
    """Where a recipe's values come from."""

    paper: str  # as cited, e.g. "Gao et al. 2021 (SimCSE)"
    table: str | None = None  # e.g. "Table 5", "Table 3, p = 0.1"
    code: str | None = None  # repository@commit:file
    note: str | None = None  # what neither states and was inferred


class Published(Section):
    """One published row: scores as printed, by task: x 100, but for the plain numbers of geometry."""

    protocol: str  # e.g. "sts:all", "transfer", "sts-b dev", "geometry"
    metric: str = "spearman"
    scores: dict[str, float]


class TextCNNSettings(Section):
    """The learned pooler text_cnn (encoders/forward/text_cnn.py): windows of one width a kernel, their maxima fused by a
    second convolution."""

    kernels: Kernels = (3, 4, 5)  # tokens a window
    channels: int = Field(default=500, ge=2, le=CHANNELS)  # of each kernel
    fusion_channels: int = Field(default=3, ge=1, le=CHANNELS)
    fusion_width: int = Field(default=2, ge=1)  # channels that the fusion reads side by side, over all kernels
    activation: Literal["relu", "tanh", "none"] = "relu"  # before the maximum over windows

    @model_validator(mode="after")
    def _widths_fit(self) -> TextCNNSettings:
        if min(self.kernels) < 1 or len(set(self.kernels)) < len(self.kernels):
            raise ValueError("kernels are different numbers of tokens, 1 at least")
        if self.fusion_width > self.channels:
            raise ValueError(f"fusion_width {self.fusion_width} is more than the {self.channels} channels")
        return self


def _trained_pooler(name: str) -> str:
    if name not in _TRAINED and padded_length(name) is None:
        expected = f"{', '.join(map(repr, _TRAINED))} or {MEAN_PADDED!r}"
        raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})
    return name


Pooler = Annotated[str, AfterValidator(_trained_pooler)]


class MeanCNNSettings(Section):
    """The learned pooler mean_cnn (encoders/forward/mean_cnn.py): windows of one width a kernel around each token, side by
    side, and their mean over the tokens."""

    kernels: Kernels = (1, 3, 5)  # tokens a window
    channels: int = Field(default=256, ge=1, le=CHANNELS)  # of each kernel
    activation: Literal["relu", "none"] = "relu"  # before the mean

    @model_validator(mode="after")
    def _windows_have_a_middle(self) -> MeanCNNSettings:
        if min(self.kernels) < 1 or len(set(self.kernels)) < len(self.kernels) or any(k % 2 == 0 for k in self.kernels):
            raise ValueError("kernels are different odd numbers of tokens")
        return self


class BackboneSettings(Section):
    """The model that training starts from."""

    model: str  # Hub id or folder
    pooler: Pooler = "cls"  # mean_padded:N: the mean over N positions, those of the padding counted
    text_cnn: TextCNNSettings | None = None  # of the pooler text_cnn; null: a model's own, or SARCSE's sizes
    mean_cnn: MeanCNNSettings | None = None  # of the pooler mean_cnn; null: a model's own, or IS-BERT's sizes
    dropout: float | None = Field(default=None, ge=0, lt=1)  # on hidden states and attention; null: the model's own
    max_length: int = Field(default=32, ge=3)  # tokens, special ones included
    layers: Layers | None = None  # those that are kept, from 0: [0, 2, 4]; null: all


class DataSettings(Section):
    """The training text."""

    file: str | None = None  # or the training split of the catalog's scored pairs: stsb/train
    format: Literal["auto", "text", "csv", "tsv", "jsonl"] = "auto"  # auto: by the file's extension
    columns: dict[str, str] = {}  # role -> column name; roles: sentence, anchor, positive, negative, label, score ...
    where: dict[str, str] = {}  # column -> value: other rows are left out
    drop_blank: bool = False  # rows with an empty text (counted and reported either way)
    drop_duplicates: bool = False  # rows equal to an earlier one (counted and reported either way)
    # rows with a text of fewer characters, white space at its ends not counted, are left out (and counted)
    min_characters: int = Field(default=0, ge=0)
    held_out: int = Field(default=0, ge=0)  # rows kept out of training, drawn by the seed, for selection by "held-out"
    sample: int | None = Field(default=None, ge=1)  # so many rows, drawn by the seed; null: all
    share: float = Field(default=1.0, gt=0, le=1)  # each row is kept with this probability: few labels
    sample_seed: int | None = Field(default=None, ge=0)  # what sample and share draw by; null: the run's seed
    contiguous: bool = False  # lines follow one another in their documents, a blank line ends one
    lines_per_row: int = Field(default=1, ge=1)  # plain text: so many lines, joined by a space; a blank line ends a row


class LabelledSettings(DataSettings):
    """Labelled rows (NLI). A stage trains on them only, or a batch of them goes with each batch of `data`."""

    batch_size: int = Field(default=128, ge=1)  # examples of a batch that goes with one of `data`


class SemiSettings(Section):
    """A method without labels and NLI's cross-entropy on [u; v; |u - v|], after one another or at once (DiffAug, App. C)."""

    procedure: Literal["joint", "sup-unsup", "sup-joint"]  # sup: a stage of that name, with the cross-entropy alone
    alpha: float = Field(default=1e-3, gt=0)  # weight of the cross-entropy added to the method's loss


class TrainingSettings(Section):
    """One stage's optimisation."""

    batch_size: int = Field(default=64, ge=1, le=MOST)  # examples a forward pass, over all processes: the in-batch negatives
    # a forward pass ends before its rows times the longest one's tokens, of all its texts, are more; null: no limit
    batch_tokens: int | None = Field(default=None, ge=1, le=MOST)
    accumulate: int = Field(default=1, ge=1, le=MOST)  # forward passes a step; adds no negatives
    # texts that the encoder holds activations of at a time, in each process; the loss is that of the whole batch. null: all
    chunk: int | None = Field(default=None, ge=1, le=MOST)
    epochs: float = Field(default=1.0, gt=0, le=1e6)
    max_steps: int | None = Field(default=None, ge=1, le=10**9)  # shortens the run, and the schedule with it
    learning_rate: float = Field(default=3e-5, gt=0)
    # linear: to 0 at the last step; slanted: the triangle of ULMFiT, from 1/32 of the rate and back
    schedule: Literal["linear", "constant", "piecewise", "slanted"] = "linear"
    milestones: tuple[int, ...] = ()  # piecewise: steps taken from which on `rates` apply, one each, whatever max_steps is
    rates: tuple[float, ...] = ()  # piecewise: learning rates after the milestones; before the first, learning_rate
    schedule_of: str | None = None  # the stage whose steps the schedule counts, whatever its own number; null: its own
    warmup: float = Field(default=0, ge=0)  # steps; below 1 a share of all steps
    # the steps that a warm-up in steps was meant for, where max_steps shortened a recipe: it shrinks with them. Written by
    # recipes/optimisation.py; epochs: those of the epochs; null: the run has the recipe's own length
    warmup_of: Annotated[int, Field(ge=1)] | Literal["epochs"] | None = None
    weight_decay: float = Field(default=0.0, ge=0)  # rmsprop: added to the gradient
    weight_decay_on: Literal["matrices", "all"] = "matrices"  # all: on biases and LayerNorm, too, as plain torch does
    optimizer: Literal["adamw", "rmsprop"] = "adamw"
    betas: tuple[_Beta, _Beta] = (0.9, 0.999)  # adamw
    rho: float | None = Field(default=None, ge=0, lt=1)  # rmsprop: of its mean square; torch has 0.99, TensorFlow 0.9
    epsilon: float = Field(default=1e-8, gt=0)  # rmsprop: outside the root; torch has 1e-8, TensorFlow 1e-7
    # epsilon behind bias correction, or before it; uncorrected: no bias correction, as in the first BERT's optimiser
    adam: Literal["torch", "transformers", "uncorrected"] = "torch"
    clip: float | None = Field(default=1.0, gt=0)  # gradient norm; null: none
    order: Literal["random", "length"] = "random"  # length: batches of similar length, not the papers' batches
    drop_last: bool = False  # the last, smaller batch of an epoch
    gather: Literal["exact", "simcse", "local"] = "exact"  # negatives of other processes: see training/api/batch.py


def _selected_by(name: str) -> str:
    if name not in SELECTED_BY and not (name.startswith((OWN_PAIRS, LABELLED_PAIRS)) and name.partition(":")[2].strip()):
        expected = f"{', '.join(map(repr, SELECTED_BY))}, {OWN_PAIRS + 'FILE'!r} or {LABELLED_PAIRS + 'FILE'!r}"
        raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})
    return name


class SelectionSettings(Section):
    """Which checkpoint is kept as the best."""

    # sts:FILE, pairs:FILE: scored or labelled pairs of one's own, as the protocol of that name reads them
    by: Annotated[str, AfterValidator(_selected_by)] = "sts-b dev"
    every: int = Field(default=250, ge=1)  # steps
    over: Literal["last", "all"] = "last"  # the best of the last stage, or of all stages
    at_end: bool = False  # also after the last step; the papers' code does so only where it is a multiple of `every`


class SearchSettings(Section):
    """How `stsbench sweep` chose this recipe's values: the best of so many trials on development data."""

    trials: int = Field(ge=1)  # all that were begun, those that were stopped early, too
    seeds: int = Field(ge=1)  # trainings of a trial; its score is their mean
    by: str  # the development score
    score: float  # of the best trial
    sampler: Literal["grid", "random", "tpe"]
    space: dict[str, Any]  # key -> the values among which was searched, or low, high, log
