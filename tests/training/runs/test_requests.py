"""What a training that is asked for becomes: recipe, options and folder, the digest of its settings, and how long the
seeds that are left will take. Few labels: a share of the rows, the same in every role, and subsets times seeds with their
spread. What a training text shares with test sets: in train.json, the exported encoder, its records; never "none" unseen."""

import json
import math
from dataclasses import replace
from datetime import timedelta
from statistics import fmean, stdev

import nli_files
import numpy as np
import pytest
import tiny_models
from clirun import cli  # noqa: F401
from scipy.stats import binomtest, chisquare
from training_runs import settings

import stsbench
from stsbench.data.fetch.sources import load_data
from stsbench.data.own.overlap import TESTS, shared_texts
from stsbench.data.sets.sentences import normalise
from stsbench.encoders.traits import texts_not_compared, texts_shared
from stsbench.errors import StsbenchError
from stsbench.evaluation.run_file import load_records
from stsbench.training.recipes.method_plan import load_plan
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows.batches import stream
from stsbench.training.rows.files import LABELLED
from stsbench.training.rows.stage_rows import open_data
from stsbench.training.runs import seed_runs
from stsbench.training.runs.finish import trained_as
from stsbench.training.runs.options import TrainOptions, TrainRequest, resolve
from stsbench.training.runs.prepare import make_backbone
from stsbench.training.runs.seed_runs import first_subset, train_runs, with_subset
from stsbench.training.runs.trained import Run


def test_steps_are_of_every_stage_that_has_more(tmp_path):
    """Also where the precision is set, and the recipe is not changed for the device."""
    sets = ["precision=float32"]
    (tmp_path / "stages.yaml").write_text("extends: bert-base-semi\nstages: {prefix: {training: {max_steps: 50}}, "
                                          "joint: {training: {max_steps: 40}}}\n", "utf-8")
    request = TrainRequest("diffaug", recipe=str(tmp_path / "stages.yaml"), sets=sets, device="cpu",
                           settings={"training.max_steps": 45, "backbone.model": "minilm"})
    recipe = resolve(request, print)[0].recipe
    assert [recipe.stage_training(stage).max_steps for stage in ("prefix", "joint")] == [45, 40]
    request = replace(request, sets=[*sets, "stages.prefix.training.max_steps=60"])
    assert resolve(request, print)[0].recipe.stage_training("prefix").max_steps == 60

# --- what a record says of the settings ---
def test_digests_of_settings_are_what_they_were_and_of_what_has_an_effect_on_the_weights():
    # computed when every training was by torch's AdamW, which had no name
    for method, name, digest in (("simcse", "unsup-bert-base", "317e58652b303810"), ("mlm", "bert", "78d0587b6246f579"),
                                 ("diffaug", "bert-base-semi", "9f988b483ec470b6")):
        recipe, torchs = load_recipe(method, name), load_recipe(method, name, ["training.adam=torch"])
        assert trained_as(torchs)["settings"] == digest
        assert (trained_as(recipe)["settings"] == digest) == (recipe.training.adam == "torch") == (method == "mlm")
    # of the board's rows minilm-mlm32-sg-opt and -is-bert, which set the length that the recipes have changed since;
    # settings that came later are as nothing was
    sets = {"selection.every": 25, "selection.at_end": True, "precision": "bf16", "backbone.model": "runs/mlm32",
            "data.file": "wiki_sentences.txt", "training.max_steps": 100, "training.batch_size": 64,
            "training.learning_rate": 3e-5, "backbone.max_length": 32}
    for method, name, adam, digest in (("sg-opt", "bert-base", {}, "9b6c5eae246ca1a8"),
                                       ("is-bert", "bert-base-nli", {"training.adam": "torch"}, "e4403c75922511f6")):
        assert trained_as(load_recipe(method, name, (), {**sets, **adam}))["settings"] == digest
    plain = trained_as(load_recipe("simcse"))["settings"]
    for setting, same in (("backbone.layers=null", 1), ("backbone.layers=[0, 3]", 0), ("checkpoint_minutes=1.5", 1)):
        assert (trained_as(load_recipe("simcse", None, [setting]))["settings"] == plain) == same

