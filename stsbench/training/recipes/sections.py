"""The sections of a recipe: every setting with its allowed values, its default and what it depends on. Imports no torch."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from stsbench.encoders.forward.pooling import MEAN_PADDED, padded_length
from stsbench.losses.choices import Direction, Hardness, Partition, check_directions
from stsbench.options import POSITIVE, Where, recipe_value
from stsbench.settings import Settings, setting

_TRAINED = ("cls", "mean", "first_last:embeddings", "first_last:layer1", "last2", "max", "last", "weighted_mean", "text_cnn",
            "mean_cnn", "mask")
AVG_STS, AVG_STS_SETS = "avg_sts", ("stsb/dev", "sick-r/trial")  # SimCSE's name for the mean over both sets
SELECTED_BY, OWN_PAIRS = ("sts-b dev", AVG_STS, "transfer dev", "held-out", "none"), "sts:"  # the values of selection.by
LABELLED_PAIRS = "pairs:"  # a value of selection.by, too: a file of pairs labelled as matching or not
MOST = 2**31 - 1  # greater numbers, of a batch's rows for example, overflow C's integers
CHANNELS = 8192  # at most, in a learned pooler: an untrusted recipe must not exhaust the memory
Kernels = Annotated[tuple[Annotated[int, Field(ge=1, le=512)], ...], Field(min_length=1, max_length=16)]


def _layers_in_order(layers: tuple[int, ...]) -> tuple[int, ...]:
    if any(later <= earlier for earlier, later in pairwise(layers)):
        raise ValueError("layers are different numbers from 0, in their order")
    return layers


Layers = Annotated[tuple[Annotated[int, Field(ge=0, le=512)], ...], Field(min_length=1, max_length=512),
                   AfterValidator(_layers_in_order)]
_Beta = Annotated[float, Field(ge=0, lt=1)]
_Count = Annotated[int, Field(ge=1, le=MOST)]


class Source(Settings):
    """The source of a recipe's values."""

    paper: str = setting(..., 'as cited, e.g. "Gao et al. 2021 (SimCSE)"')
    table: str | None = setting(None, 'e.g. "Table 5", "Table 3, p = 0.1"')
    code: str | None = setting(None, "repository@commit:file")
    note: str | None = setting(None, "what neither states and was inferred")


class Published(Settings):
    """Published scores of a model that was trained by the recipe."""

    protocol: str = setting(..., 'e.g. "sts:all", "transfer", "sts-b dev", "geometry"')
    metric: str = setting("spearman", "what is printed")
    scores: dict[str, float] = setting(..., "as printed, by task: x 100, but for the plain numbers of geometry")


class TextCNNSettings(Settings):
    """The learned pooler text_cnn (encoders/forward/token_pooler.py): convolutions of several widths, whose maxima over the
    tokens are fused by a second convolution."""

    kernels: Kernels = setting((3, 4, 5), "tokens a window")
    channels: int = setting(500, "of each kernel", ge=2, le=CHANNELS)
    fusion_channels: int = setting(3, "of the second convolution", ge=1, le=CHANNELS)
    fusion_width: int = setting(2, "channels that the fusion reads side by side, over all kernels", ge=1)
    activation: Literal["relu", "tanh", "none"] = setting("relu", "before the maximum over windows")

    @model_validator(mode="after")
    def _widths_fit(self) -> Self:
        if len(set(self.kernels)) < len(self.kernels):
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


class MeanCNNSettings(Settings):
    """The learned pooler mean_cnn (encoders/forward/token_pooler.py): convolutions of several widths around each token,
    concatenated and averaged over the tokens."""

    kernels: Kernels = setting((1, 3, 5), "tokens a window, odd numbers")
    channels: int = setting(256, "of each kernel", ge=1, le=CHANNELS)
    activation: Literal["relu", "none"] = setting("relu", "before the mean")

    @model_validator(mode="after")
    def _windows_have_a_middle(self) -> Self:
        if len(set(self.kernels)) < len(self.kernels) or any(kernel % 2 == 0 for kernel in self.kernels):
            raise ValueError("kernels are different odd numbers of tokens")
        return self


