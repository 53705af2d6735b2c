"""The board made from records: what shares a tab, who is ranked, how seeds are joined."""

from copy import deepcopy

import numpy as np
import pytest
from board_runs import REVISION, Letters, copied, read_once, runs  # noqa: F401  fixtures
from gathered import LETTERS, board, own, tab  # noqa: F401  board is a fixture
from run_edits import edit, rows_of, write_rows
from scipy import stats

from stsbench.comparison.compare import compare
from stsbench.encoders.roles import Traits
from stsbench.errors import StsbenchError
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.measure import RESAMPLES, SEED
from stsbench.evaluation.protocol import load_protocol
from stsbench.evaluation.run_file import load_records, observations_of
from stsbench.evaluation.schema import CORRELATION
from stsbench.leaderboard.ranks import gather, plan
from stsbench.leaderboard.ranks.board import Cell
from stsbench.leaderboard.ranks.lines import _joined_part


def test_alike_is_one_tab_and_its_numbers_are_the_records(board, runs):
    found = board(letters=(["letters"], LETTERS), words=(["words"], LETTERS.model_copy(update={"method": "words"})))
    mine = tab(found, "sts-spearman-wmean-sample")
    assert mine.sample and mine.title == "Spearman, wmean, sample" and mine.lead == "Avg"
    assert mine.columns[-2:] == ("SICK-R", "Avg")
    (row,) = [row for row in mine.measured if row.id == "letters"]
    stored = {}
    for _, record in load_records(runs["letters"]):
        for score in record.scores:
            if (score.metric, score.aggregation) == ("spearman", "wmean"):
                stored[record.data.task] = score
    assert stored.keys() == row.cells.keys() - {"Avg"}
    for task, score in stored.items():
        assert (row.cells[task].value, row.cells[task].low, row.cells[task].high) == (score.value, score.low, score.high)
    seven = [round(stored[task].value, 2) for task in mine.columns[:7]]
    assert row.cells["Avg"].value == round(sum(seven) / 7, 2)
    (row,) = [row for row in tab(found, "sts-spearman-all-sample").measured if row.id == "letters"]
    assert row.cells["Avg"].low < row.cells["Avg"].value < row.cells["Avg"].high
    assert ("STS12", "MSRpar") in row.subsets and row.flags == ("nli",)


def test_an_average_names_its_tasks_and_marks_parts_too_small_to_rank_by(board):
    whole = board(letters=(["letters"], LETTERS))
    means = [tab(whole, f"sts-spearman-{how}-sample") for how in ("mean", "wmean")]
    pooled = tab(whole, "sts-spearman-all-sample")
    assert [made.averaged for made in (*means, pooled)] == [made.columns[:7] for made in (*means, pooled)]
    assert not any(made.averaged for made in whole.tabs if made.lead != "Avg")
    values = [pooled.measured[0].cells[task].value for task in pooled.averaged]
    over = pooled.over_tasks(pooled.measured[0])
    assert (over.low, over.high) == pytest.approx(stats.ttest_1samp(values, 0).confidence_interval())
    for made in means:  # marked, and ranked as before
        mark, = [mark for mark in made.measured[0].marks if "too few to rank by" in mark]
        assert mark.startswith("STS12 ") and made.measured[0].rank.position == 1
    assert not any("too few" in mark for mark in pooled.measured[0].marks)


def test_ranks_are_bounded_by_significant_differences(board):
    found = board(letters=(["letters"], LETTERS), noisy=(["noisy"], LETTERS), twin=(["noisy-2"], LETTERS))
    rows = {row.id: row for row in tab(found, "sts-spearman-all-sample").measured}
    assert rows["letters"].rank.position == 1
    for one in rows.values():
        assert 1 <= one.rank.first <= one.rank.alone[0] <= one.rank.position <= one.rank.alone[1] <= one.rank.last <= 3
    assert not set(rows["letters"].rank.ties) & set(rows["noisy"].rank.ties)
    assert min(rows["noisy"].rank.first, rows["twin"].rank.first) == 2


def test_tiers_follow_from_the_pairs_that_differ(board):
    whole = board(letters=(["letters"], LETTERS), noisy=(["noisy"], LETTERS), twin=(["noisy-2"], LETTERS))
    of_tab = tab(whole, "sts-spearman-all-sample")
    rows = {row.id: row for row in of_tab.measured}
    assert rows["letters"].rank.tier == 1 and rows["noisy"].rank.tier > 1
    place = {name: at for at, name in enumerate(of_tab.pairs.rows)}
    apart = of_tab.pairs.different[place["noisy"], place["twin"]]
    assert (rows["noisy"].rank.tier != rows["twin"].rank.tier) == apart


