"""What users of Python type, and what they get back: objects whose tables, pages, pictures and frames show the rows'
numbers, warnings once each; and rows in memory, measured as those of a file."""

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import datasets
import light_process
import numpy as np
import pandas
import pyarrow
import pytest
from clirun import refuses
from matplotlib.figure import Figure
from tiny_models import build

import stsbench
from stsbench import compare, evaluate, load, load_encoder
from stsbench.errors import StsbenchError, StsbenchWarning
from stsbench.evaluation.result import Result

ASKED = {"sample": True, "resamples": 0, "no_cache": True}
pytestmark = pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")
EVALUATED = {"sample": True, "tasks": "STS-B,STS12", "resamples": 50, "no_cache": True}
FIRST = ["A man plays.", "A dog, brown, runs.", "Cats \"sleep\".", "It rains.", "We eat\nlunch."]
SECOND = ["A man is playing.", "The brown dog is running.", "A car.", "Rain falls.", "We have lunch."]
SCORES = [5.0, 4.5, 0.25, 3.0, 4.0]
FRAME = pandas.DataFrame({"q": FIRST, "d": SECOND, "score": SCORES})
COLUMNS = {"sentence1": "q", "sentence2": "d"}
ENCODER, NGRAMS = "lexical:tfidf", "lexical:char-ngrams"


def letters(texts):
    return np.array([[text.count(chr(97 + i)) + i / 9 for i in range(26)] for text in texts])


class Model:
    def encode(self, texts):
        return letters(texts)


def rows(result):
    return [(row.task, row.subset, row.metric, row.aggregation, row.value) for row in result.rows]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    return evaluate(letters, output=folder / "run", protocols=["sts:all"], tasks=["STS-B", "STS12"], **ASKED)


def test_models_of_every_kind_and_one_name_for_a_list_of_one(tmp_path, plain):
    assert rows(evaluate(Model(), protocols="sts:all", tasks="STS-B,STS12", **ASKED)) == rows(plain)
    assert rows(evaluate(Model().encode, protocol=["sts:all"], tasks=("STS12", "STS-B"), **ASKED)) == rows(plain)
    build(tmp_path / "model")
    by_name = load_encoder(str(tmp_path / "model"), pooler="mean", offline=True)
    assert load_encoder(tmp_path / "model", pooler="mean", offline=True).spec == by_name.spec
    assert load_encoder(by_name) is by_name
    assert np.array_equal(load_encoder(letters).encode("a b"), letters(["a b"])[0].astype(np.float32))


def test_temporary_records_end_with_the_process():
    code = (
        "import stsbench.evaluation, stsbench.protocols, sys, warnings; warnings.simplefilter('ignore')\n"
        "assert not {'torch', 'sklearn', 'huggingface_hub', 'mteb'} & set(sys.modules)\n"
        "assert {'compare', 'evaluate', 'train'} <= set(dir(stsbench))\n"
        "r = stsbench.evaluate('lexical:token-set', sample=True, tasks='STS12', resamples=0); assert r.folder.is_dir()\n"
        "print(r.folder)")
    done = light_process.run(code)
    assert done.returncode == 0 and not Path(done.stdout.strip()).exists(), done.stderr
    assert set(stsbench.__all__) <= set(dir(stsbench))


def test_a_trainings_warnings_come_from_the_callers_line(tmp_path):
    settings = {"training.max_steps": 1, "training.batch_size": 2, "selection.by": "none"}
    with pytest.warns(StsbenchWarning, match="trained on the package's sample") as caught:
        stsbench.train("simcse", output=tmp_path / "run", sample=True, backbone=build(tmp_path / "model"), device="cpu",
                       settings=settings)
    assert {Path(each.filename) for each in caught if each.category is StsbenchWarning} == {Path(__file__)}
    assert "wiki_sentences.txt" in (tmp_path / "run" / "recipe.yaml").read_text("utf-8")


