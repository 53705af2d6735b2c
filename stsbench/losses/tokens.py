"""Losses of tokens: masked and corrective language modelling, replaced-token detection, reconstruction by a vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from stsbench.losses.arguments import wide
from stsbench.losses.choices import Reduction


def masked_lm(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the masked-language-modelling loss of BERT, a term of many methods.

        mean over the chosen positions i of -log softmax(logits_i)[labels_i]

    logits: (m, V) at the chosen positions only; labels: (m,), the original tokens. No position (m = 0) gives 0, with a
    gradient, so that a process without a masked token takes part in the backward pass of the others.
    Source: Devlin et al. (2019), BERT, section 3.1, task 1.
    """
    return functional.cross_entropy(logits, labels, reduction="sum") / max(len(labels), 1)


def count_guesses(guesses: Tensor, logits: Tensor, labels: Tensor) -> None:
    """Add the numbers of correct and of all predictions to `guesses`, int64 (2,), a buffer, so that a resumed run logs the
    same numbers. logits: (m, V); labels: (m,)."""
    guesses[0].add_((logits.detach().argmax(1) == labels).sum())
    guesses[1].add_(len(labels))


def guess_metrics(guesses: Tensor) -> dict[str, float]:
    """Return {"masked_accuracy": share of this process's predictions that are correct}, {} without one; reset the counts."""
    correct, count = guesses.tolist()
    guesses.zero_()
    return {"masked_accuracy": correct / count} if count else {}


def corrective_lm(lm_logits: Tensor, gate_logits: Tensor, corrupted: Tensor, original: Tensor) -> tuple[Tensor, Tensor]:
    """Return the language-model term and the copy term of corrective language modelling, each a mean over m positions.

        lm = mean of -log( g 1[corrupted = original] + (1 - g) softmax(lm_logits)[original] ),   g = sigmoid(gate_logits)
        copy = mean of the binary cross-entropy of g, whose target is 1[corrupted = original]

    lm_logits: (m, V); gate_logits: (m,), the logit of copying the input token; corrupted, original: (m,) token ids. The gate
    learns from the copy term only: in the language-model term it is a constant, as in the released code of Meng et al.
    Computed in log space, so that a gate near 0 or 1 gives no infinity, and in float32 at least, also under autocast. No
    position (m = 0) gives 0 for both, with a gradient.
    Source: Meng et al. (2021), COCO-LM, corrective language modelling; Chuang et al. (2022), DiffCSE, use it as an ablation.
    """
    logits, gate = wide(lm_logits), wide(gate_logits)
    same = corrupted == original
    copy = functional.binary_cross_entropy_with_logits(gate, same.to(gate.dtype), reduction="sum")
    constant = gate.detach()
    made = functional.logsigmoid(-constant) - functional.cross_entropy(logits, original, reduction="none")
    # where the token was corrupted, copying has probability 0, whose logarithm would be infinite
    log_p = torch.where(same, torch.logaddexp(functional.logsigmoid(constant), made), made)
    count = max(len(original), 1)
    return -log_p.sum() / count, copy / count


def replaced_tokens(logits: Tensor, labels: Tensor, counted: Tensor) -> Tensor:
    """Return the loss of replaced-token detection, DiffCSE's second term.

        mean over the counted places t of -log softmax(logits_t)[labels_t],   labels 1 where the token was replaced

    logits: (n, L, 2), of original and of replaced; labels: (n, L) integers; counted: (n, L) bool. In float32 at least. No
    counted place gives 0, with a gradient.
    Source: Chuang et al. (2022), DiffCSE, Eq. 3 in its two-class form, a mean instead of their sum, as in their code.
    """
    indices = counted.nonzero(as_tuple=True)  # indices, as each use of a mask would wait for a GPU
    rows = wide(logits[indices])
    return functional.cross_entropy(rows, labels[indices], reduction="sum") / max(len(rows), 1)


def detections(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """Return counts of real tokens, int64 (4,): detected replaced, all replaced, detected original, all original.

    logits: (..., 2), of original and of replaced; labels: (...), 1 where replaced; real: (...) bool. Equal logits predict
    original.
    """
    guessed, replaced = logits[..., 1] > logits[..., 0], labels == 1
    right = guessed == replaced
    groups = [right & replaced & real, replaced & real, right & ~replaced & real, ~replaced & real]
    return torch.stack([group.sum() for group in groups])


def token_errors(rebuilt: Tensor, tokens: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Return (n, T), the squared error of each token vector: the mean, or the sum, over its d coordinates.

    rebuilt, tokens: (n, T, d); both get a gradient. Computed in float32 at least, also under autocast.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction {reduction!r} is unknown (there are mean, sum)")
    wide = torch.promote_types(torch.promote_types(rebuilt.dtype, tokens.dtype), torch.float32)
    with torch.autocast(tokens.device.type, enabled=False):
        squares = (tokens.to(wide) - rebuilt.to(wide)).square()
        return squares.mean(2) if reduction == "mean" else squares.sum(2)


def reconstruction(errors: Tensor, weights: Tensor, real: Tensor) -> Tensor:
    """Return SARCSE's reconstruction loss, the terms L_R and L_R+; divided by N, not by the sum of the weights.

        mean over n texts of (1 / N) sum_i w_i e_i over the N real tokens of a text

    errors, weights: (n, T); real: (n, T) bool. A text without a real token has the loss 0 and counts as a text. No text
    (n = 0) gives 0, with a gradient.
    Source: Liu et al. (2024), SARCSE.
    """
    with torch.autocast(errors.device.type, enabled=False):
        summed = (errors * weights).masked_fill(~real, 0).sum(1)
        return (summed / real.sum(1).clamp(min=1)).sum() / max(len(errors), 1)


def token_weights(counts: NDArray[np.int64] | Any, theta: float = 0.1, scale: float = 50.0) -> Tensor:
    """Return SARCSE's weight of each token w, float32 (V,); 1 for a token that does not occur.

        max(theta, 1 - scale * counts_w / sum of counts)

    counts: (V,), how often each token occurs in the training text. Source: Liu et al. (2024), SARCSE, Eq. 8, whose
    freq(w) is read as the relative frequency: their scale of 50 reaches theta = 0.1 at 1.8 % of all tokens, which only
    the commonest words and punctuation marks are.
    """
    shares = np.asarray(counts, dtype=np.float64) / max(int(np.sum(counts)), 1)
    return torch.from_numpy(np.maximum(theta, 1 - scale * shares)).float()
