"""What is a second seed: never one run with noise, in another precision or on another scale, for which other rows are
flagged; post-processed encoders of one setting, and of no other."""

from contextlib import nullcontext
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from board_runs import Letters, entry, load_entries, measured, read_once, rows_by_id  # noqa: F401 - fixtures
from clirun import refuses
from scipy.stats import rankdata
from toy_encoder import Toy

from stsbench.encoders.base import Encoded, Encoder, EncoderSpec
from stsbench.encoders.traits import STATE, fitted_sets, is_transductive, was_trained_on
from stsbench.errors import StsbenchError
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.protocol import Observations, load_protocol
from stsbench.evaluation.records import ScoreRow
from stsbench.evaluation.rescore import encoder_key, several_encoders
from stsbench.leaderboard.ranks.exposure import set_name
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records import copies
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.entries import check_runs, run_name
from stsbench.protocols.sts import StsProtocol

rng = np.random.default_rng(3)
ONE = rng.uniform(-0.2, 1, 400)
COPIES = {
    "noise": ONE + 1e-7 * rng.standard_normal(400), "float32": ONE.astype(np.float32).astype(float),
    "rounded": ONE.round(6), "halved": 0.5 * ONE, "moved": 0.3 + 0.7 * ONE, "monotone": np.tanh(2 * ONE),
    "monotone, noise": np.tanh(2 * ONE + 1e-7 * rng.standard_normal(400)), "negated": -ONE, "in another order": ONE[::-1],
    "one item": np.where(np.arange(400) == 7, -1, ONE), "a subset": np.where(np.arange(400) < 150, np.roll(ONE, 1), ONE),
    "some items": np.where(np.arange(400) % 60 == 0, 0, ONE), "by part": ONE * np.linspace(0.5, 1, 20).repeat(20),
    "one item, monotone": np.exp(np.where(np.arange(400) == 7, -1, ONE))}
OTHERS = {
    "another seed": ONE + 0.03 * rng.standard_normal(400), "constant": np.full(400, 0.5), "fewer items": ONE[:399],
    "equal in a third of the items": np.where(np.arange(400) < 130, ONE, np.roll(ONE, 1)),
    "of one distribution": rng.uniform(-0.2, 1, 400)}
CLASSIFIED = {"metric": "accuracy", "value": 81.2}
MINE = entry("mine")


def test_a_copy_is_found_and_so_is_its_sketch_and_another_encoder_is_none():
    for name, copy in COPIES.items():
        assert copies.nearly_equal(ONE, copy, copies.SAME) and copies.nearly_equal(copy, ONE), name
        assert list(copies._candidates(sketches(ONE, copy))) == [(0, 1)], name
    assert not [name for name, other in OTHERS.items() if copies.nearly_equal(ONE, other)]
    assert not copies.nearly_equal(OTHERS["constant"], 2 * OTHERS["constant"])  # equal similarities say nothing
    few = ONE[: copies.FEWEST - 1]  # which may be in one order
    assert not copies.nearly_equal(few, 0.5 * few)
    assert copies.nearly_equal(ONE[: copies.FEWEST], 0.5 * ONE[: copies.FEWEST])


def sketches(*vectors):
    observed = (Observations({"similarity": each}) for each in vectors)
    runs = (SimpleNamespace(protocol=StsProtocol, observed=lambda each=each: each) for each in observed)
    return np.array([copies.sketch(run) for run in runs])


def test_no_copy_escapes_the_sketch(monkeypatch):
    """Against the correlations of every pair, some sketches at a time: 30 families of vectors at all distances around the
    limit."""
    monkeypatch.setattr(copies, "ROWS", 10)
    vectors = []
    for _ in range(30):
        base = rng.uniform(-1, 1, 300)
        vectors += [base, *(base + 10.0**-each * rng.standard_normal(300) for each in (7, 4, 2.2, 2, 1.8, 1))]
    actual = set(copies._candidates(sketches(*vectors)))
    correlation = np.maximum(np.corrcoef(vectors), np.corrcoef(rankdata(vectors, axis=1)))
    near = set(zip(*np.nonzero(np.triu(1 - correlation < copies.NEAR, 1)), strict=True))
    assert len(near) > 50 and near <= actual and len(actual) < 3 * len(near)


