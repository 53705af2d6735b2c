"""Bootstrap draws of every protocol: against naive loops, against the intervals in rows, and paired between encoders. One
run, one interval: whatever prints a score's interval prints the run's own, and none where the run has none."""

import csv
import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
from clirun import cli, place  # noqa: F401  fixtures
from geometry_runs import pair_set, vectors
from interval_runs import ends, in_words
from scipy import stats
from sklearn.metrics import f1_score, mean_squared_error
from sts_runs import pairs, sts_run

from stsbench import evaluate, load, score
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.evaluation.measure import bounded, summarize
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.records import ScoreRow
from stsbench.leaderboard.ranks.lines import lines_of_runs
from stsbench.leaderboard.records.entries import read_run
from stsbench.metrics.bootstrap import fisher_interval, interval, resample_counts
from stsbench.protocols import transfer
from stsbench.protocols.geometry import GeometryProtocol
from stsbench.protocols.mteb import HubData, MtebProtocol
from stsbench.protocols.regression import RegressionProtocol
from stsbench.protocols.retrieval import RetrievalProtocol
from stsbench.protocols.sts import StsProtocol
from stsbench.protocols.transfer import TASKS, TransferProtocol

ACCURACY, F1 = (None, None, "accuracy"), (None, None, "f1")
CHANGED = {"aggregations": ["all"], "metrics": ["spearman"], "ks": [1], "resamples": 50, "seed": 9, "bootstrap_seed": 9,
           "pearson_interval": "percentile"}


def rng(seed=0):
    return np.random.default_rng(seed)


def classified(n=200, folds=4, right=0.8, seed=0):
    """What a classifier did: n items in a mixed order, some of them wrong."""
    gold = rng(seed).integers(0, 2, n)
    predicted = np.where(rng(seed + 1).random(n) < right, gold, 1 - gold)
    return Observations({"rows": 3 + rng(seed + 2).permutation(n), "predicted": predicted, "gold": gold,
                         "fold": np.sort(rng(seed + 3).integers(0, folds, n)), "grid": np.full((folds, 1), 80.0),
                         "chosen": np.zeros(folds, np.int64), "counts": np.array([9, 0, n])},
                        {"counts": ["fits", "unconverged", "development items"]})


def related(n=120, seed=0):
    gold = rng(seed).integers(0, 26, n) / 5
    predicted = np.clip(gold + rng(seed + 1).normal(0, 1, n), 0, 5)
    return Observations({"row": rng(seed + 2).permutation(n), "gold": gold, "predicted": predicted,
                         "sizes": np.array([50, 30, n]), "dev_spearman": np.array([0.5, 0.6])})


def entailed(n=150, seed=0):
    seen = classified(n, seed=seed).arrays
    return Observations({"row": seen["rows"], "gold": seen["gold"], "predicted": seen["predicted"],
                         "sizes": np.array([50, 30, n]), "dev_accuracy": np.array([70.0, 75.0])})


def ranked(groups=40, seed=0, several=1):
    queries = 2 * groups
    return Observations({"rank": rng(seed).integers(1, 30, queries * several).astype(float),
                         "query": np.repeat(np.arange(queries), several), "group": np.tile(np.arange(groups), 2),
                         "corpus": np.array([500])})


def similar(seed=0):
    gold = rng(seed).integers(0, 26, 90) / 5
    return Observations({"similarity": gold + rng(seed + 1).normal(0, 1, 90), "gold": gold,
                         "subset": np.repeat([0, 1], [50, 40])}, {"subsets": ["one", "two"]})


def shaped(broken=False, **options):
    """Geometry of invented pairs; `broken`: the first sentence of a pair rated 5 has a zero vector."""
    data = pair_set(n=150)
    lost = data.first[int(np.argmax(data.gold == 5))]

    def encode(texts):
        keep = [not (broken and text == lost) for text in texts]
        return vectors(texts, **options) * np.array(keep, dtype=np.float32)[:, None]

    return GeometryProtocol({}).observe(Embed(CallableEncoder(encode)), data)


