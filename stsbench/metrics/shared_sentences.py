"""Variance of correlations and their differences where scored pairs share sentences, and so are not independent.

A correlation r over n pairs is its true value plus the mean of psi_i plus smaller terms, psi_i being pair i's influence
value. If two pairs are dependent only where they share a sentence, the variance of r is the sum of E psi_i psi_j over all
(i, j) that share one, over n^2. Estimated with the values themselves (Fafchamps & Gubert 2007, The formation of risk sharing
networks; Aronow, Samii & Assenova 2015, Cluster-robust variance estimation for dyadic data; Tabord-Meehan 2019, Inference
with dyadic data) it is

    V = [sum over sentences of (sum of psi over its pairs)^2 - sum over items of (sum of psi over its rows)^2] / n^2,

an item being all rows of one unordered pair of different texts, which the first sum counts twice. The same of two encoders'
values psi_a - psi_b is the variance of their difference.

V is biased downwards, for psi is centred, and has few degrees of freedom where few sentences hold many pairs. Both are
corrected under a working model, psi = effects of the two sentences (a share of the variance, which the values estimate) and
of the item (Bell & McCaffrey 2002, Bias reduction in standard errors for linear regression with multi-stage samples; Imbens
& Kolesar 2016, Robust standard errors in small samples: some practical advice).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import inf
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]
FEWEST_DF = 2.0  # fewer degrees of freedom give useless intervals: at 2 they are 2.2 times as wide as at many
TOO_FEW_SENTENCES = "so many pairs share a sentence that they cannot tell how it would be with other sentences"
_MOST = 20_000_000  # the most links between rows for which matrices are formed: 240 MB each, and several of them
_SHARES = np.linspace(0, 1, 6)  # shares of the variance at which corrections are computed, and interpolated between


def pearson_influence(x: Floats, y: Floats) -> tuple[float, Floats]:
    """Return Pearson's r of (n,) x and y, neither of them constant, and (n,) influence values, of mean 0.

    They are uv - r (u^2 + v^2) / 2 with the standardised u and v (Devlin, Gnanadesikan & Kettenring 1975, Robust estimation
    and outlier detection with correlation coefficients).
    """
    u, v = ((values - values.mean()) / values.std() for values in (x, y))
    r = float(np.mean(u * v))
    return r, np.asarray(u * v - r / 2 * (u * u + v * v))


def spearman_influence(x: Floats, y: Floats) -> tuple[float, Floats]:
    """Return Spearman's r of (n,) x and y, neither of them constant, and (n,) influence values, of mean 0; ties share
    mid-ranks (Croux & Dehon 2010, Influence functions of the Spearman and Kendall correlation measures).

    With u, v the mid-ranks over n less 1/2, r = S_uv / sqrt(S_uu S_vv). A pair changes S_uv by its own product and through
    the ranks of all other pairs: u_i v_i + mean_j v_j [x_j > x_i] + mean_j u_j [y_j > y_i], where equal values count half;
    S_uu and S_vv likewise, which without ties are constant.
    """
    of_x, of_y = _Ranks(x), _Ranks(y)
    u, v = of_x.centred, of_y.centred
    s_uv, s_uu, s_vv = float(np.mean(u * v)), float(np.mean(u * u)), float(np.mean(v * v))
    r = float(s_uv / np.sqrt(s_uu * s_vv))
    moves_uv = u * v - s_uv + of_x.mean_above(v) + of_y.mean_above(u)
    moves_uu = u * u - s_uu + 2 * of_x.mean_above(u)
    moves_vv = v * v - s_vv + 2 * of_y.mean_above(v)
    return r, np.asarray(moves_uv / np.sqrt(s_uu * s_vv) - r / 2 * (moves_uu / s_uu + moves_vv / s_vv))


INFLUENCE = {"spearman": spearman_influence, "pearson": pearson_influence}


class _Ranks:
    """Mid-ranks of x (n,). centred: (n,) mid-ranks divided by n, less 1/2."""

    def __init__(self, x: Floats) -> None:
        self._order = np.argsort(x, kind="stable")
        ordered = x[self._order]
        self._first = np.searchsorted(ordered, ordered, side="left")
        self._end = np.searchsorted(ordered, ordered, side="right")
        self.centred = np.empty(len(x))
        self.centred[self._order] = (self._first + self._end) / (2 * len(x)) - 0.5

    def mean_above(self, values: Floats) -> Floats:
        """Return (n,) the mean over j of values_j [x_j > x_i], where equal x count half; centred to mean 0."""
        from_here = np.append(np.cumsum(values[self._order][::-1])[::-1], 0.0)
        result = np.empty(len(values))
        result[self._order] = (from_here[self._first] + from_here[self._end]) / (2 * len(values))
        return np.asarray(result - result.mean())


class SharedSentences:
    """The graph of n pairs or triplets: texts are vertices, rows are edges, and all rows of the same texts are one item.

    dependent: whether any two items share a sentence; else items are independent. large: whether the rows have too many
    links to form a matrix of them.
    """

    def __init__(self, *sides: Ints, stratum: Ints | None = None) -> None:
        """Build the graph. sides: (n,) numbers of the texts on each side, equal for equal texts on any side. stratum: int
        (n,), 0 to k - 1, of strata with fixed numbers of rows, as in a bootstrap within strata."""
        from scipy import sparse

        self.n = n = len(sides[0])
        self._texts, rows = len(sides), np.arange(n)
        number = np.sort(np.unique(np.concatenate(sides), return_inverse=True)[1].reshape(len(sides), n), axis=0)
        fresh = np.concatenate([np.ones((1, n), bool), number[1:] != number[:-1]])  # a text that a row has twice counts once
        vertex, at = number[fresh], np.tile(rows, (len(sides), 1))[fresh]
        self._incidence = sparse.csr_array((np.ones(len(at)), (vertex, at)), shape=(int(number.max(initial=-1)) + 1, n))
        item = _numbered(number)
        self._item = sparse.csr_array((np.ones(n), (item, rows)), shape=(int(item.max(initial=-1)) + 1, n))
        # Inclusion and exclusion: rows that share two texts are counted at each, so pairs of texts are subtracted again.
        self._several: list[tuple[int, Any]] = []
        for size in range(2, len(sides) + 1):
            parts = [list(part) for part in combinations(range(len(sides)), size)]
            group = _numbered(np.concatenate([number[part] for part in parts], axis=1))
            there = np.concatenate([fresh[part].all(axis=0) for part in parts])
            entries = (1.0 * there, (group, np.tile(rows, len(parts))))
            shape = int(group.max(initial=-1)) + 1, n
            self._several.append(((-1) ** (size - 1), sparse.csr_array(entries, shape=shape)))
        self._stratum = np.zeros(n, np.int64) if stratum is None else np.asarray(stratum)
        self._sizes = np.bincount(self._stratum)
        degrees = np.asarray(self._incidence.sum(axis=1), dtype=np.float64)
        self.large, self._groups = float(degrees @ degrees) > _MOST, float((degrees**2).sum() ** 2 / (degrees**4).sum())
        self._linked = self._quadratic(np.ones(n)) - self._squares_of_items(np.ones(n))
        self.dependent = self._linked > 0
        self._corrections: dict[bytes, Floats] = {}
        self._multipliers: tuple[tuple[int, int], NDArray[np.float32]] | None = None

    def centred(self, values: Floats) -> Floats:
        """Return (n,) values less their mean within each stratum, as the strata's sizes are fixed."""
        return np.asarray(values - (np.bincount(self._stratum, values) / self._sizes)[self._stratum])

    def variance(self, values: Floats) -> float:
        """Return the variance V of (n,) centred influence values, which may be negative by chance."""
        return self._quadratic(values) / self.n**2

    def item_variance(self, values: Floats) -> float:
        """Return the variance of (n,) centred influence values that independent items would have."""
        return self._squares_of_items(values) / self.n**2

    def share(self, values: Floats) -> float:
        """Return the share of the variance of (n,) centred values that is due to sentences, 0 to 1: the correlation of rows
        that share a sentence, times the number of sentences in a row."""
        square = float(np.mean(values**2))
        if not self.dependent or square == 0:
            return 0.0
        products = self._quadratic(values) - self._squares_of_items(values)
        return float(np.clip(self._texts * products / (self._linked * square), 0, 1))

    def corrections(self, share: float, weight: Floats | None = None) -> tuple[float, float]:
        """Return V's correction factor and its degrees of freedom under the working model; (inf, 0) where V is always 0.

        For errors e with the model's covariance W, V is a quadratic form e'Ae, A = MKM, with K the links between rows and M
        the centring within strata: E V = tr AW, where the truth is 1'W1, and df = (tr AW)^2 / tr AWAW (Satterthwaite).
        weight: (n,) the factors of the pairs' values in a mean of several scores.

        For a large graph, they are G / (G - 1) and G - 1, with G the effective number of its sentences (Kish 1965).
        """
        from scipy import sparse

        if self.large:
            return (self._groups / (self._groups - 1), self._groups - 1) if self._groups > 1 + 1e-9 else (inf, 0.0)

        links, shared = self._links(), self._incidence.T @ self._incidence
        model = (1 - share) * (self._item.T @ self._item) + share / self._texts * shared
        if weight is not None:
            scale = sparse.diags_array(weight)
            model = scale @ model @ scale
        truth = float(model.sum())
        q = np.zeros((self.n, len(self._sizes)))  # orthonormal columns: M = I - qq'
        q[np.arange(self.n), self._stratum] = 1 / np.sqrt(self._sizes[self._stratum])
        linked, modelled = links @ q, model @ q
        within, modelled_within = q.T @ linked, q.T @ modelled
        product = links @ model
        trace = product.trace() - 2 * np.trace(modelled.T @ linked) + np.trace(within @ modelled_within)
        p = linked - q @ within / 2  # A = K - qp' - pq'
        p_modelled, crossed = model @ p, p.T @ modelled
        square = (product.multiply(product.T).sum() - 4 * np.trace(p_modelled.T @ (links @ modelled))
                  + 2 * np.trace(crossed @ crossed) + 2 * np.trace((p.T @ p_modelled) @ modelled_within))
        if trace <= 1e-9 * truth or square <= 0:
            return inf, 0.0
        return truth / float(trace), float(trace**2 / square)

    def multipliers(self, resamples: int, seed: int) -> NDArray[np.float32]:
        """Return (resamples, n) normal numbers with the dependence between rows that `variance` supposes: score +
        multipliers @ values / n are draws of a score, which for all encoders use the same multipliers.

        Their covariance is the matrix of links without its negative eigenvalues (a multiplier bootstrap: Davezies,
        D'Haultfoeuille & Guyonvarch 2021, Empirical process results for exchangeable arrays). The last ones are cached.
        """
        if self._multipliers is None or self._multipliers[0] != (resamples, seed):
            self._multipliers = (resamples, seed), self._drawn_multipliers(resamples, seed)
        return self._multipliers[1]

    def _drawn_multipliers(self, resamples: int, seed: int) -> NDArray[np.float32]:
        from scipy.sparse.csgraph import connected_components

        links = self._links().tocsr()
        links.eliminate_zeros()
        count, component = connected_components(links, directed=False)
        sizes = np.bincount(component, minlength=count)
        linked = np.bincount(component[links.nonzero()[0]], minlength=count)
        rng, out = np.random.default_rng([seed, self.n]), np.empty((resamples, self.n), np.float32)
        single = (linked == sizes**2)[component]  # where all rows of a component are linked, one number is that of all
        out[:, single] = rng.standard_normal((resamples, count), np.float32)[:, component[single]]
        for number in np.flatnonzero(linked < sizes**2):
            rows = np.flatnonzero(component == number)
            values, vectors = np.linalg.eigh(links[rows][:, rows].toarray())
            # The symmetric root is one: eigenvectors of equal values, of which there are many, differ between processors.
            root = (vectors * np.sqrt(np.where(values > 1e-9, values, 0.0))) @ vectors.T
            out[:, rows] = rng.standard_normal((resamples, len(rows)), np.float32) @ root.astype(np.float32)
        return out

    def stretch(self, values: Floats, weight: Floats | None = None) -> float:
        """Return the factor, 1 or more, by which deviations of a bootstrap over independent items are stretched; infinite
        where V has fewer than 2 degrees of freedom, as where all pairs share one sentence.

        values: (n,) influence values of a score or a difference; weight: as for `corrections`. A stretched interval is the
        wider of the bootstrap's and the one from V with Student's quantile.
        """
        from scipy.special import ndtri, stdtrit

        if not self.dependent:
            return 1.0
        values = self.centred(values)
        share = self.share(values)
        factor, df = (float(np.interp(share, _SHARES, column)) for column in self._at_shares(weight))
        if not np.isfinite(factor) or df < FEWEST_DF:
            return inf
        items = self.item_variance(values)
        if items <= 0:
            return 1.0
        ratio = np.sqrt(max(factor * self.variance(values), 0.0) / items)
        return max(1.0, float(stdtrit(df, 0.975) / ndtri(0.975) * ratio))

    @cached_property
    def hopeless(self) -> bool:
        """Return whether `stretch` is infinite for all scores: too few sentences to generalise to others."""
        return self.dependent and float(self._at_shares(None)[1].max()) < FEWEST_DF

    def _at_shares(self, weight: Floats | None) -> Floats:
        """Return (2, 6) the `corrections` at _SHARES, cached, as they depend on the pairs and the weight alone."""
        key = b"" if weight is None else weight.tobytes()
        if key not in self._corrections:
            self._corrections[key] = np.array([self.corrections(share, weight) for share in _SHARES.tolist()]).T
        return self._corrections[key]

    def _links(self) -> Any:
        """Return a sparse (n, n) matrix, 1 for two rows that share a sentence; some of its zeros may be stored."""
        links = self._incidence.T @ self._incidence
        for sign, groups in self._several:
            links = links + sign * (groups.T @ groups)
        return links

    def _quadratic(self, values: Floats) -> float:
        """Return the sum of values_i values_j over all ordered pairs of rows that share a sentence."""
        total = np.sum((self._incidence @ values) ** 2)
        for sign, groups in self._several:
            total += sign * np.sum((groups @ values) ** 2)
        return float(total)

    def _squares_of_items(self, values: Floats) -> float:
        return float(np.sum((self._item @ values) ** 2))


