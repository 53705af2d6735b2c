"""Vectors of earlier batches as further negatives, by an encoder that follows the trained one slowly.

Sources: Wu et al. (2022), ESimCSE; He et al. (2020), MoCo.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stsbench.training.api.batch import Shares
from stsbench.training.api.gathering import gather
from stsbench.training.api.options import Queue
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.copies import Reference


class NegativeQueue(nn.Module):
    """The last `size` vectors that the momentum encoder gave of the batches before this one, newest last.

    A method hands `stored()` to `contrast`, then calls `enqueue`, in every forward pass: each of training.accumulate counts.
    In eval mode there are none and none come, so that losses of held-out rows compare from step to step. Every process holds
    the vectors of all, whatever training.gather is. Stored in checkpoints with the method that holds it, and not exported.
    """

    vectors: Tensor  # (size, d)
    filled: Tensor  # () how many of them, from the end, are vectors

    def __init__(self, backbone: Backbone, width: int, options: Queue) -> None:
        """width: d of the vectors that are contrasted. A random start takes weights as torch draws them."""
        super().__init__()
        self.options = options
        self.encoder = Reference(backbone)
        if options.start == "random":
            self.encoder.randomise()
        self.register_buffer("vectors", torch.zeros(options.size, width))
        self.register_buffer("filled", torch.tensor(0))

    def restart(self, backbone: Backbone) -> None:
        """Where a stage begins: an empty queue and, but for a random start, the encoder as it is now."""
        if self.options.start == "copy":
            self.encoder.restart(backbone)
        self.filled.zero_()

    def stored(self) -> Tensor:
        """(M, d) negatives of every anchor of a batch, M <= size."""
        count = int(self.filled) if self.training else 0
        return self.vectors[len(self.vectors) - count :].clone()  # what the loss keeps for backward is not overwritten

    @torch.no_grad()
    def enqueue(self, backbone: Backbone, ids: Tensor, mask: Tensor, head: nn.Module | None, shares: Shares) -> None:
        """After the loss: the momentum encoder takes a step towards `backbone`, and its vectors of this batch are stored.

        ids, mask: (n, L), the first view of this process's rows. They are encoded without dropout and go through `head` as
        it is now, in eval mode.
        """
        if not self.training:
            return
        self.encoder.follow(backbone, self.options.momentum)
        vectors = self.encoder.backbone.pooled(ids, mask)
        if head is not None:
            training = head.training
            vectors = head.eval()(vectors)
            head.train(training)
        new = gather(vectors.to(self.vectors.dtype), shares, "exact")
        self.vectors.copy_(torch.cat([self.vectors, new])[-len(self.vectors) :])
        self.filled.add_(len(new)).clamp_(max=len(self.vectors))
