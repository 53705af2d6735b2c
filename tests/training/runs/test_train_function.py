"""`stsbench.train`: the run that the command gives by the same words, on rows in memory as on a file, and its object.
Rows in memory become a file that the reader of training text gives back as they were. Tables of what was trained, without
a training: their columns for LaTeX, the digits of a score."""

import csv
import inspect
import io
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from scipy.stats import spearmanr
from training_runs import log_of, one_thread, place, weights_of  # noqa: F401

import stsbench
from stsbench.cli.train import train as command
from stsbench.data.own.source import rows_file
from stsbench.data.text.rows import read_rows
from stsbench.display.table import Document, Table
from stsbench.errors import DataError, StsbenchError, StsbenchWarning
from stsbench.methods import SimCSE
from stsbench.training import TrainingCallback
from stsbench.training.runs import seed_runs
from stsbench.training.runs.options import TrainRequest, resolve
from stsbench.training.runs.trained import Run

QUICK = {"training.batch_size": 10, "selection.every": 2, "training.learning_rate": 1e-3, "backbone.max_length": 16}
SETS = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
PAIRS = [("a cat runs .", "the cat runs .", 4.5), ("a dog eats food", "the man plays a guitar", 0.5),
         ("a man sleeps", "the woman sleeps", 3.0), ("the red park", "a blue park", 2.0), ("a big dog", "small food", 0.0)]


@pytest.fixture(autouse=True)
def here(place, tmp_path, monkeypatch):
    """Where runs without a folder of their own are kept; place: the cache of all tests here."""
    monkeypatch.chdir(tmp_path)


def test_trainings_of_one_moment_have_folders_of_their_own(place):
    """In threads, and of the same recipe."""
    with ThreadPoolExecutor(4) as pool:
        request = TrainRequest(method="simcse", settings={"backbone.model": str(place / "tiny"), "precision": "float32"})
        named = [options.output for options, _ in pool.map(lambda _: resolve(request, lambda line: None), range(8))]
    assert len(set(named)) == 8 and {folder.parent for folder in named} == {Path("runs")}


def trained(place, **options):
    """Four steps on the tiny model and its text, on the sample's development data unless told otherwise."""
    asked = {"data": place / "text.txt", "settings": QUICK, "max_steps": 4, "sample": True, **options}
    return stsbench.train(asked.pop("method", "simcse"), backbone=place / "tiny", device="cpu", **asked)


