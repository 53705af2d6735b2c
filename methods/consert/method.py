"""ConSERT (Yan et al. 2021): NT-Xent between two views of a text, augmented at the embeddings, with or without NLI labels.

Augmentations are as in section 3 and the released code: counts are rounded down, special tokens may be chosen, the masks
of attention and pooling stay those of the text, and values that are kept are not rescaled. Random numbers are drawn for
each row, so that they do not depend on the number of processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stsbench.encoders.forward.passes import check_family, own_positions
from stsbench.encoders.forward.pooling import STATES
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import Batch, Examples, Ragged, Term, Views
from stsbench.training.api.contrasting import contrast_views
from stsbench.training.api.labelled import NLIClassifier, count_classes, nli_roles, nli_views
from stsbench.training.api.method import Needs, PoolerMethod
from stsbench.training.modules.backbone import Backbone, pool_padded
from stsbench.training.modules.soft_prompt import EmbeddingChange, SoftPrompt

from .options import ConSERTOptions, augmentations, shares, trained_stages

_POOLERS = ("mean", "cls", "max", "last2", "first_last:embeddings", "first_last:layer1")
_TINY = 1e-10  # added to the norm that the adversarial gradient is divided by, as in the released code
SLOTS = ("first", "second")


class ConSERT(PoolerMethod):
    """Stage sup: NLI's cross-entropy. Stage joint: this and alpha times NT-Xent on premises and on hypotheses. Stage unsup:
    NT-Xent on plain sentences. There is no head: pooled vectors are compared. Development scores, which select the weights
    in the released code, use the trained pooler, the test options.test_pooler, by default the last two layers' mean."""

    Options = ConSERTOptions
    options: ConSERTOptions
    later_options = ("views", "rates", "weigh_unsup", "test_pooler")

    def __init__(self, backbone: Backbone, options: ConSERTOptions) -> None:
        """Raise StsbenchError, one line, for a backbone that does not fit the options."""
        super().__init__(backbone, options)
        check_backbone(options, backbone)
        supervised = trained_stages(options)[0] != "unsup"
        self.classifier = NLIClassifier(features=options.features, init="torch") if supervised else None

    @classmethod
    def stages_for(cls, options: ConSERTOptions) -> tuple[str, ...]:
        """Return the stages that options.setting names."""
        return trained_stages(options)

    @classmethod
    def needs(cls, options: ConSERTOptions) -> Needs:
        """Return the needs: labelled pairs alone in stages sup and joint; dropout where neither view is augmented."""
        contrasted = [stage for stage in trained_stages(options) if stage != "sup"]
        return Needs(
            labelled={"sup": "only", "joint": "only"}, labelled_roles=partial(nli_roles, triplets=False),
            dropout=any(augmentations(options, stage) == ("none", "none") for stage in contrasted),
        )

    def prepare_labelled(self, rows: Any) -> None:
        """Set the classifier's shape by the number of labels."""
        if self.classifier is not None:
            self.classifier.set_shape(self.backbone.vector_width, count_classes(rows))

    def start_stage(self, stage: str) -> None:
        """Freeze the classifier in stage unsup, which does not use it."""
        if self.classifier is not None:
            self.classifier.requires_grad_(stage != "unsup")

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentences once, with the random draws for their two views."""
        return self._draw(Views([self.read(rows, "sentence")]), "unsup", rng)

    def labelled_views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return premises and hypotheses; in stage joint with the random draws for two views of each."""
        views = nli_views(self, rows)
        return self._draw(views, "joint", rng) if "joint" in trained_stages(self.options) else views

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return contrastive, NT-Xent (in stage joint of premises plus of hypotheses), and nli, from unchanged texts."""
        if not batch.labelled_only:
            first, second = (self._view(batch, slot, "unsup") for slot in SLOTS)
            return {"contrastive": self._contrastive(batch, first, second, self.options.weigh_unsup)}
        assert self.classifier is not None
        if "joint" not in trained_stages(self.options):
            return {"nli": self.classifier.term(self.vectors(batch.ids, batch.mask), batch)}
        if "adversarial" in self.options.joint_views:
            first, second, nli = self._adversarial(batch, self.classifier)
        else:
            first, second = (self._view(batch, slot, "joint") for slot in SLOTS)
            plain = first if self.options.joint_views[0] == "none" else self.vectors(batch.ids, batch.mask)
            nli = self.classifier.term(plain, batch)
        return {"nli": nli, "contrastive": self._contrastive(batch, first, second, True)}

    def _draw(self, views: Views, stage: str, rng: np.random.Generator) -> Views:
        pad, names = self.backbone.tokenizer.pad_token_id or 0, augmentations(self.options, stage)
        return add_draws(views, names, shares(self.options, stage), self.backbone.width, pad, rng)

    def _view(self, batch: Batch, slot: str, stage: str) -> Tensor:
        """Return (v * n, d) vectors of the view `slot`, first or second, of all texts of the batch."""
        name = augmentations(self.options, stage)[SLOTS.index(slot)]
        ids, soft = changed(self.backbone, batch, slot, name)
        return self.backbone.pooled(ids, batch.mask, soft)

    def _contrastive(self, batch: Batch, first: Tensor, second: Tensor, weighed: bool) -> Term:
        """Return the sum of NT-Xent over the v kinds of text. first, second: (v * n, d), the vectors of the two views."""
        options, n = self.options, len(batch)
        kinds = [
            contrast_views(one, two, batch.shares, self.gather_mode, temperature=options.temperature)
            for one, two in ((first[at : at + n], second[at : at + n]) for at in (k * n for k in range(batch.views)))
        ]
        value = torch.stack([term.value for term in kinds]).sum() * (2 if options.nt_xent == "sum" else 1)
        return Term(value, kinds[0].count, options.contrastive_weight if weighed else 1.0)

    def _adversarial(self, batch: Batch, classifier: NLIClassifier) -> tuple[Tensor, Tensor, Term]:
        """Return (unchanged vectors, adversarial ones, the nli term): E + norm * g / |g| for each token's embedding E,
        where g is the gradient of the mean cross-entropy (Miyato et al. 2017; Goodfellow et al. 2015)."""
        backbone, ids, mask = self.backbone, batch.ids, batch.mask
        with torch.enable_grad():  # the noise needs a gradient even for held-out rows
            start = torch.zeros(*ids.shape, backbone.width, dtype=backbone.model.dtype, device=ids.device).requires_grad_()
            soft = SoftPrompt(change=EmbeddingChange(added=start))
            embedded, *states = backbone(ids, mask, (0, *STATES[backbone.pooler]), soft)
            plain = pool_padded(backbone.pooler, states, mask)
            nli = classifier.term(plain, batch)
            # of the sum over pairs: the gradient of the mean would depend on how many pairs this process has
            (gradient,) = torch.autograd.grad(nli.value * nli.count, start, retain_graph=True)
        norms = gradient.norm(dim=-1, keepdim=True)
        noise = self.options.adversarial_norm * gradient / (norms + _TINY * batch.shares.total)
        other = SoftPrompt(change=EmbeddingChange(added=noise, replacement=embedded))
        return plain, backbone.pooled(ids, mask, other), nli


def check_backbone(options: ConSERTOptions, backbone: Backbone) -> None:
    """Raise StsbenchError, one line, for a pooler that ConSERT cannot train, and for a model whose embeddings cannot be
    augmented."""
    if backbone.pooler not in _POOLERS:
        raise StsbenchError(f"consert trains the poolers {', '.join(_POOLERS)}: set backbone.pooler, not {backbone.pooler}")
    if any(view != "none" for stage in trained_stages(options) if stage != "sup" for view in augmentations(options, stage)):
        check_family(backbone.model)


def add_draws(
    views: Views, augmentations: Sequence[str], rates: Sequence[float | None], width: int, pad: int, rng: np.random.Generator
) -> Views:
    """Return `views` with the draws for the two views of its texts, under names that begin with "first" or "second":

    - shuffle: extra "... order", for each position the position whose id it gets;
    - token_cutoff: extra "... cut", 1 at tokens set to 0; feature_cutoff, dropout: by_row "... cut", (n, d) and (n, L, d);
    - span: extra "... ids", the tokens, `pad` outside a window.
    width: d. The augmentation none draws nothing from `rng`.
    """
    for slot, name, rate in zip(SLOTS, augmentations, rates, strict=True):
        lengths = [[len(row) for row in texts] for texts in views.tokens]
        if name == "shuffle":
            views.extra[f"{slot} order"] = [[rng.permutation(n) for n in part] for part in lengths]
        elif name == "token_cutoff":
            views.extra[f"{slot} cut"] = [[_chosen(n, rate, rng).astype(np.int64) for n in part] for part in lengths]
        elif name == "feature_cutoff":
            views.by_row[f"{slot} cut"] = [np.stack([_chosen(width, rate, rng) for _ in part]) for part in lengths]
        elif name == "dropout":
            longest = max(map(max, lengths))
            views.by_row[f"{slot} cut"] = [np.stack([_elements(n, longest, width, rate, rng) for n in part])
                                           for part in lengths]
        elif name == "span":
            views.extra[f"{slot} ids"] = [_windows(texts, rate, pad, rng) for texts in views.tokens]
    return views


def changed(backbone: Backbone, batch: Batch, slot: str, name: str) -> tuple[Tensor, SoftPrompt | None]:
    """Return the token ids (n, L) of a view, and the change of their embeddings, None for no change.

    n: number of texts in the batch; slot: first or second; name: the augmentation for which the batch has draws.
    """
    ids, real = batch.ids, batch.mask.bool()
    if name == "shuffle":
        positions = own_positions(backbone.model.embeddings, ids)
        order = torch.where(real, batch.extra[f"{slot} order"], torch.arange(ids.shape[1], device=ids.device))
        return ids, SoftPrompt(positions.gather(1, order))
    if name == "span":
        return batch.extra[f"{slot} ids"], SoftPrompt(own_positions(backbone.model.embeddings, ids))
    if name == "token_cutoff":
        return ids, _cut(batch.extra[f"{slot} cut"].eq(1).logical_and(real).unsqueeze(2))
    if name == "feature_cutoff":
        return ids, _cut(batch.by_row[f"{slot} cut"].unsqueeze(1))
    if name == "dropout":
        return ids, _cut(batch.by_row[f"{slot} cut"][:, : ids.shape[1]])
    return ids, None


def _cut(mask: Tensor) -> SoftPrompt:
    return SoftPrompt(change=EmbeddingChange((mask,)))


def _chosen(count: int, rate: float | None, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return (count,) true at floor(count * rate) positions, drawn without replacement."""
    assert rate is not None
    mask = np.zeros(count, dtype=np.bool_)
    mask[rng.permutation(count)[: int(count * rate)]] = True
    return mask


def _elements(tokens: int, longest: int, width: int, rate: float | None, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return (longest, width) true at floor(tokens * width * rate) elements of the first `tokens` rows."""
    mask = np.zeros((longest, width), dtype=np.bool_)
    mask[:tokens] = _chosen(tokens * width, rate, rng).reshape(tokens, width)
    return mask


def _windows(texts: Ragged, rate: float | None, pad: int, rng: np.random.Generator) -> Ragged:
    """Return each text with `pad` outside a window of max(floor(n (1 - rate)), 1) of its n tokens."""
    assert rate is not None
    rows = []
    for text in texts:
        kept = max(int(len(text) * (1 - rate)), 1)
        start = int(rng.integers(len(text) - kept + 1))
        row = np.full(len(text), pad, dtype=np.int64)
        row[start : start + kept] = text[start : start + kept]
        rows.append(row)
    return rows
