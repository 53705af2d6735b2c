"""The board made from records: what shares a tab, who is ranked, how seeds are joined."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from board_runs import LETTERS, STS_TAB, Letters, board, copied, own, read_once, rows_by_id, runs, tab  # noqa: F401 - fixtures
from clirun import refuses
from run_edits import edit_all
from scipy import stats

from stsbench.comparison.comparability import Setting
from stsbench.comparison.compare import compare
from stsbench.errors import StsbenchError
from stsbench.evaluation.measure import RESAMPLES, SEED
from stsbench.evaluation.protocol import load_protocol
from stsbench.evaluation.run_file import load_records, read_observations
from stsbench.evaluation.schema import CORRELATION
from stsbench.leaderboard.ranks import gather, plan
from stsbench.leaderboard.ranks.board import Cell
from stsbench.leaderboard.ranks.lines import ScoreLine, _joined_part, clipped, merged
from stsbench.leaderboard.records.add import add


@pytest.fixture(scope="module")
def whole(runs, tmp_path_factory):
    """A board of `letters` and of two seeds, which have no rank."""
    root = tmp_path_factory.mktemp("whole")
    add(root, [runs["letters"]], "letters", LETTERS)
    add(root, [runs["noisy"], runs["noisy-2"]], "noisy", LETTERS.model_copy(update={"method": "noisy"}))
    return gather.gather(root)


def test_a_tab_shows_the_records_scores_and_their_rounded_mean(whole, runs):
    weighted = tab(whole, "sts-spearman-wmean-sample")
    assert weighted.sample and weighted.title == "Spearman, wmean, sample" and weighted.lead == "Avg"
    assert weighted.columns[-2:] == ("SICK-R", "Avg")
    row = weighted.measured[0]
    stored = {record.data.task: score for _, record in load_records(runs["letters"]) for score in record.scores
              if (score.metric, score.aggregation) == ("spearman", "wmean")}
    assert stored.keys() == row.cells.keys() - {"Avg"}
    for task, score in stored.items():
        assert (row.cells[task].value, row.cells[task].low, row.cells[task].high) == (score.value, score.low, score.high)
    assert row.cells["Avg"].value == round(sum(round(stored[task].value, 2) for task in weighted.columns[:7]) / 7, 2)
    pooled = tab(whole)
    row = rows_by_id(whole)["letters"]
    assert row.cells["Avg"].low < row.cells["Avg"].value < row.cells["Avg"].high
    assert ("STS12", "MSRpar") in row.subsets and row.flags == ("nli",)
    assert row.rank.position == 1 and row.rank.tier is None  # by itself it has none
    # An average names its tasks, and parts too small to rank by are marked; the row is ranked as before.
    means = [tab(whole, f"sts-spearman-{how}-sample") for how in ("mean", "wmean")]
    assert all(each.averaged == each.columns[:7] for each in (*means, pooled))
    assert not any(each.averaged for each in whole.tabs if each.lead != "Avg")
    for each in means:
        (mark,) = [mark for mark in each.measured[0].marks if "too few to rank by" in mark]
        assert mark.startswith("STS12 ") and each.measured[0].rank.position == 1
    assert not any("too few" in mark for mark in row.marks)
    geometry = next(row for row in tab(whole, "geometry-sample").measured if row.id == "letters")
    assert {"alignment", "uniformity"} <= geometry.cells.keys() and geometry.rank is None
    assert "geometry" not in geometry.unranked
    # Published rows stand in tabs of their own beside the sample's, and are never ranked.
    published = tab(whole, "sts-spearman-all")
    assert not published.measured and len(published.published) > 100
    assert all(row.rank is None and row.kind == "published" for each in whole.tabs for row in each.published)
    sbert = [row for row in published.published if row.average_printed == 74.89]
    assert sbert and all(row.cells["Avg"].value == 74.86 and any("74.89" in mark for mark in row.marks) for row in sbert)
    assert any(len(row.cells) < 8 for row in published.published)  # what could not be read is not there


def test_ranks_and_tiers_follow_from_the_pairs_that_differ(board):
    whole = board(letters=(["letters"], LETTERS), noisy=(["noisy"], LETTERS), twin=(["noisy-2"], LETTERS),
                  words=(["words"], LETTERS.model_copy(update={"best_of": 10})))
    rows, pairs = rows_by_id(whole), tab(whole).pairs
    chosen = rows.pop("words")  # the best of several seeds stands behind the ranked, whatever it scored
    assert tab(whole).measured[-1] == chosen and chosen.rank is None
    assert "best of 10" in chosen.unranked and "best-of-n" in chosen.flags
    assert rows["letters"].rank.position == 1
    for row in rows.values():
        assert 1 <= row.rank.first <= row.rank.alone[0] <= row.rank.position <= row.rank.alone[1] <= row.rank.last <= 3
    assert not set(rows["letters"].rank.ties) & set(rows["noisy"].rank.ties)
    assert min(rows["noisy"].rank.first, rows["twin"].rank.first) == 2
    assert rows["letters"].rank.tier == 1 and rows["noisy"].rank.tier > 1
    place = {name: at for at, name in enumerate(pairs.rows)}
    assert (rows["noisy"].rank.tier != rows["twin"].rank.tier) == pairs.different[place["noisy"], place["twin"]]


def test_a_pair_is_tested_as_by_compare(board, runs, monkeypatch):
    """Rows of one seed by the same draws, so by the same numbers; seeds' variance is moderated over all rows of the tab."""
    seeds = ["noisy", "noisy-2"]
    monkeypatch.setattr(gather, "FEWEST_SEEDS", 2)
    gathered = board(letters=(["letters"], LETTERS), words=(["words"], LETTERS), noisy=(seeds, LETTERS))
    pairs = tab(gathered).pairs
    place = {row: at for at, row in enumerate(pairs.rows)}
    assert pairs.rows and np.array_equal(pairs.different, pairs.different.T)
    for one, other in (("letters", "words"), ("letters", "noisy")):
        folders = [[runs[name] for name in ([each] if each != "noisy" else seeds)] for each in (one, other)]
        compared = compare(*folders, protocols=["sts"], resamples=RESAMPLES, seed=SEED)
        (table,) = [each for each in compared.tables if each.average]
        assert (table.setting.metric, table.setting.aggregation) == ("spearman", "all")
        alone = table.average.difference
        half = pairs.halves[place[one], place[other]]
        assert half == pytest.approx(alone.high - alone.value, rel=0.01 if other == "words" else 0.5)
        assert pairs.different[place[one], place[other]] <= (alone.p < 0.05)
    assert tab(gathered, "geometry-sample").pairs is None


