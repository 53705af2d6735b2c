"""Development scores during training are those of the exported encoder; one that is undefined counts as the worst.
Rows that go together: batches of whole groups, views of other numbers of texts, candidates to choose from."""

import math
import shutil
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import training_runs
from clirun import SAMPLE
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score
from torch import nn, tensor

import stsbench
from stsbench import registry
from stsbench.data.fetch import sources
from stsbench.errors import DataError, DegenerateError, StsbenchError
from stsbench.methods.simcse.method import SimCSE
from stsbench.training.api import Inference, Method, Needs, Options, Term, Views
from stsbench.training.api.checks import check_candidates
from stsbench.training.engine import selection
from stsbench.training.engine.loop import Loop
from stsbench.training.engine.selection import Selection, held_out_score
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.recipes.sections import TrainingSettings
from stsbench.training.rows.batches import Batches
from stsbench.training.runs.finish import trained_as
from stsbench.training.runs.report import best_dev, read_log, summarise_seeds

FIRST = ["a cat runs .", "a dog eats food", "a man sleeps", "the woman sleeps", "the red park", "a big dog"]
SECOND = ["the cat runs .", "the man plays a guitar", "food", "a man sleeps", "a blue park", "small food"]
GOLD = {"sts": [4.5, 0.5, 3.0, 2.0, 0.0, 1.0], "pairs": [0, 1, 0, 1, 1, 0]}


def run(place, output, method="simcse", resume=False, evaluate=(), data_dir=None, **values):
    values = training_runs.settings(place / "tiny", place / "text.txt", **values)
    return stsbench.train(method, output=output, settings=values, sample=data_dir is None, data_dir=data_dir, device="cpu",
                          resume=resume, evaluate=evaluate)


def lines(folder, kind="dev"):
    return [line for line in training_runs.log_of(folder) if line["kind"] == kind]


def write(path, kind, first=FIRST, second=SECOND, gold=None):
    rows = zip(first, second, GOLD[kind] if gold is None else gold, strict=True)
    table = ["\t".join(map(str, row)) for row in (("sentence1", "sentence2", {"sts": "score"}.get(kind, "label")), *rows)]
    path.write_text("\n".join(table) + "\n", "utf-8")
    return path


def cosines(folder, first, second, **options):
    encoder = stsbench.load_encoder(str(folder), **options)
    u, v = (encoder.encode(list(texts)).astype(float) for texts in (first, second))
    return (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)


def test_the_score_is_the_exported_encoders_own_and_before_training_the_backbones(place):
    sets = [sources.load_data(name, sample=True) for name in ("stsb/dev", "sick-r/trial")]
    summary = run(place, place / "avg", **{"selection.by": "avg_sts", "training.max_steps": 4})

    def score(folder, **options):
        return 100 * np.mean([spearmanr(cosines(folder, data.first, data.second, **options), data.gold).statistic
                              for data in sets])

    assert summary["best"]["score"] == pytest.approx(score(place / "avg"), abs=1e-3)
    assert summary["dev_data"] == {data.id: data.digest for data in sets}
    assert summary["selected_by"] == "avg_sts (sample)"
    dev = lines(place / "avg")
    best = [line for line in dev if line["best"]][-1]
    assert (best["step"], best["score"]) == (summary["best"]["step"], summary["best"]["score"]) and dev[0]["step"] == 0
    assert dev[0]["score"] == pytest.approx(score(place / "tiny", pooler="cls"), abs=1e-3)


class Pooled(Method):
    """The backbone as it is, whose development scores are of another encoder than the one that is tested."""

    def dev_inference(self):
        return Inference(self.backbone.model, self.backbone.tokenizer, "mean")


@pytest.fixture
def method(backbone):
    return Pooled(backbone.eval(), Options())


def test_transfer_dev_is_the_protocols_mean(place, method, tmp_path, monkeypatch):
    """Of two of its tasks."""
    kind, some = registry.resolve("stsbench.protocols", "transfer"), {"MR": "mr", "TREC": "trec"}
    monkeypatch.setattr(kind, "tasks", lambda self: some)
    chosen = Selection("transfer dev", sample=True)
    score, _ = chosen(method)
    monkeypatch.undo()
    result = stsbench.evaluate(str(place / "tiny"), output=tmp_path, protocols=["transfer"], tasks=[*some], pooler="mean",
                               sample=True)
    accuracies = [row.value for row in result.rows if row.metric == "dev accuracy" and row.task in some]
    assert len(accuracies) == 2 and score == pytest.approx(np.mean(accuracies), abs=0.5)
    assert set(chosen.digests) == set(some.values())


