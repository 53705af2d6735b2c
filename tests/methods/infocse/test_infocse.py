"""InfoCSE's reconstruction by transformers, one sentence at a time; its parts; and the file of a Condenser head."""

import copy
import shutil

import pytest
import torch
from method_oracle import MemoryRows, batch_of, make
from transformers import AutoModelForMaskedLM

from stsbench.encoders.forward.identity import model_digest
from stsbench.errors import StsbenchError
from stsbench.methods.infocse.method import InfoCSE

TEXTS = [
    "the man runs .", "a blue dog eats a fish in the park .", "cat", "two women play the guitar near a river .",
    "the dog is in the park .", "a child eats .", "the woman sings a song .", "birds fly .",
]
# At temperature 0.05 normalised views without dropout leave a loss of 1e-9, which any loop would agree with.
SMALL = {"frozen_layers": 1, "head_layers": 2, "mlm_weight": 0.3, "mlm_probability": 0.4, "temperature": 1.0}
N = 5


def infocse(folder, *, dropout=0.0, pooler="cls", seed=1, **options):
    return make(InfoCSE, folder, {**SMALL, **options}, dropout=dropout, pooler=pooler, seed=seed)


def naive_reconstruction(whole, head, frozen_layers, plain, masked, labels):
    """The mean loss of masked tokens, guessed by the head from the first state of the plain sentence and the states behind
    the first of the masked one in the checkpoint's first layers. whole: the checkpoint with its masked-LM head."""
    encoder, errors = getattr(whole, whole.base_model_prefix), []
    for ids, other, wanted in zip(plain, masked, labels, strict=True):
        with torch.no_grad():
            below = encoder(input_ids=other[None], output_hidden_states=True).hidden_states[frozen_layers]
        hidden = torch.cat([encoder(input_ids=ids[None]).last_hidden_state[:, :1], below[:, 1:]], 1)
        for layer in head:
            hidden = layer(hidden)
        logits = (whole.cls if whole.base_model_prefix == "bert" else whole.lm_head)(hidden)[0]
        errors.append(torch.nn.functional.cross_entropy(logits, wanted, reduction="sum", ignore_index=-100))
    return sum(errors) / sum(int((wanted != -100).sum()) for wanted in labels)


@pytest.mark.parametrize(("family", "attention", "options"), [
    ("bert", "eager", {"mlm_probability": 0.9}), ("roberta", "sdpa", {"frozen_layers": 2, "head_layers": 1}),
])
def test_the_reconstruction_is_that_of_transformers_with_its_gradients(masked_lms, family, attention, options):
    """To 1e-8, with padding that no row needs. The contrastive term: tests/methods/test_terms.py."""
    folder = masked_lms[family]
    method = infocse(folder, **options)
    for part in method.auxiliary.modules():
        if hasattr(part, "config"):
            part.config._attn_implementation = attention
    batch = batch_of(method, MemoryRows(folder, {"sentence": TEXTS[:N]}), more_padding=3)
    lengths = batch.mask.sum(1).tolist()
    plain, masked, labels = ([row[:length] for row, length in zip(part, lengths, strict=True)]
                             for part in (batch.ids, batch.extra["mlm_ids"], batch.extra["mlm_labels"]))
    whole = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).double().eval()
    head = copy.deepcopy(method.auxiliary.head).eval()
    expected = naive_reconstruction(whole, head, method.options.frozen_layers, plain, masked, labels)
    term = method(batch)["mlm"]
    assert term.value.item() == pytest.approx(expected.item(), abs=1e-8) and term.weight == method.options.mlm_weight
    term.value.backward()
    expected.backward()
    encoder = dict(getattr(whole, whole.base_model_prefix).named_parameters())
    table = "embeddings.word_embeddings.weight"  # to transformers it is the masked-LM head's last layer, too
    for name, weight in method.backbone.model.named_parameters():
        theirs = encoder[name].grad - method.auxiliary.lm_head.decoder.weight.grad if name == table else encoder[name].grad
        assert (weight.grad - theirs).abs().max() < 1e-8, name
    for (name, weight), other in zip(method.auxiliary.head.named_parameters(), head.parameters(), strict=True):
        assert (weight.grad - other.grad).abs().max() < 1e-8, name


def test_the_head_starts_at_random_with_the_encoders_dropout_and_the_lm_head_as_a_copy(masked_lms):
    method = infocse(masked_lms["bert"], dropout=0.4, head_layers=3)
    auxiliary, encoder = method.auxiliary, method.backbone.model
    rates = {part.p for part in auxiliary.head.modules() if isinstance(part, torch.nn.Dropout)}
    assert len(auxiliary.head) == 3 and rates == {0.4}
    for name, weight in auxiliary.head.named_parameters():
        if weight.ndim == 2:
            assert weight.std().item() == pytest.approx(encoder.config.initializer_range, rel=0.15)
        else:
            assert (weight == float(name.endswith("LayerNorm.weight"))).all(), name
    decoder, words = auxiliary.lm_head.decoder.weight, encoder.get_input_embeddings().weight
    assert torch.equal(decoder, words) and decoder is not words and decoder.requires_grad


def stored(folder, copy, layers=2):
    """A copy of the model with model.pt as Condenser's pre-training writes it, and the weights in it."""
    shutil.copytree(folder, copy)
    head = infocse(folder, head_layers=layers, seed=5).auxiliary.head.float().state_dict()
    torch.save({f"c_head.{name}": value for name, value in head.items()}, copy / "model.pt")
    return copy, head


def test_the_layers_are_those_of_the_file_which_the_digest_of_the_model_knows(masked_lms, tmp_path):
    folder, head = stored(masked_lms["roberta"], tmp_path / "model", 3)
    method, other = (infocse(folder, head_init=init, head_layers=3) for init in ("condenser", "random"))
    loaded, random = (each.auxiliary.head.state_dict() for each in (method, other))
    assert loaded.keys() == head.keys() and all(torch.equal(loaded[name], value.double()) for name, value in head.items())
    assert not torch.equal(random["0.output.dense.weight"], loaded["0.output.dense.weight"])
    before = model_digest(folder)
    torch.save({}, folder / "model.pt")
    assert model_digest(folder) != before  # so that a run is not resumed


class Planted:
    def __reduce__(self):
        return print, ("unpickled",)


@pytest.mark.parametrize("content", [
    "three", b"no archive", {"c_head.0.weight": Planted()}, [1, 2],
    {"c_head.0.a": torch.ones(2), "c_head.1.a": torch.ones(2)},
])
def test_a_file_that_holds_no_such_layers(masked_lms, tmp_path, capsys, content):
    folder, _ = stored(masked_lms["bert"], tmp_path / "model", layers=3)
    # as it is it holds one layer more
    if isinstance(content, bytes):
        (folder / "model.pt").write_bytes(content)
    elif content != "three":
        torch.save(content, folder / "model.pt")
    with pytest.raises(StsbenchError, match=r"^options\.head_init condenser reads the head's layers from "):
        infocse(folder, head_init="condenser")
    assert "unpickled" not in capsys.readouterr().out
