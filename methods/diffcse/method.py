"""DiffCSE (Chuang et al. 2022): SimCSE, with a discriminator that finds replaced tokens by the sentence's vector."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, cat, nn

from stsbench.data.text.examples import followed, following
from stsbench.encoders.prompt.modules import MLPHead
from stsbench.errors import StsbenchError
from stsbench.losses.tokens import corrective_lm, detections, masked_lm, replaced_tokens
from stsbench.training.api.batch import IGNORED, Batch, Examples, Ragged, Shares, Term, Views
from stsbench.training.api.contrasting import NegativeQueue, contrast
from stsbench.training.api.method import BatchNormProjector, Needs, ProjectedMethod
from stsbench.training.api.views import Repeater, pairs_or_sentence
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.copies import Conditioned
from stsbench.training.modules.edits import delete_tokens, insert_masks, mask_tokens
from stsbench.training.modules.masked_lm import Generator, LMHead

from .options import DiffCSEOptions, Operator, has_changed_copies, has_discriminator, has_generator

_LABELS = " labels"


class DiffCSE(ProjectedMethod):
    """The loss L_contrast + lambda L_RTD (Eq. 1 to 3), and the ablations of Tables 3 to 8."""

    # the package contains no masked LM, so the sample's training uses the one operator that needs no generator
    sample_settings: ClassVar[Mapping[str, Any]] = {
        "options.generator": None, "options.operators": ["delete"], "options.mask_ratio": 0.3, "options.task": "rtd",
    }
    Options = DiffCSEOptions
    options: DiffCSEOptions

    def __init__(self, backbone: Backbone, options: DiffCSEOptions) -> None:
        """Take a backbone with its `folder` and `name`. Raises StsbenchError, one line, if it does not fit the options."""
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
        """Return the needs: sentences, or pairs and hard negatives; a next sentence where that one is changed."""
        alone = options.sentence == "same"
        return Needs(
            partial(pairs_or_sentence, view=options.view),
            dropout=options.view == "dropout" and options.contrastive and options.repeat is None,
            usable=None if alone else partial(followed, option=f"options.sentence {options.sentence}"), reach=int(not alone),
        )

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentences' views, then changed copies of them, block by block (see `ViewMaker`)."""
        return self.make_views(rows, rng)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return contrastive, InfoNCE between the projected vectors, and the auxiliary terms, such as rtd, of each block."""
        options, n, changed = self.options, len(batch), self._changed(batch)
        views = n * self._sentence_views(batch)
        encoded, encoded_mask = batch.ids[:views], batch.mask[:views]
        if options.augmented_as:
            assert self.changer is not None
            (block,) = changed
            encoded = cat([encoded, self.changer(block.operator, block.ids, block.mask, block.labels, block.original)])
            encoded_mask = cat([encoded_mask, block.mask])
        raw = self.backbone.pooled(encoded, encoded_mask)
        projected = self.project(raw, batch.shares)
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

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """Return (n, d') projected vectors of the sentence's two views; None without the contrastive term."""
        return super().view_vectors(batch) if self.options.contrastive else None

    def metrics(self) -> dict[str, float]:
        """Return the discriminator's accuracy over all, replaced and original tokens, and the share of replaced tokens."""
        return self.auxiliary.metrics() if self.auxiliary is not None else {}

    def inputs(self) -> dict[str, str]:
        """Return the generator's digest; {} without a generator."""
        generator = self.changer.generator if self.changer is not None else None
        return {"generator": generator.digest} if generator is not None else {}

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return, for each auxiliary term, the number of tokens in its mean."""
        if self.auxiliary is None:
            return {}
        counted = [count for block in self._changed(batch) for count in self.auxiliary.counted(block).items()]
        return {name: int(tokens.sum()) for name, tokens in counted}

    def _sentence_views(self, batch: Batch) -> int:
        """Return the number of views before the blocks of changed copies."""
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
        """Return the projector of vectors for the contrastive loss and, with condition projected, for the discriminator."""
        options, width = self.options, self.backbone.vector_width
        reader = self.auxiliary.discriminator if self.auxiliary is not None and options.condition == "projected" else None
        if options.projector == "none" or not (options.contrastive or reader):
            return None
        std = getattr(self.backbone.model.config, "initializer_range", 0.02)
        if options.projector == "tanh":
            return MLPHead(width, std)
        return BatchNormProjector(width, width if reader is None else reader.width, std)

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


class ViewMaker:
    """Makes views of rows: V views of sentences (the sentence twice, or one for each role of the data, anchor first), then
    blocks of changed copies.

    Each block applies one operator to one sentence ("same" or "next"). Blocks are in the order of options.sentence, then of
    options.operators; combine "choice" draws one operator for each batch. A block has a copy of each sentence view, changed
    independently (with options.augmented_as only of the first view). Extra, in names that begin with "OPERATOR SENTENCE":
    - replace: the copy is masked; "... original": ids before; "... labels": these at chosen positions, else IGNORED;
    - insert: [MASK] tokens are added; "... labels": 1 at these, 0 elsewhere;
    - delete: tokens are removed; "... labels": 1 where the left neighbour was removed, 0 elsewhere.
    """

    def __init__(self, backbone: Backbone, options: DiffCSEOptions) -> None:
        """Take the options. Raises StsbenchError for a tokenizer without the mask token that replace and insert need."""
        self.options, self.max_length, self.tokenizer = options, backbone.max_length, backbone.tokenizer
        self.repeater = Repeater(backbone, options.repeat) if options.repeat is not None else None
        self.special, self.mask_id = self.tokenizer.all_special_ids, self.tokenizer.mask_token_id
        masking = [operator for operator in options.operators if operator != "delete"]
        if has_changed_copies(options) and masking and self.mask_id is None:
            raise StsbenchError(
                f"options.operators {masking[0]} needs a mask token, and the tokenizer of {backbone.name} has none"
            )

    def __call__(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the views of one batch. Unchanged sentences draw nothing from `rng`. Views with repetitions are copied and
        changed with these."""
        options = self.options
        first, *later = rows.roles if options.view == "given" else ("sentence", "sentence")
        plain = rows.ids(first)
        sentences: list[Ragged] = [plain, *(self._later(rows, role, rng) for role in later)]
        views = Views(list(sentences), one_length=options.rtd_mean == "all" and has_discriminator(options))
        if not has_changed_copies(options):
            return views
        operators = options.operators
        if options.combine == "choice":
            operators = (operators[int(rng.integers(len(operators)))],)
        for sentence in options.sentence.split("+"):
            originals = sentences
            if sentence == "next":
                originals = [following(rows, 1, rng).ids("sentence")] * len(sentences)
            for operator in operators:
                for ids in originals if options.augmented_as is None else originals[:1]:
                    self._add(views, operator, sentence, ids, rng)
        return views

    def _later(self, rows: Examples, role: str, rng: np.random.Generator) -> Ragged:
        return rows.ids(role) if self.repeater is None else self.repeater(rows, role, rng)

    def _add(self, views: Views, operator: Operator, sentence: str, ids: Ragged, rng: np.random.Generator) -> None:
        """Append a changed copy of the view `ids`, with its labels, to `views`."""
        options, name = self.options, f"{operator} {sentence}"
        if operator == "replace":
            shares = options.mask_ratio, options.masked, options.random
            copies, labels = mask_tokens(ids, self.tokenizer, rng, *shares)
            views.extra.setdefault(f"{name} original", []).append(ids)
        elif operator == "insert":
            copies, labels = insert_masks(ids, self.special, self.mask_id, rng, options.edit_ratio, self.max_length)
        else:
            copies, labels = delete_tokens(ids, self.special, rng, options.edit_ratio)
        views.tokens.append(copies)
        views.extra.setdefault(name + _LABELS, []).append(labels)


def blocks(extra: Iterable[str]) -> list[tuple[str, str]]:
    """Return (operator, sentence) of each block, in the order of the views. extra: the names in extra of Views or Batch."""
    names = [name.removesuffix(_LABELS).split(" ") for name in extra if name.endswith(_LABELS)]
    return [(operator, sentence) for operator, sentence in names]


@dataclass(frozen=True)
class Block:
    """A block of m sentences that `ViewMaker` changed by one operator. sentence: "same" or "next"; the tensors are (m, L).

    ids: the changed sentences; original: for the operator replace the ids before, else None.
    """

    operator: str
    sentence: str
    ids: Tensor
    mask: Tensor
    labels: Tensor
    original: Tensor | None

    @property
    def ending(self) -> str:
        """Return the ending of the names of the block's terms."""
        return f"_{self.operator}" * (self.operator != "replace") + f"_{self.sentence}" * (self.sentence != "same")


class Changer(nn.Module):
    """Fills changed copies with the generator's tokens, for the discriminator to read. Nothing here is trained."""

    def __init__(self, backbone: Backbone, options: DiffCSEOptions) -> None:
        """Raise StsbenchError, one line, for a generator that does not fit the encoder."""
        super().__init__()
        self.options = options
        self.generator: Generator | None = None
        if has_generator(options):
            self.generator = Generator(backbone, options.generator, options.generator_mode)

    def forward(self, operator: str, ids: Tensor, mask: Tensor, labels: Tensor, original: Tensor | None) -> Tensor:
        """Return (m, L) token ids, the generator's at masked or (options.replace) all tokens, 0 at padding as in the code.

        labels: as made by `ViewMaker`; original: the unchanged ids for the operator replace. Slot 0 is not changed.
        """
        if self.generator is not None and operator != "delete":
            chosen = labels == 1 if operator == "insert" else labels != IGNORED
            if operator == "replace" and self.options.replace == "all":
                chosen = mask.bool()
                chosen[:, 0] = False
            ids = self.generator.fill(ids, mask, chosen, sampling=self.options.replacement == "sampling")
            if original is not None and self.options.replace == "masked":
                ids = torch.where(chosen, ids, original)
        return ids * mask


class Auxiliary(nn.Module):
    """The discriminator and its heads (section 3.2; Table 3 for other tasks than detection)."""

    special: Tensor  # token ids
    found: Tensor  # (4,) correct on replaced, replaced, correct on original, original: tokens since the last `metrics`

    def __init__(self, backbone: Backbone, options: DiffCSEOptions) -> None:
        """Copy the encoder as the discriminator; its heads are random or, for words, the checkpoint's masked-LM head."""
        super().__init__()
        self.options = options
        self.discriminator = Conditioned(backbone)
        width = self.discriminator.width
        self.detector = nn.Linear(width, 2) if options.task == "rtd" else None
        self.gate = nn.Linear(width, 1) if options.task == "corrective_lm" else None
        self.lm_head: LMHead | None = None
        if options.task != "rtd":
            self.lm_head = LMHead.load(backbone.folder, self.discriminator.model, backbone.name, tied=True)
        tokenizer = backbone.tokenizer
        special = [id for id in tokenizer.all_special_ids if id != tokenizer.mask_token_id]
        self.register_buffer("special", torch.tensor(special), persistent=False)
        self.register_buffer("found", torch.zeros(4, dtype=torch.long))

    def forward(self, block: Block, ids: Tensor, first: Tensor) -> dict[str, Term]:
        """Return the terms of a block. ids: (m, L), from `Changer` or the block itself; first: (m, d) sentence vectors that
        replace slot 0."""
        if first.shape[1] != self.discriminator.width:
            raise StsbenchError(
                f"the discriminator reads vectors of width {self.discriminator.width}, and the sentence vectors have "
                f"{first.shape[1]}: set options.projector batchnorm and options.condition projected"
            )
        weight, task, mask, original = self.options.rtd_weight, self.options.task, block.mask, block.original
        (name, counted), *more = self.counted(block).items()
        if task == "conditional_mlm":
            hidden = self.discriminator(ids, mask, first, padding=False)[counted]
            assert self.lm_head is not None
            return {name: Term(masked_lm(self.lm_head(hidden), block.labels[counted]), len(hidden), weight)}
        if task == "corrective_lm":
            assert self.lm_head is not None and self.gate is not None and original is not None
            hidden = self.discriminator(ids, mask, first, padding=False)[counted]
            gate = self.gate(hidden).squeeze(1)
            word, copy = corrective_lm(self.lm_head(hidden), gate, ids[counted], original[counted])
            self._note(torch.stack([gate, -gate], 1), (ids != original)[counted], torch.ones_like(gate, dtype=torch.bool))
            ((copied, _),) = more
            return {name: Term(word, len(hidden), weight), copied: Term(copy, len(hidden), weight)}
        assert self.detector is not None
        real = mask.bool()
        replaced = (ids != original) & real if original is not None else (block.labels == 1)
        logits = self.detector(self.discriminator(ids, mask, first, padding=self.options.rtd_mean == "all"))
        self._note(logits, replaced, real)
        value = replaced_tokens(logits, replaced.long(), counted)
        return {name: Term(value, int(counted.sum()), weight)}

    def counted(self, block: Block) -> dict[str, Tensor]:
        """Return term -> (m, L) bool, the tokens in its mean. Needs no forward pass."""
        task, ending, real = self.options.task, block.ending, block.mask.bool()
        if task == "conditional_mlm":
            return {f"conditional_mlm{ending}": block.labels != IGNORED}
        tokens = self._counted(real, block.ids if block.original is None else block.original)
        if task == "corrective_lm":
            tokens = tokens & real
            tokens[:, 0] = False  # slot 0 is the sentence vector
            return dict.fromkeys((f"corrective_lm{ending}", f"copy{ending}"), tokens)
        return {f"rtd{ending}": tokens}

    def metrics(self) -> dict[str, float]:
        """Return the shares of this process's attended tokens, slot 0 included, that were classified correctly since the
        last call, over all, replaced and original tokens, and the share of replaced tokens."""
        right_replaced, replaced, right_original, original = self.found.tolist()
        self.found.zero_()
        if not replaced + original:
            return {}
        return {
            "detection_accuracy": (right_replaced + right_original) / (replaced + original),
            **({"replaced_accuracy": right_replaced / replaced} if replaced else {}),
            **({"original_accuracy": right_original / original} if original else {}),
            "replaced_share": replaced / (replaced + original),
        }

    def _counted(self, real: Tensor, reference: Tensor) -> Tensor:
        """Return (m, L) bool, the positions in the mean. reference: (m, L) ids, of which special tokens may be left out."""
        if self.options.rtd_mean == "all":
            return torch.ones_like(real)
        if self.options.rtd_mean == "attended":
            return real
        return real & ~torch.isin(reference, self.special)

    def _note(self, logits: Tensor, replaced: Tensor, real: Tensor) -> None:
        self.found += detections(logits.detach(), replaced.long(), real).to(self.found)
