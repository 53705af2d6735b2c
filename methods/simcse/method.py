"""SimCSE (Gao, Yao and Chen 2021): the positive is the same sentence under another dropout mask, or an entailed one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from stsbench.data.text.examples import followed, following
from stsbench.errors import StsbenchError
from stsbench.files import sha256_file
from stsbench.training.api.batch import IGNORED, Batch, Examples, Ragged, Term, Views
from stsbench.training.api.contrasting import NegativeQueue, contrast
from stsbench.training.api.method import HeadMethod, Needs, TemplateMethod
from stsbench.training.api.views import Repeater, pairs_or_sentence
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.edits import (
    crop,
    delete_one_word,
    delete_words,
    mask_tokens,
    read_thesaurus,
    round_share,
    synonym,
)
from stsbench.training.modules.masked_lm import Generator, LMHead

from .options import NEXT, SimCSEOptions

Change = Callable[..., list[str]]  # (words, rng=...) -> words


class SimCSE(TemplateMethod, HeadMethod):
    """SimCSE: Eq. 4 for plain sentences, Eq. 5 and 8 for pairs without and with hard negatives, and their ablations."""

    Options = SimCSEOptions
    options: SimCSEOptions

    def __init__(self, backbone: Backbone, options: SimCSEOptions) -> None:
        """Take a backbone with its `folder` and `name`. Raises StsbenchError, one line, for options that do not fit it."""
        super().__init__(backbone, options)
        self.lm_head: LMHead | None = None
        if options.mlm_weight > 0:  # untied, as in the authors' code
            self.lm_head = LMHead.load(backbone.folder, backbone.model, backbone.name, tied=False)
        self.replacer = Replacer(backbone, options.replacer) if options.view == "mlm" else None
        self.second = _second(backbone, self.head) if options.encoders == 2 else None
        self.queue: NegativeQueue | None = None
        if options.queue is not None:
            self.queue = NegativeQueue(backbone, backbone.vector_width, options.queue)
        self.tokenizer = copy.deepcopy(backbone.tokenizer)  # a copy, as calls with truncation change a tokenizer
        self.change = _change(options)
        self.repeater = Repeater(backbone, options.repeat) if options.repeat is not None else None
        if options.mlm_weight > 0 and self.tokenizer.mask_token_id is None:
            raise StsbenchError(f"options.mlm_weight needs a mask token, and the tokenizer of {backbone.name} has none")
        if options.mean_over == "row" and backbone.pooler != "mean":
            raise StsbenchError(f"options.mean_over row is of the pooler mean, not {backbone.pooler}: set backbone.pooler")
        self.behind = 0  # tokens between the state of options.positive_word and that of the anchor
        if options.positive_word is not None:
            assert self.around is not None
            self.behind = self.around.count_later_tokens(options.positive_word)

    @classmethod
    def needs(cls, options: SimCSEOptions) -> Needs:
        """Return the needs: sentences, or pairs with or without hard negatives; the following sentences that the positive is
        drawn from; dropout where both views are the same sentence."""
        follows = partial(followed, option=f"options.view {options.view}") if options.view in NEXT else None
        return Needs(
            partial(choose_roles, options), usable=follows, reach=NEXT.get(options.view, 0),
            dropout=options.view == "dropout"
            and not (options.fixed_dropout_mask or options.mlm_in_place or options.repeat is not None
                     or options.positive_word is not None),
        )

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return one view (if it serves as both), two views, or a view for each role of the data, in their order; with a
        masked-LM term also masked copies of them."""
        views = self._views(rows, rng)
        views.one_length = self.options.mean_over == "row"
        if self.options.mlm_weight > 0:
            copies = [mask_tokens(ids, self.tokenizer, rng, self.options.mlm_probability) for ids in views.tokens]
            views.extra = {"mlm_ids": [ids for ids, _ in copies], "mlm_labels": [labels for _, labels in copies]}
        return views

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return contrastive, the mean over anchors of -log(e^(sim(z1, z2) / t) / sum over the batch), and mlm."""
        options, ids = self.options, self._contrasted(batch)
        queries, keys, *negatives = self._vectors(ids, batch)
        terms = {
            "contrastive": contrast(
                queries, keys, negatives, batch.shares, self.gather_mode,
                temperature=options.temperature, similarity=options.similarity, alpha=options.alpha,
                stored=self.queue.stored() if self.queue is not None else None,
            )
        }
        if self.queue is not None:
            n = len(batch)
            self.queue.enqueue(self.backbone, ids[:n], batch.mask[:n], self.head, batch.shares)
        if self.lm_head is not None:
            hidden = self.backbone(batch.extra["mlm_ids"], batch.mask)[0]
            terms["mlm"] = Term(*self.lm_head.loss(hidden, batch.extra["mlm_labels"]), options.mlm_weight)
        return terms

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return (n, d) vectors, with the head applied as in training."""
        return super().vectors(ids, mask) if self.options.mean_over == "text" else self._mean_over_rows(ids, mask)

    def _mean_over_rows(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return (n, d) means over all L states of each row, where padding becomes end-of-text tokens before the text.

        ids, mask: (n, L), padded right. Source: get_pooling in llm2vec.py of McGill-NLP/llm2vec, on plain texts.
        """
        end = self.backbone.tokenizer.eos_token_id
        ids = ids if end is None else ids.masked_fill(mask == 0, end)
        turned = (torch.arange(mask.shape[1], device=mask.device) + mask.sum(1, keepdim=True)) % mask.shape[1]
        states: list[Tensor] = self.backbone(ids.gather(1, turned), mask.gather(1, turned))
        return states[0].mean(1)

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return (n, d) vectors of the first two views, each by its own encoder if there are two."""
        first, second, *_ = self._vectors(self._contrasted(batch), batch)
        return first, second

    def inputs(self) -> dict[str, str]:
        """Return the sha256 of the thesaurus (view synonym) and of the replacing model (view mlm)."""
        digests = {}
        if self.options.thesaurus is not None:
            digests["thesaurus"] = sha256_file(Path(self.options.thesaurus))
        if self.replacer is not None:
            digests["replacer"] = self.replacer.digest
        return digests

    def _views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the views without masked copies. To change words, sentences are split at white space and then tokenised."""
        if "sentence" not in rows.roles:
            anchor, *later = rows.roles
            return Views([self.read(rows, anchor), *(self._later(rows, role, rng) for role in later)])
        view, both = self.options.view, self.options.augment_both
        plain: Ragged = self.read(rows, "sentence")
        if self.options.fixed_dropout_mask or self.options.positive_word is not None:
            return Views([plain])
        if view == "dropout":
            return Views([plain, self._later(rows, "sentence", rng)])
        if view in NEXT:
            return Views([plain, following(rows, NEXT[view], rng).ids("sentence")], of_rows=False)
        texts = rows.texts("sentence")
        if self.change is not None:
            first = self._changed(texts, rng) if both else plain
            return Views([first, self._changed(texts, rng)])
        rate, encoded = self.options.rate, self._tokenised(texts)
        assert rate is not None
        unchanged = plain, [np.full(len(ids), IGNORED) for ids in plain]
        pairs = [words_to_replace(encoded, rate, rng) if both else unchanged, words_to_replace(encoded, rate, rng)]
        return Views([ids for ids, _ in pairs], {"replaced_labels": [labels for _, labels in pairs]})

    def _later(self, rows: Examples, role: str, rng: np.random.Generator) -> Ragged:
        return self.read(rows, role) if self.repeater is None else self.repeater(rows, role, rng)

    def _changed(self, texts: list[str], rng: np.random.Generator) -> Ragged:
        assert self.change is not None
        changed = [" ".join(self.change(text.split(), rng=rng)) for text in texts]
        ids: Ragged = self._tokenised(changed)["input_ids"]
        return ids

    def _tokenised(self, texts: list[str]) -> Any:
        return self.tokenizer(texts, truncation=True, max_length=self.backbone.max_length, padding=False)

    def _contrasted(self, batch: Batch) -> Tensor:
        """Return the token ids that the contrastive pass reads."""
        if self.options.mlm_in_place:
            return batch.extra["mlm_ids"]
        if self.replacer is not None:
            replaced: Tensor = self.replacer(batch.ids, batch.mask, batch.extra["replaced_labels"])
            return replaced
        return batch.ids

    def _vectors(self, ids: Tensor, batch: Batch) -> list[Tensor]:
        """Return (n, d) vectors, view by view. Each encoder reads all of its views in one pass, where every row has its own
        dropout mask."""
        n = len(batch)
        if self.behind:
            states, shorter = self.backbone(ids, batch.mask), functional.pad(batch.mask[:, self.behind:], (0, self.behind))
            return [self.backbone.pool(states, mask) for mask in (batch.mask, shorter)]
        if self.second is None:
            vectors = list(self.vectors(ids, batch.mask).split(n))
            return vectors * 2 if self.options.fixed_dropout_mask else vectors
        backbone, head = self.second
        assert isinstance(backbone, Backbone)
        first = self.vectors(ids[:n], batch.mask[:n])
        return [first, *head(backbone.pooled(ids[n:], batch.mask[n:])).split(n)]


def choose_roles(options: SimCSEOptions, available: tuple[str, ...], method: str) -> tuple[str, ...]:
    """Return ("sentence",), or the roles anchor, positive and, if the data have them, hard negatives.

    Raises StsbenchError for other data, and for a weight of hard negatives where the data have none.
    """
    roles = pairs_or_sentence(available, method, options.view, unsupervised="unsup-bert-base", supervised="sup-bert-base")
    if options.alpha != 1 and "negative" not in roles:
        raise StsbenchError(
            f"options.alpha weighs hard negatives, and {'plain sentences' if len(roles) == 1 else 'the data'} have none: "
            "leave it at 1, or name negative in data.columns"
        )
    return roles


def _second(backbone: Backbone, head: nn.Module | None) -> nn.ModuleList:
    """Return a second encoder with the same weights at the start, which shares only the tokenizer."""
    parts = nn.ModuleList([backbone, nn.Identity() if head is None else head])
    return copy.deepcopy(parts, {id(backbone.tokenizer): backbone.tokenizer})


class Replacer(Generator):
    """The view "mlm" of Table 1: words are replaced by the predictions of a frozen masked LM in eval mode."""

    def __init__(self, backbone: Backbone, model: str | None) -> None:
        """Load `model`, folder or Hub id of a masked LM with the backbone's vocabulary; None: the backbone's checkpoint.

        Raises StsbenchError, one line, for another vocabulary, no mask token, or a model without a stored masked-LM head.
        """
        super().__init__(backbone, model, "eval", option="options.replacer")
        tokenizer = self.backbone.tokenizer
        if not getattr(tokenizer, "is_fast", False):
            raise StsbenchError(f"options.view mlm needs a fast tokenizer, which knows words; {self.name} has none")
        self.mask_id = tokenizer.mask_token_id
        self.special = tokenizer.all_special_ids

    def forward(self, ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """Return `ids` with the likeliest ordinary token wherever `labels` is not IGNORED, from one pass. All: (n, L)."""
        chosen = labels != IGNORED
        return self.fill(ids.masked_fill(chosen, self.mask_id), mask, chosen, forbidden=self.special)


def words_to_replace(
    encoded: Any, rate: float, rng: np.random.Generator
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Return the token ids of n tokenised texts, and labels: the ids of round_share(words, rate) whole words, else IGNORED.

    encoded: a fast tokenizer's output; its pre-tokenizer decides what a word is (punctuation marks are words, too).
    """
    ids, labels = [], []
    for number, row in enumerate(encoded["input_ids"]):
        words: Sequence[int | None] = encoded.word_ids(number)
        known = sorted({word for word in words if word is not None})
        drawn = set(rng.choice(known, round_share(len(known), rate), replace=False).tolist()) if known else set()
        tokens = np.asarray(row, dtype=np.int64)
        ids.append(tokens)
        labels.append(np.where([word in drawn for word in words], tokens, IGNORED))
    return ids, labels


def _change(options: SimCSEOptions) -> Change | None:
    """Return the function that changes a sentence's words; None for views that need a model or no change."""
    if options.view == "synonym":
        return partial(synonym, thesaurus=read_thesaurus(Path(options.thesaurus or "")))
    if options.view == "delete_one_word":
        return delete_one_word
    changes: dict[str, Change] = {"crop": crop, "delete_words": delete_words}
    return partial(changes[options.view], rate=options.rate) if options.view in changes else None
