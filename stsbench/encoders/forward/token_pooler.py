"""The learned poolers over tokens, TextCNN and MeanCNN, their files, and a convolution that is not rounded to TF32."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from stsbench.encoders.forward.checkpoint import first_line
from stsbench.encoders.forward.pooling import FILES, KINDS, TokenPoolerKind
from stsbench.errors import EncoderError
from stsbench.files import atomic_write

# All are monotone, so the maximum may be taken before the activation, not after it as published: equal numbers, less work.
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "tanh": torch.tanh, "none": lambda values: values}
_MEAN_ACTIVATIONS = ("relu", "none")


class TokenPooler(nn.Module):
    """A learned pooler: (n, L, width) last hidden states and a mask (n, L) -> (n, vector_width) sentence vectors.

    No vector depends on padding or on other texts.
    """

    kind: ClassVar[TokenPoolerKind]
    width: int  # d of a hidden state
    kernels: tuple[int, ...]  # tokens a window
    vector_width: int

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments as JSON values."""
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors (float32) into `folder`. StsbenchError where it cannot be written."""
        from safetensors.torch import save

        weights = {name: value.detach().float().contiguous() for name, value in self.state_dict().items()}
        with atomic_write(folder / FILES[0]) as stream:
            stream.write(json.dumps(self.settings(), indent=2) + "\n")
        with atomic_write(folder / FILES[1], "wb") as stream:
            stream.write(save(weights, {"format": "pt"}))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the pooler that `save` wrote, float32 on the CPU, in train mode. EncoderError: missing or unfit files."""
        from safetensors.torch import load_file

        try:
            with torch.device("meta"):
                pooler = cls(**json.loads((folder / FILES[0]).read_text("utf-8")))
            pooler.load_state_dict(load_file(folder / FILES[1]), assign=True)
        except Exception as error:  # json, safetensors and torch raise errors of their own
            raise EncoderError(f"cannot read the {cls.kind.title} in {folder}: {first_line(error)}") from error
        return pooler


