"""What a board takes: forged records, made consistent in everything but the data, are refused by name."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from board_runs import REVISION, own_runs, read_once, runs  # noqa: F401  fixtures
from core_protocols import core_protocols

from stsbench.data.sets.catalog import catalog, entries
from stsbench.errors import StsbenchError
from stsbench.evaluation.columns import digest_of
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.records import (
    DataIdentity,
    EncoderIdentity,
    Observed,
    ProtocolIdentity,
    Record,
    now,
    record_name,
)
from stsbench.evaluation.rescore import protocol_of_record, task_of
from stsbench.evaluation.run_file import RUN, load_records, observations_of, write_run
from stsbench.leaderboard.records import admission
from stsbench.leaderboard.records.admission import check_record, proven
from stsbench.protocols.mteb import MtebProtocol
from stsbench.protocols.regression import RegressionProtocol
from stsbench.protocols.transfer import TransferProtocol

SHA = "0" * 64


def forged(folder, record, observations):
    """A run of the record with these observations, and everything that follows from them made to fit. The record's path."""
    fit(record, observations)
    write_run(folder / RUN, [(record, observations)])
    return folder / RUN / record_name(record)


def fit(record, observations):
    spec = {key: value for key, value in record.encoder.spec.items() if key != "name"}
    record.encoder.fingerprint = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
    protocol = protocol_of_record(Path("a record"), record)
    record.scores = protocol.score(observations, record.data.id, task_of(protocol, record))
    record.observations = Observed(sha256=digest_of(observations))


def loaded(folder, pattern="*"):
    """(record, observations) of a run's records."""
    return [(record, observations_of(folder, record)) for path, record in load_records(folder) if path.match(pattern)]


@pytest.fixture(scope="module")
def known_runs(own_runs, tmp_path_factory):
    """Runs on invented data that call these known, by name."""
    place = tmp_path_factory.mktemp("known")
    for name in ("letters", "words"):
        items = loaded(own_runs[name])
        for record, observations in items:
            record.data.known = True
            fit(record, observations)
        write_run(place / name / RUN, items)
    return place


@pytest.fixture
def honest(known_runs, tmp_path, monkeypatch):
    """A run on invented data which a catalog of its own knows, with what they decide learnt from another encoder's run."""

    def known(name):
        return shutil.copytree(known_runs / name, tmp_path / name)

    folder, other = known("letters"), known("words")
    real = catalog()
    changed = {}
    for record, _ in loaded(folder):
        key = (record.data.id, record.data.text_version)
        changed[key] = replace(
            real.entries[key], digest=record.data.digest, total=record.data.n, counts=record.data.subsets
        )
    monkeypatch.setattr(admission, "catalog", lambda: SimpleNamespace(entries={**real.entries, **changed}))
    admission.learn([other], tmp_path / "expected.yaml")
    monkeypatch.setattr(admission, "EXPECTED", tmp_path / "expected.yaml")
    admission.expected.cache_clear()
    yield folder
    admission.expected.cache_clear()


def refused(folder, record, observations):
    path = forged(folder, record, observations)
    with pytest.raises(StsbenchError) as caught:
        check_record(path, record)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    return message


def one(folder, pattern):
    return loaded(folder, pattern)[0]


def test_honest_records_pass_and_are_proven(honest):
    found = load_records(honest)
    assert len(found) == 9
    for path, record in found:
        check_record(path, record)
        assert proven(record)


def test_records_without_pairs_are_refused(honest, tmp_path):
    """An average's interval needs to know which pairs its tasks share."""
    for record, observations in loaded(honest, "sts.*"):
        del observations.arrays["pair"]
        path = forged(tmp_path / "old", record, observations)
        with pytest.raises(StsbenchError, match="the observations lack pair"):
            check_record(path, record)


