"""The learned pooler mean_cnn: convolutions over the tokens, as long as the text, and their mean over the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stsbench.encoders.forward.token_pooler import TokenPooler, convolve
from stsbench.encoders.forward.token_pooler_files import KINDS
from stsbench.errors import EncoderError

_ACTIVATIONS = ("relu", "none")


@dataclass(frozen=True)
class LocalFeatures:
    """What a MeanCNN makes of n texts of L tokens at most."""

    tokens: Tensor  # (n, L, vector_width), to be read where `real`
    real: Tensor  # (n, L) bool
    vectors: Tensor  # (n, vector_width)


class MeanCNN(TokenPooler):
    """Zhang et al. (2020), IS-BERT: for each kernel k a convolution over the k tokens around each token, all
    kernels side by side, and of those local vectors the mean. torch's default initialisation.

    Special tokens count. Beyond a text's ends there are zeros.
    """

    kind = KINDS["mean_cnn"]

    def __init__(
        self, width: int, kernels: Sequence[int] = (1, 3, 5), channels: int = 256, activation: str = "relu"
    ) -> None:
        """width: d of a hidden state; kernels: tokens a window, odd; channels: of each kernel; activation: relu or none."""
        super().__init__()
        if activation not in _ACTIVATIONS:
            raise EncoderError(f"mean_cnn: activation {activation!r} is unknown (there are {', '.join(_ACTIVATIONS)})")
        if even := [kernel for kernel in kernels if kernel % 2 == 0]:
            raise EncoderError(f"mean_cnn: a kernel of {even[0]} tokens has no middle: kernels are odd")
        self.width, self.kernels, self.channels, self.activation = width, tuple(kernels), channels, activation
        self.vector_width = channels * len(self.kernels)
        self.convs = nn.ModuleList(nn.Conv1d(width, channels, kernel) for kernel in self.kernels)

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments, as JSON has them."""
        return {
            "width": self.width, "kernels": list(self.kernels), "channels": self.channels, "activation": self.activation,
        }

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """(n, vector_width) from last hidden states (n, L, d). mask: (n, L), 1 on real tokens, which stand together."""
        return self.features(states, mask).vectors

    def features(self, states: Tensor, mask: Tensor, zero_padding: bool = True) -> LocalFeatures:
        """The vectors and the local ones that they are means of. states: (n, L, d); mask: (n, L), 1 on real tokens.

        zero_padding: read zeros at padded places. False: read the states there, as the authors' code does, so that the last
        tokens of a text depend on what it is padded with.
        """
        real = mask.bool()
        inputs = states.masked_fill(~real.unsqueeze(-1), 0) if zero_padding else states
        inputs = inputs.transpose(1, 2)
        tokens = torch.cat([_as_long(conv, inputs) for conv in self.convs], dim=1).transpose(1, 2)
        tokens = tokens.relu() if self.activation == "relu" else tokens
        summed = tokens.masked_fill(~real.unsqueeze(-1), 0).sum(1, dtype=torch.promote_types(tokens.dtype, torch.float32))
        vectors = summed / mask.sum(1, keepdim=True).clamp(min=1)
        return LocalFeatures(tokens, real, vectors)


def _as_long(conv: Any, values: Tensor) -> Tensor:
    """(n, c, L) from values (n, d, L): zeros before and behind them."""
    around = conv.kernel_size[0] // 2
    return convolve(nn.functional.pad(values, (around, around)), conv.weight, conv.bias)
