"""Pairs that share a sentence are dependent: intervals of scores, of differences and of the average are wider."""

from pathlib import Path

import numpy as np
import pytest
from board_runs import read_once  # noqa: F401 - a fixture
from clirun import place, refuses  # noqa: F401 - a fixture

from stsbench import compare, evaluate, score
from stsbench.comparison.comparability import measured
from stsbench.comparison.shared import draws
from stsbench.data.sets.sentences import SENTENCES, _known, known_sentences
from stsbench.errors import StsbenchError
from stsbench.evaluation.measure import averages_within
from stsbench.evaluation.protocol import Observations, load_protocol
from stsbench.evaluation.rescore import rescored
from stsbench.evaluation.run_file import load_records

BOARD = Path(__file__).resolve().parents[2] / "leaderboard" / "measured"
WORDS = [f"{a}{b}" for a in "abcdefghij" for b in "abcdefghij"]


def write(name, references, each):
    """`each` pairs of every reference, whose score and words in common with the other text depend on the reference."""
    rng = np.random.default_rng(0)
    rows = ["sentence1,sentence2,score"]
    for _ in range(references):
        level, common = rng.normal(), rng.integers(1, 5)
        reference = rng.choice(WORDS, 6, replace=False)
        for _ in range(each):
            other = [*reference[:common], *rng.choice(WORDS, 4, replace=False)]
            rows.append(f"{' '.join(reference)},{' '.join(other)},{level + 0.3 * rng.normal():.3f}")
    Path(name).write_text("\n".join(rows) + "\n", "utf-8")


def run(model, name):
    return evaluate(f"lexical:{model}", protocol=f"sts:{name}", output=f"{model}-{Path(name).stem}", resamples=200)


def records_in(folder):
    return [measured(path, record) for path, record in load_records(folder)]


def records(folder):
    return {item.task: item for item in records_in(folder) if item.record.protocol.name == "sts"}


def width(rows):
    row = next(row for row in rows if (row.subset, row.metric, row.aggregation) == (None, "spearman", "all"))
    return row.high - row.low


def test_pairs_of_own_that_share_sentences_have_wider_intervals_without_their_texts():
    write("shared.csv", 20, 10)
    result = run("tfidf", "shared.csv")
    item = records(result.folder)["shared.csv"]
    assert item.observed().arrays.keys() >= set(SENTENCES[:2])
    before = item.protocol.earlier_scores(item.observed(), item.set_id, item.task)
    assert width(item.record.scores) > 1.3 * width(before)
    assert [row.value for row in before] == [row.value for row in item.record.scores]
    assert score(result.folder).rows == result.rows
    write("plain.csv", 60, 1)  # and those that share nothing the intervals of before
    item = records(run("tfidf", "plain.csv").folder)["plain.csv"]
    assert not item.observed().arrays.keys() & set(SENTENCES)
    assert item.protocol.earlier_scores(item.observed(), item.set_id, item.task) == item.record.scores
    pytest.importorskip("stsbench.extensions.reports")
    assert "pairs that share a sentence count as dependent" in result.report()


def test_a_difference_is_stretched_by_its_own_factor():
    write("shared.csv", 20, 10)
    sides = [run(model, "shared.csv") for model in ("tfidf", "char-ngrams")]
    a, b = (records(side.folder)["shared.csv"] for side in sides)
    row, key = a.whole()[0], (None, "all", "spearman")
    of_a, of_b = (item.protocol.influences(item.observed())[key] for item in (a, b))
    factor = of_a.graph.stretch(of_a.values - of_b.values)
    drawn = [item.protocol.draws(item.observed(), item.set_id, 200, 0)[key] for item in (a, b)]
    gaps = np.subtract(*draws([[a], [b]], row, 200, 0, difference=True))
    value = of_a.score - of_b.score
    np.testing.assert_allclose(gaps - value, factor * (drawn[0] - drawn[1] - value), atol=1e-9)
    pytest.importorskip("stsbench.extensions.reports")
    assert "Pairs that share a sentence count as dependent." in compare(*sides, resamples=200).report()


