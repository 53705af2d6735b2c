"""The geometry protocol: how STS-B's sentences are distributed on the unit sphere, measured as in SimCSE (Gao et al. 2021).

Alignment and uniformity (Wang & Isola 2020; SimCSE equations 2 and 3 and figure 3), anisotropy (Ethayarajh 2019), singular
values (SimCSE figure F.1), cosines by human rating (figure G.1), in the units of the papers; only a share is x 100.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from stsbench.data.sets.sets import PairSet
from stsbench.encoders.cache.embed import Embed
from stsbench.errors import ScoreError
from stsbench.evaluation.protocol import Drawn, Observations, Protocol
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.evaluation.schema import Array, Metric, Settings, SettingsModel, Whole, setting
from stsbench.metrics import geometry
from stsbench.metrics.bootstrap import interval, resample_counts
from stsbench.metrics.similarity import paired_similarity, zero_rows

SPLITS = {"test": ("STS-B", "stsb/test"), "dev": ("STS-B-dev", "stsb/dev"), "whole": ("STS-B-whole", "stsb/splits")}
Exponent = Annotated[float, Field(gt=0, lt=1000)]  # distances go up to 2: a larger exponent would overflow


class GeometrySettings(Settings):
    split: Literal["test", "dev", "whole"] = setting(
        "test", "the split of STS-B; whole: train, dev and test together", "DiffCSE (Chuang et al. 2022), table 11: test",
        by="--protocol geometry:dev, geometry:whole or geometry",
    )
    alpha: Exponent = setting(2.0, "the exponent of the distances in alignment", "Wang & Isola 2020, section 4.1")
    t: Exponent = setting(2.0, "the factor of the squared distances in uniformity", "Wang & Isola 2020, section 4.1")
    positive_above: float = setting(
        4.0, "pairs rated higher than this are the positive ones", "SimCSE (Gao et al. 2021), footnote 3"
    )
    texts: Literal["all", "distinct"] = setting(
        "all", "whether a sentence counts as often as it stands in the pairs, or once", "our reading of SimCSE, section 5"
    )
    centre: bool = setting(
        False, "whether the mean vector is subtracted before the singular values", "SimCSE, appendix F, mentions no centring"
    )
    resamples: Whole = setting(1000, "bootstrap resamples of each interval; 0: no intervals", "our choice")
    seed: Whole = setting(0, "of the bootstrap", "our choice")


class GeometryProtocol(Protocol):
    """Measures of where an encoder puts STS-B's sentences and pairs on the unit sphere."""

    Settings: ClassVar[SettingsModel] = GeometrySettings
    name: ClassVar[str] = "geometry"
    version: ClassVar[int] = 1
    # Wang & Isola (2020) minimise alignment and uniformity as losses, but neither alone ranks encoders: constant vectors
    # have alignment 0, random ones the best uniformity.
    metrics: ClassVar[Mapping[str, Metric]] = {
        "alignment": Metric("neither", 1, 3, (0.0, inf)), "uniformity": Metric("neither", 1, 3, (-inf, 0.0)),
        "anisotropy": Metric("neither", 1, 3, (-1.0, 1.0)), "explained by first": Metric("neither", 100, 2, (0.0, 100.0)),
        "effective rank": Metric("neither", 1, 3, (0.0, inf)), "mean cosine": Metric("neither", 1, 3, (-1.0, 1.0)),
    }
    arrays: ClassVar[Mapping[str, Array]] = {
        "cosine": Array("float", rounded=True, per_item=True), "gold": Array("float", shared=True),
        "distance": Array("float", "p", rounded=True), "uniformity": Array("float", ""), "anisotropy": Array("float", ""),
        "spectrum": Array("float", "r"), "sentences": Array("int", "2"),
    }
    title: ClassVar[str] = "Geometry"
    about: ClassVar[str] = "Where STS-B's sentences lie on the unit sphere. 'explained by first' is a share x 100."
    lead: str = "alignment"
    unranked: ClassVar[str] = "alignment and uniformity are read together, and neither alone is better or worse"
    text_type: ClassVar[str] = "STS"
    position: ClassVar[int] = 4
    metrics_across: ClassVar[bool] = True
    cosmetic: ClassVar[frozenset[str]] = frozenset({"resamples", "seed"})
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"dev": {"split": "dev"}, "whole": {"split": "whole"}}

    def tasks(self) -> dict[str, str]:
        return dict([SPLITS[self.settings["split"]]])

    def observe(self, embed: Embed, data: PairSet) -> Observations:
        """Return measures of n pairs, p of them positive, and of m sentences (u distinct) with a non-zero vector.

        cosine, gold float64 (n,); distance float64 (p,); uniformity, anisotropy float64 (); spectrum float64 (min(m, d),)
        singular values; sentences int64 (2,): m and u. A zero vector has cosine 0 and is left out of all other measures.
        """
        first, second = embed(data.first), embed(data.second)
        directed = ~zero_rows(first) & ~zero_rows(second)
        positive = np.flatnonzero((data.gold > self.settings["positive_above"]) & directed)
        distinct = geometry.directions(embed(data.texts))
        if self.settings["texts"] == "all":
            unit = geometry.directions(embed([*data.first, *data.second]))
            left_out = 2 * len(data) - len(unit)
        else:
            unit, left_out = distinct, len(data.texts) - len(distinct)
        arrays: dict[str, NDArray[Any]] = {
            "cosine": paired_similarity(first, second),
            "gold": data.gold,
            "distance": geometry.distances(geometry.directions(first[positive]), geometry.directions(second[positive])),
            "uniformity": np.array(geometry.uniformity(unit, self.settings["t"])),
            "anisotropy": np.array(geometry.anisotropy(distinct)),
            "spectrum": geometry.singular_values(unit, self.settings["centre"]),
            "sentences": np.array([len(unit), len(distinct)], dtype=np.int64),
        }
        notes = [f"{left_out} sentences have a zero vector: left out of all measures but the cosines"] if left_out else []
        return Observations(arrays, {"notes": notes})

    def contradiction(self, observations: Observations, record: Record) -> str:
        """Return the fault where the number of singular values does not fit the record's dimension, else ""."""
        width, have = record.encoder.dimension, len(observations.arrays["spectrum"])
        if have != (want := min(int(observations.arrays["sentences"][0]), width)):
            return f"dimension: {width} would give {want} singular values, the observations have {have}"
        return ""

    def score(self, observations: Observations, data_id: str, task: str) -> list[ScoreRow]:
        arrays, settings = observations.arrays, self.settings
        distance, (sentences, distinct) = arrays["distance"], arrays["sentences"].tolist()
        if not len(distance):
            raise ScoreError(f"{task}: no pair is rated above {settings['positive_above']:g}: there is no alignment")
        spectrum = arrays["spectrum"]
        [drawn] = self._means([observations], data_id, settings["resamples"], settings["seed"])
        bounds = {subset: interval(draws) for (subset, _, _), draws in drawn.items()}
        rows = [
            self.row(task, "alignment", geometry.alignment(distance, settings["alpha"]), len(distance), bounds[None]),
            self.row(task, "uniformity", float(arrays["uniformity"]), sentences),
            self.row(task, "anisotropy", float(arrays["anisotropy"]), distinct),
            self.row(task, "explained by first", 100 * geometry.explained_by_first(spectrum), sentences),
            self.row(task, "effective rank", geometry.effective_rank(spectrum), sentences),
        ]
        for name, cosine in geometry.by_rating(arrays["cosine"], arrays["gold"]).items():
            rows.append(self.row(task, "mean cosine", float(cosine.mean()), len(cosine), bounds[name], subset=name))
        return rows

    def draws(self, observations: Observations, data_id: str, resamples: int, seed: int) -> Drawn:
        """Redraw the positive pairs, and the pairs of each rating group.

        Alignment has no draws where a zero vector left a positive pair out, as other encoders' draws are of other pairs.
        """
        return self.draws_of_many([observations], data_id, resamples, seed)[0]

    def draws_of_many(self, observed: Sequence[Observations], data_id: str, resamples: int, seed: int) -> list[Drawn]:
        """Return each encoder's draws, drawing the counts once for encoders with the same groups of pairs."""
        if not resamples:
            return [{} for _ in observed]
        drawn = self._means(observed, data_id, resamples, seed)
        for observations, draws in zip(observed, drawn, strict=True):
            positive = np.count_nonzero(observations.arrays["gold"] > self.settings["positive_above"])
            if positive != len(observations.arrays["distance"]):
                draws.pop((None, None, "alignment"), None)
        return drawn

    def _means(self, observed: Sequence[Observations], data_id: str, resamples: int, seed: int) -> list[Drawn]:
        """Return for each encoder bootstrap draws of the measures that are means: alignment, and the cosine by rating."""
        drawn: list[Drawn] = [{} for _ in observed]
        by_n: dict[tuple[int, int], list[tuple[Drawn, str | None, str, NDArray[np.float64]]]] = {}
        for observations, means in zip(observed, drawn, strict=True):
            for index, subset, metric, values in self._averaged(observations):
                by_n.setdefault((index, len(values)), []).append((means, subset, metric, values))
        for (index, n), parts in by_n.items():
            # The seed depends on the data, not on the encoder, so that two encoders have the same resamples.
            counts = resample_counts(n, resamples, (seed, index, *data_id.encode()))
            products = np.stack([values for *_, values in parts]) @ counts.T / n
            for (means, subset, metric, _), metric_draws in zip(parts, products, strict=True):
                means[subset, None, metric] = metric_draws
        return drawn

    def _averaged(self, observations: Observations) -> Iterator[tuple[int, str | None, str, NDArray[np.float64]]]:
        """Yield (number that enters the seed, subset, metric, values whose mean is the score)."""
        arrays = observations.arrays
        groups = geometry.by_rating(arrays["cosine"], arrays["gold"])
        for index, name in enumerate(geometry.RATINGS, 1):
            if name in groups:
                yield index, name, "mean cosine", groups[name]
        yield 0, None, "alignment", arrays["distance"] ** self.settings["alpha"]
