"""Objectives, which give the training loop the terms of the loss: a method, or a method changed by sections of the recipe.

`semi`: NLI's cross-entropy on labelled rows beside the method's loss, or in a stage before it (Wang and Lu 2022, DiffAug,
Appendix C); its stages and their rows: training/recipes/method_plan.py. `matryoshka`, `guide`, `contrast`: contrastive terms
of shortened vectors, without negatives that a guide masks, or in further directions. `ranking`, `gor`: RankCSE's terms, or a
regulariser, beside the method's terms. `adaptive_layers`: all terms at earlier layers, too.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast, get_args

import numpy as np
import torch
from torch import nn

from stsbench.encoders.forward.model import borrowed
from stsbench.encoders.forward.pooling import STATES
from stsbench.errors import StsbenchError
from stsbench.losses.arguments import wide
from stsbench.losses.variants import GuideRule
from stsbench.torch_random import forked
from stsbench.training.api.batch import Batch, Examples, Shares, Term, Views
from stsbench.training.api.contrasting import NegativeQueue, Wrapping, regularise, watched, wrapped
from stsbench.training.api.labelled import NLIClassifier, count_classes, nli_views
from stsbench.training.api.method import Method
from stsbench.training.api.options import RankingOptions
from stsbench.training.api.teachers import Ranking, Teachers
from stsbench.training.modules.backbone import LayerStates
from stsbench.training.modules.masked_lm import LMHead
from stsbench.training.recipes.method_plan import SUP, MethodPlan
from stsbench.training.recipes.sections import (
    AdaptiveLayersSettings,
    ContrastSettings,
    GORSettings,
    GuideSettings,
    MatryoshkaSettings,
    SemiSettings,
)
from stsbench.training.rows.batches import to_batch

_TERM = "nli"
MASKED = "masked"  # the share of masked negatives, in the log
_BY_ROW = "guide cosines"
_LAYERS, _DRAWN_LAYERS, _DRAWN_DIMS = "adaptive_layers", "adaptive layers", "matryoshka dims"
_HEADS = ("head", "projector")  # attributes of methods with a module that is applied to pooled vectors


class Around(nn.Module):
    """An objective around another one, to which it passes all attributes that it does not define."""

    def __init__(self, method: Method, objective: Any) -> None:
        super().__init__()
        self.method, self.objective = method, objective

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "objective":
                raise
            return getattr(self.objective, name)


class SemiSupervised(Around):
    """A method and a classifier of labelled pairs over its sentence vectors (`Method.vectors`, heads included).

    forward returns the method's terms and alpha * cross-entropy, the term "nli"; only that term for batches of labelled rows
    only. The classifier is a submodule of the method, "nli_classifier", to be saved, moved and optimised with it.
    """

    def __init__(self, method: Method, semi: SemiSettings) -> None:
        super().__init__(method, method)
        std = getattr(method.backbone.model.config, "initializer_range", 0.02)
        if hasattr(method, "nli_classifier"):
            raise StsbenchError(f"semi: the method {method.name} has an nli_classifier itself: set semi to null")
        method.add_module("nli_classifier", NLIClassifier(std=std))
        self.semi = semi
        self.held_out_metric = method.held_out_metric
        self.probe: Views | None = None  # two labelled rows, to find out which weights the cross-entropy trains
        self.frozen: list[nn.Parameter] = []

    @property
    def classifier(self) -> NLIClassifier:
        """Return the classifier, a submodule of the method."""
        return cast(NLIClassifier, self.method.nli_classifier)

    def labelled_views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return a view for each text of a row."""
        return nli_views(self.method, rows)

    def prepare_labelled(self, rows: Any) -> None:
        """Create the classifier's weights for the width of the method's vectors and the number of classes of `rows`."""
        some = rows.at(np.asarray(rows.rows)[:2])
        self.probe = self.labelled_views(some, np.random.default_rng(0))
        with borrowed(self.method):
            batch = self._probe_batch()
            width = self.method.vectors(batch.ids, batch.mask).shape[1]
        self.classifier.set_shape(width, count_classes(rows))

    def start_stage(self, stage: str) -> None:
        """Freeze and unfreeze weights. In stage sup, weights that the cross-entropy does not reach are frozen, as DDP fails
        for a weight without gradient; in other stages the method decides, and the classifier is trained if it is used."""
        for weight in self.frozen:
            weight.requires_grad_(True)
        self.frozen = []
        sup = stage == SUP
        if not sup:
            self.method.start_stage(stage)
        self.classifier.requires_grad_(sup or self.semi.procedure != "sup-unsup")
        # the method's metric is not defined on labelled rows, only the loss is
        self.held_out_metric = "loss" if sup else self.method.held_out_metric
        if sup:
            self.frozen = self._unreached()
            for weight in self.frozen:
                weight.requires_grad_(False)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return the terms of the loss."""
        if batch.labelled_only:
            return {_TERM: self._nli(batch)}
        terms: dict[str, Term] = self.method(batch)
        if batch.labelled is None:
            return terms
        if _TERM in terms:
            raise StsbenchError(f"semi: the method {self.method.name} has a term called {_TERM} itself: set semi to null")
        term = self._nli(batch.labelled)
        return {**terms, _TERM: Term(term.value, term.count, self.semi.alpha)}

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the method's counts, and the number of labelled rows of the batch for the cross-entropy."""
        if batch.labelled_only:
            return {}
        labelled = {} if batch.labelled is None else {_TERM: len(batch.labelled)}
        return {**self.method.counts(batch), **labelled}

    def _nli(self, batch: Batch) -> Term:
        return self.classifier.term(self.method.vectors(batch.ids, batch.mask), batch)

    def _probe_batch(self) -> Batch:
        if self.probe is None:
            raise RuntimeError("prepare_labelled comes before a stage")
        pad = self.method.backbone.tokenizer.pad_token_id
        device = next(self.method.parameters()).device
        return to_batch(self.probe, Shares((len(self.probe.tokens[0]),)), 0 if pad is None else pad, device)

    def _unreached(self) -> list[nn.Parameter]:
        """Return the trainable weights that get no gradient from the cross-entropy."""
        weights = [weight for weight in self.method.parameters() if weight.requires_grad]
        with forked(), borrowed(self.method), torch.enable_grad():
            value = self._nli(self._probe_batch()).value
            gradients = torch.autograd.grad(value, weights, allow_unused=True)
        return [weight for weight, gradient in zip(weights, gradients, strict=True) if gradient is None]