def easy(observations, share=0.8):
    """The items that the encoder has right."""
    arrays = observations.arrays
    ranks = [np.argsort(np.argsort(arrays[name])) for name in ("similarity", "gold")]
    kept = np.sort(np.argsort(np.abs(ranks[0] - ranks[1]))[: int(share * len(ranks[0]))])
    return Observations({name: array[kept] for name, array in arrays.items()}, observations.names)


def test_pairs_that_were_picked_are_refused(honest, tmp_path):
    record, observations = one(honest, "sts.stsb*")
    assert "does not fit the set's items" in refused(tmp_path / "a", record, easy(observations))
    record.data.n = len(easy(observations).arrays["gold"])
    record.data.subsets = {name: record.data.n for name in record.data.subsets}
    assert "was edited: data: stsb/test has" in refused(tmp_path / "b", record, easy(observations))


def rolled(name):
    return lambda arrays: arrays.update({name: np.roll(arrays[name], 1)})


@pytest.mark.parametrize(
    ("pattern", "forge", "part"),
    [
        ("sts.stsb*", lambda arrays: arrays.update(gold=arrays["similarity"] * 5), "gold"),
        ("sts.sts12*", rolled("gold"), "gold"),
        ("sts.sts12*", rolled("subset"), "subset"),
        ("sts.sts12*", rolled("pair"), "pair"),
        ("retrieval*", lambda arrays: arrays.update(corpus=arrays["corpus"] + 1), "duplicates merge"),
        ("retrieval*", rolled("query"), "duplicates merge"),
        ("retrieval*", rolled("group"), "duplicates merge"),
        ("geometry*", rolled("gold"), "gold"),
    ],
)
def test_other_answers_items_or_subsets_are_refused(honest, tmp_path, pattern, forge, part):
    record, observations = one(honest, pattern)
    forge(observations.arrays)
    message = refused(tmp_path / "forged", record, observations)
    assert f"not of {record.data.id}: right answers" in message and message.endswith(f"{part})")


def test_a_cosine_beyond_one_is_refused(honest, tmp_path):
    record, observations = one(honest, "sts.stsb*")
    observations.arrays["similarity"] = observations.arrays["gold"] * 10
    assert "hold a cosine of 50" in refused(tmp_path / "forged", record, observations)


def test_subsets_of_other_names_or_sizes_are_refused(honest, tmp_path):
    record, observations = one(honest, "sts.sts12*")
    names = observations.names["subsets"]
    turned = Observations(observations.arrays, {"subsets": names[::-1]})
    assert "are others (subsets)" in refused(tmp_path / "a", record, turned)
    observations.arrays["subset"][0] = 1
    assert "its observations are of" in refused(tmp_path / "b", record, observations)
    record.data.subsets = {name: int(np.sum(observations.arrays["subset"] == i)) for i, name in enumerate(names)}
    assert "was edited: data: sts12/test has" in refused(tmp_path / "c", record, observations)
    observations.arrays["subset"][0] = 99  # of no subset
    record.protocol.settings["resamples"] = 0
    record.data = record.data.model_copy(update={"known": False, "digest": SHA})
    assert "its observations are of" in refused(tmp_path / "d", record, observations)


@pytest.mark.parametrize("change", [{"n": 9}, {"subsets": {"all": 9}}, {"subsets": {}}])
def test_edited_numbers_of_items_are_refused(honest, tmp_path, change):
    for pattern in ("sts.stsb*", "retrieval*", "geometry*"):
        record, observations = one(honest, pattern)
        record.data = record.data.model_copy(update=change)
        assert "was edited: data: stsb/test has" in refused(tmp_path / pattern[:3], record, observations)


def test_what_is_proven(honest):
    """Only the catalog's digest proves what data were; a part of a set, or a text without digests, stays unproven."""
    record, _ = one(honest, "sts.stsb*")

    def changed(text_version="senteval", known=True, digest=record.data.digest, without=()):
        data = record.data.model_copy(update={"text_version": text_version, "known": known, "digest": digest})
        settings = {**record.protocol.settings, "without_overlap": list(without)}
        how = record.protocol.model_copy(update={"settings": settings})
        return proven(record.model_copy(update={"data": data, "protocol": how}))

    assert changed() and changed(text_version="own", known=False) and changed(text_version="sample", known=False)
    assert not changed(known=False) and not changed(digest=SHA) and not changed(text_version="raw")
    assert not changed(without=["stsb/dev"])


