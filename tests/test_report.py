"""Reports in forms to paste hold exactly the rows' numbers."""

import csv
import io
import re

import pytest

from stsbench.api import evaluate
from stsbench.cli.report import as_csv, latex, markdown
from stsbench.cli.tables import interval, main_rows, shown, title_of
from stsbench.records import ScoreRow


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "run"
    return evaluate("lexical:token-set", output=folder, sample=True, resamples=20, tasks=["STS12", "STS-B"])


def test_csv_is_every_row_at_full_precision(result):
    rows = list(csv.DictReader(io.StringIO(as_csv(result))))
    assert len(rows) == len(result.rows) and list(rows[0]) == list(ScoreRow.model_fields)
    for text, row in zip(rows, result.rows, strict=True):
        assert float(text["value"]) == row.value and text["task"] == row.task and text["subset"] == (row.subset or "")


def test_markdown_is_a_table_of_the_printed_scores(result):
    lines = [line for line in markdown(result).splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert {len(line) for line in cells} == {3} and cells[0] == ["", "STS12", "STS-B"]
    want = {(r.metric, r.aggregation, r.task): f"{r.value:.2f}" for r in result.rows if r.subset is None}
    for name, *values in cells[2:]:
        metric, how = re.fullmatch(r"(\w+) \((\w+)\)", name).groups()
        assert values == [want[metric, how, task] for task in ("STS12", "STS-B")]
    assert len(cells) == 2 + 6 and "lexical:token-set" in markdown(result) and "sample data: not" in markdown(result)


def test_latex_has_a_table_that_compiles_in_shape(result):
    text = latex(result)
    body = re.search(r"\\midrule\n(.*)\\bottomrule", text, re.S)[1]
    lines = [line for line in body.splitlines() if line.strip()]
    assert len(lines) == 6 and all(line.count("&") == 2 and line.endswith(r"\\") for line in lines)
    assert text.count("\\begin{") == text.count("\\end{") == 2 and "sample data" in text
    unescaped = re.sub(r"\\[&%$#_{}]|^%.*$", "", text, flags=re.M)
    assert "%" not in unescaped and "_" not in unescaped


def test_plain_metrics_are_no_percentages(result):
    row = ScoreRow(protocol="geometry", task="STS-B", metric="uniformity", value=-2.3134, low=-2.4, high=-2.2, n=9)
    assert shown(row) == "-2.313" and interval(row) == "-2.400 to -2.200"
    assert shown(result.rows[0]) == f"{result.rows[0].value:.2f}"
    assert "scores x 100" in title_of(result, "sts")


def test_subsets_show_only_where_nothing_stands_for_the_whole(result):
    assert all(row.subset is None for row in main_rows(result, "sts"))
    kept, result.summaries = result.summaries, [
        ScoreRow(protocol="geometry", task="STS-B", subset="0-1", metric="mean cosine", value=0.2, n=3)
    ]
    try:
        assert [row.subset for row in main_rows(result, "geometry")] == ["0-1"]
    finally:
        result.summaries = kept
