"""Post-processed encoders on a board: seeds share an entry, another k does not, and a fit on the test set is flagged."""

import numpy as np
import pytest
from toy_encoder import Toy

from stsbench.encoders.base import Encoded, EncoderSpec
from stsbench.encoders.traits import STATE, fitted_sets, is_transductive, was_trained_on
from stsbench.errors import StsbenchError
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.rescore import encoder_key, several_encoders
from stsbench.leaderboard.ranks.exposure import set_name
from stsbench.leaderboard.records.entries import check_runs, run_name


class Seed(Toy):
    """Four numbers a text; `seed` stands for its weights."""

    def __init__(self, seed):
        super().__init__(EncoderSpec(name="toy", kind="callable", weights=str(seed) * 64))
        self.seed = seed

    def run(self, texts, progress=None):
        rows = [np.random.default_rng([self.seed, *text.encode()]).normal(size=4) for text in texts]
        return Encoded(np.array(rows, np.float32).reshape(-1, 4), np.zeros(len(texts), bool))


def record(tmp_path, seed, post="whitening:dimensions=3", fit_on=None):
    file = tmp_path / "fit.txt"
    file.write_text("".join(f"line {i}\n" for i in range(20)))
    folder = tmp_path / f"{seed}-{len(list(tmp_path.iterdir()))}"
    options = {"sample": True, "resamples": 0, "no_cache": True, "tasks": ["STS-B"]}
    return evaluate(Seed(seed), output=folder, post=post, fit_on=fit_on or file, **options).records[0]


def test_a_set_is_known_by_its_data_whoever_loads_it():
    seen = ("sts12", "stsb", "sick-r")
    for id in ("sts12/test", "stsb/dev", "mteb:STS12", "mteb:STSBenchmark", "mteb:SICK-R"):
        assert was_trained_on(seen, id)
    assert not any(was_trained_on(seen, id) for id in ("sts13/test", "mteb:STS13", "mteb:BIOSSES"))
    # one set of a family: MTEB's SICK-R has the training pairs among its own, the test split has not
    assert all(was_trained_on(("sick-r/mteb",), id) for id in ("sick-r/mteb", "mteb:SICK-R"))
    assert not any(was_trained_on(("sick-r/mteb",), id) for id in ("sick-r/test", "sick-e/test", "stsb/test"))


def test_seeds_are_one_entry_and_another_setting_is_not(tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    for fit_on in (None, "target"):
        runs = {run_name(each): each for each in (record(tmp_path, seed, fit_on=fit_on) for seed in (1, 2))}
        assert len(runs) == 2 and len({each.encoder.fingerprint for each in runs.values()}) == 2
        check_runs(tmp_path, runs)
        other = record(tmp_path, 3, "whitening:dimensions=2", fit_on)
        with pytest.raises(StsbenchError, match="differ in more than their seed"):
            check_runs(tmp_path, {**runs, run_name(other): other})


def test_two_fits_that_differ_in_the_last_digit_are_one_encoder(tmp_path, monkeypatch):
    """What fitting gives depends on the number of threads; records of two protocols would not go into one entry."""
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    one = record(tmp_path, 1)
    spec = one.encoder.spec
    nearly = {**spec, "options": {**spec["options"], STATE: "0" * 64}}
    other = one.model_copy(update={"encoder": one.encoder.model_copy(update={"spec": nearly})})
    assert encoder_key(one) == encoder_key(other) and not several_encoders([one, other])
    assert run_name(one) == run_name(other) and STATE in spec["options"]
    assert several_encoders([one, record(tmp_path, 1, "whitening:dimensions=2")])


def test_a_fit_on_all_splits_counts_for_each_of_them():
    fitted = "stsb/train+stsb/dev+stsb/test@abc"
    assert fitted_sets(fitted) == ("stsb/train", "stsb/dev", "stsb/test") and fitted_sets(None) == ()
    assert is_transductive(fitted, "stsb/dev") and not is_transductive(fitted, "sts12/test")
    assert not is_transductive("nli@stsb/test", "stsb/test") and not is_transductive(None, "stsb/test")
    assert {set_name(each) for each in fitted_sets(fitted)} == {"stsb"}
