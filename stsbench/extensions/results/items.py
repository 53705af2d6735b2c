"""One model's scores of the items of a task, from any tool, and their conversion to a run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.errors import DataError
from stsbench.evaluation.columns import observations_digest
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.records import DataIdentity, EncoderIdentity, Observed, ProtocolIdentity, Record, now
from stsbench.evaluation.run_file import Item
from stsbench.evaluation.schema import ITEM
from stsbench.extensions.results.protocol import CORRELATIONS, NAME, SENTENCES, ItemScoresProtocol

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ItemScores:
    """A model's scores of the items of one task.

    ids: unique names of the items; values: metric -> a number for each item, the higher the better. gold: labels that
    predictions are correlated with; cluster: equal for dependent items, such as questions about one text; or sentences: both
    texts of each item, where items that share a text are dependent. score: what the numbers are, if the metric's name does
    not tell.
    """

    model: str
    task: str
    ids: Sequence[str]
    values: Mapping[str, Sequence[float]]
    gold: Sequence[float] | None = None
    cluster: Sequence[str] | None = None
    sentences: tuple[Sequence[str], Sequence[str]] | None = None
    score: str = "score"

    def arrays(self, source: str) -> tuple[list[str], dict[str, NDArray[Any]]]:
        """Return the items' names, sorted, and arrays in that order. Raises DataError naming the source and an item."""
        order = sorted(range(len(self.ids)), key=self.ids.__getitem__)
        names = [self.ids[at] for at in order]
        if twice := [name for name, following in pairwise(names) if name == following]:
            raise DataError(f"{source}: {self.task} has the item {twice[0]!r} twice for {self.model}")
        if len(names) < 2:
            raise DataError(f"{source}: {self.task} has {len(names)} item of {self.model}: nothing can be said of its noise")
        arrays: dict[str, NDArray[Any]] = {"values": np.array([list(its) for its in self.values.values()], float)[:, order]}
        if self.gold is not None:
            arrays["gold"] = np.array(self.gold, float)[order]
        for row in (arrays["values"], arrays.get("gold", np.zeros(0))):
            if not np.isfinite(row).all():
                at = names[int(np.argwhere(~np.isfinite(row))[0][-1])]
                raise DataError(f"{source}: {self.task}: the score of {at!r} is not a finite number")
        if self.cluster is not None:
            arrays[ITEM] = np.unique([self.cluster[at] for at in order], return_inverse=True)[1].astype(np.int64)
        if self.sentences is not None:
            texts = np.array([[side[at] for at in order] for side in self.sentences])
            numbers = np.unique(texts, return_inverse=True)[1].reshape(2, -1)
            arrays |= dict(zip(SENTENCES, numbers, strict=True))
            arrays[ITEM] = np.unique(np.sort(numbers, axis=0), axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)
        return names, arrays


def items_of_run(items: Sequence[ItemScores], source: str) -> list[Item]:
    """Return the record and the observations of each task of one model, as a run file holds them. Raises DataError for items
    that cannot be scored."""
    made = []
    for its in items:
        names, arrays = its.arrays(source)
        metrics = list(CORRELATIONS) if its.gold is not None else list(its.values)
        made.append((its, names, Observations(arrays, {"metrics": metrics})))
    digest = hashlib.sha256()
    for its, names, observations in made:
        for text in (its.model, its.task, *names, observations_digest(observations)):
            digest.update(text.encode() + b"\0")
    spec = {"name": items[0].model, "kind": "results", "weights": digest.hexdigest()}
    encoder = EncoderIdentity(spec=spec, fingerprint=digest.hexdigest(), dimension=0)
    about = {"source": source, "versions": {"stsbench": version("stsbench")}}
    return [_item(*one, encoder, about, source) for one in made]


def _item(
    its: ItemScores, names: Sequence[str], observations: Observations, encoder: EncoderIdentity, about: Mapping[str, Any],
    source: str,
) -> Item:
    digest = hashlib.sha256()
    shared = [array.tobytes() for key, array in observations.arrays.items() if key != "values"]
    for part in (its.task.encode(), *(name.encode() for name in names), *shared):
        digest.update(part + b"\0")
    protocol = ItemScoresProtocol({"score": its.score})
    data = DataIdentity(id=f"own:{digest.hexdigest()[:16]}", task=its.task, text_version="own", digest=digest.hexdigest(),
                        n=len(names), subsets={}, known=True, origin=source)
    return Record(
        created=now(), encoder=encoder, observations=Observed(sha256=observations_digest(observations)), data=data,
        protocol=ProtocolIdentity(name=NAME, label=NAME, version=protocol.version, settings=protocol.settings),
        counts={}, scores=protocol.score(observations, data.id, its.task), provenance=dict(about),
    ), observations
