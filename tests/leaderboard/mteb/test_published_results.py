"""MTEB's results as published: rows, doubts, ranks, tiers and the tests of differences, against loops, scipy and known
items; and the files and findings that show them."""

import gzip
import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from board_example import synthetic
from clirun import refuses
from scipy.stats import norm, permutation_test, rankdata, ttest_1samp

from stsbench.errors import StsbenchError
from stsbench.leaderboard.mteb import results
from stsbench.leaderboard.mteb.differences import compare_over_tasks, mean_difference_error, sign_patterns, spearman_error
from stsbench.leaderboard.mteb.rows import NO_MODELS, PAIRS, is_commit, languages, seven_task_rows
from stsbench.leaderboard.mteb.section import published_page, rank_moves
from stsbench.leaderboard.mteb.standings import MeasuredHere, as_published, score_matrix, shared_errors, standings, tiers
from stsbench.leaderboard.page.site import site
from stsbench.metrics.aggregation import FEWEST_ITEMS

BOARD = Path(__file__).resolve().parents[3] / "leaderboard"
TAB, MODEL, ENTRY = "mteb-as-published", "sentence-transformers/all-MiniLM-L6-v2", "entry-0003"
COMMIT, DATA = "a" * 40, "d" * 40
BROKEN = "Gameselo/STS-multilingual-mpnet-base-v2"  # whose file was divided by 100 twice
DRAWS = 1000
# As their makers state them: the models' cards, and the announcement of jina-embeddings-v3.
STATED = {
    "jinaai/jina-embeddings-v3": {"licence": "CC-BY-NC-4.0", "released": "2024-09", "width": 1024, "max_tokens": 8192},
    MODEL: {"licence": "Apache-2.0", "width": 384, "max_tokens": 256, "languages": ["en"], "languages_n": 1, "open": True},
    "intfloat/multilingual-e5-small": {"licence": "MIT", "width": 384, "max_tokens": 512, "languages_n": 93}}


@pytest.fixture(scope="module")
def published():
    return results.load_published(BOARD)


@pytest.fixture(scope="module")
def ranking(published):
    return as_published(published, measured_here=[MeasuredHere(ENTRY, MODEL, dict.fromkeys(results.ITEMS, 78.5))])


def scores_of(name="a/b", revision=COMMIT, value="0.5", tasks=tuple(results.ITEMS), data=DATA):
    return [results.Score(name, revision, task, "default", value, "1.0", data) for task in tasks]


def test_the_models_with_seven_tasks_are_those_of_a_plain_count(published):
    rows, folders = {row.model: row for row in seven_task_rows(published.scores)}, {}
    for score in published.scores:
        if score.task in results.ITEMS:
            folders.setdefault(score.model, {}).setdefault(score.revision, set()).add(score.task)
    whole = [model for model, of_model in folders.items() if any(len(tasks) == 7 for tasks in of_model.values())]
    union = [model for model, of_model in folders.items() if len(set().union(*of_model.values())) == 7]
    assert (len(whole), len(union), len(rows)) == (188, 207, 207)  # as counted by hand
    mixed = {model for model, row in rows.items() if "mixed" in row.flags}
    assert {model: len(set(row.folders.values())) for model, row in rows.items()} == {
        model: 2 if model in mixed else 1 for model in rows}
    assert len(mixed) == 19 and not set(NO_MODELS) & set(rows)
    assert sum(not is_commit(row.folders["STS12"]) for row in rows.values()) == 114


def test_one_folder_with_all_tasks_is_taken_before_a_mixture_and_a_commit_before_a_model_card():
    other = scores_of(value="0.9", revision="1", tasks=("STS12",))
    (row,) = seven_task_rows([*scores_of(value="0.7", revision="external"), *scores_of(), *other])
    assert set(row.folders.values()) == {COMMIT} and row.mean == pytest.approx(50) and row.flags == ()
    tasks = tuple(results.ITEMS)
    (row,) = seven_task_rows([*scores_of(tasks=tasks[:6]), *scores_of(value="0.7", revision="external", tasks=tasks[4:])])
    assert row.folders["SICK-R"] == "external" and row.folders["STSBenchmark"] == COMMIT  # never a mean over folders
    assert row.flags == ("mixed", "card") and row.mean == pytest.approx((6 * 50 + 70) / 7)
    assert seven_task_rows(scores_of(tasks=tasks[:6])) == () == seven_task_rows(scores_of("baseline/Human"))


