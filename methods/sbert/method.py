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
    """Section 3: the classification, regression and triplet objectives; the classifier is no part of the tested encoder."""

    Options = SBERTOptions
    later_options = ("objective", "scale", "similarity", "test_pooler")
    options: SBERTOptions

    def __init__(self, backbone: Backbone, options: SBERTOptions) -> None:
        """Make the classifier where there is a stage with labels; `prepare_labelled` gives it its shape."""
        super().__init__(backbone, options)
        self.classifier: NLIClassifier | None = None
        if "nli" in STAGES[options.objective]:
            self.classifier = NLIClassifier(features=options.features, bias=options.bias, init=options.classifier_init)

    @classmethod
    def stages_for(cls, options: SBERTOptions) -> tuple[str, ...]:
        """Return NLI, scores, one after the other, or triplets."""
        return STAGES[options.objective]

    @classmethod
    def needs(cls, options: SBERTOptions) -> Needs:
        """Return labelled pairs alone in stage nli; scored pairs, or triplets, in the others."""
        roles = TRIPLET if options.objective == "triplet" else SCORED
        return Needs(
            partial(require_roles, roles, f"options.objective {options.objective}"), negatives=False,
            score_range=options.scale, labelled={"nli": "only"}, labelled_roles=partial(nli_roles, triplets=False),
        )

    def prepare_labelled(self, rows: Any) -> None:
        """Make the classifier, for as many classes as there are labels."""
        assert self.classifier is not None
        self.classifier.set_shape(self.backbone.vector_width, count_classes(rows))

    def start_stage(self, stage: str) -> None:
        """Freeze the classifier, which has no part in the later stage."""
        if self.classifier is not None:
            self.classifier.requires_grad_(stage == "nli")

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the two texts of a pair with their score, or the three of a triplet."""
        if "anchor" in rows.roles:
            return Views([self.read(rows, role) for role in TRIPLET])
        return Views([self.read(rows, role) for role in ("sentence1", "sentence2")], scores=rows.scores())

    def forward(self, batch: Batch) -> dict[str, Term]:
        """nli: cross-entropy; sts: squared error of the similarity; triplet: hinge of the distances."""
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
        """None: two texts of a pair may be one and the same."""
        return None
