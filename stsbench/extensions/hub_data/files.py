"""Find and download the files of a Hub dataset, with the configurations and splits that the library `datasets` finds."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stsbench.data.own.source import TABLES
from stsbench.data.sets.sets import ON_HUB
from stsbench.errors import DataError, MissingDataError
from stsbench.files import temporary
from stsbench.hub import downloads_are_off, hub_errors
from stsbench.wording import sized

_NAME = re.compile(r"hf:(?P<repository>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?(:(?P<one>[^:]+))?(:(?P<other>[^:]+))?")
_SHARD = re.compile(r"(.*)-\d{5}-of-(\d{5})\.")
_MOST_SHARE, _MOST_BYTES = 50, 100_000_000  # a compressed file may unpack to 50 times its size plus these bytes
_USAGE = "write hf:OWNER/NAME, with @REVISION, :CONFIG and :SPLIT behind it where they are needed"


@dataclass(frozen=True)
class DatasetFiles:
    """The files of a dataset in the Hub's cache by split, "" for a single requested split; origin: repository, commit,
    configuration and splits."""

    parts: dict[str, tuple[Path, ...]]
    origin: str


def dataset_files(name: str, splits: bool = False) -> DatasetFiles:
    """Return the files of hf:OWNER/NAME[@REVISION][:CONFIG][:SPLIT], fetched into the Hub's cache unless they are there.

    Without CONFIG it is the default or the only one, without SPLIT the split test or the only one; with `splits` all of
    train, validation and test, if there are both train and test. One word alone is a configuration, or else a split of the
    default one. Raises DataError, one line: no such dataset, revision, configuration or split, not accessible, not a table.
    """
    called, repository, folder, one, other = _describe(name)
    commit, configs = folder.name, _configs(called, folder / "README.md")
    config, split = one, other
    if one and not other and one not in configs:
        config, split = None, one
    chosen = _config(called, configs, config, split)
    with _described(called):
        patterns = _patterns(called, repository, commit, configs.get(chosen, {}))
    wanted = _splits(name, list(patterns), split, splits, configs if one and not other else {})
    with _described(called):
        parts = {part: _fetched(called, repository, commit, configs.get(chosen, {}), patterns[part]) for part in wanted}
    of = [f"configuration {chosen}"] * bool(chosen) + [f"split{'s' * (len(wanted) > 1)} {', '.join(wanted)}"]
    origin = f"the Hub's {repository} at {commit}, {', '.join(of)}"
    return DatasetFiles(parts if len(parts) > 1 else {"": next(iter(parts.values()))}, origin)


def _describe(name: str) -> tuple[str, str, Path, str | None, str | None]:
    """Return what messages call a dataset, its repository, the folder of the commit with its README, and both words
    behind it."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise DataError(f"{name}: {_USAGE}")
    repository, one, other = match["repository"], match["one"], match["other"]
    called = f"{ON_HUB}{repository}" + (f"@{match['revision']}" if match["revision"] else "")
    folder = _snapshot(called, repository, match["revision"], ["README.md"])
    return called, repository, folder, one, other


@dataclass(frozen=True)
class RetrievalFiles:
    """The files of a retrieval set. folder: of the commit; split: of the judgements, "" for test or the only one; parts:
    queries, corpus, qrels -> files, {} where they are found by name in `folder`; origin: as in DatasetFiles."""

    folder: Path
    split: str
    parts: dict[str, tuple[Path, ...]]
    origin: str