def test_each_doubt_is_flagged_for_what_it_is():
    plain, twin = scores_of(), results.Score("a/b", "x", *results.TWIN, "0.515")
    for scores, doubts in (
        (plain, {}), ([replace(plain[0], value="0.005"), *plain[1:]], {"divided": "STS12 is printed as 0.005"}),
        ([replace(score, value="0.005") for score in plain], {}),  # a poor model is no fault
        ([*plain, replace(plain[2], value="0.51")], {"twice": "STS14: 0.5 and 0.51"}),
        ([*plain, replace(twin, value="0.509")], {})):
        assert dict(seven_task_rows(scores)[0].doubts) == doubts
    assert "disagrees" in seven_task_rows([*plain, twin])[0].flags
    assert seven_task_rows(scores_of(revision="1"))[0].flags == ("no-commit",)
    strange = [*scores_of("c/d"), *scores_of("e/f"), *[replace(score, dataset_revision="") for score in plain]]
    assert {row.model: row.flags for row in seven_task_rows(strange)} == {"a/b": ("data",), "c/d": (), "e/f": ()}
    # And in a table of a language, where a commit is taken before a model card, too.
    scores = [results.Score(model, folder, "STS17", "en-de", value, "", data) for model, folder, value, data in (
        ("a/b", "external", "0.9", "x"), ("a/b", COMMIT, "0.8", "x"), ("d/e", "1", "0.6", "y"),
        *((f"c/{i}", "external", "0.7", "x") for i in range(3)))]
    made = {row.model: row for table in languages(scores) for row in table.rows}
    assert made["a/b"].score == 80 and made["a/b"].doubts == () and made["c/0"].doubts == (("card", "this task"),)
    assert [key for key, _ in made["d/e"].doubts] == ["no-commit", "data"]


def test_the_table_is_the_same_bytes_and_what_does_not_fit_is_refused(published, tmp_path):
    assert (BOARD / results.FOLDER / results.TABLE).read_bytes() == results.table_bytes(published.scores)
    path = tmp_path / results.TABLE
    wrong = results.table_bytes([results.Score("a/b", "1", "STS12", "default", "85.2")])
    for content, words in ((wrong, "line 2: '85.2' is not a corr"), (b"no gzip", results.TABLE)):
        path.write_bytes(content)
        refuses(StsbenchError, words, results.read_table, path)
    folder = tmp_path / "board" / results.FOLDER
    folder.mkdir(parents=True)
    (folder / results.TABLE).write_bytes(results.table_bytes(scores_of()))
    (folder / results.SOURCE).write_text((BOARD / results.FOLDER / results.SOURCE).read_text())
    refuses(StsbenchError, r"has 7 scores, and source\.yaml says 7408", results.load_published, tmp_path / "board")
    assert results.load_published(tmp_path) is None


def test_ranks_and_tiers_are_those_of_a_loop(ranking):
    ranked = [(row, at) for row, at in zip(ranking.rows, ranking.standings, strict=True) if at]
    assert len(ranked) == ranking.ranked == 206
    matrix, means = score_matrix([row for row, _ in ranked]), [row.mean for row, _ in ranked]
    different = compare_over_tasks(matrix).alone
    for i, (_, at) in enumerate(ranked):
        better = [j for j in range(206) if means[j] > means[i]]
        assert at.position == 1 + len(better)
        assert at.first == 1 + sum(bool(different[i, j]) for j in better)
        assert at.last == 206 - sum(bool(different[i, j]) for j in range(206) if means[j] < means[i])
        assert at.jointly[0] <= at.first <= at.position <= at.last <= at.jointly[1]
        assert (at.tier == 1) == (at.first == 1)
    left, number = list(range(206)), 0
    while left:
        number += 1
        members = [i for i in left if not any(means[j] > means[i] and different[i, j] for j in left)]
        assert members == [i for i in left if ranked[i][1].tier == number]
        left = [i for i in left if i not in members]
    # Few neighbours differ significantly, and scipy's t-test says the same.
    tasks = ranking.separated[0]
    assert (tasks.adjacent, tasks.first) == (3, 4) and tasks.pairs == 16026
    assert sum(ttest_1samp(matrix[i] - matrix[i + 1], 0).pvalue < 0.05 for i in range(205)) == 3
    assert [row.model for row in ranking.tier(1)] == [
        "Qwen/Qwen3-Embedding-4B", "Qwen/Qwen3-Embedding-8B", "Lajavaness/bilingual-embedding-large",
        "Cohere/Cohere-embed-english-v3.0"]
    assert [at.differs for at in ranking.standings if at and at.tier == 1] == [False, False, True, True]
    # A tier has those that none is better than.
    different = np.zeros((4, 4), dtype=bool)
    different[2, 0] = different[3, 0] = different[3, 2] = True
    assert tiers(np.array([4.0, 3, 2, 1]), different).tolist() == [1, 1, 2, 3]
    assert tiers(np.array([1.0, 2, 3, 4]), different).tolist() == [1, 1, 1, 1]  # the lines speak of the rows' own tests
    assert tiers(np.zeros(0), np.zeros((0, 0), dtype=bool)).tolist() == []