def test_a_row_by_itself_has_no_tier(board):
    (row,) = tab(board(letters=(["letters"], LETTERS)), "sts-spearman-all-sample").measured
    assert row.rank.position == 1 and row.rank.tier is None


def test_a_pair_is_tested_as_by_compare(board, runs, monkeypatch):
    """Rows of one seed by the same draws, so by the same numbers; seeds' variance is moderated over all rows of the tab."""
    seeds = ["noisy", "noisy-2"]
    monkeypatch.setattr(gather, "FEWEST_SEEDS", 2)
    found = board(letters=(["letters"], LETTERS), words=(["words"], LETTERS), noisy=(seeds, LETTERS))
    pairs = tab(found, "sts-spearman-all-sample").pairs
    place = {row: at for at, row in enumerate(pairs.rows)}
    assert pairs.rows and np.array_equal(pairs.different, pairs.different.T)
    for one, other in (("letters", "words"), ("letters", "noisy")):
        folders = [[runs[name] for name in ([each] if each != "noisy" else seeds)] for each in (one, other)]
        result = compare(*folders, protocols=["sts"], resamples=RESAMPLES, seed=SEED)
        (table,) = [each for each in result.tables if each.average]
        assert (table.setting.metric, table.setting.aggregation) == ("spearman", "all")
        alone = table.average.difference
        half = pairs.halves[place[one], place[other]]
        assert half == pytest.approx(alone.high - alone.value, rel=0.01 if other == "words" else 0.5)
        assert pairs.different[place[one], place[other]] <= (alone.p < 0.05)
    assert tab(found, "geometry-sample").pairs is None


def test_processes_test_as_one_does(board, monkeypatch):
    alone = board(letters=(["letters"], LETTERS), words=(["words"], LETTERS.model_copy(update={"method": "words"})))
    monkeypatch.setattr(plan, "MANY_ROWS", 1)
    monkeypatch.setattr(plan, "cores", lambda: 2)
    across, workers = plan.across, []
    monkeypatch.setattr(plan, "across", lambda *of: workers.append(of[2]) or across(*of))
    tested = 0
    for one, other in zip(alone.tabs, board().tabs, strict=True):
        assert one.measured == other.measured and (one.pairs is None) == (other.pairs is None)
        if one.pairs and other.pairs:
            assert np.array_equal(one.pairs.halves, other.pairs.halves)
            tested += 1
    assert tested and workers == [2]


def test_another_setting_or_other_data_is_another_tab(board, runs, tmp_path, monkeypatch):
    monkeypatch.setattr("stsbench.evaluation.provenance.git_revision", lambda: REVISION)
    common = {"tasks": ["STS12", "STS-B"], "sample": True, "resamples": 50}
    dot = evaluate(Letters(3, 0.1), output=tmp_path / "dot", similarity="dot", **common).folder
    less = evaluate(Letters(4, 0.1), output=tmp_path / "less", without_overlap=["stsb/dev"], **common).folder
    paper = evaluate(Letters(5, 0.5), output=tmp_path / "paper", protocols=["simcse"], **common).folder
    found = board(letters=(["letters"], LETTERS), dot=([dot], LETTERS), less=([less], LETTERS), paper=([paper], LETTERS))
    where = {row.id: each.id for each in found.tabs for row in each.measured
             if (each.metric, each.aggregation, each.group) == ("spearman", "all", "sts")}
    assert where["letters"] == where["paper"] == "sts-spearman-all-sample"  # a paper's name for the same setting
    assert where["dot"] == "sts-spearman-all-similarity-dot-sample"
    assert where["less"].startswith("sts-spearman-all-without-overlap")
    assert len(set(where.values())) == 3
    (row,) = [row for row in tab(found, "sts-spearman-all-sample").measured if row.id == "paper"]
    assert row.rank is None and "STS13" in row.unranked  # two tasks are no average


