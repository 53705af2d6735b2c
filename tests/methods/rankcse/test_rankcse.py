"""RankCSE's terms against loops over texts encoded one at a time, and what its teachers are to a run."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows, batch_of, make, total
from method_runs import StopAt, Stopped, cached_place, recipe_of, train
from shipped_recipes import one_line
from simcse_oracle import PLAIN, QUADRUPLES, TRIPLETS, cls, naive_info_nce, same

from stsbench.encoders.load import load_encoder
from stsbench.losses.ranking import consistency, listmle, listnet, without_own
from stsbench.methods.rankcse.method import RankCSE
from stsbench.methods.simcse.method import SimCSE
from stsbench.training.api.batch import Shares
from stsbench.training.api.ranking_options import RankingOptions
from stsbench.training.engine.objective import Ranked
from stsbench.training.recipes.method_plan import load_plan
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.rows.batches import to_batch

WORDS = {"model": "lexical:token-set"}
NONE = {"gamma": 0, "consistency": "none"}


def teachers(tiny_lm):
    return [{"model": str(tiny_lm), "settings": {"pooler": "mean"}, "weight": 0.5}, {**WORDS, "weight": 1.5}]


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def naive_teacher(tiny_lm, anchors, others):
    """[i][j] a quarter of the mean's cosine and three of the words', as float32 holds them."""
    encoder = load_encoder(str(tiny_lm), pooler="mean")
    vectors = {text: encoder.encode([text])[0].tolist() for text in (*anchors, *others)}

    def words(a, b):
        one, other = set(a.lower().split()), set(b.lower().split())
        return len(one & other) / math.sqrt(len(one) * len(other))

    return [[float(np.float32(0.25 * cosine(vectors[a], vectors[b]) + 0.75 * words(a, b))) for b in others] for a in anchors]


@pytest.mark.parametrize(("data", "options", "own"), [
    (PLAIN, {}, True), (PLAIN, {"loss": "listnet", "teacher_temperature": 0.2}, False),
    (PLAIN, {"loss": "listnet", "self_column": "in", "student_temperature": 0.3}, True),
    (PLAIN, {"self_column": "out"}, False),
    (TRIPLETS, {"view": "given", "loss": "listnet"}, False), (QUADRUPLES, {"view": "given"}, True),
])
def test_every_term_is_that_of_the_equations(tiny_lm, data, options, own):
    method = make(RankCSE, tiny_lm, {"teachers": teachers(tiny_lm), **options})
    terms = method(batch_of(method, MemoryRows(tiny_lm, data), more_padding=3))
    texts = list(data.values()) * (2 if len(data) == 1 else 1)
    queries, keys, *negatives = [cls(tiny_lm, each, method.head.dense) for each in texts]
    columns = [*keys, *(vector for block in negatives for vector in block)]
    teacher = torch.tensor(naive_teacher(tiny_lm, texts[0], [text for each in texts[1:] for text in each])).double()
    t, tau = options.get("student_temperature", 0.05), options.get("teacher_temperature", 0.05)
    student = torch.tensor([[cosine(query, column) / t for column in columns] for query in queries], dtype=torch.float64)
    same(terms["contrastive"].value, naive_info_nce(queries, keys, negatives))
    lists = [scores if own else without_own(scores, 0) for scores in (student, teacher / tau)]
    ranking = (listnet if options.get("loss") == "listnet" else listmle)(*lists)  # in loops: tests/losses
    assert terms["ranking"].value.item() == pytest.approx(ranking.item(), rel=1e-6)  # teachers' vectors are of float32
    square = student[:, : len(keys)]
    same(terms["consistency"].value, consistency(square, square.T).item())
    assert {term.count for term in terms.values()} == {len(queries)}


def test_without_its_terms_it_is_simcse_bit_for_bit(tiny_lm):
    rows, losses = MemoryRows(tiny_lm, PLAIN), []
    for kind, options in ((RankCSE, NONE), (SimCSE, {})):
        method = make(kind, tiny_lm, options, dropout=0.1)
        torch.manual_seed(5)
        loss = total(method(batch_of(method, rows)))
        gradients = torch.autograd.grad(loss, method.backbone.parameters())
        losses.append((loss.item(), [gradient.tolist() for gradient in gradients]))
    assert losses[0] == losses[1]


@pytest.mark.parametrize("options", [{}, {"loss": "listnet", "consistency": "entropy", "gamma": 0.3, "beta": 0.2}])
def test_any_contrastive_method_with_the_section_ranking_has_the_same_terms(tiny_lm, options):
    rows, values = MemoryRows(tiny_lm, PLAIN), []
    ranking = {"teachers": teachers(tiny_lm), **options}
    for ranked in (False, True):
        method = make(SimCSE if ranked else RankCSE, tiny_lm, {} if ranked else ranking, dropout=0.1)
        objective = Ranked(method, method, RankingOptions(**ranking)) if ranked else method
        torch.manual_seed(5)
        batch = to_batch(objective.views(rows, np.random.default_rng(0)), Shares((5,)), 0, torch.device("cpu"))
        terms = objective(batch)
        values.append({name: (term.value.item(), term.weight, term.count) for name, term in terms.items()})
        values[-1]["gradient"] = torch.autograd.grad(total(terms), next(method.backbone.parameters()))[0].tolist()
    assert values[0] == values[1]


def test_local_rows_are_ranked_among_themselves(tiny_lm):
    texts = {role: [*column, *column[:2]] for role, column in TRIPLETS.items()}
    method = make(RankCSE, tiny_lm, {"teachers": [WORDS], "view": "given"})
    method.gather_mode = "local"
    views = method.views(MemoryRows(tiny_lm, texts), np.random.default_rng(0))
    part = method(to_batch(views, Shares((3, 4), 1), 0, torch.device("cpu")))
    alone = method(batch_of(method, MemoryRows(tiny_lm, texts, range(3, 7))))
    for name, term in part.items():
        assert term.value.item() == pytest.approx(alone[name].value.item(), abs=1e-12) and term.count == 4


def test_sentences_that_occur_twice_are_as_near_as_the_row_itself(tiny_lm):
    method = make(RankCSE, tiny_lm, {"teachers": teachers(tiny_lm)})
    rows = MemoryRows(tiny_lm, {"sentence": [*PLAIN["sentence"], PLAIN["sentence"][1]]})
    similarities = batch_of(method, rows).by_row["teacher similarities"]
    assert torch.equal(similarities[:, 1], similarities[:, 5]) and torch.equal(similarities[1], similarities[5])
    assert similarities.diagonal().numpy() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("teacher", "message"), [
    ({"model": "no/such-model-here", "settings": {"offline": True}}, "options.teachers: "),
    ({**WORDS, "settings": {"pooler": "cls"}}, "options.teachers: --pooler does not apply"),
    ({**WORDS, "settings": {"poler": "cls"}}, "options.teachers: lexical:token-set: "),
    ({"model": "lexcal:token-set"}, "did you mean 'lexical:'"),
])
def test_a_teacher_that_cannot_be_read_is_one_line(tiny_lm, teacher, message):
    one_line(make(RankCSE, tiny_lm, {"teachers": [teacher]}).inputs, message)


def test_a_text_that_the_method_makes_of_rows_is_not_ranked(tiny_lm):
    method = make(SimCSE, tiny_lm, {})
    objective = Ranked(method, method, RankingOptions(teachers=(WORDS,)))
    method.views = lambda rows, rng: type(views)([each[:2] for each in views.tokens])
    views = make(SimCSE, tiny_lm, {}).views(MemoryRows(tiny_lm, PLAIN), None)
    one_line(lambda: objective.views(MemoryRows(tiny_lm, PLAIN), None), "ranking.teachers ranks rows, and this method")


# Runs ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from cached_place(tmp_path_factory.mktemp("rankcse"))


def test_a_run_knows_its_teachers_by_fingerprint_and_exports_none(place, tmp_path):
    summary, _ = train(recipe_of(place, "rankcse"), tmp_path / "run", place)
    encoders = [load_encoder(str(place / "model"), pooler="mean"), load_encoder("lexical:token-set")]
    known = {f"teacher {k}": encoder.identity.fingerprint() for k, encoder in enumerate(encoders, 1)}
    assert summary["teachers"] == known
    position = json.loads(next((tmp_path / "run" / "checkpoints").glob("0-*/position.json")).read_text("utf-8"))
    assert {key: value for key, value in position["inputs"].items() if key.startswith("teacher")} == known
    plain, _ = train(recipe_of(place, "simcse", **{"options.mlm_weight": 0}), tmp_path / "plain", place)
    assert "teachers" not in plain
    names = [{path.name for path in (tmp_path / run / "best").rglob("*")} for run in ("run", "plain")]
    assert names[0] == names[1]


def test_another_teacher_is_no_resumption(place, tmp_path):
    changed = place / "teacher"
    shutil.copytree(place / "model", changed)
    recipe = recipe_of(place, "promptbert-ranked", **{"training.accumulate": 1, "ranking.teachers": [
        {"model": "teacher", "settings": {"pooler": "mean"}}]})
    with pytest.raises(Stopped):
        train(recipe, tmp_path / "run", place, callback=StopAt(2))
    config = json.loads((changed / "config.json").read_text("utf-8"))
    (changed / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-6}), "utf-8")
    one_line(lambda: train(recipe, tmp_path / "run", place, resume=True), "the teacher 1 is not what")


def test_what_the_section_ranking_refuses():
    def plan(method, *settings):
        return lambda: load_plan(load_recipe(method, None, settings))

    section = "ranking.teachers=[{model: 'lexical:token-set'}]"
    assert plan("simcse", section)().ranking == RankingOptions(teachers=(WORDS,))
    one_line(plan("rankcse", section), "ranking: the method rankcse ranks by its own options")
    idle = plan("simcse", section, "ranking.loss=listnet", "ranking.eps=1e-7")
    one_line(idle, "--set: ranking", "eps 1e-07 has no effect with loss listnet")
    one_line(plan("simcse", "ranking.gamma=1"), "--set: ranking", "gamma 1 needs teachers: name an encoder")


def test_a_method_that_contrasts_nothing_cannot_be_ranked(place, tmp_path):
    recipe = recipe_of(place, "mlm", **{"ranking.teachers": [WORDS], "selection.by": "none", "data.held_out": 0})
    one_line(lambda: train(recipe, tmp_path / "run", place), "ranking: mlm compares no two views by the shared")