def test_what_errors_share_is_measured_and_the_verdicts_are_checked_against_the_items(published, ranking):
    # Scores near each other and resamples of them whose errors are the computed ones and correlate by .8.
    rng = np.random.default_rng(9)
    truth = np.linspace(0.75, 0.765, 12)[:, None] + rng.normal(0, 0.03, (1, 7))
    errors = spearman_error(truth, np.array(list(results.ITEMS.values())))[:, :, None]
    noise = np.sqrt(0.8) * rng.normal(size=(1, 7, 400)) + np.sqrt(0.2) * rng.normal(size=(12, 7, 400))
    scores, draws = truth, truth[:, :, None] + errors * noise
    shared = shared_errors(scores, draws)
    assert shared.middle == pytest.approx(0.8, abs=0.03) and shared.low < shared.middle < shared.high
    assert shared.ratio == pytest.approx(1, abs=0.05) and (shared.rows, shared.pairs) == (12, 66)
    made = as_published(published, scores, draws)
    check = made.check
    assert check.pairs == 66 and check.sure_differ + check.sure_same <= 66
    assert check.wrong_differ == 0 and check.wrong_same <= 2 and 30 < check.differ < 66
    assert [line.assumption for line in made.separated][:2] == ["over tasks", "errors independent"]
    sizes = [line.adjacent for line in made.separated[1:]]
    assert sizes == sorted(sizes) and made.standings == ranking.standings  # a bolder assumption separates more
    rows, separated = standings(np.clip(np.random.default_rng(1).normal(0.75, 0.02, (20, 7)), 0, 1), None)
    assert len(separated) == 2 and all(row.on_items[0] <= row.position <= row.on_items[1] for row in rows)


def test_every_language_of_the_table_is_shown_and_ranked(published):
    by_language = {(table.task, table.name): table for table in languages(published.scores)}
    assert list(by_language) == [(task, name) for task, names in PAIRS.items() for name in names]
    shown = {(table.task, table.name, row.model): row.score for table in by_language.values() for row in table.rows}
    printed = {(score.task, score.subset, score.model): 100 * score.number
               for score in published.scores if score.task in PAIRS}
    assert shown == {key: value for key, value in printed.items() if key[2] not in NO_MODELS}
    # Fewer pairs than fifty rank nothing, and a broken file has no rank in any language.
    refused = {key for key, table in by_language.items() if table.refused}
    assert refused == {("STS22.v2", "pl-en"), ("STS22.v2", "de-pl"), ("STS22.v2", "fr-pl")}
    for table in by_language.values():
        assert bool(table.refused) == (table.pairs < FEWEST_ITEMS) == (table.ranked == 0)
    scores = [row.score for row in by_language["STS22.v2", "fr-pl"].rows]
    assert sum(abs(score - 84.5154) < 0.001 for score in scores) > 50  # of 8 pairs, most models have the same correlation
    for name in PAIRS["STS17"]:
        row = by_language["STS17", name].rows[-1]
        assert row.model == BROKEN and row.position is None and row.score < 1 and "divided" in dict(row.doubts)
    ranked = [table for table in by_language.values() if not table.refused]
    assert {row.model for table in ranked for row in table.rows if row.position is None} == {BROKEN}
    # Ranks are those of a loop over pairs.
    rows = [row for row in by_language["STS17", "en-de"].rows if row.position is not None]
    critical = norm.isf(0.025 / (len(rows) - 1))
    errors = [(1 - r * r) * np.sqrt((1 + r * r / 2) / 247) for r in (row.score / 100 for row in rows)]
    for i, row in enumerate(rows[:40]):
        apart = [other for other, error in zip(rows, errors, strict=True)
                 if abs(row.score - other.score) / 100 > critical * np.hypot(errors[i], error)]
        assert row.position == 1 + sum(other.score > row.score for other in rows)
        assert row.first == 1 + sum(other.score > row.score for other in apart)
        assert row.last == len(rows) - sum(other.score < row.score for other in apart)