# --- between the runs of several seeds ---
def test_the_mean_of_the_seeds_before_says_how_long_the_others_take(monkeypatch, tmp_path):
    """A training takes a minute more each time: 1, 2, 3, 4, 5; the two seeds that were there before do not count."""
    now = [0.0]

    def train(options, log, callback):
        if not options.resume:
            now[0] += 60.0 * (options.recipe.seed - 41)
        return {}

    monkeypatch.setattr(seed_runs, "train", train)
    monkeypatch.setattr(seed_runs, "summarise_seeds", lambda runs: {"seeds": len(runs)})
    monkeypatch.setattr(seed_runs, "as_started", lambda options: options)
    monkeypatch.setattr(seed_runs.time, "monotonic", lambda: now[0])
    for seed in (42, 43):
        (tmp_path / f"seed-{seed}").mkdir()
        (tmp_path / f"seed-{seed}/recipe.yaml").touch()
    lines = []
    seed_runs.train_seeds(TrainOptions(recipe=load_recipe("simcse"), output=tmp_path, resume=True), 5, lines.append, None)
    said = [f"about {timedelta(minutes=minutes)} for this{of}, by the seeds before"
            for minutes, of in ((6, " and 1 more"), (3.5, ""))]
    assert [line.partition("; ")[2] for line in lines] == [""] * 3 + said


ROWS = 1500


@pytest.fixture(scope="module", autouse=True)
def labelled(place):
    return nli_files.triplets(place, ROWS)


def values_of(place, **more):
    return nli_files.settings(place / "tiny", place / "text.txt", place / f"triplets-{ROWS}.csv", **more)


@pytest.fixture(scope="module")
def parts(place):
    """(recipe, plan, backbone) of a semi-supervised SimCSE, made once."""
    recipe = load_recipe("simcse", None, [], values_of(place))
    plan = load_plan(recipe)
    return recipe, replace(plan, options=plan.kind.Options(view="given")), make_backbone(recipe)


def drawn(parts, what=LABELLED, seed=42, **settings):
    """The rows of the triplets that these settings keep, what was said, and what was read."""
    recipe, plan, backbone = parts
    said: list[str] = []
    chosen = recipe.labelled.model_copy(update=settings)
    recipe = recipe.model_copy(update={"seed": seed})
    data = open_data(chosen, recipe, plan, backbone, said.append, what)
    return data.trained.tolist(), said, data


def test_each_row_is_kept_with_this_probability(parts):
    counts, places, seeds = [], np.zeros(10), range(12)
    for seed in seeds:
        rows, *_ = drawn(parts, share=0.1, sample_seed=seed)
        assert rows == sorted(set(rows))
        counts.append(len(rows))
        places += np.histogram(rows, bins=10, range=(0, ROWS))[0]
    assert binomtest(sum(counts), ROWS * len(seeds), 0.1).pvalue > 1e-3
    assert chisquare(places).pvalue > 1e-3  # no part of the file is preferred
    # a number of rows drawn row by row varies as a binomial one, where a fixed share would not vary at all
    assert 0.6 < stdev(counts) / math.sqrt(ROWS * 0.1 * 0.9) < 1.5
    first, second = (set(drawn(parts, share=0.1, sample_seed=seed)[0]) for seed in (0, 1))
    assert binomtest(len(first & second), len(first), 0.1).pvalue > 1e-3  # subsets have nothing to do with each other


def test_the_same_file_share_and_seed_give_the_same_rows_in_every_role(parts):
    labelled, said, _ = drawn(parts, share=0.05, sample_seed=3, seed=1)
    data, *_ = drawn(parts, "data", share=0.05, sample_seed=3, seed=2)
    assert labelled == data == drawn(parts, share=0.05, sample_seed=3)[0]
    name = f"triplets-{ROWS}.csv"
    assert f"{name}: {len(data)} of 1,500 rows, drawn by labelled.share 0.05, seed 3" in said
    assert drawn(parts, share=0.05, seed=3)[0] == data  # without a sample_seed it is the run's seed
    assert drawn(parts, share=0.05, seed=4)[0] != data
    assert drawn(parts)[0] == list(range(ROWS))


