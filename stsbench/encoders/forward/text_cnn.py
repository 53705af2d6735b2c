"""The learned pooler text_cnn: convolutions over the tokens, maxima over time, and a second convolution over those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stsbench.encoders.forward.token_pooler import TokenPooler, convolve
from stsbench.encoders.forward.token_pooler_files import KINDS
from stsbench.errors import EncoderError

# Each is monotone, so that it may follow the maximum it is published before: the same numbers from a fraction of the work.
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "tanh": torch.tanh, "none": lambda values: values}


@dataclass(frozen=True)
class Features:
    """What a TextCNN makes of n texts: T = max(L - 2, the longest kernel) places of d-wide tokens, c channels a kernel."""

    tokens: Tensor  # (n, T, d) without the first and last real token, zero where not real
    real: Tensor  # (n, T) bool
    pooled: list[Tensor]  # a kernel: (n, c), the maxima over windows
    offsets: list[Tensor]  # a kernel: int64 (n, c), the window that each maximum came from
    vectors: Tensor  # (n, vector_width)


class TextCNN(TokenPooler):
    """Liu et al. (2024), SARCSE, Eq. 1 to 4: a convolution over windows of k tokens for each kernel k, the maximum over
    windows, and a convolution over the maxima of all kernels, flattened. torch's default initialisation.

    A text is its tokens without the first and the last, N of them. Window t is computed for t + k <= N; of a text with
    N < k there is one, over zeros where its tokens end. No vector depends on padding or on other texts.
    """

    kind = KINDS["text_cnn"]

    def __init__(
        self,
        width: int,
        kernels: Sequence[int] = (3, 4, 5),
        channels: int = 500,
        fusion_channels: int = 3,
        fusion_width: int = 2,
        activation: str = "relu",
    ) -> None:
        """width: d of a hidden state; kernels: tokens a window; channels: of each kernel; activation: relu, tanh or none."""
        super().__init__()
        if activation not in _ACTIVATIONS:
            raise EncoderError(f"text_cnn: activation {activation!r} is unknown (there are {', '.join(_ACTIVATIONS)})")
        self.width, self.kernels, self.channels = width, tuple(kernels), channels
        self.fusion_channels, self.fusion_width, self.activation = fusion_channels, fusion_width, activation
        self.convs = nn.ModuleList(nn.Conv1d(width, channels, kernel) for kernel in self.kernels)
        self.vector_width = fusion_channels * (channels - fusion_width + 1)  # 1,497 by default, whatever d is
        self.fusion = nn.Conv2d(1, fusion_channels, (len(self.kernels), fusion_width))

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments, as JSON has them."""
        return {
            "width": self.width, "kernels": list(self.kernels), "channels": self.channels,
            "fusion_channels": self.fusion_channels, "fusion_width": self.fusion_width, "activation": self.activation,
        }

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """(n, vector_width) from last hidden states (n, L, d). mask: (n, L), 1 on real tokens, which come first."""
        return self.features(states, mask).vectors

    def features(self, states: Tensor, mask: Tensor) -> Features:
        """The vectors and all that they were made of. states: (n, L, d); mask: (n, L), 1 on real tokens, padding right."""
        inner = states[:, 1:-1]  # the last real token of a shorter text is still there: `real` leaves it out
        length = max(inner.shape[1], *self.kernels)
        counts = (mask.sum(1) - 2).clamp(min=0)
        real = torch.arange(length, device=states.device) < counts.unsqueeze(1)
        inner = nn.functional.pad(inner, (0, 0, 0, length - inner.shape[1]))
        tokens = inner.masked_fill(~real.unsqueeze(-1), 0)
        maxima = [self._maxima(conv, tokens, counts) for conv in self.convs]
        pooled = [values for values, _ in maxima]
        # one row a kernel and a fusion as high as there are rows: that is a convolution over channels, with rows for inputs
        vectors = convolve(torch.stack(pooled, 1), self.fusion.weight.squeeze(1), self.fusion.bias).flatten(1)
        return Features(tokens, real, pooled, [windows for _, windows in maxima], vectors)

    def _maxima(self, conv: Any, tokens: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """(n, c) activated maxima over the windows that hold no padding, and the windows they came from."""
        windows = convolve(tokens.transpose(1, 2), conv.weight, conv.bias)
        last = (counts - conv.kernel_size[0]).clamp(min=0)  # window 0 always counts: of a short text it is the only one
        beyond = torch.arange(windows.shape[2], device=windows.device) > last.unsqueeze(1)
        values, argmax = windows.masked_fill(beyond.unsqueeze(1), -torch.inf).max(2)
        return _ACTIVATIONS[self.activation](values), argmax
