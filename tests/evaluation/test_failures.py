"""One task's failure leaves the others: bad data, vectors that are NaN; and what a protocol loads itself."""

import shutil

import numpy as np
import pytest
from clirun import SAMPLE
from geometry_runs import vectors

from stsbench.data.sets.sets import PairSet
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.records import ScoreRow
from stsbench.evaluation.schema import Array, Metric
from stsbench.protocols.geometry import GeometryProtocol


@pytest.fixture
def damaged(tmp_path):
    """The sample as a data folder: MPQA has one class, CR misses a file, SUBJ has too few items, TREC a line of rubbish."""
    folder = tmp_path / "data"
    shutil.copytree(SAMPLE, folder)
    down = folder / "downstream"
    (down / "MPQA/mpqa.neg").write_text("", "utf-8")
    (down / "CR/custrev.pos").unlink()
    for path in (down / "SUBJ").iterdir():
        path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[:4]), "utf-8")
    (down / "TREC/TREC_10.label").write_text("no label here\n", "utf-8")
    return folder


def test_bad_input_costs_its_own_task_only(tmp_path, damaged):
    broken = (damaged / "downstream/MR/rt-polarity.pos").read_text("utf-8").splitlines()[3]

    def encoder(texts):
        made = vectors(texts)
        made[[text == " ".join(broken.split()) for text in texts]] = np.nan
        return made

    result = evaluate(
        encoder, output=tmp_path / "run", data_dir=damaged, protocols=["transfer:exact", "geometry"], no_cache=True
    )
    want = {
        "CR": f"{damaged}/downstream/CR/custrev.pos is missing", "MPQA": "only class 1", "SUBJ": "8 items are fewer than",
        "TREC": f"{damaged}/downstream/TREC/TREC_10.label:1",
        "MR": f"NaN or infinity for 1 of 64 texts, the first: '{broken}",
    }
    assert set(result.failures) == {f"transfer:exact {task}" for task in want}
    for task, part in want.items():
        assert part in result.failures[f"transfer:exact {task}"], result.failures
        assert "\n" not in result.failures[f"transfer:exact {task}"]
    assert {record.data.id for record in result.records} == {"sst2", "mrpc", "stsb/test"}
    assert not [row for row in result.rows if row.task == "Avg"]


def test_all_leaves_out_what_is_missing_and_names_what_is_malformed(tmp_path, damaged):
    few = {"transfer.k": 3}  # folds, of which the two items that SUBJ is left are too few, too
    options = {"data_dir": damaged, "protocols": ["all"], "resamples": 0, "no_cache": True, "settings": few}
    for path in (damaged / "downstream/SUBJ").iterdir():
        path.write_text(path.read_text("utf-8").splitlines(keepends=True)[0], "utf-8")
    for word in ("STS", "SICK", "SST", "MRPC"):
        shutil.rmtree(damaged / "downstream" / word)
    result = evaluate(vectors, output=tmp_path / "run", **options)
    assert {"sts STS12", "retrieval STS-B", "mteb SICK-R", "transfer CR", "transfer:exact SST2"} <= set(result.left_out)
    failed = {name.split()[1] for name in result.failures}
    assert failed == {"MPQA", "SUBJ", "TREC"} and {record.data.id for record in result.records} == {"mr"}


def test_a_protocol_s_own_data_without_items_is_still_data(tmp_path, monkeypatch):
    """What mteb loads from the Hub has no texts here; a set of length 0 must not be looked for in the catalog."""
    class Own(GeometryProtocol):
        metrics = {"width": Metric()}  # noqa: RUF012
        arrays = {"seen": Array("int", "1")}  # noqa: RUF012

        def tasks(self):
            return {"mine": "own:mine"}

        def load(self, set_id):
            return PairSet("own:mine", "mine", "own", first=(), second=(), gold=np.array([]), subsets=(), known=False)

        def observe(self, embed, data):
            return Observations({"seen": np.array([len(embed(["asked for later"])[0])])})

        def score(self, observations, data_id, task):
            value = float(observations.arrays["seen"][0])
            return [ScoreRow(protocol=self.label, task=task, metric="width", value=value, n=1)]

    monkeypatch.setattr("stsbench.evaluation.plan.load_protocol", lambda name: Own)
    result = evaluate(vectors, output=tmp_path / "run", sample=True, protocols=["geometry"], no_cache=True)
    assert [(row.task, row.value) for row in result.rows] == [("mine", 12)] and not result.failures