def test_pairs_that_all_share_one_sentence_have_no_interval_and_it_is_said():
    write("star.csv", 1, 40)
    sides = [run(model, "star.csv") for model in ("tfidf", "char-ngrams")]
    [note] = records(sides[0].folder)["star.csv"].observed().names["notes"]
    assert note.startswith("no interval: so many pairs share a sentence") and "pairs share a sentence" in str(sides[0])
    assert all(row.low is None and row.high is None for row in sides[0].rows)
    table = compare(*sides, resamples=100).tables[0]
    assert "so many pairs share a sentence" in table.no_test and table.rows[0].difference.p is None


def test_the_catalogs_sentences_are_known_to_records_of_before():
    """STS12: a 14th of the rows repeat a pair, and a quarter share a sentence."""
    item = records(next((BOARD / "minilm-mean").glob("*/run.parquet")).parent)["STS12"]
    given = item.observed(), item.set_id, item.task
    now, before = item.protocol.score(*given), item.protocol.earlier_scores(*given)
    assert 1.6 < width(now) / width(before) < 2
    assert rescored(item.path, item.record.model_copy(update={"scores": before}))[1] == now
    edited = [row.model_copy(update={"high": row.high + 0.01}) for row in before]
    refuses(StsbenchError, "was edited", rescored, item.path, item.record.model_copy(update={"scores": edited}))


def test_an_average_joins_the_sentences_of_its_tasks():
    of_task = records(next((BOARD / "minilm-mean").glob("*/run.parquet")).parent)
    protocol = next(iter(of_task.values())).protocol
    protocol = type(protocol)({**protocol.settings, "resamples": 100})
    observed = {task: (of_task[task].observed(), of_task[task].set_id) for task in protocol.averaged}
    influence = protocol.average_influences(observed)[None, "all", "spearman"]
    assert influence.score == pytest.approx(np.mean([of_task[task].whole()[0].value for task in protocol.averaged]))
    assert influence.graph.n == 18850 and 1.1 < influence.stretch < 1.6
    drawn = protocol.average_draws(observed, 100, 0)[None, "all", "spearman"]
    row = next(row for row in protocol.summarise([of_task[task].record for task in protocol.averaged])
               if (row.task, row.metric, row.aggregation) == ("Avg-full", "spearman", "all"))
    [row] = averages_within([row], protocol, observed)
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert row.high - row.low == pytest.approx(influence.stretch * (high - low))


def grouped_rows(header, row, references=20, each=6):
    """`each` rows of every reference, of which some references are easy and some hard for an encoder of words."""
    rng = np.random.default_rng(3)
    lines = [header]
    for _ in range(references):
        words, easy = rng.choice(WORDS, 6, replace=False), rng.random() < 0.6
        lines += [",".join(row(rng, words, easy, number)) for number in range(each)]
    return "\n".join(lines) + "\n"


def labelled(rng, words, easy, number):
    near = number % 2 if easy else 1 - number % 2
    other = [*words[: 4 * near], *rng.choice(WORDS, 3)]
    return " ".join(words), " ".join(other), str(number % 2)


def triplet(rng, words, easy, number):
    sides = [" ".join([*words[:4], *rng.choice(WORDS, 2)]), " ".join(rng.choice(WORDS, 6))]
    return " ".join(words), *(sides if easy else sides[::-1])


OWN_KINDS = {"pairs": ("sentence1,sentence2,label", labelled), "triplets": ("anchor,positive,negative", triplet)}


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_labelled_pairs_and_triplets_that_share_texts_count_as_dependent(kind):
    Path("own.csv").write_text(grouped_rows(*OWN_KINDS[kind]))
    result = evaluate("lexical:tfidf", protocol=f"{kind}:own.csv", output="run", resamples=200)
    (record,), (item,) = result.records, records_in(result.folder)
    protocol, observed = item.protocol, item.observed()
    influences = protocol.influences(observed)
    alone = protocol.score(Observations({name: array for name, array in observed.arrays.items() if name not in SENTENCES},
                                        observed.names), record.data.id, "own.csv")
    for row, plain in zip(record.scores, alone, strict=True):
        key = (None, None, row.metric)
        assert row.value == plain.value
        if key in influences:
            assert row.high - row.low >= plain.high - plain.low - 1e-9
            assert influences[key].stretch == 1 or row.high - row.low > plain.high - plain.low
            assert influences[key].score == pytest.approx(row.value) and abs(influences[key].values.mean()) < 1e-9
    assert max(one.stretch for one in influences.values()) > 1.4
    assert set(influences) == {(None, None, row.metric) for row in record.scores if not row.metric.endswith("threshold")}