class LoRASettings(Settings):
    """Low-rank adaptation (Hu et al. 2022): linear layers compute W x + alpha / rank B A x, with W frozen. peft draws A, and
    B starts at 0. The exported model's weights are the sum."""

    rank: int = setting(16, "r of A (r, d) and B (d, r)", "LLM2Vec's code", ge=1)
    alpha: float = setting(32.0, "alpha / rank is the factor of the change", "LLM2Vec's code", gt=0)
    dropout: float = setting(0.05, "of what A reads", "LLM2Vec's code", ge=0, lt=1)
    layers: tuple[str, ...] | None = setting(
        None, "last parts of the names of those layers, e.g. [q_proj, v_proj]; null: all that are linear", min_length=1,
    )
    base: Literal["whole", "nf4", "nf4_double"] = setting(
        "whole", "nf4: all linear layers hold their weights in 4 bits; nf4_double: and their scales in 8 (bitsandbytes)",
        "Dettmers et al. 2023 (QLoRA)",
    )

    def __str__(self) -> str:
        return f"LoRA of rank {self.rank}" + ("" if self.base == "whole" else f" on weights in 4 bits ({self.base})")


class BackboneSettings(Settings):
    """The model that training starts from."""

    model: str = setting(..., "Hub id or folder")
    pooler: Pooler = setting("cls", f"{', '.join(_TRAINED)}, or {MEAN_PADDED}: the mean over N positions, padding counted")
    text_cnn: TextCNNSettings | None = setting(None, "of the pooler text_cnn; null: a model's own, or SARCSE's sizes")
    mean_cnn: MeanCNNSettings | None = setting(None, "of the pooler mean_cnn; null: a model's own, or IS-BERT's sizes")
    dropout: float | None = setting(None, "on hidden states and attention; null: the model's own", ge=0, lt=1)
    max_length: int = setting(32, "tokens, special ones included", ge=3)
    layers: Layers | None = setting(None, "those that are kept, from 0: [0, 2, 4]; null: all")
    attention: Literal["own", "bidirectional"] = setting(
        "own", "bidirectional: the tokens of a causal model attend to what follows, too", "LLM2Vec",
    )
    lora: LoRASettings | None = setting(None, "trains low-rank changes in the place of the model's weights")
    gradient_checkpointing: Literal["none", "layers", "offload"] = setting(
        "none", "layers: they are computed again for their gradient, in the place of being kept; offload: from states that "
        "wait in the CPU's memory",
    )


class DataSettings(Settings):
    """The training text."""

    file: str | None = setting(None, "or the training split of the catalog's scored pairs: stsb/train")
    format: Literal["auto", "text", "csv", "tsv", "jsonl"] = setting("auto", "auto: by the file's extension")
    columns: dict[str, str] = setting({}, "role -> column name: sentence, anchor, positive, negative, label, score ...")
    where: dict[str, str] = setting({}, "column -> value: other rows are left out")
    drop_blank: bool = setting(False, "leaves out rows with an empty text (counted and reported either way)")
    drop_duplicates: bool = setting(False, "leaves out rows equal to an earlier one (counted and reported either way)")
    min_characters: int = setting(
        0, "rows with a text of fewer characters, white space at its ends not counted, are left out (and counted)", ge=0,
    )
    held_out: int = setting(0, 'rows kept out of training, drawn by the seed, for selection by "held-out"', ge=0)
    sample: int | None = setting(None, "so many rows, drawn by the seed; null: all", ge=1)
    share: float = setting(1.0, "each row is kept with this probability: few labels", gt=0, le=1)
    sample_seed: int | None = setting(None, "what sample and share draw by; null: the run's seed", ge=0)
    contiguous: bool = setting(False, "lines follow one another in their documents, a blank line ends one")
    lines_per_row: int = setting(1, "plain text: so many lines, joined by a space; a blank line ends a row", ge=1)


class LabelledSettings(DataSettings):
    """Labelled rows (NLI). A stage trains on them alone, or a batch of them accompanies each batch of `data`."""

    batch_size: int = setting(128, "examples of a batch that goes with one of data", ge=1)


class SemiSettings(Settings):
    """Semi-supervised training: a method without labels, and a cross-entropy on NLI labels from [u; v; |u - v|], before it
    or together with it (DiffAug, App. C)."""

    procedure: Literal["joint", "sup-unsup", "sup-joint"] = setting(
        ..., "sup: a stage of that name, with the cross-entropy alone; joint: beside the method's loss",
    )
    alpha: float = setting(
        1e-3, "weight of the cross-entropy added to the method's loss", gt=0,
        goes_with={"procedure": ("joint", "sup-joint")},
    )


