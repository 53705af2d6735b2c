"""Results of other tools: every form gives the numbers that scipy, pytrec_eval and a run of ours give.
`stsbench.Evaluator` in the trainers of sentence-transformers: what it reports, and that it moves no weight."""

import csv
import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import pytrec_eval
import torch
from clirun import cli, place  # noqa: F401 - fixtures
from datasets import Dataset
from scipy.stats import pearsonr, spearmanr, ttest_rel
from sentence_transformers import (
    CrossEncoder,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
from tiny_models import sentences

from stsbench import Evaluator, choose, compare, evaluate, load_records, power
from stsbench.errors import StsbenchError, UsageError
from stsbench.evaluation.rescore import rescored
from stsbench.evaluation.run_file import read_observations
from stsbench.extensions.results import evaluator as evaluator_module
from stsbench.extensions.results.api import import_results
from stsbench.extensions.results.evaluator import SignificantEarlyStopping
from stsbench.extensions.results.protocol import mean_interval

RNG = np.random.default_rng(7)
N = 200
IDS = [f"q{number}" for number in range(N)]
HARD = RNG.normal(size=N)
SMALL, LARGE = (0.6 * HARD + RNG.normal(size=N) * noise for noise in (0.8, 0.7))
FRAME = pd.DataFrame({"id": IDS, "small": SMALL, "large": LARGE})


def difference(a, b, **asked):
    row = compare(a, b, **asked).tables[0].rows[0]
    return row, row.difference


def long_form(name):
    FRAME.melt(id_vars="id", var_name="model", value_name="score").to_csv(name, sep="\t", index=False)
    return f"{name}:small", f"{name}:large"


def file_each(name):
    for model in ("small", "large"):
        one = FRAME[["id", model]].sample(frac=1, random_state=len(model)).rename(columns={model: "score"})
        one.to_json(f"{model}{name}", orient="records", lines=True, double_precision=15)
    return f"small{name}", f"large{name}"


def wide(name):
    FRAME.assign(question="what is it?").to_parquet(name, index=False)
    return f"{name}:small", f"{name}:large"


def row_each_model(name):
    FRAME.set_index("id").T.reset_index(names="model").to_csv(name, index=False)
    return f"{name}:small", f"{name}:large"


def test_a_table_of_any_form_has_the_same_means_whose_difference_agrees_with_students_test():
    forms = [(file_each, ".jsonl"), (wide, "wide.parquet"), (long_form, "long.tsv"), (row_each_model, "models.csv")]
    for write, name in forms:
        row, tested = difference(*write(name), resamples=2000 if write is wide else 20)
        assert (row.a, row.b, row.n) == pytest.approx((SMALL.mean(), LARGE.mean(), N), abs=1e-12), name
        if write is wide:
            expected = ttest_rel(SMALL, LARGE)
            assert tested.p == pytest.approx(expected.pvalue, abs=0.02)
            width = np.diff([*expected.confidence_interval()])[0]
            assert (tested.low, tested.high) == pytest.approx([*expected.confidence_interval()], abs=0.05 * width)


def test_predictions_are_correlated_with_the_labels():
    for model, values in (("small", SMALL), ("large", LARGE)):
        pd.DataFrame({"id": IDS, "gold": HARD, "prediction": values}).to_csv(f"{model}.csv", index=False)
    for metric, oracle in (("spearman", spearmanr), ("pearson", pearsonr)):
        row, tested = difference("small.csv", "large.csv", metric=metric, resamples=100)
        assert row.a == pytest.approx(100 * oracle(SMALL, HARD)[0], abs=1e-9)
        assert row.b == pytest.approx(100 * oracle(LARGE, HARD)[0], abs=1e-9) and tested.low < row.a - row.b < tested.high
    assert "large" in str(choose(["small.csv", "large.csv"], resamples=100))
    assert power(100, runs=["small.csv", "large.csv"], resamples=100).tasks[0].n == N


def test_clusters_are_drawn_whole_and_few_of_them_make_it_students():
    rng, cluster = np.random.default_rng(0), np.repeat(np.arange(12), 5)
    shift = rng.normal(size=12)[cluster]
    for model, noise in (("a", 0.3), ("b", 0.5)):
        values = shift * (model == "a") + noise * rng.normal(size=60)
        pd.DataFrame({"id": range(60), "cluster": cluster, "score": values}).to_csv(f"{model}.csv", index=False)
    row, tested = difference("a.csv", "b.csv")
    frames = [pd.read_csv(f"{model}.csv").groupby("cluster").score.mean() for model in "ab"]
    expected = ttest_rel(*frames)
    assert row.n == 12 and tested.p == pytest.approx(expected.pvalue, abs=0.03)
    low, high = expected.confidence_interval()
    assert tested.high - tested.low == pytest.approx(high - low, rel=0.1)


def test_pairs_that_share_a_sentence_are_tested_as_sts_tests_them():
    """The same similarities as a run of ours: the same interval of the score, and of the difference the same width."""
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(["boat", "lake", "otter", "bank", "river", "harbour", "man"], 6)) for _ in range(90)]
    firsts, seconds = rng.integers(0, 15, 120), rng.integers(15, 90, 120)
    rows = pd.DataFrame({"sentence1": [texts[at] for at in firsts], "sentence2": [texts[at] for at in seconds],
                         "score": 2 * rng.normal(size=15)[firsts] + rng.normal(size=120)})
    rows.to_csv("rows.csv", index=False)
    for model in ("lexical:char-ngrams", "lexical:token-set"):
        name = model.partition(":")[2]
        evaluate(model, protocol="sts:rows.csv", output=name, resamples=0)
        [(_, record)] = load_records(name)
        similarity = read_observations(name, record).arrays["similarity"]
        foreign = rows.rename(columns={"score": "gold"}).assign(id=range(120), prediction=similarity)
        foreign.to_csv(f"{name}.csv", index=False)
    ours = compare("char-ngrams", "token-set", metric="pearson", resamples=2000).tables[0].rows[0]
    row, tested = difference("char-ngrams.csv", "token-set.csv", metric="pearson", resamples=2000)
    assert (row.a, row.b) == pytest.approx((ours.a, ours.b), abs=1e-9)
    assert tested.high - tested.low == pytest.approx(ours.difference.high - ours.difference.low, rel=0.08)
    plain = pd.read_csv("char-ngrams.csv").drop(columns=["sentence1", "sentence2"])
    plain.to_csv("independent.csv", index=False)
    stored = [load_records(import_results(name)[0])[0][1].scores[1] for name in ("char-ngrams.csv", "independent.csv")]
    assert stored[0].high - stored[0].low > stored[1].high - stored[1].low


