"""What a step is made of. training.accumulate: several forward passes have the loss and the gradient of one over all of
their rows. Two views that are one vector: a model without dropout is refused, or stopped at the first step; others are not.
"""

import numpy as np
import pytest
import tiny_models
import torch
from families import family_model
from safetensors.torch import load_file
from training_runs import log_of, make_text

import stsbench
from stsbench.errors import StsbenchError
from stsbench.methods.mlm.method import MaskedLM
from stsbench.methods.simcse.method import SimCSE
from stsbench.training.api import Views
from stsbench.training.engine.passes import ROWS, part_shares

ROWS_OF_TEXT = 11


def trained(place, folder, method="simcse", recipe=None, model="tiny", **more):
    """The log's line of the only one, after two steps unless told otherwise."""
    values = {
        "backbone.model": str(place / model), "data.file": str(place / "text.txt"), "training.batch_size": 8,
        "training.max_steps": 2, "selection.by": "none", "precision": "float32", "backbone.max_length": 16,
        "backbone.dropout": None, **more,
    }
    stsbench.train(method, output=folder, recipe=recipe, settings=values, device="cpu")
    (line,) = [line for line in log_of(folder) if line["kind"] == "train"]
    return line


# --- several forward passes ---


def by_row(make):
    """Views whose masks are drawn row by row, so that they do not depend on the batch."""

    def views(self, rows, rng=None):
        each = [make(self, rows.at([number]), np.random.default_rng(int(number))) for number in rows.rows]
        extra = {name: [[part.extra[name][view][0] for part in each] for view in range(len(one))]
                 for name, one in each[0].extra.items()}
        return Views([[part.tokens[view][0] for part in each] for view in range(len(each[0].tokens))], extra)

    return views


@pytest.fixture
def one_step(place, tmp_path, monkeypatch):
    """Train a single step over all rows: the log's line. A large epsilon: the step goes with the gradient's size."""
    monkeypatch.setattr(MaskedLM, "views", by_row(MaskedLM.views))
    monkeypatch.setattr(SimCSE, "views", by_row(SimCSE.views))
    text = str(make_text(tmp_path, ROWS_OF_TEXT))

    def step(name, method, size, accumulate, **more):
        line = trained(place, tmp_path / name, method, **{
            "backbone.dropout": 0.0, "data.file": text, "data.held_out": 0, "training.batch_size": size,
            "training.accumulate": accumulate, "training.max_steps": None, "training.epochs": 1, "training.warmup": 0,
            "training.epsilon": 1.0, "training.learning_rate": 1.0, "training.clip": None, **more})
        assert line["step"] == 1
        return line

    return step


def test_masked_tokens_of_uneven_parts(one_step, tmp_path):
    want, got = one_step("one", "mlm", ROWS_OF_TEXT, 1), one_step("parts", "mlm", 4, 3)
    assert got["loss"] == pytest.approx(want["loss"], rel=1e-5) and got["terms"] == pytest.approx(want["terms"], rel=1e-5)
    assert got["gradient_norm"] == pytest.approx(want["gradient_norm"], rel=1e-4)
    weights, parts = (load_file(tmp_path / name / "best" / "model.safetensors") for name in ("one", "parts"))
    for name, weight in weights.items():
        torch.testing.assert_close(parts[name], weight, rtol=1e-4, atol=1e-5, msg=name)


def test_contrastive_parts_go_by_their_rows_and_each_term_by_its_own_count(one_step, monkeypatch):
    more = {"options.mlm_weight": 0.1, "options.head": "none"}
    whole = one_step("one", "simcse", ROWS_OF_TEXT, 1, **more)
    passes, real = [], SimCSE.forward
    monkeypatch.setattr(SimCSE, "forward", lambda self, batch: passes.append(real(self, batch)) or passes[-1])
    line = one_step("parts", "simcse", 4, 3, **more)
    terms = [each["contrastive"] for each in passes]
    values, counts = [float(term.value.detach()) for term in terms], tuple(term.count for term in terms)
    contrastive = line["terms"]["contrastive"]
    assert counts == (4, 4, 3) and contrastive == pytest.approx(np.average(values, weights=counts), rel=1e-6)
    assert contrastive != pytest.approx(np.mean(values), rel=1e-4)
    assert line["terms"]["mlm"] == pytest.approx(whole["terms"]["mlm"], rel=1e-5)
    assert line["loss"] == pytest.approx(contrastive + 0.1 * line["terms"]["mlm"], rel=1e-5)


