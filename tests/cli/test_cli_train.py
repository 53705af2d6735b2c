"""`stsbench train` from the command line: a whole small run, what it says, and accidents."""

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from clirun import cli, damaged, fails, place  # noqa: F401
from safetensors.torch import load_file, save_model
from training_runs import one_thread  # noqa: F401

import stsbench
from stsbench.evaluation.run_file import load_records
from stsbench.training.runs.finish import stored_facts

QUICK = ("--set", "training.batch_size=8", "--set", "backbone.max_length=16", "--device", "cpu", "--sample")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.build(tmp_path_factory.mktemp("model") / "tiny", pooler=False)


@pytest.fixture
def text():
    path = Path("text.txt")
    path.write_text("\n".join(tiny_models.sentences(40, longest=8)) + "\n", "utf-8")
    return path


@pytest.fixture
def train(cli, model):
    def run(method, data, *more, output="out", backbone=model):
        dtype = () if "--dtype" in more else ("--dtype", "float32")
        return cli("train", method, "--backbone", backbone, "--data", data, "--output", output, *QUICK, *dtype, *more)

    return run


def test_from_training_to_everything(train, cli, text, model):
    """Train, test, evaluate by the run's name: what the documentation shows."""
    more = ("--max-steps", "2", "--set", "selection.every=2", "--eval", "sts")
    code, out, err = train("simcse", text, *more)
    assert code == 0, err
    assert "sts-b dev (sample):" in out and " before, best " in out and "Avg" in out
    assert "40 rows read" in err and "stage main: 2 steps of 8 of 40 rows on cpu x 1" in err
    run = Path("out")
    made = {".lock", "begun.json", "recipe.yaml", "log.jsonl", "train.json", "checkpoints", "best", "eval"}
    assert {path.name for path in run.iterdir()} == made
    records = [record.model_dump(mode="json") for _, record in load_records(run)]
    assert records and all(record["provenance"]["seed"] == 42 for record in records)
    code, out, err = cli("eval", "--model", "out", "--sample", "--tasks", "STS-B", "--json", "-", "--output", "again")
    assert code == 0, err
    again = {(row["task"], row["aggregation"], row["metric"]): row["value"] for row in json.loads(out)}
    rows = [row for record in records for row in record["scores"]]
    tested = {(row["task"], row["aggregation"], row["metric"]): row["value"] for row in rows}
    assert again and all(tested[key] == value for key, value in again.items())
    code, _, err = cli("eval", "--model", "out", "--sample", "--tasks", "STS-B", "--dtype", "bfloat16", "--output", "lower")
    assert code == 0, err  # measured otherwise than exported, and still of no published recipe
    assert [record.provenance["recipe"] for _, record in load_records(Path("lower"))] == ["simcse/unsup-bert-base-changed"]
    moved, start = load_file("out/best/model.safetensors"), load_file(model / "model.safetensors")
    assert any(not np.array_equal(moved[name], start[name]) for name in start)
    code, _, err = train("simcse", text, *more, "--resume")
    assert code == 0 and "is finished: nothing to resume" in err


def test_mlm_makes_a_backbone_for_simcse_whose_precision_is_kept_and_whose_weights_are_stored_whole(train, text):
    code, out, err = train("mlm", text, "--max-steps", "2", "--set", "data.held_out=8", "--set", "selection.every=2",
                           output="first")
    assert code == 0, err
    assert "stores no masked-LM head" in err and "held-out:" in out
    lines = [json.loads(line) for line in Path("first/log.jsonl").read_text().splitlines()]
    assert all(0 <= line["score"] <= 100 for line in lines if line["kind"] == "dev")
    assert all("masked_accuracy" in line for line in lines if line["kind"] == "train")
    code, _, err = train("simcse", text, "--dtype", "bf16", "--max-steps", "1", "--set", "options.mlm_weight=0.1",
                         "--set", "selection.by=none", output="second", backbone="first")
    assert code == 0, err
    assert "stores no masked-LM head" not in err and "fp16" not in err
    assert "precision: bf16" in Path("second/recipe.yaml").read_text()
    assert load_file("second/best/model.safetensors")["embeddings.word_embeddings.weight"].dtype == torch.float32
    assert {"contrastive", "mlm"} == set(json.loads(Path("second/log.jsonl").read_text().splitlines()[1])["terms"])