CASES = {
    "sts": (StsProtocol, similar, "sts12/test"), "transfer": (TransferProtocol, classified, "mr"),
    "mrpc": (TransferProtocol, lambda: classified(folds=1), "mrpc"),
    "regression": (RegressionProtocol, related, "stsb/splits"),
    "entailment": (RegressionProtocol, entailed, "sick-e/splits"), "retrieval": (RetrievalProtocol, ranked, "stsb/test"),
    "several": (RetrievalProtocol, lambda: ranked(several=3), "own:x"), "geometry": (GeometryProtocol, shaped, "stsb/test")}
WITHOUT = {"uniformity", "anisotropy", "explained by first", "effective rank", "dev spearman", "dev accuracy"}
BY_FORMULA = {"accuracy", "f1", "mse"}  # Wilson's interval in the row, or none


def few(kind):
    """Settings of few resamples, where the protocol's intervals are of resamples."""
    return {"resamples": 300} if "resamples" in kind({}).settings else {}


def by_key(rows):
    return {(row.subset, row.aggregation, row.metric): row for row in rows}


@pytest.mark.parametrize("case", CASES)
def test_every_score_of_single_items_has_draws_around_it_and_its_interval_is_theirs(case):
    kind, make, data_id = CASES[case]
    protocol, seen = kind({**few(kind), **({"pearson_interval": "percentile"} if kind is StsProtocol else {})}), make()
    rows, drawn = by_key(protocol.score(seen, data_id, "X")), protocol.draws(seen, data_id, 300, 0)
    assert set(drawn) == {key for key in rows if key[2] not in WITHOUT}
    for key, each in drawn.items():
        assert each.shape == (300,) and each.dtype == np.float64
        assert np.mean(each) == pytest.approx(rows[key].value, abs=0.5 * np.std(each) + 0.005)
        if key[2] not in BY_FORMULA:
            assert interval(each) == pytest.approx((rows[key].low, rows[key].high), rel=1e-12)
    assert protocol.draws(seen, data_id, 0, 0) == {}
    for other in (protocol.draws(seen, data_id + "x", 300, 0), protocol.draws(seen, data_id, 300, 1)):
        assert all((other[key] != drawn[key]).any() for key in other)


def redrawn(order, counts):
    """The positions that each resample holds, as often as it does; `counts` are of the items in `order`."""
    for row in counts.astype(int).tolist():
        yield [place for place, often in zip(order, row, strict=True) for _ in range(often)]


def naive_transfer(seen, counts):
    """Accuracy, the mean over folds, and F1 of each resample, item by item."""
    predicted, gold, fold, rows = (seen.arrays[name].tolist() for name in ("predicted", "gold", "fold", "rows"))
    accuracies, f1s = [], []
    for places in redrawn(sorted(range(len(rows)), key=rows.__getitem__), counts):
        shares = []
        for number in sorted(set(fold)):
            hits = [predicted[i] == gold[i] for i in places if fold[i] == number]
            shares.append(sum(hits) / len(hits) if hits else float("nan"))
        accuracies.append(100 * sum(shares) / len(shares))
        f1s.append(100 * f1_score([gold[i] for i in places], [predicted[i] for i in places], zero_division=np.nan))
    return accuracies, f1s


def test_transfer_draws_are_those_of_a_loop_over_redrawn_items():
    for n, folds in ((40, 3), (9, 4)):  # of nine items in four folds many a resample leaves a fold empty
        seen = classified(n, folds)
        accuracies, f1s = naive_transfer(seen, resample_counts(n, 25, (7, 0, *b"mrpc")))
        drawn = TransferProtocol({}).draws(seen, "mrpc", 25, 7)
        assert set(drawn) == {ACCURACY, F1}
        assert np.allclose(drawn[ACCURACY], accuracies, equal_nan=True) and np.allclose(drawn[F1], f1s, equal_nan=True)
        assert np.isnan(drawn[ACCURACY]).any() == (n == 9)
    seen.arrays["gold"][:] = seen.arrays["predicted"][:] = 0
    assert np.isnan(TransferProtocol({}).draws(seen, "mrpc", 50, 7)[F1]).all()
    assert set(TransferProtocol({}).draws(seen, "mr", 50, 7)) == {ACCURACY}


