"""The report: report.json, with everything, and report.md, to be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from setting import Setting

_TITLES = {
    "methods": "Methods: ten steps against float32 on the CPU", "scores": "Scores: `eval` of MiniLM against the CPU",
    "families": "Without padding, against each text alone", "encode": "Encoding against sentence-transformers",
    "train": "Training against sentence-transformers", "processes": "Two processes against one",
}


def write_report(folder: Path, setting: Setting, rows: list[dict[str, Any]], seconds: float) -> None:
    """Both files into `folder`, each under a temporary name first."""
    folder.mkdir(parents=True, exist_ok=True)
    data = "sample" if setting.data_dir is None else "folder"
    whole = {"device": setting.device, "data": data, "seconds": round(seconds), "facts": setting.facts, "rows": rows}
    files = {"report.json": json.dumps(whole, indent=1) + "\n", "report.md": "\n".join(_page(whole)) + "\n"}
    for name, text in files.items():
        building = folder / f".{name}.tmp"
        building.write_text(text, "utf-8")
        building.rename(folder / name)


def _page(whole: dict[str, Any]) -> list[str]:
    facts, rows = whole["facts"], whole["rows"]
    failed = [row for row in rows if row["status"] == "failed"]
    lines = ["# GPU report" + (" (dry run on a CPU)" if whole["device"] == "cpu" else ""), ""]
    lines += [f"{len(rows)} measured, **{len(failed)} failed**, in {whole['seconds']} s; data: "
              f"{'the sample' if whole['data'] == 'sample' else 'a data folder'}.", ""]
    lines += [f"- {row['part']}, {row['name']}: {row.get('why', '')}" for row in failed]
    shown = {**{key: value for key, value in facts.items() if key != "versions"}, **facts.get("versions", {})}
    lines += ["" if failed else None, "| | |", "| --- | --- |"]
    lines += [f"| {key} | {value} |" for key, value in shown.items()]
    for part, title in _TITLES.items():
        if of_part := [row for row in rows if row["part"] == part]:
            lines += ["", f"## {title}", "", *(_methods(of_part) if part == "methods" else _plain(of_part))]
    return [line for line in lines if line is not None]


def _methods(rows: list[dict[str, Any]]) -> list[str]:
    """A line a method and precision."""
    heads = ("losses differ", "vectors differ", "ms a step", "MiB", "skipped", "waits a step")
    lines = _heads(("method", "precision", *heads, "status"))
    for row in rows:
        by_precision = row.get("precisions") or {"": {}}
        for number, (precision, figures) in enumerate(by_precision.items()):
            status = row["status"] if number == len(by_precision) - 1 else ""
            cells = [row["name"], precision, *(_cell(figures.get(key, "")) for key in heads), status]
            lines.append(f"| {' | '.join(cells)} |")
    from methods import TOLERANCES

    bounds = "; ".join(f"{name} {loss:g} and {vector:g}" for name, (loss, vector) in TOLERANCES.items())
    told = "Differences: of losses the largest as a share of the largest loss; of final vectors 1 - cosine."
    return [*lines, "", f"{told} Tolerances: {bounds}.", "Waits: how often a step waits for the device."]


def _plain(rows: list[dict[str, Any]]) -> list[str]:
    left_out = ("part", "name", "status", "ended", "why", "took")
    heads = list(dict.fromkeys(key for row in rows for key in row if key not in left_out))
    lines = _heads(("", *heads, "status"))
    for row in rows:
        status = row["status"] + (f": {row['why']}" if row.get("why") else "")
        lines.append(f"| {' | '.join([row['name'], *(_cell(row.get(head, '')) for head in heads), status])} |")
    return lines


def _heads(heads: Any) -> list[str]:
    return [f"| {' | '.join(heads)} |", f"| {' | '.join('---' for _ in heads)} |"]


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "reached" if value else "missed"
    if isinstance(value, list):
        return f"{value[0]:.2f} ({value[1]:.2f}, {value[2]:.2f})"
    if isinstance(value, float):
        return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
