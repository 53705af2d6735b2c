"""Masked language modelling: the tokens behind the chosen positions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def masked_lm(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over the chosen positions i of -log softmax(logits_i)[labels_i].

    logits: (m, V) at the chosen positions only; labels: (m,) the tokens that stood there. No position (m = 0) gives 0 that
    still carries a gradient, so that a process without one takes its part in the backward pass of the others.
    Source: Devlin et al. (2019), BERT, section 3.1, task 1.
    """
    return functional.cross_entropy(logits, labels, reduction="sum") / max(len(labels), 1)


def masked_accuracy(logits: Tensor, labels: Tensor) -> tuple[Tensor, int]:
    """How many labels have the highest logit, a () integer tensor on the logits' device, and of how many (m).

    logits: (m, V); labels: (m,).
    """
    with torch.no_grad():
        return (logits.argmax(1) == labels).sum(), len(labels)


def count_guesses(guesses: Tensor, logits: Tensor, labels: Tensor) -> None:
    """Add right guesses, and guesses, to the int64 (2,) `guesses`: a buffer, so that a resumed run logs the same numbers."""
    correct, count = masked_accuracy(logits.detach(), labels)
    guesses[0].add_(correct)
    guesses[1].add_(count)


def guess_metrics(guesses: Tensor) -> dict[str, float]:
    """masked_accuracy: the share of this process's guesses that were right, {} for none. Sets the counts to 0."""
    correct, count = guesses.tolist()
    guesses.zero_()
    return {"masked_accuracy": correct / count} if count else {}