def test_a_count_that_was_not_known_before_is_an_error(one_step, monkeypatch):
    monkeypatch.setattr(MaskedLM, "counts", lambda self, batch: {})
    with pytest.raises(StsbenchError, match=r"^MaskedLM.counts .*: in two forward passes the term 'mlm' counts \d+ and"):
        one_step("parts", "mlm", 4, 3)


def test_equal_counts_change_nothing_to_the_bit_and_some_passes_may_lack_a_term():
    assert part_shares([{ROWS: 3, "mlm": 7}] * 9) == [{ROWS: 1.0, "mlm": 1.0}] * 9
    shares = part_shares([{ROWS: 4, "rtd": 6}, {ROWS: 4}, {ROWS: 4, "rtd": 2}])
    assert [share.get("rtd") for share in shares] == [1.5, None, 0.5]


# --- two views that are one vector ---

TOY = '''
from torch.nn.functional import normalize
from stsbench.training.api import Method, Term, Views
class Toy(Method):
    def views(self, rows, rng):
        return Views([rows.ids("sentence")] * 2)
    def forward(self, batch):
        x, y = normalize(self.vectors(batch.ids, batch.mask)).split(len(batch))
        return {"far": Term((x @ y.T).logsumexp(1).mean() - (x * y).sum(1).mean(), len(batch))}
class Still(Toy):
    def train(self, mode=True):
        return super().train(False)
'''


@pytest.fixture(scope="module")
def modernbert(place):
    """modernbert, tiny, whose rates of dropout are all zero."""
    tokens = tiny_models.tokenizer("bert")
    for part in (family_model("modernbert", vocab_size=len(tokens), pad_token_id=tokens.pad_token_id), tokens):
        part.save_pretrained(place / "modernbert")
    return "modernbert"


def refused(place, folder, *parts, **more):
    with pytest.raises(StsbenchError) as error:
        trained(place, folder, **more)
    text = str(error.value)
    assert "\n" not in text and all(part in text for part in parts), text
    return text


def test_a_model_whose_rates_are_all_zero_is_refused_with_advice_that_helps(place, modernbert, tmp_path):
    line = refused(place, tmp_path / "out", "two views of simcse differ by dropout alone", "embedding_dropout, mlp_dropout",
                   "--set backbone.dropout=0.1", model=modernbert)
    assert "null" not in line and not (tmp_path / "out").exists()
    assert trained(place, tmp_path / "out", model=modernbert, **{"backbone.dropout": 0.1})["loss"] > 0.01


def test_a_method_that_does_not_say_so_is_stopped_at_its_first_step_unless_the_recipe_asks_for_none(
    place, modernbert, tmp_path
):
    (tmp_path / "toy.py").write_text(TOY, "utf-8")
    (tmp_path / "toy.yaml").write_text("backbone: {model: x}\n", "utf-8")
    toy = {"method": f"{tmp_path / 'toy.py'}:Toy", "recipe": tmp_path / "toy.yaml", "model": modernbert}
    refused(place, tmp_path / "out", "the two views of a sentence are one vector at step 1 of stage main", "has no dropout",
            "--set backbone.dropout=0.1", **toy)
    assert not list((tmp_path / "out").glob("checkpoints/*"))
    refused(place, tmp_path / "still", "dropout of", "has no effect: choose another backbone",
            **{**toy, "method": f"{tmp_path / 'toy.py'}:Still", "backbone.dropout": 0.1})
    assert trained(place, tmp_path / "none", **toy, **{"backbone.dropout": 0.0})["loss"] > 0


def test_dropout_that_cannot_be_set(place, modernbert, tmp_path, monkeypatch):
    monkeypatch.setattr("stsbench.encoders.forward.model._SETTINGS", ("no_such_setting",))
    some = {"model": modernbert, "backbone.dropout": 0.1}
    line = refused(place, tmp_path / "out", "backbone.dropout 0.1 cannot be set", "choose another backbone", **some)
    assert "null" not in line
    line = refused(place, tmp_path / "out", "no dropout setting", "choose another backbone", model=modernbert)
    assert "null" not in line
    refused(place, tmp_path / "out", "choose another backbone, or set backbone.dropout to null", method="mlm", **some)