def call(*words):
    done = CliRunner().invoke(command, [*map(str, words), "--device", "cpu"], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_the_function_and_the_command_give_the_same_run(place, tmp_path, capsys):
    (tmp_path / "own.csv").write_text("\n".join(["sentence1,sentence2,score", *(f"{a},{b},{c}" for a, b, c in PAIRS)]))
    own = f"sts:{tmp_path / 'own.csv'}"
    one = trained(place, method=SimCSE(temperature=0.1), seed=7, evaluate=own, output=tmp_path / "function")
    assert capsys.readouterr() == ("", "")
    call("simcse", "--backbone", place / "tiny", "--data", place / "text.txt", "--set", "options.temperature=0.1", *SETS,
         "--max-steps", 4, "--seed", 7, "--sample", "--output", tmp_path / "command")
    other = Run.open(tmp_path / "command")
    files = [{str(path.relative_to(folder)) for path in folder.rglob("*")} for folder in (one.folder, other.folder)]
    assert {name for name in files[0] - files[1] if not name.startswith("eval")} == files[1] - files[0] == set()
    assert (one.folder / "recipe.yaml").read_bytes() == (other.folder / "recipe.yaml").read_bytes()
    assert weights_of(one.folder) == weights_of(other.folder) and log_of(one.folder) == log_of(other.folder)
    untimed = [{key: value for key, value in made.summary.items() if key not in ("seconds", "provenance", "overlap")}
               for made in (one, other)]  # overlap: with what is tested, too
    assert untimed[0] == untimed[1]
    assert other.tested is None
    measured = stsbench.evaluate(other, protocols=own, device="cpu", resamples=0)  # a run stands for its folder
    assert measured.rows and [row.value for row in measured.rows] == [row.value for row in one.tested.rows]


@pytest.mark.parametrize(("words", "keywords"), [
    (["--max-steps", 3], {"max_steps": 3}),
    (["--set", "stages.prefix.training.max_steps=3"], {"settings": {"stages.prefix.training.max_steps": 3}}),
    (["--set", "options.prefix_length=5", "--set", "seed=5"], {"settings": {"options.prefix_length": 5, "seed": 5}}),
    (["--dtype", "bf16", "--labelled", "rows.tsv", "--seed", 9], {"dtype": "bf16", "labelled": Path("rows.tsv"), "seed": 9}),
    (["--recipe", "bert-base-semi", "--stage", "prefix", "--sample", "--eval", "sts,geometry"],
     {"recipe": "bert-base-semi", "stage": "prefix", "sample": True, "evaluate": ["sts", "geometry"]}),
    (["--data", "stsb/train", "--track", "tensorboard"], {"data": "stsb/train", "track": "tensorboard"}),
    (["--set", "data.where={a: b}", "--set", "selection.by=none"], {"settings": {"data.where": {"a": "b"}}, "dev": "none"}),
    (["--data-dir", "data", "--seeds", 2, "--subsets", 3], {"data_dir": "data", "seeds": 2, "subsets": 3})], ids=str)
def test_words_and_keywords_ask_for_the_same(words, keywords, monkeypatch, tmp_path):
    class AskedError(Exception):
        """What would be trained."""

    def asked(options, seeds, subsets, *_):
        lists = {key: list(getattr(options, key)) for key in ("evaluate", "trackers")}
        raise AskedError({**vars(options), **lists, "command": None}, seeds, subsets)

    monkeypatch.setattr(seed_runs, "train_runs", asked)
    with pytest.raises(AskedError) as of_words:
        call("diffaug", *words, "--backbone", "minilm", "--output", tmp_path)
    with pytest.raises(AskedError) as of_keywords:
        stsbench.train("diffaug", backbone="minilm", device="cpu", output=tmp_path, **keywords)
    assert of_words.value.args == of_keywords.value.args
    assert of_words.value.args[0]["recipe"] != stsbench.load_recipe("diffaug")


def test_every_option_of_the_command_is_a_keyword():
    names = {"sets": "settings", "trackers": "track"}
    options = {names.get(option.name, option.name): option for option in command.params}
    keywords = inspect.signature(stsbench.train).parameters
    assert set(options) | {"dev", "callbacks"} == set(keywords)
    for name, option in options.items():
        default = None if option.default is None or "Sentinel" in type(option.default).__name__ else option.default
        assert (keywords[name].default or None) == (default or None) or name == "method", name
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_step'"):
        stsbench.train("simcse", max_step=3)


class Told(TrainingCallback):
    def __init__(self):
        self.stages, self.scores, self.losses = [], [], []

    def stage(self, name, steps, start):
        self.stages.append((name, steps, start))

    def step(self, step, loss=None, sentences_per_second=None):
        self.losses.append((step, loss))

    def dev(self, step, name, score, best):
        self.scores.append((step, name, score, best))


def test_own_pairs_choose_the_weights_and_callbacks_are_told_what_the_log_holds(place, tmp_path):
    told = Told()
    run = trained(place, dev=PAIRS, sample=False, callbacks=(callback for callback in (told,)))
    log = log_of(run.folder)
    assert told.stages == [("main", 4, 0)] and [step for step, *_ in told.scores] == [0, 2, 4]
    dev = [line for line in log if line["kind"] == "dev"]
    assert told.scores == [(line["step"], line["name"], line["score"], line["best"]) for line in dev]
    assert told.losses == [(line["step"], line["loss"]) for line in log if line["kind"] == "train"]
    encoder = run.encoder()
    first, second = (encoder.encode([row[side] for row in PAIRS]).astype(float) for side in (0, 1))
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    assert run["best"]["score"] == pytest.approx(100 * spearmanr(cosines, [row[2] for row in PAIRS])[0], abs=1e-9)
    assert run["selected_by"].startswith("sts:") and str(tmp_path) not in run["selected_by"]


def test_a_run_is_what_its_folder_holds_and_its_log_a_table(place, tmp_path):
    run = trained(place, seeds=2, output=tmp_path / "two")
    again = Run.open(run.folder)
    assert again.summary == run.summary == json.loads((run.folder / "seeds.json").read_text("utf-8"))
    assert repr(again) == repr(run) and "\n" not in repr(run) and str(again) == str(run)
    scores = {seed: json.loads((run.folder / f"seed-{seed}/train.json").read_text())["best"]["score"] for seed in (42, 43)}
    for score in scores.values():
        assert f"{score:.2f}" in str(run) and f">{score:.2f}</td>" in run._repr_html_() and f"{score:.2f}" in run.latex()
    assert [part.recipe.seed for part in run.runs] == [42, 43] and json.loads(run.to_json()) == run.summary
    assert os.fspath(run) == str(run.folder)
    with pytest.raises(StsbenchError, match="holds 2 runs: take one's encoder"):
        run.encoder()
    assert load_file(run.runs[1].folder / "best" / "model.safetensors")
    with pytest.raises(StsbenchError, match="is not a run folder"):
        Run.open(run.runs[0].folder / "checkpoints")
    frame = run.to_pandas()
    assert list(frame.columns[:4]) == ["seed", "stage", "step", "dev"] and len(frame) == len(run.rows) == 6
    for seed in (42, 43):
        log = log_of(run.folder / f"seed-{seed}")
        part = frame[frame.seed == seed].set_index("step")
        for line in log:
            if line["kind"] == "dev":
                assert part.score[line["step"]] == line["score"] and part.best[line["step"]] == line["best"]
            if line["kind"] == "train":
                assert part.loss[line["step"]] == line["loss"]
                assert part["terms.contrastive"][line["step"]] == line["terms"]["contrastive"]
    pyarrow = pytest.importorskip("pyarrow")
    assert pyarrow.table(run).to_pylist() == [{**dict.fromkeys(frame.columns), **row} for row in run.rows]


def test_a_run_without_a_folder_is_where_the_command_keeps_its(place, tmp_path):
    with pytest.warns(StsbenchWarning, match="the last weights will be kept"):
        run = trained(place, max_steps=1)
    folder = run.folder
    assert folder.parent == tmp_path / "runs" and folder.name.endswith("-simcse-unsup-bert-base-changed")
    assert run["best"] is None and f"1 step in {folder}" in repr(run)
    assert run.save(tmp_path / "kept") == tmp_path / "kept" == run.folder and weights_of(folder) == weights_of(run.folder)
    with pytest.raises(StsbenchError, match="kept is already there"):
        run.save(tmp_path / "kept")
    texts = tiny_models.sentences(3)
    assert np.array_equal(run.encoder().encode(texts), stsbench.load_encoder(str(tmp_path / "kept" / "best")).encode(texts))


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)