# What may be stored -------------------------------------------------------------------------------------------------


def made(protocol, set_id, arrays, names=None, n=None, **data):
    """A record of invented observations on data of one's own."""
    who = EncoderIdentity(spec={"name": "invented"}, fingerprint=SHA, dimension=3)
    how = ProtocolIdentity(name=protocol.name, label=protocol.label, version=protocol.version, settings=protocol.settings)
    what = DataIdentity(**{
        "id": set_id, "task": "T", "text_version": "own", "digest": SHA, "n": n, "subsets": {"all": n}, "known": False,
        "origin": "here", **data,
    })
    record = Record(
        created=now(), encoder=who, protocol=how, data=what, counts={"zero_vectors": 0}, scores=[],
        observations=Observed(sha256=SHA),
        provenance={"git": REVISION, "versions": {"stsbench": "1", "numpy": "2"}},
    )
    return record, Observations(arrays, names or {})


def transfer(**changes):
    """Eight items, two folds."""
    gold = np.array([0, 1] * 4)
    arrays = {
        "rows": np.arange(8), "predicted": gold.copy(), "gold": gold, "fold": np.repeat([0, 1], 4),
        "grid": np.full((2, 2), 75.0), "chosen": np.array([0, 1]), "regs": np.array([0.5, 1.0]),
        "counts": np.array([4, 0, 8]),
    }
    names = {"counts": ["fits", "unconverged", "development items"], "notes": []}
    return made(TransferProtocol({"classifier": "exact"}), "mr", {**arrays, **changes}, names, 8)


def regression(**changes):
    """Eight items, of which the last four are tested."""
    arrays = {
        "row": np.array([5, 4, 7, 6]), "gold": np.array([0, 2, 1, 0]), "predicted": np.array([0, 2, 2, 0]),
        "sizes": np.array([2, 2, 4]), "dev_accuracy": np.array([50.0] * 4),
    }
    return made(RegressionProtocol({}), "sick-e/splits", {**arrays, **changes}, n=8)


def mteb(result=None, items=8, **names):
    result = {"task_name": "STS12", "mteb_version": "2", "scores": {"test": [{"main_score": 0.5, "hf_subset": "default"}]},
              **(result or {})}
    names = {"metric": ["cosine_spearman"], "split": ["test"], "subset": ["default"], "mteb_task": ["STS12"],
             "task_result": [json.dumps(result)], "notes": [], **names}
    arrays = {"value": np.array([0.5]), "items": np.array([items])}
    return made(MtebProtocol({}), "sts12/test", arrays, names, 8, text_version="sample")


@pytest.mark.parametrize("build", [transfer, regression, mteb])
def test_invented_records_pass(build, tmp_path):
    record, observations = build()
    check_record(forged(tmp_path, record, observations), record)


@pytest.mark.parametrize(
    ("build", "change"),
    [
        (transfer, {"rows": np.array([0, 1, 2, 3, 4, 5, 6, 6])}),
        (transfer, {"rows": np.array([0, 1, 2, 3, 4, 5, 6, 8])}),
        (transfer, {"rows": np.array([0, 1, 2, 3, 4, 5, 6, -1])}),
        (regression, {"row": np.array([5, 4, 7, 7])}),
        (regression, {"row": np.array([5, 4, 7, 9])}),
    ],
)
def test_items_are_tested_once(build, change, tmp_path):
    assert "names an item twice, or one that the data do not have" in refused(tmp_path, *build(**change))


def test_sizes_are_those_of_the_data(tmp_path):
    assert "sizes of the observations" in refused(tmp_path, *regression(sizes=np.array([2, 1, 4])))