class MatryoshkaSettings(Settings):
    """Matryoshka loss (Kusupati et al. 2022): sum over k of w_k L(first d_k numbers of every vector, normalised), where L is
    the contrastive term. Weights are not divided by their sum: beside other terms of a loss, m dims with weight 1 count m
    times."""

    dims: tuple[int, ...] = setting(..., "the full width is trained only where it is among them", min_length=1)
    weights: tuple[float, ...] | None = setting(None, "one a dim; null: 1 each")
    per_step: int | None = setting(None, "dims drawn each step, as sentence-transformers' n_dims_per_step; null: all", ge=1)

    @model_validator(mode="after")
    def _a_weight_a_dim(self) -> Self:
        if min(self.dims) < 1 or len(set(self.dims)) < len(self.dims):
            raise ValueError("dims are different numbers of coordinates, 1 at least")
        if self.weights is not None and (len(self.weights) != len(self.dims) or min(self.weights) <= 0):
            raise ValueError(f"weights must be {len(self.dims)} numbers above 0, one for each of dims")
        if self.per_step is not None and self.per_step >= len(self.dims):
            raise ValueError(f"per_step {self.per_step} draws nothing of {len(self.dims)} dims: set it to null")
        return self

    @property
    def pairs(self) -> tuple[tuple[int, float], ...]:
        """Return (dim, weight) for each of dims."""
        return tuple(zip(self.dims, self.weights or (1.0,) * len(self.dims), strict=True))


class AdaptiveLayersSettings(Settings):
    """The loss at layers before the last, too, whose vectors are drawn towards the last layer's (Li et al. 2024, 2D
    Matryoshka Sentence Embeddings): sentence-transformers' AdaptiveLayerLoss, with matryoshka its Matryoshka2dLoss."""

    per_step: int | None = setting(1, "layers drawn each step, the embeddings among them; null: all", ge=1)
    last_weight: float = setting(1.0, "of the loss at the last layer", gt=0)
    prior_weight: float = setting(1.0, "of the mean loss at those drawn", ge=0)
    weighting: Literal["uniform", "log", "linear"] = setting(
        "uniform", "of layer i among them; log: 1 / (1 + ln(1 + i)), linear: 1 / (1 + i)", "log: ESE",
        goes_with={"prior_weight": POSITIVE},
    )
    kl_weight: float = setting(1.0, "of the divergence of their vectors' softmax from the last one's", ge=0)
    kl_temperature: float = setting(0.3, "divides the vectors, and multiplies the divergence", gt=0,
                                    goes_with={"kl_weight": POSITIVE})

    @model_validator(mode="after")
    def _a_layer_has_an_effect(self) -> Self:
        if not self.prior_weight and not self.kl_weight:
            raise ValueError("prior_weight and kl_weight are both 0: set adaptive_layers to null")
        return self


class GORSettings(Settings):
    """Global orthogonal regularisation (Zhang et al. 2017): different texts get cosines like those of random directions.

    It is computed on the vectors of the contrastive term, for each kind of text separately, as sentence-transformers'
    GlobalOrthogonalRegularizationLoss does. EmbeddingGemma's variant has mean 0 and kinds sum.
    """

    mean: float = setting(1.0, "weight of the square of the mean cosine", ge=0)
    second_moment: float = setting(1.0, "weight of what the mean squared cosine is above 1/d", ge=0)
    kinds: Literal["mean", "sum"] = setting("mean", "over anchors, positives and each hard negative")

    @model_validator(mode="after")
    def _a_weight_has_an_effect(self) -> Self:
        if not self.mean and not self.second_moment:
            raise ValueError("mean and second_moment are both 0: set gor to null")
        return self


class ContrastSettings(Settings):
    """The texts that each text is compared with in the contrastive term, and the weight of hard negatives:
    losses.multiple_negatives, sentence-transformers' MultipleNegativesRankingLoss."""

    directions: tuple[Direction, ...] = setting(
        ("query_to_doc",), "query_to_doc, and others beside it: query_to_query, doc_to_query, doc_to_doc",
        "all four: GTE (Li et al. 2023)", min_length=1,
    )
    partition: Partition = setting(
        "joint", "one softmax over all directions; per_direction: the mean over one for each",
        "per_direction: Günther et al. 2024, of query_to_doc and doc_to_query",
    )
    hardness: Hardness = setting(
        "none", "whose exponents get strength x their cosine more: in_batch_negatives (other rows'), hard_negatives (the "
        "row's own), all_negatives", "hard_negatives: EmbeddingGemma; in_batch_negatives: Lan et al. 2025",
    )
    strength: float = setting(0.0, "without a gradient; EmbeddingGemma has 5, Lan et al. 9", ge=0)

    @model_validator(mode="after")
    def _choices_go_together(self) -> Self:
        check_directions(self.directions, self.partition, self.hardness, self.strength)
        if len(self.directions) == 1 and self.hardness == "none":
            raise ValueError("query_to_doc alone, without hardness, is the term as it is: set contrast to null")
        return self


