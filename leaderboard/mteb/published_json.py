"""The page's file of MTEB's published results, and what the index says of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from stsbench.leaderboard.page.index_json import SCHEMA

from .results import ITEMS
from .rows import FLAGS, PublishedRow
from .standings import AsPublished, MeasuredHere, Standing

ID, TITLE = "mteb-as-published", "MTEB, as published"
DIGITS = 4  # of a score x 100: two more than are shown, as in other tables
FILE, BY_LANGUAGE = f"published/{ID}", "published/mteb-by-language"


def published_index(published: AsPublished) -> dict[str, Any]:
    """What the page says before the file is loaded: how many rows could be first, and which entries measure one of them."""
    by_model = {row.model: row for row in published.rows}
    return {
        "id": ID, "title": TITLE, "file": f"{FILE}.json", "ranked": published.ranked, "first": len(published.tier(1)),
        "by_language": f"{BY_LANGUAGE}.json", "languages": [[one.task, one.name] for one in published.languages],
        "measured_here": {here.entry: {"model": here.model, "published": round(by_model[here.model].mean, DIGITS),
                                       "measured": round(here.mean, DIGITS)}
                          for here in published.measured_here if here.model in by_model},
    }


def published_shard(published: AsPublished) -> dict[str, Any]:
    """The rows with their ranks and doubts, and what was tested, under which assumptions."""
    here = {one.model: one for one in published.measured_here}
    used = {key for row in published.rows for key in row.flags}
    return {
        "schema_version": SCHEMA, "id": ID, "title": TITLE, "source": published.source.model_dump(mode="json"),
        "tasks": [{"name": task, "items": items} for task, items in ITEMS.items()],
        "flags": {key: {"label": label, "about": about} for key, (label, about) in FLAGS.items() if key in used},
        "ranked": published.ranked,
        "separated": [asdict(one) for one in published.separated],
        "shared": published.shared and asdict(published.shared), "check": published.check and asdict(published.check),
        "rows": [_row(row, standing, here.get(row.model))
                 for row, standing in zip(published.rows, published.standings, strict=True)],
    }


def language_shard(published: AsPublished) -> dict[str, Any]:
    """Of each language its rows as [model, score, first rank, last rank], without ranks where there are none; and a task's
    doubts: model -> flags."""
    models = sorted({row.model for one in published.languages for row in one.rows})
    at = {model: index for index, model in enumerate(models)}
    doubts: dict[str, dict[int, list[str]]] = {}
    for one in published.languages:
        of_task = doubts.setdefault(one.task, {})
        of_task |= {at[row.model]: [key for key, _ in row.doubts] for row in one.rows if row.doubts}
    return {
        "schema_version": SCHEMA, "id": "mteb-by-language", "models": models, "doubts": doubts,
        "languages": [{
            "task": one.task, "name": one.name, "pairs": one.pairs, "ranked": one.ranked, "first": one.first,
            "refused": one.refused,
            "rows": [[at[row.model], round(row.score, DIGITS), *([] if row.first is None else [row.first, row.last])]
                     for row in one.rows],
        } for one in published.languages],
    }


def _row(row: PublishedRow, standing: Standing | None, here: MeasuredHere | None) -> dict[str, Any]:
    folders = list(dict.fromkeys(row.folders.values()))
    fields = {
        "model": row.model, "mean": round(row.mean, DIGITS),
        "scores": [round(row.scores[task], DIGITS) for task in ITEMS],
        "rank": standing and [standing.position, standing.first, standing.last], "tier": standing and standing.tier,
        "jointly": standing and list(standing.jointly), "on_items": standing and list(standing.on_items),
        "unranked": row.unranked, "folders": folders, "versions": list(row.versions),
        "doubts": [list(doubt) for doubt in row.doubts],
        "measured": here and {"entry": here.entry, "mean": round(here.mean, DIGITS),
                              "scores": [round(here.scores[task], DIGITS) for task in ITEMS]},
    }
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}