def test_many_resamples_come_in_blocks_that_the_encoder_does_not_choose(monkeypatch):
    seen, protocol = classified(30), TransferProtocol({})
    whole = protocol.draws(seen, "mr", 20, 3)[ACCURACY]
    monkeypatch.setattr(transfer, "AT_ONCE", 8 * 30 + 1)
    blocks = [resample_counts(30, many, (3, start, *b"mr")) for start, many in ((0, 8), (8, 8), (16, 4))]
    drawn = protocol.draws(seen, "mr", 20, 3)[ACCURACY]
    assert np.allclose(drawn, naive_transfer(seen, np.concatenate(blocks))[0])
    assert np.array_equal(drawn[:8], whole[:8]) and not np.allclose(drawn[8:], whole[8:])


def test_entailment_draws_are_shares_of_redrawn_items():
    seen = entailed(50)
    predicted, gold, row = (seen.arrays[name] for name in ("predicted", "gold", "row"))
    counts = resample_counts(50, 60, (5, 0, *b"sick-e/splits"))
    hits = [100 * np.mean((predicted == gold)[places]) for places in redrawn(np.argsort(row), counts)]
    drawn = RegressionProtocol({}).draws(seen, "sick-e/splits", 60, 5)
    assert list(drawn) == [ACCURACY] and np.allclose(drawn[ACCURACY], hits)


def test_regression_draws_are_scipys_on_repeated_pairs_and_metrics_choose_them():
    seen = related(60)
    predicted, gold = seen.arrays["predicted"], seen.arrays["gold"]
    chosen = list(redrawn(range(60), resample_counts(60, 25, (2, 0, *b"stsb/splits"))))
    want = {"pearson": [100 * stats.pearsonr(predicted[i], gold[i]).statistic for i in chosen],
            "spearman": [100 * stats.spearmanr(predicted[i], gold[i]).statistic for i in chosen],
            "mse": [mean_squared_error(gold[i], predicted[i]) for i in chosen]}
    drawn = RegressionProtocol({}).draws(seen, "stsb/splits", 25, 2)
    assert set(drawn) == {(None, None, metric) for metric in want}
    assert all(np.allclose(drawn[None, None, metric], each) for metric, each in want.items())
    for metric in want:
        [(key, each)] = RegressionProtocol({"metrics": [metric, "dev spearman"]}).draws(seen, "stsb/splits", 25, 2).items()
        assert key == (None, None, metric) and np.array_equal(each, drawn[key])


def test_retrieval_draws_redraw_pairs_of_queries_and_two_encoders_meet_the_same():
    seen = ranked(30)
    rank, counts = seen.arrays["rank"], resample_counts(30, 70, (4, 0, *b"stsb/test"))
    drawn = RetrievalProtocol({"ks": [3]}).draws(seen, "stsb/test", 70, 4)
    both = [np.concatenate([rank[places], rank[30 + np.array(places)]]) for places in redrawn(range(30), counts)]
    assert np.allclose(drawn[None, None, "recall@3"], [100 * np.mean(each <= 3) for each in both])
    assert np.allclose(drawn[None, None, "mrr"], [100 * np.mean(1 / each) for each in both])
    opposite = Observations({**seen.arrays, "rank": np.where(rank <= 3, 4.0, 1.0)})
    others = RetrievalProtocol({"ks": [3, 5]}).draws(opposite, "stsb/test", 70, 4)
    assert np.allclose(drawn[None, None, "recall@3"] + others[None, None, "recall@3"], 100)


def test_geometry_draws_are_means_over_redrawn_pairs():
    seen, protocol = shaped(), GeometryProtocol({"alpha": 3.0})
    drawn = protocol.draws(seen, "stsb/test", 90, 6)
    values = seen.arrays["distance"] ** 3
    places = redrawn(range(len(values)), resample_counts(len(values), 90, (6, 0, *b"stsb/test")))
    assert np.allclose(drawn[None, None, "alignment"], [np.mean(values[each]) for each in places])
    group = seen.arrays["cosine"][(seen.arrays["gold"] >= 2) & (seen.arrays["gold"] < 3)]
    places = redrawn(range(len(group)), resample_counts(len(group), 90, (6, 3, *b"stsb/test")))
    assert np.allclose(drawn["2-3", None, "mean cosine"], [np.mean(group[each]) for each in places])
    assert {key[0] for key in drawn} == {None, "0-1", "1-2", "2-3", "3-4", "4-5"}