KEYS = _known()[0] << np.uint64(16)  # of all pairs of the catalog's sets


def test_regression_knows_which_of_its_test_pairs_share_a_sentence():
    first, _ = known_sentences(KEYS)
    rows = np.flatnonzero(first == np.bincount(first.astype(int)).argmax())
    rng, n = np.random.default_rng(0), len(rows)
    assert n > 20
    others = np.setdiff1d(np.arange(len(first)), rows)[:: len(first) // 200]
    rows = np.concatenate([rows, others])
    gold = rng.uniform(0, 5, len(rows))
    common = np.where(np.arange(len(rows)) < n, rng.normal(), 0)
    arrays = {"gold": gold, "predicted": gold + common + rng.normal(size=len(rows)), "row": rows,
              "sizes": np.array([1, 1, len(rows)]), "dev_spearman": np.array([0.5]), "pair": KEYS[rows]}
    protocol = load_protocol("regression")({})
    influences = protocol.influences(Observations(arrays))
    assert set(influences) == {(None, None, metric) for metric in ("pearson", "spearman", "mse")}
    mse = influences[None, None, "mse"]
    assert mse.score == pytest.approx(np.mean((arrays["predicted"] - gold) ** 2)) and mse.stretch >= 1
    scored = {row.metric: row for row in protocol.score(Observations(arrays), "stsb/splits", "STS-B")}
    before = {row.metric: row for row in protocol.score(
        Observations({name: array for name, array in arrays.items() if name != "pair"}), "stsb/splits", "STS-B")}
    for metric in ("pearson", "spearman"):
        stretch = influences[None, None, metric].stretch
        assert scored[metric].high - scored[metric].low == pytest.approx(
            stretch * (before[metric].high - before[metric].low))


def test_regression_records_of_before_are_read_and_have_the_intervals_of_today():
    folder = next(path for path in (BOARD / "minilm-mean").iterdir() if path.is_dir())
    for item in (item for item in records_in(folder) if item.protocol.name == "regression"):
        observed = item.observed()
        influences = item.protocol.influences(observed)
        assert "pair" not in observed.arrays and all(one.stretch > 1 for one in influences.values())
        before = {row.metric: row for row in item.protocol.earlier_scores(observed, item.set_id, item.task)}
        now = {row.metric: row for row in rescored(item.path, item.record)[1]}
        for row in item.record.scores:
            assert row.value == pytest.approx(now[row.metric].value, abs=1e-5)
            if row.low is not None:
                assert (before[row.metric].low, before[row.metric].high) == pytest.approx((row.low, row.high), abs=1e-5)
                assert now[row.metric].high - now[row.metric].low > row.high - row.low
                assert influences[None, None, row.metric].score == pytest.approx(row.value, abs=1e-5)


def test_a_record_that_does_not_say_which_texts_repeat_has_it_from_the_other():
    """As records of before do not: half of the dependence would be none, and the interval too narrow."""
    Path("own.csv").write_text(grouped_rows(*OWN_KINDS["triplets"]))
    runs = [evaluate(f"lexical:{model}", triplets="own.csv", output=model, resamples=0)
            for model in ("tfidf", "char-ngrams")]
    sides = [[item] for run in runs for item in records_in(run.folder)]
    row = sides[0][0].record.scores[0]
    expected = draws(sides, row, 400, 0, difference=True)
    for name in SENTENCES:
        del sides[0][0].observed().arrays[name]
    sides[0][0].observed().memo.clear()
    for one, other in zip(draws(sides, row, 400, 0, difference=True), expected, strict=True):
        np.testing.assert_allclose(one, other)


def test_a_comparison_names_what_differs_between_encoders_of_one_name():
    """A cut or another limit is no part of what an encoder is called."""
    write("plain.csv", 9, 1)
    runs = [evaluate("minilm", sts="plain.csv", **more, output=f"m{number}", resamples=0)
            for number, more in enumerate(({}, {"truncate_dim": 64, "max_length": 32}))]
    first, second = compare(*runs, resamples=100).sides()
    assert first == "A: minilm, pooler mean, max length 256"
    assert second == "B: minilm, pooler mean, max length 32, truncate dim 64"