def test_a_subset_is_drawn_wherever_the_file_is_sampled(place):
    def recipe_of(**more):
        return load_recipe("simcse", None, [], values_of(place, **more))

    changed = with_subset(recipe_of(**{"labelled.share": 0.1, "data.sample": 20}), 7)
    assert (changed.labelled.sample_seed, changed.data.sample_seed) == (7, None)  # other text stays the same
    same = {"data.file": str(place / f"triplets-{ROWS}.csv"), "labelled.share": 0.1, "data.share": 0.1}
    changed = with_subset(recipe_of(**same, **{"stages.main.data.sample_seed": 5, "labelled.sample_seed": 5}), 7)
    assert changed.stage_data("main").sample_seed == changed.labelled.sample_seed == changed.data.sample_seed == 7
    with pytest.raises(StsbenchError) as error:
        with_subset(recipe_of(**same, **{"stages.main.data.sample_seed": 2, "labelled.sample_seed": 5}), 7)
    said = "--subsets: labelled.sample_seed is 5 and stages.main.data.sample_seed 2, both of "
    assert str(error.value).startswith(said) and "\n" not in str(error.value)
    changed = with_subset(recipe_of(**{"data.sample": 20}), 7)
    assert (changed.labelled.sample_seed, changed.data.sample_seed) == (None, 7)
    recipe = recipe_of(**{"labelled.share": 0.1, "labelled.sample_seed": 5})
    assert first_subset(recipe) == 5 and with_subset(recipe, 6).name == recipe.name
    assert first_subset(recipe_of(**{"data.share": 0.5})) == 0


def lines_of(parts, path, share, **settings):
    """The lines of the file on which the rows that are kept start."""
    rows, _, data = drawn(parts, file=str(path), share=share, sample_seed=3, **settings)
    return {data.store.line(row) for row in rows}


def test_rows_left_out_do_not_change_which_others_are_kept(parts, tmp_path):
    """Every third row equals the first, every fifth is blank, empty lines and texts of two lines shift the others."""
    path = tmp_path / "mixed.csv"
    texts = tiny_models.sentences(1800, longest=9, seed=8)
    rows = [texts[3 * i : 3 * i + 3] for i in range(600)]
    rows = [rows[0] if i % 3 == 0 else ["", *row[1:]] if i % 5 == 0 else row for i, row in enumerate(rows)]
    rows = [[*row, "odd" if i % 2 else "even"] for i, row in enumerate(rows)]
    for row in rows[::7]:
        row[1] += "\n"
    written = ["sent0,sent1,hard_neg,kind", *(",".join(f'"{text}"' for text in row) for row in rows)]
    path.write_text("".join(f"{line}\n\n" if i % 4 == 3 else f"{line}\n" for i, line in enumerate(written)))
    every = lines_of(parts, path, 0.3)
    assert 130 < len(every) < 230
    for left in ({"min_characters": 8}, {"drop_duplicates": True, "drop_blank": True, "where": {"kind": "even"}}):
        there = lines_of(parts, path, 1.0, **left)
        assert len(there) < 600
        assert lines_of(parts, path, 0.3, **left) == every & there
    assert lines_of(parts, path, 0.1) < every  # of a smaller share they are a part


def test_subsets_times_seeds(place, tmp_path, cli):
    """The command, its folders and figures; interrupted, it goes on."""
    more = {"labelled.share": 0.01, "training.max_steps": 1, "selection.by": "sts-b dev", "selection.every": 1}
    sets = [word for key, value in values_of(place, **more).items() for word in ("--set", f"{key}={json.dumps(value)}")]
    command = ("train", "simcse", "--output", tmp_path / "few", "--sample", "--device", "cpu", *sets)
    code, out, err = cli(*command, "--subsets", "2", "--seeds", "2")
    assert code == 0, err
    stored = json.loads((tmp_path / "few" / "subsets.json").read_text())
    summaries = {f"{subset}/{seed}": json.loads((tmp_path / f"few/subset-{subset}/seed-{seed}/train.json").read_text())
                 for subset in (0, 1) for seed in (42, 43)}
    scores = {key: summary["best"]["score"] for key, summary in summaries.items()}
    assert (stored["subsets"], stored["seeds"]) == ([0, 1], [42, 43])
    dev = stored["dev"]
    assert dev["values"] == scores and dev["n"] == 4
    assert dev["mean"] == pytest.approx(fmean(scores.values())) and dev["sd"] == pytest.approx(stdev(scores.values()))
    means = [fmean([scores[f"{subset}/42"], scores[f"{subset}/43"]]) for subset in (0, 1)]
    assert list(dev["subsets"]["values"].values()) == pytest.approx(means)
    assert dev["subsets"]["sd"] == pytest.approx(stdev(means))
    rows = {key: summary["data"]["labelled"]["rows"] for key, summary in summaries.items()}
    assert rows["0/42"] == rows["0/43"] == stored["rows"]["0"]["labelled"] and rows["1/42"] == rows["1/43"]
    assert f"subset 0: main 60 rows, labelled {rows['0/42']} rows" in out and "sd of subsets" in out
    run = Run.open(tmp_path / "few")
    assert run.summary == stored and [part.recipe.labelled.sample_seed for part in run.runs] == [0, 0, 1, 1]
    assert {(row["subset"], row["seed"]) for row in run.rows} == {(0, 42), (0, 43), (1, 42), (1, 43)}
    assert f"{dev['mean']:.2f}" in str(run) and "subset 1: main" in str(run) and "2 subsets, 2 seeds" in repr(run)
    assert f"{dev['mean']:.2f}" in out and f"{dev['sd']:.2f}" in out and f"{dev['subsets']['sd']:.2f}" in out
    (tmp_path / "few" / "subset-1" / "seed-43" / "train.json").unlink()
    (tmp_path / "few" / "subsets.json").unlink()
    code, _, err = cli("train", "simcse", "--output", tmp_path / "few", "--resume", "--subsets", "2", "--seeds", "2")
    assert code == 0, err
    assert err.count("is finished: nothing to resume") == 3
    assert json.loads((tmp_path / "few" / "subsets.json").read_text())["dev"] == dev


