"""What a paper adds: views of a row, a loss, stages, and the encoder that is tested afterwards; and what it needs of its
rows and of the backbone, said once, before there is an instance."""

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
"""Whether a stage trains on the recipe's `labelled` rows: "none"; "only" them, without `data`; or "with": a batch of them
goes with every batch of the data (Batch.labelled)."""

_STOPS: dict[str, FullStop] = {"prompteol": "prompteol", "added": True, "none": False}  # options.full_stop -> Prompt's
RoleChoice = Callable[[tuple[str, ...], str], tuple[str, ...]]
"""(roles that the data give, the method's name for messages) -> those used. Raises StsbenchError, one line, for a role that
is missing."""


def sentence_role(roles: tuple[str, ...], method: str) -> tuple[str, ...]:
    """("sentence",): plain text. method: what needs it, for the message. Raises StsbenchError, one line, without it."""
    if "sentence" not in roles:
        raise StsbenchError(
            f"{method} needs the column sentence (the data give {', '.join(roles) or 'no column'}): name it in data.columns"
        )
    return ("sentence",)


@dataclass(frozen=True)
class Needs:
    """What a method needs by its options, as `Method.needs` gives it. The defaults: plain sentences, to be contrasted.

    roles, labelled_roles: choose the roles of the data, and of labelled rows, that are used. labelled: of every stage, or by
    the stage's name, "none" for those not named.
    group_size: rows that `views` takes together. Batches hold whole groups, and training.batch_size is a multiple; of groups
    of two rows or more a view may have another number of texts than there are rows (pairs, say).
    whole_texts: rows are documents. `ids` gives all word pieces of the text, however long, without special tokens, and
    `views` takes parts that the model can read. Otherwise texts are cut at backbone.max_length, as labelled rows always are.
    usable: a TextRows of all n rows -> bool (n,), which may be drawn (a next sentence needs one that follows); None: all.
    unusable: why it leaves rows out, for the line that counts them.
    labelled_usable, labelled_unusable: the same of labelled rows.
    wrong_score: of the scores of all rows, float64 (n,) -> None, or the place of one that the method cannot use and why,
    for the error.
    reach: how many rows further on in its document the views of a row may read (`rows.following`). A row is not trained on
    where one of their texts is held out.
    """

    roles: RoleChoice = sentence_role
    negatives: bool = True  # they are the other rows of a batch: a batch of one would have nothing to contrast with
    dropout: bool = False  # two views of a row differ by nothing else: a backbone without any is refused at once
    group_size: int = 1
    score_range: tuple[float, float] | None = None  # the least and the greatest score of rows with scores; None: any number
    wrong_score: Callable[[NDArray[np.float64]], tuple[int, str] | None] | None = None
    labelled: LabelledUse | Mapping[str, LabelledUse] = "none"
    labelled_roles: RoleChoice = nli_roles  # NLI triplets, or pairs and their labels
    labelled_usable: Callable[[Any], NDArray[np.bool_]] | None = None
    labelled_unusable: str = "their labels have no part"
    labelled_negatives: bool = False  # `negatives` of a stage that trains on labelled rows only
    whole_texts: bool = False
    usable: Callable[[Any], NDArray[np.bool_]] | None = None
    unusable: str = "no sentence follows them, say"
    reach: int = 0

    def contrasts(self, labelled_only: bool) -> bool:
        """Return whether a batch of one row would have nothing to be compared with, in a stage on labelled rows only or
        another."""
        return self.labelled_negatives if labelled_only else self.negatives


@dataclass
class Inference:
    """The encoder that a method tests: a transformers model, its pooler, and the head if one is kept.

    model: without any head; dense: Linear(d, d), then tanh, after the cls vector (pooler "cls+dense"), or None;
    masked_lm: the same model inside its masked-LM architecture, where the head is worth exporting too. token_pooler:
    the learned pooler over tokens (encoders/forward/token_pooler.py) that `pooler` names, else None. prompt: what the pooler
    "mask" needs (encoders/prompt/prompt.py).
    """

    model: Any
    tokenizer: Any
    pooler: str
    dense: nn.Linear | None = None
    masked_lm: Any = None
    token_pooler: Any = None
    prompt: Prompt | None = None