def test_the_file_holds_every_row_and_the_index_what_is_shown_before(published, ranking):
    files = site(replace(synthetic(9, 3), sections={"mteb": ranking}))
    data, index = json.loads(files[f"published/{TAB}.json"]), json.loads(files["index.json"])
    assert len(data["rows"]) == 207 and data["ranked"] == 206 and [task["items"] for task in data["tasks"]][-1] == 9927
    for row, known in zip(data["rows"], ranking.rows, strict=True):
        assert row["model"] == known.model and row["mean"] == round(sum(known.scores.values()) / 7, 4)
        assert row["scores"] == [round(score, 4) for score in known.scores.values()]
    (odd,) = [row for row in data["rows"] if "rank" not in row]
    assert odd["unranked"] and odd["scores"][5] == 0.9762  # as printed
    shown = index["as_published"]
    assert (shown["first"], shown["ranked"]) == (4, 206) and TAB not in {tab["id"] for tab in index["tabs"]}
    assert shown["measured_here"] == {ENTRY: {"model": MODEL, "published": 78.9365, "measured": 78.5}}
    assert "as_published" not in json.loads(site(synthetic(3, 2))["index.json"])
    assert len(gzip.compress(files[f"published/{TAB}.js"].encode(), 9)) < 25_000
    # A row has what a choice needs.
    of_models = {row["model"]: row for row in data["rows"]}
    for model, facts in STATED.items():
        of_model = of_models.get(model) or published.facts[model]
        assert {name: of_model[name] for name in facts} == facts


def test_the_findings_say_what_the_board_holds_and_who_was_trained_on_kin_of_the_tasks(ranking):
    page = published_page(ranking)
    names = ["Qwen/Qwen3-Embedding-4B", "Qwen/Qwen3-Embedding-8B", "Lajavaness/bilingual-embedding-large",
             "Cohere/Cohere-embed-english-v3.0"]
    assert f"**4 cannot be excluded as the best: {', '.join(names)}.** In a test of two alone, 1 of the other 3" in page
    assert "(not Gameselo/STS-multilingual-mpnet-base-v2: a score was divided by 100 twice" in page
    assert "202 of 205 pairs of neighbours cannot be separated at 5 %" in page and "176 of 180" in page
    assert f"{MODEL} 78.94 as published, 78.50 measured here (`{ENTRY}`)" in page and "| mixed folders | 19 |" in page
    assert (BOARD.parent / "docs/findings/mteb-as-published.md").read_text("utf-8").startswith(page[:200])
    assert "31 models were trained on sets that hold pairs of these tasks" in page and "of 41 nothing is known" in page
    # Unknown is neither: it is not among those that are ranked alone, and no row is called so for want of a record.
    trained = [ranking.trained(row.model) for row in ranking.rows]
    assert {word: trained.count(word) for word in ("yes", "no", "unknown")} == {"yes": 31, "no": 135, "unknown": 41}
    assert trained[:20].count("yes") == 7 and ranking.training["jinaai/jina-embeddings-v3"] == ["STS12"]
    for word, standing in zip(trained, ranking.declared, strict=True):
        assert (standing is not None) <= (word == "no")
    alone = [row.mean for row, standing in zip(ranking.rows, ranking.declared, strict=True) if standing]
    places = [standing.position for standing in ranking.declared if standing]
    assert places == [1 + sum(other > mean for other in alone) for mean in alone]
    # Where the first rows stand without them.
    header, *rows = [line.split(",") for line in rank_moves(ranking).splitlines()]
    assert len(rows) == 20 and header[2:4] == ["trained_on_kin", "place"]
    ranks = {row[0]: row[2:4] + row[6:7] + row[9:10] for row in rows}
    assert ranks["Lajavaness/bilingual-embedding-large"] == ["yes", "4", "", ""]
    assert ranks["Haon-Chen/speed-embedding-7b-instruct"] == ["unknown", "8", "5", ""]
    assert ranks["google/text-embedding-005"] == ["no", "12", "8", "6"]
    for row, standing in zip(ranking.rows, ranking.without, strict=True):
        assert (standing is None) == bool(row.unranked or ranking.trained(row.model) == "yes")


