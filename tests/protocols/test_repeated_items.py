"""A user's rows that repeat: the score is the file's, and each item counts once in n, intervals, tests and folds."""

from pathlib import Path

import numpy as np
import pytest
from clirun import place  # noqa: F401 - a fixture
from scipy import stats

from stsbench import compare, evaluate
from stsbench.data.own.relevance import read_relevance
from stsbench.data.own.sets import read_labelled_texts, read_scored_pairs, read_triplets
from stsbench.data.sets.sets import PairSet
from stsbench.evaluation.protocol import Observations, load_protocol
from stsbench.evaluation.rescore import rescored
from stsbench.evaluation.run_file import load_records, read_observations
from stsbench.evaluation.schema import ITEM
from stsbench.metrics.bootstrap import effective_rows, resample_blocks, share_interval, stratified_folds, wilson
from stsbench.probes.lockstep import _stacks
from stsbench.probes.schemes import cross_validated, nested
from stsbench.protocols.sts_pairs import strata

N, TIMES = 60, 6
ENCODERS = ("lexical:token-set", "lexical:tfidf")
WORDS = np.array(["sun", "moon", "tree", "river", "stone", "bird", "fish", "wind", "rain", "snow", "fire", "road"])


def texts(seed):
    return [" ".join(np.random.default_rng([seed, i]).choice(WORDS, 6)) + f" {i}" for i in range(N)]


A, B, C = map(texts, range(3))
GOLD = np.random.default_rng(0).uniform(0, 5, N).round(1).tolist()
LABEL = [int(i % 3 == 0) for i in range(N)]
NEAR = [" ".join([*a.split()[:4], "now"]) if label else b for a, b, label in zip(A, B, LABEL, strict=True)]


def table(path, header, rows):
    Path(path).write_text("".join("\t".join(map(str, row)) + "\n" for row in [header, *rows]))


def pairs_in(name, header, first, second, third, times):
    swapped = times // 2
    table(name, header, [*zip(first, second, third, strict=True)] * (times - swapped)
          + [*zip(second, first, third, strict=True)] * swapped)


def queries(name, times):
    folder = Path(name)
    folder.mkdir()
    (folder / "queries.tsv").write_text("".join(f"q{i}-{time}\t{a}\n" for time in range(times) for i, a in enumerate(A)))
    (folder / "corpus.tsv").write_text("".join(f"d{i}\t{b}\n" for i, b in enumerate(NEAR)))
    (folder / "relevance.tsv").write_text("".join(f"q{i}-{time}\td{i}\n" for time in range(times) for i in range(N)))


OWN = {  # protocol -> writes its file with every item so often
    "sts:": lambda name, times: pairs_in(name, ("sentence1", "sentence2", "score"), A, B, GOLD, times),
    "pairs:": lambda name, times: pairs_in(name, ("sentence1", "sentence2", "label"), A, NEAR, LABEL, times),
    "triplets:": lambda name, times: table(
        name, ("anchor", "positive", "negative"), [*zip(A, NEAR, C, strict=True)] * times),
    "transfer:exact:": lambda name, times: table(name, ("text", "label"), [*zip(A, LABEL, strict=True)] * times),
    "retrieval:": queries}


def whole(result):
    return {row.metric: row for row in result.rows if row.subset is None and row.aggregation in (None, "all")}


@pytest.fixture(scope="module", params=OWN)
def both(request, tmp_path_factory):
    """The runs of two encoders over a file with every item once, and with every item six times."""
    kind, measured = request.param, []
    few = {"settings": {"transfer.k": 3}} if kind == "transfer:exact:" else {"resamples": 400}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("repeated"))
        for name, times in (("once.tsv", 1), ("six.tsv", TIMES)):
            OWN[kind](name, times)
            measured.append([evaluate(encoder, protocol=f"{kind}{name}", output=Path.cwd() / f"{name}-{i}", **few)
                             for i, encoder in enumerate(ENCODERS)])
    return kind, *measured


