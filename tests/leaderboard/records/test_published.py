"""Published rows: the shipped files hold together, averages are recomputed, and every mistake in a file is named."""

import re
from decimal import Decimal
from fractions import Fraction

import light_process
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stsbench.errors import StsbenchError
from stsbench.leaderboard.records.paths import PUBLISHED
from stsbench.leaderboard.records.publications import Heading, Paper, PublishedRow, find_row, load_publications

ROWS = {
    "angle-readme": 4, "cosent-readme": 8,
    "bert-flow": 16, "bert-whitening": 20, "consert": 17, "consert-readme": 10, "contrastive-prompting": 18, "ct-readme": 24,
    "declutr": 46, "diffaug": 62, "diffaug-readme": 1, "diffcse": 116, "esimcse-readme": 8, "llm2vec": 6,
    "infocse-readme": 3,
    "mirror-bert-readme": 4, "pcl-readme": 8,
    "promcse-readme": 2, "promptbert-readme": 5, "prompteol-readme": 14, "sarcse": 38, "sbert": 18,
    "sentence-transformers": 2, "simcse": 134, "simcse-readme": 8, "syncse-readme": 3, "token-prepending": 24,
    "whitenedcse-readme": 2,
}
DISAGREE = {
    "diffaug:1:6": (78.54, 78.52), "diffaug:1:8": (74.89, 74.86), "diffaug:6:7": (79.81, 79.57),
    "diffaug:6:8": (78.15, 79.70), "simcse:5:15": (74.89, 74.86), "simcse:B.2:2": (74.89, 74.86),
    "simcse:E.1:3": (84.94, 84.95), "promptbert-readme:README:1": (78.54, 78.52),
}
PAPER = {"id": "toy", "title": "A toy", "authors": "Nobody", "year": 2020, "url": "https://example.org/toy"}
TABLE = {"table": "1", "protocol": "sts", "metric": "spearman", "aggregation": "all", "split": "test"}


@pytest.fixture(scope="module")
def rows():
    return {row.id: row for publication in load_publications() for row in publication.rows}


def toy(**changes):
    """A publication of one table and two rows, as a file holds it."""
    row = {"method": "m", "scores": [10.11, 20.22, None]}
    table = {**TABLE, "columns": ["A", "B", "C"], "average": "Avg", "rows": [{"row": 1, **row}, {"row": 2, **row}]}
    first = {key: value for key, value in changes.items() if key in PublishedRow.model_fields or key == "unheard"}
    table["rows"][0] = {key: value for key, value in {**table["rows"][0], **first}.items() if value != "absent"}
    return {"paper": dict(PAPER), "tables": [{**table, **changes.get("of_table", {})}]}


def load(folder, content, name="toy.yaml"):
    (folder / name).write_text(content if isinstance(content, str) else yaml.safe_dump(content), "utf-8")
    return load_publications(folder)


def test_counts(rows):
    assert {publication.paper.id: len(publication.rows) for publication in load_publications()} == ROWS
    assert len(rows) == sum(ROWS.values()), "ids are unique"


def test_disagreements_are_the_known_ones(rows):
    assert {row.id: (row.average, row.recomputed) for row in rows.values() if row.disagrees} == DISAGREE
    assert {row.id for row in rows.values() if row.average_reason} == set(DISAGREE)


def test_cells_are_written_with_the_decimals_they_were_printed_with_and_average_exactly(rows):
    """Oracle: the files' own characters, in exact arithmetic."""
    seen = 0
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
                    seen += 1
    assert seen == 300


def test_rows_copied_from_a_publication_held_here_are_in_it(rows):
    """But for SBERT's, most of whose rows are held only as others repeat them."""
    held = {publication.paper.id for publication in load_publications()}
    copied = [row for row in rows.values() if row.copied_from in held - {"sbert"}]
    assert len(copied) > 30
    for row in copied:
        same = [each for each in rows.values() if each.heading.paper.id == row.copied_from and each.scores == row.scores]
        assert any((each.heading.aggregation, each.heading.metric) == (row.heading.aggregation, row.heading.metric)
                   for each in same), row.id


def test_what_the_flags_must_say(rows):
    for row in rows.values():
        if row.setting == "unsup" and row.heading.protocol != "few-labels":
            assert not {"nli", "sts"} & set(row.flags), row.id
        if "target" in row.method:
            assert "transductive" in row.flags, row.id
        if row.setting == "semi" and row.heading.protocol != "cost":
            assert "nli" in row.flags, row.id