def test_means_of_few_values_have_students_interval():
    values = RNG.normal(size=9)
    expected = ttest_rel(values, np.zeros(9)).confidence_interval()
    assert mean_interval(values, np.arange(9)) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert mean_interval(np.ones(5) / 2, np.arange(5)) == (None, None)


def write_samples(folder, hits):
    folder.mkdir()
    lines = [json.dumps({
        "doc_id": number, "resps": [], "filtered_resps": [], "doc_hash": f"{number:064}", "filter": "none",
        "metrics": ["acc", "acc_norm"], "acc": float(hit), "acc_norm": 1.0 - hit}) for number, hit in enumerate(hits)]
    (folder / "samples_arc_easy_2026-01-02T03-04-05.678901.jsonl").write_text("\n".join(lines))
    return folder


def write_log(path, hits):
    """As inspect_ai writes it: letters and two epochs."""
    samples = [{"id": f"s{number}", "epoch": epoch, "scores": {"match": {"value": "CI"[1 - hit]}, "judge": {"value": 0.5}}}
               for number, hit in enumerate(hits) for epoch in (1, 2)]
    about = {"task": "sums", "model": "test/model"}
    if path.suffix == ".json":
        path.write_text(json.dumps({"eval": about, "status": "success", "samples": samples}))
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.json", json.dumps({"eval": about}))
            for sample in samples:
                archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
    return path