@pytest.mark.parametrize("kind", ["sts", "pairs"])
def test_pairs_of_ones_own_choose_by_scipys_correlation_or_sklearns_average_precision(place, method, tmp_path, kind):
    chosen = Selection(f"{kind}:{write(tmp_path / 'pairs.tsv', kind)}", sample=True)
    score, more = chosen(method)
    similarities = cosines(place / "tiny", FIRST, SECOND, pooler="mean")
    expected = (spearmanr(similarities, GOLD[kind])[0] if kind == "sts"
                else average_precision_score(GOLD[kind], similarities))
    assert score == pytest.approx(100 * expected, abs=1e-9) and 0 < abs(expected) < 1 and more == {}
    assert chosen.name == f"{kind}:pairs.tsv" and not chosen.sample


def test_the_folder_of_the_pairs_makes_no_other_training_and_their_kind_does():
    digests = [trained_as(load_recipe("simcse", None, [f"selection.by={by}"]))["settings"] for by in (
        "sts:/a/dev.tsv", "sts:/b/dev.tsv", "pairs:/a/dev.tsv", "pairs:dev.tsv", "sts:/a/other.tsv")]
    assert digests[0] == digests[1] and digests[2] == digests[3] and len(set(digests)) == 3


def test_pairs_of_a_test_set_choose_no_weights(place, tmp_path):
    """Whatever their scores and order, and either way round; some of them alone are a warning. The user's own, too."""
    test = sources.load_data("stsb/test", sample=True)
    rows = [*zip(test.second, test.first, (int(gold > 2) for gold in test.gold), strict=True)]

    def chosen(pairs):
        return Selection(f"pairs:{write(tmp_path / 'pairs.tsv', 'pairs', *zip(*pairs, strict=True))}", sample=True)

    with pytest.raises(DataError, match="holds the pairs of stsb/test, a test set"):
        chosen(rows[::-1])
    own = [*zip(FIRST, SECOND, GOLD["pairs"], strict=True)]
    holds = f"selection.by pairs:pairs.tsv: it holds 9 of the {len(set(rows))} pairs of stsb/test, a test set"
    assert [line for line in chosen([*rows[:9], *own]).warnings if line.startswith(holds)]
    assert not any("test set" in line for line in chosen(own).warnings)
    by = f"pairs:{tmp_path / 'pairs.tsv'}"
    with pytest.raises(DataError, match=r"holds the pairs of own:pairs\.tsv, a test set"):
        run(place, tmp_path / "run", evaluate=[by], **{"selection.by": by})
    assert not (tmp_path / "run" / "recipe.yaml").exists()


def test_held_out_rows_are_not_trained_on_and_a_loss_that_is_nan_is_not_the_best(place, monkeypatch):
    rows_seen, calls = {True: set(), False: set()}, []
    real, real_score = SimCSE.views, selection.held_out_score

    def score(*arguments):
        calls.append(None)
        return math.nan if len(calls) == 2 else real_score(*arguments)

    def views(self, rows, rng):
        rows_seen[self.training] |= set(rows.rows)
        return real(self, rows, rng)

    monkeypatch.setattr(SimCSE, "views", views)
    monkeypatch.setattr(selection, "held_out_score", score)
    summary = run(place, place / "held", **{"selection.by": "held-out", "data.held_out": 20, "training.batch_size": 8})
    assert len(rows_seen[False]) == 20 and len(rows_seen[True]) == 40 and not rows_seen[True] & rows_seen[False]
    assert (summary["data"]["main"]["rows"], summary["data"]["main"]["held_out"]) == (40, 20)
    dev = lines(place / "held")
    assert dev[1]["score"] is None
    scores = [line["score"] for line in (dev[0], *dev[2:])]
    assert all(score < 0 for score in scores)  # the loss, negated: more is better
    assert summary["best"]["score"] == max(scores[1:-1] if dev[-1]["step"] % 4 else scores[1:])


REAL = selection.correlation


def with_similarity(value):
    return lambda similarity, *arguments: REAL(np.full_like(similarity, value), *arguments)


COLLAPSED = with_similarity(0)


def break_scores(monkeypatch, faults):
    """faults: number of a development score (0 is before training) -> what happens in its place."""
    calls = []

    def correlate(*arguments):
        calls.append(None)
        return faults.get(len(calls) - 1, REAL)(*arguments)

    monkeypatch.setattr(selection, "correlation", correlate)


