"""What a paper adds: views of a row, a loss, stages, and the encoder that is tested afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from stsbench.encoders.prompt.prompt import Prompt
from stsbench.training.api.batch import Batch, Examples, Ragged, Term, Views
from stsbench.training.api.gathering import Gathering
from stsbench.training.api.labelled import nli_views
from stsbench.training.api.needs import Needs
from stsbench.training.api.options import Options
from stsbench.training.modules.backbone import Backbone


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
    sample_settings: ClassVar[Mapping[str, Any]] = {}  # dotted key of a recipe -> what `train --sample` needs it to be

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "name" not in vars(cls):
            cls.name = cls.__name__.lower()

    def __init__(self, backbone: Backbone, options: Any) -> None:
        super().__init__()
        self.backbone = backbone
        self.options = options
        self.gather_mode: Gathering = "exact"  # training.gather, set for each stage

    @classmethod
    def stages_for(cls, options: Any) -> tuple[str, ...]:
        """Those of `Options.stages` that a run by these options has, in the same order; by default all."""
        return cls.Options.stages

    @classmethod
    def needs(cls, options: Any) -> Needs:
        """What a run by these options needs of its rows and of the backbone; by default plain sentences, to be contrasted.

        Raises StsbenchError, one line, for options that contradict one another. Called more than once.
        """
        return Needs()

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """The views of one global batch; the same on every process."""
        raise NotImplementedError(f"{self.name} has no views")

    def forward(self, batch: Batch) -> dict[str, Term]:
        """The loss's terms by name, for this process's share of a batch."""
        raise NotImplementedError(f"{self.name} has no forward")

    def inference(self) -> Inference:
        """The encoder to select, test and export, by default the backbone. It shares the weights being trained."""
        return Inference(self.backbone.model, self.backbone.tokenizer, self.backbone.pooler, token_pooler=self.backbone.head)

    def dev_inference(self) -> Inference:
        """The encoder that development scores are of, where a paper's is another than the one tested."""
        return self.inference()

    def candidates(self) -> dict[str, Inference]:
        """Encoders among which the development data choose the one that is tested, by name; {}: there is no choice.

        Each development score is then that of the best of them, of equal ones the first, and `choose` is told its name.
        """
        return {}

    def choose(self, name: str) -> None:
        """Let `inference` give this candidate from now on. Kept in a buffer, the choice is stored with the weights."""

    def labelled_views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """The views of one global batch of labelled rows, and their labels if they have any; by default each text a view."""
        return nli_views(self, rows)

    def read(self, rows: Examples, role: str) -> Ragged:
        """The token ids by which the method reads the texts of a role, one a row: special tokens and template included."""
        return rows.ids(role)

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(n, d) sentence vectors as the loss compares them, of rows that `read` gave, padded right: ids, mask (n, L)."""
        return self.backbone.pooled(ids, mask)

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """(n, d) vectors of the first two views of a batch, as the loss compares them; by default those of `vectors`. None
        where it does not compare them.

        A training whose two views are one vector is stopped at its first step: a method whose `forward` makes views of equal
        tokens differ by other means than dropout says so here. Called without gradients; buffers and random states are put
        back afterwards.
        """
        rows = slice(2 * len(batch))
        first, second = self.vectors(batch.ids[rows], batch.mask[rows]).split(len(batch))
        return first, second

    def counts(self, batch: Batch) -> dict[str, int]:
        """Items of this batch that a term is the mean of (`Term.count`), by the term's name, where their number does not go
        with that of the rows: masked tokens, say. training.accumulate weights its forward passes by them, so they have to be
        known before `forward`."""
        return {}

    def prepare(self, rows: Any) -> None:
        """Learn what has to be known of the training text (token counts, say) before the first step of a new or resumed run.

        rows: a data.examples.Rows of all rows that the first stage trains on.
        """

    def prepare_labelled(self, rows: Any) -> None:
        """As `prepare`, of the labelled rows, where a stage that runs uses them. It comes after `prepare`."""

    def rates(self) -> dict[str, float]:
        """Prefixes of parameter names -> what their learning rate is as a multiple of training.learning_rate, if not 1."""
        return {}

    def start_stage(self, stage: str) -> None:
        """Freeze and unfreeze for a stage; by default everything is trained in every stage."""

    def inputs(self) -> dict[str, str]:
        """Further files that training reads (a thesaurus, another model): name -> sha256. A resumed run reads the same."""
        return {}

    def notes(self) -> list[str]:
        """What a user should know before training starts, a line each: weights made up at random, say."""
        return []

    def diagnose(self) -> dict[str, float]:
        """Numbers on the state of the training, for the log's line of each development score (its kind is "dev"). Called
        in the main process, without gradients, with random states and modes put back afterwards."""
        return {}

    def metrics(self) -> dict[str, float]:
        """Further numbers for the log (accuracies, say), gathered since the last call. Called whenever a line is written."""
        return {}
