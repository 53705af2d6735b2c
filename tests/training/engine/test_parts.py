"""training.accumulate: several forward passes have the loss and the gradient of one over all of their rows."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from training_runs import log_of, make_text

import stsbench
from stsbench.errors import StsbenchError
from stsbench.methods.mlm.method import MaskedLM
from stsbench.methods.simcse.method import SimCSE
from stsbench.training.api import Views
from stsbench.training.engine.passes import ROWS, part_shares

ROWS_OF_TEXT = 11


def by_row(make):
    """Views whose masks are drawn row by row, so that they do not depend on the batch."""

    def views(self, rows, rng=None):
        each = [make(self, rows.at([number]), np.random.default_rng(int(number))) for number in rows.rows]
        extra = {name: [[part.extra[name][view][0] for part in each] for view in range(len(one))]
                 for name, one in each[0].extra.items()}
        return Views([[part.tokens[view][0] for part in each] for view in range(len(each[0].tokens))], extra)

    return views


@pytest.fixture(autouse=True)
def masks(monkeypatch):
    monkeypatch.setattr(MaskedLM, "views", by_row(MaskedLM.views))
    monkeypatch.setattr(SimCSE, "views", by_row(SimCSE.views))


def one_step(place, folder, method, size, accumulate, **more):
    """The log's line of a single step over all rows, and the weights after it. A large epsilon: the step goes with the
    gradient's size."""
    text = make_text(folder.parent, ROWS_OF_TEXT)
    values = {
        "backbone.model": str(place / "tiny"), "backbone.dropout": 0.0, "data.file": str(text),
        "data.held_out": 0, "training.batch_size": size, "training.accumulate": accumulate, "training.epochs": 1,
        "training.warmup": 0, "training.epsilon": 1.0, "training.learning_rate": 1.0, "training.clip": None,
        "selection.by": "none", "precision": "float32", "backbone.max_length": 16, **more,
    }
    stsbench.train(method, output=folder, settings=values, device="cpu")
    (line,) = [line for line in log_of(folder) if line["kind"] == "train"]
    assert line["step"] == 1
    return line, load_file(folder / "best" / "model.safetensors")


def test_masked_tokens_of_uneven_parts(place, tmp_path):
    want, weights = one_step(place, tmp_path / "one", "mlm", ROWS_OF_TEXT, 1)
    got, parts = one_step(place, tmp_path / "parts", "mlm", 4, 3)
    assert got["loss"] == pytest.approx(want["loss"], rel=1e-5) and got["terms"] == pytest.approx(want["terms"], rel=1e-5)
    assert got["gradient_norm"] == pytest.approx(want["gradient_norm"], rel=1e-4)
    for name, weight in weights.items():
        torch.testing.assert_close(parts[name], weight, rtol=1e-4, atol=1e-5, msg=name)


def test_contrastive_parts_go_by_their_rows_and_each_term_by_its_own_count(place, tmp_path, monkeypatch):
    more = {"options.mlm_weight": 0.1, "options.head": "none"}
    whole, _ = one_step(place, tmp_path / "one", "simcse", ROWS_OF_TEXT, 1, **more)
    passes, real = [], SimCSE.forward
    monkeypatch.setattr(SimCSE, "forward", lambda self, batch: passes.append(real(self, batch)) or passes[-1])
    line, _ = one_step(place, tmp_path / "parts", "simcse", 4, 3, **more)
    terms = [each["contrastive"] for each in passes]
    values, counts = [float(term.value.detach()) for term in terms], tuple(term.count for term in terms)
    contrastive = line["terms"]["contrastive"]
    assert counts == (4, 4, 3) and contrastive == pytest.approx(np.average(values, weights=counts), rel=1e-6)
    assert contrastive != pytest.approx(np.mean(values), rel=1e-4)
    assert line["terms"]["mlm"] == pytest.approx(whole["terms"]["mlm"], rel=1e-5)
    assert line["loss"] == pytest.approx(contrastive + 0.1 * line["terms"]["mlm"], rel=1e-5)


def test_a_count_that_was_not_known_before_is_an_error(place, tmp_path, monkeypatch):
    monkeypatch.setattr(MaskedLM, "counts", lambda self, batch: {})
    with pytest.raises(StsbenchError, match=r"^MaskedLM.counts .*: in two forward passes the term 'mlm' counts \d+ and"):
        one_step(place, tmp_path / "parts", "mlm", 4, 3)


def test_equal_counts_change_nothing_to_the_bit_and_some_passes_may_lack_a_term():
    assert part_shares([{ROWS: 3, "mlm": 7}] * 9) == [{ROWS: 1.0, "mlm": 1.0}] * 9
    shares = part_shares([{ROWS: 4, "rtd": 6}, {ROWS: 4}, {ROWS: 4, "rtd": 2}])
    assert [share.get("rtd") for share in shares] == [1.5, None, 0.5]
