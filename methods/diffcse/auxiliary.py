"""The other half of DiffCSE: sentences are changed, and a transformer that also reads a sentence's vector says where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from stsbench.data.text.examples import following
from stsbench.errors import StsbenchError
from stsbench.losses.tokens import corrective_lm, detections, masked_lm, replaced_tokens
from stsbench.training.api.batch import IGNORED, Examples, Ragged, Term, Views
from stsbench.training.api.views import Repeater
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.copies import Conditioned
from stsbench.training.modules.edits import delete_tokens, insert_masks, mask_tokens
from stsbench.training.modules.masked_lm import Generator, LMHead

from .options import DiffCSEOptions, Operator, changes, detects, generates

_LABELS = " labels"


class ViewMaker:
    """Rows to views: V of sentences (the sentence twice, or what the data give, anchor first), then blocks of changed ones.

    A block is one operator on one sentence ("same" or "next"), blocks in the order of options.sentence, then of
    options.operators, of which combine "choice" draws one a batch. It holds a copy of each sentence view, drawn on its own
    (with options.augmented_as of the first only), and in extra, under names that begin with "OPERATOR SENTENCE":

    - replace: the copy is masked; "... original" the ids before, "... labels" these at chosen places, else IGNORED;
    - insert: the copy has [MASK] tokens added; "... labels" 1 at these, 0 elsewhere;
    - delete: the copy lacks tokens; "... labels" 1 at those whose left neighbour is gone, 0 elsewhere.
    """

    def __init__(self, backbone: Backbone, options: DiffCSEOptions) -> None:
        """Raise StsbenchError for a tokenizer without the mask token that replace and insert need."""
        tokenizer = backbone.tokenizer
        self.options, self.max_length = options, backbone.max_length
        self.repeater = Repeater(backbone, options.repeat) if options.repeat is not None else None
        self.special, self.mask_id, self.vocabulary = tokenizer.all_special_ids, tokenizer.mask_token_id, len(tokenizer)
        masking = [operator for operator in options.operators if operator != "delete"]
        if changes(options) and masking and self.mask_id is None:
            raise StsbenchError(
                f"options.operators {masking[0]} needs a mask token, and the tokenizer of {backbone.name} has none"
            )

    def __call__(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the views of one batch. Sentences as they are cost `rng` nothing. Changed copies are of repeated ones,
        too."""
        options = self.options
        first, *later = rows.roles if options.view == "given" else ("sentence", "sentence")
        plain = rows.ids(first)
        sentences: list[Ragged] = [plain, *(self._later(rows, role, rng) for role in later)]
        views = Views(list(sentences), one_length=options.rtd_mean == "all" and detects(options))
        if not changes(options):
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
        """One changed copy of one view."""
        options, name = self.options, f"{operator} {sentence}"
        if operator == "replace":
            copies, labels = mask_tokens(
                ids, self.special, self.mask_id, self.vocabulary, rng, options.mask_ratio, options.masked, options.random
            )
            views.extra.setdefault(f"{name} original", []).append(ids)
        elif operator == "insert":
            copies, labels = insert_masks(ids, self.special, self.mask_id, rng, options.edit_ratio, self.max_length)
        else:
            copies, labels = delete_tokens(ids, self.special, rng, options.edit_ratio)
        views.tokens.append(copies)
        views.extra.setdefault(name + _LABELS, []).append(labels)


def blocks(extra: Iterable[str]) -> list[tuple[str, str]]:
    """Return (operator, sentence) of each block, in the order of its views. extra: that of Views or Batch, or its names."""
    names = [name.removesuffix(_LABELS).split(" ") for name in extra if name.endswith(_LABELS)]
    return [(operator, sentence) for operator, sentence in names]


@dataclass(frozen=True)
class Block:
    """m sentences changed by one operator, as `ViewMaker` made them. sentence: "same" or "next"; the tensors are (m, L).

    ids: masked, lengthened or shortened; original: before that, of the operator replace, else None.
    """

    operator: str
    sentence: str
    ids: Tensor
    mask: Tensor
    labels: Tensor
    original: Tensor | None

    @property
    def ending(self) -> str:
        """Of the names of its terms."""
        return f"_{self.operator}" * (self.operator != "replace") + f"_{self.sentence}" * (self.sentence != "same")


class Changer(nn.Module):
    """From a copy that was masked, lengthened or shortened to what the discriminator reads. Nothing here is trained."""

    def __init__(self, backbone: Backbone, options: DiffCSEOptions) -> None:
        """Raise StsbenchError, one line, for a generator that does not fit the encoder."""
        super().__init__()
        self.options = options
        self.generator: Generator | None = None
        if generates(options):
            self.generator = Generator(backbone, options.generator, options.generator_mode)

    def forward(self, operator: str, ids: Tensor, mask: Tensor, labels: Tensor, original: Tensor | None) -> Tensor:
        """Return (m, L) token ids: the generator's, where it has a say, and 0 on padding, as in the released code.

        labels: of `ViewMaker`; original: the unchanged ids of the operator replace. Slot 0 stays what it was.
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
    """Discriminator and its heads (section 3.2; Table 3 for the tasks other than detection)."""

    special: Tensor  # token ids
    found: Tensor  # (4,) correct on replaced, replaced, correct on original, original: tokens since the last `metrics`

    def __init__(self, backbone: Backbone, options: DiffCSEOptions) -> None:
        """Start the discriminator as a copy of the encoder, its heads as torch draws them or, for words, as stored."""
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
        """Return the terms of one block. ids: (m, L), `Changer`'s or the block's own; first: (m, d) sentence vectors for
        slot 0."""
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
        """Return term -> (m, L) the tokens that it is the mean over, known before anything is computed."""
        task, ending, real = self.options.task, block.ending, block.mask.bool()
        if task == "conditional_mlm":
            return {f"conditional_mlm{ending}": block.labels != IGNORED}
        tokens = self._counted(real, block.ids if block.original is None else block.original)
        if task == "corrective_lm":
            tokens = tokens & real
            tokens[:, 0] = False  # there stands the vector
            return dict.fromkeys((f"corrective_lm{ending}", f"copy{ending}"), tokens)
        return {f"rtd{ending}": tokens}

    def metrics(self) -> dict[str, float]:
        """Return shares of this process's attended tokens, slot 0 among them, classified correctly since the last call:
        of all, of replaced, of original ones."""
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
        """Return (m, L) which positions the mean is over; `reference` says where special tokens stand."""
        if self.options.rtd_mean == "all":
            return torch.ones_like(real)
        if self.options.rtd_mean == "attended":
            return real
        return real & ~torch.isin(reference, self.special)

    def _note(self, logits: Tensor, replaced: Tensor, real: Tensor) -> None:
        self.found += detections(logits.detach(), replaced.long(), real).to(self.found)
