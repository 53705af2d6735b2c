"""Several protocols in one run: every text encoded once, failures of one task leave the others."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import stsbench.data
from stsbench.encoders.probe import TEXTS
from stsbench.errors import StsbenchError
from stsbench.evaluation.api import EvalOptions, evaluate, run
from stsbench.evaluation.plan import plan
from stsbench.evaluation.protocol import kinds
from stsbench.evaluation.records import ScoreRow
from stsbench.evaluation.rescore import score_again
from stsbench.evaluation.schema import Array, Metric
from stsbench.protocols.geometry import GeometryProtocol

SAMPLE = Path(stsbench.data.__file__).with_name("sample")


def vectors(texts):
    """float32 (n, 16): sums of a vector a word, known by the word alone."""
    def word(text):
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        return np.random.default_rng(seed).normal(0, 1, 16)

    return np.array([sum(map(word, text.split())) for text in texts], dtype=np.float32)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """(result, every text the encoder was asked for) of `--protocol all` on the sample."""
    asked = []

    def encoder(texts):
        asked.extend(texts)
        return vectors(texts)

    folder = tmp_path_factory.mktemp("all") / "run"
    few = {"resamples": 20, "settings": {"transfer.k": 3}}  # ten folds take scikit-learn twelve seconds
    return evaluate(encoder, output=folder, sample=True, protocols=["all"], no_cache=True, **few), asked


def test_each_text_is_encoded_once(everything):
    result, asked = everything
    asked = asked[2 * len(TEXTS):]  # behind the probe's
    assert len(asked) == len(set(asked)) > 1400 and not result.failures


def test_every_protocol_and_task_is_there(everything):
    result, _ = everything
    want = set()
    for name, kind in kinds().items():
        for word in kind.in_all:
            protocol = kind(kind.variant(word) if word else {})
            want |= {(f"{name}:{word}" if word else name, task) for task in protocol.tasks() if task not in kind.on_request}
    assert {(row.protocol, row.task) for row in result.rows if not row.task.startswith("Avg")} == want
    assert {row.protocol for row in result.rows if row.task == "Avg"} == {
        "sts", "transfer", "transfer:sklearn", "transfer:exact"
    }
    assert set(result.left_out) == {"transfer:fast", "retrieval:keep", "retrieval:drop"}


def test_scores_come_back_from_what_was_stored(everything):
    result, _ = everything
    again = score_again(result.folder)
    assert again.rows == result.rows and not again.failures


def test_mteb_and_sts_are_one_number(everything):
    result, _ = everything
    ours = {row.task: row.value for row in result.rows
            if (row.protocol, row.metric, row.aggregation, row.subset) == ("sts", "spearman", "all", None)}
    theirs = {row.task: row.value for row in result.rows if (row.protocol, row.metric) == ("mteb", "cosine_spearman")}
    assert theirs.pop("SICK-R-MTEB") and "SICK-R-MTEB" not in ours  # asked for by MTEB's name alone
    assert len(theirs) == 7 and theirs == pytest.approx({task: ours[task] for task in theirs}, abs=1e-4)


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


def test_an_interruption_keeps_what_was_measured(tmp_path, monkeypatch):
    def stop(self, embed, data):
        raise KeyboardInterrupt

    monkeypatch.setattr(GeometryProtocol, "observe", stop)
    with pytest.raises(KeyboardInterrupt):
        evaluate(
            vectors, output=tmp_path / "run", sample=True, protocols=["sts", "geometry"], tasks=["STS-B"], resamples=0,
            no_cache=True,
        )
    assert [record.protocol.name for record in score_again(tmp_path / "run").records] == ["sts"]


def test_settings_reach_the_protocols_that_have_them():
    planned, _ = plan(["all"], None, {"": {"resamples": 7}, "transfer": {"k": 3, "batch": 32}})
    settings = {each.label: each.protocol.settings for each in planned}
    assert settings["sts"]["resamples"] == settings["retrieval"]["resamples"] == 7
    assert settings["transfer"]["batch"] == 32 and "batch" not in settings["transfer:exact"]
    assert {settings[label]["k"] for label in ("transfer", "transfer:sklearn", "transfer:exact")} == {3}
    with pytest.raises(StsbenchError, match=r"transfer has no setting 'bach'; did you mean batch"):
        plan(["all"], None, {"transfer": {"bach": 32}})


def test_a_protocol_s_own_data_without_items_is_still_data(tmp_path, monkeypatch):
    """What mteb loads from the Hub has no texts here; a set of length 0 must not be looked for in the catalog."""
    from stsbench.data.sets.sets import PairSet
    from stsbench.evaluation.protocol import Observations

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
    assert [(row.task, row.value) for row in result.rows] == [("mine", 16)] and not result.failures


def test_without_overlap_says_what_it_does_not_touch(tmp_path, capsys):
    said = []
    options = EvalOptions(
        model="lexical:token-set", output=tmp_path / "run", sample=True, protocols=["sts", "geometry"], tasks=["STS-B"],
        resamples=0, without_overlap=["stsb/dev"],
    )
    run(options, log=said.append)
    assert "--without-overlap does not apply to geometry: measured on the whole sets" in said


def test_tasks_of_several_named_protocols():
    planned, left_out = plan(["sts", "transfer:exact", "infersent", "retrieval"], ["STS12", "CR"], {})
    assert [(each.label, list(each.tasks)) for each in planned] == [
        ("sts", ["STS12"]), ("transfer:exact", ["CR"]), ("infersent", ["STS12"])
    ]
    assert left_out == {"retrieval": "it has none of the tasks STS12, CR"}
    planned, _ = plan(["sts", "all"], None, {})
    labels = [each.label for each in planned]
    assert len(labels) == len(set(labels)) and labels[0] == "sts"


FORMS = ["transfer:exact", "retrieval:keep", "sts:wmean", "geometry", "mteb:STSBenchmark", "simcse"]


@pytest.mark.parametrize("name", FORMS)
def test_every_form_can_be_shown(name):
    import yaml
    from click.testing import CliRunner

    from stsbench.cli.show import show

    done = CliRunner().invoke(show, ["protocol", name])
    facts, _, settings = done.output.partition("\nSettings")
    assert done.exit_code == 0 and yaml.safe_load(facts)["name"] == name and "&id" not in facts
    if name != "simcse":
        kind, form = kinds()[name.partition(":")[0]], name.partition(":")[2]
        values = kind(kind.variant(form) if form else {}).settings
        lines = [line for line in settings.splitlines() if line.startswith("- ")]
        assert len(lines) == len(values)
        for line, (key, value) in zip(lines, values.items(), strict=True):
            assert line.startswith(f"- {key} = {json.dumps(value)} (") and "): " in line and ". Source: " in line


def test_tasks_pick_from_every_protocol():
    planned, left_out = plan(["all"], ["sts-b", "MR"], {})
    tasks = {each.label: list(each.tasks) for each in planned}
    assert tasks["sts"] == tasks["regression"] == tasks["geometry"] == ["STS-B"] and tasks["transfer:exact"] == ["MR"]
    assert not [name for name in left_out if name in tasks]
    with pytest.raises(StsbenchError, match="unknown task 'MRR' of any protocol"):
        plan(["all"], ["MRR"], {})
