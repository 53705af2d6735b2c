"""`stsbench.doctor`: a report on installation, devices, data and the Hub."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from stsbench.errors import EncoderError
from stsbench.extensions.installation import checks
from stsbench.files import as_path
from stsbench.wording import counted, sized


@dataclass(frozen=True, repr=False)
class Report:
    """What is installed, which data are available, and what can be measured. problems: a line for each fault."""

    version: str  # stsbench's
    system: str  # Python and the operating system
    packages: list[checks.Package]
    devices: list[str]  # the first is the default
    minilm: str  # where the weights of `--model minilm` are, or how to get them
    folders: list[checks.DataFolder]
    sets: list[checks.SetLocation]
    cache: checks.Cache
    hub: checks.Hub
    measurable: checks.Measurable  # by `--protocol all`
    problems: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, the content of `stsbench doctor --json`."""
        can = self.measurable
        return {
            "stsbench": self.version, "system": self.system,
            "packages": [vars(package) | {"problem": package.problem} for package in self.packages],
            "devices": self.devices,
            "minilm": self.minilm,
            "data": {
                "places": [{"folder": str(source.folder), "named": source.named} for source in self.folders],
                "sets": [{"id": data_set.id, "text_version": data_set.text_version,
                          "folder": data_set.folder and str(data_set.folder)} for data_set in self.sets],
                "lines": list(checks.missing_lines(self.sets)),
            },
            "cache": {"folder": str(self.cache.folder), "bytes": self.cache.bytes, "encoders": self.cache.encoders},
            "hub": vars(self.hub),
            "all": {"measured": can.measured, "without_data": can.without_data, "left_out": can.left_out},
            "problems": self.problems,
        }

    def __repr__(self) -> str:
        broken = counted(len(self.problems), "problem") if self.problems else "nothing is broken"
        return f"<Report on stsbench {self.version}: {broken}; print it>"

    def __str__(self) -> str:
        return "\n".join([*self.lines(), *(f"broken: {problem}" for problem in self.problems)])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def lines(self) -> Iterator[str]:
        """Yield the lines that the command prints, without the problems."""
        yield f"stsbench {self.version}, {self.system}"
        yield f"packages: {', '.join(_package(package) for package in self.packages if not package.extra)}"
        for package in self.packages:
            if package.extra:
                yield f"extra {package.extra}: {_package(package)}"
        for line in self.devices:
            yield f"device: {line}"
        yield f"minilm: {self.minilm}"
        cache = self.cache
        yield f"embedding cache: {cache.folder}, {sized(cache.bytes)} of {counted(cache.encoders, 'encoder')}"
        yield from _hub(self.hub)
        yield f"data: looked for in {' then '.join(f'{source.folder} ({source.named})' for source in self.folders)}"
        for line in checks.missing_lines(self.sets):
            yield f"  {line}"
        yield from _all(self.measurable)


def doctor(*, data_dir: str | Path | None = None, offline: bool = False) -> Report:
    """Return what is installed, on which devices it runs, which data are there, and what can be measured with them.

    data_dir: a folder in SentEval's layout, as `evaluate` takes it; offline: do not ask the Hub whether it can be reached.
    `problems` holds a line for each thing that is broken: a package that is missing or too old, a folder that cannot be
    used, a plug-in that does not load. Nothing is printed, downloaded or changed.

    >>> import stsbench
    >>> report = stsbench.doctor(offline=True)
    >>> report.problems, report.hub.state
    ([], 'not asked')
    """
    folder = None if data_dir is None else as_path(data_dir, "data_dir")
    packages, cache = checks.packages(), checks.embedding_cache()
    problems = [package.problem for package in packages if package.problem]
    try:
        devices = checks.devices()
    except Exception as error:  # a broken torch raises errors of any kind
        devices = []
        problems.append(f"torch cannot be loaded: {' '.join(str(error).split())}")
    folders, located = checks.folders(folder), checks.sets(folder)
    can = checks.measurable(located)
    problems += [*(source.problem for source in folders if source.problem), *([cache.problem] if cache.problem else [])]
    return Report(
        version("stsbench"), checks.system(), packages, devices, _minilm(), folders, located, cache, checks.ask_hub(offline),
        can, [*problems, *can.problems],
    )


def _minilm() -> str:
    from stsbench.encoders.transformer.find import find_minilm

    try:
        return str(find_minilm())
    except EncoderError as error:
        return str(error)


def _package(package: checks.Package) -> str:
    return f"{package.name} {package.version or 'not installed'}"


def _hub(hub: checks.Hub) -> Iterator[str]:
    if hub.state == "reached":
        yield f"Hub: {hub.endpoint} {hub.detail}"
        return
    yield f"Hub: {hub.endpoint} is {hub.state}: {hub.detail}"
    yield "  models and data must be on this machine: --model FOLDER or minilm; --data-dir DIR or `data fetch --from BUNDLE`"


def _all(can: checks.Measurable) -> Iterator[str]:
    nothing = "" if can.measured else " nothing: there are no data; --sample has some"
    yield f"--protocol all would measure{nothing}"
    for label, tasks in can.measured.items():
        yield f"  {label}: {', '.join(tasks)}"
    for label, tasks in can.without_data.items():
        yield f"  no data: {label} {', '.join(tasks)}"
    for label, why in can.left_out.items():
        yield f"  left out: {label}: {why}"
