"""The files that rows are read from: the catalog's scored pairs, what is said of triplets, texts that are too many to be
tokenised before the first step, and rows held out of ordered text. Batches are a function of seed and step; shares of
several processes put together are the whole batch."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
import training_runs
from hypothesis import given, settings
from hypothesis import strategies as st
from training_runs import log_of, weights_of

import stsbench
from stsbench.data.fetch import sources
from stsbench.data.text.store import open_store
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import IGNORED, Views
from stsbench.training.recipes.method_plan import load_plan
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.recipes.sections import TrainingSettings
from stsbench.training.rows import stage_rows
from stsbench.training.rows.batches import Batches, TokenBatches, split_shares, to_batch
from stsbench.training.rows.files import SetPlace, catalog_file
from stsbench.training.rows.stage_rows import open_rows, shared_words
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.prepare import make_backbone
from stsbench.training.runs.run import train

PACKAGED = Path(stsbench.__file__).parent / "data" / "sample"


@pytest.fixture(autouse=True)
def nothing_at_hand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STSBENCH_DATA", raising=False)


@pytest.mark.parametrize(("name", "low"), [("stsb/train", 0), ("sick-r/train", 1)])
def test_the_rows_of_a_catalogs_set_are_those_of_the_set(name, low):
    lines = []
    file = catalog_file(name, SetPlace(sample=True), lines.append)
    pairs, store = sources.load_data(name, sample=True), open_store(file)
    every = range(len(store))
    assert (*store.texts("sentence1", every),) == pairs.first and (*store.texts("sentence2", every),) == pairs.second
    assert store.scores(every).tolist() == pairs.gold.tolist() and low <= min(pairs.gold) and max(pairs.gold) <= 5
    assert lines == [f"{name}: {len(pairs)} pairs from sample"]
    assert catalog_file(name, SetPlace(sample=True), lines.append) == file
    assert catalog_file("mine.tsv", SetPlace(), pytest.fail) is None


def test_a_catalogs_set_in_a_folder_of_ones_own_is_another_file(tmp_path):
    """What is not the catalog's file is said; another file is another cached one."""
    lines = []
    first = catalog_file("stsb/train", SetPlace(PACKAGED), lines.append)
    assert lines[0].startswith("warning: ") and "sts-train.csv differs from the file known to the catalog" in lines[0]
    mine = tmp_path / "data" / "downstream" / "STS" / "STSBenchmark"
    mine.mkdir(parents=True)
    text = (PACKAGED / "downstream" / "STS" / "STSBenchmark" / "sts-train.csv").read_text("utf-8")
    (mine / "sts-train.csv").write_text("\n".join(text.splitlines()[:9]) + "\n", "utf-8")
    second = catalog_file("stsb/train", SetPlace(tmp_path / "data"), lines.append)
    assert second != first and second.name == "stsb-train.jsonl" and len(open_store(second)) == 9


@pytest.mark.parametrize(("rows", "line"), [
    # 2 of 4 words and 2 of 2; 0 of 6 and 1 of 3
    ([("A cat sleeps", "a cat naps", "no dog barks"), ("it rains", "it rains", "it snows")],
     "words shared with anchor (Jaccard, 2 rows): positive 0.75, negative 0.17; 1 with two equal texts"),
    ([("it is even", "something else", "it is not odd")] * 1200,
     "words shared with anchor (Jaccard, 1,000 rows): positive 0.00, negative 0.40; 0 with two equal texts")])