def convolve(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return conv1d of values (n, i, T), weight (o, i, k) and bias (o,): (n, o, T - k + 1); on a GPU without TF32."""
    # by default torch lets cuDNN round what float32 convolutions multiply to 10 bits (TF32), but not matrix products
    return by_products(values, weight, bias) if values.is_cuda else nn.functional.conv1d(values, weight, bias)


def by_products(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return `convolve` computed by one matrix product over the windows; on a CPU it is twice as slow as conv1d."""
    windows = values.unfold(2, weight.shape[2], 1).permute(0, 2, 1, 3).flatten(2)  # (n, T - k + 1, i * k)
    return nn.functional.linear(windows, weight.flatten(1), bias).transpose(1, 2)


@dataclass(frozen=True)
class Features:
    """Features of n texts in a TextCNN: T = max(L - 2, the longest kernel) places of d-wide tokens, c channels a kernel."""

    tokens: Tensor  # (n, T, d) without the first and last real token, zero where not real
    real: Tensor  # (n, T) bool
    pooled: list[Tensor]  # a kernel: (n, c), the maxima over windows
    offsets: list[Tensor]  # a kernel: int64 (n, c), the window that each maximum came from
    vectors: Tensor  # (n, vector_width)


class TextCNN(TokenPooler):
    """The TextCNN of SARCSE (Liu et al. 2024, Eq. 1 to 4): a convolution over windows of k tokens for each kernel k, the
    maximum over windows, and a convolution over the maxima of all kernels, flattened. torch's default initialisation.

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
        """Return the constructor's arguments as JSON values."""
        return {
            "width": self.width, "kernels": list(self.kernels), "channels": self.channels,
            "fusion_channels": self.fusion_channels, "fusion_width": self.fusion_width, "activation": self.activation,
        }

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return (n, vector_width) from last hidden states (n, L, d). mask: (n, L), 1 on real tokens, which come first."""
        return self.features(states, mask).vectors

    def features(self, states: Tensor, mask: Tensor) -> Features:
        """Return the vectors and the features that they are computed from. states: (n, L, d); mask: (n, L), 1 on real
        tokens, padding right."""
        inner = states[:, 1:-1]  # the last real token of a shorter text stays in `inner`: `real` leaves it out
        length = max(inner.shape[1], *self.kernels)
        counts = (mask.sum(1) - 2).clamp(min=0)
        real = torch.arange(length, device=states.device) < counts.unsqueeze(1)
        inner = nn.functional.pad(inner, (0, 0, 0, length - inner.shape[1]))
        tokens = inner.masked_fill(~real.unsqueeze(-1), 0)
        maxima = [self._maxima(conv, tokens, counts) for conv in self.convs]
        pooled = [values for values, _ in maxima]
        # one row for each kernel, and a fusion over all rows: a convolution over channels whose inputs are the rows
        vectors = convolve(torch.stack(pooled, 1), self.fusion.weight.squeeze(1), self.fusion.bias).flatten(1)
        return Features(tokens, real, pooled, [windows for _, windows in maxima], vectors)

    def _maxima(self, conv: Any, tokens: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return (n, c) activated maxima over the windows that hold no padding, and the windows they came from."""
        windows = convolve(tokens.transpose(1, 2), conv.weight, conv.bias)
        last = (counts - conv.kernel_size[0]).clamp(min=0)  # window 0 always counts: of a short text it is the only one
        beyond = torch.arange(windows.shape[2], device=windows.device) > last.unsqueeze(1)
        values, argmax = windows.masked_fill(beyond.unsqueeze(1), -torch.inf).max(2)
        return _ACTIVATIONS[self.activation](values), argmax


@dataclass(frozen=True)
class LocalFeatures:
    """Features of n texts of at most L tokens in a MeanCNN."""

    tokens: Tensor  # (n, L, vector_width), to be read where `real`
    real: Tensor  # (n, L) bool
    vectors: Tensor  # (n, vector_width)


class MeanCNN(TokenPooler):
    """The pooler of IS-BERT (Zhang et al. 2020): for each kernel k a convolution over the k tokens around each token, all
    kernels side by side, and the mean of these local vectors. torch's default initialisation.

    Special tokens count. A text is padded with zeros at both ends.
    """

    kind = KINDS["mean_cnn"]

    def __init__(
        self, width: int, kernels: Sequence[int] = (1, 3, 5), channels: int = 256, activation: str = "relu"
    ) -> None:
        """width: d of a hidden state; kernels: tokens a window, odd; channels: of each kernel; activation: relu or none."""
        super().__init__()
        if activation not in _MEAN_ACTIVATIONS:
            raise EncoderError(f"mean_cnn: activation {activation!r} is unknown (there are {', '.join(_MEAN_ACTIVATIONS)})")
        if even := [kernel for kernel in kernels if kernel % 2 == 0]:
            raise EncoderError(f"mean_cnn: a kernel of {even[0]} tokens has no middle: kernels are odd")
        self.width, self.kernels, self.channels, self.activation = width, tuple(kernels), channels, activation
        self.vector_width = channels * len(self.kernels)
        self.convs = nn.ModuleList(nn.Conv1d(width, channels, kernel) for kernel in self.kernels)

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments as JSON values."""
        return {
            "width": self.width, "kernels": list(self.kernels), "channels": self.channels, "activation": self.activation,
        }

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return (n, vector_width) from last hidden states (n, L, d). mask: (n, L), 1 on real tokens, which stand
        together."""
        return self.features(states, mask).vectors

    def features(self, states: Tensor, mask: Tensor, zero_padding: bool = True) -> LocalFeatures:
        """Return the vectors and the local vectors whose means they are. states: (n, L, d); mask: (n, L), 1 on real tokens.

        zero_padding: read zeros at padded places. False: read the states there, as the authors' code does, so that the last
        tokens of a text depend on what it is padded with.
        """
        real = mask.bool()
        inputs = states.masked_fill(~real.unsqueeze(-1), 0) if zero_padding else states
        inputs = inputs.transpose(1, 2)
        made, layers = list[Tensor](), list[Any](self.convs)
        for conv in layers:  # padded with zeros at both ends, so that the output is as long as the input
            around = conv.kernel_size[0] // 2
            made.append(convolve(nn.functional.pad(inputs, (around, around)), conv.weight, conv.bias))
        tokens = torch.cat(made, dim=1).transpose(1, 2)
        tokens = tokens.relu() if self.activation == "relu" else tokens
        summed = tokens.masked_fill(~real.unsqueeze(-1), 0).sum(1, dtype=torch.promote_types(tokens.dtype, torch.float32))
        vectors = summed / mask.sum(1, keepdim=True).clamp(min=1)
        return LocalFeatures(tokens, real, vectors)


CLASSES: dict[str, type[TokenPooler]] = {kind.kind.pooler: kind for kind in (TextCNN, MeanCNN)}
