"""What a build writes below docs/, and what lies there of the board in this repository: which rows a table of findings has,
which cells, and whose published figure; the README's picture, which says what the table says and stays valid XML; the
picture of entries, which draws what the records hold, seed by seed."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from board_example import synthetic
from board_runs import STS_TAB, entry, read_once, rows_by_id, runs  # noqa: F401 - fixtures
from clirun import refuses

from stsbench import leaderboard
from stsbench.display.style import save, style
from stsbench.errors import StsbenchError
from stsbench.evaluation.run_file import RUN, load_records
from stsbench.leaderboard.board_files import BEGIN, END
from stsbench.leaderboard.findings import plane
from stsbench.leaderboard.findings.forest import PAPER, ROWS, forest
from stsbench.leaderboard.findings.pages import COLUMNS, FACTS, QUESTIONS, STS, backbone_table, encoder_table
from stsbench.leaderboard.findings.picture import COLOURS, DARK_COLOURS
from stsbench.leaderboard.findings.section import Findings
from stsbench.leaderboard.ranks.board import Board, Cell, Exposure, Provenance, Rank, Row, Tab
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records.add import add
from stsbench.protocols.sts import AVERAGED

BOARD = Path(__file__).resolve().parents[3] / "leaderboard"


def test_the_pages_stand_in_git_where_the_board_has_their_rows(tmp_path):
    """That a build writes them, and a check names them, is the core's to test."""
    section, example, page = Findings(), synthetic(12), tmp_path / "findings/methods-on-minilm.md"
    made = section.findings(section.content(tmp_path, (), example.tabs, {}), example, tmp_path)
    names = {"leaderboard.svg", *(f"findings/{name}" for name in (
        "protocol-sensitivity.md", "protocol-sensitivity.svg", "which-encoder.csv"))}
    assert {path.relative_to(tmp_path).as_posix() for path in made} == names
    assert all(example.tabs[0].measured[0].method in text for path, text in made.items() if path.suffix != ".md")
    page.parent.mkdir()
    page.write_text(f"above\n{BEGIN}\n{END}\n")
    assert section.findings(None, example, tmp_path)[page].startswith(f"above\n{BEGIN}\n\n| method | pooler |")
    assert section.findings(None, Board((), {}), tmp_path).keys() == {page}


def test_the_pictures_have_the_page_s_colours():
    css = (BOARD / "web/src/style/colours.css").read_text("utf-8")
    lines = re.findall(r"--line-\d: light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", css)
    assert [*zip(*lines, strict=True)] == [COLOURS, DARK_COLOURS]


