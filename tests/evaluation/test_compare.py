"""Two runs against each other: naive oracles for every number, and nothing compared that was not measured alike.
`compare` with a margin: the tests task by task, and what is said where."""

import json
from dataclasses import replace

import numpy as np
import pytest
from clirun import cli, place, refuses  # noqa: F401
from geometry_runs import make_run
from scipy.stats import spearmanr
from sts_runs import N, add, pairs, sha, sts_run
from text_tables import by_row

from stsbench.comparison.compare import Compared, compare
from stsbench.comparison.comparison import LIMITS, sentence
from stsbench.errors import ScoreError, StsbenchError
from stsbench.evaluation.result import Result
from stsbench.metrics.bootstrap import resample_counts
from stsbench.metrics.equivalence import Equivalence, equivalence
from stsbench.metrics.paired import Difference, holm
from stsbench.protocols.sts import AVERAGED, TASKS, StsProtocol

B = (-9.0, -12.0, -6.0, 0.01)
SAME, NONE = (0.5, -1.0, 2.0, 0.4), (0.0, 0.0, 0.0, 1.0)


def numbers(row):
    return [row.difference.value, row.difference.low, row.difference.high, row.difference.p]


def naive(value, draws):
    """Difference, interval and p of one or several tasks' draws, by sorting."""
    off = sorted(abs(each - value) for each in draws)
    p = (1 + sum(each >= abs(value) for each in off)) / (len(off) + 1)
    # The smallest of them that a statistic above it would be significant.
    half = next(each for each in off if (1 + sum(other > each for other in off)) / (len(off) + 1) < 0.05)
    return [value, value - half, value + half, p]


def naive_draws(task, one, other, resamples):
    """Differences of Spearman's over resampled pairs, each pair written out as often as it was drawn."""
    members = [np.flatnonzero(one.arrays["subset"] == i) for i in range(len(one.names["subsets"]))]
    counts = np.zeros((resamples, N), dtype=int)
    for i, mine in enumerate(members):
        counts[:, mine] = resample_counts(len(mine), resamples, (0, i, *TASKS[task].encode()))
    drawn = []
    for row in counts:
        chosen = np.repeat(np.arange(N), row)
        a, b = (spearmanr(each.arrays["similarity"][chosen], each.arrays["gold"][chosen]).statistic for each in (one, other))
        drawn.append(100 * (a - b))
    return np.array(drawn)


def test_every_number_against_a_naive_bootstrap(tmp_path):
    """SICK-R of MTEB, which holds SICK-R again, has a table of its own and is no part of the average."""
    a, b = sts_run(tmp_path / "a", 0.2, TASKS), sts_run(tmp_path / "b", 0.3, TASKS, draw=1)
    table, aside = compare(a, b, resamples=30).tables
    assert (table.setting.metric, table.setting.aggregation) == ("spearman", "all")
    assert [row.task for row in table.rows] == list(AVERAGED) and not table.no_test and not table.aside
    assert [row.task for row in aside.rows] == ["SICK-R-MTEB"] and not aside.average and aside.aside
    every = []
    for row in table.rows:
        several = ("x", "y") if row.task in ("STS12", "STS13") else ("all",)
        one, other = pairs(row.task, 0.2, several), pairs(row.task, 0.3, several, draw=1)
        scores = [100 * spearmanr(each.arrays["similarity"], each.arrays["gold"]).statistic for each in (one, other)]
        every.append((scores[0] - scores[1], naive_draws(row.task, one, other, 30)))
        assert [row.a, row.b] == pytest.approx(scores)
        assert numbers(row) == pytest.approx(naive(*every[-1]), abs=1e-9)
    observed = [{task: (pairs(task, noise, ("x", "y") if task in ("STS12", "STS13") else ("all",), draw), TASKS[task])
                 for task in AVERAGED} for noise, draw in ((0.2, 0), (0.3, 1))]
    # tests/protocols/test_sts_protocol.py has the naive draws of an average, whose tasks share pairs
    one, other = (StsProtocol({}).average_draws(each, 30, 0)[None, "all", "spearman"] for each in observed)
    mean = naive(np.mean([value for value, _ in every]), one - other)
    assert numbers(table.average) == pytest.approx(mean, abs=1e-9)
    order = sorted(range(7), key=lambda i: table.rows[i].difference.p)
    so_far = 0.0
    for rank, i in enumerate(order):
        so_far = max(so_far, min(1.0, (7 - rank) * table.rows[i].difference.p))
        assert table.rows[i].corrected == pytest.approx(so_far)
    assert table.average.corrected is None


