"""Two views that are one vector: a model without dropout is refused, or stopped at the first step; other views are not."""

import pytest
import tiny_models
from training_runs import log_of
from transformers import ModernBertConfig, ModernBertModel

import stsbench
from stsbench.errors import StsbenchError

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


@pytest.fixture(scope="module", autouse=True)
def toy(place):
    """modernbert/, tiny, and toy.py, a method that contrasts a sentence with itself by a loss of its own."""
    tokens = tiny_models.tokenizer("bert")
    ends = {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2, "pad_token_id": tokens.pad_token_id}
    config = ModernBertConfig(**tiny_models.SHAPE, **ends, vocab_size=len(tokens), max_position_embeddings=64)
    ModernBertModel(config).save_pretrained(place / "modernbert")
    tokens.save_pretrained(place / "modernbert")
    (place / "toy.py").write_text(TOY, "utf-8")


def settings(place, model="modernbert", dropout=None, **more):
    return {
        "backbone.model": str(place / model), "backbone.dropout": dropout, "data.file": str(place / "text.txt"),
        "training.batch_size": 8, "training.max_steps": 2, "selection.by": "none", "precision": "float32", **more,
    }


def trained(place, tmp_path, method="simcse", recipe=None, **more):
    stsbench.train(method, output=tmp_path / "out", recipe=recipe, settings=settings(place, **more), device="cpu")
    return next(line["loss"] for line in log_of(tmp_path / "out") if line["kind"] == "train")


def refused(place, tmp_path, *parts, **more):
    with pytest.raises(StsbenchError) as error:
        trained(place, tmp_path, **more)
    text = str(error.value)
    assert "\n" not in text and all(part in text for part in parts), text
    return text


def test_a_model_whose_rates_are_all_zero_is_refused_with_advice_that_helps(place, tmp_path):
    line = refused(place, tmp_path, "two views of simcse differ by dropout alone", "embedding_dropout, mlp_dropout",
                   "--set backbone.dropout=0.1")
    assert "null" not in line and not (tmp_path / "out").exists()
    assert trained(place, tmp_path, dropout=0.1) > 0.01


def test_a_method_that_does_not_say_so_is_stopped_at_its_first_step_unless_the_recipe_asks_for_none(place, tmp_path):
    (tmp_path / "toy.yaml").write_text("backbone: {model: x}\n", "utf-8")
    toy = {"method": f"{place / 'toy.py'}:Toy", "recipe": tmp_path / "toy.yaml"}
    refused(place, tmp_path, "the two views of a sentence are one vector at step 1 of stage main", "has no dropout",
            "--set backbone.dropout=0.1", **toy)
    assert not list((tmp_path / "out").glob("checkpoints/*"))
    (tmp_path / "still").mkdir()
    refused(place, tmp_path / "still", "dropout of", "has no effect: choose another backbone",
            **{**toy, "method": f"{place / 'toy.py'}:Still", "dropout": 0.1})
    (tmp_path / "none").mkdir()
    assert trained(place, tmp_path / "none", dropout=0.0, **toy) > 0


def test_dropout_that_cannot_be_set(place, tmp_path, monkeypatch):
    monkeypatch.setattr("stsbench.encoders.forward.model._SETTINGS", ("no_such_setting",))
    line = refused(place, tmp_path, "backbone.dropout 0.1 cannot be set", "choose another backbone", dropout=0.1)
    assert "null" not in line
    assert "null" not in refused(place, tmp_path, "no dropout setting", "choose another backbone")
    refused(place, tmp_path, "choose another backbone, or set backbone.dropout to null", dropout=0.1, method="mlm")