def student(differences):
    """The size of Student's t of a pair's differences; infinite where they are equal."""
    sd = np.std(differences, ddof=1)
    return abs(np.mean(differences)) * np.sqrt(len(differences)) / sd if sd > 1e-12 else np.inf


def by_loops(scores, rows_of):
    """Step-down over sign flips, in loops: the pairs that differ among `rows_of` pairs together."""
    left, differ = list(rows_of), set()
    while left:
        sizes = {(i, j): student(scores[i] - scores[j]) for i, j in left}
        largest = []
        for signs in product([1, -1], repeat=scores.shape[1]):
            flipped = [[sign * d for sign, d in zip(signs, scores[i] - scores[j], strict=True)] for i, j in left]
            largest.append(max(map(student, flipped)))
        top = max(sizes.values())
        if np.mean([value >= top - 1e-9 for value in largest]) >= 0.05:
            return differ
        gone = [pair for pair in left if sizes[pair] >= top - 1e-9]
        differ |= set(gone)
        left = [pair for pair in left if pair not in gone]
    return differ


def test_the_rows_tests_are_those_of_a_loop_over_all_patterns_and_of_scipys_permutation_test():
    rng = np.random.default_rng(4)
    scores = np.linspace(80, 68, 5)[:, None] + rng.normal(0, 2, (5, 7)) + rng.normal(0, 5, 7)
    tested = compare_over_tasks(scores)
    for i in range(len(scores)):
        expected = by_loops(scores, [(i, j) for j in range(len(scores)) if j != i])
        assert {(i, int(j)) for j in np.flatnonzero(tested.alone[i])} == expected
    joint = {(int(i), int(j)) for i, j in zip(*np.nonzero(np.triu(tested.jointly)), strict=True)}
    assert joint == by_loops(scores, [(i, j) for i in range(len(scores)) for j in range(i + 1, len(scores))])
    assert 0 < tested.jointly.sum() < tested.alone.sum() <= tested.pairs.sum() < 20 and tested.patterns == 64
    for i in range(len(scores)):
        for j in range(i):
            p = permutation_test((scores[i], scores[j]), lambda a, b, axis: np.mean(a - b, axis=axis),
                                 permutation_type="samples", vectorized=True, n_resamples=np.inf).pvalue
            assert tested.pairs[i, j] == tested.pairs[j, i] == (p < 0.05)
    # Few tasks let nothing differ.
    assert not compare_over_tasks(np.array([[90.0] * 5, [10.0] * 5])).pairs.any()
    assert compare_over_tasks(np.array([[90.0] * 6, [10.0] * 6])).alone[0, 1]
    assert len(sign_patterns(7)) == 63


def spearman(one, other):
    """Of the rows of two arrays."""
    ranks = [rankdata(each, axis=1) for each in (one, other)]
    ranks = [each - each.mean(axis=1, keepdims=True) for each in ranks]
    return (ranks[0] * ranks[1]).sum(axis=1) / np.sqrt((ranks[0] ** 2).sum(axis=1) * (ranks[1] ** 2).sum(axis=1))


def test_errors_of_a_score_and_of_a_difference_of_means_are_the_spread_over_drawn_samples():
    for rho in (0.2, 0.85):
        x, noise = np.random.default_rng(2).normal(size=(2, DRAWS, 300))
        made = spearman(x, rho * x + np.sqrt(1 - rho**2) * noise)
        assert float(spearman_error(np.array(made.mean()), np.array(300))) == pytest.approx(made.std(ddof=1), rel=0.07)
    rng, drawn = np.random.default_rng(3), []
    for _task in range(3):
        gold, common = rng.normal(size=(2, DRAWS, 200))
        drawn.append([spearman(gold, gold + 0.9 * (0.8 * common + 0.6 * rng.normal(size=gold.shape))) for _ in range(2)])
    scores = np.array(drawn)  # (tasks, 2, draws)
    shared = np.mean([np.corrcoef(task)[0, 1] for task in scores])
    printed = scores.mean(axis=2).T
    computed = mean_difference_error(printed, np.full(3, 200), float(shared))
    assert computed[0, 1] == pytest.approx(np.diff(scores.mean(axis=0), axis=0).std(ddof=1), rel=0.07)
    assert computed[0, 1] == computed[1, 0] < mean_difference_error(printed, np.full(3, 200), 0.0)[0, 1]
