"""DeCLUTR (Giorgi et al. 2021): contrast of nearby spans of a document, with masked language modelling.

Spans are sampled as in section 3.1 and the released code, declutr/common/contrastive_utils.py in
JohnGiorgi/DeCLUTR@b78ac57.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from stsbench.encoders.forward.pooling import STATES, padded_length
from stsbench.errors import DataError, StsbenchError
from stsbench.training.api.batch import Batch, Examples, Shares, Term, Views
from stsbench.training.api.contrasting import contrast_views
from stsbench.training.api.method import Method, Needs
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.edits import mask_tokens
from stsbench.training.modules.masked_lm import LMHead

from .options import DeCLUTROptions

_LABELS = "mlm_labels"  # labels of the anchors' views, which come first in a batch
_ANCHOR, _POSITIVE = (4, 2), (2, 4)  # parameters of the Beta distributions of lengths: anchors long, positives short


class DeCLUTR(Method):
    """A anchors from each document, with some of their tokens masked, and P positives for each anchor, unmasked.

    The masked-LM head is trained with the encoder, which is tested without it.
    """

    # the sample's documents are short
    sample_settings: ClassVar[Mapping[str, Any]] = {"options.l_max": 32, "options.l_min": 8, "backbone.max_length": 34}
    Options = DeCLUTROptions
    options: DeCLUTROptions

    def __init__(self, backbone: Backbone, options: DeCLUTROptions) -> None:
        """Take a backbone with its `folder` and `name`. Raises StsbenchError, one line, if it does not fit the options."""
        super().__init__(backbone, options)
        check_backbone(options, backbone)
        self.lm_head = None
        if options.mlm_weight:
            self.lm_head = LMHead.load(backbone.folder, backbone.model, backbone.name, tied=True)
        self._first, self._last = _ends(backbone.tokenizer)

    @classmethod
    def needs(cls, options: DeCLUTROptions) -> Needs:
        """Return the needs: whole documents that are long enough to draw spans from."""
        short = f"documents of fewer than {least(options):,} word pieces, 2 x anchors x l_max"
        return Needs(whole_texts=True, usable=partial(long_enough, options), unusable=short)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return A views of masked anchors, with the tokens to predict in extra "mlm_labels"; then P views of positives for
        the first anchor, the second, and so on, or none where options.contrastive_weight is 0."""
        options, documents = self.options, rows.ids("sentence")
        drawn = [sample_spans(len(document), options, rng) for document in documents]
        anchors = [self._read(documents, [pairs[a][0] for pairs in drawn]) for a in range(options.anchors)]
        positives = [
            self._read(documents, [pairs[a][1][p] for pairs in drawn])
            for a in range(options.anchors) for p in range(options.positives) if options.contrastive_weight
        ]
        if self.lm_head is None:
            return Views([*anchors, *positives])
        masked = [mask_tokens(view, self.backbone.tokenizer, rng, options.mlm_probability) for view in anchors]
        return Views([*(ids for ids, _ in masked), *positives], {_LABELS: [labels for _, labels in masked]})

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return contrastive, NT-Xent of anchors and the means of their positives, and mlm, masked tokens' cross-entropy."""
        options, terms = self.options, {}
        vectors, last = self._anchors(batch)
        if options.contrastive_weight:
            pairs = Shares(tuple(options.anchors * size for size in batch.shares.sizes), batch.shares.rank)
            term = contrast_views(
                vectors, self._positives(batch), pairs, self.gather_mode, temperature=options.temperature
            )
            terms["contrastive"] = Term(term.value, term.count, options.contrastive_weight)
        if self.lm_head is not None:
            labels = batch.extra[_LABELS][:, : last.shape[1]]
            terms["mlm"] = Term(*self.lm_head.loss(last, labels), options.mlm_weight)
        return terms

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """Return (A n, d) vectors of the anchors and means of their positives; None without the contrastive term."""
        return (self._anchors(batch)[0], self._positives(batch)) if self.options.contrastive_weight else None

    def _anchors(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return (A n, d) vectors of the anchors, ordered by document, and (A n, L', d) their last states, ordered by
        anchor."""
        rows = slice(self.options.anchors * len(batch))
        ids, mask = _shortened(batch.ids[rows], batch.mask[rows])
        wanted = STATES[self.backbone.pooler]
        states = self.backbone(ids, mask, wanted)
        vectors = self.backbone.pool(states, mask)
        return _by_document(vectors.unflatten(0, (self.options.anchors, -1))), states[wanted.index(-1)]

    def _positives(self, batch: Batch) -> Tensor:
        """Return (A n, d) means over each anchor's positives, ordered by document."""
        rows = slice(self.options.anchors * len(batch), None)
        vectors = self.vectors(*_shortened(batch.ids[rows], batch.mask[rows]))
        return _by_document(vectors.unflatten(0, (self.options.anchors, self.options.positives, -1)).mean(1))

    def _read(self, documents: list[NDArray[np.int32]], spans: list[range]) -> list[Any]:
        """Return the token ids of one span of each document, with special tokens, cut at backbone.max_length."""
        pieces = [document[span.start : span.stop] for document, span in zip(documents, spans, strict=True)]
        if self.options.spans == "retokenised":
            tokenizer = self.backbone.tokenizer
            return self.backbone.tokenise([tokenizer.decode(ids, clean_up_tokenization_spaces=True) for ids in pieces])
        room = self.backbone.max_length - len(self._first) - len(self._last)
        return [np.concatenate([self._first, ids[:room], self._last]) for ids in pieces]


def _by_document(vectors: Tensor) -> Tensor:
    """Return (A, n, d) vectors as (n A, d), ordered by document, since each process has whole documents."""
    return vectors.transpose(0, 1).flatten(0, 1)


def _shortened(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return ids and mask without padding common to all rows, as positives are padded to the length of anchors."""
    longest = int(mask.sum(1).max())
    return ids[:, :longest], mask[:, :longest]


def _ends(tokenizer: Any) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the special tokens that the tokenizer adds before and after a text."""
    how = {"padding": False, "truncation": False}
    special = set(tokenizer.all_special_ids)
    for text in ("a", *(tokenizer.decode([token]) for token in range(len(tokenizer)) if token not in special)):
        inner = tokenizer(text, add_special_tokens=False, **how)["input_ids"]
        if not inner or special & set(inner):
            continue  # the vocabulary lacks that word
        ids = tokenizer(text, **how)["input_ids"]
        first = next((start for start in range(len(ids)) if ids[start : start + len(inner)] == inner), None)
        if first is not None:
            return np.array(ids[:first], np.int32), np.array(ids[first + len(inner) :], np.int32)
    raise StsbenchError("declutr: the tokenizer reads none of its own words: choose another backbone")


def check_backbone(options: DeCLUTROptions, backbone: Backbone) -> None:
    """Raise StsbenchError, one line, for spans longer than the model reads, an unfit pooler, or no mask token."""
    if options.l_max > backbone.max_length:
        raise StsbenchError(
            f"options.l_max {options.l_max} is more than backbone.max_length {backbone.max_length}, at which spans are cut: "
            f"set both, for short documents e.g. options.l_min 8, options.l_max 64 and backbone.max_length 66"
        )
    if backbone.pooler == "mask":
        raise StsbenchError("declutr has no template, which the pooler mask needs: set backbone.pooler to mean")
    if padded_length(backbone.pooler) is not None:
        raise StsbenchError(
            f"declutr's spans are not padded to a fixed length, as {backbone.pooler} has texts: set backbone.pooler to mean"
        )
    if options.mlm_weight and backbone.tokenizer.mask_token_id is None:
        raise StsbenchError(
            f"declutr masks tokens, and the tokenizer of {backbone.name} has no mask token: set options.mlm_weight to 0"
        )


def long_enough(options: DeCLUTROptions, rows: Any) -> NDArray[np.bool_]:
    """Return (n,) bool, whether each document of `rows` (a TextRows) is long enough to draw anchors from.

    Raises DataError, one line, where all documents are too short, or with options.short refuse one is.
    """
    lengths, needed = rows.lengths("sentence"), least(options)
    enough: NDArray[np.bool_] = lengths >= needed
    store = rows.store
    wanted = f"{needed:,} are needed, 2 x options.anchors {options.anchors} x options.l_max {options.l_max}"
    if not enough.any():
        raise DataError(
            f"{store.path}: the longest of {len(lengths):,} documents has {lengths.max():,} word pieces, and {wanted}: take "
            "longer documents, join lines of one text (data.lines_per_row), or set options.l_max lower"
        )
    if options.short == "refuse" and not enough.all():
        row = int(np.argmin(enough))
        raise DataError(
            f"{store.path}:{store.line(row)}: a document of {lengths[row]:,} word pieces, and {wanted}: take it out, or set "
            "options.short drop"
        )
    return enough


def least(options: DeCLUTROptions) -> int:
    """Return the least number of word pieces in a document: 2 l_max for every anchor."""
    return 2 * options.anchors * options.l_max


def sample_spans(tokens: int, options: DeCLUTROptions, rng: np.random.Generator) -> list[tuple[range, list[range]]]:
    """Return the anchors of a document of `tokens` word pieces, each with its positives, as ranges of token positions.

    Anchors begin within slots of l_max tokens. A drawn slot and its neighbours are not drawn again, so that anchors never
    overlap. Raises ValueError for a document shorter than `least`.
    """
    if tokens < least(options):
        raise ValueError(f"a document of {tokens} word pieces, and {least(options)} are needed")
    slots = list(range(0, tokens - options.l_max + 1, options.l_max))
    pairs = []
    for number in range(options.anchors):
        anchor = _anchor(slots, options.anchors - number, options, rng)
        pairs.append((anchor, [_positive(anchor, tokens, options, rng) for _ in range(options.positives)]))
    return pairs


def _anchor(slots: list[int], missing: int, options: DeCLUTROptions, rng: np.random.Generator) -> range:
    """Return one anchor, and remove its slot and the neighbours from `slots`. missing: number of anchors still to be drawn,
    this one included."""
    length = _length(_ANCHOR, options.l_min, options.l_max, rng)
    last = len(slots) - 1
    scarce = len(slots) // missing < missing  # a slot in the middle might leave too few for the others
    slot = last * _integer(rng, 0, 1) if scarce else _integer(rng, 0, last)
    start = _integer(rng, slots[slot], slots[slot] + options.l_max - length)
    del slots[max(0, slot - 1) : slot + 2]
    return range(start, start + length)


def _positive(anchor: range, tokens: int, options: DeCLUTROptions, rng: np.random.Generator) -> range:
    longest = options.l_max
    if options.sampling == "subsuming":
        longest = len(anchor)
    length = _length(_POSITIVE, options.l_min, longest, rng)
    if options.sampling == "subsuming":
        start = _integer(rng, anchor.start, anchor.stop - length)
    elif options.sampling == "adjacent":
        # `least` leaves room for l_max tokens on one side; as in the code no positive begins at the document's first token
        starts = [anchor.start - length] * (anchor.start > length) + [anchor.stop] * (anchor.stop + length <= tokens)
        start = starts[_integer(rng, 0, len(starts) - 1)]
    else:
        start = _integer(rng, max(0, anchor.start - length), min(anchor.stop, tokens - length))
    return range(start, start + length)


def _integer(rng: np.random.Generator, low: int, high: int) -> int:
    """Return a uniform random integer from `low` to `high`, both included."""
    return int(rng.integers(low, high, endpoint=True))


def _length(shape: tuple[int, int], shortest: int, longest: int, rng: np.random.Generator) -> int:
    return int(rng.beta(*shape) * (longest - shortest) + shortest)
