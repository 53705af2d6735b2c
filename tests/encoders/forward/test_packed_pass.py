"""The pass without padding, for every family that has one, against each text alone; and what it must not let through."""

import inspect
import re
import threading
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from families import FAMILIES, TEXTS, family_model

from stsbench.encoders.forward import attention, batching, passes
from stsbench.encoders.forward.attention import NAME, UnknownAttentionError
from stsbench.encoders.forward.passes import PackedForward, PaddedForward, why_padded

HALF = ["bert", "gemma3", "modernbert", "mpnet"]  # one of each way to look at other tokens
PADDED = {  # family -> why
    "t5": "does not go through|takes no position_ids|takes position_bias",
    "deberta-v2": "does not go through", "big_bird": "does not go through", "gemma2": "its attention takes softcap",
    "gpt_oss": "its attention takes s_aux", "convbert": "does not go through", "fnet": "does not go through",
    "mobilebert": "states beside others are not", "mamba": "takes no position_ids",
}


def alone(model, texts):
    """(tokens, d): each text by itself, through transformers' own pass."""
    with torch.inference_mode():
        return torch.cat([model(input_ids=text[None]).last_hidden_state[0] for text in texts])


def in_a_row(model, texts, groups=None):
    lengths = np.array([len(text) for text in texts])
    with torch.inference_mode():
        return PackedForward(model)(torch.cat(texts), groups or batching.groups(lengths), (-1,))[0]


def reason(model, texts=TEXTS):
    with torch.inference_mode():
        return why_padded(PackedForward(model), PaddedForward(model, 0), [text.tolist() for text in texts])


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - set(PADDED)))
def test_a_text_has_the_states_that_it_has_alone(family):
    model = family_model(family)
    own, before = alone(model, TEXTS), model.config._attn_implementation
    assert reason(model) is None
    assert float((in_a_row(model, TEXTS) - own).abs().max()) < 1e-5
    joined = [*((1, len(text)) for text in TEXTS[:-2]), (1, len(TEXTS[-2]) + len(TEXTS[-1]))]
    assert float((in_a_row(model, TEXTS, joined) - own).abs().max()) > 0.1  # the last two as one text
    assert model.config._attn_implementation == before
    for dtype, rounding in ((torch.float16, 2e-3), (torch.bfloat16, 2e-2)) if family in HALF else ():
        half = model.to(dtype)
        assert reason(half) is None
        own, row = alone(half, TEXTS).float(), in_a_row(half, TEXTS).float()
        assert float((row - own).norm() / own.norm()) < rounding


@pytest.mark.parametrize("family", sorted(PADDED))
def test_other_families_are_padded_and_say_why(family):
    model = family_model(family)
    why = reason(model)
    assert why and re.search(PADDED[family], why), why
    assert model.config._attn_implementation != NAME


def test_attention_that_reads_more_than_texts_and_bounds():
    model = family_model("llama")
    assert reason(model) is None
    model.config.attn_temperature_tuning = True  # as Llama 4 names it
    assert reason(model) == "its attention is scaled by a token's place in the batch"
    model = family_model("bert")
    own = alone(model, TEXTS)
    model.set_attn_implementation(NAME)  # outside of a pass the name means transformers' own
    assert torch.equal(alone(model, TEXTS), own)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_wrong_positions_and_boundaries_are_found_out(dtype, monkeypatch):
    """RoBERTa's first token stands behind the padding's index: another library counted from 0 for three releases."""
    model = family_model("roberta").to(dtype)
    assert reason(model) is None
    with monkeypatch.context() as patch:
        patch.setattr(passes, "padding_index", lambda embeddings: None)
        assert "not those that it has alone" in reason(model)
    one = lambda groups, *more: attention.Row([(1, sum(n * length for n, length in groups))], *more)  # noqa: E731
    monkeypatch.setattr(passes, "Row", one)
    for family in ("bert", "modernbert"):
        assert "not those that it has alone" in reason(family_model(family).to(dtype)), family


