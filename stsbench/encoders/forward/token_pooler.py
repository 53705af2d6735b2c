"""What the learned poolers over tokens share: how one is stored, and a convolution that no GPU rounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from stsbench.encoders.forward.checkpoint import first_line
from stsbench.encoders.forward.token_pooler_files import FILES, TokenPoolerKind
from stsbench.errors import EncoderError
from stsbench.files import atomic_write


class TokenPooler(nn.Module):
    """(n, L, width) last hidden states and a mask (n, L) -> (n, vector_width) sentence vectors, by learned weights.

    No vector depends on padding or on other texts.
    """

    kind: ClassVar[TokenPoolerKind]
    width: int  # d of a hidden state
    kernels: tuple[int, ...]  # tokens a window
    vector_width: int

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments, as JSON has them."""
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
        """What `save` wrote, float32 on the CPU, in train mode. EncoderError for missing, broken or other files."""
        from safetensors.torch import load_file

        try:
            with torch.device("meta"):
                pooler = cls(**json.loads((folder / FILES[0]).read_text("utf-8")))
            pooler.load_state_dict(load_file(folder / FILES[1]), assign=True)
        except Exception as error:  # json, safetensors and torch each have their own kinds
            raise EncoderError(f"cannot read the {cls.kind.title} in {folder}: {first_line(error)}") from error
        return pooler


def convolve(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """conv1d: values (n, i, T), weight (o, i, k), bias (o,) -> (n, o, T - k + 1); on a GPU without TF32."""
    # by default torch lets cuDNN round what float32 convolutions multiply to 10 bits (TF32), but not matrix products
    return by_products(values, weight, bias) if values.is_cuda else nn.functional.conv1d(values, weight, bias)


def by_products(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """As `convolve`, by one matrix product over the windows; on a CPU twice as slow as conv1d."""
    windows = values.unfold(2, weight.shape[2], 1).permute(0, 2, 1, 3).flatten(2)  # (n, T - k + 1, i * k)
    return nn.functional.linear(windows, weight.flatten(1), bias).transpose(1, 2)