def test_equal_observations_are_one_run_where_two_encoders_never_have_them():
    for protocol, items, row, refused in (
        ("sts", 30, {}, True), ("geometry", 30, {"metric": "alignment"}, True), ("regression", 30, {}, True),
        ("mteb", 30, {}, True), ("mteb", 30, {"task": "one score of few digits"}, False),
        ("transfer", 500, CLASSIFIED, True), ("regression", 500, CLASSIFIED, True), ("transfer", 499, CLASSIFIED, False),
        ("regression", 499, CLASSIFIED, False), ("transfer", 500, {"metric": "accuracy", "value": 100.0}, False),
        ("retrieval", 5000, {"metric": "recall@1"}, False)):
        score = ScoreRow(protocol=protocol, n=items, **{"metric": "pearson", "value": 71.25, "task": "T", **row})
        scores = [score] * (1 if "task" in row else 8)

        def record(digest, time, protocol=protocol, items=items, scores=scores):
            record = SimpleNamespace(data=SimpleNamespace(id="t", digest=digest, n=items), scores=scores,
                                     observations=SimpleNamespace(sha256=time if protocol == "mteb" else "same"))
            return SimpleNamespace(record=record, protocol=load_protocol(protocol))

        some = [("a", record("1", "3 s")), ("b", record("2", "4 s"))]  # called other data; mteb keeps how long a task took
        has = r"b has the (similarity|cosine|predicted|scores) of a on t: one run"
        with pytest.raises(StsbenchError, match=has) if refused else nullcontext():
            copies.refuse_equal(some)


class Noisy(Encoder):
    """Another encoder's vectors with a little noise, under weights of its own."""

    cacheable = False

    def __init__(self, of, noise, name):
        self.of, self.noise = of, noise
        self.spec = EncoderSpec(name=name, kind="callable", weights=name[-1] * 64)

    def run(self, texts, progress=None):
        seen = self.of.run(texts)
        noise = [np.random.default_rng([7, *text.encode()]).normal(size=seen.vectors.shape[1]) for text in texts]
        return Encoded((seen.vectors + self.noise * np.array(noise)).astype(np.float32), seen.truncated)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    home, how = tmp_path_factory.mktemp("noisy"), {"protocols": ["sts"], "tasks": ["STS-B"], "no_cache": True}
    return cache(lambda noise, name: measured(Noisy(Letters(0, 0.1), noise, name), home / f"{name}-{noise}", **how).folder)


def test_a_copy_with_noise_is_no_second_seed(noisy, tmp_path, monkeypatch):
    one, copy, board = noisy(0, "run-1"), noisy(1e-5, "run-2"), tmp_path / "board"
    words = "are no two seeds: on stsb/test the similarities correlate at 1 less .*"
    refuses(StsbenchError, words, add, board, [one, copy], "mine", MINE)
    assert not (board / "measured").exists()
    add(board, [one], "mine", MINE)
    refuses(StsbenchError, "are no two seeds", add, board, [copy], "mine", None)
    add(board, [noisy(0.5, "run-3")], "mine", None)  # as far apart as seeds are
    assert len(load_entries(board / "measured")[0].runs) == 2
    # A copy that stands on a board is refused by each build.
    board = tmp_path / "other"
    with monkeypatch.context() as patch:
        patch.setattr("stsbench.leaderboard.records.entries.refuse_near", lambda runs, near: None)
        add(board, [one, copy], "mine", MINE)
    for _ in range(2):
        refuses(StsbenchError, r"/mine/\w+ are no two seeds: on stsb/test the similarities correlate", gather, board)