def test_a_mask_that_is_no_window_is_refused():
    def chunks(batch, head, query, key):
        return (query // 8 == key // 8) & (key <= query)

    token = attention._row.set(attention.Row([(1, 30)], torch.device("cpu")))
    try:
        with pytest.raises(UnknownAttentionError, match="no window"):
            attention._window(mask_function=chunks)
    finally:
        attention._row.reset(token)


def test_attention_by_other_means_at_some_length_is_noticed():
    """As BigBird's, which transformers computes sparsely from some length on."""
    model = family_model("bert")
    forward = PackedForward(model)
    ids, own = torch.arange(5, 25), model.encoder.layer[1].forward
    with torch.inference_mode():
        forward(ids, [(2, 10)], (-1,))
        model.encoder.layer[1].forward = lambda hidden, *args, **named: (
            own(hidden, *args, **named) if hidden.shape[1] < 30 else hidden
        )
        forward(ids, [(2, 10)], (-1,))
        with pytest.raises(UnknownAttentionError, match="does not go through"):
            forward(ids.repeat(2), [(4, 10)], (-1,))


def test_a_pass_in_one_thread_leaves_another_its_own():
    """Both run at once on one model; afterwards it has its own attention again."""
    model = family_model("bert")
    own, padded, wrong = alone(model, TEXTS), PaddedForward(model, 0), []
    tokens, groups = torch.cat(TEXTS), batching.groups(np.array([len(text) for text in TEXTS]))

    def run(forward):
        with torch.inference_mode():
            for _ in range(10):
                wrong.append(float((forward(tokens, groups, (-1,))[0] - own).abs().max()))

    passes = (PackedForward(model), padded, PackedForward(model))
    threads = [threading.Thread(target=run, args=(forward,)) for forward in passes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 30 and max(wrong) < 1e-5
    assert model.config._attn_implementation == "sdpa" and not attention._borrowed


def test_a_padding_token_inside_a_text_keeps_its_position_in_roberta():
    """The pad token is a word of the sentence here, and transformers gives it the padding position."""
    model, texts = family_model("roberta"), [torch.tensor([7, 9, 1, 12, 30]), torch.tensor([8, 1, 33])]
    assert float((in_a_row(model, texts) - alone(model, texts)).abs().max()) < 1e-5


def kernel(query, key, value, bounds, key_bounds, longest, longest_key, *, scale, window_size=(-1, -1), enable_gqa=False):
    """What torch.nn.attention.varlen.varlen_attn gives on a GPU, text by text and head by head."""
    assert torch.equal(bounds, key_bounds) and bounds.dtype == torch.int32 and longest == longest_key
    assert longest == int(bounds.diff().max())
    shared = query.shape[1] // key.shape[1]
    assert enable_gqa == (shared > 1)
    out = torch.empty_like(query)
    for start, stop in pairwise(bounds.tolist()):
        index = torch.arange(stop - start)
        far = index[:, None] - index
        before, behind = (size if size >= 0 else stop for size in window_size)
        hidden = (far > before) | (-far > behind)
        for head in range(query.shape[1]):
            keys, values = key[start:stop, head // shared], value[start:stop, head // shared]
            scores = (query[start:stop, head] @ keys.T * scale).masked_fill(hidden, float("-inf"))
            out[start:stop, head] = scores.softmax(1) @ values
    return out


@pytest.mark.parametrize("family", ["qwen3", "modernbert"])
def test_one_call_for_all_texts_is_handed_their_bounds_and_windows(family, monkeypatch):
    """The GPU's attention, here by hand: its arguments are those that torch's own function has."""
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    real = inspect.signature(varlen.varlen_attn).parameters
    assert {"scale", "window_size", "enable_gqa"} <= set(real)
    assert [real[name].kind for name in list(real)[:7]] == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 7
    model = family_model(family)
    own, calls = alone(model, TEXTS), []
    monkeypatch.setattr(attention, "_has_kernel", lambda packed, row, dropout: not dropout)
    monkeypatch.setattr(attention, "_kernel", lambda: lambda *args, **named: calls.append(1) or kernel(*args, **named))
    assert float((in_a_row(model, TEXTS) - own).abs().max()) < 1e-5
    assert len(calls) == model.config.num_hidden_layers


def test_the_kernel_is_for_half_precision_on_a_gpu():
    states = [torch.zeros(9, 4, 8, dtype=torch.bfloat16)] * 3
    row = attention.Row([(1, 9)], torch.device("cpu"))
    assert attention._kernel() is not None and not attention._has_kernel(states, row, 0.0)
    gpu = [SimpleNamespace(is_cuda=True, dtype=dtype, shape=(9, 4, width)) for dtype, width in (
        (torch.bfloat16, 64), (torch.float16, 64), (torch.float32, 64), (torch.bfloat16, 320), (torch.bfloat16, 20),
    )]
    assert [attention._has_kernel([part] * 3, row, 0.0) for part in gpu] == [True, True, False, False, False]
    assert not attention._has_kernel([gpu[0]] * 3, row, 0.1)  # it drops nothing