def test_more_resamples_than_a_block_begin_with_those_of_a_block(tmp_path, monkeypatch):
    a, b = (sts_run(tmp_path / name, 0.3, ["STS-B"], draw) for draw, name in enumerate("ab"))
    whole = compare(a, b, resamples=120).tables
    assert compare(a, b, resamples=120, seed=1).tables != whole
    assert compare(a, b, resamples=120).tables == whole
    monkeypatch.setattr("stsbench.comparison.shared._BLOCK", 120)
    longer = compare(a, b, resamples=300)
    assert compare(a, b, resamples=300).tables == longer.tables != whole


def test_forms_of_sts(tmp_path):
    tasks = ["STS12", "STS-B"]
    a = sts_run(tmp_path / "a", 0.2, tasks)
    b = sts_run(tmp_path / "b", 0.3, tasks, settings={"aggregations": ["wmean"]}, label="senteval")
    for names in (None, ["sts"], ["sts:wmean"]):
        table, = compare(a, b, protocols=names, resamples=40).tables
        assert (table.setting.metric, table.setting.aggregation) == ("spearman", "wmean")
    comparison = compare(a, b, protocols=["sts:mean"], resamples=40)
    assert not comparison.tables
    reasons = {(label, reason) for label, _, reason in comparison.left_out}
    assert reasons == {("sts", "the runs reported different scores of it")}


def test_what_differs_is_never_compared(tmp_path):
    a = sts_run(tmp_path / "a", 0.2, ["STS12", "STS13"])
    for name, options, reason in [
        ("text version", {"text_version": "raw"}, "the text version is senteval in A and raw in B"),
        ("digest", {"digest": "other"}, f"the data differ (digest {sha('sts12/test')[:12]} in A, {sha('other')[:12]} in B)"),
        ("settings", {"settings": {"similarity": "dot"}}, 'similarity is "cosine" in A and "dot" in B')]:
        comparison = compare(a, sts_run(tmp_path / name, 0.3, ["STS12"], **options), resamples=40)
        assert not comparison.tables and comparison.left_out == [("sts", "STS12", reason), ("sts", "STS13", "only A has it")]
    fewer = sts_run(tmp_path / "fewer", 0.3, ["STS12", "SICK-R-MTEB"])
    comparison = compare(a, fewer, resamples=40)
    assert [row.task for row in comparison.tables[0].rows] == ["STS12"] and comparison.tables[0].average is None
    assert ("sts", "STS13", "only A has it") in comparison.left_out
    assert comparison.left_out[-1] == ("sts", "SICK-R-MTEB", "only B has it")


def test_other_gold_of_one_name_is_refused(tmp_path):
    a = sts_run(tmp_path / "a", 0.2, ["STS-B"])
    result, other = Result(tmp_path / "c"), pairs("STS-B", 0.3)
    other.arrays["gold"][7] += 1
    add(result, StsProtocol({}), "STS-B", other)
    result.write()
    refuses(StsbenchError, r"name the same data, but their items differ \(gold", compare, a, tmp_path / "c")


def test_geometry_is_higher_not_better(tmp_path, cli):
    make_run(tmp_path / "a"), make_run(tmp_path / "b", shift=3.0)
    code, out, err = cli("compare", tmp_path / "a", tmp_path / "b", "--resamples", "40")
    assert (code, err) == (0, "")
    assert "geometry: alignment, not x 100 (sample data: not comparable with published numbers)\n" in out
    assert "better" not in out
    table, = compare(tmp_path / "a", tmp_path / "b", metric="mean cosine", resamples=100).tables
    assert sentence(table) == "Of 5 subsets B is higher on all, after correcting for 5 comparisons."
    assert [row.subset for row in table.rows] == ["0-1", "1-2", "2-3", "3-4", "4-5"]
    [table] = compare(tmp_path / "a", tmp_path / "b", metric="uniformity", resamples=40).tables
    assert "there is no test: what geometry stores for uniformity cannot be redrawn" in sentence(table)
    assert numbers(table.rows[0])[1:] == [None] * 3 and table.rows[0].corrected is None