def packed(path):
    """The archive with its members packed by Zstandard, which zipfile does not know."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name, pa.compress(content, codec="zstd", asbytes=True))
        for member in archive.filelist:
            member.compress_type, member.file_size = 93, len(members[member.filename])
    return path


@pytest.mark.parametrize("form", ["samples", "log.json", "log.eval", "packed.eval"])
def test_logs_of_harnesses(form):
    hits = [RNG.integers(0, 2, size=80).tolist(), RNG.binomial(1, 0.7, size=80).tolist()]
    write = write_samples if form == "samples" else write_log
    sides = [write(Path(f"{side}-{form}"), its) for side, its in zip("ab", hits, strict=True)]
    sides = [*map(packed, sides)] if form == "packed.eval" else sides
    row, _ = difference(*sides, resamples=20)
    assert (row.a, row.b, row.n) == pytest.approx((100 * np.mean(hits[0]), 100 * np.mean(hits[1]), 80))
    [(path, record)] = load_records(import_results(sides[0])[0])
    assert rescored(path, record)[1] == record.scores and record.data.task == ("arc_easy" if form == "samples" else "sums")
    assert [row.metric for row in record.scores] == (["acc", "acc_norm"] if form == "samples" else ["match", "judge"])


def test_rankings_agree_with_trec_eval():
    documents = [f"d{number}" for number in range(30)]
    gains = RNG.choice([0, 0, 0, 0, 1, 2], size=(40, 30)).tolist()
    relevance = {f"q{query}": dict(zip(documents, its, strict=True)) | {"d3": 1} for query, its in enumerate(gains)}
    runs = [{query: {name: float(score) for name, score in zip(documents, np.round(RNG.normal(size=30), 1), strict=True)}
             for query in relevance} for _ in "ab"]
    Path("qrels.trec").write_text("".join(f"{query} 0 {name} {gain}\n" for query, its in relevance.items()
                                          for name, gain in its.items()))
    Path("a.json").write_text(json.dumps(runs[0]))
    Path("b.trec").write_text("".join(f"{query} Q0 {name} 1 {score} mine\n" for query, its in runs[1].items()
                                      for name, score in its.items()))
    table = pd.DataFrame([(query, name, score) for query, its in runs[1].items() for name, score in its.items()],
                         columns=["q_id", "doc_id", "score"])
    table.to_parquet("b.parquet")
    measures = {"ndcg@10": "ndcg_cut_10", "map": "map", "mrr": "recip_rank", "recall@10": "recall_10",
                "precision@10": "P_10"}
    for name, run in (("a.json", runs[0]), ("b.trec", runs[1]), ("b.parquet", runs[1])):
        oracle = pytrec_eval.RelevanceEvaluator(relevance, {"ndcg_cut.10", "map", "recip_rank", "recall.10", "P.10"})
        expected = oracle.evaluate(run)
        [folder] = import_results(name, f"run-{name}", gold="qrels.trec")
        scores = {row.metric: row.value for row in load_records(folder)[0][1].scores}
        means = {metric: 100 * np.mean([its[theirs] for its in expected.values()]) for metric, theirs in measures.items()}
        assert {metric: scores[metric] for metric in measures} == pytest.approx(means, abs=1e-5)
    row, _ = difference("run-a.json", "run-b.trec", metric="ndcg@10")
    assert row.n == 40


def test_results_of_mteb_are_an_item_a_task():
    scores = np.random.default_rng(3).random((2, 7))
    scores[1] = scores[0] + np.array([0.03, 0.08, -0.01, 0.04, 0.07, -0.02, 0.05])  # paired p .053, unpaired .81
    for side, its in zip("ab", scores, strict=True):
        folder = Path(side)
        folder.mkdir()
        (folder / "model_meta.json").write_text(json.dumps({"name": f"org/{side}"}))
        for number, score in enumerate(its):
            subsets = [{"main_score": score - 0.1, "hf_subset": "de"}, {"main_score": score + 0.1, "hf_subset": "en"}]
            result = {"task_name": f"Task{number}", "dataset_revision": "1", "scores": {"test": subsets}}
            (folder / f"Task{number}.json").write_text(json.dumps(result))
    row, tested = difference("a", "b")
    expected = ttest_rel(*scores)
    assert row.n == 7 and [row.a, row.b] == pytest.approx(100 * scores.mean(1))
    assert expected.pvalue < 0.06 and tested.p == pytest.approx(expected.pvalue, abs=0.04)


def test_predictions_of_mteb():
    Path("labels.csv").write_text("score\n" + "".join(f"{value}\n" for value in HARD))
    Path("Toy_predictions.json").write_text(json.dumps({
        "mteb_model_meta": {"model_name": "org/a"}, "default": {"test": {"cosine_scores": SMALL.tolist()}}}))
    [run] = import_results("Toy_predictions.json", "run", gold="labels.csv")
    [(_, record)] = load_records(run)
    assert record.scores[0].value == pytest.approx(100 * spearmanr(SMALL, HARD)[0], abs=1e-9)


def test_output_is_never_replaced(cli):
    wide("w.parquet")
    code, out, _ = cli("import", "w.parquet", "--output", "runs")
    assert code == 0 and out.splitlines() == ["run: runs/small", "run: runs/large"]
    assert "mean" in cli("compare", "runs/small", "runs/large", "--resamples", 100)[1]
    with pytest.raises(StsbenchError, match="holds a run already"):
        import_results("w.parquet", "runs")


def test_nothing_is_said_of_vectors_that_nobody_saw(cli):
    a, b = file_each(".jsonl")
    chosen = str(choose([a, b], resamples=100))
    assert "bytes a vector" not in chosen and "which is the cheapest is not known" in chosen
    report = cli("compare", a, b, "--report", "-", "--resamples", 100)[1]
    assert "scores that another tool wrote (small.jsonl)" in report and "dimensions" not in report and "torch" not in report


def test_metrics_of_which_the_lower_is_better_are_left_out(tmp_path):
    folder = write_samples(tmp_path / "model", [1, 0, 1])
    [file] = folder.iterdir()
    more = {"metrics": ["acc", "brier_score"], "brier_score": 0.2}
    lines = [json.loads(line) | more for line in file.read_text().split("\n")]
    file.write_text("\n".join(map(json.dumps, lines)))
    [(_, record)] = load_records(import_results(folder)[0])
    assert [row.metric for row in record.scores] == ["acc"]
    file.write_text(file.read_text() + "\n" + json.dumps(lines[0]))
    with pytest.raises(StsbenchError, match="document 0 stands in it twice"):
        import_results(folder)


TEXTS = sentences(120)
ROWS = [(first, second, float(len(set(first.split()) & set(second.split()))))
        for first, second in zip(TEXTS[:60], TEXTS[60:], strict=True)]
TRAINING = Dataset.from_dict({"a": TEXTS[:24], "b": TEXTS[30:54], "label": [number / 24 for number in range(24)]})
ARGUMENTS = {
    "max_steps": 4, "per_device_train_batch_size": 4, "save_strategy": "no", "report_to": "none", "use_cpu": True,
    "disable_tqdm": True, "learning_rate": 1e-3, "seed": 3}


class Nothing(BaseEvaluator):
    """Measures nothing: the trainer draws otherwise where there is an evaluator."""

    def __call__(self, model, output_path=None, epoch=-1, steps=-1):
        self.primary_metric = "nothing"
        return {"nothing": 0.0}


def trained(folder, output, evaluator=None, callbacks=(), **arguments):
    torch.manual_seed(0)
    model = SentenceTransformer(str(folder), device="cpu")
    if evaluator is not None:
        arguments = {"eval_strategy": "steps", "eval_steps": 2, "eval_on_start": True, **arguments}
    settings = SentenceTransformerTrainingArguments(str(output), **{**ARGUMENTS, **arguments})
    trainer = SentenceTransformerTrainer(model, settings, TRAINING, loss=CosineSimilarityLoss(model), evaluator=evaluator,
                                         callbacks=list(callbacks))
    trainer.train()
    return model, trainer.state


def test_the_trainer_logs_intervals_and_the_gain_and_trains_as_without(folder, tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(evaluator_module._LOG, "info", lambda form, *values: lines.append(form % values))
    evaluator = Evaluator("dev", sts=ROWS, resamples=100)
    model, state = trained(folder, tmp_path / "a", evaluator)
    plain, _ = trained(folder, tmp_path / "b", Nothing())
    assert all(torch.equal(one, plain.state_dict()[name]) for name, one in model.state_dict().items())
    logged = [line for line in state.log_history if "eval_dev_spearman" in line]
    assert [line["step"] for line in logged] == [0, 2, 4]
    for line in logged:
        assert line["eval_dev_spearman_low"] < line["eval_dev_spearman"] < line["eval_dev_spearman_high"]
    for line in logged[1:]:
        gain = line["eval_dev_spearman"] - logged[0]["eval_dev_spearman"]
        assert line["eval_dev_spearman_gain"] == pytest.approx(gain) and 0 < line["eval_dev_spearman_gain_p"] <= 1
    first, second = (model.encode([row[side] for row in ROWS], normalize_embeddings=True) for side in (0, 1))
    cosines = (first * second).sum(axis=1)
    expected = 100 * spearmanr(cosines, [row[2] for row in ROWS])[0]
    assert logged[-1]["eval_dev_spearman"] == pytest.approx(expected, abs=0.05)
    assert len(lines) == 3 and "from the start (p " in lines[-1] and "from the start" not in lines[0]
    scores = evaluator(model, str(tmp_path / "out"), epoch=1, steps=7)
    rows = list(csv.DictReader((tmp_path / "out/dev_results.csv").open()))
    assert rows[0]["steps"] == "7" and float(rows[0]["dev_spearman"]) == scores["dev_spearman"]


def test_a_training_stops_where_nothing_is_better(folder, tmp_path):
    evaluator = Evaluator(sts=ROWS, resamples=100)
    stopping = SignificantEarlyStopping(evaluator, patience=2)
    _, state = trained(folder, tmp_path / "a", evaluator, [stopping], learning_rate=0.0, max_steps=20, eval_steps=1)
    assert state.global_step == 2 and evaluator.stagnation == 2
    with pytest.raises(UsageError):
        SignificantEarlyStopping(evaluator, patience=0)


def test_a_cross_encoder_and_what_a_trainer_cannot_choose_by(folder):
    torch.manual_seed(0)
    model = CrossEncoder(str(folder), num_labels=1, device="cpu")
    scores = Evaluator("dev", sts=ROWS)(model)
    predicted = model.predict([row[:2] for row in ROWS])
    assert scores["dev_spearman"] == pytest.approx(100 * spearmanr(predicted, [row[2] for row in ROWS])[0], abs=1e-6)
    with pytest.raises(UsageError):
        Evaluator(protocol="transfer", sample=True)(model)
    with pytest.raises(UsageError, match="name one protocol"):
        Evaluator(protocol="geometry", sample=True, resamples=0)(SentenceTransformer(str(folder), device="cpu"))