def test_an_undefined_score_counts_as_the_worst_and_is_read_and_resumed(place, tmp_path, monkeypatch):
    """All vectors one, infinite, refused by the encoder, NaN; also the score before training."""
    refused = Mock(side_effect=DegenerateError("dev returned NaN or infinity for 2 of 80 texts, the first: 'a cat'"))
    break_scores(monkeypatch, {0: COLLAPSED, 1: COLLAPSED, 2: with_similarity(np.inf), 3: refused, 4: lambda *_: math.nan,
                               6: COLLAPSED})
    values = {"selection.every": 1, "training.max_steps": 6}
    summary = run(place, tmp_path / "out", **values)
    undefined = [line["step"] for line in lines(tmp_path / "out") if line["score"] is None and line["undefined"]]
    assert undefined == [0, 1, 2, 3, 4, 6] and summary["best"]["step"] == 5
    assert summary["undefined"] == [{"stage": "main", "step": step} for step in undefined]
    assert summary["exported"] == "step 5" and (tmp_path / "out" / "best" / "config.json").is_file()
    log = read_log(tmp_path / "out" / "log.jsonl")
    scored = [line["step"] for line in log if line["kind"] == "dev" and line["score"] is not None]
    assert scored == [5] and best_dev(log)["step"] == 5
    assert summarise_seeds([tmp_path / "out"])["dev_last"] is None
    (tmp_path / "out" / "train.json").unlink()
    again = run(place, tmp_path / "out", resume=True, **values)
    assert again["best"] == summary["best"] and again["undefined"] == summary["undefined"]


def test_without_any_score_the_last_step_is_kept(place, tmp_path, monkeypatch):
    break_scores(monkeypatch, dict.fromkeys(range(100), COLLAPSED))
    summary = run(place, tmp_path / "out", **{"training.max_steps": 2})
    assert summary["best"] is None and summary["exported"] == "the last step, as no development score is defined"
    assert stsbench.load_encoder(str(tmp_path / "out")).encode(["a cat"]).shape[0] == 1


@pytest.mark.parametrize("changed", [{4: "3.0"}, {5: "a cat", 6: "a dog"}])
def test_dev_data_that_give_no_encoder_a_score_are_an_error(place, tmp_path, changed):
    shutil.copytree(SAMPLE, tmp_path / "data")
    path = next((tmp_path / "data").rglob("sts-dev.csv"))
    rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
    path.write_text("\n".join("\t".join(changed.get(at, cell) for at, cell in enumerate(row)) for row in rows), "utf-8")
    with pytest.raises(StsbenchError, match="all gold scores or all pairs are one"):
        run(place, tmp_path / "out", data_dir=tmp_path / "data")
    assert not (tmp_path / "out").exists()


WEIGHTS = {"tokens": 0.5, "rows": 2.0, "pairs": 1.0}


class Counted(Method):
    """A batch is its terms: name -> (value, items), and maybe a weight."""

    def __init__(self):
        nn.Module.__init__(self)

    def forward(self, batch):
        return {name: Term(tensor(value), items, *(weight or [WEIGHTS[name]]))
                for name, (value, items, *weight) in batch.items()}


def score(batches):
    return held_out_score(Counted(), iter(batches))


def test_a_weight_that_is_the_size_of_the_batch_does_not_weigh_its_items():
    """As that of a loss that is a sum over the batch: the rows of a last, small batch count as much as the others."""
    pairs = (1.19, 0.0), (1.0, 4.0)
    better, worse = ([{"pairs": (large, 60, 60.0)}, {"pairs": (small, 3, 3.0)}] for large, small in pairs)
    assert score(better) == pytest.approx(-(1.19 * 60 / 63) * (3600 + 9) / 63)
    assert score(better) > score(worse)


@settings(max_examples=30)
@given(st.lists(st.fixed_dictionaries(dict.fromkeys(WEIGHTS, st.lists(st.floats(-8, 8, width=32), max_size=6))),
                min_size=1, max_size=5))
def test_it_is_the_mean_over_items_however_they_are_batched(batches):
    """The items of each term, in batches and as one; a term without an item in a batch, or in any, changes nothing."""
    together = {name: [value for batch in batches for value in batch[name]] for name in WEIGHTS}
    if not any(together.values()):
        return
    expected = -sum(WEIGHTS[name] * np.mean(values) for name, values in together.items() if values)
    for parts in (batches, [together]):
        terms = [{name: (float(np.mean(values)) if values else 0.0, len(values)) for name, values in part.items()}
                 for part in parts]
        assert score(terms) == pytest.approx(expected, abs=1e-4)


