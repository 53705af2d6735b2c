"""`stsbench.reproduce` against its command: the same tables, rows and errors, and nothing printed."""

import csv
import io
import json

import pytest
from board_runs import read_once  # noqa: F401  fixture
from clirun import cli, place  # noqa: F401  fixtures
from reproduced import PUBLICATIONS, trained
from shipped_recipes import recipe

import stsbench
from stsbench.errors import StsbenchError
from stsbench.leaderboard import papers


@pytest.mark.parametrize("table", ["simcse:5", "diffcse:11/sts", "simcse:5:7"])
def test_the_forms_are_the_command_s(cli, capsys, table):
    made = stsbench.reproduce(table)
    assert capsys.readouterr() == ("", "")
    for form, text in {"latex": made.latex(), "markdown": made.markdown(), "csv": made.csv()}.items():
        assert cli("reproduce", table, "--format", form) == (0, text, "")
    assert cli("reproduce", table, "--json", "-") == (0, made.to_json() + "\n", "")
    printed = cli("reproduce", table)[1]
    commands = [line.strip() for line in str(made).splitlines() if line.startswith("        stsbench ")]
    assert len(commands) == printed.count("    stsbench ") and all(command in printed for command in commands)
    lines = list(csv.DictReader(io.StringIO(made.csv())))
    frame = made.to_frame()
    assert [*frame.columns] == [*lines[0]] and [*frame.row] == [line["row"] for line in lines]
    assert [*frame.published.dropna()] == [float(line["published"]) for line in lines if line["published"]]
    html = made._repr_html_()
    assert html.count("<table>") == made.latex().count("\\begin{table*}") and "stsbench train" in html
    assert len(repr(made)) < 100


def test_what_was_measured_stands_beside_what_was_published(cli, place):
    trained(place / "runs" / "mine", recipe("unsup-bert-base"))
    made = stsbench.reproduce("simcse:5:7", runs=place / "runs")
    _, out, _ = cli("reproduce", "simcse:5:7", "--json", "-")
    [row] = json.loads(out)
    frame = made.to_frame()
    assert row["measured"] and {line.column: line.measured for line in frame[frame.name.notna()].itertuples()} == {
        column: mean["mean"] for column, mean in row["measured"][0]["scores"].items()
    }
    assert "1 measured here" in repr(made) and "difference" in str(made) and "measured" in made._repr_html_()


def test_the_papers_are_the_command_s(cli):
    everything = papers()
    frame = everything.to_frame()
    assert [*frame.name] == [publication.paper.id for publication in PUBLICATIONS] and not everything.paper
    total = cli("reproduce")[1].splitlines()[-1].split()
    assert total[1:] == [str(frame[name].sum()) for name in ("rows", "by_recipe", "by_eval", "not_here")]
    tables = papers("diffcse")
    out = cli("reproduce", "diffcse")[1]
    assert all(f"{name} " in out for name in tables.to_frame().name) and "diffcse:11/sts" in repr(tables)
    assert str(tables).count("\n") == len(tables.rows) + 2 and tables._repr_html_().count("<tr>") == len(tables.rows) + 1


@pytest.mark.parametrize(("table", "options"), [
    ("simcs:5", {}), ("simcse:55", {}), ("simcse:5:99", {}), ("simcse:5", {"board": "nowhere"}),
])
def test_what_the_command_refuses_is_refused(cli, table, options):
    _, _, err = cli("reproduce", table, *(word for name, value in options.items() for word in (f"--{name}", value)))
    with pytest.raises(StsbenchError) as error:
        stsbench.reproduce(table, **options)
    assert err == f"stsbench: error: {error.value}\n"


def test_what_names_no_table_or_folder_is_refused():
    with pytest.raises(StsbenchError, match="'simcse' names no table: write PAPER:TABLE, as simcse:5"):
        stsbench.reproduce("simcse")
    with pytest.raises(StsbenchError, match="nowhere: there is no such folder"):
        stsbench.reproduce("simcse:5", runs="nowhere")


def test_the_functions_are_found_in_their_packages():
    assert "reproduce" in dir(stsbench) and "papers" in dir(stsbench.leaderboard)
    assert papers().to_frame().shape == (len(PUBLICATIONS), 6)
