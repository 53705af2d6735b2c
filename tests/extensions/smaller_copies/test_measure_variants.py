"""Smaller copies from one pass: scores are those of `evaluate`, losses those of `compare`, whatever is asked is in a run."""

import csv
import json

import numpy as np
import pytest
from clirun import cli  # noqa: F401

from stsbench import compare, evaluate, load_encoder, load_records
from stsbench.display.style import figure_bytes
from stsbench.errors import EncoderError, StsbenchError
from stsbench.extensions.smaller_copies import variants
from stsbench.extensions.smaller_copies.variant import Form, Variant, Vectors
from stsbench.extensions.smaller_copies.variants import measure_variants

HOW = {"sample": True, "resamples": 200, "no_cache": True}
ASKED = {"quantise": "int8,binary", "truncate_dims": "8,32,64"}
STS = ("sts", "STS-B")


@pytest.fixture(scope="module")
def base(folder):
    return load_encoder(folder, pooler="mean", normalize=True)


@pytest.fixture(scope="module")
def made(base, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "all"
    lines = []
    scores = measure_variants(base, **ASKED, tasks="STS-B", protocols="sts,retrieval,geometry,transfer:exact", output=out,
                              log=lines.append, **HOW)
    return scores, out, lines


def test_every_width_in_every_precision(made):
    scores, out, lines = made
    names = ["32 float32", "32 int8", "32 binary", "8 float32", "8 int8", "8 binary"]
    assert [score.name for score in scores.task_scores(STS)] == names
    assert [score.bytes for score in scores.task_scores(STS)] == [128, 32, 4, 32, 8, 1]
    assert scores.tasks == (STS, ("retrieval", "STS-B"), ("geometry", "STS-B")) and not scores.failures
    assert [line.partition(" ")[0] for line in scores.left_out] == ["transfer:exact", "32", "64"]
    folders = ["00-full-float32", "01-full-int8", "02-full-binary", "03-8-float32", "04-8-int8", "05-8-binary"]
    assert sorted(path.name for path in out.iterdir()) == folders
    assert len({score.fingerprint for score in scores.task_scores(STS)}) == 6
    assert [line for line in lines if " of " in line][-1].endswith("8 binary")
    assert len(lines) == len(set(lines))  # no warning twice


def test_a_copy_that_cannot_be_measured_costs_no_other(base, monkeypatch):
    measured = variants._evaluated

    def refused(copy, *how):
        if copy.form.dims in broken:
            raise EncoderError("no such vectors")
        return measured(copy, *how)

    monkeypatch.setattr(variants, "_evaluated", refused)
    asked, broken = {"truncate_dims": "8,16", "tasks": "STS-B", "log": lambda line: None}, (8,)
    scores = measure_variants(base, **asked, **HOW)
    assert scores.failures == ("8 float32: no such vectors",)
    assert [score.name for score in scores.task_scores(STS)] == ["32 float32", "16 float32"]
    broken = (8, 16)
    with pytest.raises(EncoderError, match="no such vectors"):
        measure_variants(base, **asked, **HOW)


def test_scores_are_those_of_evaluate(base, folder, made):
    by_name = {score.name: score for score in made[0].task_scores(STS)}
    for name, encoder in (
        ("32 float32", base), ("8 float32", load_encoder(folder, pooler="mean", normalize=True, truncate_dim=8)),
        ("8 int8", Variant(base, Form(8, "int8"), Vectors())),
    ):
        row = next(row for row in evaluate(encoder, tasks="STS-B", **HOW).rows if row.metric == "spearman")
        score = by_name[name]
        assert (score.value, score.low, score.high) == pytest.approx((row.value, row.low, row.high), abs=1e-5)
        assert score.n == row.n


def test_losses_are_those_of_compare(made):
    scores, out, _ = made
    runs = {score.name: path for score, path in zip(scores.task_scores(STS), sorted(out.iterdir()), strict=True)}
    for score in scores.task_scores(STS)[1:]:
        table = next(table for table in compare(runs["32 float32"], runs[score.name], resamples=200).tables
                     if (table.setting.protocol, table.setting.metric) == ("sts", "spearman"))
        gap = table.rows[0].difference
        assert (score.loss, score.loss_low, score.loss_high, score.p) == pytest.approx((gap.value, gap.low, gap.high, gap.p))
    full, *smaller = scores.task_scores(("geometry", "STS-B"))  # neither high nor low is better
    assert [score.loss for score in smaller] == pytest.approx([full.value - score.value for score in smaller])
    assert scores.front(("geometry", "STS-B")) == []


def test_a_run_names_its_copy(made):
    folders = sorted(made[1].iterdir())
    specs = [load_records(path)[0][1].encoder.spec for path in folders]
    options = [{key: value for key, value in spec["options"].items() if key != "post_state"} for spec in specs]
    assert options[0] == {} and options[1] == {"precision": "int8", "calibration": "shared"}
    assert options[4] == {"truncate_dim": 8, "rescaled": True, "precision": "int8", "calibration": "shared"}
    assert specs[1]["fitted_on"].startswith("stsb/test@") and specs[2]["fitted_on"] is None


def test_the_average_is_tested_on_pairs_that_tasks_share(base):
    scores = measure_variants(base, quantise="binary", **HOW)
    assert scores.shown == (("sts", "Avg"),) and len(scores.tasks) == 8
    [full, binary] = scores.task_scores(("sts", "Avg"))
    assert full.loss == 0 and binary.loss_low < binary.loss < binary.loss_high
    tasks = [scores.task_scores(("sts", task))[1].loss for _, task in scores.tasks if task != "Avg"]
    assert binary.loss == pytest.approx(np.mean(tasks))


def test_table_picture_and_files(made, tmp_path):
    scores, _, _ = made
    text = str(scores)
    assert "sts STS-B, spearman of 42 items" in text and "all texts of the set" in text and "length 1 again" in text
    row = next(line for line in text.splitlines() if line.startswith("8 int8"))
    score = next(score for score in scores.task_scores(STS) if score.name == "8 int8")
    assert f"{score.loss:.2f} [{score.loss_low:.2f}, {score.loss_high:.2f}]" in row and "6.2%" in row
    assert "6 sets" not in repr(scores) and "smaller sets of vectors" in repr(scores)
    assert scores.to_arrow().num_rows == len(scores.scores) == 18 and "8 int8" in scores._repr_html_()
    assert b"8 int8" in figure_bytes(scores.plot(1), "svg")
    with pytest.raises(StsbenchError, match="table=9: there are 3 tables"):
        scores.plot(9)
    scores.save(tmp_path)
    names = ["variants-geometry-STS-B.png", "variants-retrieval-STS-B.png", "variants-sts-STS-B.png", "variants.csv"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    rows = list(csv.DictReader((tmp_path / "variants.csv").open()))
    assert len(rows) == 18 and float(rows[1]["loss"]) == scores.scores[1].loss


def test_the_front_holds_what_nothing_beats(made):
    scores = made[0].task_scores(STS)
    expected = [one for one in scores if not any(
        other.bytes <= one.bytes and other.value >= one.value and (other.bytes, other.value) != (one.bytes, one.value)
        for other in scores
    )]
    assert made[0].front(STS) == expected and expected


def test_calibrated_on_a_file(base, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("the red cat\na man eats\n\nthe dog sleeps in the park\n")
    scores = measure_variants(base, quantise="uint8", calibration=file, tasks="STS-B", output=tmp_path / "runs", **HOW)
    spec = load_records(tmp_path / "runs" / "01-full-uint8")[0][1].encoder.spec
    assert spec["fitted_on"].startswith("texts.txt@") and spec["options"]["calibration"] == "file"
    assert "a file of texts" in str(scores)


def test_the_command_prints_the_table(cli, folder, tmp_path):
    ask = ("eval", "--model", folder, "--pooler", "mean", "--normalize", "--sample", "--tasks", "STS-B", "--no-cache",
           "--resamples", "200", "--output", tmp_path / "run")
    code, out, err = cli(*ask, "--quantise", "int8,binary", "--truncate-dims", "8,64", "--json", tmp_path / "scores.json")
    expected = measure_variants(load_encoder(folder, pooler="mean", normalize=True), quantise=["int8", "binary"],
                                truncate_dims=[8, 64], tasks="STS-B", **HOW)
    assert (code, err.count("error")) == (0, 0), err
    assert out == str(expected) + "\n" and "6 of 6: 8 binary" in err
    stored = json.loads((tmp_path / "scores.json").read_text())
    assert [row["value"] for row in stored] == [score.value for score in expected.scores]


def test_by_dot_product_a_function_of_unit_vectors_is_cut_as_a_model_that_declares_it():
    def embed(texts):
        rows = np.stack([np.random.default_rng([7, *text.encode()]).standard_normal(16) * np.geomspace(4, 0.2, 16)
                         for text in texts])
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    by = {name: measure_variants(embed, truncate_dims="4", tasks="STS-B", similarity=name, **HOW)
          for name in ("dot", "cosine")}
    assert by["dot"].scaled and "Cut vectors are scaled to length 1 again" in str(by["dot"])
    values = [scores.task_scores(STS)[1].value for scores in by.values()]
    assert values[0] == pytest.approx(values[1], abs=1e-9)
    longer = measure_variants(lambda texts: 3 * embed(texts), truncate_dims="4", tasks="STS-B", similarity="dot", **HOW)
    assert not longer.scaled and longer.task_scores(STS)[1].value != pytest.approx(values[0], abs=0.1)
