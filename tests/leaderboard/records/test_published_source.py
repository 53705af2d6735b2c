"""Published rows equal, figure by figure, the transcription that they were converted from, where that is at hand."""

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
BLOCKS = {"A": 190, "C": 26, "D": 112, "E": 10, "F": 14, "H": 10, "I": 6, "J": 8, "K": 10}
DECLUTR = {"sts": STS[:5], "regression": ["SICK-R", "STS-B"], "transfer": ["SICK-E"], "retrieval": ["COCO"],
           "downstream": ["avg_downstream(-SNLI)"]}
# Rows under "all" in the transcription whose own notes say that the quoted paper's aggregation is another or not known.
UNKNOWN = {"consert:2:6", "consert:2:7", "consert:3:3", "consert:3:4", "diffcse:1:6"}
# A label that says less than which method it is, as "first-last avg" or "+flow (NLI)", has one of these before it here.
STEMS = {"BERT": ("BERT ", "BERT-", "SBERT-"), "RoBERTa": ("RoBERTa ", "RoBERTa-")}


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


def is_named(row, label):
    """Whether a row's name is the transcription's label, or says of which method that label is a variant."""
    if row.id.startswith("consert-readme:"):
        return row.method == (f"SBERT-NLI re-impl. ({label})" if label == "sup-sbert" else f"ConSERT {label}")
    stems = STEMS.get((row.backbone or "").partition("-")[0], ())
    return row.method in {label, *(stem + label.removeprefix("+") for stem in stems)}


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
        assert is_named(row, line["method"]), row.id
        assert heading.aggregation == ("unknown" if row.id in UNKNOWN else line["aggregation"]), row.id
        mixed = "unsup" if line["method"] == "unsup" else "semi"  # a README's several settings, named by its methods
        assert row.setting == (mixed if line["setting"] == "mixed" else line["setting"]), row.id
        assert list(heading.columns) == STS and heading.split == "test"
        assert row.scores == tuple(number(line[task]) for task in STS), row.id
        computed = "computed here" in line["note"]
        assert row.average == (None if computed else number(line["Avg"])), row.id
        if computed:
            assert row.recomputed == number(line["Avg"]), row.id
        deviations = re.search(r"sd ((?:[\d.]+ ?){8})", line["note"])
        if deviations:
            *sd, of_average = map(float, deviations[1].split())
            assert (row.sd, row.average_sd, row.runs) == (tuple(sd), of_average, 3), row.id
        else:
            assert row.sd is None and row.average_sd is None, row.id
        assert ("CHECK" in line["note"]) == (row.average_reason is not None), row.id


def rows_of(tables, line, place):
    """The next row of the table that a line of the transcription names, in the order of its lines."""
    key = line["source"].lower(), line["table"]
    place[key] += 1
    return tables[key][place[key]]


def test_transfer_rows_few_labels_and_what_else_is_a_row_a_line(source, tables):
    """Columns of figures in the order of the table's; what the transcription took from another table is left empty."""
    place = defaultdict(int)
    for line in source["C"]:
        row = rows_of(tables, line, place)
        assert (row.method, row.backbone or "-", row.setting) == (line["method"], line["backbone"], line["setting"])
        assert list(row.heading.columns) == TRANSFER and row.heading.metric == "accuracy"
        assert (row.scores, row.average) == (tuple(number(line[task]) for task in TRANSFER), number(line["Avg"])), row.id
    assert {key: len(tables[key]) for key in place} == dict(place)
    for line in source["E"]:
        if line["method"] == "(all rows)":
            continue
        row = rows_of(tables, {**line, "source": "diffaug"}, place)
        assert (row.method, row.setting, row.backbone) == (line["method"], line["setting"], line["backbone"])
        for at, column in enumerate(("0%", "1%", "10%", "100%")):
            figure, _, sd = line[column].partition("±")
            elsewhere = column == "100%" and ("lost" in line["note"] or line["note"].startswith("same"))
            assert row.scores[at] == (None if elsewhere else number(figure)), row.id
            doubtful = column == "10%" and "as read" in line["note"]
            assert (row.sd or (None,) * 4)[at] == (None if doubtful else number(sd)), row.id
    parts = {("DiffAug", "4"): ("time", "memory")} | dict.fromkeys(
        [("DiffCSE", "11"), ("SARCSE", "4")], ("alignment", "uniformity", "sts"))
    for line in source["F"]:  # retrieval, geometry and cost
        key = line["source"], line["table"]
        place[key] += 1
        names = [f"{line['table']}/{part}" for part in parts.get(key, ())] or [line["table"]]
        scores = [score for name in names for score in tables[line["source"].lower(), name][place[key]].scores]
        assert scores == [float(line[v].rstrip("M")) for v in ("v1", "v2", "v3") if line[v]], line
    for at, line in enumerate(source["H"], 1):
        for part, columns in DECLUTR.items():
            row = tables["declutr", f"2/{part}"].get(at)
            assert (row.scores if row else (None,) * len(columns)) == tuple(number(line[column]) for column in columns), line
            assert row is None or row.method in {line["model"], f"{row.backbone} ({line['model']})"}


def test_development_scores(source, tables):
    """A table's first and second column of figures stand in columns or in parts; a slash joins several rows' figures."""
    printed = defaultdict(lambda: ([], []))
    for line in source["D"]:
        first, second = printed[line["source"].lower(), line["table"]]
        first += [number(figure) for figure in line["value"].split("/")]
        second.append(number(line["value2"].rstrip("%")))
    for (paper, name), figures in printed.items():
        parts = [part for key, part in tables.items() if key[0] == paper and key[1].split("/")[0] == name]
        columns = [[row.scores[at] for row in part.values()] for part in parts for at in range(len(part[min(part)].scores))]
        given = [figures[0], *([[*filter(None, figures[1])]] if any(figures[1]) else [])]
        assert [columns[0], *([*filter(None, column)] for column in columns[1:])] == given, (paper, name)


def test_supervised_sts_benchmark_and_readmes(source, tables):
    lines = [(line["model"], size, *line[size].split("±")) for line in source["I"] for size in ("base", "large")]
    for row, (model, size, figure, sd) in zip(tables["sbert", "2"].values(), lines, strict=True):
        assert (row.method, row.scores, row.sd, row.runs) == (model, (float(figure),), (float(sd),), 10), row.id
        assert row.backbone.endswith(size)
    for at, line in enumerate(source["J"][:6], 1):
        for part, column in (("avg", "avg_unsup_STS"), ("stsb", "STS-B")):
            for metric, figure in zip(("pearson", "spearman"), line[column].split("/"), strict=True):
                row = tables["ct-readme", f"README/{part}-{metric}"][at]
                assert (row.method, row.heading.metric, row.scores) == (line["model"], metric, (float(figure),)), row.id
    ours = [row.scores for row in tables["sentence-transformers", "CT"].values()]
    assert ours == [(float(line["STS-B"]),) for line in source["J"][6:]]
    readmes = [*tables["simcse-readme", "README"].values(), *tables["promcse-readme", "README"].values()]
    for row, line in zip(readmes, source["K"], strict=True):
        assert (row.average, row.setting) == (float(line["avg"]), line["setting"]), row.id
        figures = tuple(map(float, line["note"].split())) if row.heading.paper.id == "promcse-readme" else None
        assert row.scores == figures or (figures is None and set(row.scores) == {None}), row.id
