"""Sentence-BERT (Reimers and Gurevych 2019): one encoder for both texts, trained by labels, scores or triplets."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from stsbench.losses.labelled import sbert_regression
from stsbench.losses.ranking import triplet
from stsbench.training.api.batch import Batch, Examples, Term, Views
from stsbench.training.api.labelled import TRIPLET, NLIClassifier, count_classes, nli_roles
from stsbench.training.api.method import Needs, PoolerMethod
from stsbench.training.api.views import SCORED, require_roles
from stsbench.training.modules.backbone import Backbone

from .options import SBERTOptions

STAGES = {"nli": ("nli",), "sts": ("sts",), "nli-sts": ("nli", "sts"), "triplet": ("triplet",)}  # objective -> stages


class SBERT(PoolerMethod):
    """The classification, regression and triplet objectives of section 3. The encoder is tested without the classifier."""

    Options = SBERTOptions
    later_options = ("objective", "scale", "similarity", "test_pooler")
    options: SBERTOptions

    def __init__(self, backbone: Backbone, options: SBERTOptions) -> None:
        """Create the classifier if a stage has labels; `prepare_labelled` sets its shape."""
        super().__init__(backbone, options)
        self.classifier: NLIClassifier | None = None
        if "nli" in STAGES[options.objective]:
            self.classifier = NLIClassifier(features=options.features, bias=options.bias, init=options.classifier_init)

    @classmethod
    def stages_for(cls, options: SBERTOptions) -> tuple[str, ...]:
        """Return the stages of the objective: nli, sts, both in this order, or triplet."""
        return STAGES[options.objective]

    @classmethod
    def needs(cls, options: SBERTOptions) -> Needs:
        """Return the needs: labelled pairs alone in stage nli, scored pairs in sts, triplets in triplet."""
        roles = TRIPLET if options.objective == "triplet" else SCORED
        return Needs(
            partial(require_roles, roles, f"options.objective {options.objective}"), negatives=False,
            score_range=options.scale, labelled={"nli": "only"}, labelled_roles=partial(nli_roles, triplets=False),
        )

    def prepare_labelled(self, rows: Any) -> None:
        """Set the classifier's shape, with one class for each label in the rows."""
        assert self.classifier is not None
        self.classifier.set_shape(self.backbone.vector_width, count_classes(rows))

    def start_stage(self, stage: str) -> None:
        """Train the classifier in stage nli, and freeze it in later stages, which do not use it."""
        if self.classifier is not None:
            self.classifier.requires_grad_(stage == "nli")

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the two texts of a pair with their score, or the three of a triplet."""
        if "anchor" in rows.roles:
            return Views([self.read(rows, role) for role in TRIPLET])
        return Views([self.read(rows, role) for role in ("sentence1", "sentence2")], scores=rows.scores())

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return the stage's term: nli, a cross-entropy; sts, the similarity's squared error; triplet, a hinge loss."""
        vectors = self.vectors(batch.ids, batch.mask)
        if batch.labelled_only:
            assert self.classifier is not None
            return {"nli": self.classifier.term(vectors, batch)}
        n = len(batch)
        if batch.scores is None:
            anchor, positive, negative = vectors.split(n)
            return {"triplet": Term(triplet(anchor, positive, negative, margin=self.options.margin), n)}
        u, v = vectors.split(n)
        scale, similarity = self.options.scale, self.options.similarity
        return {"sts": Term(sbert_regression(u, v, batch.scores, scale=scale, similarity=similarity), n)}

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """Return None, as the two texts of a pair may be equal."""
        return None
