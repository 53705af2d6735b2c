"""Boards of any size, to measure the page at: every number and name in them is drawn, none was measured."""

from __future__ import annotations

from itertools import product

import numpy as np

from stsbench.leaderboard.ranks.board import Board, Cell, Exposure, PairTests, Provenance, Rank, Row, Tab
from stsbench.metrics.ranks import tiers

TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
PARTS = tuple((task, f"part-{i}") for task in TASKS for i in range(3))
SIZES = {"MiniLM-L6": 384, "BERT-base": 768, "RoBERTa-large": 1024, "words": 300}
METHODS = ("SimCSE", "DiffCSE", "PromptBERT", "ConSERT", "SBERT", "whitening")


def synthetic(rows, published=60, most=None):
    """Six STS tabs of `rows` measured rows each, with `published` rows in the first. The same size gives the same board.
    most: so many tabs."""
    rng = np.random.default_rng(rows)
    quality = np.sort(rng.normal(70, 6, rows))[::-1]
    tabs: list[Tab] = []
    for metric, how in [*product(("spearman", "pearson"), ("all", "mean", "wmean"))][:most]:
        ranked = _ranked(quality[:, None] + rng.normal(0, 4, (rows, len(TASKS))), rng)
        tabs.append(Tab(
            f"sts-{metric}-{how}", "sts", f"{metric.title()}, {how}", "Drawn at random.", metric, how,
            (*TASKS, "Avg"), "Avg", 2, False, ranked,
            () if tabs else tuple(_published(i, rng) for i in range(published)), settings={"similarity": "cosine"},
            data={task: f"{k:064x}" for k, task in enumerate(TASKS)}, pairs=_pairs(ranked, rng),
        ))
    return Board(tuple(tabs), {f"entry-{i:04}": _provenance(i) for i in range(rows)})


def _ranked(scores, rng):
    average, half = scores.mean(1), 1.2
    of_rows = tiers(average, np.abs(average[:, None] - average) > half)
    rows = []
    for place, i in enumerate(np.argsort(-average).tolist(), start=1):
        first = 1 + int((average > average[i] + half).sum())
        last = len(average) - int((average < average[i] - half).sum())
        cells = {task: _cell(scores[i, k], rng) for k, task in enumerate(TASKS)} | {"Avg": _cell(average[i], rng)}
        rows.append(Row(
            f"entry-{i:04}", "measured", f"{METHODS[i % len(METHODS)]} {i}", list(SIZES)[i % len(SIZES)],
            ("unsup", "sup", "semi")[i % 3], cells, ("nli",) if i % 3 else ("dev-selected",), seeds=3 if i % 2 else 1,
            rank=Rank(place, first, last, "", (first, place), tier=int(of_rows[i])), source=f"entry-{i:04}",
            link=f"https://arxiv.org/abs/2{i % 5}0{1 + i % 9}.0{i % 9000:04}", entry=f"entry-{i:04}",
            subsets={part: _cell(float(rng.uniform(40, 90)), rng) for part in PARTS},
            exposure={"Avg": Exposure(("unknown", "yes", "no")[i % 3], "invented")},
        ))
    return tuple(rows)


def _pairs(ranked, rng):
    """Tests as the ranks of the rows have them: jointly, scores differ that are 1.2 apart."""
    values = np.array([row.cells["Avg"].value for row in ranked])
    sizes = np.abs(values[:, None] - values)
    drawn = rng.uniform(0.3, 1.2, sizes.shape)
    return PairTests(tuple(row.id for row in ranked), sizes > 1.2, np.minimum(drawn, drawn.T))


def _cell(value, rng):
    low, high = rng.uniform(0.8, 1.6, 2)
    return Cell(float(value), float(value - low), float(value + high), float(rng.uniform(0.1, 0.9)), 1379)


def _published(i, rng):
    cells = {task: Cell(round(float(rng.uniform(50, 85)), 2)) for task in (*TASKS, "Avg")}
    return Row(f"paper:{1 + i // 10}:{i % 10}", "published", f"Printed {i}", "BERT-base", "unsup", cells,
               source=f"Somebody 20{10 + i % 14}, table {1 + i // 10}", link="https://example.org/abs/1", year=2010 + i % 14)


def _provenance(i):
    run = {
        "fingerprint": f"{i:064x}", "encoder": {"name": f"runs/model-{i}", "pooler": "mean", "max_length": 512},
        "width": list(SIZES.values())[i % len(SIZES)], "seed": i % 5,
        "versions": {"stsbench": "0.1.0", "torch": "2.13.0"}, "python": "3.11.7", "revision": [f"{i:040x}"],
        "device": ["cpu"], "command": [f"stsbench eval --model runs/model-{i}"],
        "measured": ["2026-11-20T10:00:00+00:00", "2026-11-21T10:00:00+00:00"],
        "records": f"9 in leaderboard/measured/entry-{i:04}/",
    }
    return Provenance(f"entry-{i:04}", f"{METHODS[i % len(METHODS)]} {i}", "Invented.", "", (run, run) if i % 2 else (run,))