class Method(nn.Module):
    """One paper's approach, a module that holds everything it trains. `forward` is the loss.

    A subclass writes `forward` and, for stages that train on the recipe's data, `views`; all else has defaults. All
    randomness outside `forward` comes from the generator handed in, so that a run can be resumed exactly; inside `forward`
    from torch's.
    """

    name: ClassVar[str]  # for messages and cards; by default the class's, in lower case
    Options: ClassVar[type[Options]] = Options  # its choices, stages and default recipe
    later_options: ClassVar[tuple[str, ...]] = ()  # with an effect after the first stage only: `--from` may change them
    held_out_metric: ClassVar[str] = "loss"  # what selection by held-out rows looks at: "loss", or a name in `metrics`
    trained_pooler: ClassVar[str | None] = None  # the only one that it trains; None: others, too
    sample_settings: ClassVar[Mapping[str, Any]] = {}  # dotted key of a recipe -> what `train --sample` needs it to be

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "name" not in vars(cls):
            cls.name = cls.__name__.lower()

    def __init__(self, backbone: Backbone, options: Any) -> None:
        """Raise StsbenchError, one line, for another pooler than the class trains."""
        super().__init__()
        if (only := self.trained_pooler) not in (None, backbone.pooler):
            raise StsbenchError(f"{self.name} trains the pooler {only}, not {backbone.pooler}: set backbone.pooler {only}")
        self.backbone = backbone
        self.options = options
        self.gather_mode: Gathering = "exact"  # training.gather, set for each stage

    @classmethod
    def stages_for(cls, options: Any) -> tuple[str, ...]:
        """Return those of `Options.stages` that a run by these options has, in the same order; by default all."""
        return cls.Options.stages

    @classmethod
    def needs(cls, options: Any) -> Needs:
        """Return what a run by these options needs of its rows and of the backbone; by default plain sentences, to be
        contrasted.

        Raises StsbenchError, one line, for options that contradict one another. Called more than once.
        """
        return Needs()

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the views of one global batch; the same on every process."""
        raise NotImplementedError(f"{self.name} has no views")

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return the loss's terms by name, for this process's share of a batch."""
        raise NotImplementedError(f"{self.name} has no forward")

    def inference(self) -> Inference:
        """Return the encoder to select, test and export, by default the backbone. It shares the weights being trained."""
        return Inference(self.backbone.model, self.backbone.tokenizer, self.backbone.pooler, token_pooler=self.backbone.head)

    def dev_inference(self) -> Inference:
        """Return the encoder that development scores are of, where a paper's is another than the one tested."""
        return self.inference()

    def candidates(self) -> dict[str, Inference]:
        """Return encoders among which the development data choose the one that is tested, by name; {}: there is no choice.

        Each development score is then that of the best of them, of equal ones the first, and `choose` is told its name.
        """
        return {}

    def choose(self, name: str) -> None:
        """Let `inference` give this candidate from now on. Kept in a buffer, the choice is stored with the weights."""

    def labelled_views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the views of one global batch of labelled rows, and their labels if they have any; by default each text
        a view."""
        return nli_views(self, rows)

    def read(self, rows: Examples, role: str) -> Ragged:
        """Return the token ids by which the method reads the texts of a role, one a row: special tokens and template
        included."""
        return rows.ids(role)

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return (n, d) sentence vectors as the loss compares them, of rows that `read` gave, padded right: ids, mask (n,
        L)."""
        return self.backbone.pooled(ids, mask)

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """Return (n, d) vectors of the first two views of a batch, as the loss compares them; by default those of `vectors`.
        None where it does not compare them.

        A training whose two views are one vector is stopped at its first step: a method whose `forward` makes views of equal
        tokens differ by other means than dropout says so here. Called without gradients; buffers and random states are put
        back afterwards.
        """
        rows = slice(2 * len(batch))
        first, second = self.vectors(batch.ids[rows], batch.mask[rows]).split(len(batch))
        return first, second

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return items of this batch that a term is the mean of (`Term.count`), by the term's name, where their number
        does not go with that of the rows. training.accumulate weights its forward passes by them, so they have to be known
        before `forward`. By default, for a term "mlm", the masked tokens that extra "mlm_labels" has labels of, if any."""
        labels = batch.extra.get("mlm_labels")
        return {} if labels is None else {"mlm": int((labels != IGNORED).sum())}

    def prepare(self, rows: Any) -> None:
        """Learn what has to be known of the training text (token counts, say) before the first step of a new or resumed run.

        rows: a data.examples.Rows of all rows that the first stage trains on.
        """

    def prepare_labelled(self, rows: Any) -> None:
        """As `prepare`, of the labelled rows, where a stage that runs uses them. It comes after `prepare`."""

    def rates(self) -> dict[str, float]:
        """Return prefixes of parameter names -> what their learning rate is as a multiple of training.learning_rate, if
        not 1."""
        return {}

    def start_stage(self, stage: str) -> None:
        """Freeze and unfreeze for a stage; by default everything is trained in every stage, and queues begin empty, also
        where a stage of labelled rows (recipe.semi) trained the encoder before."""
        for part in self.modules():
            if isinstance(part, NegativeQueue):
                part.restart(self.backbone)

    def inputs(self) -> dict[str, str]:
        """Return further files that training reads (a thesaurus, another model): name -> sha256. A resumed run reads the
        same."""
        return {}

    def notes(self) -> list[str]:
        """Return what a user should know before training starts, a line each; by default of masked-LM heads that their
        checkpoint does not have."""
        heads = [part.name for part in self.modules() if isinstance(part, LMHead) and not part.stored]
        new = "a new one starts from random weights, its output layer from the embeddings"
        return [f"{name} stores no masked-LM head: {new}" for name in heads]

    def diagnose(self) -> dict[str, float]:
        """Return numbers on the state of the training, for the log's line of each development score (its kind is "dev").
        Called in the main process, without gradients, with random states and modes put back afterwards."""
        return {}

    def metrics(self) -> dict[str, float]:
        """Return further numbers for the log (accuracies, say), gathered since the last call. Called whenever a line is
        written."""
        return {}


class PoolerMethod(Method):
    """A method with options.test_pooler, by which the encoder is tested; null: the pooler that is trained."""

    def inference(self) -> Inference:
        """Return the encoder alone, with the pooler of the test."""
        pooler = self.options.test_pooler or self.backbone.pooler
        head = self.backbone.head if self.options.test_pooler is None else None
        return Inference(self.backbone.model, self.backbone.tokenizer, pooler, token_pooler=head)

    def dev_inference(self) -> Inference:
        """Return the encoder with the pooler that is trained, as development scores are of those vectors."""
        return super().inference()


class TemplateMethod(Method):
    """A method with options.template, inside which texts stand in training and at the test, and options.full_stop."""

    def __init__(self, backbone: Backbone, options: Any) -> None:
        """Raise StsbenchError, one line, for a template that does not fit the backbone (`InTemplate`)."""
        super().__init__(backbone, options)
        self.around = None if options.template is None else InTemplate(backbone, options.template)

    def read(self, rows: Examples, role: str) -> Ragged:
        """Return the token ids of a role's texts, inside the template if there is one."""
        return super().read(rows, role) if self.around is None else self.around(rows.texts(role))

    def inference(self) -> Inference:
        """Return the encoder, and with a template what stands around a text of a test."""
        return self._prompted(super().inference())

    def dev_inference(self) -> Inference:
        """Return the same of the encoder that development scores are of."""
        return self._prompted(super().dev_inference())

    def _prompted(self, inference: Inference) -> Inference:
        if self.around is None:
            return inference
        return replace(inference, prompt=Prompt(self.options.template, full_stop=_STOPS[self.options.full_stop]))


