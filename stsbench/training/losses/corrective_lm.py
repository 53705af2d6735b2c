"""Corrective language modelling: at every token say whether it is the original one, and which the original is."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def corrective_loss(lm_logits: Tensor, gate_logits: Tensor, corrupted: Tensor, original: Tensor) -> tuple[Tensor, Tensor]:
    """(language-model term, copy term), each a mean over m positions.

        lm = mean of -log( g 1[corrupted = original] + (1 - g) softmax(lm_logits)[original] ),   g = sigmoid(gate_logits)
        copy = mean of the binary cross-entropy of g, whose target is 1[corrupted = original]

    lm_logits: (m, V); gate_logits: (m,), the logit of "copy what is read"; corrupted, original: (m,) token ids. The gate
    learns from the copy term alone: to the language-model term it is a constant, as in the released code of Meng et al.
    Computed in log space, so that a gate that is sure costs no infinity, and in float32 at least, also under autocast. No
    position (m = 0) gives 0 twice, with a gradient.
    Source: Meng et al. (2021), COCO-LM, corrective language modelling; Chuang et al. (2022), DiffCSE, use it as an ablation.
    """
    logits, gate = _wide(lm_logits), _wide(gate_logits)
    same = corrupted == original
    copy = functional.binary_cross_entropy_with_logits(gate, same.to(gate.dtype), reduction="sum")
    constant = gate.detach()
    made = functional.logsigmoid(-constant) - functional.cross_entropy(logits, original, reduction="none")
    # where copying would be wrong only the vocabulary can give the token; both branches are finite
    log_p = torch.where(same, torch.logaddexp(functional.logsigmoid(constant), made), made)
    count = max(len(original), 1)
    return -log_p.sum() / count, copy / count


def _wide(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))