class Wrapped(Around):
    """An objective whose contrastive terms are changed by `Wrapping`; their names and weights stay.

    One forward pass of the encoder gives all of them. Other terms of the loss and a ranking by teachers are unchanged, of
    whole vectors; a queue's vectors are shortened with those of the batch.
    """

    def __init__(
        self, method: Method, objective: Method | SemiSupervised, matryoshka: MatryoshkaSettings | None,
        guide: GuideSettings | None, contrast: ContrastSettings | None = None,
    ) -> None:
        """Raise StsbenchError, one line, if the vectors that are shortened in training are not those that are tested."""
        super().__init__(method, objective)
        self.matryoshka, self.guide, self.contrast = matryoshka, guide, contrast
        if guide is not None and contrast is not None:
            raise StsbenchError("contrast: a guide says what is a negative, in directions of its own: set one to null")
        self.own_labels = method.needs(method.options).labelled == "only"  # else labelled-only batches are recipe.semi's
        self.rule: GuideRule | None = None
        self.reader: Teachers | None = None
        if matryoshka is not None:
            _check_head(method)
            if (most := max(matryoshka.dims)) > (width := method.backbone.vector_width):
                raise StsbenchError(f"matryoshka.dims {most} is more than the {width} numbers of a vector: leave it out")
        if guide is not None:
            self.rule = GuideRule(
                guide.threshold, guide.margin, 1.0 if guide.phi is None else guide.phi, guide.contrast_anchors,
                guide.contrast_positives, guide.diagonals, guide.masked, guide.loss,
            )
            self.reader = Teachers([(guide.model, guide.settings, 1.0)], "guide.model", method.backbone.offline)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the objective's views, with the guide's cosines of the data's texts, without the views' changes, and the
        dims of this step."""
        return self._add_dims(self._guided(self.objective.views(rows, rng), rows, rng), rng)

    def labelled_views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the objective's views of labelled rows, with the dims of this step."""
        return self._add_dims(self.objective.labelled_views(rows, rng), rng)

    def _add_dims(self, views: Views, rng: np.random.Generator) -> Views:
        if self.matryoshka is None or self.matryoshka.per_step is None:
            return views
        return _draw(views, _DRAWN_DIMS, len(self.matryoshka.dims), self.matryoshka.per_step, rng)

    def _guided(self, views: Views, rows: Examples, rng: np.random.Generator) -> Views:
        if self.guide is None:
            return views
        if not views.of_rows:
            why = f"a view of {self.method.name} is of another row, which it does not read"
            raise StsbenchError(f"guide: {why}: set it to null")
        if len(views.tokens[0]) != len(rows.rows):
            raise StsbenchError("guide: it masks rows, and this method makes other texts of them: set it to null")
        reader = self._loaded()
        if self.guide.dropout:  # drawn from the batch's generator, to be the same in every process and in a resumed run
            reader = reader.with_dropout(int(rng.integers(2**31)))
        anchors, *others = [rows.texts(role) for role in rows.roles if role not in ("label", "score")]
        if not others:
            if self.guide.threshold != "fixed" and self.guide.margin <= 0:
                raise StsbenchError(
                    f"guide.margin {self.guide.margin:g} masks nothing: a plain sentence is its own positive, and no "
                    "text is nearer; set it above 0, e.g. 0.1"
                )
            views.by_row[_BY_ROW] = [reader.similarities(anchors, anchors)]
            return views
        positives, *negatives = others
        # the cosines of anchors are with positives, each block of hard negatives, and anchors, in this order
        columns = [text for block in (positives, *negatives, anchors) for text in block]
        blocks = [reader.similarities(anchors, columns), reader.similarities(positives, positives)]
        views.by_row[_BY_ROW] = [np.concatenate(blocks, axis=1)]
        return views

    def inputs(self) -> dict[str, str]:
        """Return the objective's inputs, and the guide's fingerprint."""
        guide = {} if self.reader is None else {"guide": next(iter(self._loaded().fingerprints().values()))}
        return {**self.objective.inputs(), **guide}

    def notes(self) -> list[str]:
        """Return the objective's notes, and lines on the guide's name and pooler and on matryoshka's dims."""
        lines: list[str] = self.objective.notes()
        if self.reader is not None:
            spec = self._loaded().encoders[0].spec
            lines = [*lines, f"guide: {spec.name}, pooler {spec.pooler}"]
        if self.matryoshka is not None:
            dims, width = self.matryoshka.dims, self.method.backbone.vector_width
            first = ", ".join(map(str, dims))
            lines = [*lines, f"matryoshka: trains the first {first} numbers of a vector; no truncate_dim is stored"]
            if max(dims) < width:
                lines.append(f"warning: matryoshka.dims lacks the whole vector, {width}: its last numbers are not trained")
        return lines

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return the objective's terms, wrapped, and with a guide the share of masked negatives as a term of weight 0."""
        dims = self.matryoshka.pairs if self.matryoshka is not None else ()
        if _DRAWN_DIMS in batch.by_row:
            dims = tuple(dims[number] for number in sorted(_read_draw(batch, _DRAWN_DIMS)))
        directed = None if self.contrast is None else self.contrast.model_dump()
        wrapping = Wrapping(dims, self.rule, batch.by_row.get(_BY_ROW), directed)
        with wrapped(wrapping):
            terms: dict[str, Term] = self.objective(batch)
        if not batch.labelled_only or self.own_labels:
            idle = {"matryoshka": self.matryoshka and not wrapping.calls, "guide": self.rule and not wrapping.masked,
                    "contrast": directed and not wrapping.directions}
            for section in (name for name, without in idle.items() if without):
                why = "compares no two views by the shared contrastive term"
                raise StsbenchError(f"{section}: {self.method.name} {why}: set it to null")
        if wrapping.masked:  # for the log: a guide that masks nearly all leaves nothing to learn
            terms[MASKED] = replace(wrapping.masked[0], weight=0.0)
        return terms

    def _loaded(self) -> Teachers:
        assert self.reader is not None
        self.reader.load(next(self.method.parameters()).device)
        return self.reader


