"""InfoNCE and NT-Xent as the papers print them."""

import torch


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / (sum(x * x for x in a).sqrt() * sum(x * x for x in b).sqrt())


def naive_info_nce(queries, keys, *, temperature=0.05, similarity="cosine", negatives=(), alpha=1.0, start=0):
    """(n,) losses, one product and one exponential at a time: the equation as it is printed, and nothing clever."""

    def score(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True)) if similarity == "dot" else cosine(a, b) / temperature

    losses = []
    for i in range(len(queries)):
        total = sum(torch.exp(score(queries[i], keys[j])) for j in range(len(keys)))
        for block in negatives:
            for j in range(len(block)):
                total = total + (alpha if j == start + i else 1) * torch.exp(score(queries[i], block[j]))
        losses.append(-torch.log(torch.exp(score(queries[i], keys[start + i])) / total))
    return torch.stack(losses)


def naive_nt_xent(first, second, temperature=0.1):
    """(2N,) losses, of the first views and then of the second ones: the equation as it is printed."""
    views, n, losses = [*first, *second], len(first), []
    for i, view in enumerate(views):
        total = sum(torch.exp(cosine(view, other) / temperature) for j, other in enumerate(views) if j != i)
        losses.append(-torch.log(torch.exp(cosine(view, views[(i + n) % (2 * n)]) / temperature) / total))
    return torch.stack(losses)