# --- texts of test sets ---


def planted(folder, name="planted.txt"):
    """A text with five texts of a sample's test set as they stand, three in capitals and one twice."""
    tests = sorted(load_data("sts13/test", sample=True).texts, key=len)[-8:]
    lines = (folder / "text.txt").read_text("utf-8").splitlines()
    changed = [f"{text.upper()} !" for text in tests[5:]]
    (folder / name).write_text("\n".join([*lines[:30], *tests[:5], *changed, tests[0], *lines[30:]]) + "\n", "utf-8")
    return folder / name


def train(place, text, output, evaluate=(), **values):
    values = settings(place / "tiny", text, **{"training.max_steps": 2, "selection.by": "none", **values})
    request = TrainRequest("simcse", settings=values, output=output, device="cpu", sample=True, evaluate=evaluate)
    lines = []
    return train_runs(resolve(request, lambda line: None)[0], None, None, lines.append), lines


@pytest.fixture(scope="module")
def run(place, tmp_path_factory):
    """(folder, summary, lines printed) of a run on the planted text, tested on a user's own pairs, too."""
    folder, rows = tmp_path_factory.mktemp("planted-run") / "run", (place / "text.txt").read_text("utf-8").splitlines()
    pairs = ["sentence1,sentence2,score", f"{rows[0]},{rows[1]},1", "Nobody wrote this.,Nor this.,2", f"{rows[2]},New.,3"]
    (place / "own.csv").write_text("\n".join(pairs) + "\n", "utf-8")
    return folder, *train(place, planted(place), folder, [f"sts:{place / 'own.csv'}"])


def test_training_encoder_and_records_have_what_a_set_intersection_finds(run, place):
    folder, summary, printed = run
    about = json.loads((folder / "train.json").read_text("utf-8"))["overlap"]["main"]
    assert about == summary["overlap"]["main"] and about["text"] == "planted.txt" and about["sample"] is True
    lines = {line.strip() for line in (place / "planted.txt").read_text("utf-8").splitlines()}
    plain = {normalise(line) for line in lines} - {""}
    for name in TESTS:
        data = load_data(name, sample=True)
        texts = {text for text in data.texts if text} if not hasattr(data, "splits") or "test" not in data.splits else {
            text for side in (data.first, data.second) for text, split in zip(side, data.splits, strict=bool(side))
            if split == "test" and text}
        exact = {text for text in texts if text.strip() in lines}
        other = {text for text in texts - exact if normalise(text) in plain}
        counts = about["shared"].get(name, {"texts": len(texts), "exact": 0, "normalised": 0})
        assert (counts["texts"], counts["exact"], counts["normalised"]) == (len(texts), len(exact), len(other)), name
        assert (name in about["none"]) == (not exact and not other)
    count = len(load_data("sts13/test", sample=True).texts)
    assert about["shared"]["sts13/test"] == {"texts": count, "exact": 5, "normalised": 3, "rows": 9}
    assert about["looked_for"] == ["exact", "normalised"] and about["not_looked_for"] == []
    numbered = enumerate(map(str.strip, (place / "planted.txt").read_text("utf-8").splitlines()), 1)
    (same,) = shared_texts(((row, text) for row, text in numbered if text), [load_data("sts13/test", sample=True)])
    assert {key: getattr(same, key) for key in ("texts", "exact", "normalised", "rows")} == about["shared"]["sts13/test"]
    assert stsbench.load_encoder(str(folder)).traits.training_overlap == (about,)
    records = [record for _, record in load_records(folder / "eval")]
    assert records and all(record.provenance["training_overlap"] == [about] for record in records)
    assert any(line.startswith("planted.txt: holds test texts: 8 of ") and "of sts13/test" in line for line in printed)
    (own,) = (record.data for record in records if record.data.id.startswith("own:"))  # data of the user's, too
    assert about["shared"][own.id] == {"texts": 6, "exact": 3, "normalised": 0, "rows": 3}
    assert any("3 of 6 of own:own.csv" in line for line in printed)


