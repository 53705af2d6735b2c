"""CoSENT and AnglE in plain loops over pairs, written from the papers' codes' description; and tables of names."""

import math

import torch


def vectors(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def cosine(u, v):
    return (u * v).sum() / ((u * u).sum().sqrt() * (v * v).sum().sqrt())


def complex_angle(u, v):
    """By complex numbers: the sum of real and imaginary parts of the quotients with global norms."""
    if len(u) % 2:
        u, v = (torch.cat([each, each.new_zeros(1)]) for each in (u, v))
    half = len(u) // 2
    z, w = torch.complex(u[:half], u[half:]), torch.complex(v[:half], v[half:])
    size_z, size_w = (u * u).sum().sqrt(), (v * v).sum().sqrt()
    parts = [z[k] * w[k].conj() / (size_w * size_w) / (size_z / size_w) for k in range(half)]
    return sum(part.real + part.imag for part in parts).abs()


def naive_cosent(similarities, scores, scale):
    terms = [torch.exp(scale * (a - b)) for i, a in enumerate(similarities) for j, b in enumerate(similarities)
             if scores[i] < scores[j]]
    return torch.log(1 + sum(terms)) if terms else 0 * sum(similarities)


def naive_in_batch(first, second, labels, scale):
    texts = [text for pair in zip(first, second, strict=True) for text in pair]  # zigzag
    losses = []
    for r, text in enumerate(texts):
        partner, label = r ^ 1, labels[r // 2]
        total = sum(torch.exp(scale * cosine(text, other)) for c, other in enumerate(texts) if c != r)
        positive = torch.exp(scale * cosine(text, texts[partner]))
        losses.append(-label * torch.log(positive / total))
    return sum(losses) / len(losses)


def gradients(value, *inputs):
    return torch.autograd.grad(value, inputs, retain_graph=True, allow_unused=True, materialize_grads=True)


def same(value, expected, inputs, tolerance):
    """Value and gradients; gives the largest difference."""
    pairs = zip(gradients(value, *inputs), gradients(expected, *inputs), strict=True)
    gaps = [abs(value.item() - expected.item()), *(float((a - b).abs().max()) for a, b in pairs)]
    assert max(gaps) < tolerance and math.isfinite(max(gaps)), gaps
    return max(gaps)