def test_seeds_become_a_mean_with_its_spread(board, runs):
    found = board(noisy=(["noisy", "noisy-2"], LETTERS), letters=(["letters"], LETTERS))
    (row,) = [row for row in tab(found, "sts-spearman-all-sample").measured if row.id == "noisy"]
    for task, prefix in {"STS12": "sts.sts12-test", "STS-B": "sts.stsb-test"}.items():
        values, widths = [], []
        for name in ("noisy", "noisy-2"):
            (record,) = (record for path, record in load_records(runs[name]) if path.name.startswith(f"{prefix}."))
            arrays = observations_of(runs[name], record).arrays
            values.append(100 * stats.spearmanr(arrays["similarity"], arrays["gold"]).statistic)
            (score,) = [s for s in record.scores if (s.metric, s.aggregation) == ("spearman", "all")]
            widths.append(score.high - score.low)
        cell = row.cells[task]
        assert cell.value == pytest.approx(np.mean(values)) and cell.sd == pytest.approx(np.std(values, ddof=1))
        assert cell.low < cell.value < cell.high
        assert cell.high - cell.low > 0.6 * min(widths)
    assert row.seeds == 2 and len(found.entries["noisy"].runs) == 2
    assert row.rank is None and row.unranked == "not ranked: two seeds; a third would rank it"
    assert tab(found, "sts-spearman-all-sample").measured[-1] == row  # below those that have a rank
    part = row.subsets["STS12", "MSRpar"]
    stored = [next(score for _, record in load_records(runs[name]) for score in record.scores
                   if (record.data.id, score.subset, score.metric) == ("sts12/test", "MSRpar", "spearman"))
              for name in ("noisy", "noisy-2")]
    assert part.value == pytest.approx(np.mean([score.value for score in stored])) and part.n == stored[0].n
    student = stats.t.ppf(0.975, 1) * part.sd / np.sqrt(2)
    assert part.high == min(100, part.value + max(student, part.high - part.value))  # as wide, within what can be
    assert part.low == max(-100, part.value - max(student, part.value - part.low))
    lone = tab(found, "sts-spearman-all-sample").measured[0].subsets["STS12", "MSRpar"]
    assert lone.low < lone.value < lone.high and lone.n == part.n


def test_the_interval_of_a_part_over_seeds_is_about_that_of_a_column():
    """By a simulation of seeds whose draws share items: a column has its interval from their draws, a part from theirs."""
    rng = np.random.default_rng(5)
    ratios = []
    for _ in range(200):
        shared, seeds = rng.normal(0, 1, 1000), rng.normal(70, 0.5, 3)
        draws = [seed + 0.8 * shared + 0.6 * rng.normal(0, 1, 1000) for seed in seeds]
        ends = [np.quantile(each, [0.025, 0.975]) for each in draws]
        cells = [Cell(float(seed), float(low), float(high)) for seed, (low, high) in zip(seeds, ends, strict=True)]
        wider = stats.t.ppf(0.975, 2) / stats.norm.ppf(0.975) / np.sqrt(3)
        whole = np.mean(draws, axis=0) + np.std(seeds, ddof=1) * wider * rng.standard_normal(1000)
        exact = np.quantile(whole, [0.025, 0.975])
        joined = _joined_part(tuple(cells), CORRELATION)
        ratios.append((joined.high - joined.low) / (exact[1] - exact[0]))
    assert 1 < np.mean(ratios) < 1.2 and min(ratios) > 0.9  # the bound on the items' part makes it a little wider


def test_without_an_average_a_single_task_leads(board, tmp_path, monkeypatch):
    """As on the raw text, which SICK-R's 4,927 pairs do not have: rows without the average are ranked all the same."""
    tasks = {"protocols": ["sts"], "tasks": ["STS12", "STS-B"], "resamples": None}
    one, two = (own(tmp_path, monkeypatch, f"{seed}", Letters(seed, noise), **tasks) for seed, noise in ((1, 0.1), (2, 8)))
    twelve = own(tmp_path, monkeypatch, "c", Letters(3, 1), **{**tasks, "tasks": ["STS12"]})
    found = board(a=([one], LETTERS), b=([two], LETTERS), c=([twelve], LETTERS))
    mine = tab(found, "sts-spearman-all-sample")
    assert mine.lead == "STS-B" and "Avg" not in mine.columns and mine.pairs is not None
    assert "Ranked by STS-B: no row has all 7 tasks of the average." in mine.about
    assert [(row.id, row.rank and row.rank.position, row.unranked) for row in mine.measured] == [
        ("a", 1, ""), ("b", 2, ""), ("c", None, "not ranked: STS-B not measured"),
    ]