def test_alignment_is_not_paired_where_a_positive_pair_was_left_out():
    whole, lacking, protocol = shaped(), shaped(broken=True), GeometryProtocol({})
    assert len(lacking.arrays["distance"]) < len(whole.arrays["distance"])
    alignment = (None, None, "alignment")
    mine, others = (protocol.draws(each, "stsb/test", 50, 0) for each in (whole, lacking))
    assert alignment in mine and set(others) == set(mine) - {alignment}
    assert by_key(protocol.score(lacking, "stsb/test", "STS-B"))[alignment].low is not None  # its own interval stays
    assert np.array_equal(mine["1-2", None, "mean cosine"], others["1-2", None, "mean cosine"])


@pytest.mark.parametrize("case", CASES)
def test_cosmetic_settings_change_no_score(case):
    kind, make, data_id = CASES[case]
    seen = make()
    plain = by_key(kind(few(kind)).score(seen, data_id, "X"))
    cosmetic = kind.cosmetic - {kind.path_setting, "columns", "condition", "average"}  # of a user's file, of a preset
    assert cosmetic <= set(kind({}).settings)
    for name in cosmetic:
        rows = by_key(kind({**few(kind), name: CHANGED[name]}).score(seen, data_id, "X"))
        assert rows and all(row.value == plain[key].value and row.n == plain[key].n for key, row in rows.items())
    assert (kind is TransferProtocol) == (not cosmetic)


def test_mteb_has_no_draws_and_what_a_benchmark_chooses_is_in_the_datas_identity():
    seen = Observations({"value": np.array([0.5]), "items": np.array([9])},
                        {"metric": ["cosine_spearman"], "split": ["test"], "subset": ["default"]})
    some = {"tasks": {"X": "mteb:X"}, "benchmark": "MTEB(eng, v2)"}
    rows = [MtebProtocol(each, "mteb").score(seen, "mteb:X", "X") for each in ({}, {"tasks": some["tasks"]})]
    rows.append([row.model_copy(update={"protocol": "mteb"}) for row in MtebProtocol(some).score(seen, "mteb:X", "X")])
    assert rows[0] == rows[1] == rows[2] and MtebProtocol.cosmetic == set(some)
    assert MtebProtocol({}).draws(seen, "mteb:X", 100, 0) == {}
    whole, part = (HubData("mteb:X", "X", "own", (("X", "splits=['test']", f"subsets={names}"),), origin="", known=False)
                   for names in (["en", "de"], ["en"]))
    assert whole.id == part.id and whole.digest != part.digest


def test_the_interval_of_an_average_is_drawn_with_the_protocols_seed():
    protocol, seed = StsProtocol({"resamples": 60, "seed": 5, "aggregations": ["all"]}), 5
    observed = {task: (similar(number), id) for number, (task, id) in enumerate(protocol.tasks().items())}
    for observations, _ in observed.values():
        observations.arrays["pair"] = np.arange(90, dtype=np.uint64)
    records = [SimpleNamespace(scores=protocol.score(*item, task)) for task, item in observed.items()]
    drawn = protocol.average_draws(observed, 60, seed)
    rows = summarize(protocol, records, observed)
    assert len(rows) == 4
    for row in rows:
        assert (row.low, row.high) == interval(drawn[None, "all", row.metric])


def test_a_mean_of_correlations_has_fishers_interval_of_as_many_pairs_as_a_subset_has():
    protocol, seen = StsProtocol({"metrics": ["pearson"], "resamples": 200}), similar(3)
    drawn = protocol.draws(seen, "x", 200, 0)
    for row in protocol.score(seen, "x", "X"):
        if row.subset is None:
            pairs = 90 if row.aggregation == "all" else 45
            bounds = fisher_interval(drawn[None, row.aggregation, "pearson"] / 100, row.value / 100, pairs)
            assert (row.low, row.high) == pytest.approx(tuple(100 * np.array(bounds)), abs=1e-9)


def letters(texts):
    return np.array([[1 + text.count(letter) for letter in "aeinorst"] for text in texts], dtype=np.float64)


def average_of_another_seed(folder):
    settings = {"sts.resamples": 60, "sts.seed": 7}
    return evaluate(letters, protocol="sts", sample=True, settings=settings, output=folder / "run").folder


def none(folder):
    """A run over pairs of the user's that every encoder separates."""
    draw = rng(5)
    texts = [" ".join(draw.choice(["sun", "moon", "tree", "river", "stone"], 5)) + f" {i}" for i in range(40)]
    rows = [f"{text}\t{'none of it' if i % 2 else text}\t{1 - i % 2}\n" for i, text in enumerate(texts)]
    (folder / "own.tsv").write_text("".join(["sentence1\tsentence2\tlabel\n", *rows]))
    return evaluate(letters, protocol=f"pairs:{folder / 'own.tsv'}", output=folder / "run").folder