class GuideSettings(Settings):
    """A frozen encoder masks false negatives within a batch (Solatorio 2024, GISTEmbed; Wang et al. 2024, MultiCSR).

    Defaults are those of sentence-transformers' GISTEmbedLoss except for `diagonals`, which has by_guide there.
    """

    model: str = setting(
        ..., "as after --model, but for python:; it reads the rows' texts as they are, in every process the whole batch",
    )
    settings: dict[str, str | int | bool | None] = setting({}, "further arguments of load_encoder, e.g. {pooler: cls}")
    threshold: Literal["absolute", "relative", "fixed"] = setting(
        "absolute", "a text is masked where the guide's cosine with the anchor is greater than that of the positive, g, "
        "less the margin (absolute), than g - margin |g| (relative), or than phi (fixed)",
    )
    margin: float = setting(0.0, "lessens the positive's cosine", goes_with={"threshold": ("absolute", "relative")})
    phi: float | None = setting(
        None, "the cosine above which a text is masked", gt=-1, lt=1, goes_with={"threshold": "fixed"}, needed=True,
        why="e.g. 0.95",
    )
    contrast_anchors: bool = setting(True, "the other anchors are negatives, too; NT-Xent has them anyway")
    contrast_positives: bool = setting(True, "and of a positive the other positives, in the same softmax")
    diagonals: Literal["masked", "by_guide"] = setting(
        "masked", "a text among its kind is no negative of itself; by_guide: only by the rule, which leaves it in where g "
        "is 1 or the margin negative", "by_guide: sentence-transformers' GISTEmbedLoss",
        goes_with=Where(lambda guide: guide.contrast_anchors or guide.contrast_positives,
                        "contrast_anchors or contrast_positives"),
    )
    masked: Literal["remove", "zero"] = setting(
        "remove", "out of the softmax; zero: the exponent is 0, so that it still counts as a cosine of 0",
        "zero: MultiCSR's code",
    )
    dropout: bool = setting(False, "the guide's dropout is on", "MultiCSR's code")
    loss: Literal["ce", "bce_of_softmax"] = setting(
        "ce", "bce_of_softmax: the mean over all columns of the binary cross-entropy of the softmax, 1 at the positive",
        "bce_of_softmax: MultiCSR's code",
    )

    @model_validator(mode="after")
    def _runs_no_code(self) -> Self:
        if self.model.startswith("python:") or self.settings.get("trust_remote_code"):
            raise ValueError(
                f"model {self.model} would run code that a recipe names: a guide is a model, without python: and "
                "trust_remote_code"
            )
        return self


class AverageSettings(Settings):
    """A running mean of a stage's weights (torch.optim.swa_utils). The mean is scored on development data, kept, exported
    and passed to the next stage; within the stage, training continues with the weights themselves."""

    decay: float | None = setting(
        0.999, "exponential: decay * mean + (1 - decay) * weights; null: the uniform mean", gt=0, lt=1,
    )
    after: float = setting(0, "steps, below 1 a share of all steps, of which none is averaged, nor kept as the best", ge=0)
    every: int = setting(1, "averages the weights after each step that is a multiple of it", ge=1)


