"""DiffAug once more, from its equations: text by text, head by head, in float64, without a line of the method's code."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from tiny_models import SHAPE
from torch import Tensor
from transformers import AutoTokenizer

HEADS, LAYERS, WIDTH = SHAPE["num_attention_heads"], SHAPE["num_hidden_layers"], SHAPE["hidden_size"]
TEMPLATES = {"bert": "the man : {} means [MASK] .", "roberta": "the man : ' {} ' means [MASK]."}
FIRST = {"bert": 0, "roberta": 2}  # the position of a text's first token


@cache
def tokenizer_of(folder: Any) -> Any:
    return AutoTokenizer.from_pretrained(folder)


def ids_of(folder: Any, text: str) -> list[int]:
    found: list[int] = tokenizer_of(folder)(text, truncation=False, padding=False)["input_ids"]
    return found


@dataclass
class Change:
    """What makes one view's encoder differ from the plain one.
    keys, values: [layer] (slots, d), those that the view sees; adapters: [layer][place] (W_down (d, r), W_up (r, d));
    lora: [layer] {"query" or "value": (A (r, d), B (d, r))}. Several of a kind act at once."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    adapters: list[list[list[tuple[Tensor, Tensor]]]] = field(default_factory=list)
    lora: list[list[dict[str, tuple[Tensor, Tensor]]]] = field(default_factory=list)
    activation: str = "relu"
    scale: float = 1.0


def leaves(model: torch.nn.Module) -> dict[str, Tensor]:
    """Copies of a module's weights in float64, by name, that gather gradients of their own; peft's wrapping unwrapped."""
    return {
        name.replace(".base_layer", ""): weight.detach().double().clone().requires_grad_()
        for name, weight in model.named_parameters()
    }


def activate(name: str, x: Tensor) -> Tensor:
    if name == "relu":
        return torch.where(x > 0, x, torch.zeros_like(x))
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def normed(weights: dict[str, Tensor], name: str, x: Tensor, epsilon: float = 1e-12) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    spread = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / (spread + epsilon).sqrt() * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def encode(weights: dict[str, Tensor], ids: list[int], positions: list[int], change: Change, every: bool = False,
           heads: int = HEADS, epsilon: float = 1e-12, words: Any = None, embedded: Any = None) -> Any:
    """(L, d) last states of one text of L tokens: BERT's equations, `change` in their midst. every: [layer] what it reads,
    and the last states. words: place -> (d,) in the place of the word embedding; embedded: (L, d) in that of state 0."""

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def lora(layer: int, name: str, x: Tensor) -> Tensor:
        return sum((change.scale * (x @ each[layer][name][0].T) @ each[layer][name][1].T for each in change.lora), 0.0)

    def adapted(layer: int, place: int, x: Tensor) -> Tensor:
        pairs = [each[layer][place] for each in change.adapters]
        return x + sum((activate(change.activation, x @ down) @ up for down, up in pairs), 0.0)

    table, places, kinds = (weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type"))
    x = embedded
    if x is None:
        read = torch.stack([words[place] if place in (words or ()) else table[token] for place, token in enumerate(ids)])
        x = normed(weights, "embeddings.LayerNorm", read + places[torch.tensor(positions)] + kinds[0], epsilon)
    size, read = x.shape[1] // heads, []
    for layer in range(sum(name.endswith("query.bias") for name in weights)):
        name = f"encoder.layer.{layer}"
        read.append(x)
        query = linear(f"{name}.attention.self.query", x) + lora(layer, "query", x)
        key = linear(f"{name}.attention.self.key", x)
        value = linear(f"{name}.attention.self.value", x) + lora(layer, "value", x)
        if change.keys:  # Eq. 2: softmax(Q [P_k; K]^T / sqrt(d_h)) [P_v; V]
            key, value = torch.cat([change.keys[layer], key]), torch.cat([change.values[layer], value])
        mixed = []
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            scores = query[:, part] @ key[:, part].T / math.sqrt(size)
            shares = (scores - scores.max(1, keepdim=True).values).exp()
            mixed.append(shares / shares.sum(1, keepdim=True) @ value[:, part])
        out = adapted(layer, 0, linear(f"{name}.attention.output.dense", torch.cat(mixed, 1)))
        x = normed(weights, f"{name}.attention.output.LayerNorm", x + out, epsilon)
        inner = activate("gelu", linear(f"{name}.intermediate.dense", x))
        out = adapted(layer, 1, linear(f"{name}.output.dense", inner))
        x = normed(weights, f"{name}.output.LayerNorm", x + out, epsilon)
    return [*read, x] if every else x


def prefixes(table: Tensor, first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], slots: slice) -> Change:
    """The prefix of these slots: Embedding, Linear, tanh, Linear to 2 * layers * d; then layer i has [2i], [2i + 1]."""
    keys: list[list[Tensor]] = [[] for _ in range(LAYERS)]
    values: list[list[Tensor]] = [[] for _ in range(LAYERS)]
    for slot in table[slots]:
        cut = (second[0] @ torch.tanh(first[0] @ slot + first[1]) + second[1]).split(WIDTH)
        for layer in range(LAYERS):
            keys[layer].append(cut[2 * layer])
            values[layer].append(cut[2 * layer + 1])
    return Change(keys=[torch.stack(rows) for rows in keys], values=[torch.stack(rows) for rows in values])