def test_what_triplets_share_is_said(tmp_path, rows, line):
    with (tmp_path / "triplets.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("sent0", "sent1", "hard_neg"), *rows])
    assert shared_words(open_store(tmp_path / "triplets.csv")) == line


def test_tokens_on_demand_give_the_same_weights(tmp_path, monkeypatch):
    values = training_runs.settings(
        tiny_models.build(tmp_path / "tiny", pooler=False, layers=1), training_runs.make_text(tmp_path),
        **{"selection.by": "none", "training.order": "length", "training.max_steps": 2, "data.held_out": 5})
    lines = {}
    for name, limit in (("stored", 1_000_000), ("live", 59)):
        monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / name / "cache"))
        monkeypatch.setattr(stage_rows, "_TOKENISED_FIRST", limit)
        recipe, lines[name] = load_recipe("simcse", None, [], values), []
        train(TrainOptions(recipe=recipe, output=tmp_path / name / "run", device="cpu"), lines[name].append)
    assert weights_of(tmp_path / "live" / "run") == weights_of(tmp_path / "stored" / "run")
    assert log_of(tmp_path / "live" / "run") == log_of(tmp_path / "stored" / "run")
    assert [line for line in lines["live"] if "text.txt: 60 texts, each tokenised when it is needed; about " in line]
    built = {name: sum(line.startswith("tokenising ") for line in printed) for name, printed in lines.items()}
    assert built == {"stored": 1, "live": 1}  # batches by length need the lengths of all
    assert json.loads((tmp_path / "live/run/train.json").read_text())["truncated"] == {"main": {"sentence": None}}

# --- rows held out of ordered text: none that is trained on holds or reads a text that one of them holds or reads ---
@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """40 documents of one to six sentences, some of which stand in several; a model."""
    place = tmp_path_factory.mktemp("ordered")
    tiny_models.build(place / "tiny", pooler=False)
    rng, pool = np.random.default_rng(0), tiny_models.sentences(110, longest=9)
    documents = [[pool[i] for i in rng.integers(0, len(pool), rng.integers(1, 7))] for _ in range(40)]
    (place / "documents.txt").write_text("\n\n".join("\n".join(texts) for texts in documents) + "\n", "utf-8")
    return place, documents


def opened(place, method="simcse", **values):
    """(the rows of the only stage, what was said)."""
    folder, said = place[0], []
    recipe = load_recipe(method, None, [], {"backbone.model": str(folder / "tiny"), "data.contiguous": True,
                                            "data.file": str(folder / "documents.txt"), **values})
    plan = load_plan(recipe)
    (data,) = open_rows(recipe, plan, make_backbone(recipe), plan.stages, said.append).values()
    return data, said


@pytest.mark.parametrize(("method", "options", "reach"), [
    ("simcse", {"options.view": "next3"}, 3),
    ("diffcse", {"options.sentence": "same+next", "options.task": "conditional_mlm", "options.generator": None}, 1),
    ("cmlm", {}, 1)])
def test_no_text_of_the_held_out_rows_is_read_in_training(place, method, options, reach):
    data, said = opened(place, method, **{"data.held_out": 4, **options})
    # [row] -> the texts that a batch of it may read: its own, first, and up to `reach` more of its document
    read = [texts[at : at + 1 + reach] for texts in place[1] for at in range(len(texts))]
    assert data.store.texts("sentence", range(len(data.store))) == [texts[0] for texts in read]
    usable = [row for row, texts in enumerate(read) if len(texts) > 1]
    kept_back = {text for row in data.held_out for text in read[row]}
    assert len(data.held_out) == 4 and set(data.held_out) <= set(usable)
    expected = [row for row in usable if row not in set(data.held_out) and not kept_back & {*read[row]}]
    assert data.trained.tolist() == expected and 0 < len(expected) < len(usable) - 4
    assert f"{len(read) - len(usable)} of {len(read)} rows cannot be used by these options" in " ".join(said)
    again, _ = opened(place, method, **{"data.held_out": 4, **options})
    assert np.array_equal(again.held_out, data.held_out)