def test_the_command(tmp_path, cli):
    a = sts_run(tmp_path / "a", 0.1, name="one")
    b = sts_run(tmp_path / "b", 0.5, TASKS, 1, known=False, name="[red]two[/red]")
    code, out, err = cli("compare", a, b, "--resamples", 150)
    assert code == 0 and err == "not compared: sts SICK-R-MTEB: only B has it\n"
    assert out.startswith(f"A: {a} (one, pooler mean)\nB: {b} ([red]two[/red], pooler mean)\n\nsts: spearman, all, x 100\n")
    result = compare(a, b, resamples=150)
    table, = result.tables
    mean = table.average.difference
    start = f"A is better than B on average by {mean.value:.2f} points (95 % interval {mean.low:.2f} to {mean.high:.2f})"
    assert out.endswith(f"{LIMITS}\n{start}; of 7 tasks A is better on all, after correcting for 7 comparisons.\n")
    rows = by_row(out.splitlines())
    gap = table.rows[0].difference
    assert rows["STS12"][:4] == [str(N), f"{table.rows[0].a:.2f}", f"{table.rows[0].b:.2f}",
                                 f"{gap.value:+.2f} [{gap.low:.2f}, {gap.high:.2f}]"]
    assert rows["Avg-full"][0] == f"{7 * N}"
    read = json.loads(result.to_json())
    first = read["tables"][0]["rows"][0]
    assert (read["resamples"], read["seed"], read["a"]["encoder"]) == (150, 0, "one")
    assert [first[key] for key in ("difference", "low", "high", "p")] == numbers(table.rows[0])
    assert first["p_holm"] == table.rows[0].corrected and read["tables"][0]["sentence"].startswith(start)
    assert read["not_compared"] == [{"protocol": "sts", "task": "SICK-R-MTEB", "reason": "only B has it"}]


def test_a_record_without_a_score_is_a_failure(tmp_path, cli, monkeypatch):
    a, b = sts_run(tmp_path / "a", 0.1, ["STS12", "STS13"]), sts_run(tmp_path / "b", 0.1, ["STS12", "STS13"])
    score = StsProtocol.score

    def fails(self, observations, data_id, task):
        if task == "STS12":
            raise ScoreError("STS12: the predictions are constant")
        return score(self, observations, data_id, task)

    monkeypatch.setattr(StsProtocol, "score", fails)
    code, out, err = cli("compare", a, b, "--resamples", 150)
    lines = [f"failed: sts STS12: {letter} has no score: the predictions are constant\n" for letter in "AB"]
    assert code == 3 and "STS13" in out and err == "".join(lines)


def row(task, value, low, high, p, corrected=None):
    return Compared(task, None, N, 50 + value, 50.0, Difference(value, low, high, p), corrected)


@pytest.fixture(scope="module")
def same(tmp_path_factory):
    a = sts_run(tmp_path_factory.mktemp("same") / "a", 0.2, ["STS-B"])
    return compare(a, a, resamples=40).tables[0]


@pytest.mark.parametrize(("rows", "average", "text"), [
    ([(2.0, 1.0, 3.0, 0.01)], None, "A is better than B on T0 by 2.00 points (95 % interval 1.00 to 3.00)."),
    ([(-0.002, -0.003, -0.001, 0.01)], None, "B is better than A on T0 by less than 0.01 points (95 % interval 0.00 to "
     "0.00)."),
    ([SAME], None, "A and B do not differ significantly on T0 (A - B is 0.50 points, 95 % interval -1.00 to 2.00)."),
    ([NONE, NONE], NONE, "A and B have the same score on each of the 2 tasks: they do not differ significantly."),
    ([(2.0, 1.0, 3.0, 0.01), B, SAME], None, "Of 3 tasks A is better on 1 and B is better on 1, after correcting for 3 "
     "comparisons (B on T1); on T2 they do not differ significantly."),
    ([B, B, SAME, NONE], (-4.0, -5.0, -3.0, 0.001), "B is better than A on average by 4.00 points (95 % interval 3.00 to "
     "5.00); of 4 tasks B is better on 2, after correcting for 4 comparisons; on T2 and T3 they do not "
     "differ significantly."),
    ([(1.0, None, None, None), SAME], None, "Of 2 tasks there is none on which they differ significantly, after correcting "
     "for 1 comparison; on T0 there is no test.")])
