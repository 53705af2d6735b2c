"""What `stsbench train` prints when it is done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stsbench.cli.output.messages import echo
from stsbench.cli.output.report import print_document, print_omissions, print_result, print_table
from stsbench.display.table import Document


def print_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Dev before, best and after, or the table over seeds or subsets, then the scores of the final test, on stdout."""
    if "subsets" in summary:
        _subsets(summary)
    elif "seeds" in summary:
        _seeds(summary)
    else:
        _run(folder, summary)
    for task, why in summary.get("failures", {}).items():
        echo(f"failed: {task}: {why}", err=True)


def _run(folder: Path, summary: dict[str, Any]) -> None:
    name = summary["selected_by"]
    before, after = (
        "undefined" if summary[when] is None else f"{summary[when]:.2f}" for when in ("before", "after")
    )
    undefined = summary.get("undefined", [])
    if summary["before"] is not None or undefined:
        kept = summary["best"]
        stage = f" of stage {kept['stage']}" if kept and set(summary["stages"]) != {kept["stage"]} else ""
        best = f"best {kept['score']:.2f} at step {kept['step']}{stage}" if kept else "no step in between was scored"
        if kept and summary["before"] is not None and kept["score"] < summary["before"]:
            best += " (below the start)"
        if not kept and undefined:
            best = "no step that could be kept has a score"
        line = f"{name}: {before} before, {best}, {after} after the last step"
        print_document(Document(above=[line]))
    echo(f"exported {summary['exported']}: {folder / 'best'}")
    if (folder / "eval").is_dir():
        from stsbench.evaluation.rescore import score_again

        result = score_again(folder / "eval")
        print_result(result)
        print_omissions(result)


def _seeds(summary: dict[str, Any]) -> None:
    from stsbench.training.runs.report import seed_table, shared_line

    title = f"{len(summary['seeds'])} seeds: {', '.join(map(str, summary['seeds']))}"
    _table(title, ("score", "mean", "sd", "n"), seed_table(summary))
    if line := shared_line(summary):
        echo(line)


def _subsets(summary: dict[str, Any]) -> None:
    from stsbench.training.runs.report import seed_table, shared_line, subset_rows

    for line in subset_rows(summary):
        echo(line)
    subsets, seeds = (", ".join(map(str, summary[key])) for key in ("subsets", "seeds"))
    title = f"{len(summary['subsets'])} subsets ({subsets}) of {len(summary['seeds'])} seeds ({seeds})"
    _table(title, ("score", "mean", "sd of runs", "n", "sd of subsets"), seed_table(summary))
    if shared := shared_line(summary):
        echo(shared)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print_table(title, columns, rows)
    if not rows:
        echo("no score to average: there was no dev evaluation and no --eval")
