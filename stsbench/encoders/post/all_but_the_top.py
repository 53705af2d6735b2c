"""All-but-the-top: the mean and the directions of largest variance are taken out, the width stays."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from stsbench.encoders.post.affine import Affine, Map, principal, rank
from stsbench.encoders.post.base import PostOptions
from stsbench.encoders.post.moments import Moments
from stsbench.errors import StsbenchError
from stsbench.settings import setting


class AllButTheTopOptions(PostOptions):
    """Of `all-but-the-top`."""

    components: Annotated[int, Field(ge=0)] | None = setting(
        None, "how many directions are taken out (D); null: a hundredth of the width, rounded, at least 1; 0: only the mean",
        "Mu and Viswanath 2018: D about d/100",
    )


class AllButTheTop(Affine):
    """(x - mean) @ (I - U U'), U the first D principal directions."""

    name = "all-but-the-top"
    Options: ClassVar[type[PostOptions]] = AllButTheTopOptions
    source = "Mu and Viswanath 2018, All-but-the-Top: Simple and Effective Postprocessing for Word Representations"

    def components(self, d: int) -> int:
        """D for vectors of width d. StsbenchError where nothing would be left."""
        asked: int | None = self.options.components
        count = max(1, round(d / 100)) if asked is None else asked
        if count >= d:
            raise StsbenchError(f"{self.name}: components={count} leaves nothing of vectors of width {d}")
        return count

    def dimension(self, d: int) -> int:
        self.components(d)
        return d

    def solve(self, stats: Moments, name: str) -> Map:
        count = self.components(stats.width)
        variances, directions = principal(stats)
        if count > (there := rank(stats, variances)):
            raise StsbenchError(
                f"{name}: {stats.n} vectors vary in {there} directions, fewer than the {count} that all-but-the-top takes "
                f"out: give all-but-the-top:components={there} or fewer, or fit on more texts"
            )
        top = directions[:, :count]
        return stats.mean, np.eye(stats.width) - top @ top.T
