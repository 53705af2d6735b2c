"""Mirror-BERT (Liu et al. 2021): NT-Xent between a sentence and a slightly corrupted copy of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from stsbench.encoders.forward.model import position_limit
from stsbench.encoders.forward.passes import check_family
from stsbench.encoders.forward.pooling import padded_length
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import Batch, Examples, Term, Views
from stsbench.training.api.contrasting import contrast_views
from stsbench.training.api.method import Inference, Method, Needs
from stsbench.training.api.views import pairs_or_sentence
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.soft_prompt import head_factors

from .options import MirrorBERTOptions

_KEPT = "kept heads"  # the key of the drawn heads in Views.by_row


class MirrorBERT(Method):
    """Plain sentences, or pairs of anchor and positive. Pooled vectors are compared, without a head."""

    name = "mirror-bert"
    Options = MirrorBERTOptions
    options: MirrorBERTOptions

    def __init__(self, backbone: Backbone, options: MirrorBERTOptions) -> None:
        """Raise StsbenchError, one line, for options that do not fit the backbone."""
        super().__init__(backbone, options)
        check_backbone(options, backbone)

    @classmethod
    def needs(cls, options: MirrorBERTOptions) -> Needs:
        """Return the needs: sentences, or pairs; dropout where no span is masked and no head dropped."""
        return Needs(sentence_or_pair, dropout=not options.span_chars and not options.drophead)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence (or anchor), and its copy (or the positive) with a span masked; with drophead, kept heads."""
        first, second = rows.roles[0], rows.roles[-1]
        tokens = [rows.ids(first), rows.ids(second)]
        if self.options.span_chars:
            tokenizer = self.backbone.tokenizer
            masked = mask_spans(rows.texts(second), self.options, tokenizer.mask_token or "", rng)
            tokens[1] = [np.asarray(row) for row in self.backbone.tokenise(masked)]
        views = Views(list(tokens))
        if self.options.drophead:
            config = self.backbone.model.config
            shape = (len(tokens[0]), config.num_hidden_layers, config.num_attention_heads)
            views.by_row[_KEPT] = [rng.random(shape) >= self.options.drophead for _ in tokens]
        return views

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return contrastive, NT-Xent over all 2N views."""
        first, second = self.view_vectors(batch)
        return {
            "contrastive": contrast_views(
                first, second, batch.shares, self.gather_mode, temperature=self.options.temperature
            )
        }

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return (n, d) vectors of the two views, each from a forward pass of its own."""
        first, second = (self._encoded(batch, slice(at, at + len(batch))) for at in (0, len(batch)))
        return first, second

    def inference(self) -> Inference:
        """Return the backbone with its pooler, or with mean_padded:N where options.test_length sets N."""
        length = self.options.test_length
        pooler = self.backbone.pooler if length is None else f"mean_padded:{length}"
        return Inference(self.backbone.model, self.backbone.tokenizer, pooler, token_pooler=self.backbone.head)

    def _encoded(self, batch: Batch, rows: slice) -> Tensor:
        kept = batch.by_row.get(_KEPT)
        heads = None if kept is None or not self.training else head_factors(kept[rows], self.backbone.model.dtype)
        return self.backbone.pooled(batch.ids[rows], batch.mask[rows], heads=heads)


def sentence_or_pair(roles: tuple[str, ...], method: str) -> tuple[str, ...]:
    """Return ("sentence",) or ("anchor", "positive"), whichever the data have."""
    paired = "anchor" in roles or "positive" in roles
    return pairs_or_sentence(roles, method, "given" if paired else "made")[:2]


def check_backbone(options: MirrorBERTOptions, backbone: Backbone) -> None:
    """Raise StsbenchError, one line, for options that the backbone or its pooler does not support."""
    if options.span_chars and not options.literal_mask and backbone.tokenizer.mask_token is None:
        raise StsbenchError("the tokenizer has no mask token: set options.literal_mask, or options.span_chars 0")
    if options.drophead:
        check_family(backbone.model)
    if options.test_length is None:
        return
    if padded_length(backbone.pooler) is None:
        raise StsbenchError(
            f"options.test_length {options.test_length} has no effect: it is of the pooler mean_padded, not of "
            f"{backbone.pooler}; leave it at null"
        )
    limit = position_limit(backbone.model, backbone.tokenizer)
    if limit is not None and options.test_length > limit:
        length, name = options.test_length, backbone.name
        raise StsbenchError(f"options.test_length {length} is more than the {limit} positions of {name}")


def mask_spans(
    texts: Sequence[str], options: MirrorBERTOptions, mask_token: str, rng: np.random.Generator
) -> list[str]:
    """Return the texts, each with a span masked; short texts are not changed. One random number is drawn for each text, in
    order."""
    mask = "[MASK]" if options.literal_mask else mask_token
    return [mask_span(text, float(draw), options, mask) for text, draw in zip(texts, rng.random(len(texts)), strict=True)]


def mask_span(text: str, draw: float, options: MirrorBERTOptions, mask: str) -> str:
    """Return `text` with span_chars characters, from index floor(draw * (length - span_chars)) on, replaced by `mask`
    between blanks.

    draw: in [0, 1). A text of fewer than min_chars characters, or of no more than span_chars, is not changed.
    """
    size = options.span_chars
    if len(text) < options.min_chars or len(text) <= size:
        return text
    start = int(draw * (len(text) - size))
    if options.first_occurrence:
        start = text.index(text[start : start + size])
    return f"{text[:start]} {mask} {text[start + size :]}"