class TrainingSettings(Settings):
    """One stage's optimisation."""

    batch_size: _Count = setting(64, "examples a forward pass, over all processes: the in-batch negatives")
    batch_tokens: _Count | None = setting(
        None, "a forward pass ends before its rows times the longest one's tokens, of all its texts, are more; null: none",
    )
    accumulate: _Count = setting(1, "forward passes a step; adds no negatives")
    chunk: _Count | None = setting(
        None, "texts whose activations are held at a time, in each process; the loss is that of the whole batch. null: all",
    )
    epochs: float = setting(1.0, "passes over the rows", gt=0, le=1e6)
    max_steps: int | None = setting(None, "shortens the run, and the schedule with it", ge=1, le=10**9)
    learning_rate: float = setting(3e-5, "what the schedule scales", gt=0)
    schedule: Literal["linear", "constant", "piecewise", "slanted"] = setting(
        "linear", "linear: to 0 at the last step; slanted: the triangle of ULMFiT, from 1/32 of the rate and back",
    )
    milestones: tuple[int, ...] = setting(
        (), "steps taken from which on rates apply, one each, whatever max_steps is",
        goes_with={"schedule": "piecewise"}, needed=True,
    )
    rates: tuple[float, ...] = setting(
        (), "learning rates after the milestones; before the first, learning_rate",
        goes_with={"schedule": "piecewise"}, needed=True,
    )
    schedule_of: str | None = setting(
        None, "the stage whose steps the schedule counts, whatever its own number; null: its own",
        goes_with={"schedule": ("linear", "constant", "slanted")},
    )
    warmup: float = setting(0, "steps; below 1 a share of all steps", ge=0)
    warmup_of: Annotated[int, Field(ge=1)] | Literal["epochs"] | None = setting(
        None, "the steps that a warm-up in steps was meant for, where max_steps shortened a recipe: it shrinks with them, "
        "and this is not set by hand; epochs: those of the epochs; null: the run has the recipe's own length",
    )
    weight_decay: float = setting(0.0, "beside the gradient; rmsprop: added to it", ge=0)
    weight_decay_on: Literal["matrices", "all"] = setting(
        "matrices", "all: on biases and LayerNorm, too, as plain torch does", goes_with={"weight_decay": POSITIVE},
    )
    optimizer: Literal["adamw", "rmsprop"] = setting("adamw", "what makes a step of a gradient")
    betas: tuple[_Beta, _Beta] = setting((0.9, 0.999), "of gradients and their squares", goes_with={"optimizer": "adamw"})
    rho: float | None = setting(
        None, "of its mean square", ge=0, lt=1, goes_with={"optimizer": "rmsprop"}, needed=True,
        why="torch's default is 0.99 (epsilon 1e-8), TensorFlow's 0.9 (1e-7)",
    )
    epsilon: float = setting(1e-8, "rmsprop: outside the root; torch has 1e-8, TensorFlow 1e-7", gt=0)
    adam: Literal["torch", "transformers", "uncorrected"] = setting(
        "torch", "epsilon behind bias correction, or before it; uncorrected: no bias correction, as in the first BERT's "
        "optimiser", goes_with={"optimizer": "adamw"},
    )
    clip: float | None = setting(1.0, "gradient norm; null: none", gt=0)
    average: AverageSettings | None = setting(None, "a mean of the weights over the steps, in their place")
    order: Literal["random", "length"] = setting("random", "length: batches of similar length, not the papers' batches")
    drop_last: bool = setting(False, "leaves out the last, smaller batch of an epoch")
    gather: Literal["exact", "simcse", "local"] = setting("exact", "other processes' negatives: training/api/batch.py")

    @model_validator(mode="after")
    def _milestones_rise(self) -> Self:
        if self.schedule != "piecewise":
            return self
        steps, rates, warmup = self.milestones, self.rates, self.warmup
        if len(steps) != len(rates):
            raise ValueError(f"milestones must be as many as rates: there are {len(steps)} and {len(rates)}")
        if steps[0] < 1 or any(later <= step for step, later in pairwise(steps)):
            raise ValueError(f"milestones {recipe_value(steps)} must be rising numbers of steps, from 1")
        if min(rates) < 0:
            raise ValueError(f"rates {recipe_value(rates)} must be 0 or above")
        if 0 < warmup < 1:
            raise ValueError(f"warmup {warmup:g} is a share of all steps, and milestones are steps: give steps")
        if steps[0] < warmup:
            raise ValueError(f"milestones {recipe_value(steps)} begin within the warmup of {warmup:g} steps")
        return self


def _check_selection(name: str) -> str:
    if name not in SELECTED_BY and not (name.startswith((OWN_PAIRS, LABELLED_PAIRS)) and name.partition(":")[2].strip()):
        expected = f"{', '.join(map(repr, SELECTED_BY))}, {OWN_PAIRS + 'FILE'!r} or {LABELLED_PAIRS + 'FILE'!r}"
        raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})
    return name


class SelectionSettings(Settings):
    """How the best checkpoint is selected."""

    by: Annotated[str, AfterValidator(_check_selection)] = setting(
        "sts-b dev", f"{', '.join(SELECTED_BY)}; sts:FILE, pairs:FILE: scored or labelled pairs of one's own, as the "
        "protocol of that name reads them",
    )
    every: int = setting(250, "steps", ge=1)
    over: Literal["last", "all"] = setting("last", "the best of the last stage, or of all stages")
    at_end: bool = setting(False, "also after the last step; the papers' code does so only where it is a multiple of every")


class SearchSettings(Settings):
    """How `stsbench sweep` chose this recipe's values: the best of so many trials on development data."""

    trials: int = setting(..., "all that were begun, those that were stopped early, too", ge=1)
    seeds: int = setting(..., "trainings of a trial; its score is their mean", ge=1)
    by: str = setting(..., "the development score")
    score: float = setting(..., "of the best trial")
    sampler: Literal["grid", "random", "tpe"] = setting(..., "how trials were drawn")
    space: dict[str, Any] = setting(..., "key -> the values among which was searched, or low, high, log")