class HeadMethod(Method):
    """A method with SimCSE's options.head: an MLP over the pooler cls that is dropped at test, kept ("mlp"), or "none"."""

    def __init__(self, backbone: Backbone, options: Any) -> None:
        """Raise StsbenchError, one line, for a head on another pooler than cls."""
        super().__init__(backbone, options)
        check_head(options.head, backbone.pooler)
        std = getattr(backbone.model.config, "initializer_range", 0.02)
        self.head = MLPHead(backbone.width, std) if options.head != "none" else None

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return (n, d) vectors, through the head that training has."""
        vectors = self.backbone.pooled(ids, mask)
        return vectors if self.head is None else self.head(vectors)

    def inference(self) -> Inference:
        """Return the encoder; its MLP only where it is kept."""
        if self.head is None or self.options.head != "mlp":
            return super().inference()
        return Inference(self.backbone.model, self.backbone.tokenizer, "cls+dense", dense=self.head.dense)


class BatchNormProjector(nn.Module):
    """BN'(W2 relu(BN(W1 x))): d -> 2d -> out, no biases; BN learns a scale and a shift, BN' learns nothing.

    W1, W2 from N(0, std^2), by torch's global generator; BatchNorm with momentum 0.1 and epsilon 1e-5. Statistics are over
    all rows of one call, and of this process alone: hand in all views at once. In eval mode: the running ones. All of it is
    computed in the weights' own type, also under autocast: bfloat16 has 8 bits for a difference from the mean.
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
        """Return (m, width) -> (m, out). Raises StsbenchError in train mode for m < 2, which have no variance."""
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
    """A method with a projector before the contrastive loss, which the test leaves out; None: there is none."""

    projector: nn.Module | None

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return (n, d') projected vectors. BatchNorm's statistics are over these rows, with training.gather exact those
        of all processes, every one of which must call then."""
        raw = self.backbone.pooled(ids, mask)
        everywhere = self.training and self.gather_mode == "exact" and isinstance(self.projector, BatchNormProjector)
        return self.project(raw, counted(len(raw), raw.device) if everywhere else Shares((len(raw),)))

    def project(self, raw: Tensor, shares: Shares) -> Tensor:
        """Return (v * n, d) vectors, view after view -> (v * n, d').

        With training.gather exact, BatchNorm's statistics are over the views of all processes. Else they are over its own,
        as in the released codes of DiffCSE and InfoCSE.
        """
        if isinstance(self.projector, BatchNormProjector):
            return apply_to_all_rows(self.projector, raw, shares, self.gather_mode)
        return raw if self.projector is None else self.projector(raw)


class ScoredMethod(Method):
    """A method of pairs with scores, or of labelled pairs, whose classes have the scores of options.label_scores."""

    def __init__(self, backbone: Backbone, options: Any) -> None:
        super().__init__(backbone, options)
        self.label_scores = LabelScores(options.label_scores)

    @staticmethod
    def labelled_needs(options: Any) -> Needs:
        """Return labelled pairs alone, those of classes with a score."""
        return Needs(
            labelled="only", labelled_roles=partial(nli_roles, triplets=False),
            labelled_usable=LabelScores(options.label_scores).usable,
            labelled_unusable="options.label_scores does not name their labels", labelled_negatives=True,
        )

    def prepare_labelled(self, rows: Any) -> None:
        """Learn the scores of the classes."""
        self.label_scores.prepare(rows)

    def labelled_views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the two texts of a pair with the score of its class."""
        return self.label_scores.views(self, rows)

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """None: two texts of a pair may be one and the same."""
        return None
