"""What `stsbench data fetch` does, for callers in Python: the archive, raw sets and training texts that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stsbench.data.fetch.download import NoConnectionError, Progress
from stsbench.data.fetch.fetch import fetch_archive, fetch_raw, fetch_training
from stsbench.data.fetch.install import FetchReport
from stsbench.data.fetch.mteb_pairs import revision_of
from stsbench.data.fetch.repository import fetch_repository
from stsbench.data.fetch.sources import WAYS
from stsbench.data.sets.catalog import Entry, TrainingText, catalog, entries, entry
from stsbench.data.sets.languages import LANGUAGES, MtebPairs
from stsbench.errors import DataError


@dataclass(frozen=True)
class Wanted:
    """What is to be fetched: SentEval's archive as a whole, raw sets, training texts, sets in other languages."""

    archive: bool
    raw: list[Entry]
    training: list[TrainingText]
    languages: list[MtebPairs] = field(default_factory=list)


def wanted(sets: Sequence[str] = (), *, training: bool = False, raw: bool = False) -> Wanted:
    """What `stsbench data fetch` fetches: of the sets or training texts that are named, else all that the options say.

    DataError for a name that there is not, though the archive always comes as a whole.
    """
    known = catalog().training
    texts = list(known.values()) if training else [known[name] for name in sets if name in known]
    of_task = {name: item for item in LANGUAGES for name in (item.task, item.id)}
    languages = [of_task[name] for name in sets if name in of_task]
    others = [name for name in sets if name not in known and name not in of_task]
    if not raw:
        for name in others:
            entry(name)
    raw_sets = ([entry(name, "raw") for name in others] if sets else list(entries("raw"))) if raw else []
    return Wanted((bool(others) and not raw) if sets else not training, raw_sets, texts, list(dict.fromkeys(languages)))


def fetch(
    what: Wanted, root: Path, *, force: bool = False, strict: bool = False, progress: Progress | None = None
) -> list[FetchReport]:
    """Download all of it into the data folder `root`. Raises DataError as `fetch_archive`."""
    try:
        reports = [fetch_archive(root, force=force, strict=strict, progress=progress)] if what.archive else []
        reports += [fetch_raw(item, root, force=force, strict=strict, progress=progress) for item in what.raw]
        reports += [fetch_training(text, root, force=force, strict=strict, progress=progress) for text in what.training]
        reports += [fetch_repository(item.repository, revision_of(item), root, force=force, strict=strict, progress=progress)
                    for item in what.languages]
    except NoConnectionError as error:
        raise DataError(f"{error}; {WAYS}") from error
    return reports