def test_the_best_of_several_seeds_never_ranks(board):
    best = LETTERS.model_copy(update={"best_of": 10})
    found = board(letters=(["letters"], best), words=(["words"], LETTERS))
    rows = tab(found, "sts-spearman-all-sample").measured
    assert [row.id for row in rows] == ["words", "letters"]  # behind the ranked, whatever it scored
    assert rows[1].rank is None and "best of 10" in rows[1].unranked and "best-of-n" in rows[1].flags
    assert (rows[0].rank.position, rows[0].rank.last) == (1, 1)


def test_geometry_is_shown_and_not_ranked(board):
    found = board(letters=(["letters"], LETTERS))
    (row,) = tab(found, "geometry-sample").measured
    assert {"alignment", "uniformity"} <= row.cells.keys() and row.rank is None and "geometry" not in row.unranked


def test_published_rows_stand_beside_and_are_never_ranked(board):
    found = board(letters=(["letters"], LETTERS))
    published = tab(found, "sts-spearman-all")
    assert not published.measured and len(published.published) > 100  # the sample has a tab of its own
    assert all(row.rank is None and row.kind == "published" for each in found.tabs for row in each.published)
    sbert = [row for row in published.published if row.average_printed == 74.89]
    assert sbert and all(row.cells["Avg"].value == 74.86 and any("74.89" in mark for mark in row.marks) for row in sbert)
    empty = [row for row in published.published if len(row.cells) < 8]
    assert empty  # what could not be read is not there


def test_gold_values_that_differ_are_an_error(board, copied):
    """Observations made for the occasion: right digests, right scores, other gold."""
    run = copied("letters")

    def forge(row):
        row.observed.arrays["gold"] = row.observed.arrays["gold"][::-1].copy()
        protocol = load_protocol("sts")(row.record["protocol"]["settings"], row.record["protocol"]["label"])
        scores = protocol.score(row.observed, "stsb/test", "STS-B")
        row.record["scores"] = [score.model_dump() for score in scores]
        row.resigned()

    path = edit(run, forge, named(run, "sts.stsb-test"))
    with pytest.raises(StsbenchError, match=f"{path.name}: gold of its observations is not that of"):
        board(letters=(["words"], LETTERS), zz_forged=([run], LETTERS))


def named(run, prefix):
    (name,) = (row.name for row in rows_of(run) if row.name.startswith(f"{prefix}."))
    return name


def test_forms_and_single_tasks_have_tabs_of_their_own(board, tmp_path, monkeypatch):
    dev = own(tmp_path, monkeypatch, "dev", protocols=["geometry:dev"], tasks=["STS-B-dev"], resamples=None)
    test = own(tmp_path, monkeypatch, "test", Letters(1, 1), protocols=["geometry"])
    ks = own(tmp_path, monkeypatch, "ks", Letters(2, 1), protocols=["retrieval"], settings={"retrieval.ks": [10, 1]})
    usual = own(tmp_path, monkeypatch, "usual", Letters(3, 1), protocols=["retrieval"])
    one = own(tmp_path, monkeypatch, "one", Letters(4, 1), protocols=["mteb:STS12", "mteb:STS13"], resamples=None)
    made = {"dev": dev, "test": test, "ks": ks, "usual": usual, "one": one}
    found = board(**{name: ([run], LETTERS) for name, run in made.items()})
    where = {}
    for each in found.tabs:
        for row in each.measured:
            where.setdefault(row.id, []).append((each.id, each.title, each.columns))
    assert [name for name, *_ in where["dev"]] == ["geometry-geometry-dev-sample"]
    assert [name for name, *_ in where["test"]] == ["geometry-sample"]
    assert where["ks"] == where["usual"] and where["ks"][0][0] == "retrieval-sample"  # ks chooses what is shown
    ((name, _, columns),) = where["one"]
    assert name == "mteb-cosine-spearman-sample" and set(columns) == {"STS12", "STS13"}


