"""What `evaluate` and `compare` give, as objects: the numbers of a table, a page, a picture and a frame are the rows'."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from matplotlib.figure import Figure

from stsbench import compare, evaluate, load
from stsbench.errors import StsbenchError
from stsbench.evaluation.result import Result

ASKED = {"sample": True, "tasks": "STS-B,STS12", "resamples": 50, "no_cache": True}
pytestmark = pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("objects")
    return [evaluate(f"lexical:{name}", output=folder / name, protocols="sts,regression", **ASKED)
            for name in ("tfidf", "token-set")]


@pytest.fixture(scope="module")
def comparison(runs):
    return compare(*runs, resamples=100)


def tables_of(page):
    """The cells of every table of a page, line by line; the page is well-formed."""
    tables = ElementTree.fromstring(f"<div>{page}</div>").iter("table")
    return [[["".join(cell.itertext()) for cell in line] for line in table.iter("tr")] for table in tables]


def test_a_result_shows_every_score_with_the_interval_of_the_first(runs):
    result = runs[0]
    assert len(repr(result)) < 300 and "3 records" in repr(result)
    sts, regression = tables_of(result._repr_html_())
    assert sts[0][:4] == ["task", "n", "spearman all [95 % interval]", "spearman mean"]
    assert regression[0][0] == "task" and [line[0] for line in sts[1:]] == ["STS12", "STS-B"]
    by_key = {(row.task, f"{row.metric} {row.aggregation}"): row for row in result.rows if row.subset is None}
    for line in sts[1:]:
        for name, cell in zip(sts[0][3:], line[3:], strict=True):
            assert cell == f"{by_key[line[0], name].value:.2f}"
        first = by_key[line[0], "spearman all"]
        assert line[1:3] == [str(first.n), f"{first.value:.2f} [{first.low:.2f}, {first.high:.2f}]"]
    text = [re.split("  +", line.strip()) for line in str(result).splitlines()]
    assert all(line in text for line in sts) and "No average for sts" in str(result)


def test_what_was_left_out_or_failed_stands_below(runs):
    odd = Result(Path("x"), failures={"sts <b>": "no & none"}, left_out={"sts SICK-R": "no data", "pearl SICK-R": "no data"})
    page = odd._repr_html_()
    assert "<b>" not in page and "no &amp; none" in page and "left out: sts SICK-R, pearl SICK-R: no data" in page
    assert "no & none" in str(odd) and "1 failure" in repr(odd)


def test_where_nothing_was_measured_no_other_run_is_taken_for_it(tmp_path, monkeypatch):
    """Neither one whose name was asked for, nor another one without a name."""
    monkeypatch.chdir(tmp_path)
    for output in ("run", None):
        one = evaluate("lexical:tfidf", output=output, **ASKED)
        empty = evaluate(lambda texts: np.zeros((len(texts), 2)), output=output, **ASKED)
        assert one.records and not empty.records and not empty.folder.exists()
        with pytest.raises(StsbenchError, match="cannot write kept"):
            empty.save("kept")
        with pytest.raises(StsbenchError, match="is not a run folder: no such folder"):
            compare(one, empty)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_is_loaded_knows_what_was_left_out(tmp_path):
    run = evaluate(lambda texts: np.ones((len(texts), 2)), protocols="sts,transfer:exact,retrieval", tasks="STS12,CR",
                   settings={"transfer.k": 3}, sample=True, no_cache=True, output=tmp_path / "run")
    assert run.records and run.failures and run.left_out
    again = load(run.folder)
    assert (again.failures, again.left_out, again.rows) == (run.failures, run.left_out, run.rows)
    assert again._repr_html_() == run._repr_html_()
    (run.folder / "not-measured.json").write_text('{"failures": {"sts STS12": 3}}')
    with pytest.raises(StsbenchError, match=r"not-measured\.json: failures must be names with reasons"):
        load(run.folder)


def drawn(axes):
    """label -> (value, low, high) of each line of a picture of intervals."""
    lines = [line.get_xdata() for line in axes.get_lines() if len(set(line.get_ydata())) == 1]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    return {label: (lines[2 * y + 1][0], *lines[2 * y]) for y, label in enumerate(labels)}


def test_a_picture_has_the_scores_and_their_intervals(runs):
    result = runs[0]
    want = {row.task: (row.value, row.low, row.high) for row in result.rows
            if (row.protocol, row.metric, row.aggregation, row.subset) == ("sts", "spearman", "all", None)}
    axes = result.plot()
    assert drawn(axes) == want and axes.get_xlabel() == "spearman, all x 100, 95 % interval"
    assert axes.get_title(loc="left").startswith("lexical:tfidf\nsts: scores x 100 (sample data")
    mine = Figure().subplots()
    assert result.plot("regression", axes=mine) is mine and set(drawn(mine)) == {"STS-B"}
    with pytest.raises(StsbenchError):
        Result(Path("x")).plot()


def test_a_comparison_shows_the_differences_and_says_what_they_mean(runs, comparison):
    assert len(repr(comparison)) < 400 and "2 tables" in repr(comparison)
    for table, lines in zip(comparison.tables, tables_of(comparison._repr_html_()), strict=True):
        assert lines[0][:5] == ["task", "n", "A", "B", "A - B [95 % interval]"]
        assert lines[0][-2].startswith("p, corrected for " if len(table.rows) > 1 else "p")
        for row, line in zip(table.rows, lines[1:], strict=True):
            gap = row.difference
            assert line[:4] == [row.task, str(row.n), f"{row.a:.2f}", f"{row.b:.2f}"]
            assert line[4] == f"{gap.value:+.2f} [{gap.low:.2f}, {gap.high:.2f}]"
    assert str(comparison).startswith("A: lexical:tfidf\nB: lexical:token-set\n")
    same = compare(runs[0], runs[0], resamples=40)
    assert "A and B name the same encoder" in str(same) and "A and B name the same encoder" not in str(comparison)


def test_a_picture_of_differences_has_a_line_at_zero(comparison):
    table = comparison.tables[0]
    axes = comparison.plot()
    assert drawn(axes) == {row.task: (row.difference.value, row.difference.low, row.difference.high) for row in table.rows}
    assert any(set(line.get_xdata()) == {0} for line in axes.get_lines())
    assert axes.get_xlabel() == "A - B, 95 % interval; right of 0: A is better"
    assert comparison.plot(1, axes=Figure().subplots()).get_title(loc="left").splitlines()[1].startswith("regression: ")


def test_frames_hold_every_score_and_difference(runs, comparison):
    """The same numbers as the rows and as scores.csv, for pandas, polars' interface and pyarrow."""
    result = runs[1]
    frame, written = result.to_pandas(), pd.read_csv(result.folder / "scores.csv")
    names = ["protocol", "task", "metric", "aggregation", "value", "low", "high", "n"]
    pd.testing.assert_frame_equal(frame[names], written[names])
    assert pa.table(result).equals(result.to_arrow()) and set(frame.known.dropna()) == {True}
    assert json.loads(result.to_json()) == [row.model_dump() for row in result.rows]
    differences = comparison.to_pandas()
    assert len(differences) == sum(len(table.named) for table in comparison.tables) > 1
    assert np.allclose(differences.a - differences.b, differences.difference)


def test_a_notebook_shows_a_picture_once(runs, comparison, monkeypatch):
    """By pyplot, whose figures it shows below the cell; elsewhere pyplot, which keeps every figure, has none."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.close("all")
    assert runs[0].plot() and not pyplot.get_fignums()
    monkeypatch.setattr("stsbench.display.style.in_notebook", lambda: True)
    figures = [runs[0].plot().figure, comparison.plot().figure]
    assert [pyplot.figure(number) for number in pyplot.get_fignums()] == figures
    pyplot.close("all")
    sizes = []  # of the font, while pyplot, which may load what draws for a notebook, is at work: not that of our style
    monkeypatch.setattr(pyplot, "figure", lambda figure: sizes.append(pyplot.rcParams["font.size"]))
    runs[0].plot()
    assert sizes == [pyplot.rcParams["font.size"]] != [8]
