"""A masked sentence read behind vectors of another sentence, by the encoder that made them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stsbench.encoders.forward.packed import own_positions
from stsbench.encoders.forward.padded import check_family
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.embedding_change import EmbeddingChange
from stsbench.training.modules.soft_prompt import SoftPrompt


class Projections(nn.Module):
    """P(v): a sentence's vector and N - 1 learned projections of it, each Linear(d, d), GELU, LayerNorm."""

    def __init__(self, width: int, count: int, std: float, epsilon: float) -> None:
        """width: d; count: N, 1 at least; std: of the linear weights, biases are 0; epsilon: of the LayerNorms."""
        super().__init__()
        self.learned = nn.ModuleList(_projection(width, std, epsilon) for _ in range(count - 1))

    def forward(self, vectors: Tensor) -> Tensor:
        """(n, d) -> (n, N, d), the vectors themselves first."""
        return torch.stack([vectors, *(projection(vectors) for projection in self.learned)], 1)


def _projection(width: int, std: float, epsilon: float) -> nn.Sequential:
    linear = nn.Linear(width, width)
    nn.init.normal_(linear.weight, std=std)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.GELU(), nn.LayerNorm(width, eps=epsilon))


def states_behind(backbone: Backbone, vectors: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    """(n, L, d) last hidden states of the texts ids, mask (n, L), each read behind its `vectors` (n, N, d).

    The vectors enter behind the embeddings' LayerNorm and dropout and have neither position nor type; the text has the
    positions that it has alone; everything attends to everything. Rows begin with a real token. EncoderError for a model
    that is neither BERT nor RoBERTa.
    """
    check_family(backbone.model)
    count = vectors.shape[1]
    positions = own_positions(backbone.model.embeddings, ids)
    # what stands at the first N places is overwritten: any real token serves
    places = [torch.cat([part[:, :1].expand(-1, count), part], 1) for part in (ids, mask, positions)]
    soft = SoftPrompt(places[2], change=EmbeddingChange(leading=vectors))
    states: Tensor = backbone(places[0], places[1], soft=soft)[0]
    return states[:, count:]