def _numbered(columns: Ints) -> NDArray[np.int64]:
    """Return int64 (n,), equal numbers for equal columns of (k, n)."""
    numbers = np.zeros(columns.shape[1], np.int64)
    for row in columns:
        numbers = np.unique(numbers * (int(row.max(initial=0)) + 1) + row, return_inverse=True)[1].astype(np.int64)
    return numbers


class Dependence(Protocol):
    """Interface of a dependence between items, such as `SharedSentences`, by which deviations of draws are stretched."""

    def stretch(self, values: Floats, weight: Floats | None = None) -> float:
        """Return the factor, 1 or more, by which deviations of draws are stretched. values: (n,) influence values."""


@dataclass(frozen=True, eq=False)
class Influence:
    """A score and its influence values. values: (n,), one for each pair, in the score's unit; graph: the dependence of the
    pairs; weight: (n,) the factors of the values in a mean of several scores, None where it is not one."""

    score: float
    values: Floats
    graph: Dependence
    weight: Floats | None = None

    @cached_property
    def stretch(self) -> float:
        """Return the factor by which deviations of the score's draws are stretched (`SharedSentences.stretch`)."""
        return self.graph.stretch(self.values, self.weight)

    def stretched(self, draws: Floats) -> Floats:
        """Return (b,) draws of the score with stretched deviations; NaN where the factor is infinite."""
        return stretched(draws, self.score, self.stretch)

    def joint(self, draws: Floats, seed: int) -> Floats:
        """Return (b,) draws of the score with the variance of `stretched` ones, which are correlated with those of other
        encoders on the same pairs through sentences and items: for joint tests of many differences."""
        if not isinstance(self.graph, SharedSentences) or self.graph.large or not np.isfinite(self.stretch):
            return self.stretched(draws)
        values = self.graph.centred(self.values)
        deviations = self.graph.multipliers(len(draws), seed) @ values.astype(np.float32)
        spread = float(np.std(deviations))
        error = np.sqrt(self.graph.item_variance(values)) * self.stretch
        return self.score + deviations.astype(np.float64) * (error / spread if spread else 0.0)


