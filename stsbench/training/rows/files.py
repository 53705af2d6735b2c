"""Training files of a recipe: texts, and the catalog's scored pairs (`data.file: stsb/train`), which are read from where
protocols find their data; and a check that all of them and the backbone are on this machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.data.fetch import sources
from stsbench.data.fetch.sources import NAMED
from stsbench.data.sets.catalog import Entry, entries
from stsbench.data.sets.sets import PairSet
from stsbench.data.text.cache import built_folder
from stsbench.encoders.transformer.find import backbone_folder
from stsbench.errors import DataError, EncoderError, NotOnThisMachineError, StsbenchError
from stsbench.files import training_cache
from stsbench.registry import did_you_mean
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.recipes.recipes import BACKBONE
from stsbench.training.recipes.sections import DataSettings

if TYPE_CHECKING:
    from stsbench.training.recipes.method_plan import MethodPlan

_SCALES = {"stsb": (0.0, 5.0), "sick": (1.0, 5.0)}  # kind of scored pairs -> least and greatest score
LABELLED = "labelled"  # the recipe's section of labelled rows, and their key in mappings from stages to rows


@dataclass(frozen=True)
class SetPlace:
    """Where the catalog's sets are read from: --data-dir, the package's sample, or the default places; offline: no
    download."""

    data_dir: Path | None = None
    sample: bool = False
    offline: bool = False


def catalog_file(name: str, where: SetPlace, log: Callable[[str], None], section: str = "data") -> Path | None:
    """Return a JSONL file with the rows of the set `name`, as sentence1, sentence2 and score; None where no set has the
    name. section: the recipe's section that names the set, for messages.

    Raises DataError, one line, for a set that is not the training split of scored pairs, or cannot be found.
    """
    known = [item for item in entries("senteval") if item.id == name]
    if not known:
        return None
    if not _trainable(known[0]):
        raise DataError(f"{section}.file {name}: of the catalog's sets {' and '.join(trainable_sets())} can be trained on")
    try:
        data = sources.load_data(name, data_dir=where.data_dir, sample=where.sample, offline=where.offline)
    except DataError as error:
        raise DataError(f"{section}.file {name}: {error}") from error
    assert isinstance(data, PairSet)
    for line in data.warnings:
        log(f"warning: {line}")
    log(f"{name}: {len(data):,} pairs from {data.origin}")
    key = hashlib.sha256(f"{name} {data.digest}".encode()).hexdigest()
    file = f"{name.replace('/', '-')}.jsonl"
    return built_folder(training_cache() / "sets", key, lambda folder: _write(data, folder / file)) / file


def is_set(name: str) -> bool:
    """Return whether a set of the catalog is called `name`."""
    return any(item.id == name for item in entries("senteval"))


def trainable_sets() -> list[str]:
    """Return the names of the sets that `catalog_file` takes."""
    return [item.id for item in entries("senteval") if _trainable(item)]


def score_scale(name: str | None) -> tuple[float, float] | None:
    """Return the least and the greatest score on a set's scale; None where `name` is not one of `trainable_sets`."""
    kinds = {item.id: item.kind for item in entries("senteval") if _trainable(item)}
    return None if name is None or name not in kinds else _SCALES[kinds[name]]


def _trainable(item: Entry) -> bool:
    return item.split == "train" and item.kind in _SCALES


def _write(data: PairSet, path: Path) -> None:
    with path.open("w", encoding="utf-8") as stream:
        for first, second, score in zip(data.first, data.second, data.gold.tolist(), strict=True):
            row = {"sentence1": first, "sentence2": second, "score": score}
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def check_at_hand(recipe: Recipe, plan: MethodPlan, stages: Sequence[str], where: SetPlace) -> None:
    """Raise StsbenchError, one line that names everything missing, if the backbone or a text file that `stages` train on is
    not on this machine. Sets of the catalog are only looked for when they are read."""
    _refuse_missing(recipe, plan.name, _sections(recipe, plan, stages), where)


def check_texts(recipe: Recipe, method: str, where: SetPlace) -> None:
    """Raise StsbenchError, as `check_at_hand` does, where `data.file` is missing. Needs no plan, which imports torch."""
    file = recipe.data.file
    if file is not None and not Path(file).expanduser().exists():
        _refuse_missing(recipe, method, [("data", recipe.data)], where)


def _refuse_missing(
    recipe: Recipe, method: str, sections: Iterable[tuple[str, DataSettings]], where: SetPlace
) -> None:
    missing: list[str] = []
    try:
        backbone_folder(recipe.backbone.model, where.offline)
    except NotOnThisMachineError as error:
        missing.append(str(error))
    except StsbenchError:
        pass  # loading the backbone raises the error
    for section, settings in sections:
        try:
            if settings.file is not None and settings.file not in NAMED and not is_set(settings.file):
                training_file(settings, section, where)
        except DataError as error:
            missing.append(str(error))
    missing = list(dict.fromkeys(missing))  # two stages may read one file
    if missing:
        several = "" if len(missing) == 1 else f"{len(missing)} things are missing for {method}, recipe {recipe.name}: "
        hint = "" if where.sample else "; or --sample, a first training that needs no file"
        raise StsbenchError(f"{several}{'; '.join(missing)}{hint}")


def backbone_at_hand(recipe: Recipe, offline: bool, log: Callable[[str], None]) -> str | None:
    """Return `minilm` if the recipe's backbone is not on this machine and cannot be downloaded, else None. `log` gets a
    warning, as the recipe counts as changed. For backbones that the user did not choose."""
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
        return None  # training raises the error
    return None


def training_file(
    settings: DataSettings, section: str, where: SetPlace, log: Callable[[str], None] = lambda line: None
) -> Path:
    """Return the training file of a section: the path that `settings.file` names, a set of the catalog, or a file of that
    name in a data folder; `log` gets a line about either of these. Raises DataError, one line, where there is none."""
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
    file, how_to_get = sources.training_text(settings.file, data_dir=where.data_dir, offline=where.offline)
    if file is None:
        hint = how_to_get or _nearest(settings.file, section)
        raise DataError(f"the {name} {path} are not here: give your copy by --{section} FILE{hint}")
    log(f"{settings.file}: {file}")
    return file


def _sections(recipe: Recipe, plan: MethodPlan, stages: Sequence[str]) -> Iterator[tuple[str, DataSettings]]:
    """Yield the sections of the recipe that `stages` read, each with its name."""
    uses = {stage: plan.labelled(stage) for stage in stages}
    if set(uses.values()) - {"none"}:
        yield LABELLED, recipe.labelled or DataSettings()
    yield from (("data", recipe.stage_data(stage)) for stage, use in uses.items() if use != "only")


def _nearest(file: str, section: str) -> str:
    """Return "; did you mean stsb/train?" for a missing file whose name resembles that of a set, else ""."""
    hint = did_you_mean(file, trainable_sets() if section == LABELLED else [*trainable_sets(), *NAMED])
    return hint if "did you mean" in hint else ""
