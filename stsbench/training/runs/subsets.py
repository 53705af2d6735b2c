"""Few labels: which sections of a recipe a subset is drawn in, and the scores over subsets and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from stsbench.errors import DataError, StsbenchError
from stsbench.parsing import read_json_object
from stsbench.training.recipes.recipe import DataSettings, LabelledSettings, Recipe
from stsbench.training.runs.report import spread
from stsbench.training.runs.seeds import over_runs, shown_scores, shown_sd, summarise_seeds
from stsbench.wording import counted


def samples(settings: DataSettings | None) -> bool:
    """Whether these rows are drawn from more."""
    return settings is not None and (settings.share < 1 or settings.sample is not None)


def first_subset(recipe: Recipe) -> int:
    """The sample_seed of the first subset: that of the rows that are sampled, or 0. StsbenchError where none are."""
    return _varied(recipe).sample_seed or 0


def with_subset(recipe: Recipe, number: int) -> Recipe:
    """The recipe with the subset `number`: the sample_seed of the labelled rows, if they are sampled, else of the data.

    Another section that samples the same file, however it is spelt, gets the same sample_seed. Other files keep theirs,
    but for stages that take it over from `data`. Raises StsbenchError where nothing is sampled, or one file by two seeds.
    """
    file, update = _file_of(_varied(recipe)), {"sample_seed": number}

    def drawn(settings: DataSettings | None) -> bool:
        return settings is not None and samples(settings) and _file_of(settings) == file

    stages = {
        name: {**parts, "data": {**parts["data"], **update}}
        if "data" in parts and drawn(recipe.stage_data(name)) else parts
        for name, parts in recipe.stages.items()
    }
    data: DataSettings = recipe.data.model_copy(update=update) if drawn(recipe.data) else recipe.data
    labelled: LabelledSettings | None = recipe.labelled
    if labelled is not None and drawn(labelled):
        labelled = labelled.model_copy(update=update)
    return recipe.model_copy(update={"data": data, "labelled": labelled, "stages": stages})


def _varied(recipe: Recipe) -> DataSettings:
    """The settings whose sample is drawn anew for each subset."""
    sections: dict[str, DataSettings | None] = {"labelled": recipe.labelled, "data": recipe.data}
    sections |= {f"stages.{name}.data": recipe.stage_data(name) for name, parts in recipe.stages.items() if "data" in parts}
    sampled = {name: settings for name, settings in sections.items() if settings is not None and samples(settings)}
    if not sampled:
        raise StsbenchError(
            "--subsets: nothing is sampled, so every subset would be the whole: set labelled.share or data.share (0.01: "
            "1 %), or labelled.sample or data.sample"
        )
    first, varied = next(iter(sampled.items()))
    for name, settings in sampled.items():
        seeds = varied.sample_seed, settings.sample_seed
        if _file_of(settings) == _file_of(varied) and None not in seeds and seeds[0] != seeds[1]:
            raise StsbenchError(
                f"--subsets: {first}.sample_seed is {seeds[0]} and {name}.sample_seed {seeds[1]}, both of {varied.file}: "
                "set both to the first subset's"
            )
    return varied


def _file_of(settings: DataSettings) -> Path | None:
    """Where the file is, whichever way it is spelt."""
    return None if settings.file is None else Path(settings.file).expanduser().resolve()


def summarise_subsets(runs: Mapping[int, Sequence[Path]]) -> dict[str, Any]:
    """What RUN/subsets.json holds, from the runs of each subset, a seed each.

    {"subsets", "seeds", "rows": {subset: {stage, or "labelled": rows trained on}}, "dev", "dev_last", "tests", "shared"}:
    the last four as of `summarise_seeds`, over all runs, with values under "SUBSET/SEED", and the scores with "subsets":
    mean, sd, n and values of the means of each subset. Raises StsbenchError as `summarise_seeds` does.
    """
    seeds: list[int] = []
    every: dict[str, Path] = {}
    rows: dict[int, dict[str, int]] = {}
    for subset, folders in runs.items():
        trained = summarise_seeds(folders)["seeds"]
        seeds += [seed for seed in trained if seed not in seeds]
        every |= {f"{subset}/{seed}": folder for seed, folder in zip(trained, folders, strict=True)}
        stored = read_json_object(folders[0] / "train.json", DataError)
        rows[subset] = {name: data["rows"] for name, data in stored["data"].items()}
    scores = over_runs(every)
    for entry in [scores["dev"], scores["dev_last"], *scores["tests"]]:
        if entry is not None:
            entry["subsets"] = spread(_means(entry["values"]))
    return {"subsets": list(runs), "seeds": seeds, "rows": rows, **scores}


def _means(values: Mapping[str, float]) -> dict[int, float]:
    """Subset -> the mean over its seeds."""
    groups: dict[int, list[float]] = {}
    for key, value in values.items():
        groups.setdefault(int(key.partition("/")[0]), []).append(value)
    return {subset: fmean(scores) for subset, scores in groups.items()}


def subset_table(summary: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """`summarise_subsets` for a terminal: (what, mean, sd over all runs, n, sd over the means of the subsets)."""
    return [
        (name, f"{row['mean']:.{digits}f}", shown_sd(row, digits), str(row["n"]), shown_sd(row["subsets"], digits))
        for name, row, digits in shown_scores(summary)
    ]


def subset_rows(summary: dict[str, Any]) -> list[str]:
    """A line on the rows of each subset."""
    return [
        f"subset {subset}: " + ", ".join(f"{name} {counted(count, 'row')}" for name, count in rows.items())
        for subset, rows in summary["rows"].items()
    ]