def test_as_the_readme_has_it_on_a_bare_machine(cli, model, text):
    """On a CPU, with no data but the text: float32 for fp16, no dev data, both said and recorded; and resumed. The package's
    made-up pairs choose nothing."""
    words = ("train", "simcse", "--backbone", model, "--data", text, "--output", "out", "--set", "training.batch_size=8",
             "--max-steps", "2", "--set", "selection.every=1", "--offline", "--device", "cpu")
    code, _, err = cli(*words)
    assert code == 0, err
    assert "the recipe says fp16, which needs a CUDA device: float32 here" in err
    (line,) = [line for line in err.splitlines() if line.startswith("warning: no dev data: ")]
    assert "stsb/dev" in line and "the weights of the last one are kept" in line and "stsbench data fetch" in line
    assert err.index(line) < err.index("rows read")
    run = Path("out")
    recipe, began = (run / "recipe.yaml").read_text(), json.loads((run / "begun.json").read_text())
    changed = recipe.partition("description: unsup-bert-base with other ")[2].partition("source:")[0]
    assert "precision: float32\n" in recipe and "precision" in changed
    assert began["dev_absent"] is True and began["sample"] is began["dev_sample"] is False
    summary = json.loads((run / "train.json").read_text())
    assert summary["sample"] is False and summary["selected_by"] == "none" and summary["best"] is None
    assert summary["exported"] == stored_facts(run)["kept"] == "the last step, as there were no development data"
    assert '"dev"' not in (run / "log.jsonl").read_text()
    weights = (run / "best" / "model.safetensors").read_bytes()
    newest = sorted((run / "checkpoints").glob("0-*"))[-1]
    assert json.loads((newest / "position.json").read_text())["step"] == 2
    (run / "train.json").unlink()
    code, _, err = cli("train", "simcse", "--output", "out", "--resume", "--offline", "--device", "cpu")
    assert code == 0 and weights == (run / "best" / "model.safetensors").read_bytes(), err
    (run / "train.json").unlink()
    data = Path(stsbench.__file__).parent / "data" / "sample"
    # data that were not there at the beginning choose nothing in the middle
    outcome = cli("train", "simcse", "--output", "out", "--resume", "--offline", "--device", "cpu", "--data-dir", data)
    fails(outcome, "--resume: the dev data is not what out began with")


def test_an_encoder_chosen_by_dev_data_that_are_absent(cli, model, text):
    words = ("train", "ct", "--backbone", model, "--data", text, "--output", "out", "--max-steps", "2", "--offline",
             "--device", "cpu", "--dtype", "float32", "--set", "backbone.max_length=16", "--set", "training.batch_size=15")
    fails(cli(*words), "ct chooses among model2, model1", "no development data", "stsbench data fetch")
    assert not Path("out").exists()


def test_a_full_disk(train, text, monkeypatch):
    name, real, seen = "stsbench.training.engine.checkpoint.save_model", save_model, []

    def full(*args, **kwargs):
        seen.append(1)
        if len(seen) == 3:
            raise RuntimeError("unexpected pos 59648 vs 59540\nmore")
        return real(*args, **kwargs)

    monkeypatch.setattr(name, full)
    more = ("--set", "checkpoint_every=1", "--set", "selection.by=none")
    line = fails(train("simcse", text, *more), "cannot write", "is the disk full?", "unexpected pos")
    assert "more" not in line
    left = sorted(path.name for path in Path("out/checkpoints").iterdir())
    assert left == ["0-main-00000001", "0-main-00000002"][: len(left)] and left
    monkeypatch.undo()


def test_weights_that_are_no_numbers_are_not_kept(train, text):
    """The loss and the gradient of the only step are finite; what the step makes of the weights is not."""
    more = ("--max-steps", "1", "--set", "selection.by=none", "--set", "training.learning_rate=1e39")
    fails(train("simcse", text, *more), "a weight is NaN or infinite after step 1")
    assert not list(Path("out").glob("checkpoints/[0-9]*")) and not Path("out/best").exists()


def test_the_command_of_the_readme_without_a_network(cli, model, monkeypatch, tmp_path):
    """`stsbench train diffaug --stage 1`: from minilm, a tiny model here, and the data folder's own NLI file, both told."""
    monkeypatch.setattr("stsbench.training.rows.files.BACKBONE", str(model))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("STSBENCH_DATA", str(tmp_path / "data"))
    (tmp_path / "data" / "train").mkdir(parents=True)
    short = ("--set", "labelled.batch_size=4", "--set", "stages.prefix.training.batch_size=4", "--max-steps", "1",
             "--set", "backbone.max_length=24")
    rows = [f"a cat {i} sat,a cat was sitting {i},no dog ran {i}" for i in range(8)]
    (tmp_path / "data" / "train" / "nli_for_simcse.csv").write_text("\n".join(["sent0,sent1,hard_neg", *rows]) + "\n")
    code, _, err = cli("train", "diffaug", "--stage", "1", "--output", "out", "--set", "selection.by=none", *short)
    assert code == 0, err
    assert f"google-bert/bert-base-uncased is not here and cannot be fetched: training starts from {model}" in err
    assert f"nli_for_simcse.csv: {tmp_path / 'data' / 'train' / 'nli_for_simcse.csv'}" in err
    assert "warning: nli_for_simcse.csv has 8 rows, the published file 275,601" in err
    assert f"model: {model}" in Path("out/recipe.yaml").read_text()
