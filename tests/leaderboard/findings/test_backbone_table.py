"""The table of one backbone's rows under every protocol: which rows, which cells, and whose published figure. And that of
encoders to choose from."""

import csv
import io
from dataclasses import replace

from stsbench.leaderboard.findings.pages import COLUMNS, STS, backbone_table, encoder_table
from stsbench.leaderboard.ranks.board import Board, Cell, Provenance, Row, Tab


def row(name, backbone="b", **cells):
    return Row(name, "measured", name, backbone, "sup", {key: Cell(*value) for key, value in cells.items()}, entry=name)


def board(rows, recipes):
    columns = {id: tuple(column for tab, column, _ in COLUMNS if tab == id) for id in (STS, "regression-pearson")}
    tabs = [Tab(id, id, id, "", "m", None, columns[id], "Avg", 2, False,
                tuple(rows) if id == STS else (replace(rows[0], cells={"STS-B": Cell(30.0)}),), ())
            for id in (STS, "regression-pearson")]
    runs = ({"encoder": {"pooler": "cls"}},)
    entries = {each.id: Provenance(each.id, each.id, "", recipes.get(each.id, ""), runs) for each in rows}
    return Board(tuple(tabs), entries)


def lines(rows, recipes=()):
    table = backbone_table(board(rows, dict(recipes)), ["b"])
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_rows_of_the_backbone_have_a_line_with_empty_cells_where_nothing_was_measured():
    rows = [row("a", Avg=(70.0, 69.0, 71.0, 0.5)), row("other", "c", Avg=(60.0,)), row("c", Avg=(50.126,))]
    header, _, first, second = lines(rows, {"a": "simcse/unsup-bert-base"})
    assert header[:4] == ["method", "pooler", "STS average", "published"]
    assert first[1:4] == ["cls", "70.00 ± 0.50", "76.25"] and first[header.index("STS-B, regression")] == "30.00"
    assert second[:4] == ["c", "cls", "50.13", ""] and second[header.index("transfer")] == ""


def test_a_twin_that_repeats_the_authors_code_holds_the_figure_and_what_no_method_brings_has_none():
    rows = [row(name, Avg=(70.0,)) for name in ("x", "y", "z")]
    recipes = {"x": "diffaug/bert-base-semi", "y": "./code.py:Class/recipe", "z": "sarcse/roberta-base"}
    assert [line[3] for line in lines(rows, recipes)[2:]] == ["80.13", "", "78.09 (roberta-base)"]


def test_encoders_to_choose_from_are_those_that_no_short_training_made():
    rows = [row("a", Avg=(70.0, 69.0, 71.0)), row("short", Avg=(60.0,)), row("best", Avg=(61.0,)), row("c", Avg=(50.126,))]
    rows[1], rows[2] = replace(rows[1], flags=("changed-recipe",)), replace(rows[2], best_of=3)
    first, second = csv.DictReader(io.StringIO(encoder_table(board(rows, {}))))
    assert [first[f"sts_avg{end}"] for end in ("", "_low", "_high", "_trained_on")] == ["70.00", "69.00", "71.00", "unknown"]
    assert (second["entry"], second["sts_avg"], second["sts_avg_low"], second["transfer"]) == ("c", "50.13", "", "")
    assert encoder_table(Board((), {})) == ""