def test_a_loop_over_models_is_told_of_each_in_the_command_lines_words(tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # Python's own: once for each line and text
        for name in "ab":
            result = evaluate(lambda texts: np.ones((len(texts), 3)), output=tmp_path / name, protocols="sts,transfer",
                              tasks=["STS-B"], fingerprint=name, **ASKED)
    lines = [str(each.message) for each in caught if "failed" in str(each.message)]
    assert len(lines) == 2 and lines[0] == lines[1] and lines[0].count("STS-B") == 1
    assert {each.filename for each in caught} == {__file__}
    assert "left out: transfer: it has none of the tasks STS-B" in str(result)


def test_a_p_below_the_decimals_is_not_printed_as_zero(plain):
    """One table for Python and the terminal: a p of .00001 is no 0.0000."""
    other = evaluate(lambda texts: letters(texts)[:, :9], tasks="STS-B", **ASKED)
    table = compare(plain, other, resamples=100).tables[0]
    table = replace(table, rows=(replace(table.rows[0], corrected=0.00001),) * 2, average=None)
    assert table.columns()[-2].texts == ["<0.0001"] * 2  # before what is detectable


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("objects")
    return [evaluate(f"lexical:{name}", output=folder / name, protocols="sts,regression", **EVALUATED)
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


def test_what_was_left_out_or_failed_stands_below():
    odd = Result(Path("x"), failures={"sts <b>": "no & none"}, left_out={"sts SICK-R": "no data", "pearl SICK-R": "no data"})
    page = odd._repr_html_()
    assert "<b>" not in page and "no &amp; none" in page and "left out: sts SICK-R, pearl SICK-R: no data" in page
    assert "no & none" in str(odd) and "1 failure" in repr(odd)


def test_where_nothing_was_measured_no_other_run_is_taken_for_it(tmp_path, monkeypatch):
    """Neither one whose name was asked for, nor another one without a name."""
    monkeypatch.chdir(tmp_path)
    for output in ("run", None):
        one = evaluate("lexical:tfidf", output=output, tasks="STS-B", **ASKED)
        empty = evaluate(lambda texts: np.zeros((len(texts), 2)), output=output, tasks="STS-B", **ASKED)
        assert one.records and not empty.records and not empty.folder.exists()
        refuses(StsbenchError, "cannot write kept", empty.save, "kept")
        refuses(StsbenchError, "is not a run folder: no such folder", compare, one, empty)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_is_loaded_knows_what_was_left_out(tmp_path):
    run = evaluate(lambda texts: np.ones((len(texts), 2)), protocols="sts,transfer:exact,retrieval", tasks="STS12,CR",
                   settings={"transfer.k": 3}, sample=True, no_cache=True, output=tmp_path / "run")
    assert run.records and run.failures and run.left_out
    again = load(run.folder)
    assert (again.failures, again.left_out, again.rows) == (run.failures, run.left_out, run.rows)
    assert again._repr_html_() == run._repr_html_()
    (run.folder / "not-measured.json").write_text('{"failures": {"sts STS12": 3}}')
    refuses(StsbenchError, r"not-measured\.json: failures must be names with reasons", load, run.folder)


def drawn(axes):
    """label -> (value, low, high) of each line of a picture of intervals."""
    lines = [line.get_xdata() for line in axes.get_lines() if len(set(line.get_ydata())) == 1]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    return {label: (lines[2 * y + 1][0], *lines[2 * y]) for y, label in enumerate(labels)}


def test_a_picture_has_the_scores_or_differences_and_their_intervals(runs, comparison):
    result = runs[0]
    want = {row.task: (row.value, row.low, row.high) for row in result.rows
            if (row.protocol, row.metric, row.aggregation, row.subset) == ("sts", "spearman", "all", None)}
    axes = result.plot()
    assert drawn(axes) == want and axes.get_xlabel() == "spearman, all x 100, 95 % interval"
    assert axes.get_title(loc="left").startswith("lexical:tfidf\nsts: scores x 100 (sample data")
    mine = Figure().subplots()
    assert result.plot("regression", axes=mine) is mine and set(drawn(mine)) == {"STS-B"}
    refuses(StsbenchError, "", Result(Path("x")).plot)
    table, axes = comparison.tables[0], comparison.plot()
    assert drawn(axes) == {row.task: (row.difference.value, row.difference.low, row.difference.high) for row in table.rows}
    assert any(set(line.get_xdata()) == {0} for line in axes.get_lines())
    assert axes.get_xlabel() == "A - B, 95 % interval; right of 0: A is better"
    assert comparison.plot(1, axes=Figure().subplots()).get_title(loc="left").splitlines()[1].startswith("regression: ")


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


def test_frames_hold_every_score_and_difference(runs, comparison):
    """The same numbers as the rows and as scores.csv, for pandas, polars' interface and pyarrow."""
    result = runs[1]
    frame, written = result.to_pandas(), pandas.read_csv(result.folder / "scores.csv")
    names = ["protocol", "task", "metric", "aggregation", "value", "low", "high", "n"]
    pandas.testing.assert_frame_equal(frame[names], written[names])
    assert pyarrow.table(result).equals(result.to_arrow()) and set(frame.known.dropna()) == {True}
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


def test_rows_are_the_data_of_a_file(tmp_path):
    """A table's own columns, those of a text, and tuples in the order of the protocol's."""
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    of_file = evaluate(ENCODER, sts=tmp_path / "rows.csv", columns=COLUMNS, resamples=50)
    for rows, columns in (
        (FRAME, COLUMNS), (pyarrow.Table.from_pandas(FRAME), "sentence1=q,sentence2=d"),
        (datasets.Dataset.from_pandas(FRAME), COLUMNS), ([*zip(FIRST, SECOND, SCORES, strict=True)], None)):
        of_rows = evaluate(ENCODER, sts=rows, columns=columns, resamples=50)
        [record], [stored] = of_rows.records, of_file.records
        assert record.data.id == stored.data.id and record.data.n == 5
        one, other = ([(row.metric, row.value, row.low, row.high) for row in of.rows] for of in (of_rows, of_file))
        assert one == other


def test_each_protocol_takes_rows():
    """Texts with labels and a split are those of transfer."""
    texts = [(f"a {word} in the {split} set, number {number}", word, split)
             for split in ("train", "test") for word in ("cat", "theory") for number in range(12)]
    asked = {"queries": {"q": "a dog runs"}, "corpus": ["cats", "dogs", "rain"], "relevant_docs": {"q": {"1"}, "x": ["2"]}}
    result = evaluate("minilm", transfer=texts, sts=[*zip(FIRST, SECOND, SCORES, strict=True)], retrieval=asked, resamples=0,
                      pairs=[("a cat", "cats", 1), ("a dog", "rain", 0)],
                      triplets=[("a cat", "cats", "rain"), ("a dog", "dogs", "rain")])
    assert sorted(record.protocol.name for record in result.records) == ["pairs", "retrieval", "sts", "transfer", "triplets"]
    assert {row.metric: row.value for row in result.rows}["recall@1"] == 100
    [record] = [record for record in result.records if record.protocol.name == "transfer"]
    assert record.data.subsets == {"train": 24, "test": 24} and record.data.origin == "rows in memory"
    assert record.scores[0].value > 75


def test_a_mapping_and_csv_files_are_one_retrieval_set(tmp_path):
    (tmp_path / "queries.csv").write_text('qid,query\nq1,a dog runs\nq2,"rain, again"\n')
    (tmp_path / "corpus.csv").write_text("doc_id;title;text\nd1;;cats\nd2;T;dogs run\nd3;;it rains\n")
    (tmp_path / "relevance.csv").write_text("query_id,doc_id,score\nq1,d2,1\nq2,d3,2\n")
    rows = {"queries": {"q1": "a dog runs", "q2": "rain, again"}, "relevant_docs": {"q1": {"d2"}, "q2": {"d3": 2}},
            "corpus": {"d1": "cats", "d2": "T dogs run", "d3": "it rains"}}
    of_files, of_rows = (evaluate(NGRAMS, retrieval=data, resamples=0) for data in (tmp_path, rows))
    assert [record.data.id for record in of_files.records] == [record.data.id for record in of_rows.records]
    assert [row.value for row in of_files.rows] == [row.value for row in of_rows.rows]
