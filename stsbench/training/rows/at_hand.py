"""Whether what a recipe trains on is on this machine: its files of text and its backbone, all of them asked at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from stsbench.data.fetch.sources import NAMED, training_text
from stsbench.encoders.transformer.trainable import backbone_folder
from stsbench.errors import DataError, EncoderError, NotOnThisMachineError, StsbenchError
from stsbench.registry import did_you_mean
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.recipe import DataSettings, Recipe
from stsbench.training.recipes.sample import BACKBONE
from stsbench.training.rows.catalog_rows import SetPlace, catalog_file, is_set, trainable_sets

LABELLED = "labelled"  # the section of labelled rows, and their key beside the stages' names


def check_at_hand(recipe: Recipe, plan: MethodPlan, stages: Sequence[str], where: SetPlace) -> None:
    """Raises StsbenchError, one line that names all of them, where the backbone or files of text that `stages` train on are
    missing. Sets of the catalog are looked for when they are read."""
    missing: list[str] = []
    try:
        backbone_folder(recipe.backbone.model, where.offline)
    except NotOnThisMachineError as error:
        missing.append(str(error))
    except StsbenchError:
        pass  # what is wrong with it is said where it is loaded
    for section, settings in _sections(recipe, plan, stages):
        try:
            if settings.file is not None and settings.file not in NAMED and not is_set(settings.file):
                training_file(settings, section, where)
        except DataError as error:
            missing.append(str(error))
    missing = list(dict.fromkeys(missing))  # two stages may read one file
    if missing:
        several = "" if len(missing) == 1 else f"{len(missing)} things are missing for {plan.name}, recipe {recipe.name}: "
        hint = "" if where.sample else "; or --sample, a first training that needs no file"
        raise StsbenchError(f"{several}{'; '.join(missing)}{hint}")


def backbone_at_hand(recipe: Recipe, offline: bool, log: Callable[[str], None]) -> str | None:
    """`minilm` in the place of a backbone that nobody chose, where that is neither here nor to be had; else None. It is
    said: the recipe is another one then."""
    try:
        backbone_folder(recipe.backbone.model, offline)
    except NotOnThisMachineError:
        try:
            backbone_folder(BACKBONE)
        except EncoderError:
            return None
        log(
            f"warning: {recipe.backbone.model} is not here and cannot be fetched: training starts from {BACKBONE}, "
            "which is not the paper's row (--backbone MODEL for another)"
        )
        return BACKBONE
    except StsbenchError:
        return None  # the training itself says what is wrong with it
    return None


def training_file(
    settings: DataSettings, section: str, where: SetPlace, log: Callable[[str], None] = lambda line: None
) -> Path:
    """The file of a section of the recipe: as named, or a set of the catalog, or of that name in a data folder. `log` gets a
    line where it is not the one that was named. Raises DataError, one line."""
    name = "labelled data" if section == LABELLED else "training data"
    if settings.file is None:
        also = ", or labelled.file" if section == LABELLED else ""
        raise DataError(f"no {name}: give a file by --{section} FILE{also}")
    path = Path(settings.file).expanduser()
    if path.exists() and not path.is_file():
        raise DataError(f"the {name} {path} are {'a folder' if path.is_dir() else 'not a plain file'}: name a file")
    if path.is_file():
        return path
    if (of_catalog := catalog_file(settings.file, where, log, section)) is not None:
        return of_catalog
    file, how_to_get = training_text(settings.file, data_dir=where.data_dir, offline=where.offline)
    if file is None:
        hint = how_to_get or _nearest(settings.file, section)
        raise DataError(f"the {name} {path} are not here: give your copy by --{section} FILE{hint}")
    log(f"{settings.file}: {file}")
    return file


def _sections(recipe: Recipe, plan: MethodPlan, stages: Sequence[str]) -> Iterator[tuple[str, DataSettings]]:
    """The sections of the recipe that `stages` read, each with its name."""
    uses = {stage: plan.labelled(stage) for stage in stages}
    if set(uses.values()) - {"none"}:
        yield LABELLED, recipe.labelled or DataSettings()
    yield from (("data", recipe.stage_data(stage)) for stage, use in uses.items() if use != "only")


def _nearest(file: str, section: str) -> str:
    """"; did you mean stsb/train?" where a file that is not there is nearly a name of data."""
    hint = did_you_mean(file, trainable_sets() if section == LABELLED else [*trainable_sets(), *NAMED])
    return hint if "did you mean" in hint else ""
