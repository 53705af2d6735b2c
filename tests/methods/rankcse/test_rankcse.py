"""RankCSE's terms on texts encoded one at a time, as a section of other methods, too; teachers that cannot be read."""

import numpy as np
import pytest
import torch
from method_oracle import MemoryRows, batch_of, make, total
from shipped_recipes import one_line
from simcse_oracle import PLAIN, TRIPLETS, cls, info_nce, naive_teacher, same

from stsbench.losses.ranking import consistency, listmle, listnet, without_own
from stsbench.methods.rankcse.method import RankCSE
from stsbench.methods.simcse.method import SimCSE
from stsbench.training.api.batch import Shares
from stsbench.training.api.options import RankingOptions
from stsbench.training.engine.objective import FurtherTerms
from stsbench.training.rows.batches import to_batch

WORDS = {"model": "lexical:token-set"}


def teachers(folder):
    return [{"model": str(folder), "settings": {"pooler": "mean"}, "weight": 0.5}, {**WORDS, "weight": 1.5}]


@pytest.mark.parametrize(("data", "options", "own"), [
    (PLAIN, {}, True), (PLAIN, {"self_column": "out"}, False), (TRIPLETS, {"view": "given", "loss": "listnet"}, False),
    (PLAIN, {"loss": "listnet", "self_column": "in", "student_temperature": 0.3, "teacher_temperature": 0.2,
             "temperature": 0.2}, True),
])
def test_every_term_is_that_of_the_equations(folder, data, options, own):
    method = make(RankCSE, folder, {"teachers": teachers(folder), **options})
    terms = method(batch_of(method, MemoryRows(folder, data), more_padding=3))
    texts = list(data.values()) * (2 if len(data) == 1 else 1)
    queries, keys, *negatives = [cls(folder, each, method.head.dense) for each in texts]
    teacher = naive_teacher(folder, texts[0], [text for each in texts[1:] for text in each], "mean")
    t, tau = options.get("student_temperature", 0.05), options.get("teacher_temperature", 0.05)
    student = torch.cosine_similarity(queries[:, None], torch.cat([keys, *negatives])[None], dim=2) / t
    same(terms["contrastive"].value, info_nce(queries, keys, *negatives, temperature=options.get("temperature", 0.05)))
    lists = [scores if own else without_own(scores, 0) for scores in (student, teacher / tau)]
    ranking = (listnet if options.get("loss") == "listnet" else listmle)(*lists)  # in loops: tests/losses
    assert terms["ranking"].value.item() == pytest.approx(ranking.item(), rel=1e-6)  # teachers' vectors are of float32
    square = student[:, : len(keys)]
    same(terms["consistency"].value, consistency(square, square.T).item())
    assert {term.count for term in terms.values()} == {len(queries)}


def test_any_contrastive_method_with_the_section_ranking_has_the_same_terms(folder):
    rows, values = MemoryRows(folder, PLAIN), []
    ranking = {"teachers": teachers(folder), "loss": "listnet", "consistency": "entropy", "gamma": 0.3, "beta": 0.2}
    for ranked in (False, True):
        method = make(SimCSE if ranked else RankCSE, folder, {} if ranked else ranking, dropout=0.1)
        objective = FurtherTerms(method, method, RankingOptions(**ranking), None) if ranked else method
        torch.manual_seed(5)
        batch = to_batch(objective.views(rows, np.random.default_rng(0)), Shares((5,)), 0, torch.device("cpu"))
        terms = objective(batch)
        values.append({name: (term.value.item(), term.weight, term.count) for name, term in terms.items()})
        values[-1]["gradient"] = torch.autograd.grad(total(terms), next(method.backbone.parameters()))[0].tolist()
    assert values[0] == values[1]


def test_a_text_that_the_method_makes_of_rows_is_not_ranked(folder):
    method = make(SimCSE, folder, {})
    objective = FurtherTerms(method, method, RankingOptions(teachers=(WORDS,)), None)
    method.views = lambda rows, rng: type(views)([each[:2] for each in views.tokens])
    views = make(SimCSE, folder, {}).views(MemoryRows(folder, PLAIN), None)
    one_line(lambda: objective.views(MemoryRows(folder, PLAIN), None), "ranking.teachers ranks rows, and this method")
