"""The sentences of a batch as pairs: one positive pair a group, of a sentence and itself, and k negative ones."""

from __future__ import annotations

from .options import ContrastiveTensionOptions

Pairs = tuple[list[int], list[int], list[int]]


def group_size(options: ContrastiveTensionOptions) -> int:
    """Sentences of a group: 1 + 2 k (fresh, consecutive), 1 + k (anchor); of the objective in-batch each stands alone."""
    if options.objective == "in-batch":
        return 1
    return 1 + options.k * (1 if options.negatives == "anchor" else 2)


def pair_up(count: int, options: ContrastiveTensionOptions) -> Pairs:
    """What the first encoder reads, what the second one reads, and 1 where they read the same: places among `count`
    sentences, whole groups one after another. A group gives 1 + k pairs, the positive one first.
    """
    size = group_size(options)
    if count % size:
        raise ValueError(f"{count} sentences are not whole groups of {size}")
    first: list[int] = []
    second: list[int] = []
    for start in range(0, count, size):
        others = list(range(start + 1, start + size))
        if options.negatives == "anchor":
            left, right = [start] * options.k, others
        elif options.negatives == "fresh":
            left, right = others[: options.k], others[options.k :]
        else:
            left, right = others[::2], others[1::2]
        first += [start, *left]
        second += [start, *right]
    return first, second, [int(a == b) for a, b in zip(first, second, strict=True)]
