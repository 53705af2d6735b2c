"""PCL made small, and its loss once more: texts one at a time by transformers, loops, one element after another."""

from __future__ import annotations

import torch
from method_oracle import make
from tiny_models import sentences
from transformers import AutoModel

from stsbench.methods.pcl.method import PCL

TEXTS = sentences(60, longest=9, seed=5)
TERMS = ("contrastive", "contrastive_peer", "group", "group_peer", "cross", "symmetric")


def pcl(folder, *, dropout=0.0, pooler="cls", **options):
    return make(PCL, folder, options, dropout=dropout, pooler=pooler)


class Scripted:
    """A generator whose draws are known. It also says below what each of them had to be."""

    def __init__(self, *draws):
        self.draws, self.below = list(draws), []

    def integers(self, high):
        self.below.append(high)
        return self.draws.pop(0)


class Naive:
    """The released code's six terms by the spec, of the weights that a method has."""

    def __init__(self, folder, method, peer_folder=None):
        self.options = method.options
        self.model = AutoModel.from_pretrained(folder, dtype=torch.float32).double().eval()
        self.peer = AutoModel.from_pretrained(peer_folder or folder, dtype=torch.float32).double().eval()
        self.frozen = self.options.peer is not None and self.options.peer.frozen
        self.peer.requires_grad_(not self.frozen)
        for parameter in self.model.pooler.parameters():
            parameter.requires_grad_(False)
        self.head, self.peer_head = (
            None if head is None else [weight.detach().clone().requires_grad_() for weight in head.dense.parameters()]
            for head in (method.head, method.peer_head)
        )

    def weights(self):
        """By the names that the method has for them."""
        named = {f"backbone.model.{name}": weight for name, weight in self.model.named_parameters() if weight.requires_grad}
        for name, weight in self.peer.named_parameters():
            if self.options.peer is not None and weight.requires_grad:
                prefix = "peer." if name.startswith("pooler.") else "peer.backbone.model."
                named[prefix + name] = weight
        for name, head in (("head", self.head), ("peer_head", self.peer_head)):
            if head is not None and not (self.frozen and name == "peer_head"):
                named |= {f"{name}.dense.weight": head[0], f"{name}.dense.bias": head[1]}
        return named

    def encoder(self, ids):
        """z of one text alone."""
        hidden = self.model(input_ids=torch.tensor([[*map(int, ids)]])).last_hidden_state[0, 0]
        return self.through(self.head, hidden)

    def second(self, ids, length, pad):
        """q of one text: alone, or, where the peer knows no padding, with as much of it as the batch has."""
        ids = [*map(int, ids)]
        if not self.options.peer.mask:
            ids += [pad] * (length - len(ids))
        pooled = self.peer(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids))).pooler_output[0]
        head = self.peer_head or self.head
        if self.frozen:  # --fix_peer_model: network and head inside no_grad
            with torch.no_grad():
                return self.through(head, pooled)
        return self.through(head, pooled)

    @staticmethod
    def through(head, vector):
        return vector if head is None else torch.tanh(head[0] @ vector + head[1])

    def terms(self, views, length, pad):
        """name -> a scalar with a graph. views: [view][row] -> token ids; length: of the padded batch."""
        z = [[self.encoder(ids) for ids in view] for view in views]
        terms = {"contrastive": self.info_nce(z), "group": self.group(z)}
        if self.options.peer is not None:
            q = [[self.second(ids, length, pad) for ids in view] for view in views]
            terms |= {"cross": self.kl(z, q, q, z), "symmetric": self.kl(z, z, q, q)}
            if not self.frozen:
                terms |= {"contrastive_peer": self.info_nce(q), "group_peer": self.group(q)}
        return terms

    def s(self, a, b):
        return a @ b / (a.norm() * b.norm()) / self.options.temperature

    def info_nce(self, x):
        losses = []
        for i, query in enumerate(x[0]):
            scores = [self.s(query, key) for key in x[1]]
            losses.append(torch.log(sum(map(torch.exp, scores))) - scores[i])
        return sum(losses) / len(losses)

    def r(self, x, keys, i):
        """Row i: the anchor of x with the further views of row i in `keys`, then with the other rows' anchors there."""
        row = [self.s(x[0][i], view[i]) for view in keys[1:]]
        row += [self.s(x[0][i], other) for j, other in enumerate(keys[0]) if j != i]
        assert len(row) == len(keys) + len(keys[0]) - 2
        return row

    def softmax(self, row):
        total = sum(map(torch.exp, row))
        return [torch.exp(score) / total for score in row]

    def group(self, x):
        elements = []
        for i in range(len(x[0])):
            for k, p in enumerate(self.softmax(self.r(x, x, i))):
                if self.options.group_positive == "bce_of_softmax":
                    p = 1 / (1 + torch.exp(-p))
                elements.append(-torch.log(p) if k < len(x) - 1 else -torch.log(1 - p))
        return sum(elements) / len(elements)

    def kl(self, x, keys, y, others):
        """KL of the softmax of y's rows from that of x's, over all elements, or over rows."""
        elements = []
        for i in range(len(x[0])):
            one, other = self.softmax(self.r(x, keys, i)), self.softmax(self.r(y, others, i))
            elements += [q * (torch.log(q) - torch.log(p)) for p, q in zip(one, other, strict=True)]
        return sum(elements) / (len(elements) if self.options.reduce == "element" else len(x[0]))
