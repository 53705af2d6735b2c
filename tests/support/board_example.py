"""Invented boards, one with everything a page must be able to show, and some of any size, to measure the page at: no number
or name in them was measured or published."""

import random
from dataclasses import replace
from itertools import count, product
from string import ascii_lowercase

import numpy as np

from stsbench.leaderboard.ranks.board import Board, Cell, Exposure, PairTests, Provenance, Rank, Row, Tab
from stsbench.metrics.ranks import tiers

TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
HOSTILE = "<script>alert(1)</script>"
QUOTES = "\"quotes' & amps"
BACKBONES = ("BERT-base", "BERT-large", "RoBERTa-base", "MiniLM-L6", "GloVe 840B", "none")
WORDS = ("token", "whitened", "contrastive", "prompted", "pooled", "hashed", "averaged", "flow", "mirror", "distilled")
FLAG_SETS = (("nli",), ("nli", "dev-selected"), ("transductive",), (), ("sts",), ("dev-selected",), ())
PARTS = {"STS12": ("headlines-a", "video-b", "news-c"), "STS13": ("forum-d", "glossary-e"), "STS14": ("images-f",)}
SUBSETS = tuple((task, f"part-{i}") for task in TASKS for i in range(3))
SIZES = {"MiniLM-L6": 384, "BERT-base": 768, "RoBERTa-large": 1024, "words": 300}
METHODS = ("SimCSE", "DiffCSE", "PromptBERT", "ConSERT", "SBERT", "whitening")


def board(measured=14, published=60, entries=6):
    """`measured` and `published`: rows of the largest tab. The same arguments give the same board."""
    rng = random.Random(7)
    behind = {id: _provenance(id, f"example {i}", i, QUOTES if i == 1 else "Invented.", HOSTILE if i == 2 else None,
                              2 if i == 0 else 1) for i, id in enumerate(f"entry-{i:02}" for i in range(entries))}
    tabs = [_sts(rng, how, metric, *((measured, published) if (how, metric) == ("all", "spearman") else (5, 8)), entries)
            for metric in ("spearman", "pearson") for how in ("all", "mean", "wmean")]
    tabs += [_transfer(rng, entries), _geometry(rng, entries), _cost()]
    return Board(tuple(tabs), behind)


def _provenance(id, name, i, note="Invented.", encoder=None, seeds=1):
    run = {
        "fingerprint": f"{i:064x}", "encoder": {"name": encoder or f"runs/model-{i}", "pooler": "mean", "max_length": 512},
        "width": list(SIZES.values())[i % len(SIZES)], "revision": [f"{i:040x}"], "device": ["cpu"], "python": "3.11.7",
        "versions": {"stsbench": "0.1.0", "numpy": "2.4.6", "torch": "2.13.0"},
        "command": [f"stsbench eval --model runs/model-{i}"],
        "measured": ["2026-11-20T10:00:00+00:00", "2026-11-21T10:00:00+00:00"],
        "records": f"9 in leaderboard/measured/{id}/"}
    return Provenance(id, name, note, "", tuple({**run, "seed": i % 5 + 100 * seed} for seed in range(seeds)))


def _cells(rng, bounded):
    scores = {task: round(rng.uniform(40, 88), 12 if bounded else 2) for task in TASKS}
    scores["Avg"] = sum(scores.values()) / 7 if bounded else round(sum(scores.values()) / 7, 2)
    return {key: Cell(value, value - 1.25, value + 1.3, n=1379) if bounded else Cell(value) for key, value in scores.items()}


def _sts(rng, how, metric, measured, published, entries):
    rows = []
    for i in range(measured):
        cells = _cells(rng, bounded=True)
        name = {0: HOSTILE, 1: QUOTES, 2: "a method whose name is so long that it has to break " * 2}.get(i, f"example {i}")
        rows.append(Row(
            f"{metric}-{how}-m{i}", "measured", name, BACKBONES[i % 6], ("unsup", "semi", "sup", None)[i % 4], cells,
            FLAG_SETS[i % 7], seeds=5 if i % 3 == 0 else 1, entry=f"entry-{i % entries:02}", card="https://example.org/card",
            link="javascript:alert(2)" if i == 0 else "https://example.org/paper?a=1&b=2", source=f"example {i}",
            subsets={(task, part): Cell(cells[task].value + 1, 50.0, 60.5, n=750) for task in PARTS for part in PARTS[task]},
            best_of=10 if i == 4 else None, unranked="not ranked: its text was changed" if i == 3 else ""))
    rows.sort(key=lambda row: -row.cells["Avg"].value)
    places = count(1)
    for at, row in enumerate(rows):
        if not row.best_of and not row.unranked:
            place = next(places)
            tier = 1 + (place > 3) + (place > 6)
            rows[at] = replace(row, rank=Rank(place, max(1, place - 1), place + 1, ascii_lowercase[place % 26], tier=tier))
    return Tab(
        f"sts-{metric}-{how}", "sts", f"{metric.title()}, {how}", "Cosine of two vectors against the gold scores.", metric,
        how, (*TASKS, "Avg"), "Avg", 2, False, tuple(rows), tuple(_published(rng, how, metric, i) for i in range(published)),
        settings={"similarity": "cosine", "without_overlap": []}, data={task: f"{i:064x}" for i, task in enumerate(TASKS)})


