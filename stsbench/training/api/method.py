"""The base classes of training methods: a method has views of a row, a loss, stages and an encoder to test, and states by
its options alone what it needs of its rows and of the backbone (`Needs`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stsbench.encoders.prompt.modules import MLPHead, check_head
from stsbench.encoders.prompt.prompt import Prompt
from stsbench.encoders.prompt.template import FullStop
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import (
    IGNORED,
    Batch,
    Examples,
    Gathering,
    Ragged,
    Shares,
    Term,
    Views,
    apply_to_all_rows,
    counted,
)
from stsbench.training.api.contrasting import NegativeQueue
from stsbench.training.api.labelled import LabelScores, nli_roles, nli_views
from stsbench.training.api.options import Options
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.masked_lm import LMHead
from stsbench.training.modules.prompting import InTemplate

LabelledUse = Literal["none", "only", "with"]
"""Whether a stage trains on the recipe's `labelled` rows: "none": it does not; "only": on these, without `data`; "with":
each batch of the data comes with a batch of labelled rows (Batch.labelled)."""

_STOPS: dict[str, FullStop] = {"prompteol": "prompteol", "added": True, "none": False}  # options.full_stop -> Prompt's
RoleChoice = Callable[[tuple[str, ...], str], tuple[str, ...]]
"""(roles in the data, the method's name for messages) -> the roles that the method uses. Raises StsbenchError, one line, for
a missing role."""


def sentence_role(roles: tuple[str, ...], method: str) -> tuple[str, ...]:
    """Return ("sentence",), the role of plain text. Raises StsbenchError, one line with the name `method`, without it."""
    if "sentence" not in roles:
        raise StsbenchError(
            f"{method} needs the column sentence (the data give {', '.join(roles) or 'no column'}): name it in data.columns"
        )
    return ("sentence",)


@dataclass(frozen=True)
class Needs:
    """A method's requirements under given options, returned by `Method.needs`. By default it contrasts plain sentences.

    roles, labelled_roles: functions that choose the roles used of the data and of labelled rows. labelled: one use of
    labelled rows for every stage, or a mapping from stages to uses, in which a stage that is left out has "none".
    group_size: how many rows `views` takes together. Batches hold whole groups, and training.batch_size is a multiple of it;
    with groups of two or more rows, the number of texts in a view may differ from the number of rows (pairs, say).
    whole_texts: rows are documents. `ids` gives all word pieces of the text, however long, without special tokens, and
    `views` takes parts that the model can read. Otherwise texts are cut at backbone.max_length, as labelled rows always are.
    usable: a TextRows of all n rows -> bool (n,), true for rows that may be drawn (next-sentence prediction needs a
    following sentence); None: all rows. unusable: why rows are left out, for the line that counts them.
    labelled_usable, labelled_unusable: the same for labelled rows.
    wrong_score: the scores of all rows, float64 (n,) -> None, or the index of a score that the method cannot use, and why.
    reach: how many following rows of the same document the views of a row may read (`rows.following`). A row is not trained
    on where the text of such a following row is held out.
    """

    roles: RoleChoice = sentence_role
    negatives: bool = True  # other rows of the batch are negatives: a batch of one row has none, and is refused
    dropout: bool = False  # only dropout makes the two views of a row differ: a backbone without dropout is refused
    group_size: int = 1
    score_range: tuple[float, float] | None = None  # the least and the greatest score that a row may have; None: any number
    wrong_score: Callable[[NDArray[np.float64]], tuple[int, str] | None] | None = None
    labelled: LabelledUse | Mapping[str, LabelledUse] = "none"
    labelled_roles: RoleChoice = nli_roles  # NLI triplets, or pairs and their labels
    labelled_usable: Callable[[Any], NDArray[np.bool_]] | None = None
    labelled_unusable: str = "their labels have no part"
    labelled_negatives: bool = False  # `negatives`, in stages that train on labelled rows only
    whole_texts: bool = False
    usable: Callable[[Any], NDArray[np.bool_]] | None = None
    unusable: str = "no sentence follows them, say"
    reach: int = 0

    def contrasts(self, labelled_only: bool) -> bool:
        """Return whether other rows of a batch are negatives, so that a batch of one row has none. labelled_only: in a stage
        that trains on labelled rows only."""
        return self.labelled_negatives if labelled_only else self.negatives


@dataclass
class Inference:
    """The encoder that a method tests: a transformers model, its pooler, and its head if the head is kept.

    model: the model without any head; dense: Linear(d, d), applied with tanh to the cls vector (pooler "cls+dense"), or
    None; masked_lm: the same model with its masked-LM head, where the head is to be exported, too; token_pooler: the learned
    pooler over tokens (encoders/forward/token_pooler.py) if `pooler` names one, else None; prompt: the prompt around each
    text, which the pooler "mask" requires (encoders/prompt/prompt.py), or None.
    """

    model: Any
    tokenizer: Any
    pooler: str
    dense: nn.Linear | None = None
    masked_lm: Any = None
    token_pooler: Any = None
    prompt: Prompt | None = None


class Method(nn.Module):
    """A training method, as a paper describes it: a torch module that holds everything trained. `forward` is the loss.

    A subclass writes `forward` and, for stages that train on the recipe's data, `views`; all else has defaults. Outside
    `forward` all random numbers are drawn from the generator passed in, so that a run can be resumed exactly; inside
    `forward` from torch's global generator.
    """

    name: ClassVar[str]  # for messages and cards; by default the name of the class in lower case
    Options: ClassVar[type[Options]] = Options  # the method's options, stages and default recipe
    later_options: ClassVar[tuple[str, ...]] = ()  # options without effect in the first stage: `--from` may change them
    held_out_metric: ClassVar[str] = "loss"  # the criterion of selection by held-out rows: "loss", or a name in `metrics`
    trained_pooler: ClassVar[str | None] = None  # the only pooler that the method can train; None: any
    sample_settings: ClassVar[Mapping[str, Any]] = {}  # dotted key of a recipe -> the value that `train --sample` gives it

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "name" not in vars(cls):
            cls.name = cls.__name__.lower()

    def __init__(self, backbone: Backbone, options: Any) -> None:
        """Raise StsbenchError, one line, where the backbone's pooler is not the class's `trained_pooler`."""
        super().__init__()
        if (only := self.trained_pooler) not in (None, backbone.pooler):
            raise StsbenchError(f"{self.name} trains the pooler {only}, not {backbone.pooler}: set backbone.pooler {only}")
        self.backbone = backbone
        self.options = options
        self.gather_mode: Gathering = "exact"  # training.gather, set for each stage

    @classmethod
    def stages_for(cls, options: Any) -> tuple[str, ...]:
        """Return the stages of a run with these options, a subset of `Options.stages` in the same order; by default all."""
        return cls.Options.stages

    @classmethod
    def needs(cls, options: Any) -> Needs:
        """Return what a run with these options needs of its rows and of the backbone; by default plain sentences that are
        contrasted.

        Raises StsbenchError, one line, for options that contradict one another. Called more than once in a run.
        """
        return Needs()

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the views of one global batch. All processes call it and get the same views."""
        raise NotImplementedError(f"{self.name} has no views")

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return the terms of the loss by name, computed on this process's share of a batch."""
        raise NotImplementedError(f"{self.name} has no forward")

    def inference(self) -> Inference:
        """Return the encoder to select, test and export, by default the backbone. Its weights are those being trained."""
        return Inference(self.backbone.model, self.backbone.tokenizer, self.backbone.pooler, token_pooler=self.backbone.head)

    def dev_inference(self) -> Inference:
        """Return the encoder that is scored on the development data, by default the one that is tested."""
        return self.inference()

    def candidates(self) -> dict[str, Inference]:
        """Return encoders by name, of which the best on the development data is tested; {}: there is only one encoder.

        Each development score is that of the best candidate (the first of equal ones), whose name is passed to `choose`.
        """
        return {}

    def choose(self, name: str) -> None:
        """Make `inference` return this candidate from now on. A choice kept in a buffer is stored with the weights."""

    def labelled_views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the views of one global batch of labelled rows, with their labels if they have any; by default each text of
        a row is a view."""
        return nli_views(self, rows)

    def read(self, rows: Examples, role: str) -> Ragged:
        """Return the token ids of the texts of a role, one sequence a row, special tokens and the method's template
        included."""
        return rows.ids(role)

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the (n, d) sentence vectors that the loss compares. ids, mask: (n, L), token ids from `read`, padded on the
        right."""
        return self.backbone.pooled(ids, mask)

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """Return the (n, d) vectors of the first two views of a batch that the loss compares, by default from `vectors`;
        None where the loss does not compare the two views.

        A training in which both views have equal vectors is stopped at its first step. A method whose `forward` makes views
        of equal tokens differ by other means than dropout therefore overrides this. Called without gradients; buffers and
        random states are restored afterwards.
        """
        rows = slice(2 * len(batch))
        first, second = self.vectors(batch.ids[rows], batch.mask[rows]).split(len(batch))
        return first, second

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return how many items of this batch a term is the mean of (`Term.count`), by the term's name, for terms whose
        count is not proportional to the number of rows. training.accumulate weights its forward passes by these counts, and
        needs them before `forward`. By default the masked tokens of extra "mlm_labels", if there are any, for the term
        "mlm"."""
        labels = batch.extra.get("mlm_labels")
        return {} if labels is None else {"mlm": int((labels != IGNORED).sum())}

    def prepare(self, rows: Any) -> None:
        """Collect statistics of the training text (token counts, say) before the first step of a new or resumed run.

        rows: a data.examples.Rows of all rows that the first stage trains on.
        """

    def prepare_labelled(self, rows: Any) -> None:
        """Collect statistics of the labelled rows, if a stage of the run uses them. Called after `prepare`."""

    def rates(self) -> dict[str, float]:
        """Return prefixes of parameter names -> the factor by which training.learning_rate is multiplied for these
        parameters, where it is not 1."""
        return {}

    def start_stage(self, stage: str) -> None:
        """Freeze and unfreeze parameters for a stage. By default every stage trains all parameters and begins with empty
        queues, even if a stage on labelled rows (recipe.semi) trained the encoder before."""
        for part in self.modules():
            if isinstance(part, NegativeQueue):
                part.restart(self.backbone)

    def inputs(self) -> dict[str, str]:
        """Return the sha256 of further files that training reads (a thesaurus, another model), by name. A run is resumed
        only if they are unchanged."""
        return {}

    def notes(self) -> list[str]:
        """Return notes to print before training starts, a line each; by default one for each masked-LM head that the
        checkpoint does not have."""
        heads = [part.name for part in self.modules() if isinstance(part, LMHead) and not part.stored]
        new = "a new one starts from random weights, its output layer from the embeddings"
        return [f"{name} stores no masked-LM head: {new}" for name in heads]

    def diagnose(self) -> dict[str, float]:
        """Return numbers on the state of the training, for the log's lines with development scores (of kind "dev"). Called
        in the main process, without gradients; random states and modes are restored afterwards."""
        return {}

    def metrics(self) -> dict[str, float]:
        """Return further numbers for the log (accuracies, say), gathered since the last call. Called whenever a line is
        written."""
        return {}


class PoolerMethod(Method):
    """A method whose encoder is tested with the pooler options.test_pooler; null: with the pooler that is trained."""

    def inference(self) -> Inference:
        """Return the encoder without any head, with the pooler of the test."""
        pooler = self.options.test_pooler or self.backbone.pooler
        head = self.backbone.head if self.options.test_pooler is None else None
        return Inference(self.backbone.model, self.backbone.tokenizer, pooler, token_pooler=head)

    def dev_inference(self) -> Inference:
        """Return the encoder with the pooler that is trained: development scores are of its vectors."""
        return super().inference()


class TemplateMethod(Method):
    """A method that puts every text into options.template, in training and at the test; options.full_stop goes with it."""

    def __init__(self, backbone: Backbone, options: Any) -> None:
        """Raise StsbenchError, one line, if the template does not fit the backbone (`InTemplate`)."""
        super().__init__(backbone, options)
        self.around = None if options.template is None else InTemplate(backbone, options.template)

    def read(self, rows: Examples, role: str) -> Ragged:
        """Return the token ids of a role's texts, each in the template if there is one."""
        return super().read(rows, role) if self.around is None else self.around(rows.texts(role))

    def inference(self) -> Inference:
        """Return the encoder, with the template, if any, as its prompt."""
        return self._prompted(super().inference())

    def dev_inference(self) -> Inference:
        """Return the encoder that is scored on the development data, with the template, if any, as its prompt."""
        return self._prompted(super().dev_inference())

    def _prompted(self, inference: Inference) -> Inference:
        if self.around is None:
            return inference
        return replace(inference, prompt=Prompt(self.options.template, full_stop=_STOPS[self.options.full_stop]))


class HeadMethod(Method):
    """A method with SimCSE's options.head: an MLP after the pooler cls, dropped at test or kept ("mlp"); "none": no MLP."""

    def __init__(self, backbone: Backbone, options: Any) -> None:
        """Raise StsbenchError, one line, for a head after any pooler but cls."""
        super().__init__(backbone, options)
        check_head(options.head, backbone.pooler)
        std = getattr(backbone.model.config, "initializer_range", 0.02)
        self.head = MLPHead(backbone.width, std) if options.head != "none" else None

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return (n, d) sentence vectors, after the head if there is one."""
        vectors = self.backbone.pooled(ids, mask)
        return vectors if self.head is None else self.head(vectors)

    def inference(self) -> Inference:
        """Return the encoder, with its MLP if the test keeps it."""
        if self.head is None or self.options.head != "mlp":
            return super().inference()
        return Inference(self.backbone.model, self.backbone.tokenizer, "cls+dense", dense=self.head.dense)


class BatchNormProjector(nn.Module):
    """BN'(W2 relu(BN(W1 x))): d -> 2d -> out, no biases; BN learns a scale and a shift, BN' learns nothing.

    W1, W2 from N(0, std^2), by torch's global generator; BatchNorm with momentum 0.1 and epsilon 1e-5. Statistics are over
    all rows of one call, and of this process alone: pass all views at once. Eval mode uses the running statistics. All is
    computed in the weights' type, also under autocast: bfloat16 has only 8 bits for a difference from the mean.
    Source: Chuang et al. (2022), DiffCSE; the sizes and the last norm without a scale are those of the authors' code.
    """

    def __init__(self, width: int, out: int, std: float) -> None:
        super().__init__()
        self.inner = nn.Linear(width, 2 * width, bias=False)
        self.inner_norm = nn.BatchNorm1d(2 * width)
        self.outer = nn.Linear(2 * width, out, bias=False)
        self.outer_norm = nn.BatchNorm1d(out, affine=False)
        for linear in (self.inner, self.outer):
            nn.init.normal_(linear.weight, std=std)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the (m, out) projections of (m, width) vectors. Raises StsbenchError for m < 2 in train mode."""
        if self.training and len(vectors) < 2:
            raise StsbenchError(
                f"batch normalisation needs 2 vectors at least in a process, and there is {len(vectors)}: "
                "raise training.batch_size"
            )
        with torch.autocast(vectors.device.type, enabled=False):
            vectors = self.inner_norm(self.inner(vectors.to(self.inner.weight.dtype)))
            projected: Tensor = self.outer_norm(self.outer(vectors.relu()))
        return projected


class ProjectedMethod(Method):
    """A method whose contrastive loss compares projected vectors; the test leaves the projector out. None: no projector."""

    projector: nn.Module | None

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return (n, d') projected vectors. BatchNorm's statistics are over these rows, or with training.gather exact over
        those of all processes, each of which must then call this."""
        raw = self.backbone.pooled(ids, mask)
        everywhere = self.training and self.gather_mode == "exact" and isinstance(self.projector, BatchNormProjector)
        return self.project(raw, counted(len(raw), raw.device) if everywhere else Shares((len(raw),)))

    def project(self, raw: Tensor, shares: Shares) -> Tensor:
        """Return the (v * n, d') projections of (v * n, d) vectors, view after view.

        With training.gather exact, BatchNorm's statistics are over the views of all processes, else over the views of this
        process, as in the released codes of DiffCSE and InfoCSE.
        """
        if isinstance(self.projector, BatchNormProjector):
            return apply_to_all_rows(self.projector, raw, shares, self.gather_mode)
        return raw if self.projector is None else self.projector(raw)


class ScoredMethod(Method):
    """A method for pairs with scores, or for labelled pairs, whose classes options.label_scores turns into scores."""

    def __init__(self, backbone: Backbone, options: Any) -> None:
        super().__init__(backbone, options)
        self.label_scores = LabelScores(options.label_scores)

    @staticmethod
    def labelled_needs(options: Any) -> Needs:
        """Return the needs of a training on labelled pairs only, without the pairs whose class has no score."""
        return Needs(
            labelled="only", labelled_roles=partial(nli_roles, triplets=False),
            labelled_usable=LabelScores(options.label_scores).usable,
            labelled_unusable="options.label_scores does not name their labels", labelled_negatives=True,
        )

    def prepare_labelled(self, rows: Any) -> None:
        """Look up the score of each class of the labelled rows."""
        self.label_scores.prepare(rows)

    def labelled_views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the two texts of each pair as views, with the score of the pair's class."""
        return self.label_scores.views(self, rows)

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """Return None: the two texts of a pair may be equal, so that equal vectors are no error."""
        return None