def test_rows_that_repeat_an_item_change_no_count_interval_or_test(both):
    kind, once, six = both
    of_once, of_six = whole(once[0]), whole(six[0])
    assert of_once.keys() == of_six.keys()
    for metric, row in of_once.items():
        again = of_six[metric]
        assert again.n == row.n == N
        if kind != "transfer:exact:":  # trained on more rows
            assert again.value == pytest.approx(row.value, abs=1e-9)
        if row.low is None or row.high - row.low < 1e-6:
            continue
        # Bootstraps of different seeds; a share's interval is exact where the share is the same.
        exact = kind == "triplets:"
        assert again.high - again.low == pytest.approx(row.high - row.low, rel=1e-9 if exact else 0.35), metric
    [table_once], [table_six] = (compare(*runs, resamples=400).tables for runs in (once, six))
    one, other = (table.rows[0] for table in (table_once, table_six))
    assert other.n == N
    if kind != "transfer:exact:":
        assert other.difference.p == pytest.approx(one.difference.p, abs=0.08)


def test_how_many_items_the_rows_are_is_said_stored_and_scored_again(both):
    _, once, six = both
    [record] = six[0].records
    line = f"{N * TIMES} rows of six.tsv are {N} different items"
    assert record.counts["items"] == N and record.data.n == N * TIMES and record.data.warnings[0].startswith(line)
    for said in (str(six[0]), six[0]._repr_html_(), str(compare(*six, resamples=40))):
        assert line in said
    [plain] = once[0].records
    assert "items" not in plain.counts and "different items" not in str(once[0])
    [(path, stored)] = load_records(six[0].folder)
    assert rescored(path, stored)[1] == six[0].records[0].scores
    assert ITEM not in read_observations(once[0].folder, plain).arrays
    pytest.importorskip("stsbench.extensions.reports")
    assert line in six[0].report()


def test_a_record_of_before_goes_on_as_it_was(both):
    _, _, six = both
    record = six[0].records[0]
    observations = read_observations(six[0].folder, record)
    if ITEM not in observations.arrays:
        pytest.skip("its queries' groups always were in the record")
    protocol = load_protocol(record.protocol.name)(record.protocol.settings, record.protocol.label)
    before = Observations({key: array for key, array in observations.arrays.items() if key != ITEM}, observations.names)
    rows = protocol.score(before, record.data.id, record.data.task)
    assert max(row.n for row in rows if row.metric != "dev accuracy") == N * TIMES


def test_the_draws_are_those_of_a_plain_bootstrap_over_items():
    """Items of one to four rows, some with other scores: against drawing items and writing all of their rows out."""
    rng = np.random.default_rng(3)
    rows = [(*((A[i], B[i]) if rng.integers(2) else (B[i], A[i])), rng.integers(6)) for i in rng.permutation(
        np.repeat(np.arange(N), rng.integers(1, 5, N)))]
    table("p.tsv", ("sentence1", "sentence2", "score"), rows)
    result = evaluate(ENCODERS[0], protocol="sts:p.tsv", output="run", resamples=1000)
    row, arrays = whole(result)["spearman"], read_observations(result.folder, result.records[0]).arrays
    similarity, gold = arrays["similarity"], arrays["gold"]
    assert row.n == N and row.value == pytest.approx(100 * stats.spearmanr(similarity, gold)[0], abs=1e-9)
    members = [np.flatnonzero([{a, b} == {A[i], B[i]} for a, b, _ in rows]) for i in range(N)]
    draws = []
    for _ in range(500):
        at = np.concatenate([members[i] for i in rng.integers(N, size=N)])
        draws.append(100 * stats.spearmanr(similarity[at], gold[at])[0])
    assert (row.low, row.high) == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])), abs=0.06 * np.ptp(draws))


def test_rows_are_drawn_with_their_item_and_the_items_as_those_of_a_set_of_as_many():
    item = np.array([7, 2, 7, 9, 2, 7])
    [counts] = resample_blocks(6, 20, (1,), 20, item)
    [of_three] = resample_blocks(3, 20, (1,), 20)
    assert (counts == of_three[:, [1, 0, 1, 2, 0, 1]]).all()
    [same], [plain] = resample_blocks(6, 20, (1,), 20, np.arange(6)), resample_blocks(6, 20, (1,), 20)
    assert (same == plain).all()