def test_many_rows_are_tested_across_processes(board, monkeypatch):
    alone = board(letters=(["letters"], LETTERS), words=(["words"], LETTERS.model_copy(update={"method": "words"})))
    monkeypatch.setattr(plan, "MANY_ROWS", 1)
    monkeypatch.setattr(plan, "cores", lambda: 2)
    workers = []
    monkeypatch.setattr(plan, "across", lambda function, items, count: (
        workers.append(count), [function(item) for item in pickle.loads(pickle.dumps(items))])[1])
    tested = 0
    for one, other in zip(alone.tabs, board().tabs, strict=True):
        assert one.measured == other.measured and (one.pairs is None) == (other.pairs is None)
        if one.pairs and other.pairs:
            assert np.array_equal(one.pairs.halves, other.pairs.halves)
            tested += 1
    assert tested and workers == [2]


def test_another_setting_form_or_other_data_is_another_tab(board, runs, tmp_path):
    tasks, whole = {"tasks": ["STS-B"]}, {"resamples": None}
    options = {
        "dot": {"similarity": "dot", **tasks}, "less": {"without_overlap": ["stsb/dev"], **tasks},
        "paper": {"protocols": ["simcse"], **tasks}, "dev": {"protocols": ["geometry:dev"], "tasks": ["STS-B-dev"], **whole},
        "ks": {"protocols": ["retrieval"], "settings": {"retrieval.ks": [10, 1]}},
        "one": {"protocols": ["mteb:STS12", "mteb:STS13"], **whole}}
    entries = {name: ([own(tmp_path / name, Letters(seed, 1), **how)], LETTERS)
               for seed, (name, how) in enumerate(options.items(), 3)}
    gathered = board(letters=(["letters"], LETTERS), **entries)
    where = {}
    for each, row in [(one, row) for one in gathered.tabs for row in one.measured]:
        if each.group != "sts" or (each.metric, each.aggregation) == ("spearman", "all"):
            where.setdefault(row.id, []).append((each.id, each.title, each.columns))
    ids = {name: [id for id, *_ in of_row] for name, of_row in where.items()}
    assert STS_TAB in ids["letters"] and ids["paper"] == [STS_TAB]  # a paper's name for the same setting
    assert ids["dot"] == ["sts-spearman-all-similarity-dot-sample"]
    assert [id.startswith("sts-spearman-all-without-overlap") for id in ids["less"]] == [True]
    assert ids["dev"] == ["geometry-geometry-dev-sample"] and "geometry-sample" in ids["letters"]
    assert where["ks"][0] in where["letters"] and ids["ks"] == ["retrieval-sample"]  # ks chooses what is shown
    ((name, _, columns),) = where["one"]
    assert name == "mteb-cosine-spearman-sample" and set(columns) == {"STS12", "STS13"}
    row = rows_by_id(gathered)["paper"]
    assert row.rank is None and "STS13" in row.unranked  # one task is no average