def test_a_cut_text_is_told_where_it_was_cut(board, tmp_path, monkeypatch, runs):
    class Short(Letters):
        def run(self, texts, progress=None):
            encoded = super().run(texts, progress)
            return type(encoded)(encoded.vectors, np.array([len(text) > 60 for text in texts]))

    run = own(tmp_path, monkeypatch, "short", Short(7, 0.1), protocols=["sts", "retrieval"], tasks=["STS12", "STS-B"])
    counts = {record.data.id: record.counts["truncated"] for _, record in load_records(run) if record.protocol.name == "sts"}
    assert counts["sts12/test"] and counts["sts12/test"] != counts["stsb/test"]
    found = board(short=([run], LETTERS), letters=(["letters"], LETTERS))
    (row,) = [row for row in tab(found, "sts-spearman-all-sample").measured if row.id == "short"]
    said = " ".join(row.marks)
    assert f"{counts['sts12/test']} texts of STS12" in said
    assert ("STS-B" in said) == bool(counts["stsb/test"])
    assert not any("cut" in mark for row in tab(found, "sts-spearman-all-sample").measured if row.id == "letters"
                   for mark in row.marks)


def test_a_row_trained_on_sentences_of_a_set_it_is_tested_on_is_flagged(board, tmp_path, monkeypatch):
    class Trained(Letters):
        traits = Traits(trained_on=("sts12", "sick-e"))

    entries = {}
    for seed, (name, tasks) in enumerate({"seen": ["STS12", "STS13"], "unseen": ["STS13"]}.items()):
        run = own(tmp_path, monkeypatch, name, Trained(seed, 0.1, name), protocols=["sts"], tasks=tasks)
        assert all(record.provenance["trained_on"] == ["sts12", "sick-e"] for _, record in load_records(run))
        entries[name] = [run], LETTERS
    flags = {row.id: row.flags for row in tab(board(**entries), "sts-spearman-all-sample").measured}
    assert flags == {"seen": ("nli", "transductive"), "unseen": ("nli",)}


def test_a_seed_without_a_protocol_leaves_no_empty_tab(board, tmp_path, monkeypatch):
    one = own(tmp_path, monkeypatch, "one", Letters(1, 1), protocols=["sts", "geometry"], tasks=["STS12", "STS-B"])
    two = own(tmp_path, monkeypatch, "two", Letters(2, 1), protocols=["sts"], tasks=["STS12", "STS-B"])
    found = board(both=([one, two], LETTERS))
    assert "geometry-sample" not in {each.id for each in found.tabs}
    (row,) = tab(found, "sts-spearman-all-sample").measured
    assert row.cells.keys() == {"STS12", "STS-B"} and row.seeds == 2


def test_two_scores_of_one_setting_in_a_run_are_an_error(board, copied):
    """A copy of a record under another digest's name: which of the two is it?"""
    run = copied("letters")
    rows = rows_of(run)
    (row,) = (row for row in rows if row.name == named(run, "sts.stsb-test"))
    other = deepcopy(row)
    other.record["data"]["digest"] = "0" * 64
    other.renamed()
    write_rows(run, [*rows, other])
    with pytest.raises(StsbenchError, match=r"run\.parquet/sts\.stsb-test"):
        board(twice=([run], LETTERS))


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_intervals_over_few_seeds_hold_what_they_promise(seeds):
    """Seed noise alone: the 95 % interval of the mean over seeds must be Student's, however few they are."""
    from types import SimpleNamespace

    from stsbench.comparison.comparability import Setting
    from stsbench.evaluation.protocol import load_protocol
    from stsbench.leaderboard.ranks.board import Cell
    from stsbench.leaderboard.ranks.lines import RESAMPLES, ScoreLine, merged

    rng, inside, rounds = np.random.default_rng(seeds), 0, 400
    for number in range(rounds):
        values = rng.normal(50, 1, seeds)
        runs = []
        for value in values:
            setting = Setting("sts", 1, "{}", "senteval", "spearman", "all")
            line = ScoreLine(setting, load_protocol("sts")({}), cells={"STS-B": Cell(value)})
            line.draws["STS-B"] = np.full(RESAMPLES, value)
            runs.append([line])
        ((line, _),) = merged(SimpleNamespace(id=f"entry-{number}"), runs)
        inside += line.cells["STS-B"].low < 50 < line.cells["STS-B"].high
        assert line.seeds["STS-B"].tolist() == list(values) and np.ptp(line.draws["STS-B"]) == 0
    assert 0.92 < inside / rounds < 0.98


def test_records_that_do_not_tell_shared_pairs_are_refused(board, copied):
    """As stored before records said which pair is which: the interval of an average would be too narrow."""
    run = copied("letters")
    rows = rows_of(run)
    for row in rows:
        if row.name.startswith("sts."):
            del row.observed.arrays["pair"]
            row.resigned()
    write_rows(run, rows)
    with pytest.raises(StsbenchError, match="the observations lack pair"):
        board(old=([run], LETTERS))
