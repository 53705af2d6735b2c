"""BERT by its equations, head by head in float64, and what prefixes, adapters and LoRA change in their midst."""

import math
from dataclasses import dataclass, field

import torch
from tiny_models import SHAPE
from torch import Tensor

HEADS, LAYERS, WIDTH = SHAPE["num_attention_heads"], SHAPE["num_hidden_layers"], SHAPE["hidden_size"]


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


def leaves(model):
    """Copies of a module's weights in float64, by name, that gather gradients of their own; peft's wrapping unwrapped."""
    return {name.replace(".base_layer", ""): weight.detach().double().clone().requires_grad_()
            for name, weight in model.named_parameters()}


def activate(name, x):
    if name == "relu":
        return torch.where(x > 0, x, torch.zeros_like(x))
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def normed(weights, name, x):
    mean = x.mean(-1, keepdim=True)
    spread = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / (spread + 1e-12).sqrt() * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def encode(weights, ids, positions, change, every=False, heads=HEADS, words=None):
    """(L, d) last states of one text of L tokens: BERT's equations, `change` in their midst. every: [layer] what it reads,
    and the last states. words: place -> (d,) in the place of the word embedding."""

    def linear(name, x):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def lora(layer, name, x):
        return sum((change.scale * (x @ each[layer][name][0].T) @ each[layer][name][1].T for each in change.lora), 0.0)

    def adapted(layer, place, x):
        pairs = [each[layer][place] for each in change.adapters]
        return x + sum((activate(change.activation, x @ down) @ up for down, up in pairs), 0.0)

    table, places, kinds = (weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type"))
    read = torch.stack([words[place] if place in (words or ()) else table[token] for place, token in enumerate(ids)])
    x = normed(weights, "embeddings.LayerNorm", read + places[torch.tensor(positions)] + kinds[0])
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
        x = normed(weights, f"{name}.attention.output.LayerNorm", x + out)
        out = adapted(layer, 1, linear(f"{name}.output.dense", activate("gelu", linear(f"{name}.intermediate.dense", x))))
        x = normed(weights, f"{name}.output.LayerNorm", x + out)
    return [*read, x] if every else x


def joined(changes):
    """Both prefixes before one text, or both sets at work at once."""
    one, two = changes
    keys, values = ([torch.cat(pair) for pair in zip(*pairs, strict=True)]
                    for pairs in ((one.keys, two.keys), (one.values, two.values)))
    return Change(keys, values, one.adapters + two.adapters, one.lora + two.lora, one.activation, one.scale)


def adapters_of(down, up, activation):
    """The sets of adapters: down (sets, layers, 2, d, r), up (sets, layers, 2, r, d)."""
    return [Change(adapters=[[[(d[layer][place], u[layer][place]) for place in (0, 1)] for layer in range(LAYERS)]],
                   activation=activation) for d, u in zip(down, up, strict=True)]


def lora_of(weights, sets, scale):
    """The sets of LoRA among a model's weights."""
    def at(layer, name, letter, number):
        return weights[f"encoder.layer.{layer}.attention.self.{name}.lora_{letter}.set{number}.weight"]

    return [Change(lora=[[{name: (at(layer, name, "A", number), at(layer, name, "B", number)) for name in ("query", "value")}
                          for layer in range(LAYERS)]], scale=scale) for number in range(sets)]