def test_without_an_average_a_single_task_leads_and_a_protocol_of_one_seed_has_no_tab(board, tmp_path):
    """As on the raw text, which SICK-R's 4,927 pairs do not have: rows without the average are ranked all the same."""
    one, two, *seeds = (own(tmp_path / f"{seed}", Letters(seed, noise), protocols=protocols, tasks=["STS12", "STS-B"])
                        for seed, (noise, protocols) in enumerate([
                            (0.1, ["sts"]), (8, ["sts"]), (20, ["sts", "geometry"]), (20, ["sts"])]))
    twelve = own(tmp_path / "c", Letters(4, 1), protocols=["sts"], tasks=["STS12"])
    gathered = board(a=([one], LETTERS), b=([two], LETTERS), c=([twelve], LETTERS), d=(seeds, LETTERS))
    mine = tab(gathered)
    assert mine.lead == "STS-B" and "Avg" not in mine.columns and mine.pairs is not None
    assert "Ranked by STS-B: no row has all 7 tasks of the average." in mine.about
    assert [(row.id, row.rank and row.rank.position, row.unranked) for row in mine.measured] == [
        ("a", 1, ""), ("b", 2, ""), ("d", None, gather.TWO_SEEDS), ("c", None, "not ranked: STS-B not measured")]
    assert "geometry-sample" not in {each.id for each in gathered.tabs}
    row = rows_by_id(gathered)["d"]
    assert row.cells.keys() == {"STS12", "STS-B"} and row.seeds == 2


def test_seeds_become_a_mean_with_its_spread(whole, runs):
    row = rows_by_id(whole)["noisy"]
    for task, prefix in {"STS12": "sts.sts12-test", "STS-B": "sts.stsb-test"}.items():
        values, widths = [], []
        for name in ("noisy", "noisy-2"):
            (record,) = (record for path, record in load_records(runs[name]) if path.name.startswith(f"{prefix}."))
            arrays = read_observations(runs[name], record).arrays
            values.append(100 * stats.spearmanr(arrays["similarity"], arrays["gold"]).statistic)
            (score,) = [s for s in record.scores if (s.metric, s.aggregation) == ("spearman", "all")]
            widths.append(score.high - score.low)
        cell = row.cells[task]
        assert cell.value == pytest.approx(np.mean(values)) and cell.sd == pytest.approx(np.std(values, ddof=1))
        assert cell.low < cell.value < cell.high and cell.high - cell.low > 0.6 * min(widths)
    assert row.seeds == 2 and len(whole.entries["noisy"].runs) == 2
    assert row.rank is None and row.unranked == "not ranked: two seeds; a third would rank it"
    assert tab(whole).measured[-1] == row  # below those that have a rank
    part = row.subsets["STS12", "MSRpar"]
    stored = [next(score for _, record in load_records(runs[name]) for score in record.scores
                   if (record.data.id, score.subset, score.metric) == ("sts12/test", "MSRpar", "spearman"))
              for name in ("noisy", "noisy-2")]
    assert part.value == pytest.approx(np.mean([score.value for score in stored])) and part.n == stored[0].n
    student = stats.t.ppf(0.975, 1) * part.sd / np.sqrt(2)
    assert part.high == min(100, part.value + max(student, part.high - part.value))  # as wide, within what can be
    assert part.low == max(-100, part.value - max(student, part.value - part.low))
    lone = tab(whole).measured[0].subsets["STS12", "MSRpar"]
    assert lone.low < lone.value < lone.high and lone.n == part.n