def test_sentences(same, rows, average, text):
    made = tuple(row(f"T{i}", *each, corrected=each[3]) for i, each in enumerate(rows))
    table = replace(same, rows=made, average=row("Avg", *average) if average else None)
    assert sentence(table) == text


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sides")
    return sts_run(folder / "a", 0.3), sts_run(folder / "b", 0.31, draw=1)


@pytest.fixture(scope="module")
def named(runs):
    return compare(*runs, resamples=60, margin=12)


def test_every_task_has_the_test_of_its_draws(named):
    """Which tests/metrics/test_paired.py holds against a counting loop."""
    table, = named.tables
    for row in table.rows:
        several = ("x", "y") if row.task in ("STS12", "STS13") else ("all",)
        sides = pairs(row.task, 0.3, several), pairs(row.task, 0.31, several, draw=1)
        draws = (StsProtocol({}).draws(side, TASKS[row.task], 60, 0)[None, "all", "spearman"] for side in sides)
        assert row.equivalence == equivalence(row.a, row.b, *draws, margin=12)
    assert [row.equivalence_corrected for row in table.rows] == holm([row.equivalence.p for row in table.rows])
    assert table.average.equivalence_corrected is None and table.average.equivalence.p < 0.05


def test_the_difference_is_as_without_a_margin(runs, named):
    plain = compare(*runs, resamples=60)
    assert "margin" not in plain.to_json() and "equivalence" not in plain.to_json() and "verdict" not in str(plain)
    stripped = json.loads(named.to_json())
    assert stripped.pop("margin") == 12
    for table in stripped["tables"]:
        for row in (*table["rows"], table["average"]):
            assert set(row.pop("equivalence")) == {"margin", "low", "high", "p_low", "p_high", "p", "p_holm", "verdict"}
    for table, other in zip(stripped["tables"], json.loads(plain.to_json())["tables"], strict=True):
        assert table.pop("sentence").startswith(other.pop("sentence"))
        assert table == other
    assert plain.to_arrow().column_names == named.to_arrow().column_names[: len(plain.to_arrow().column_names)]
    assert named.to_arrow().column_names[-1] == "verdict"


@pytest.mark.parametrize(("p", "p_equal", "text"), [
    (0.01, 0.02, "Different on average, yet within 9 points: 90 % interval 1.50 to 2.50. Task by task, after correcting for "
     "2 comparisons: practically equal on T1; different, yet within on T0."),
    (0.01, 0.5, "Different on average: the 90 % interval, 1.50 to 2.50, is not inside the margin of 9 points. Task"),
    (0.4, 0.02, "Practically equal on average within 9 points: 90 % interval 1.50 to 2.50. Task"),
    (0.4, 0.5, "Undecided on average: the 90 % interval, 1.50 to 2.50, is not inside the margin of 9 points. Task")])
def test_both_tests_together(same, p, p_equal, text):
    equal = Equivalence(9.0, 1.5, 2.5, 0.001, p_equal)
    average, *rows = (replace(row(name, 2.0, 1.0, 3.0, p, corrected), equivalence=equal, equivalence_corrected=of_both)
                      for name, corrected, of_both in (("Avg", None, None), ("T0", 0.02, 0.03), ("T1", 0.4, 0.03)))
    assert text in sentence(replace(same, rows=tuple(rows), average=average, margin=9.0))


def test_points_are_not_the_unit_of_other_scores(tmp_path):
    runs = [make_run(tmp_path / name, shift, ("geometry", "sts")) for name, shift in (("a", 0.0), ("b", 0.05))]
    tables = {table.setting.protocol: table for table in compare(*runs, resamples=60, margin=1).tables}
    assert tables["sts"].margin == 1 and tables["geometry"].margin is None
    assert tables["geometry"].rows[0].equivalence is None and "points" in tables["geometry"].no_margin