@dataclass
class Oracle:
    """changes: one a set, in the sets' order; shift: positions before every text, seen or not; head: (W, b); classifier:
    (W (2, 3d), b); inside: a sentence's tokens are those that it has within the template."""

    folder: Any
    family: str
    weights: dict[str, Tensor]
    changes: list[Change]
    shift: int
    head: tuple[Tensor, Tensor] | None = None
    classifier: tuple[Tensor, Tensor] | None = None
    inside: bool = False

    def parts(self) -> tuple[list[int], list[int]]:
        """The template's ids before and after the sentence, [CLS] and [SEP] included."""
        before, after = TEMPLATES[self.family].replace("[MASK]", tokenizer_of(self.folder).mask_token).split("{}")
        return ids_of(self.folder, before.rstrip())[:-1], ids_of(self.folder, after)[1:]

    def at_mask(self, ids: list[int], positions: list[int], change: Change) -> Tensor:
        _, after = self.parts()
        place = len(ids) - len(after) + after.index(tokenizer_of(self.folder).mask_token_id)
        return encode(self.weights, ids, positions, change)[place]

    def around(self, ids: list[int], change: Change) -> Tensor:
        first = FIRST[self.family] + self.shift
        return self.at_mask(ids, list(range(first, first + len(ids))), change)

    def vector(self, text: str, change: Change, pieces: int) -> tuple[Tensor, int]:
        """The state at the template's mask, and how many tokens, at most `pieces`, the sentence has."""
        before, after = self.parts()
        inner = ids_of(self.folder, f" {text}" if self.inside else text)[1:-1][:pieces]
        return self.around([*before, *inner, *after], change), len(inner)

    def alone(self, count: int, change: Change, first: int) -> Tensor:
        """The state at the mask of the template around no text, its end where `count` tokens would have pushed it."""
        before, after = self.parts()
        tail = first + len(before) + count
        positions = [*range(first, first + len(before)), *range(tail, tail + len(after))]
        return self.at_mask([*before, *after], positions, change)

    def features(
        self, texts: list[str], view: int, pieces: int, *, denoise: bool = False, offset: int = 0, zero: bool = False
    ) -> list[Tensor]:
        """z of each text, of `pieces` tokens at most, in a view: 0 under the first set, others under the last."""
        change = self.changes[min(view, len(self.changes) - 1)]
        found = []
        for text in texts:
            state, count = self.vector(text, change, pieces)
            if denoise:
                state = state - self.alone(count + offset, change, self.shift + (0 if zero else FIRST[self.family]))
            found.append(state if self.head is None else torch.tanh(self.head[0] @ state + self.head[1]))
        return found

    def cross_entropy(self, data: dict[str, list[str]], pieces: int) -> Tensor:
        """Eq. 4: premise and entailment are 1, premise and contradiction 0; the mean over both of every row."""
        premises, good, bad = (self.features(texts, view, pieces) for view, texts in enumerate(data.values()))
        weight, bias = self.classifier
        losses = []
        for label, others in ((1, good), (0, bad)):
            for u, v in zip(premises, others, strict=True):
                scores = weight @ torch.cat([u, v, (u - v).abs()]) + bias
                losses.append(scores.exp().sum().log() - scores[label])
        return torch.stack(losses).mean()

    def contrastive(
        self, views: list[list[str]], pieces: int, *, temperature: float = 0.05, similarity: str = "cosine", **denoising: Any
    ) -> Tensor:
        """-log(e^(sim(u, v) / t) / sum over the batch's v and its hard negatives), the mean over u."""
        queries, *blocks = (self.features(texts, view, pieces, **denoising) for view, texts in enumerate(views))
        losses = []
        for i, u in enumerate(queries):
            scores = []
            for v in (v for block in blocks for v in block):
                dot = (u * v).sum()
                cosine = dot / ((u * u).sum().sqrt() * (v * v).sum().sqrt())
                scores.append(dot if similarity == "dot" else cosine / temperature)
            losses.append(torch.stack(scores).exp().sum().log() - scores[i])
        return torch.stack(losses).mean()

    def at_test(self, texts: list[str], seen: list[Change]) -> Tensor:
        """(n, d) test vectors, whole texts in the template: neither head nor denoising; the mean over the changes `seen`."""
        mask = tokenizer_of(self.folder).mask_token
        rows = [ids_of(self.folder, TEMPLATES[self.family].replace("[MASK]", mask).replace("{}", text)) for text in texts]
        return torch.stack([sum(self.around(ids, change) for change in seen) / len(seen) for ids in rows])


