"""SARCSE's decoder: a sentence vector back to the vectors of its tokens. Trained with the encoder, never tested."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stsbench.encoders.forward.token_pooler import Features, TextCNN

from .options import SARCSEOptions


class Decoder(nn.Module):
    """Liu et al. (2024), SARCSE, Eq. 5 to 7, the TextCNN backwards; no weight is shared with it, and nothing is activated.

    Eq. 5: a transposed convolution gives H'_k, a row of channels for each kernel k. With "separate" each kernel has its own,
    of which its row is taken: all that differs from "shared" is the bias, a number a kernel instead of one for all.
    Eq. 6: the paper does not say how a pooled channel becomes a sequence again. unpool "max": it goes back to the window
    that its maximum came from, all others are 0; "repeat": to every window; "repeat+position": to every window, plus a
    learned vector of channels a window. A transposed convolution then gives X'_k. Eq. 7: X' is their mean.
    """

    def __init__(self, head: TextCNN, options: SARCSEOptions, longest: int, std: float = 0.02) -> None:
        """longest: tokens of a text at most, without the first and the last; std: of the position vectors at the start."""
        super().__init__()
        self.unpool = options.unpool
        self.shape = head.fusion_channels, head.channels - head.fusion_width + 1
        rows = len(head.kernels)
        self.fusions = nn.ModuleList(
            nn.ConvTranspose2d(head.fusion_channels, 1, (rows, head.fusion_width))
            for _ in range(1 if options.transposed_fusion == "shared" else rows)
        )
        self.kernels = head.kernels
        self.convs = nn.ModuleList(nn.ConvTranspose1d(head.channels, head.width, kernel) for kernel in head.kernels)
        self.positions: nn.Parameter | None = None
        if options.unpool == "repeat+position":
            windows = max(longest, *head.kernels) - min(head.kernels) + 1
            self.positions = nn.Parameter(torch.randn(head.channels, windows) * std)

    def forward(self, features: Features) -> Tensor:
        """Return (n, T, d) rebuilt token vectors, to be read where `features.real`; there they depend on nothing but the
        text."""
        total = features.tokens.shape[1]
        counts = features.real.sum(1)
        parts = []
        channels_of = self._channels(features.vectors)
        for conv, kernel, channels, indices in zip(self.convs, self.kernels, channels_of, features.offsets, strict=True):
            windows = total - kernel + 1
            last = (counts - kernel).clamp(min=0)  # a text shorter than the kernel has one window
            parts.append(conv(self._unpooled(channels, indices, last, windows)))
        rebuilt: Tensor = torch.stack(parts).mean(0) if len(parts) > 1 else parts[0]
        return rebuilt.transpose(1, 2)

    def _channels(self, vectors: Tensor) -> list[Tensor]:
        """Return Eq. 5: (n, vector_width) -> H'_k, (n, channels), for each kernel."""
        maps = vectors.view(len(vectors), self.shape[0], 1, self.shape[1])
        if len(self.fusions) == 1:
            return list(self.fusions[0](maps)[:, 0].unbind(1))
        return [fusion(maps)[:, 0, row] for row, fusion in enumerate(self.fusions)]

    def _unpooled(self, channels: Tensor, indices: Tensor, last: Tensor, windows: int) -> Tensor:
        """Return (n, channels, windows), zero in the windows after a text's last one, which hold padding.

        channels, places: (n, channels), the latter windows in the encoder, no gradient; last: (n,).
        """
        if self.unpool == "max":
            empty = channels.new_zeros(*channels.shape, windows)
            return empty.scatter(2, indices.unsqueeze(2), channels.unsqueeze(2))
        spread = channels.unsqueeze(2).expand(-1, -1, windows)
        if self.positions is not None:
            known = self.positions[:, :windows]
            spread = spread + nn.functional.pad(known, (0, windows - known.shape[1]))  # what is beyond it is padding
        beyond = torch.arange(windows, device=channels.device) > last.unsqueeze(1)
        return spread.masked_fill(beyond.unsqueeze(1), 0)