def test_intervals_over_few_seeds_hold_what_they_promise():
    """Seed noise alone: the 95 % interval of the mean over seeds must be Student's, however few they are."""
    seeds, rng, inside, rounds = 2, np.random.default_rng(2), 0, 400
    setting = Setting("sts", 1, "{}", "senteval", "spearman", "all")
    for number in range(rounds):
        values = rng.normal(50, 1, seeds)
        runs = [[ScoreLine(setting, load_protocol("sts")({}), cells={"STS-B": Cell(value)})] for value in values]
        for value, (line,) in zip(values, runs, strict=True):
            line.draws["STS-B"] = np.full(RESAMPLES, value)
        ((line, _),) = merged(SimpleNamespace(id=f"entry-{number}"), runs)
        inside += line.cells["STS-B"].low < 50 < line.cells["STS-B"].high
        assert line.seeds["STS-B"].tolist() == list(values) and np.ptp(line.draws["STS-B"]) == 0
    assert 0.92 < inside / rounds < 0.98


def test_a_parts_interval_is_the_mean_reach_of_its_seeds_and_students_together():
    equal = tuple(Cell(50.0, 50 - reach, 50 + 2 * reach, n=10) for reach in (1.0, 2.0, 3.0))
    assert _joined_part(equal, CORRELATION) == Cell(50.0, 48.0, 54.0, 0.0, 10)
    assert _joined_part((Cell(50.0, 49.5, 50.5, n=10),) * 3, CORRELATION) == Cell(50.0, 49.5, 50.5, 0.0, 10)
    reach = np.hypot(2, stats.t.ppf(0.975, 2) / np.sqrt(3))
    joined = _joined_part(tuple(Cell(value, value - 2, value + 2, n=10) for value in (49.0, 50.0, 51.0)), CORRELATION)
    assert (joined.low, joined.high, joined.sd) == pytest.approx((50 - reach, 50 + reach, 1))
    # An interval stays within what a metric can be.
    for protocol, metric, low, high, kept in (
        ("retrieval", "recall@10", 96.6, 101.2, (96.6, 100.0)), ("retrieval", "mrr", -3.0, 101.2, (0.0, 100.0)),
        ("sts", "spearman", -104.0, 50.0, (-100.0, 50.0)), ("regression", "mse", -0.1, 0.4, (0.0, 0.4)),
        ("geometry", "uniformity", -3.9, 1.0, (-3.9, 0.0)), ("retrieval", "recall@10", None, None, (None, None))):
        assert clipped(low, high, load_protocol(protocol).metric(metric)) == kept


def forge_gold(row):
    """Observations made for the occasion: right digests, right scores, other gold."""
    if row.name.startswith("sts.stsb-test."):
        row.observed.arrays["gold"] = row.observed.arrays["gold"][::-1].copy()
        protocol = load_protocol("sts")(row.record["protocol"]["settings"], row.record["protocol"]["label"])
        row.record["scores"] = [score.model_dump() for score in protocol.score(row.observed, "stsb/test", "STS-B")]
        row.resigned()


def drop_pairs(row):
    """As stored before records said which pair is which: the interval of an average would be too narrow."""
    if row.observed.arrays.pop("pair", None) is not None:
        row.resigned()


@pytest.mark.parametrize(("forge", "words"), [
    (forge_gold, r"sts\.stsb-test.*: gold of its observations is not that of"), (drop_pairs, "the observations lack pair")])
def test_records_that_contradict_others_are_refused(board, copied, forge, words):
    refuses(StsbenchError, words, board, a=(["words"], LETTERS), zz_forged=([edit_all(copied("letters"), forge)], LETTERS))