def test_a_shares_interval_is_that_of_the_items():
    hits, once = np.arange(30) % 3 == 0, np.arange(30)
    assert share_interval(hits, once) == wilson(10, 30)
    assert share_interval(np.tile(hits, 6), np.tile(once, 6)) == pytest.approx(wilson(10, 30), abs=1e-12)
    assert effective_rows(np.array([0, 0, 0, 1])) == pytest.approx(16 / 10)  # unequal items say less than their number


@pytest.mark.parametrize(("write", "read", "items"), [
    (["a\tb\t1", "b\ta\t5", "a\tB\t1", " a \tb\t2", "a\tc\t1"], read_scored_pairs, [0, 0, 1, 0, 2]),
    (["a\tb\tc", "a\tc\tb", "b\ta\tc", "a\tb\tc"], read_triplets, [0, 0, 1, 0]),
    (["a\t1", "b\t0", "a\t0", "A\t1"], read_labelled_texts, [0, 1, 0, 2])])
def test_equal_texts_are_one_item_whatever_their_order_score_or_label(tmp_path, write, read, items):
    header = {2: "text\tlabel", 3: "anchor\tpositive\tnegative" if read is read_triplets else "sentence1\tsentence2\tscore"}
    path = tmp_path / "x.tsv"
    path.write_text("\n".join([header[len(write[0].split("\t"))], *write]) + "\n")
    data = read(path)
    assert data.items.tolist() == items
    assert data.warnings[0].startswith(f"{len(items)} rows of x.tsv are {max(items) + 1} different items")


def test_equal_queries_are_one_item_and_a_set_of_the_catalog_has_one_a_row(tmp_path):
    queries(str(tmp_path / "q"), 2)
    assert read_relevance(tmp_path / "q").items.tolist() == [*range(N)] * 2
    catalog = PairSet("stsb/test", "STS-B", "senteval", ("a", "a"), ("b", "b"), np.zeros(2), ("all",) * 2)
    assert catalog.items.tolist() == [0, 1]


def test_an_item_and_its_copies_stand_in_one_fold():
    item, label = np.tile(np.arange(40), 5), np.tile(np.arange(40) % 2, 5)
    label[7] = 1 - label[7]  # a copy with another label is the same item
    order = np.random.default_rng(1).permutation(200)
    item, label = item[order], label[order]
    folds = stratified_folds(label, 4, 0, item)
    assert all(len(set(folds[item == i])) == 1 for i in range(40))
    assert np.ptp(np.bincount(folds[np.unique(item, return_index=True)[1]])) <= 1

    fitted = []

    def solver(fits):
        fitted.extend(fits)
        return [label[fit.predict] for fit in fits]

    nested(label, 4, 0, [1.0, 2.0], solver, item)
    cross_validated(label, np.arange(150), np.arange(150, 200), 4, 0, [1.0, 2.0], solver, item)
    for fit in fitted[:-1]:  # the last is of the file's own test split
        assert not set(item[fit.train]) & set(item[fit.predict])
    for stack in _stacks([fit for fit in fitted if fit.stop is None], 0, 0.2):
        assert not set(item[stack.train]) & set(item[stack.stop])


def test_one_item_has_no_test_however_often_it_stands_there():
    table("t.tsv", ("anchor", "positive", "negative"), [("red blue", "blue red dog dog dog dog cat", "redd bluee")] * 20)
    for name in ("token-set", "char-ngrams"):
        evaluate(f"lexical:{name}", protocol="triplets:t.tsv", output=name)
    compared = compare("token-set", "char-ngrams", margin=5)
    row = compared.tables[0].rows[0]
    assert row.a - row.b == 100
    assert (row.difference.low, row.difference.p, row.equivalence) == (None, None, None)
    assert "there is no test: all rows are one item" in str(compared)
    assert "20 rows of t.tsv are 1 different item;" in str(compared)


def test_subsets_that_an_item_links_are_drawn_together():
    arrays = {"gold": np.zeros(8), "subset": np.array([0, 0, 1, 1, 2, 2, 3, 3]), ITEM: np.array([0, 1, 2, 3, 4, 0, 5, 6])}
    observations = Observations(arrays, {"subsets": ["a", "b", "c", "d"]})
    assert [rows.tolist() for rows in strata(observations)] == [[0, 1, 4, 5], [2, 3], [6, 7]]