def _published(rng, how, metric, i):
    cells = _cells(rng, bounded=False)
    if i % 9 == 5:
        del cells["STS13"], cells["Avg"]
    if i % 11 == 3:
        cells["STS-B"] = Cell(cells["STS-B"].value, sd=0.42)
    odd = i % 13 == 1 and "Avg" in cells
    name = {0: HOSTILE, 1: QUOTES}.get(i, f"{WORDS[i % 10].title()} {WORDS[(i // 10) % 10]} {i}")
    return Row(
        f"example-{metric}:README/{how}-part:{i}", "published", name, BACKBONES[i % 5],
        ("unsup", "sup", "semi", None)[i % 4], cells, ("best-of-n", "nli") if i == 8 else FLAG_SETS[i % 7],
        seeds=3 if i % 11 == 3 else None, best_of=10 if i == 8 else None,
        average_printed=cells["Avg"].value + 0.03 if odd else None,
        marks=("The printed average is not that of the printed columns.",) if odd else (),
        source=f"Example et al., table {1 + i % 7}", link="https://example.org/abs/1" if i % 2 else "")


def _simple(tab, rng, scores, entries, rows=4):
    """`tab` with so many measured rows, best first by its lead."""
    rows_of_scores = [{name: rng.uniform(*bounds) for name, bounds in scores.items()} for _ in range(rows)]
    rows_of_scores.sort(key=lambda values: values[tab.lead], reverse=not tab.lower_is_better)
    return replace(tab, measured=tuple(
        Row(f"{tab.id}-m{i}", "measured", f"example {i}", BACKBONES[i % 6], "unsup",
            {name: Cell(value, value - 0.1, value + 0.1) for name, value in values.items()},
            rank=Rank(i + 1, 1, rows, "a"), entry=f"entry-{i % entries:02}", source="own")
        for i, values in enumerate(rows_of_scores)))


def _transfer(rng, entries):
    names = ("MR", "CR", "SUBJ", "MPQA", "SST-2", "TREC", "MRPC", "Avg")
    published = tuple(Row(f"transfer-p{i}", "published", f"Example {i}", "BERT-base", "sup",
                          {name: Cell(round(rng.uniform(70, 95), 2)) for name in names}) for i in range(12))
    empty = Tab("transfer-sgd", "transfer", "Accuracy", "Logistic regression on fixed vectors.", "accuracy", None, names,
                "Avg", 2, False, (), published)
    return _simple(empty, rng, dict.fromkeys(names, (70.0, 95.0)), entries)


def _geometry(rng, entries):
    names = ("alignment", "uniformity")
    empty = Tab("geometry-stsb", "geometry", "STS-B", "Alignment and uniformity of unit vectors.", "alignment", None, names,
                "alignment", 3, True, (), ())
    return _simple(empty, rng, {"alignment": (0.1, 0.4), "uniformity": (-3.9, -1.0)}, entries)


def _cost():
    """Published rows alone, with the lead in the second column."""
    rows = tuple(Row(f"example:{i}:1", "published", f"Example {i}", BACKBONES[i], ("unsup", "sup")[i % 2],
                     {"added": Cell(float(i * 7 % 5)), "minutes": Cell(10.0 + i)}, ("nli",) if i == 1 else (),
                     link="https://example.org/abs/2") for i in range(4))
    return Tab("cost-minutes", "cost", "Minutes", "What training takes.", "minutes", None, ("added", "minutes"), "minutes",
               2, True, (), rows)


def synthetic(rows, published=60, most=None):
    """Six STS tabs of `rows` measured rows each, with `published` rows in the first. The same size gives the same board.
    most: so many tabs."""
    rng = np.random.default_rng(rows)
    quality = np.sort(rng.normal(70, 6, rows))[::-1]
    tabs = []
    for metric, how in [*product(("spearman", "pearson"), ("all", "mean", "wmean"))][:most]:
        ranked = _ranked(quality[:, None] + rng.normal(0, 4, (rows, len(TASKS))), rng)
        tabs.append(Tab(
            f"sts-{metric}-{how}", "sts", f"{metric.title()}, {how}", "Drawn at random.", metric, how,
            (*TASKS, "Avg"), "Avg", 2, False, ranked,
            () if tabs else tuple(_drawn_published(i, rng) for i in range(published)), settings={"similarity": "cosine"},
            data={task: f"{k:064x}" for k, task in enumerate(TASKS)}, pairs=_pairs(ranked, rng)))
    behind = (_provenance(f"entry-{i:04}", f"{METHODS[i % len(METHODS)]} {i}", i, seeds=1 + i % 2) for i in range(rows))
    return Board(tuple(tabs), {about.id: about for about in behind})


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
            subsets={part: _cell(float(rng.uniform(40, 90)), rng) for part in SUBSETS},
            exposure={"Avg": Exposure(("unknown", "yes", "no")[i % 3], "invented")}))
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


def _drawn_published(i, rng):
    cells = {task: Cell(round(float(rng.uniform(50, 85)), 2)) for task in (*TASKS, "Avg")}
    return Row(f"paper:{1 + i // 10}:{i % 10}", "published", f"Printed {i}", "BERT-base", "unsup", cells,
               source=f"Somebody 20{10 + i % 14}, table {1 + i // 10}", link="https://example.org/abs/1", year=2010 + i % 14)