def _check_head(method: Method) -> None:
    """Raise StsbenchError for a head that training uses and the test drops: it mixes a vector's numbers, so that training
    the first numbers of its output does not train the first numbers of the tested vector."""
    for name in _HEADS:
        head = getattr(method, name, None)
        if not isinstance(head, nn.Module) or isinstance(head, LMHead):  # an LMHead takes states of tokens, not vectors
            continue
        weights = {weight.data_ptr() for weight in head.parameters()}
        tested = method.inference()
        parts = [tested.model, tested.dense, tested.token_pooler, getattr(tested.prompt, "head", None)]
        kept = {weight.data_ptr() for part in parts if isinstance(part, nn.Module) for weight in part.parameters()}
        if not weights <= kept:
            option = type(method.options).model_fields.get(name)
            can_be_none = option is not None and "none" in get_args(option.annotation)
            choose = f"set options.{name} to one that is kept, or to none" if can_be_none else "take a method without one"
            raise StsbenchError(
                f"matryoshka: {method.name} contrasts what its {name} makes of a vector, and that is dropped at test: the "
                f"first numbers of a tested vector would not be those trained; {choose}"
            )


class FurtherTerms(Around):
    """An objective with further terms of the vectors that it contrasts: "ranking" and "consistency", of its first
    contrastive term, by the section `ranking`, and "gor" by the section `gor`.

    The vectors are of the same forward pass, with the same dropout masks, after heads: simcse with the section `ranking` is
    rankcse to the last bit. No weights are added.
    """

    def __init__(
        self, method: Method, objective: Method | SemiSupervised | Wrapped, ranking: RankingOptions | None,
        gor: GORSettings | None,
    ) -> None:
        super().__init__(method, objective)
        self.ranking = None if ranking is None else Ranking(ranking, method.backbone, "ranking")
        self.gor = gor
        self.section = "gor" if ranking is None else "ranking"  # for messages

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the objective's views, with the teachers' similarities."""
        views: Views = self.objective.views(rows, rng)
        return views if self.ranking is None else self.ranking.add_to(views, rows)

    def inputs(self) -> dict[str, str]:
        """Return the objective's inputs, and the teachers' fingerprints."""
        return {**self.objective.inputs(), **({} if self.ranking is None else self.ranking.inputs())}

    def notes(self) -> list[str]:
        """Return the objective's notes, and a line for each teacher."""
        return [*self.objective.notes(), *([] if self.ranking is None else self.ranking.notes())]

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return the objective's terms and the further terms; for batches of labelled rows only, just the objective's."""
        with watched() as calls:
            terms: dict[str, Term] = self.objective(batch)
        if batch.labelled_only:
            return terms
        if not calls:
            why = "compares no two views by the shared contrastive term"
            raise StsbenchError(f"{self.section}: {self.method.name} {why}: set it to null")
        queries, keys, negatives = calls[0]
        blocks = {id(block): block for first, second, others in calls for block in (first, second, *others)}
        if any(len(block) != len(batch) for block in blocks.values()):
            raise StsbenchError(f"{self.section}: {self.method.name} contrasts other texts than the rows: set it to null")
        mode, added = self.method.gather_mode, {}
        if self.ranking is not None:
            added = self.ranking.terms(queries, keys, negatives, batch, mode)
        if self.gor is not None:
            added["gor"] = regularise([*blocks.values()], batch.shares, mode, **self.gor.model_dump())
        if shared := sorted(added.keys() & terms):
            raise StsbenchError(f"{self.section}: {self.method.name} has a term called {shared[0]} itself: set it to null")
        return {**terms, **added}


class AdaptiveLayers(Around):
    """An objective whose terms are computed from the last layer and from some earlier layers, in one forward pass.

    Each term is the sum over layers of weight * value; the term "adaptive_layers" is the divergence of earlier layers'
    vectors from the last layer's. Source: Li et al. (2024), 2D Matryoshka Sentence Embeddings; sentence-transformers'
    AdaptiveLayerLoss.
    """

    def __init__(self, method: Method, objective: Any, settings: AdaptiveLayersSettings) -> None:
        """Raise StsbenchError, one line, for a pooler or method with which earlier layers cannot replace the last."""
        super().__init__(method, objective)
        self.settings, pooler = settings, method.backbone.pooler
        self.layers = int(method.backbone.model.config.num_hidden_layers)
        if STATES.get(pooler, (-1,)) != (-1,) or pooler.startswith("mean_padded"):
            raise StsbenchError(f"adaptive_layers: the pooler {pooler} reads other states than the last: choose another")
        if any(isinstance(part, NegativeQueue) for part in method.modules()):
            raise StsbenchError("adaptive_layers: a queue would hold the vectors of every layer: set options.queue to null")
        if (settings.per_step or 1) > self.layers:
            raise StsbenchError(f"adaptive_layers.per_step {settings.per_step}: {self.layers} layers are before the last")

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the objective's views, with the layers of this step, the same in every process."""
        return _draw(self.objective.views(rows, rng), _DRAWN_LAYERS, self.layers, self.settings.per_step, rng)

    def labelled_views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the objective's views of labelled rows, with the layers of this step."""
        return _draw(self.objective.labelled_views(rows, rng), _DRAWN_LAYERS, self.layers, self.settings.per_step, rng)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return the terms, summed over layers, and the term "adaptive_layers"."""
        backbone, settings, layers = self.method.backbone, self.settings, _read_draw(batch, _DRAWN_LAYERS)
        states = LayerStates(self.layers)
        backbone.layer_states = states
        try:
            last = self.objective(batch)
            target = self._softmax(states)
            values = {name: settings.last_weight * term.value for name, term in last.items()}
            divergence = target.new_zeros(())
            for layer in layers:
                states.replay(layer)
                weight = settings.prior_weight * _layer_weight(layer, settings.weighting) / len(layers)
                for name, term in self.objective(batch).items():
                    values[name] = values[name] + weight * term.value
                divergence = divergence + self._divergence(states, target)
        finally:
            backbone.layer_states = None
        terms = {name: term if not term.weight else replace(term, value=values[name]) for name, term in last.items()}
        if settings.kl_weight:
            terms[_LAYERS] = Term(divergence, len(batch), settings.kl_weight)
        return terms

    def _softmax(self, states: LayerStates) -> torch.Tensor:
        if not states.vectors:
            why = "makes no vector of a text by its backbone's pooler"
            raise StsbenchError(f"adaptive_layers: {self.method.name} {why}: set it to null")
        return (wide(torch.cat(states.vectors)) / self.settings.kl_temperature).softmax(1).detach()

    def _divergence(self, states: LayerStates, target: torch.Tensor) -> torch.Tensor:
        """Return temperature * KL(last layer || this layer) of the softmax of vectors, the mean over vectors."""
        vectors = wide(torch.cat(states.vectors)) / self.settings.kl_temperature
        total = nn.functional.kl_div(vectors.log_softmax(1), target, reduction="sum")
        return self.settings.kl_temperature * total / max(len(target), 1)


def _draw(views: Views, name: str, count: int, per_step: int | None, rng: np.random.Generator) -> Views:
    """Return the views with `per_step` numbers drawn below `count` (None: all of them), the same in every process."""
    drawn = np.arange(count) if per_step is None else rng.choice(count, per_step, replace=False)
    views.by_row[name] = [np.tile(drawn.astype(np.float32), (len(views.tokens[0]), 1))]
    return views


def _read_draw(batch: Batch, name: str) -> list[int]:
    """Return the numbers that `_draw` added under `name`."""
    drawn = batch.by_row[name]
    return [int(number) for number in drawn[0].tolist()] if len(drawn) else [0] * drawn.shape[1]


def _layer_weight(layer: int, weighting: str) -> float:
    """Return the weight of a layer's loss. layer: counted from 0, the embeddings."""
    return {"uniform": 1.0, "log": 1 / (1 + math.log(1 + layer)), "linear": 1 / (1 + layer)}[weighting]


Objective = Method | SemiSupervised | Wrapped | FurtherTerms | AdaptiveLayers  # the types that `Loop` trains


def make_objective(plan: MethodPlan, method: Method) -> Objective:
    """Return the method, wrapped by the recipe's sections, from the inside out: semi; matryoshka, guide and contrast;
    ranking and gor, which read whole vectors of all texts and are therefore outside of those three; adaptive_layers."""
    inner = method if plan.semi is None else SemiSupervised(method, plan.semi)
    wraps = {name: plan.around.get(name) for name in ("matryoshka", "guide", "contrast")}
    terms = {name: plan.around.get(name) for name in ("ranking", "gor")}
    contrasts = Wrapped(method, inner, **wraps) if any(wraps.values()) else inner
    objective = FurtherTerms(method, contrasts, **terms) if any(terms.values()) else contrasts
    layers = plan.around.get("adaptive_layers")
    return objective if layers is None else AdaptiveLayers(method, objective, layers)
