"""Published rows: the shipped files hold together, averages are recomputed, and rows of STS and transfer equal, figure by
figure, the transcription that they were converted from, where that is at hand."""

import csv
import io
import re
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from board_refusals import PAPER, TABLE, publication, yaml_folder
from board_runs import read_once  # noqa: F401  fixture
from hypothesis import given, settings
from hypothesis import strategies as st

from stsbench.leaderboard.records.paths import PUBLISHED
from stsbench.leaderboard.records.publications import Heading, Paper, PublishedRow, find_row, load_publications

DISAGREE = {
    "diffaug:1:6": (78.54, 78.52), "diffaug:1:8": (74.89, 74.86), "diffaug:6:7": (79.81, 79.57),
    "diffaug:6:8": (78.15, 79.70), "simcse:5:15": (74.89, 74.86), "simcse:B.2:2": (74.89, 74.86),
    "simcse:E.1:3": (84.94, 84.95), "promptbert-readme:README:1": (78.54, 78.52)}
HEADING = Heading(paper=Paper(**PAPER), **TABLE, columns=tuple("ABCDEFG"), average="Avg")


@pytest.fixture(scope="module")
def rows():
    return {row.id: row for publication in load_publications() for row in publication.rows}


def test_rows_have_ids_of_their_own_and_means_only_of_columns_that_are_averaged(rows):
    assert len(rows) == sum(len(publication.rows) for publication in load_publications()) == 621
    assert {row.id: (row.average, row.recomputed) for row in rows.values() if row.disagrees} == DISAGREE
    assert {row.id for row in rows.values() if row.average_reason} == set(DISAGREE)
    assert [find_row(f"simcse:B.2:{n}").heading.aggregation for n in (1, 3, 5, 9)] == ["all", "wmean", "all", "wmean"]
    nothing = ("declutr:2/sts:10", "declutr:2/regression:10", "simcse:2:1", "diffcse:10:1", "diffaug:6:4")
    # five years; two tasks; one encoder and two; recalls at 1, 5, 10; unreadable cells
    assert [rows[row].recomputed for row in nothing] == [None] * 5
    assert rows["bert-flow:2:4"].recomputed == 69.57  # the seven tasks, although the paper prints no average


def test_cells_are_written_with_the_decimals_they_were_printed_with_and_average_exactly(rows):
    """Against the files' own characters, in exact arithmetic."""
    recomputed = 0
    for path in PUBLISHED.glob("*.yaml"):
        raw = yaml.load(path.read_text("utf-8"), Loader=yaml.CBaseLoader)
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


@settings(max_examples=50)
@given(st.lists(st.integers(0, 10**4), min_size=7, max_size=7), st.integers(-500, 500))
def test_disagreement_is_what_rounding_cannot_explain(hundredths, shift):
    average = round(sum(hundredths) / 7) + shift
    stated = {"heading": HEADING, "row": 1, "method": "m", "scores": [value / 100 for value in hundredths]}
    apart = abs(Fraction(sum(hundredths), 7) - average) > 1
    assert PublishedRow(**stated, average=average / 100, average_reason="so printed" if apart else None).disagrees == apart
    with pytest.raises(ValueError, match="average"):
        PublishedRow(**stated, average=average / 100, average_reason=None if apart else "so printed")


def test_a_file_of_one_table_is_read_as_its_rows():
    folder = yaml_folder(toy=publication(flags=["nli", "best-of-n"], best_of=5, runs=3, sd=[0.1, None, 0.3], average=15.0))
    [loaded] = load_publications(folder)
    row = loaded.rows[0]
    assert (row.id, row.scores, row.average, row.recomputed) == ("toy:1:1", (10.11, 20.22, None), 15.0, None)
    assert (row.best_of, row.runs, row.sd, row.heading.columns) == (5, 3, (0.1, None, 0.3), ("A", "B", "C"))
    assert row == find_row(" toy:1:1 ", folder) != find_row("toy:1:2", folder)


SOURCE = Path(__file__).resolve().parents[4] / "shared" / "published"
STS = ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"]
TRANSFER = ["MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"]
# Rows under "all" in the transcription whose own notes say that the quoted paper's aggregation is another or not known.
UNKNOWN = {"consert:2:6", "consert:2:7", "consert:3:3", "consert:3:4", "diffcse:1:6"}


def table(text):
    return list(csv.DictReader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE, restval=""))


def number(text):
    return None if text in ("NA", "-", "") else float(text)


def test_rows_are_those_of_the_transcription(rows):
    if not (SOURCE / "published.md").is_file():
        pytest.skip("the transcription of the papers: keep it in ../shared/published beside the checkout")
    blocks = re.findall(r"^## ([A-K])\..*?```tsv\n(.*?)```", (SOURCE / "published.md").read_text("utf-8"), re.S | re.M)
    of_sts, of_transfer = table((SOURCE / "sts.tsv").read_text("utf-8")), table(dict(blocks)["C"])
    assert (len(of_sts), len(of_transfer)) == (190, 26)  # the transcription is the one converted
    place = Counter()
    for line in of_sts:
        paper, name = line["source"].lower(), line["table"]
        place[paper, name] += 1
        at = place[paper, name]
        if "README" in line["method"]:
            paper, name, at = "diffaug-readme", "README", 1
        if name == "-":
            name = "README"
        row = rows[f"{paper}:{name}:{at}"]
        heading = row.heading
        assert (row.backbone, heading.metric) == (line["backbone"], line["metric"]), row.id
        assert heading.aggregation == ("unknown" if row.id in UNKNOWN else line["aggregation"]), row.id
        mixed = "unsup" if line["method"] == "unsup" else "semi"  # a README's several settings, named by its methods
        assert row.setting == (mixed if line["setting"] == "mixed" else line["setting"]), row.id
        assert list(heading.columns) == STS and heading.split == "test"
        assert row.scores == tuple(number(line[task]) for task in STS), row.id
        computed = "computed here" in line["note"]
        assert row.average == (None if computed else number(line["Avg"])), row.id
        if computed:
            assert row.recomputed == number(line["Avg"]), row.id
        assert ("CHECK" in line["note"]) == (row.average_reason is not None), row.id
    place = Counter()
    for line in of_transfer:
        key = line["source"].lower(), line["table"]
        place[key] += 1
        row = rows[":".join((*key, str(place[key])))]
        assert (row.method, row.backbone or "-", row.setting) == (line["method"], line["backbone"], line["setting"])
        assert list(row.heading.columns) == TRANSFER and row.heading.metric == "accuracy"
        assert (row.scores, row.average) == (tuple(number(line[task]) for task in TRANSFER), number(line["Avg"])), row.id
    counts = Counter((row.heading.paper.id, row.heading.name) for row in rows.values())
    assert {key: counts[key] for key in place} == place