def letters(text):
    return np.frombuffer(text.encode(), np.uint8)


@pytest.mark.parametrize(
    ("build", "change", "says"),
    [
        (transfer, {"zz": letters("a sentence of the data set")}, "zz, which the protocol does not declare"),
        (transfer, {"zz": np.zeros(3)}, "zz, which the protocol does not declare"),
        (transfer, {"regs": np.zeros(9)}, "regs of the observations has the shape"),
        (transfer, {"regs": letters("ab")}, "regs of the observations is of another kind"),
        (regression, {"epochs": np.zeros(1)}, "epochs of the observations is of another kind"),
        (regression, {"epochs": np.arange(9)}, "epochs of the observations has the shape"),
        (regression, {"dev_accuracy": np.zeros((4, 4))}, "dev_accuracy of the observations has the shape"),
        (mteb, {"zz": ["a name"]}, "zz, which the protocol does not declare"),
        (mteb, {"value": ["a name"]}, "hold names of value, which the protocol"),
        (mteb, {"mteb_task": ["a", "b"]}, "mteb_task of the observations has the shape"),
        (mteb, {"notes": ["x" * 201]}, "hold texts (notes)"),
        (mteb, {"notes": ["x"] * 501}, "hold texts (notes)"),
        (mteb, {"notes": ["x\u202ey"]}, r"hold a character that is not seen (U+202E): x\u202ey"),
        (mteb, {"items": 9}, "not of 8 items"),
        (mteb, {"task_result": ["A sentence of the data set. " * 9]}, "not a result of mteb"),
        (mteb, {"task_result": ["[1]"]}, "not a result of mteb"),
        (mteb, {"task_result": ['{"task_name": "STS12"}']}, "not a result of mteb"),
        (mteb, {"task_result": ["[" * 100_000]}, "not a result of mteb"),
        (mteb, {"result": {"scores": {}}}, "not a result of mteb"),
        (mteb, {"result": {"scores": {"test": ["a sentence"]}}}, "not a result of mteb"),
        (mteb, {"result": {"more": {"deep": ["x" * 201]}}}, "hold texts (task_result)"),
        (mteb, {"result": {"x" * 201: 1}}, "hold texts (task_result)"),
    ],
)
def test_only_what_a_protocol_observes_is_let_in(build, change, says, tmp_path):
    assert says in refused(tmp_path, *build(**change))


def test_every_protocol_here_says_what_it_observes(runs):
    for name in ("letters", "words"):
        for path, record in load_records(runs[name]):
            check_record(path, record)


def test_what_the_catalogs_sets_decide_is_known():
    """Every set that a protocol here measures by item has a digest, so that no known record passes unchecked."""
    found = admission.expected()
    catalogued = {item.id for item in entries("senteval")}
    for name, kind in core_protocols().items():
        for word in ("", *kind.variants):
            protocol = kind(kind.variant(word) if word else {})
            for set_id in {*protocol.tasks().values()} & catalogued if name != "mteb" else ():
                parts = found[name][set_id]
                by = f"duplicates {protocol.settings.get('duplicates')}"
                wanted = {"sts": {"gold", "pair", "subset", "subsets"}, "retrieval": {f"query {by}", f"corpus {by}"},
                          "transfer": {"gold", "folds of k 10 and seed 1111"}, "regression": {"gold", "row", "sizes"},
                          "geometry": {"gold"}}[name]
                assert wanted <= parts.keys(), (name, word, set_id)
                assert all(len(sha) == 64 for sha in parts.values())


def test_runs_that_disagree_teach_nothing(honest, tmp_path):
    record, observations = one(honest, "sts.stsb*")
    rolled("gold")(observations.arrays)
    path = forged(tmp_path / "forged", record, observations)
    with pytest.raises(StsbenchError, match=f"{path}: its gold of stsb/test is not that of a run before"):
        admission.learn([honest, path.parent], tmp_path / "learnt.yaml")
    assert not (tmp_path / "learnt.yaml").exists()
