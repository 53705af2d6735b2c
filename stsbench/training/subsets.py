"""Few labels: which sections of a recipe a subset is drawn in, and the scores over subsets and seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from stsbench.errors import StsbenchError
from stsbench.training.recipe import DataSettings, LabelledSettings, Recipe
from stsbench.training.report import spread
from stsbench.training.seeds import over_runs, shown_scores, shown_sd, summarise_seeds


def samples(settings: DataSettings | None) -> bool:
    """Whether these rows are drawn from more."""
    return settings is not None and (settings.share < 1 or settings.sample is not None)


def first_subset(recipe: Recipe) -> int:
    """The sample_seed of the first subset: that of the rows that are sampled, or 0. StsbenchError where none are."""
    return _varied(recipe).sample_seed or 0


def with_subset(recipe: Recipe, number: int) -> Recipe:
    """The recipe with the subset `number`: the sample_seed of the labelled rows, if they are sampled, else of the data.

    Another section has the same rows of the same file: its sample_seed is set, too. Other files keep theirs.
    """
    file, update = _varied(recipe).file, {"sample_seed": number}

    def drawn(settings: DataSettings | None) -> bool:
        return settings is not None and samples(settings) and settings.file == file

    stages = {
        name: {**parts, "data": {**parts["data"], **update}}
        if "data" in parts and drawn(recipe.stage_data(name)) else parts
        for name, parts in recipe.stages.items()
    }  # fmt: skip
    data: DataSettings = recipe.data.model_copy(update=update) if drawn(recipe.data) else recipe.data
    labelled: LabelledSettings | None = recipe.labelled
    if labelled is not None and drawn(labelled):
        labelled = labelled.model_copy(update=update)
    return recipe.model_copy(update={"data": data, "labelled": labelled, "stages": stages})


def _varied(recipe: Recipe) -> DataSettings:
    """The settings whose sample is drawn anew for each subset."""
    stages = [recipe.stage_data(name) for name, parts in recipe.stages.items() if "data" in parts]
    for settings in (recipe.labelled, recipe.data, *stages):
        if settings is not None and samples(settings):
            return settings
    raise StsbenchError(
        "--subsets: nothing is sampled, so every subset would be the whole: set labelled.share or data.share (0.01: 1 %), "
        "or labelled.sample or data.sample"
    )


def summarise_subsets(runs: Mapping[int, Sequence[Path]]) -> dict[str, Any]:
    """What RUN/subsets.json holds, from the runs of each subset, a seed each.

    {"subsets", "seeds", "rows": {subset: {stage, or "labelled": rows trained on}}, "dev", "dev_last", "tests"}: the last
    three as of `summarise_seeds`, over all runs, with values under "SUBSET/SEED", and with "subsets": mean, sd, n and values
    of the means of each subset. Raises StsbenchError as `summarise_seeds` does.
    """
    seeds: list[int] = []
    every: dict[str, Path] = {}
    rows: dict[int, dict[str, int]] = {}
    for subset, folders in runs.items():
        own = summarise_seeds(folders)["seeds"]
        seeds += [seed for seed in own if seed not in seeds]
        every |= {f"{subset}/{seed}": folder for seed, folder in zip(own, folders, strict=True)}
        stored = json.loads((folders[0] / "train.json").read_text("utf-8"))
        rows[subset] = {name: data["rows"] for name, data in stored["data"].items()}
    found = over_runs(every)
    for entry in [found["dev"], found["dev_last"], *found["tests"]]:
        if entry is not None:
            entry["subsets"] = spread(_means(entry["values"]))
    return {"subsets": list(runs), "seeds": seeds, "rows": rows, **found}


def _means(values: Mapping[str, float]) -> dict[int, float]:
    """Subset -> the mean over its seeds."""
    groups: dict[int, list[float]] = {}
    for key, value in values.items():
        groups.setdefault(int(key.partition("/")[0]), []).append(value)
    return {subset: fmean(each) for subset, each in groups.items()}


def subset_table(found: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """`summarise_subsets` for a terminal: (what, mean, sd over all runs, n, sd over the means of the subsets)."""
    return [
        (name, f"{row['mean']:.{digits}f}", shown_sd(row, digits), str(row["n"]), shown_sd(row["subsets"], digits))
        for name, row, digits in shown_scores(found)
    ]


def subset_rows(found: dict[str, Any]) -> list[str]:
    """A line on the rows of each subset."""
    return [
        f"subset {subset}: {', '.join(f'{name} {count:,} rows' for name, count in rows.items())}"
        for subset, rows in found["rows"].items()
    ]