def test_without_test_sets_nothing_is_said_to_be_absent(place, tmp_path, monkeypatch):
    monkeypatch.setattr("stsbench.training.rows.overlap.available_tests", lambda **where: ([], [*TESTS]))
    summary, lines = train(place, place / "text.txt", tmp_path / "run")
    about = summary["overlap"]["main"]
    assert (about["looked_for"], about["shared"], about["none"], about["not_looked_for"]) == ([], {}, [], [*TESTS])
    assert f"text.txt: not compared with {', '.join(TESTS)}" in lines
    monkeypatch.undo()  # sentences within documents are not looked for
    more = {"data.lines_per_row": 3, "training.max_steps": 1}
    about = train(place, planted(place), tmp_path / "documents", **more)[0]["overlap"]["main"]
    assert about["none"] == [] == about["looked_for"] and about["not_looked_for"] == [*TESTS]


def test_only_rows_that_are_trained_on_count(place, tmp_path):
    summary, _ = train(place, planted(place), tmp_path / "run", **{"data.held_out": 35, "selection.by": "held-out"})
    text = (place / "planted.txt").read_text("utf-8").splitlines()
    order = stream(42, "held-out rows").permutation(np.arange(len(text)))
    trained, held_out = ({text[row] for row in rows} for rows in (order[:-35], order[-35:]))
    exact = (trained - held_out) & set(load_data("sts13/test", sample=True).texts)
    assert summary["overlap"]["main"]["shared"]["sts13/test"]["exact"] == len(exact) < 5


def test_a_run_on_an_exported_encoder_says_what_that_one_was_trained_on(run, place, tmp_path):
    folder, summary, _ = run
    train(place, place / "text.txt", tmp_path / "later", **{"backbone.model": str(folder / "best")})
    first, second = stsbench.load_encoder(str(tmp_path / "later")).traits.training_overlap
    assert first == summary["overlap"]["main"] and second["text"] == "text.txt"


ONE = {"text": "a.txt", "shared": {"sts12/test": {"texts": 9, "exact": 1, "normalised": 2, "rows": 4}},
       "none": ["sick-r/test"], "not_looked_for": ["mr"]}


def test_a_set_is_known_by_its_sentences():
    for id, shared, unknown in (
        ("sts12/test", 1, []), ("mteb:STS12", 1, []), ("sick-r/test", 0, []), ("mr", 0, ["a.txt"]), ("own:1", 0, ["a.txt"]),
        ("sick-e/splits", 0, []), ("sick-r/mteb", 0, ["a.txt"]), ("mteb:SICK-R", 0, ["a.txt"]),
    ):
        assert len(texts_shared([ONE], id)) == shared and texts_not_compared([ONE], id) == unknown
        assert texts_shared([ONE], id, sample=True) == [] and texts_not_compared([ONE], id, sample=True) == ["a.txt"]
    one = {**ONE, "shared": {"sick-r/test": {"texts": 9, "exact": 1, "normalised": 0, "rows": 1}}}
    assert len(texts_shared([one], "sick-r/mteb")) == 1 == len(texts_shared([one], "mteb:SICK-R"))  # all of SICK
    assert texts_not_compared([one], "sick-r/mteb") == []