def retrieval_files(name: str) -> RetrievalFiles:
    """Return the files of a retrieval set, hf:OWNER/NAME[@REVISION][:CONFIG][:SPLIT], fetched as by `dataset_files`.

    Queries, corpus and judgements are the configurations queries, corpus and qrels (or default), of a set in several
    languages CONFIG-queries and so on; SPLIT is that of the judgements.
    """
    called, repository, folder, one, other = _describe(name)
    commit, configs = folder.name, _configs(called, folder / "README.md")
    several = [config.removesuffix("-corpus") for config in configs if config.endswith("-corpus")]
    prefix, split = (f"{one}-", other) if one in several else ("", one)
    if not prefix and (other or (several and "corpus" not in configs)):
        there = f"name one of {', '.join(several)}" if several else f"it has none: leave it out, {called}:{other}"
        wrong = f"there is no configuration {one}" if one else "it has several configurations"
        raise DataError(f"{called}: {wrong}: {there}")
    origin = f"the Hub's {repository} at {commit}" + (f", configuration {one}" if prefix else "")
    if f"{prefix}corpus" not in configs or f"{prefix}queries" not in configs:
        _snapshot(called, repository, commit, ["corpus*", "queries*", "qrels*"])
        return RetrievalFiles(folder, split or "", {}, origin + (f", split {split}" if split else ""))
    judged = next((config for config in (f"{prefix}qrels", one if prefix else "default") if config in configs), None)
    if judged is None:
        raise DataError(f"{called} has queries and a corpus, and no configuration {prefix}qrels of judgements: fetch it, "
                        "and put judgements beside it")
    with _described(called):
        patterns = {part: _patterns(called, repository, commit, configs[config])
                    for part, config in (("qrels", judged), ("corpus", f"{prefix}corpus"), ("queries", f"{prefix}queries"))}
    split = _splits(name, list(patterns["qrels"]), split, False, {})[0]
    parts = {}
    for part, splits in patterns.items():
        fitting = [at for at in (split, part) if at in splits] or list(splits)
        if len(fitting) > 1 and fitting[0] not in (split, part):
            listed = ", ".join(splits)
            raise DataError(f"{called}: which of {listed} is the {part} of the split {split}? fetch it, and keep one")
        with _described(called):
            about = configs[{"qrels": judged}.get(part, f"{prefix}{part}")]
            parts[part] = _fetched(called, repository, commit, about, splits[fitting[0]])
    return RetrievalFiles(folder, split, parts, f"{origin}, split {split}")


def _snapshot(called: str, repository: str, revision: str | None, patterns: Sequence[str]) -> Path:
    """Download the files of a commit that match `patterns`, and return the folder."""
    from huggingface_hub import snapshot_download

    offline = downloads_are_off(False)
    why = "and --offline forbids fetching it" if offline else "and the Hub cannot be reached"
    unreachable = MissingDataError(f"{called} is not in the Hub cache, {why}")
    with hub_errors(
        called, absent=f"{called}: there is no such dataset on the Hub, or it is private: set HF_TOKEN",
        no_revision=f"{called}: there is no such revision on the Hub", unreachable=unreachable, error_class=DataError,
    ), _quiet():
        return Path(snapshot_download(
            repository, repo_type="dataset", revision=revision, allow_patterns=[*patterns], local_files_only=offline
        ))


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the Hub client's progress bars and its warning on a missing README in the block."""
    import logging

    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    logger, bars = logging.getLogger("huggingface_hub"), not are_progress_bars_disabled()
    level = logger.level
    logger.setLevel(logging.ERROR)
    disable_progress_bars()
    try:
        yield
    finally:
        logger.setLevel(level)
        if bars:
            enable_progress_bars()


@contextmanager
def _described(called: str) -> Iterator[None]:
    """Turn errors of `datasets` on unusable descriptions into one line."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # yaml's, fsspec's, its own kinds
        raise DataError(f"{called}: which files it has cannot be read: {' '.join(str(error).split())[:200]}") from error


def _configs(called: str, readme: Path) -> dict[str, dict[str, Any]]:
    """Return configuration -> its description in the README's header; {} without any."""
    if not readme.is_file():
        return {}
    with _described(called):
        from datasets.utils.metadata import MetadataConfigs
        from huggingface_hub import DatasetCard

        return dict(MetadataConfigs.from_dataset_card_data(DatasetCard.load(readme, ignore_metadata_errors=True).data))


def _config(called: str, configs: Mapping[str, Mapping[str, Any]], config: str | None, split: str | None) -> str:
    """Return the requested or default configuration, "" where the dataset names none."""
    there = ", ".join(configs)
    if config is not None and config not in configs:
        only = f"it has {there}" if configs else f"it has none: leave it out, {called}:{split}"
        raise DataError(f"{called}: there is no configuration {config}: {only}")
    if config is not None:
        return config
    defaults = [name for name, about in configs.items() if about.get("default")] or [*({"default"} & configs.keys())]
    if not defaults and len(configs) > 1:
        wrong = f"there is no configuration {split}" if split else "it has several configurations"
        raise DataError(f"{called}: {wrong}: name one of {there}, as in {called}:{next(iter(configs))}")
    return defaults[0] if defaults else next(iter(configs), "")


