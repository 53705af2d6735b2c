"""Encoding with a model that is being trained: it comes back as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def borrowed(*modules: nn.Module) -> Iterator[None]:
    """Eval mode, no gradients, no autocast; afterwards every submodule is in its own mode again, even after an error.

    Not inference_mode: a buffer that a model makes in there could never again take part in a backward pass.
    """
    modes = [(part, part.training) for module in modules for part in module.modules()]
    device = next(modules[0].parameters()).device.type
    for module in modules:
        module.eval()
    try:
        with torch.no_grad(), torch.autocast(device, enabled=False):
            yield
    finally:
        for part, training in modes:
            part.training = training