LOGGED = """
from stsbench.training.api import Method, Term, Views

class Toy(Method):
    steps = 0

    def views(self, rows, rng):
        return Views([rows.ids("sentence")])

    def forward(self, batch):
        self.steps += 1
        zero = self.vectors(batch.ids, batch.mask).sum() * 0
        rare = Term(zero + 4, 2) if self.steps % 2 else Term(zero, 0)
        terms = {"main": Term(zero + 1, len(batch)), "rare": rare, "never": Term(zero, 0)}
        return {**terms, "drawn": Term(zero + 3, len(batch))} if self.steps % 2 else terms
"""


def test_a_step_without_an_item_of_a_term_has_no_mean_of_it_in_the_log(place, tmp_path):
    """Its zeros would halve the mean; the step's loss stays their sum."""
    (tmp_path / "toy.py").write_text(LOGGED, "utf-8")
    (tmp_path / "toy.yaml").write_text("backbone: {model: x}\n", "utf-8")
    values = {"backbone.model": str(place / "tiny"), "data.file": str(place / "text.txt"), "selection.by": "none",
              "training.batch_size": 8, "training.max_steps": 4, "training.epochs": 9}
    stsbench.train(f"{tmp_path / 'toy.py'}:Toy", output=tmp_path / "out", recipe=tmp_path / "toy.yaml", settings=values,
                   device="cpu")
    (line,) = lines(tmp_path / "out", "train")
    assert line["terms"] == {"main": 1.0, "rare": 4.0, "drawn": 3.0} and line["loss"] == (8 + 1) / 2


class Paired(Method):
    chosen = None

    @classmethod
    def needs(cls, options):
        return Needs(group_size=2)

    def candidates(self):
        return {name: Inference(self.backbone.model, self.backbone.tokenizer, name) for name in ("cls", "mean", "max")}

    def choose(self, name):
        self.chosen = name


@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_hold_whole_groups(drop_last):
    """25 rows in groups of 3, 9 a batch: the last batch has two groups, and one row is left over."""
    settings = TrainingSettings(batch_size=9, drop_last=drop_last, epochs=2)
    made = Batches(np.arange(25), settings, seed=1, group=3)
    sizes = [len(part) for step in range(made.steps_an_epoch) for part in made.step(step)]
    assert sizes == ([9, 9] if drop_last else [9, 9, 6]) and made.dropped == (7 if drop_last else 1)
    first = np.concatenate([part for step in range(made.steps_an_epoch) for part in made.step(step)])
    assert len(set(first.tolist())) == len(first) == 25 - made.dropped
    plain = Batches(np.arange(25), settings, seed=1)  # the order is that of rows without groups
    assert np.array_equal(plain.step(0)[0], made.step(0)[0])


def test_more_processes_than_examples_and_candidates_that_are_none(backbone):
    loop = SimpleNamespace(accelerator=SimpleNamespace(num_processes=3))
    with pytest.raises(StsbenchError, match=r"a batch has 2 examples for 3 processes: set training.drop_last"):
        Loop._share(loop, Views([backbone.tokenise(["a cat", "a dog"])]))
    method = Paired(backbone, Options())
    check_candidates(method, "sts-b dev")
    with pytest.raises(StsbenchError, match=r"paired chooses among cls, mean, max by .* selection\.by is none"):
        check_candidates(method, "none")
    method.candidates = lambda: {"one": backbone.model}
    with pytest.raises(StsbenchError, match=r"candidates.* must give name -> Inference"):
        check_candidates(method, "sts-b dev")


def test_the_best_candidate_is_chosen(backbone):
    method = Paired(backbone.eval(), Options())
    score, more = Selection("sts-b dev", sample=True)(method)
    assert set(more) == {"encoder", "encoders"} and list(more["encoders"]) == ["cls", "mean", "max"]
    assert len(set(more["encoders"].values())) == 3
    assert score == max(more["encoders"].values()) == more["encoders"][method.chosen] and more["encoder"] == method.chosen
    method.candidates = dict
    method.inference = lambda: Inference(backbone.model, backbone.tokenizer, "mean")
    alone, nothing = Selection("sts-b dev", sample=True)(method)
    assert alone == more["encoders"]["mean"] and nothing == {}