def mean_influence(influences: Sequence[Influence]) -> Influence:
    """Return the influence of the mean of several scores on the same pairs, such as those of several seeds."""
    first = influences[0]
    values = np.mean([one.values for one in influences], axis=0)
    return Influence(float(np.mean([one.score for one in influences])), values, first.graph, first.weight)


def stretched(draws: Floats, centre: float, factor: float) -> Floats:
    """Return (b,) draws whose deviations from `centre` are multiplied by `factor`; NaN where that is infinite, and the same
    array where it is 1."""
    if factor == 1:
        return draws
    return np.asarray(centre + factor * (draws - centre)) if np.isfinite(factor) else np.full_like(draws, np.nan)


def stretched_pair(of_a: Floats, of_b: Floats, a: Influence, b: Influence) -> tuple[Floats, Floats]:
    """Return (b,) draws of two scores, changed equally in opposite directions so that the deviations of their difference are
    stretched by its own factor; NaN where that is infinite."""
    factor = a.graph.stretch(a.values - b.values, a.weight)
    if factor == 1:
        return of_a, of_b
    if not np.isfinite(factor):
        return np.full_like(of_a, np.nan), np.full_like(of_b, np.nan)
    half = (factor - 1) / 2 * ((of_a - of_b) - (a.score - b.score))
    return np.asarray(of_a + half), np.asarray(of_b - half)


def joined(parts: Sequence[tuple[Influence, Any]], graph: SharedSentences, shares: Sequence[float]) -> Influence:
    """Return the influence of a weighted mean of scores of parts of `graph`'s pairs. parts: each score's influence and its
    rows; shares: the weights, which sum to 1."""
    values, weight = np.zeros(graph.n), np.zeros(graph.n)
    for (part, rows), share in zip(parts, shares, strict=True):
        times = share * graph.n / len(part.values)
        values[rows] = part.values * times
        weight[rows] = times if part.weight is None else part.weight * times
    score = float(np.dot([part.score for part, _ in parts], shares))
    return Influence(score, values, graph, weight)
