"""PCL (Wu et al. 2022): groups of many augmentations of a sentence, and agreement with a peer network."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stsbench.encoders.forward.checkpoint import load_model
from stsbench.encoders.forward.model import dropout_rates
from stsbench.encoders.prompt.modules import MLPHead
from stsbench.encoders.transformer.find import resolve_base
from stsbench.errors import StsbenchError
from stsbench.losses.group import agreement, group_cross_entropy, group_scores
from stsbench.torch_random import forked
from stsbench.training.api.batch import Batch, Examples, Term, Views, gather
from stsbench.training.api.contrasting import contrast
from stsbench.training.api.method import HeadMethod, Needs
from stsbench.training.modules.backbone import Backbone, load_another
from stsbench.training.modules.edits import with_deletions, with_repetitions
from stsbench.training.modules.lora import check_whole

from .options import Augmentation, PCLOptions, PeerOptions

Ids = NDArray[np.int64]


class PCL(HeadMethod):
    """Unsupervised, on plain sentences: InfoNCE and group positives of encoder and peer, and two terms of agreement."""

    Options = PCLOptions
    options: PCLOptions

    def __init__(self, backbone: Backbone, options: PCLOptions) -> None:
        """Take a backbone with its `folder` and `name`. Raises StsbenchError for a head on another pooler than cls."""
        super().__init__(backbone, options)
        std = getattr(backbone.model.config, "initializer_range", 0.02)
        self.peer = Peer(backbone, options.peer) if options.peer is not None else None
        separate = options.peer is not None and options.peer.head == "own"
        self.peer_head = MLPHead(backbone.width, std) if separate else None
        self.peer_frozen = options.peer is not None and options.peer.frozen
        if self.peer_head is not None:
            self.peer_head.requires_grad_(not self.peer_frozen)

    @classmethod
    def needs(cls, options: PCLOptions) -> Needs:
        """Return the needs: sentences, and dropout, as the first two views are the same sentence."""
        return Needs(dropout=True)

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence twice, and a view for each augmentation, drawn anew for each batch."""
        plain = [np.asarray(ids, np.int64) for ids in rows.ids("sentence")]
        changed = [[self._augmented(ids, name, rng) for ids in plain] for name in self.options.augmentations]
        return Views([plain, plain, *changed], one_length=self.peer is not None and not self.peer.masked)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return contrastive and contrastive_peer, InfoNCE of the first two views; group and group_peer, a sentence's views
        against other texts; cross and symmetric, KL of the peer's softmax from the encoder's. A frozen peer has no terms of
        its own."""
        options, n = self.options, len(batch)
        views: dict[str, Sequence[Tensor]] = {"z": self.vectors(batch.ids, batch.mask).split(n)}
        if self.peer is not None:
            vectors, head = self.peer(batch.ids, batch.mask), self.peer_head or self.head
            vectors = vectors if head is None else head(vectors)
            # detached, since a shared head would otherwise be trained by a frozen peer's vectors
            views["q"] = (vectors.detach() if self.peer_frozen else vectors).split(n)
        weights = {"contrastive": ("z", options.contrastive_weight)}
        if weight := options.peer_weights["contrastive_peer_weight"]:
            weights["contrastive_peer"] = ("q", weight)
        terms = {}
        for term, (network, weight) in weights.items():
            first, second, *_ = views[network]
            plain = contrast(first, second, [], batch.shares, self.gather_mode, temperature=options.temperature)
            terms[term] = Term(plain.value, plain.count, weight)
        return {**terms, **self._group_terms(views, batch)}

    def inputs(self) -> dict[str, str]:
        """Return the peer's digest, if it does not start from the backbone."""
        return {} if self.peer is None or self.peer.digest is None else {"peer": self.peer.digest}

    def notes(self) -> list[str]:
        """Return lines on random weights of the peer: of a pooler that its checkpoint lacks, and of a frozen peer's own
        head."""
        lines = []
        if self.peer is not None and self.peer.made_up:
            how = "has" if self.peer_frozen else "starts from"
            lines.append(f"{self.peer.name} stores no pooler: the peer's {how} random weights")
        if self.peer_head is not None and self.peer_frozen:
            lines.append("options.peer frozen, with a head of its own: the head has random weights and is not trained")
        return lines

    def _augmented(self, ids: Ids, name: Augmentation, rng: np.random.Generator) -> Ids:
        """Return a text's ids augmented between its special tokens, at most backbone.max_length long."""
        tokenizer = self.backbone.tokenizer
        start = int(ids[0] in (tokenizer.cls_token_id, tokenizer.bos_token_id))
        end = max(start, len(ids) - int(ids[-1] in (tokenizer.sep_token_id, tokenizer.eos_token_id)))
        inner = ids[start:end]
        if name == "shuffle":
            inner = rng.permutation(inner)
        elif name == "reverse":
            inner = inner[::-1]
        elif name == "delete":
            inner = with_deletions(inner, rng)
        elif name == "repeat":
            inner = with_repetitions(inner, rng, most=max(self.backbone.max_length - len(ids), 0))
        return np.concatenate([ids[:start], inner, ids[end:]])

    def _group_terms(self, views: dict[str, Sequence[Tensor]], batch: Batch) -> dict[str, Term]:
        """Return the terms over all views. views: "z" (encoder) and "q" (peer) -> (n, d) vectors, view by view."""
        options, mode, shares = self.options, self.gather_mode, batch.shares
        weights = {"group": options.group_weight}
        weights |= {term: options.peer_weights[f"{term}_weight"] for term in ("group_peer", "cross", "symmetric")}
        weights = {term: weight for term, weight in weights.items() if weight}
        if not weights:
            return {}
        names, width, start, count = [*views], views["z"][0].shape[1], 0, len(batch)
        if mode == "simcse":  # every process computes the loss of all rows
            kinds = torch.cat([view for name in names for view in views[name]], dim=1)
            rows, count = gather(kinds, shares, mode).split(width, dim=1), shares.total
            views = {name: rows[at * batch.views : (at + 1) * batch.views] for at, name in enumerate(names)}
        others = {name: views[name][0] for name in names}
        if mode == "exact":  # one collective for the anchors of both networks
            anchors = gather(torch.cat([*others.values()], dim=1), shares, mode).split(width, dim=1)
            others, start = dict(zip(names, anchors, strict=True)), shares.start

        @cache
        def scores(anchors: str, group: str) -> Tensor:
            return group_scores(
                views[anchors][0], views[group][1:], others[group], temperature=options.temperature, start=start
            )

        values: dict[str, Callable[[], Tensor]] = {
            "group": lambda: group_cross_entropy(scores("z", "z"), batch.views - 1, options.group_positive),
            "group_peer": lambda: group_cross_entropy(scores("q", "q"), batch.views - 1, options.group_positive),
            "cross": lambda: agreement(scores("z", "q"), scores("q", "z"), options.reduce),
            "symmetric": lambda: agreement(scores("z", "z"), scores("q", "q"), options.reduce),
        }
        return {term: Term(values[term](), count, weight) for term, weight in weights.items()}


