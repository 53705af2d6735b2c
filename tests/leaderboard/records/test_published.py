"""Published rows: the shipped files hold together, averages are recomputed. Mistakes in files: tests/refusals/board.yaml."""

import re
from decimal import Decimal
from fractions import Fraction

import pytest
import yaml
from board_refusals import PAPER, TABLE, publication, yaml_folder
from hypothesis import given
from hypothesis import strategies as st

from stsbench.leaderboard.records.paths import PUBLISHED
from stsbench.leaderboard.records.publications import Heading, Paper, PublishedRow, find_row, load_publications

DISAGREE = {
    "diffaug:1:6": (78.54, 78.52), "diffaug:1:8": (74.89, 74.86), "diffaug:6:7": (79.81, 79.57),
    "diffaug:6:8": (78.15, 79.70), "simcse:5:15": (74.89, 74.86), "simcse:B.2:2": (74.89, 74.86),
    "simcse:E.1:3": (84.94, 84.95), "promptbert-readme:README:1": (78.54, 78.52),
}
FAMILIES = (
    "BERT", "RoBERTa", "CSE", "GloVe", "fastText", "InferSent", "USE", "Sent.Transformers", "QuickThoughts", "Skip-thought",
    "DeCLUTR", "DiffAug", "ConSERT", "CLEAR", "CT", "CMLM", "SG-OPT", "EOL", "Pretended CoT", "Knowledge Enhancement",
    "LLaMA", "LLM2Vec", "PCL", "AnglE", "CoSENT", "Sentence-BERT",
)


@pytest.fixture(scope="module")
def rows():
    return {row.id: row for publication in load_publications() for row in publication.rows}


def test_rows_have_ids_of_their_own_and_disagree_with_their_columns_only_where_known(rows):
    assert len(rows) == sum(len(publication.rows) for publication in load_publications()) == 621
    assert {row.id: (row.average, row.recomputed) for row in rows.values() if row.disagrees} == DISAGREE
    assert {row.id for row in rows.values() if row.average_reason} == set(DISAGREE)
    assert [find_row(f"simcse:B.2:{n}").heading.aggregation for n in (1, 3, 5, 9)] == ["all", "wmean", "all", "wmean"]


def test_cells_are_written_with_the_decimals_they_were_printed_with_and_average_exactly(rows):
    """Against the files' own characters, in exact arithmetic."""
    recomputed = 0
    for path in PUBLISHED.glob("*.yaml"):
        raw = yaml.load(path.read_text("utf-8"), Loader=yaml.BaseLoader)
        for table in raw["tables"]:
            name = table["table"] + (f"/{table['part']}" if "part" in table else "")
            for line in table["rows"]:
                row = rows[f"{raw['paper']['id']}:{name}:{line['row']}"]
                cells = [Decimal(cell) for cell in line["scores"] if cell != "null"]
                printed = [*cells, *([Decimal(line["average"])] if "average" in line else [])]
                assert {-cell.as_tuple().exponent for cell in printed} <= {row.printed_decimals}, row.id
                assert row.scores == tuple(None if cell == "null" else float(cell) for cell in line["scores"]), row.id
                if row.recomputed is not None:
                    mean = sum(map(Fraction, cells)) / len(cells)
                    assert len(cells) == len(row.scores)
                    assert abs(mean - Fraction(str(row.recomputed))) <= Fraction(1, 2 * 10**row.printed_decimals), row.id
                    recomputed += 1
    assert recomputed == 300


def test_rows_copied_from_a_publication_held_here_are_in_it(rows):
    """But for SBERT's, most of whose rows are held only as others repeat them."""
    papers = {publication.paper.id for publication in load_publications()}
    copies = [row for row in rows.values() if row.copied_from in papers - {"sbert"}]
    assert len(copies) > 30
    for row in copies:
        same = [other for other in rows.values()
                if other.heading.paper.id == row.copied_from and other.scores == row.scores]
        assert any((other.heading.aggregation, other.heading.metric) == (row.heading.aggregation, row.heading.metric)
                   for other in same), row.id


def test_flags_and_names_say_what_they_must(rows):
    """A label of an ablation, "tau 0.05" or "[CLS] w/ MLP", means nothing beside the rows of other papers."""
    for row in rows.values():
        if row.setting == "unsup" and row.heading.protocol != "few-labels":
            assert not {"nli", "sts"} & set(row.flags), row.id
        if "target" in row.method:
            assert "transductive" in row.flags, row.id
        if row.setting == "semi" and row.heading.protocol != "cost":
            assert "nli" in row.flags, row.id
        assert any(name in row.method for name in FAMILIES), row.id
    dev = [row.method for row in rows.values() if row.heading.protocol == "dev"]
    assert len(dev) > 100 and all(re.search(r"SimCSE|DiffCSE|DiffAug", name) for name in dev)
    unknown = {row.id for row in rows.values() if row.heading.aggregation == "unknown" and not row.heading.task}
    assert unknown == {"consert:2:6", "consert:2:7", "consert:3:3", "consert:3:4", "diffcse:1:6"}  # never called all


def test_no_mean_of_columns_that_nobody_averages(rows):
    nothing = ("declutr:2/sts:10", "declutr:2/regression:10", "simcse:2:1", "diffcse:10:1", "diffaug:6:4")
    # five years; two tasks; one encoder and two; recalls at 1, 5, 10; unreadable cells
    assert [rows[row].recomputed for row in nothing] == [None] * 5
    assert rows["bert-flow:2:4"].recomputed == 69.57  # the seven tasks, although the paper prints no average


HEADING = Heading(paper=Paper(**PAPER), **TABLE, columns=tuple("ABCDEFG"), average="Avg")


@given(st.lists(st.integers(0, 10**6), min_size=7, max_size=7))
def test_rounding_alone_never_disagrees(true):
    """Scores with four decimals, printed with two, and the average of the unrounded ones printed with two."""
    scores = [round(value / 10**4, 2) for value in true]
    row = PublishedRow(heading=HEADING, row=1, method="m", scores=scores, average=round(sum(true) / 7 / 10**4, 2))
    assert not row.disagrees
    mean = Fraction(sum(round(100 * score) for score in scores), 700)
    assert abs(mean - Fraction(str(row.recomputed))) <= Fraction(1, 200)


@given(st.lists(st.integers(0, 10**4), min_size=7, max_size=7), st.integers(-500, 500))
def test_disagreement_is_what_rounding_cannot_explain(hundredths, shift):
    average = round(sum(hundredths) / 7) + shift
    stated = {"heading": HEADING, "row": 1, "method": "m", "scores": [value / 100 for value in hundredths]}
    apart = abs(Fraction(sum(hundredths), 7) - average) > 1
    row = PublishedRow(**stated, average=average / 100, average_reason="so printed" if apart else None)
    assert row.disagrees == apart
    with pytest.raises(ValueError, match="average"):
        PublishedRow(**stated, average=average / 100, average_reason=None if apart else "so printed")


def test_a_file_of_one_table_is_read_as_its_rows():
    folder = yaml_folder(toy=publication(flags=["nli", "best-of-n"], best_of=5, runs=3, sd=[0.1, None, 0.3], average=15.0))
    [loaded] = load_publications(folder)
    row = loaded.rows[0]
    assert (row.id, row.scores, row.average, row.recomputed) == ("toy:1:1", (10.11, 20.22, None), 15.0, None)
    assert (row.best_of, row.runs, row.sd, row.heading.columns) == (5, 3, (0.1, None, 0.3), ("A", "B", "C"))
    assert row == find_row(" toy:1:1 ", folder) != find_row("toy:1:2", folder)
