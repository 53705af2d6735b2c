"""DiffCSE (Chuang et al. 2022): SimCSE, and a vector that knows how its sentence differs from a changed one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, cat, nn

from stsbench.data.text.examples import followed
from stsbench.encoders.prompt.modules import MLPHead
from stsbench.training.api.batch import Batch, Examples, Shares, Term, Views, apply_to_all_rows, counted
from stsbench.training.api.contrasting import NegativeQueue, contrast
from stsbench.training.api.method import Inference, Method, Needs
from stsbench.training.api.views import pairs_or_sentence
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.masked_lm import made_up
from stsbench.training.modules.projector import BatchNormProjector

from .auxiliary import Auxiliary, Block, Changer, ViewMaker, blocks
from .options import DiffCSEOptions


class DiffCSE(Method):
    """L = L_contrast + lambda L_RTD (Eq. 1 to 3), and the ablations of Tables 3 to 8."""

    name = "diffcse"
    # no masked LM is in the package: what reads its words or masks stands as it does without them
    sample_settings: ClassVar[Mapping[str, Any]] = {
        "options.generator": None, "options.operators": ["delete"], "options.mask_ratio": 0.3, "options.task": "rtd",
    }
    Options = DiffCSEOptions
    options: DiffCSEOptions

    def __init__(self, backbone: Backbone, options: DiffCSEOptions) -> None:
        """backbone: with its `folder` and `name`. Raises StsbenchError, one line, for one that does not fit the options."""
        super().__init__(backbone, options)
        self.auxiliary = Auxiliary(backbone, options) if options.rtd_weight > 0 else None
        self.projector = self._projector()
        self.changer = Changer(backbone, options) if self.auxiliary is not None or options.augmented_as else None
        self.queue: NegativeQueue | None = None
        if options.queue is not None:
            width = self.projector.outer.out_features if isinstance(self.projector, BatchNormProjector) else None
            self.queue = NegativeQueue(backbone, width or backbone.vector_width, options.queue)
        self.make_views = ViewMaker(backbone, options)

    @classmethod
    def needs(cls, options: DiffCSEOptions) -> Needs:
        """Return sentences, or pairs and hard negatives; the next sentence where that is changed."""
        alone = options.sentence == "same"
        return Needs(
            partial(pairs_or_sentence, view=options.view),
            dropout=options.view == "dropout" and options.contrastive and options.repeat is None,
            usable=None if alone else partial(followed, option=f"options.sentence {options.sentence}"), reach=int(not alone),
        )

    def start_stage(self, stage: str) -> None:
        """Empty the queue, also where a stage of labelled rows (recipe.semi) trained the encoder before."""
        if self.queue is not None:
            self.queue.restart(self.backbone)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentences, then changed copies of them, block by block (`ViewMaker`)."""
        return self.make_views(rows, rng)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """contrastive: InfoNCE between the projected vectors; rtd and its like: the auxiliary terms, one a block."""
        options, n, changed = self.options, len(batch), self._changed(batch)
        views = n * self._sentence_views(batch)
        encoded, encoded_mask = batch.ids[:views], batch.mask[:views]
        if options.augmented_as:
            assert self.changer is not None
            (block,) = changed
            encoded = cat([encoded, self.changer(block.operator, block.ids, block.mask, block.labels, block.original)])
            encoded_mask = cat([encoded_mask, block.mask])
        raw = self.backbone.pooled(encoded, encoded_mask)
        projected = self._project(raw, batch.shares)
        terms = self._contrastive(projected, n, batch.shares) if options.contrastive else {}
        if self.queue is not None:
            self.queue.enqueue(self.backbone, batch.ids[:n], batch.mask[:n], self.projector, batch.shares)
        if self.auxiliary is not None and self.changer is not None:
            first = projected if options.condition == "projected" else raw
            first = first.detach() if options.detach else first
            for block in changed:
                read = block.ids
                if options.task != "conditional_mlm":
                    read = self.changer(block.operator, read, block.mask, block.labels, block.original)
                terms |= self.auxiliary(block, read, first)
        return terms

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return (n, d') projected vectors. BatchNorm's statistics are over these rows, with training.gather exact those
        of all processes, every one of which must call then."""
        raw = self.backbone.pooled(ids, mask)
        everywhere = self.training and self.gather_mode == "exact" and isinstance(self.projector, BatchNormProjector)
        return self._project(raw, counted(len(raw), raw.device) if everywhere else Shares((len(raw),)))

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """Return (n, d') projected vectors of the sentence's two views; None where they are not contrasted."""
        return super().view_vectors(batch) if self.options.contrastive else None

    def metrics(self) -> dict[str, float]:
        """Of the detector: its accuracy, on replaced and on original tokens, and the share of replaced ones."""
        return self.auxiliary.metrics() if self.auxiliary is not None else {}

    def inputs(self) -> dict[str, str]:
        """Return the generator's digest by name; nothing without a generator."""
        generator = self.changer.generator if self.changer is not None else None
        return {"generator": generator.digest} if generator is not None else {}

    def notes(self) -> list[str]:
        """Return a masked-LM head that the checkpoint does not have."""
        head = self.auxiliary.lm_head if self.auxiliary is not None else None
        return [made_up(self.backbone.name)] if head is not None and not head.stored else []

    def inference(self) -> Inference:
        """Return the encoder by the backbone's pooler ([CLS] in the paper), without the projector."""
        backbone = self.backbone
        return Inference(backbone.model, backbone.tokenizer, backbone.pooler, token_pooler=backbone.head)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Of the auxiliary terms the tokens that they are the mean over."""
        if self.auxiliary is None:
            return {}
        counted = [count for block in self._changed(batch) for count in self.auxiliary.counted(block).items()]
        return {name: int(tokens.sum()) for name, tokens in counted}

    def _sentence_views(self, batch: Batch) -> int:
        """Return how many views come before the blocks of changed copies."""
        copies = len(blocks(batch.extra))
        return batch.views - copies if self.options.augmented_as else batch.views // (1 + copies)

    def _changed(self, batch: Batch) -> list[Block]:
        """Return the blocks of changed copies, in their order."""
        copies, start = blocks(batch.extra), len(batch) * self._sentence_views(batch)
        size = (len(batch.ids) - start) // len(copies) if copies else 0
        changed = []
        for number, (operator, sentence) in enumerate(copies):
            rows, name = slice(start + number * size, start + (number + 1) * size), f"{operator} {sentence}"
            labels, original = batch.extra[f"{name} labels"], batch.extra.get(f"{name} original")
            changed.append(Block(operator, sentence, batch.ids[rows], batch.mask[rows], labels, original))
        return changed

    def _projector(self) -> nn.Module | None:
        """Return what stands before the contrastive loss and, with condition projected, before the discriminator."""
        options, width = self.options, self.backbone.vector_width
        reader = self.auxiliary.discriminator if self.auxiliary is not None and options.condition == "projected" else None
        if options.projector == "none" or not (options.contrastive or reader):
            return None
        std = getattr(self.backbone.model.config, "initializer_range", 0.02)
        if options.projector == "tanh":
            return MLPHead(width, std)
        return BatchNormProjector(width, width if reader is None else reader.width, std)

    def _project(self, raw: Tensor, shares: Shares) -> Tensor:
        """Return (v * n, d) vectors, view after view -> (v * n, d').

        With training.gather exact, BatchNorm's statistics are over the views of all processes. Else they are over its own,
        as in the released code.
        """
        if self.projector is None:
            return raw
        if isinstance(self.projector, BatchNormProjector):
            return apply_to_all_rows(self.projector, raw, shares, self.gather_mode)
        projected: Tensor = self.projector(raw)
        return projected

    def _contrastive(self, vectors: Tensor, n: int, shares: Shares) -> dict[str, Term]:
        options = self.options
        queries, keys, *negatives = vectors.split(n)
        positives, stored = {"contrastive": keys}, self.queue.stored() if self.queue is not None else None
        if options.augmented_as == "positive":
            positives["contrastive_augmented"] = negatives.pop()
        return {
            name: contrast(
                queries, positive, negatives, shares, self.gather_mode,
                temperature=options.temperature, similarity=options.similarity, stored=stored,
            )
            for name, positive in positives.items()
        }