def test_what_drop_duplicates_leaves_has_new_neighbours(place):
    """Also in what a method reads, not only in the store."""
    data, _ = opened(place, "cmlm", **{"data.drop_duplicates": True})
    seen, kept = set(), []
    for texts in place[1]:
        fresh = [text for text in dict.fromkeys(texts) if text not in seen]
        seen |= set(texts)
        kept.append(fresh)
    pairs = {(texts[at], texts[at + 1]) for texts in kept for at in range(len(texts) - 1)}
    rows = data.rows(data.trained)
    followed = set(zip(rows.texts("sentence"), rows.at(rows.following(1)).texts("sentence"), strict=True))
    assert followed == pairs and len(data.trained) == len(pairs)


SMALL = st.integers(1, 7)


def batches(n, least=1, processes=1, lengths=None, **values):
    return Batches(np.arange(100, 100 + n), TrainingSettings(**values), 42, least=least, processes=processes,
                   lengths=lengths)


@settings(deadline=None, max_examples=30)
@given(n=st.integers(1, 60), size=SMALL, accumulate=SMALL, length_order=st.booleans())
def test_an_epoch_holds_every_row_once(n, size, accumulate, length_order):
    lengths = np.random.default_rng(n).integers(1, 30, 200)
    one, again = (batches(n, batch_size=size, accumulate=accumulate, order="length" if length_order else "random",
                          lengths=lengths) for _ in "12")
    assert one.steps == one.steps_an_epoch == math.ceil(math.ceil(n / size) / accumulate)
    parts = [part for step in range(one.steps) for part in one.step(step)]
    assert sorted(np.concatenate(parts)) == list(range(100, 100 + n))
    last = one.steps - 1  # a step does not depend on the steps before
    assert [part.tolist() for part in again.step(last)] == [part.tolist() for part in one.step(last)]
    assert sorted(map(len, parts), reverse=True) == [size] * (n // size) + ([n % size] if n % size else [])
    assert all(len(one.step(step)) <= accumulate for step in range(one.steps))


def token_batches(n, lengths, least=1, group=1, **values):
    return TokenBatches(np.arange(n), TrainingSettings(**values), 42, lengths=lengths, least=least, processes=1, group=group)


@settings(deadline=None, max_examples=40)
@given(n=st.integers(6, 60), size=st.integers(3, 9), budget=st.integers(5, 120), accumulate=SMALL, group=st.integers(1, 3),
       length_order=st.booleans(), epochs=st.sampled_from([1.0, 2.5, 3.0]))
def test_batches_of_tokens_hold_every_row_once_and_no_more_than_the_budget(
        n, size, budget, accumulate, group, length_order, epochs):
    lengths = np.random.default_rng(n).integers(1, 30, n)
    given = {"least": 2, "group": group, "batch_size": size * group, "batch_tokens": budget, "epochs": epochs,
             "accumulate": accumulate, "order": "length" if length_order else "random"}
    one = token_batches(n, lengths, **given)
    parts, passes = {}, []
    for step in range(one.steps):
        passes += [one.forward_pass(step, number) for number in range(len(one.step(step)))]
        assert 0 < len(one.step(step)) <= accumulate
        parts.setdefault(int(one.epoch(step)), []).extend(one.step(step))
    assert passes == list(range(len(passes)))
    assert len(parts) == math.ceil(epochs)
    fewest = group * math.ceil(2 / group)
    for epoch, of_epoch in parts.items():
        rows = np.concatenate(of_epoch)
        assert len(set(rows.tolist())) == len(rows)
        if epoch + 1 <= epochs:
            assert len(rows) > n - group - fewest
        for part in of_epoch:
            assert len(part) % group == 0 and fewest <= len(part) <= size * group
            assert len(part) == fewest or len(part) * lengths[part].max() <= budget
    for step in (one.steps - 1, 0):  # whatever was asked for before
        again = token_batches(n, lengths, **given)
        assert [part.tolist() for part in again.step(step)] == [part.tolist() for part in one.step(step)]


def test_a_batch_of_tokens_takes_all_that_fit():
    lengths = np.full(40, 5)
    one = token_batches(40, lengths, batch_size=16, batch_tokens=50)
    assert [len(part) for step in range(one.steps) for part in one.step(step)] == [10] * 4
    assert token_batches(40, lengths, batch_size=8, batch_tokens=50).steps == 5
    many = token_batches(41, np.full(41, 5), batch_size=16, batch_tokens=50, drop_last=True, epochs=1.5)
    assert (many.steps, many.dropped) == (6, 1)
    with pytest.raises(StsbenchError, match=r"10 rows do not fill one batch by training\.batch_tokens, and the last one is"):
        token_batches(10, lengths, batch_size=16, batch_tokens=50, drop_last=True)


def test_steps_and_the_last_batch():
    for values, steps in (({"epochs": 3}, 21), ({"epochs": 0.5}, 4), ({"max_steps": 5}, 5), ({"accumulate": 2}, 4),
                          ({"epochs": 3, "max_steps": 100}, 21), ({"accumulate": 2, "epochs": 2}, 8)):
        assert batches(100, batch_size=15, **values).steps == steps
    one = batches(50, batch_size=50, epochs=3)  # epochs, seeds and uses differ
    more = (Batches(np.arange(100, 150), TrainingSettings(batch_size=50), seed, use=use)
            for seed, use in ((43, "order"), (42, "labelled order"), (43, "labelled order")))
    orders = [*(one.step(step)[0] for step in range(3)), *(each.step(0)[0] for each in more)]
    assert len({tuple(order) for order in orders}) == 6
    assert batches(65, batch_size=64).steps == 2
    assert batches(65, batch_size=64).dropped == 0
    assert batches(65, batch_size=64, drop_last=True).dropped == 1
    alone = batches(65, batch_size=64, least=2)  # one example has nothing to contrast with
    assert (alone.steps, alone.dropped) == (1, 1)
    assert batches(66, batch_size=64, least=2, processes=2).dropped == 0
    assert batches(66, batch_size=64, least=2, processes=3).dropped == 2


@settings(deadline=None, max_examples=30)
@given(count=st.integers(1, 20), processes=st.integers(1, 5), views=st.integers(1, 3), seed=st.integers(0, 99))
def test_shares_together_are_the_batch(count, processes, views, seed):
    if count < processes:
        return
    rng = np.random.default_rng(seed)
    tokens = [[rng.integers(5, 50, rng.integers(1, 9)).tolist() for _ in range(count)] for _ in range(views)]
    labels = [[[IGNORED] * (len(row) - 1) + [row[-1]] for row in view] for view in tokens]
    numbers = [rng.integers(0, 9, (count, 2, 2)) for _ in range(views)]
    made = Views(tokens, {"mlm_labels": labels, "mlm_ids": tokens}, labels=list(range(count)),
                 scores=[example / 3 for example in range(count)], by_row={"kept": numbers})
    seen = {}
    for rank in range(processes):
        shares = split_shares(count, processes, rank)
        batch = to_batch(made, shares, 0, torch.device("cpu"))
        assert len(batch) == shares.sizes[rank] and batch.mask.sum(1).max() == batch.ids.shape[1]
        for i in range(views * len(batch)):
            view, example = i // len(batch), shares.start + i % len(batch)
            length = int(batch.mask[i].sum())
            assert batch.ids[i, :length].tolist() == tokens[view][example]
            assert not batch.ids[i, length:].any() and not batch.mask[i, length:].any()
            assert batch.extra["mlm_labels"][i].tolist() == labels[view][example] + [IGNORED] * (batch.ids.shape[1] - length)
            assert batch.extra["mlm_ids"][i].tolist() == batch.ids[i].tolist()
            assert batch.by_row["kept"][i].tolist() == numbers[view][example].tolist()
            assert batch.scores[i % len(batch)].item() == example / 3 and batch.scores.dtype == torch.float64
            seen[view, example] = int(batch.labels[i % len(batch)])
    assert seen == {(view, example): example for view in range(views) for example in range(count)}