def rows_of(data):
    reader = read_rows(rows_file(data, "data"))
    return reader.roles, [row for _, row in reader]


@settings(max_examples=10)
@given(st.lists(TEXTS, min_size=1, max_size=5),
       st.lists(st.tuples(TEXTS, TEXTS, st.floats(0, 5) | st.integers(0, 5)), min_size=1, max_size=4))
def test_sentences_and_scores_come_back(texts, rows):
    assert rows_of(texts) == (("sentence",), [(text,) for text in texts])
    roles, read = rows_of(rows)
    assert roles == ("sentence1", "sentence2", "score")
    assert [(first, second, float(score)) for first, second, score in read] == [(*row[:2], float(row[2])) for row in rows]


TABLE = {"premise": ["a cat", "a\tdog\n", "ä"], "hypothesis": ["x", 'y "z"', "é"], "label": [0, 2, 1]}


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "datasets", "records"])
def test_a_table_is_read_as_its_csv(library, tmp_path):
    made = {
        "pandas": lambda: pytest.importorskip("pandas").DataFrame(TABLE, index=[5, 3, 9]),
        "polars": lambda: pytest.importorskip("polars").DataFrame(TABLE),
        "pyarrow": lambda: pytest.importorskip("pyarrow").table(TABLE),
        "datasets": lambda: pytest.importorskip("datasets").Dataset.from_dict(TABLE),
        "records": lambda: [dict(zip(TABLE, row, strict=True)) for row in zip(*TABLE.values(), strict=True)]}[library]()
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([TABLE, *zip(*TABLE.values(), strict=True)])
    (tmp_path / "table.csv").write_text(text.getvalue(), "utf-8")
    reader = read_rows(tmp_path / "table.csv")
    assert rows_of(made) == (reader.roles, [row for _, row in reader])


def test_the_classes_of_datasets_have_their_names_and_its_selection_counts():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"premise": datasets.Value("string"), "hypothesis": datasets.Value("string"),
                                  "label": datasets.ClassLabel(names=["entailment", "neutral"])})
    rows = {"premise": ["a", "b", "c"], "hypothesis": ["d", "e", "f"], "label": [1, 0, -1]}
    data = datasets.Dataset.from_dict(rows, features=features).select([2, 0])
    assert rows_of(data)[1] == [("c", "f", "-"), ("a", "d", "neutral")]
    with pytest.raises(DataError, match="data is a DatasetDict: name one of train"):
        rows_file(datasets.DatasetDict({"train": data}), "data")


def test_equal_rows_are_one_file_and_others_another(tmp_path):
    one = rows_file(["a", "b"], "data")
    assert rows_file(iter(["a", "b"]), "labelled") == one and rows_file([("a", "b")], "data") != one
    stamp = one.stat().st_mtime_ns
    assert rows_file(("a", "b"), "data").stat().st_mtime_ns == stamp


def test_a_latex_table_has_words_to_the_left_numbers_to_the_right_and_a_long_name_on_several_lines():
    columns, row = ["task", "score", "95 % interval of A - B"], ["STS-B_1", "1.50 ± 0.1", "3"]
    assert Document([Table.from_rows("50 % x 100", columns, [row])]).latex("scores").splitlines() == [
        r"% \usepackage{booktabs,graphicx}", "", r"\begin{table*}", r"  \centering", r"  \small",
        r"  \resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%", r"  \begin{tabular}{lrr}", r"    \toprule",
        r"    task & score & \shortstack[r]{95 \% interval \\ of A - B} \\", r"    \midrule",
        r"    STS-B\_1 & 1.50 $\pm$ 0.1 & 3 \\", r"    \bottomrule",
        r"  \end{tabular}}", r"  \caption{50 \% $\times$ 100}", r"  \label{tab:scores}", r"\end{table*}"]


@pytest.mark.parametrize(("by", "shown"), [("sts-b dev", "-1.50"), ("held-out loss", "-1.5000")])
def test_a_loss_has_four_digits_and_a_correlation_two(tmp_path, by, shown):
    best = {"name": by, "score": -1.5, "stage": "main", "step": 2}
    run = Run(tmp_path, {"best": best, "before": -1.5, "after": -1.5, "stages": {"main": 4}, "selected_by": by})
    assert run._lines()[1] == [by, shown, shown, "main 2", shown, "main 4"]