@pytest.mark.parametrize("make", [average_of_another_seed, none])
def test_everything_prints_the_interval_of_the_run(make, place, cli):
    folder = make(place)
    run = score(folder)
    row = next((row for row in run.rows if row.task == "Avg"), run.rows[0])
    assert (row.low is None) == (make is none)
    key = row.task, row.subset, row.aggregation, row.metric

    def of(rows):
        return next((each["low"], each["high"]) for each in rows
                    if tuple(each[name] or None for name in ("task", "subset", "aggregation", "metric")) == key)

    assert of([each.model_dump() for each in load(folder).rows]) == ends(row)
    assert of(json.loads(run.to_json())) == of(run.to_arrow().to_pylist()) == ends(row)
    [low, high] = of(csv.DictReader(io.StringIO(run.csv())))
    assert (low, high) == tuple("" if end is None else str(end) for end in ends(row))
    code, out, _ = cli("score", folder, "--json", "rows.json")
    assert code == 0 and of(json.loads((place / "rows.json").read_text())) == ends(row)

    printed = [str(run), run._repr_html_(), out]
    for said in printed:
        assert in_words(row) in said
        assert make is not none or "[100.00, 100.00]" not in said
    if make is none:
        assert sum("no interval, as every resample scores the same" in said for said in printed) == 3

    cells = [line.cells[column] for line in lines_of_runs([read_run(folder)])[0] for column in (row.task, row.metric)
             if column in line.cells and (line.setting.metric or row.metric, line.setting.aggregation)
             == (row.metric, row.aggregation)]
    assert [(cell.low, cell.high) for cell in cells] == [ends(row)]


def test_a_run_without_intervals_is_given_those_of_the_usual_resamples(tmp_path):
    """By the rule of its protocol: Pearson's are Fisher's."""
    folder = sts_run(tmp_path / "run", 0.3, ["STS-B"], 0, {"resamples": 0, "metrics": ["pearson"]})
    run = score(folder)
    assert run.rows[0].low is None
    usual = StsProtocol({"metrics": ["pearson"]}).score(pairs("STS-B", 0.3, ("all",), 0), "stsb/test", "STS-B")[0]
    assert usual.low is not None
    [line] = [line for line in lines_of_runs([read_run(folder)])[0] if line.setting.aggregation == "all"]
    assert (line.cells["STS-B"].low, line.cells["STS-B"].high) == ends(usual)


def test_the_average_of_a_trained_protocol_has_the_interval_that_the_board_gives_it():
    protocol, observed, records = TransferProtocol({}), {}, []
    for number, (task, id) in enumerate(TASKS.items()):
        observed[task] = classified(80, seed=10 * number), id
        records.append(SimpleNamespace(scores=protocol.score(*observed[task], task)))
    [average] = summarize(protocol, records, observed)
    assert ends(average) == interval(protocol.average_draws(observed, 1000, 0)[None, None, "accuracy"])
    f1 = next(row for row in records[-1].scores if row.metric == "f1")
    assert f1.low is None
    within = bounded(f1, protocol, *observed["MRPC"])
    assert ends(within) == interval(protocol.draws(*observed["MRPC"], 1000, 0)[None, None, "f1"])


@pytest.mark.parametrize(("low", "high", "stored"), [
    (100.0, 100.0, (None, None)), (100 - 1e-12, 100.0, (None, None)), (0.0, 1e-14, (None, None)), (None, None, (None, None)),
    (99.99, 100.0, (99.99, 100.0))])
def test_an_interval_without_length_is_none(low, high, stored):
    row = ScoreRow(protocol="sts", task="X", metric="spearman", value=100.0, low=low, high=high, n=4)
    read = ScoreRow.model_validate_json(json.dumps({**row.model_dump(), "low": low, "high": high}))
    assert ends(row) == ends(read) == stored
    if low is not None:
        draws = np.repeat([low, high], 50)
        assert (interval(draws) is None) == (stored == (None, None))
        assert fisher_interval(draws / 100, 1.0, 30) is None or stored != (None, None)