def test_every_name_says_which_method_it_is(rows):
    """A label of an ablation, "tau 0.05" or "[CLS] w/ MLP", means nothing beside the rows of other papers."""
    families = (
        "BERT", "RoBERTa", "CSE", "GloVe", "fastText", "InferSent", "USE", "Sent.Transformers", "QuickThoughts",
        "Skip-thought", "DeCLUTR", "DiffAug", "ConSERT", "CLEAR", "CT", "CMLM", "SG-OPT", "EOL", "Pretended CoT",
        "Knowledge Enhancement", "LLaMA", "LLM2Vec", "PCL", "AnglE", "CoSENT", "Sentence-BERT",
    )
    nameless = {row.id: row.method for row in rows.values() if not any(name in row.method for name in families)}
    assert nameless == {}
    dev = [row.method for row in rows.values() if row.heading.protocol == "dev"]
    assert len(dev) > 100 and {re.search(r"SimCSE|DiffCSE|DiffAug", name) is None for name in dev} == {False}


def test_unknown_aggregation_is_not_called_all(rows):
    unknown = {row.id for row in rows.values() if row.heading.aggregation == "unknown" and not row.heading.task}
    assert unknown == {"consert:2:6", "consert:2:7", "consert:3:3", "consert:3:4", "diffcse:1:6"}


def test_no_mean_of_columns_that_nobody_averages(rows):
    assert rows["declutr:2/sts:10"].recomputed is None, "five years, not the seven tasks"
    assert rows["declutr:2/regression:10"].recomputed is None
    assert rows["simcse:2:1"].recomputed is None, "one encoder and two"
    assert rows["diffcse:10:1"].recomputed is None, "recall at 1, 5, 10"
    assert rows["diffaug:6:4"].recomputed is None, "unreadable cells"
    assert rows["bert-flow:2:4"].recomputed == 69.57, "the seven tasks, although the paper prints no average"


HEADING = Heading(paper=Paper(**PAPER), **TABLE, columns=tuple("ABCDEFG"), average="Avg")


@given(st.lists(st.integers(0, 10**6), min_size=7, max_size=7))
def test_rounding_alone_never_disagrees(true):
    """Scores with four decimals, printed with two, and the average of the unrounded ones printed with two."""
    scores = [round(value / 10**4, 2) for value in true]
    average = round(sum(true) / 7 / 10**4, 2)
    row = PublishedRow(heading=HEADING, row=1, method="m", scores=scores, average=average)
    assert not row.disagrees
    mean = Fraction(sum(round(100 * score) for score in scores), 700)
    assert abs(mean - Fraction(str(row.recomputed))) <= Fraction(1, 200)


@given(st.lists(st.integers(0, 10**4), min_size=7, max_size=7), st.integers(-500, 500))
def test_disagreement_is_what_rounding_cannot_explain(hundredths, shift):
    average = round(sum(hundredths) / 7) + shift
    given_row = {"heading": HEADING, "row": 1, "method": "m", "scores": [value / 100 for value in hundredths]}
    apart = abs(Fraction(sum(hundredths), 7) - average) > 1
    row = PublishedRow(**given_row, average=average / 100, average_reason="so printed" if apart else None)
    assert row.disagrees == apart
    with pytest.raises(ValueError, match="average"):
        PublishedRow(**given_row, average=average / 100, average_reason=None if apart else "so printed")


