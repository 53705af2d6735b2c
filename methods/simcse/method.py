"""SimCSE (Gao, Yao and Chen 2021): the positive is the same sentence under another dropout mask, or an entailed one."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from stsbench.data.text.examples import followed
from stsbench.encoders.prompt.modules import MLPHead, check_head
from stsbench.errors import StsbenchError
from stsbench.files import sha256_file
from stsbench.losses.tokens import masked_lm
from stsbench.training.api.batch import IGNORED, Batch, Examples, Term, Views
from stsbench.training.api.contrasting import NegativeQueue, contrast
from stsbench.training.api.method import Inference, Method, Needs
from stsbench.training.api.views import pairs_or_sentence
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.masked_lm import LMHead, made_up

from .options import NEXT, SimCSEOptions
from .views import Replacer, ViewMaker


class SimCSE(Method):
    """Eq. 4 (plain sentences), Eq. 5 and 8 (pairs, with or without hard negatives), and their ablations."""

    name = "simcse"
    Options = SimCSEOptions
    options: SimCSEOptions

    def __init__(self, backbone: Backbone, options: SimCSEOptions) -> None:
        """backbone: with its `folder` and `name`. Raises StsbenchError, one line, for a head on another pooler than cls."""
        super().__init__(backbone, options)
        check_head(options.head, backbone.pooler)
        std = getattr(backbone.model.config, "initializer_range", 0.02)
        self.head = MLPHead(backbone.width, std) if options.head != "none" else None
        self.lm_head: LMHead | None = None
        if options.mlm_weight > 0:  # untied, as in the authors' code
            self.lm_head = LMHead.load(backbone.folder, backbone.model, backbone.name, tied=False)
        self.replacer = Replacer(backbone, options.replacer) if options.view == "mlm" else None
        self.second = _second(backbone, self.head) if options.encoders == 2 else None
        self.queue: NegativeQueue | None = None
        if options.queue is not None:
            self.queue = NegativeQueue(backbone, backbone.vector_width, options.queue)
        self.make_views = ViewMaker(backbone, options)

    @classmethod
    def needs(cls, options: SimCSEOptions) -> Needs:
        """Return sentences, or pairs and hard negatives; as many following sentences as the positive is drawn from;
        dropout where the views are the sentence twice."""
        follows = partial(followed, option=f"options.view {options.view}") if options.view in NEXT else None
        return Needs(
            partial(choose_roles, options), usable=follows, reach=NEXT.get(options.view, 0),
            dropout=options.view == "dropout"
            and not (options.fixed_dropout_mask or options.mlm_in_place or options.repeat is not None),
        )

    def start_stage(self, stage: str) -> None:
        """Empty the queue, also where a stage of labelled rows (recipe.semi) trained the encoder before."""
        if self.queue is not None:
            self.queue.restart(self.backbone)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return one view (one dropout mask for both), two, or as many as the data have roles, in their order."""
        return self.make_views(rows, rng)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """contrastive: the mean over anchors of -log(e^(sim(z1, z2) / t) / sum over the batch); mlm: the auxiliary loss."""
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
            chosen = (batch.extra["mlm_labels"] != IGNORED).nonzero(as_tuple=True)  # a GPU is waited for once
            labels = batch.extra["mlm_labels"][chosen]
            terms["mlm"] = Term(masked_lm(self.lm_head(hidden[chosen]), labels), len(labels), options.mlm_weight)
        return terms

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return (n, d) those of the (first) encoder, through the head that training has."""
        return _encode(self.backbone, self.head, ids, mask)

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return (n, d) vectors of the first two views, of two encoders each its own."""
        first, second, *_ = self._vectors(self._contrasted(batch), batch)
        return first, second

    def counts(self, batch: Batch) -> dict[str, int]:
        """mlm: the masked tokens."""
        return {} if self.lm_head is None else {"mlm": int((batch.extra["mlm_labels"] != IGNORED).sum())}

    def inputs(self) -> dict[str, str]:
        """Return the thesaurus of the view synonym, the replacing model of the view mlm."""
        digests = {}
        if self.options.thesaurus is not None:
            digests["thesaurus"] = sha256_file(Path(self.options.thesaurus))
        if self.replacer is not None:
            digests["replacer"] = self.replacer.digest
        return digests

    def notes(self) -> list[str]:
        """Return a masked-LM head that the checkpoint does not have."""
        return [made_up(self.backbone.name)] if self.lm_head is not None and not self.lm_head.stored else []

    def inference(self) -> Inference:
        """Return the first encoder; its MLP only where it is kept."""
        model, tokenizer = self.backbone.model, self.backbone.tokenizer
        if self.options.head == "mlp":
            assert self.head is not None
            return Inference(model, tokenizer, "cls+dense", dense=self.head.dense)
        return Inference(model, tokenizer, self.backbone.pooler, token_pooler=self.backbone.head)

    def _contrasted(self, batch: Batch) -> Tensor:
        """Return the token ids that the contrastive pass reads."""
        if self.options.mlm_in_place:
            return batch.extra["mlm_ids"]
        if self.replacer is not None:
            replaced: Tensor = self.replacer(batch.ids, batch.mask, batch.extra["replaced_labels"])
            return replaced
        return batch.ids

    def _vectors(self, ids: Tensor, batch: Batch) -> list[Tensor]:
        """Return (n, d) vectors, view by view. All that one encoder reads goes through it at once, each row under its own
        mask."""
        n = len(batch)
        if self.second is None:
            vectors = list(_encode(self.backbone, self.head, ids, batch.mask).split(n))
            return vectors * 2 if self.options.fixed_dropout_mask else vectors
        backbone, head = self.second
        assert isinstance(backbone, Backbone)
        first = _encode(self.backbone, self.head, ids[:n], batch.mask[:n])
        return [first, *_encode(backbone, head, ids[n:], batch.mask[n:]).split(n)]


def choose_roles(options: SimCSEOptions, available: tuple[str, ...], method: str) -> tuple[str, ...]:
    """Return ("sentence",), or anchor, positive and the hard negatives that the data give.

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
    """Return another encoder that starts alike and shares nothing but the tokenizer."""
    parts = nn.ModuleList([backbone, nn.Identity() if head is None else head])
    return copy.deepcopy(parts, {id(backbone.tokenizer): backbone.tokenizer})


def _encode(backbone: Backbone, head: nn.Module | None, ids: Tensor, mask: Tensor) -> Tensor:
    vectors = backbone.pooled(ids, mask)
    return vectors if head is None else head(vectors)
