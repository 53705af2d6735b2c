"""How often the board's ranks say that equal rows differ: the table of docs/findings/statistics.md.

`python benchmarks/family_wise_error.py [--rounds N] [--rows R] [--unequal | --first]`: N simulations (1000 by default) of up
to 17 rows, half as many of more; --rows: of R rows only; --unequal: only rows with unequal numbers of seeds; --first: only
the table of 3, 5 and 10 seeds, with a first row that is like the others or noisier. It takes some fifteen minutes.

Every score is 0 plus noise of the items, normal with a known sd, plus the mean over the seeds' noise; an error is a
pair of rows, any, that is called significantly different.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from markdown_table import line
from scipy import stats

from stsbench.metrics.noise import Noise, Scores
from stsbench.metrics.paired import critical_value
from stsbench.metrics.ranks import significantly_different

DRAWS = 299  # the board has 1000
ROWS = (17, 50, 100)
SPREADS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "half .3, half 3": lambda row: np.where(row % 2, 0.3, 3.0),
    "half .5, half 1": lambda row: np.where(row % 2, 0.5, 1.0),
    "one 3, the others .3": lambda row: np.where(row == 0, 3.0, 0.3),
}


def simulated(rng: np.random.Generator, sds: np.ndarray, seeds: int, item_sd: float, common: float = 0.0) -> Scores:
    """Equal rows. sds: (r,) over seeds; common: correlation between two rows' scores of one seed."""
    rows = len(sds)
    normal = np.sqrt(common) * rng.normal(size=seeds) + np.sqrt(1 - common) * rng.normal(size=(rows, seeds))
    scores = rng.normal(0, item_sd, (rows, 1)) + normal * sds[:, None]
    values = scores.mean(axis=1)
    draws = values[:, None] + rng.normal(0, item_sd, (rows, DRAWS))
    return Scores(values, draws, list(scores) if seeds > 1 else ())


def before(scores: Scores, rng: np.random.Generator) -> bool:
    """As ranks were made until November 2026: a normal deviate as wide as Student's 95 % range, one step."""
    draws = scores.draws
    if scores.seeds:
        count = len(scores.seeds[0])
        wider = stats.t.ppf(0.975, count - 1) / stats.norm.ppf(0.975) / np.sqrt(count)
        draws = draws + wider * np.std(scores.seeds, axis=1, ddof=1)[:, None] * rng.standard_normal(draws.shape)
    largest, statistic = np.zeros(DRAWS), 0.0
    for i in range(len(draws) - 1):
        drawn = draws[i] - draws[i + 1 :]
        difference = scores.values[i] - scores.values[i + 1 :]
        error = drawn.std(axis=1, ddof=1)
        np.maximum(largest, (np.abs(drawn - difference[:, None]) / error[:, None]).max(axis=0), out=largest)
        statistic = max(statistic, float((np.abs(difference) / error).max()))
    return statistic > critical_value(largest)


def now(scores: Scores, seed: int) -> bool:
    """Whether ranks find any difference: the first step of step-down, which is all of it where no row differs."""
    noise, largest, rows = Noise(scores, np.random.default_rng(seed)), np.zeros(DRAWS), len(scores.values)
    for i in range(rows - 1):
        np.maximum(largest, noise.drawn(np.asarray(i), np.arange(i + 1, rows)).max(axis=0), out=largest)
    return bool((noise.statistics() > critical_value(largest)).any())


