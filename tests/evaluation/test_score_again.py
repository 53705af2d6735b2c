"""Scores computed again from what a run observed: identical rows, and nothing that was edited passes."""

import json
import pickle
import shutil
from functools import partial

import joblib
import pytest
from clirun import refuses
from run_edits import edit, put_beside, rows_of, write_rows

from stsbench.comparison.compare import compare
from stsbench.encoders.light.lexical import TfIdf
from stsbench.errors import ScoreError, StsbenchError
from stsbench.evaluation import rescore
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.records import parsed
from stsbench.evaluation.rescore import encoder_key, record_task, rescored, score_again, several_encoders
from stsbench.evaluation.run_file import load_records
from stsbench.protocols.sts import StsProtocol


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measured") / "run"
    return evaluate("lexical:token-set", output=folder, sample=True, tasks=["STS12", "STS-B"], resamples=30)


@pytest.fixture
def run(measured, tmp_path):
    return shutil.copytree(measured.folder, tmp_path / "run")


def test_many_records_are_scored_side_by_side_as_one_after_the_other(measured, monkeypatch):
    """By threads here: processes take seconds to start. What these would be given, and give back, can be sent."""
    records = load_records(measured.folder)
    monkeypatch.setattr(rescore, "_MANY", 1)
    with joblib.parallel_config("threading"):
        several = score_again(measured.folder)
        assert several.rows == measured.rows
        assert [record.data.id for record in several.records] == ["sts12/test", "stsb/test"]
        work, given = pickle.loads(pickle.dumps((rescore._rescored, records)))
        assert [work(*each) for each in given] == [record.scores for record in several.records]
        error = pickle.loads(pickle.dumps(ScoreError("no score")))
        monkeypatch.setattr(rescore, "_rescored", lambda path, record: error if record.data.id == "sts12/test" else [])
        assert score_again(measured.folder).failures == {"sts STS12": "no score"}


def test_a_version_that_measured_otherwise_is_refused(run):
    def change(row):
        row.record["protocol"]["version"] = 99
        row.renamed()

    edit(run, change)
    refuses(StsbenchError, "scored by version 99 of protocol sts; this is version 1", score_again, run)


def test_without_intervals_an_edited_value_is_refused_all_the_same(tmp_path):
    folder = evaluate("lexical:token-set", output=tmp_path / "run", sample=True, tasks=["STS-B"], resamples=50).folder
    [(path, record)] = load_records(folder)
    protocol, rows = rescored(path, record, intervals=False)
    assert [row.value for row in rows] == pytest.approx([row.value for row in record.scores], abs=1e-9)
    assert all(row.low is row.high is None for row in rows) and all(row.low < row.high for row in record.scores)
    assert protocol.settings["resamples"] == 50 and rescored(path, record)[1][0].low is not None
    record.scores[0].value += 0.01
    refuses(StsbenchError, "was edited", rescored, path, record, intervals=False)


def fitted(source):
    return TfIdf().fit(["red apples", "green pears and a plane is on the man"], source)


def test_a_model_measured_from_two_folders_is_one_encoder(measured):
    """Its name is as the user wrote it, and no part of the fingerprint."""
    here = load_records(measured.folder)[0][1].model_copy(deep=True)
    there = here.model_copy(deep=True)
    there.encoder.spec["name"] = f"elsewhere/{here.encoder.spec['name']}"
    assert encoder_key(here) == encoder_key(there) and not several_encoders([here, there])
    there.encoder.spec["weights"] = "f" * 64
    assert encoder_key(here) != encoder_key(there) and several_encoders([here, there])
    there.encoder.spec |= {"kind": "callable", "weights": here.encoder.spec["weights"]}
    here.encoder.spec["kind"] = "callable"  # two closures of one source: the name is all that tells them from each other
    assert several_encoders([here, there])


def test_what_an_encoder_was_fitted_on_makes_it_another(tmp_path):
    """Records of one that is fitted on every set by itself belong together; of two that were fitted on other texts, not."""
    folders = [evaluate(fitted(f"{name}@{number}"), output=tmp_path / name, sample=True, tasks=[task], resamples=0).folder
               for number, (name, task) in enumerate({"nli": "STS-B", "wiki": "STS12"}.items())]
    first, second = (load_records(folder)[0][1] for folder in folders)
    assert first.encoder.spec["fitted_on"] == "nli@0" and encoder_key(first) != encoder_key(second)
    both = put_beside(*folders)
    for call in (score_again, partial(compare, folders[1])):
        refuses(StsbenchError, "several encoders", call, both)
    each = evaluate("lexical:tfidf", output=tmp_path / "each", sample=True, tasks=["STS-B", "STS12"], resamples=0)
    assert len({record.encoder.fingerprint for record in each.records}) == 2
    assert len({encoder_key(record) for record in each.records}) == 1 and len(score_again(each.folder).records) == 2


def relabelled(folder, change):
    """A run's first record once more under a paper's label, after `change` to it. Both paths."""
    first, rows = rows_of(folder)[0], rows_of(folder)
    row = rows_of(folder)[0]
    row.record["protocol"]["label"] = "paper"
    change(row.record, row.observed.arrays)
    record = parsed(json.dumps(row.record))
    protocol = StsProtocol(record.protocol.settings, "paper")
    observed = Observations(row.observed.arrays, row.observed.names)
    scores = protocol.score(observed, record.data.id, record_task(protocol, record))
    row.record["scores"] = [score.model_dump() for score in scores]
    row.renamed()
    row.resigned()
    file = write_rows(folder, [*rows, row])
    return file / first.name, file / row.name


@pytest.mark.parametrize(("change", "reason"), [
    (lambda r, arrays: arrays["similarity"].__setitem__(0, arrays["similarity"][0] - 1e-4), "with different scores"),
    (lambda r, arrays: r["encoder"].update(fingerprint="1" * 64), "of encoders with different fingerprints"),
    (lambda r, arrays: r["data"].update(digest="1" * 64), "on different data of that name")])
def test_two_measurements_of_one_thing_are_refused(run, change, reason):
    paths = relabelled(run, change)
    line = refuses(StsbenchError, reason, score_again, run)
    assert all(str(path) in line for path in paths)
    if "scores" in reason:
        assert refuses(StsbenchError, reason, compare, run, run, resamples=2) == line


def test_one_measurement_under_two_names_is_not(run):
    """A paper's preset and the protocol, as `eval --protocol sts,simcse` writes them; intervals are no measurement."""
    relabelled(run, lambda r, arrays: r["protocol"]["settings"].update(resamples=7, metrics=["spearman"]))
    assert len(score_again(run).records) == 3
    table = compare(run, run, resamples=20).tables[0]
    assert {row.difference.value for row in table.rows} == {0}
