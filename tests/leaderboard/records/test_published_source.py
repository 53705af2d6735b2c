"""Published rows of STS and transfer equal, figure by figure, the transcription that they were converted from, where that is
at hand."""

import csv
import io
import re
from collections import defaultdict
from pathlib import Path

import pytest

from stsbench.leaderboard.records.publications import load_publications

SOURCE = Path(__file__).resolve().parents[4] / "shared" / "published"
STS = ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"]
TRANSFER = ["MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"]
BLOCKS = {"A": 190, "C": 26}
# Rows under "all" in the transcription whose own notes say that the quoted paper's aggregation is another or not known.
UNKNOWN = {"consert:2:6", "consert:2:7", "consert:3:3", "consert:3:4", "diffcse:1:6"}


def table(text):
    return list(csv.DictReader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE, restval=""))


@pytest.fixture(scope="module")
def source():
    """The lines of each block, by its letter; A is sts.tsv."""
    if not (SOURCE / "published.md").is_file():
        pytest.skip("the transcription of the papers: keep it in ../shared/published beside the checkout")
    found = re.findall(r"^## ([A-K])\..*?```tsv\n(.*?)```", (SOURCE / "published.md").read_text("utf-8"), re.S | re.M)
    lines = {letter: table(text) for letter, text in found} | {"A": table((SOURCE / "sts.tsv").read_text("utf-8"))}
    assert {letter: len(lines[letter]) for letter in BLOCKS} == BLOCKS  # the transcription is the one converted
    return lines


@pytest.fixture(scope="module")
def tables():
    """(paper, table or table/part) -> its rows by number."""
    found = defaultdict(dict)
    for publication in load_publications():
        for row in publication.rows:
            found[publication.paper.id, row.heading.name][row.row] = row
    return found


def number(text):
    return None if text in ("NA", "-", "") else float(text)


def test_sts_rows(source, tables):
    place = defaultdict(int)
    for line in source["A"]:
        paper, name = line["source"].lower(), line["table"]
        place[paper, name] += 1
        at = place[paper, name]
        if "README" in line["method"]:
            paper, name, at = "diffaug-readme", "README", 1
        if name == "-":
            name = "README"
        row = tables[paper, name][at]
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


def test_transfer_rows(source, tables):
    place = defaultdict(int)
    for line in source["C"]:
        key = line["source"].lower(), line["table"]
        place[key] += 1
        row = tables[key][place[key]]
        assert (row.method, row.backbone or "-", row.setting) == (line["method"], line["backbone"], line["setting"])
        assert list(row.heading.columns) == TRANSFER and row.heading.metric == "accuracy"
        assert (row.scores, row.average) == (tuple(number(line[task]) for task in TRANSFER), number(line["Avg"])), row.id
    assert {key: len(tables[key]) for key in place} == dict(place)