def errors(rounds: int, sds: np.ndarray, seeds: int, item_sd: float, common: float = 0.0, pair: bool = False) -> list[str]:
    """Before and now, in percent; for up to 17 rows also how often a row's test alone finds a difference, on average."""
    rows = len(sds)
    rng, wrong = np.random.default_rng([rows, seeds, int(10 * sds.sum()), int(10 * item_sd)]), np.zeros(3)
    rounds, few = (rounds, rounds) if rows < 50 else (rounds // 2, rounds // 5)
    for number in range(rounds):
        scores = simulated(rng, sds, seeds, item_sd, common)
        wrong[0] += before(scores, rng) * rounds / few if number < few else 0
        groups = np.zeros(rows, dtype=np.int64) if pair else None
        scores = Scores(scores.values, scores.draws, scores.seeds, groups)
        wrong[1] += now(scores, number)
        if rows == 17:
            wrong[2] += significantly_different(scores, [number]).alone.any(axis=1).mean()
    percent = [f"{100 * share / rounds:.1f}" for share in wrong]
    return percent if rows == 17 else [*percent[:2], ""]


def noisy_first(
    rounds: int, rows: int, seeds: int, first: float, item_sd: float = 0.3, rest: float = 0.3,
    noise_of: Callable[[Scores, np.random.Generator], Noise] = Noise,
) -> tuple[float, float, float]:
    """Of equal rows whose first has the sd `first` over seeds, and the others `rest`: percent of tabs with any difference,
    jointly; with any by the first row's test alone; and half the mean width of the pairs' joint intervals, in points."""
    rng = np.random.default_rng([rows, seeds, int(10 * first), int(100 * item_sd)])
    wrong, widths = np.zeros(2), np.zeros(rounds)
    sds = np.r_[first, np.full(rows - 1, rest)]
    for number in range(rounds):
        scores = simulated(rng, sds, seeds, item_sd)
        noise, largest = noise_of(scores, np.random.default_rng(number)), np.zeros(DRAWS)
        statistics = noise.statistics()
        for i in range(rows - 1):
            np.maximum(largest, noise.drawn(np.asarray(i), np.arange(i + 1, rows)).max(axis=0), out=largest)
            if i == 0:
                wrong[1] += bool((statistics[0] > critical_value(largest)).any())
        critical = critical_value(largest)
        wrong[0] += bool((statistics > critical).any())
        widths[number] = noise.bound(critical)[np.triu_indices(rows, 1)].mean()
    jointly, alone = 100 * wrong / rounds
    return float(jointly), float(alone), float(widths.mean())


def first_table(rounds: int) -> None:
    """Rows of 3, 5 and 10 seeds, sd .3; the first row's sd is .3 or 1."""
    line("rows", "seeds", "sd of the first", "jointly, %", "first row alone, %", "half width")
    line(*["---:"] * 6)
    for rows, fewer in ((17, 1), (50, 4), (100, 10)):
        for seeds in (3, 5, 10):
            for first in (0.3, 1.0):
                jointly, alone, width = noisy_first(rounds // fewer, rows, seeds, first)
                line(rows, seeds, first, f"{jointly:.1f}", f"{alone:.1f}", f"{width:.2f}")


def unequal(rounds: int, sds: Sequence[float], counts: Sequence[int], item_sd: float) -> list[str]:
    """Of equal rows with `counts` seeds, in percent: any pair jointly; the first row's test alone."""
    rng, wrong = np.random.default_rng([len(sds), sum(counts), int(10 * sum(sds)), int(100 * item_sd)]), np.zeros(2)
    for number in range(rounds):
        truth = rng.normal(0, item_sd, len(sds))
        seeds = [mean + sd * rng.normal(size=count) for mean, sd, count in zip(truth, sds, counts, strict=True)]
        values = np.array([row.mean() for row in seeds])
        draws = values[:, None] + rng.normal(0, item_sd, (len(sds), DRAWS))
        tested = significantly_different(Scores(values, draws, seeds), [number])
        wrong += tested.jointly.any(), tested.alone[0].any()
    return [f"{100 * share / rounds:.1f}" for share in wrong]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--unequal", action="store_true", help="only the table of unequal numbers of seeds")
    parser.add_argument("--first", action="store_true", help="only the table of 3, 5 and 10 seeds")
    options = parser.parse_args()
    rounds = options.rounds
    if options.first:
        first_table(rounds)
        return
    if options.unequal:
        unequal_table(rounds)
        return
    line("rows", "seeds", "sd over seeds", "sd of items", "before, %", "now, %", "a row alone, %")
    line(*["---:"] * 7)
    for rows in ROWS if options.rows is None else (options.rows,):
        line(rows, 1, "any", "any", *errors(rounds, np.zeros(rows), 1, 0.3))
        for sd in (0.3, 1.0, 3.0):
            for item_sd in (0.3, 1.0):
                line(rows, 3, sd, item_sd, *errors(rounds, np.full(rows, sd), 3, item_sd))
    for rows in (2, 4, 8, 17, 50) if options.rows is None else ():
        if rows < 17:
            line(rows, 3, 1.0, 0.3, *errors(rounds, np.ones(rows), 3, 0.3))
        for name, spread in SPREADS.items():
            line(rows, 3, name, 0.3, *errors(rounds, spread(np.arange(rows)), 3, 0.3))
    for rows in (2, 17) if options.rows is None else ():
        for common in (0.0, 0.8):
            name = f"1.0, paired, seeds correlated {common}"
            line(rows, 3, name, 0.3, *errors(rounds, np.ones(rows), 3, 0.3, common, pair=True))
    if options.rows is None:
        unequal_table(rounds)


def unequal_table(rounds: int) -> None:
    """Where the first row has fewer seeds than the others, or is noisier."""
    line("rows", "seeds: first row, others", "their sd: first, others", "sd of items", "jointly, %", "first row alone, %")
    line(*["---:"] * 6)
    for seeds in ((3, 5), (2, 10), (10, 2)):
        for sds in ((1.0, 1.0), (1.0, 0.3)):
            for item_sd in (0.3, 0.05):
                line(2, f"{seeds[0]}, {seeds[1]}", f"{sds[0]}, {sds[1]}", item_sd, *unequal(rounds, sds, seeds, item_sd))
    for first, rest in ((3, 3), (2, 3), (2, 5)):
        for sd in (0.3, 1.0, 3.0):
            cells = unequal(rounds, [sd] + [0.3] * 16, [first] + [rest] * 16, 0.3)
            line(17, f"{first}, {rest}", f"{sd}, 0.3", 0.3, *cells)


if __name__ == "__main__":
    main()