def test_a_toy_file_loads(tmp_path):
    (publication,) = load(tmp_path, toy(flags=["nli", "best-of-n"], best_of=5, runs=3, sd=[0.1, None, 0.3], average=15.0))
    row = publication.rows[0]
    assert (row.id, row.scores, row.average, row.recomputed) == ("toy:1:1", (10.11, 20.22, None), 15.0, None)
    assert (row.best_of, row.runs, row.sd, row.heading.columns) == (5, 3, (0.1, None, 0.3), ("A", "B", "C"))
    assert row == find_row(" toy:1:1 ", tmp_path) != find_row("toy:1:2", tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unheard": 1}, "table 1, row 1: unheard: Extra inputs"),
        ({"heading": {}}, "table 1, row 1: heading: may not be given here"),
        ({"row": 2}, "two rows are toy:1:2"),
        ({"row": "absent"}, "table 1, row number 1: row: Field required"),
        ({"scores": [1.0, 2.0]}, "table 1, row 1: scores: 2 figures for 3 columns"),
        ({"sd": [0.1]}, "table 1, row 1: sd: 1 figures for 3 columns"),
        ({"scores": [1.0, 2.0, 3.0], "average": 2.5}, "prints the average 2.5; its columns give 2.0: add average_reason"),
        ({"scores": [1.0, 2.0, 3.0], "average": 2.01, "average_reason": "x"}, "row 1: average_reason, but"),
        ({"average_reason": "x"}, "row 1: average_reason, but"),
        ({"scores": [1.234, 2.0, 3.0]}, "row 1: 1.234 has more than the 2 decimals"),
        ({"scores": [True, 2.0, 3.0]}, "row 1: scores: 0: "),
        ({"scores": ["1.0", 2.0, 3.0]}, "row 1: scores: 0: "),
        ({"scores": [float("nan"), 2.0, 3.0]}, "row 1: scores: 0: "),
        ({"flags": ["seeds"]}, "row 1: flags: 0: "),
        ({"best_of": 10}, "row 1: best_of without the flag"),
        ({"of_table": {"average": None}, "average": 1.0}, "row 1: an average, in a table that prints none"),
        ({"of_table": {"metric": "spearmann"}}, "toy.yaml: table 1: metric: "),
        ({"of_table": {"split": "dev"}}, "table 1: the protocol 'dev' and the split 'dev' go together"),
        ({"of_table": {"task": "STS-B"}}, "table 1: no average over columns that are conditions"),
        ({"of_table": {"columns": ["A", "A", "C"]}}, "table 1: a column is named twice"),
        ({"of_table": {"rows": []}}, "table 1: rows: needs a list"),
        ({"of_table": {"part": "x", "unit2": 1}}, "table 1/x: unit2: Extra inputs"),
    ],
)
def test_mistakes_are_named(tmp_path, changes, message):
    with pytest.raises(StsbenchError) as caught:
        load(tmp_path, toy(**changes))
    assert "toy.yaml: " in str(caught.value) and message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_mistakes_of_whole_files(tmp_path):
    with pytest.raises(StsbenchError, match="holds no published results"):
        load_publications(tmp_path)
    for content, message in [
        ("paper: {", "not valid YAML"),
        ("paper: 2020-13-45\ntables: []\n", "not valid YAML"),
        ("? [paper]\n: 1\n", "not valid YAML"),
        ("1: 2\n", "needs 'paper' and 'tables'"),
        ("- 1\n", "needs 'paper' and 'tables'"),
        (yaml.safe_dump({**toy(), "more": 1}), "needs 'paper' and 'tables'"),
        ("paper: {id: toy, id: other}\ntables: []\n", "the key 'id' is given twice"),
        (yaml.safe_dump({"paper": {**PAPER, "id": "tony"}, "tables": []}), "the id 'tony' is not the file's name 'toy'"),
        (yaml.safe_dump({"paper": {**PAPER, "url": "javascript:1"}, "tables": []}), "paper: url: "),
        (yaml.safe_dump({"paper": [], "tables": []}), "paper: needs a mapping"),
    ]:
        with pytest.raises(StsbenchError, match=r"toy\.yaml") as caught:
            load(tmp_path, content)
        assert message in str(caught.value)
    (tmp_path / "toy.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(StsbenchError, match=r"toy\.yaml is not UTF-8 text"):
        load_publications(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("simcs:5:7", "no publication 'simcs' .*did you mean simcse"),
        ("simcse:C1:1", "simcse has no table 'C1' .*did you mean C.1"),
        ("simcse", "simcse has no table ''"),
        ("declutr:2:1", "declutr has no table '2' .*2/sts"),
        ("simcse:B.2:99", "table B.2 of simcse has no row '99'; its rows: 1, 2, 3, 4, 5, 6, 7, 8, 9$"),
        ("simcse:5:7:1", "has no row '7:1'"),
    ],
)
def test_find_row_suggests(text, message):
    with pytest.raises(StsbenchError, match=message):
        find_row(text)


def test_rows_split_over_headings_are_found_under_one_name():
    assert [find_row(f"simcse:B.2:{n}").heading.aggregation for n in (1, 3, 5, 9)] == ["all", "wmean", "all", "wmean"]


def test_loading_needs_nothing_heavy():
    code = (
        "import sys; from stsbench.leaderboard.records.publications import load_publications; load_publications(); "
        "print(sorted({'torch', 'mteb', 'sklearn', 'matplotlib', 'transformers'} & set(sys.modules)))"
    )
    done = light_process.run(code)
    assert done.stdout.strip() == "[]", done.stderr