def _patterns(called: str, repository: str, commit: str, about: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return split -> patterns of its files, below the configuration's folder."""
    from datasets.data_files import get_data_patterns, sanitize_patterns

    if about.get("data_files"):
        return {split: [*patterns] for split, patterns in sanitize_patterns(about["data_files"]).items()}
    below = str(about.get("data_dir") or "").strip("/")
    wanted = [f"{below}/*{suffix}" if below else f"*{suffix}" for ending in TABLES for suffix in (ending, f"{ending}.gz")]
    folder = _snapshot(called, repository, commit, wanted) / below
    if not any(path.is_file() and _kind(path) for path in folder.rglob("*")):
        there = f" in {below}" if below else ""
        raise DataError(f"{called} holds no {', '.join(TABLES[:-1])} or {TABLES[-1]} file{there}")
    return {str(split): [*patterns] for split, patterns in get_data_patterns(str(folder)).items()}


def _splits(
    name: str, splits: Sequence[str], split: str | None, several: bool, configs: Mapping[str, Any]
) -> list[str]:
    """Return the requested or default splits."""
    if split is not None:
        if split not in splits:
            also = f", nor a configuration; configurations are {', '.join(configs)}" if configs else ""
            raise DataError(f"{name}: there is no split {split}{also}; splits are {', '.join(splits)}")
        return [split]
    if several and {"train", "test"} <= set(splits):
        return [part for part in splits if part in ("train", "validation", "test")]
    if "test" in splits or len(splits) == 1:
        return ["test" if "test" in splits else splits[0]]
    raise DataError(f"{name}: it has no split test: name one of {', '.join(splits)}, as in {name}:{splits[0]}")


def _fetched(
    called: str, repository: str, commit: str, about: Mapping[str, Any], patterns: Sequence[str]
) -> tuple[Path, ...]:
    """Return the files that match a split's patterns, decompressed if necessary."""
    from datasets.data_files import DataFilesList

    below = str(about.get("data_dir") or "").strip("/")
    inside = [f"{below}/{pattern}" if below else pattern for pattern in patterns]
    if outside := [pattern for pattern in inside if "://" in pattern or pattern.startswith("/") or ".." in pattern]:
        raise DataError(f"{called}: its files are outside of the repository ({outside[0]}): fetch and name them yourself")
    described = bool(about.get("data_files"))  # else `_patterns` has fetched them, and not what else fits such patterns
    wanted = [form for at in inside for form in (at, at.replace("**/", ""))] if described else ["README.md"]
    folder = _snapshot(called, repository, commit, wanted)
    matched = [Path(path) for path in dict.fromkeys(DataFilesList.from_patterns([*inside], base_path=str(folder)))]
    files = [path for path in matched if _kind(path)]
    if not files:
        other = f", but {matched[0].relative_to(folder)}" if matched else ""
        raise DataError(f"{called} holds no {', '.join(TABLES[:-1])} or {TABLES[-1]} file there{other}")
    if len(kinds := {_kind(path) for path in files}) > 1:
        raise DataError(f"{called}: the same rows may be in its {' and its '.join(sorted(kinds))} files: fetch and name one")
    for path in files:
        if (shard := _SHARD.match(str(path))) and sum(str(one).startswith(f"{shard[1]}-") for one in files) < int(shard[2]):
            raise MissingDataError(f"{called}: the Hub cache holds only some of {path.name}'s {int(shard[2])} files")
    return tuple(path if path.suffix != ".gz" else _unpacked(called, path) for path in files)


def _kind(path: Path) -> str:
    """Return the extension of a file that can be read, without .gz; "" for another."""
    return next((ending for ending in TABLES if path.name.lower().removesuffix(".gz").endswith(ending)), "")


def _unpacked(called: str, path: Path) -> Path:
    target = temporary(path.name.removesuffix(".gz"))
    try:
        most = _MOST_SHARE * path.stat().st_size + _MOST_BYTES
        with gzip.open(path, "rb") as packed, target.open("wb") as plain:
            while block := packed.read(1 << 20):
                if plain.tell() + len(block) > most:
                    raise DataError(f"{called}: {path.name} unpacks to over {sized(most)}: fetch and unpack it yourself")
                plain.write(block)
    except (OSError, EOFError) as error:
        raise DataError(f"{called}: {path.name} cannot be unpacked: {error}") from error
    return target