def joined(changes: list[Change]) -> Change:
    """Both prefixes before one text, or both sets at work at once."""
    one, two = changes
    return Change(
        keys=[torch.cat(pair) for pair in zip(one.keys, two.keys, strict=True)],
        values=[torch.cat(pair) for pair in zip(one.values, two.values, strict=True)],
        adapters=one.adapters + two.adapters, lora=one.lora + two.lora, activation=one.activation, scale=one.scale,
    )


def adapters_of(down: Tensor, up: Tensor, activation: str) -> list[Change]:
    """The sets of adapters: down (sets, layers, 2, d, r), up (sets, layers, 2, r, d)."""
    return [
        Change(adapters=[[[(d[layer][place], u[layer][place]) for place in (0, 1)] for layer in range(LAYERS)]],
               activation=activation)
        for d, u in zip(down, up, strict=True)
    ]


def lora_of(weights: dict[str, Tensor], sets: int, scale: float) -> list[Change]:
    """The sets of LoRA among a model's weights."""
    def at(layer: int, name: str, letter: str, number: int) -> Tensor:
        return weights[f"encoder.layer.{layer}.attention.self.{name}.lora_{letter}.set{number}.weight"]

    return [
        Change(lora=[[{name: (at(layer, name, "A", number), at(layer, name, "B", number)) for name in ("query", "value")}
                      for layer in range(LAYERS)]], scale=scale)
        for number in range(sets)
    ]


def prefix_of(weights: dict[str, Tensor], length: int, sets: int) -> list[Change]:
    """The prefixes of all sets. weights: the prefix encoder's by name."""
    first, second = ((weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in ("inner", "outer"))
    return [prefixes(weights["embedding.weight"], first, second, slice(number * length, (number + 1) * length))
            for number in range(sets)]


def oracle_of(method: Any, folder: Any, family: str) -> tuple[Oracle, dict[str, Tensor]]:
    """The same weights in an oracle, and copies that gather its gradients, by the method's names."""
    options, own = method.options, leaves(method)
    sets = 1 if options.views == "same" else 2
    named = {name.replace(".base_layer", ""): name for name, _ in method.named_parameters()}

    def below(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): weight for name, weight in own.items() if name.startswith(prefix)}

    model = below("backbone.model.")
    if options.module == "prefix":
        changes = prefix_of(below("modules_of_views.prefix."), options.prefix_length, sets)
    elif options.module == "adapter":
        weights = below("modules_of_views.bottlenecks.")
        changes = adapters_of(weights["down"], weights["up"], options.adapter_activation)
    else:
        changes = lora_of(model, sets, options.lora_scale)
    oracle = Oracle(
        folder, family, model, changes, sets * options.prefix_length if options.module == "prefix" else 0,
        (own["head.dense.weight"], own["head.dense.bias"]),
        (own["classifier.linear.weight"], own["classifier.linear.bias"]), inside=options.text == "inside",
    )
    return oracle, {named[name]: weight for name, weight in own.items()}