class Peer(nn.Module):
    """The peer network: tanh(W h + b) of the first token's last state h, where W and b are the pooler in the model's folder.

    Dropout is on in train mode, even if the peer is frozen, as both views of a sentence would be equal without it.
    digest: of the folder, if it is not the encoder's. made_up: whether the folder lacks such a pooler, so that W is random.
    """

    def __init__(self, backbone: Backbone, options: PeerOptions) -> None:
        """Raise StsbenchError, one line, for a model of another vocabulary or width than the backbone's."""
        super().__init__()
        self.masked, self.digest, self.name = options.mask, None, options.model or backbone.name
        if options.model is None:  # a copy of the encoder's present weights, maybe an earlier run's
            folder, model = Path(backbone.folder), copy.deepcopy(backbone.model)
            if not options.frozen:
                check_whole(model, "options.peer")
        else:
            other, self.digest = _load_peer(options.model, backbone)
            folder, model = other.folder, other.model
        # without a mask padding is attended to, and the packed pass leaves it out
        engine = backbone.engine if options.mask else "padded"
        self.backbone = Backbone(model, backbone.tokenizer, "cls", backbone.max_length, engine)
        self.pooler = MLPHead(backbone.width, getattr(model.config, "initializer_range", 0.02))
        dense = _stored_pooler(folder, self.name, backbone.offline)
        self.made_up = dense is None
        if dense is not None:
            self.pooler.dense.load_state_dict(dense.state_dict())
        self.requires_grad_(not options.frozen)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return (n, d) pooled vectors of texts, ids and mask (n, L). Without options.peer.mask padding is attended to, so
        that vectors depend on L."""
        if self.masked:
            first = self.backbone.at(ids, mask, mask.new_zeros(len(mask)))
        else:
            first = self.backbone(ids, torch.ones_like(mask))[0][:, 0]
        vectors: Tensor = self.pooler(first)
        return vectors


def _load_peer(name: str, backbone: Backbone) -> tuple[Backbone, str]:
    """Return a model with the backbone's dropout rate, and its digest. Raises StsbenchError for another vocabulary or width
    than the backbone's."""
    option, rates = "options.peer.model", {*dropout_rates(backbone.model.config).values()}
    other, digest = load_another(name, backbone, option, rates.pop() if len(rates) == 1 else None)
    what = f"{option} {name} must have the %s of {backbone.name}, and it has not: name another, or null for the backbone's"
    if other.tokenizer.get_vocab() != backbone.tokenizer.get_vocab():
        raise StsbenchError(what % "vocabulary")
    if other.width != backbone.width:
        raise StsbenchError(what % f"width {backbone.width}")
    return other, digest


def _stored_pooler(folder: Path, name: str, offline: bool) -> nn.Linear | None:
    """Return the dense layer of a checkpoint's pooler; None where it stores no square one."""
    with forked():  # transformers draws missing weights at random
        model, missing = load_model(folder, name, "float32", base=resolve_base(folder, offline))
    dense, width = getattr(getattr(model, "pooler", None), "dense", None), model.config.hidden_size
    if any(key.startswith("pooler.") for key in missing) or not isinstance(dense, nn.Linear):
        return None
    return dense if tuple(dense.weight.shape) == (width, width) and dense.bias is not None else None
