"""The packed forward pass against transformers' own padded one, state by state."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_models import build, sentences, tokenizer
from transformers import AutoModel

from stsbench.encoders.forward import batching
from stsbench.encoders.forward.packed import PackedForward, supports
from stsbench.encoders.forward.padded import PaddedForward


def _states(folder, family, forward_class, texts):
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    tok = tokenizer("bert" if family in ("bert", "distilbert") else "roberta")
    tok.backend_tokenizer.no_truncation()
    tok.backend_tokenizer.no_padding()
    ids = [encoding.ids for encoding in tok.backend_tokenizer.encode_batch(texts)]
    lengths = np.array([len(row) for row in ids])
    order = batching.longest_first(lengths)
    forward = PackedForward(model) if forward_class is PackedForward else PaddedForward(model, tok.pad_token_id)
    with torch.inference_mode():
        tokens, groups = torch.from_numpy(batching.flatten(ids, order)), batching.groups(lengths[order])
        got = forward(tokens, groups, (0, 1, -2, -1))
        padded = tok.pad({"input_ids": [ids[i] for i in order]}, return_tensors="pt")
        want = model(**padded, output_hidden_states=True).hidden_states
    mask = padded["attention_mask"].bool()
    return got, [want[i][mask] for i in (0, 1, -2, -1)]


@pytest.mark.parametrize(("family", "forward"), [
    ("bert", PackedForward), ("roberta", PackedForward), ("bert", PaddedForward), ("roberta", PaddedForward),
    ("distilbert", PaddedForward), ("mpnet", PaddedForward),
])
def test_every_hidden_state_equals_the_padded_forward(tmp_path, family, forward):
    got, want = _states(build(tmp_path, family), family, forward, sentences(40))
    for ours, theirs in zip(got, want, strict=True):
        assert ours.shape == theirs.shape
        assert float((ours - theirs).abs().max()) < 1e-5


def test_a_padding_token_inside_a_text_keeps_its_position_in_roberta(tmp_path):
    # the pad token is a word of the sentence here, and transformers gives it the padding position
    got, want = _states(build(tmp_path, "roberta"), "roberta", PackedForward, ["the cat <pad> eats", "a <pad> dog"])
    assert float((got[0] - want[0]).abs().max()) < 1e-6


def test_only_plain_bert_and_roberta_are_packed(tmp_path):
    for family, packed in {"bert": True, "roberta": True, "distilbert": False, "mpnet": False}.items():
        assert supports(AutoModel.from_pretrained(build(tmp_path / family, family))) is packed
    adapted = AutoModel.from_pretrained(tmp_path / "bert")

    class Adapter(torch.nn.Linear):
        pass

    adapted.encoder.layer[0].attention.self.query = Adapter(32, 32)  # its own weight is not all that it applies
    assert not supports(adapted)