def test_the_findings_show_the_committed_records():
    """An entry's mean over runs, a run's mean over rounded tasks; and each question of the table of encoders has answers."""
    text = (BOARD.parent / "docs/findings/methods-on-minilm.md").read_text("utf-8")
    for name, method in (("minilm-mean", "all-MiniLM-L6-v2, mean"), ("minilm-mlm32-simcse", "SimCSE, 100 steps")):
        values = [round(row.value, 2) for run in (BOARD / "measured" / name).glob(f"*/{RUN}")
                  for _, record in load_records(run) for row in record.scores if row.task in AVERAGED
                  and (record.protocol.label, row.metric, row.aggregation, row.subset) == ("sts", "spearman", "all", None)]
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {method} |")]
        assert float(line.split("|")[3].partition("±")[0]) == pytest.approx(np.mean(values), abs=0.0101)
    with (BOARD.parent / "docs/findings/which-encoder.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for name in [*(name for _, _, name in QUESTIONS), *FACTS, "mteb_mean_of_7"]:
        assert sum(bool(row[name]) for row in rows) > 1, name


def scored(name, *average, backbone="b"):
    return Row(name, "measured", name, backbone, "sup", {"Avg": Cell(*average)}, entry=name)


def board_of(rows, recipes):
    columns = {id: tuple(column for tab, column, _ in COLUMNS if tab == id) for id in (STS, "regression-pearson")}
    tabs = [Tab(id, id, id, "", "m", None, columns[id], "Avg", 2, False,
                tuple(rows) if id == STS else (replace(rows[0], cells={"STS-B": Cell(30.0)}),), ())
            for id in (STS, "regression-pearson")]
    runs = ({"encoder": {"pooler": "cls"}},)
    return Board(tuple(tabs), {each.id: Provenance(each.id, each.id, "", recipes.get(each.id, ""), runs) for each in rows})


def lines(rows, recipes):
    table = backbone_table(board_of(rows, recipes), ["b"])
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_rows_of_the_backbone_have_a_line_with_empty_cells_where_nothing_was_measured():
    rows = [scored("a", 70.0, 69.0, 71.0, 0.5), scored("other", 60.0, backbone="c"), scored("c", 50.126)]
    header, _, first, second = lines(rows, {"a": "simcse/unsup-bert-base"})
    assert header[:4] == ["method", "pooler", "STS average", "published"]
    assert first[1:4] == ["cls", "70.00 ± 0.50", "76.25"] and first[header.index("STS-B, regression")] == "30.00"
    assert second[:4] == ["c", "cls", "50.13", ""] and second[header.index("transfer")] == ""
    # A twin that repeats the authors' code holds the figure, and what no method brings has none.
    rows = [scored(name, 70.0) for name in ("x", "y", "z")]
    recipes = {"x": "diffaug/bert-base-semi", "y": "./code.py:Class/recipe", "z": "sarcse/roberta-base"}
    assert [line[3] for line in lines(rows, recipes)[2:]] == ["80.13", "", "78.09 (roberta-base)"]
    # Encoders to choose from are those that no short training made.
    rows = [scored("a", 70.0, 69.0, 71.0), replace(scored("short", 60.0), flags=("changed-recipe",)),
            replace(scored("best", 61.0), best_of=3), scored("c", 50.126)]
    first, second = csv.DictReader(io.StringIO(encoder_table(board_of(rows, {}))))
    assert [first[f"sts_avg{end}"] for end in ("", "_low", "_high", "_trained_on")] == ["70.00", "69.00", "71.00", "unknown"]
    assert (second["entry"], second["sts_avg"], second["sts_avg_low"], second["transfer"]) == ("c", "50.13", "", "")
    assert encoder_table(Board((), {})) == ""


SVG = "{http://www.w3.org/2000/svg}"


def row(number, **changes):
    cells = {"Avg": Cell(80.0 - number, 79.0 - number, 81.0 - number)}
    rank = Rank(number + 1, max(1, number), number + 2, "")
    return replace(Row(f"r{number}", "measured", f"method {number}", "net", "unsup", cells, rank=rank), **changes)


def board(*rows):
    tab = Tab("sts-spearman-all", "sts", "Spearman, all", "", "spearman", "all", ("Avg",), "Avg", 2, False, rows, ())
    return Board((tab,), {})


def drawn(*rows):
    return ElementTree.fromstring(forest(board(*rows)))


def words(root):
    return [text.text for text in root.iter(f"{SVG}text")]


def test_each_row_has_its_score_interval_and_rank():
    root = drawn(row(0), row(1), row(2))
    said = words(root)
    for number in range(3):
        assert f"method {number}" in said and f"{80 - number:.2f}" in said
    assert said.count("1-2") == 1 and said.count("1-3") == 1 and said.count("2-4") == 1
    dots = list(root.iter(f"{SVG}circle"))
    lines = [line for line in root.iter(f"{SVG}line") if line.get("stroke-width") == "2"]
    x = [float(dot.get("cx")) for dot in dots]
    assert x[0] - x[1] == pytest.approx(x[1] - x[2], abs=0.02)  # equal steps of the score
    for dot, line in zip(x, lines, strict=True):
        # An interval of one point to each side reaches as far as the next row's dot.
        assert dot - float(line.get("x1")) == pytest.approx(x[0] - x[1], abs=0.02)
        assert float(line.get("x2")) - dot == pytest.approx(x[0] - x[1], abs=0.02)
    assert [dot.get("fill") == dot.get("stroke") for dot in dots] == [True, True, False]  # could be first


def test_rows_are_drawn_by_what_they_were_trained_on_and_equal_names_tell_their_backbone():
    trained = [{"exposure": {"Avg": Exposure(word, "")}} for word in ("yes", "no")]
    rows = [row(0, flags=("sts",), **trained[0]), row(1, flags=("changed-recipe",)), row(2, **trained[0]),
            row(3, method="method 2", backbone="other"), row(4, **trained[1])]
    said = words(drawn(*rows))
    assert "method 1" not in said
    order = ["Trained on STS labels", "method 0", "Trained on test sentences", "method 2 (net)",
             "Trained on unknown texts", "method 2 (other)", "Trained on no test sentences", "method 4"]
    assert [each for each in said if each in order] == order


def test_the_best_ranked_rows_are_drawn_their_names_as_text():
    said = words(drawn(row(0, method="<b>&\"</b>"), row(1, method="m" * 99)))
    assert "<b>&\"</b>" in said and "".join(text for text in said if re.fullmatch("m+", text)) == "m" * 99
    (style,) = drawn(row(0), row(1)).iter(f"{SVG}style")
    assert "prefers-color-scheme: dark" in style.text and PAPER in style.text
    assert len(list(drawn(row(0, cells={"Avg": Cell(50.0)})).iter(f"{SVG}circle"))) == 1  # without an interval
    assert forest(board()) == forest(Board((), {})) == forest(board(row(0, rank=None))) == ""
    many = drawn(row(0, rank=None), *(row(number) for number in range(1, 40)))
    assert len(list(many.iter(f"{SVG}circle"))) == ROWS and "method 0" not in words(many)


@pytest.fixture(scope="module")
def root(runs, tmp_path_factory):
    """Three entries, of which one has two seeds, with dollar signs in names."""
    board = tmp_path_factory.mktemp("plane") / "board"
    for name, several, method in (("letters", ["letters"], r"$\frac{$ prices"), ("words", ["words"], "$a$"),
                                  ("noisy", ["noisy", "noisy-2"], "noisy")):
        flags = ("transductive",) if name == "words" else ("nli",)
        add(board, [runs[each] for each in several], name, entry(method, backbone="$none$", flags=flags))
    return board


def plane_axes(root):
    with style():
        return plane.figure(root, "$none$", (STS_TAB, "STS13"), STS_TAB).axes


def test_the_plane_has_each_run_at_its_two_scores(root):
    """Numbered by the first score, the best first; a run that lacks the second is left out."""
    axes, names = plane_axes(root)
    rows = rows_by_id(gather(root))
    large = [line for line in axes.lines if line.get_marker() == "o" and line.get_markersize() > 4]
    small = [line for line in axes.lines if line.get_marker() == "o" and line.get_markersize() < 4]
    means = [(line.get_xdata()[0], line.get_ydata()[0]) for line in large]
    ordered = sorted(rows.values(), key=lambda row: -row.cells["Avg"].value)
    np.testing.assert_allclose(means, [(row.cells["Avg"].value, row.cells["STS13"].value) for row in ordered])
    assert sorted(len(line.get_xdata()) for line in small) == [1, 1, 2]
    for line, mean in zip(small, means, strict=True):
        np.testing.assert_allclose((np.mean(line.get_xdata()), np.mean(line.get_ydata())), mean)
    assert [note.get_text() for note in axes.texts if note.get_text()] == ["1", "2", "3"]
    listed = [text.get_text() for text in names.texts]
    assert listed[0::2] == ["1", "2", "3"]
    assert all(row.method in line for row, line in zip(ordered, listed[1::2], strict=True))
    for backbone, across, up, reason in (
        ("$none$", ("other", "Avg"), STS_TAB, r"no run on \$none\$ of .* has both 'Avg' .* and 'Avg' of the tab 'other'"),
        ("$none$", (STS_TAB, "STS13"), "sts-spearman-most", r"has both 'Avg' of the tab 'sts-spearman-most'"),
        ("$nine$", (STS_TAB, "STS13"), STS_TAB, r"no entry of .* has the backbone '\$nine\$'; did you mean \$none\$")):
        refuses(StsbenchError, reason, plane.figure, root, backbone, across, up)


def test_a_name_with_dollar_signs_is_no_formula(root, tmp_path):
    """Typeset as one it would be drawn otherwise, or end in matplotlib's error."""
    axes = leaderboard.plot("$none$", (STS_TAB, "STS12"), board=root, tab=STS_TAB, output=tmp_path / "one.svg")
    assert (axes.get_xlabel(), axes.get_ylabel()) == (f"Avg ({STS_TAB})", f"STS12 ({STS_TAB})")
    assert (tmp_path / "one.svg").is_file()
    texts = [*axes.figure.axes[1].texts, axes.title, axes.xaxis.label]
    shown = " ".join(text.get_text() for text in texts)
    assert r"$\frac{$ prices" in shown and "  $a$ (" in shown
    assert not any(text.get_parse_math() for text in texts)
    with style():  # but powers of ten stay formulas
        axes.set_yscale("log")
        save(axes.figure, tmp_path / "log.svg")
    assert all(label.get_parse_math() for label in axes.get_yticklabels())


def test_a_mean_over_some_of_the_seeds_is_hollow_and_says_so(root, monkeypatch):
    whole = plane.entry_scores
    monkeypatch.setattr(plane, "entry_scores", lambda entry, lines, tab, column: dict(
        [*whole(entry, lines, tab, column).items()][: 1 if column == "STS13" else None]))  # without the second run
    axes, names = plane_axes(root)
    means = [line for line in axes.lines if line.get_marker() == "o" and line.get_markersize() > 4]
    hollow = [line.get_markerfacecolor() == "white" for line in means]
    assert hollow == ["1 of 2 seeds" in text.get_text() for text in names.texts[1::2]] and sum(hollow) == 1
