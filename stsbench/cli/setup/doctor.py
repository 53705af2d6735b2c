"""`stsbench doctor`: what is installed, which data are there, and what can be measured with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from stsbench.cli.output.json_file import write_json
from stsbench.cli.output.messages import echo
from stsbench.wording import counted, sized


@click.command("doctor")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder in SentEval's layout, as `eval` takes it.")
@click.option("--offline", is_flag=True, help="Do not ask the Hub.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the report as JSON; - makes stdout pure JSON.")
def doctor(data_dir: Path | None, offline: bool, json_target: str | None) -> int:
    """Say what is installed and on which devices it runs, which data are there, whether the Hub can be reached, and what
    `--protocol all` would measure.

    Exit code 1 if something is broken: a package that is missing or too old, a folder that cannot be used, a plug-in that
    does not load. Data that are not there, and a Hub out of reach, break nothing.
    """
    report = _report(data_dir, offline)
    if json_target:
        write_json(report, json_target)
    if json_target != "-":
        for line in _lines(report):
            echo(line)
    for problem in report["problems"]:
        echo(f"broken: {problem}", err=True)
    return 1 if report["problems"] else 0


def _report(data_dir: Path | None, offline: bool) -> dict[str, Any]:
    """All of it, in the form of --json."""
    from importlib.metadata import version

    from stsbench.doctor import data, hub, installed

    packages, cache = installed.packages(), installed.embedding_cache()
    problems = [package.problem for package in packages if package.problem]
    try:
        devices = installed.devices()
    except Exception as error:  # a torch that does not load fails in ways of its own
        devices = []
        problems.append(f"torch cannot be loaded: {' '.join(str(error).split())}")
    folders, located = data.folders(data_dir), data.sets(data_dir)
    can = data.measurable(located)
    problems += [*(source.problem for source in folders if source.problem), *([cache.problem] if cache.problem else [])]
    answer = hub.ask_hub(offline)
    return {
        "stsbench": version("stsbench"), "system": installed.system(),
        "packages": [vars(package) | {"problem": package.problem} for package in packages],
        "devices": devices,
        "minilm": _minilm(),
        "data": {
            "places": [{"folder": str(source.folder), "named": source.named} for source in folders],
            "sets": [{"id": data_set.id, "text_version": data_set.text_version,
                      "folder": data_set.folder and str(data_set.folder)} for data_set in located],
            "lines": list(data.missing_lines(located)),
        },
        "cache": {"folder": str(cache.folder), "bytes": cache.bytes, "encoders": cache.encoders},
        "hub": vars(answer),
        "all": {"measured": can.measured, "without_data": can.without_data, "left_out": can.left_out},
        "problems": [*problems, *can.problems],
    }


def _minilm() -> str:
    """Where the weights of `--model minilm` are, or how to get them."""
    from stsbench.encoders.transformer.minilm import find_minilm
    from stsbench.errors import EncoderError

    try:
        return str(find_minilm())
    except EncoderError as error:
        return str(error)


def _lines(report: dict[str, Any]) -> Iterator[str]:
    yield f"stsbench {report['stsbench']}, {report['system']}"
    yield f"packages: {', '.join(_package(package) for package in report['packages'] if not package['extra'])}"
    for package in report["packages"]:
        if package["extra"]:
            yield f"extra {package['extra']}: {_package(package)}"
    for line in report["devices"]:
        yield f"device: {line}"
    yield f"minilm: {report['minilm']}"
    cache = report["cache"]
    yield f"embedding cache: {cache['folder']}, {sized(cache['bytes'])} of {counted(cache['encoders'], 'encoder')}"
    yield from _hub(report["hub"])
    folders = " then ".join(f"{source['folder']} ({source['named']})" for source in report["data"]["places"])
    yield f"data: looked for in {folders}"
    for line in report["data"]["lines"]:
        yield f"  {line}"
    yield from _all(report["all"])


def _package(package: dict[str, Any]) -> str:
    return f"{package['name']} {package['version'] or 'not installed'}"


def _hub(hub: dict[str, str]) -> Iterator[str]:
    if hub["state"] == "reached":
        yield f"Hub: {hub['endpoint']} {hub['detail']}"
        return
    yield f"Hub: {hub['endpoint']} is {hub['state']}: {hub['detail']}"
    yield "  models and data must be on this machine: --model FOLDER or minilm; --data-dir DIR or `data fetch --from BUNDLE`"


def _all(everything: dict[str, Any]) -> Iterator[str]:
    nothing = "" if everything["measured"] else " nothing: there are no data; --sample has some"
    yield f"--protocol all would measure{nothing}"
    for label, tasks in everything["measured"].items():
        yield f"  {label}: {', '.join(tasks)}"
    for label, tasks in everything["without_data"].items():
        yield f"  no data: {label} {', '.join(tasks)}"
    for label, why in everything["left_out"].items():
        yield f"  left out: {label}: {why}"