def test_near_copies_are_flagged_as_seeds_and_in_other_entries(noisy, tmp_path):
    """Of two seeds further apart than another precision, nearer than two trainings: a blend of two runs, say."""
    board = tmp_path / "board"
    add(board, [noisy(0, "run-1"), noisy(1.5e-2, "run-2")], "blend", MINE)
    for name, noise, origin in (("copy-3", 1e-5, None), ("other-4", 0.5, None), ("half-5", 0.5 + 1e-5, "other-4")):
        add(board, [noisy(noise, name)], name, MINE.model_copy(update={"method": name, "starts_from": origin}))
    for _ in range(2):  # once scored, and once as kept from the build before
        rows = rows_by_id(gather(board))
        flagged = {name for name, row in rows.items() if "near-copy" in row.flags}
        assert flagged == {"blend", "copy-3", "half-5"}  # half-5 says that it was made from other-4, which is no copy
        assert any(mark.startswith("two of its seeds are nearly one: on st") for mark in rows["blend"].marks)
        (mark,) = rows["copy-3"].marks
        assert mark.startswith("nearly the row of blend: on stsb/test the similarities correlate at 1 less ")
        assert rows["copy-3"].rank and rows["other-4"].rank


class Seed(Toy):
    """Four numbers a text, drawn by the weights."""

    def run(self, texts, progress=None):
        rows = [np.random.default_rng([int(self.spec.weights[0]), *text.encode()]).normal(size=4) for text in texts]
        return Encoded(np.array(rows, np.float32).reshape(-1, 4), np.zeros(len(texts), bool))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Records of post-processed encoders by seed, dimensions and what they were fitted on."""
    home = tmp_path_factory.mktemp("fitted")
    file = home / "fit.txt"
    file.write_text("".join(f"line {i}\n" for i in range(20)))
    options = {"sample": True, "resamples": 0, "no_cache": True, "tasks": ["STS-B"]}
    return {(seed, dimensions, on): evaluate(
                Seed(EncoderSpec(name="toy", kind="callable", weights=f"{seed}" * 64)), fit_on=fit_on,
                output=home / f"{seed}-{dimensions}-{on}", post=f"whitening:dimensions={dimensions}", **options).records[0]
            for seed, dimensions in ((1, 3), (2, 3), (1, 2)) for on, fit_on in (("file", file), ("target", "target"))}


def test_a_set_is_known_by_its_data_whoever_loads_it():
    seen = ("sts12", "stsb", "sick-r")
    for id in ("sts12/test", "stsb/dev", "mteb:STS12", "mteb:STSBenchmark", "mteb:SICK-R"):
        assert was_trained_on(seen, id)
    assert not any(was_trained_on(seen, id) for id in ("sts13/test", "mteb:STS13", "mteb:BIOSSES"))
    # one set of a family: MTEB's SICK-R has the training pairs among its own, the test split has not
    assert all(was_trained_on(("sick-r/mteb",), id) for id in ("sick-r/mteb", "mteb:SICK-R"))
    assert not any(was_trained_on(("sick-r/mteb",), id) for id in ("sick-r/test", "sick-e/test", "stsb/test"))
    # A fit on all splits counts for each of them.
    fitted = "stsb/train+stsb/dev+stsb/test@abc"
    assert fitted_sets(fitted) == ("stsb/train", "stsb/dev", "stsb/test") and fitted_sets(None) == ()
    assert is_transductive(fitted, "stsb/dev") and not is_transductive(fitted, "sts12/test")
    assert not is_transductive("nli@stsb/test", "stsb/test") and not is_transductive(None, "stsb/test")
    assert {set_name(each) for each in fitted_sets(fitted)} == {"stsb"}


def test_seeds_and_fits_that_differ_in_the_last_digit_are_one_entry_and_another_setting_is_not(fitted, tmp_path):
    for on in ("file", "target"):
        runs = {run_name(each): each for each in (fitted[1, 3, on], fitted[2, 3, on])}
        assert len(runs) == 2 and len({each.encoder.fingerprint for each in runs.values()}) == 2
        check_runs(tmp_path, runs)
        other = fitted[1, 2, on]
        refuses(StsbenchError, "differ in more than their seed", check_runs, tmp_path, {**runs, run_name(other): other})
    # What fitting gives depends on the number of threads; records of two protocols would not go into one entry.
    one = fitted[1, 3, "file"]
    spec = one.encoder.spec
    nearly = {**spec, "options": {**spec["options"], STATE: "0" * 64}}
    other = one.model_copy(update={"encoder": one.encoder.model_copy(update={"spec": nearly})})
    assert encoder_key(one) == encoder_key(other) and not several_encoders([one, other])
    assert run_name(one) == run_name(other) and STATE in spec["options"]
    assert several_encoders([one, fitted[1, 2, "file"]])
