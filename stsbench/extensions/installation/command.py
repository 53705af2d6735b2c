"""`stsbench doctor`: report what is installed, which data are available, and what can be measured with them."""

from __future__ import annotations

from pathlib import Path

import click

from stsbench.cli.messages import echo, write_json


@click.command("doctor", short_help="Tools | Say what is installed, which data are there, what can be measured.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder in SentEval's layout, as `eval` takes it.")
@click.option("--offline", is_flag=True, help="Do not ask the Hub.")
@click.option("--json", "json_target", metavar="FILE|-", help="Write the report as JSON; - makes stdout pure JSON.")
def doctor(data_dir: Path | None, offline: bool, json_target: str | None) -> int:
    """Say what is installed and on which devices it runs, which data are there, whether the Hub can be reached, and what
    `--protocol all` would measure.

    Exit code 1 if something is broken: a package that is missing or too old, a folder that cannot be used, a plug-in that
    does not load. Data that are not there, and a Hub out of reach, break nothing.
    """
    from stsbench.extensions.installation.report import doctor as report_on

    report = report_on(data_dir=data_dir, offline=offline)
    if json_target:
        write_json(report.to_dict(), json_target)
    if json_target != "-":
        for line in report.lines():
            echo(line)
    for problem in report.problems:
        echo(f"broken: {problem}", err=True)
    return 1 if report.problems else 0
