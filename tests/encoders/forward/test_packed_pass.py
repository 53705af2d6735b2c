"""The pass without padding, for every family that has one, against each text alone; and what it must not let through.
Models that compute otherwise from some length on: the longest text of a batch must not decide for the others. Dropout by
whatever name a family gives it: set, it makes two passes differ; at 0 it does not."""

import contextvars
import inspect
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from families import FAMILIES, TEXTS, family_model
from model_folders import WORDS, declare, pooling, tokenizer

from stsbench import load_encoder
from stsbench.encoders.forward import attention, batching, passes
from stsbench.encoders.forward.attention import NAME, UnknownAttentionError
from stsbench.encoders.forward.batching import NO_LIMIT, restore, sharing_limit
from stsbench.encoders.forward.model import NoDropoutError, dropout_rates, set_dropout
from stsbench.encoders.forward.passes import PackedForward, PaddedForward, why_padded

HALF = ["gemma3", "mpnet", "deberta-v2"]  # a window over what comes before, and positions that are added to the scores
LIKE_OTHERS = {  # families whose layers ask for attention as one that is tried does
    "camembert", "data2vec", "electra", "ernie", "gemma", "granite", "olmo2", "qwen2", "smollm3", "xlm-roberta",
}
PADDED = {  # family -> why
    "deberta-v2 with a convolution": "its convolution mixes a text", "big_bird": "does not go through",
    "gemma2": "its attention takes softcap",
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


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - set(PADDED) - LIKE_OTHERS))
def test_a_text_has_the_states_that_it_has_alone(family):
    model = family_model(family)
    own, before = alone(model, TEXTS), model.config._attn_implementation
    assert reason(model) is None
    assert float((in_a_row(model, TEXTS) - own).abs().max()) < 1e-5
    joined = [*((1, len(text)) for text in TEXTS[:-2]), (1, len(TEXTS[-2]) + len(TEXTS[-1]))]
    assert float((in_a_row(model, TEXTS, joined) - own).abs().max()) > 0.1  # the last two as one text
    assert model.config._attn_implementation == before
    for dtype, rounding in ((torch.float16, 3e-3), (torch.bfloat16, 2e-2)) if family in HALF else ():
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
    def asked():
        attention._row.set(attention.Row([(1, 30)], torch.device("cpu")))
        attention._window(mask_function=lambda batch, head, query, key: (query // 8 == key // 8) & (key <= query))

    with pytest.raises(UnknownAttentionError, match="no window"):
        contextvars.copy_context().run(asked)


def test_attention_by_other_means_at_some_length_is_noticed():
    """As BigBird's, which transformers computes sparsely from some length on."""
    model = family_model("bert")
    forward = PackedForward(model)
    ids, own = torch.arange(5, 25), model.encoder.layer[1].forward
    with torch.inference_mode():
        forward(ids, [(2, 10)], (-1,))
        model.encoder.layer[1].forward = lambda hidden, *args, **named: (
            own(hidden, *args, **named) if hidden.shape[1] < 30 else hidden)
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

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, (PackedForward(model), padded, PackedForward(model))))
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
    real = inspect.signature(pytest.importorskip("torch.nn.attention.varlen").varlen_attn).parameters
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
        (torch.bfloat16, 64), (torch.float16, 64), (torch.float32, 64), (torch.bfloat16, 320), (torch.bfloat16, 20))]
    assert [attention._has_kernel([part] * 3, row, 0.0) for part in gpu] == [True, True, False, False, False]
    assert not attention._has_kernel([gpu[0]] * 3, row, 0.1)  # it drops nothing


LIMIT = 220  # tokens, more than the texts of the check at loading have: from 221 on each of these models computes otherwise
SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24, "pad_token_id": 0}
TURNS = {"short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 4.0, 8.0]}
MODELS = {
    "block-sparse attention": ("BigBird", {"block_size": 20, "num_random_blocks": 3, "max_position_embeddings": 512}),
    "longrope": ("Llama", {"max_position_embeddings": 512, "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": LIMIT, "factor": 4.0, **TURNS}})}


LONG_TEXTS = [" ".join(np.random.default_rng(length + row).choice([word for word in WORDS if word.isalpha()], length - 2))
              for row, length in enumerate((6, 219, 260))]  # tokens, with [CLS] and [SEP]


@pytest.fixture(scope="module", params=MODELS)
def folder(request, tmp_path_factory):
    kind, settings = MODELS[request.param]
    place, words = tmp_path_factory.mktemp("model"), tokenizer("bert", limit=512)
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(vocab_size=len(words), **SIZES, **settings)
    model = getattr(transformers, f"{kind}Model")(config)
    for weight in model.parameters():
        weight.data += 0.2 * torch.randn_like(weight)
    model.save_pretrained(place)
    words.save_pretrained(place)
    return place


def ours(folder, **options):
    return load_encoder(str(folder), device="cpu", max_length=512, **options)


def encoded_alone(folder, texts=LONG_TEXTS, **options):
    """float32 (n, d): each text by itself, in a model that has read nothing before."""
    return np.stack([ours(folder, **options).encode([one])[0] for one in texts])


def test_no_text_decides_for_another(folder):
    expected = encoded_alone(folder, pooler="mean")
    encoder = ours(folder, pooler="mean", batch_tokens=4096)
    np.testing.assert_allclose(encoder.encode(LONG_TEXTS), expected, atol=1e-5)
    assert not encoder.equal_lengths  # texts up to the limit still share batches
    for order in ([2, 1, 0], [0, 2, 0]):  # what was read before does not matter, either
        np.testing.assert_allclose([encoder.run([LONG_TEXTS[row]]).vectors[0] for row in order], expected[order], atol=1e-5)


def test_nor_in_sentence_transformers(folder, tmp_path):
    from sentence_transformers.sentence_transformer.modules import LayerNorm  # which we do not run

    place = declare(shutil.copytree(folder, tmp_path / "library"), pooling("mean"), LayerNorm(16), limit=512)
    encoder = ours(place)
    assert encoder.spec.kind == "sentence-transformers"
    first_and_last = encoded_alone(place, [LONG_TEXTS[0], LONG_TEXTS[-1]])
    np.testing.assert_allclose(encoder.encode(LONG_TEXTS)[[0, -1]], first_and_last, atol=1e-5)


def test_the_limit_is_where_the_model_changes(folder):
    """Padded to the limit nothing moves; by one token more, each of these models gives a short text other states."""
    model = transformers.AutoModel.from_pretrained(folder).eval()
    assert sharing_limit(model) == LIMIT
    ids = torch.arange(5, 5 + LIMIT + 1)[None] % len(WORDS)

    def states(width):
        restore(model)
        mask = (torch.arange(width) < LIMIT - 4)[None].long()
        with torch.inference_mode():
            return model(input_ids=ids[:, :width] * mask, attention_mask=mask).last_hidden_state[0, : LIMIT - 4]

    torch.testing.assert_close(states(LIMIT - 4), states(LIMIT), atol=1e-5, rtol=0)
    assert (states(LIMIT + 1) - states(LIMIT)).abs().max() > 1e-3


@pytest.mark.parametrize("settings", [
    {"rope_scaling": {"type": "longrope", **TURNS}, "original_max_position_embeddings": LIMIT},
    {"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": LIMIT}},
    {"rope_parameters": {"full_attention": {"rope_type": "longrope", "original_max_position_embeddings": LIMIT},
                         "sliding_attention": {"rope_type": "default"}}}])
def test_a_model_s_own_code_may_turn_positions_itself(settings):
    """Only the configuration says so: no module is named as in transformers."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model.text = torch.nn.Linear(2, 2)
    model.text.config = SimpleNamespace(**settings)
    assert sharing_limit(model) == LIMIT
    model.text.config.rope_scaling = model.text.config.rope_parameters = {"type": "longrope"}
    assert sharing_limit(model) == settings.get("original_max_position_embeddings", 0)  # not known: no sharing at all


def test_other_models_have_no_limit():
    assert sharing_limit(transformers.BertModel(transformers.BertConfig(vocab_size=50, **SIZES))) == NO_LIMIT
    full = transformers.BigBirdConfig(vocab_size=50, attention_type="original_full", **SIZES)
    assert sharing_limit(transformers.BigBirdModel(full)) == NO_LIMIT


DROPOUT_FAMILIES = {
    "bert": SIZES, "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}, "llama": SIZES,
    "bart": {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
             "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24},
    "t5": {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2},
    "modernbert": {**SIZES, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2},
}


def config(family):
    positions = {} if family == "t5" else {"max_position_embeddings": 40}
    known = {"vocab_size": 50, "pad_token_id": 0, **positions, **DROPOUT_FAMILIES[family]}
    return transformers.CONFIG_MAPPING[family](**known)


def apart(made):
    """How far two rows of equal tokens are apart, in train mode, as a share of their length."""
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(made)
    model = (model.get_encoder() if made.is_encoder_decoder else model).train()
    ids = torch.arange(5, 13).repeat(2, 1)
    with torch.no_grad():
        first, second = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    return float((first - second).norm() / first.norm())


@pytest.mark.parametrize("family", DROPOUT_FAMILIES)
def test_what_is_set_is_what_acts(family):
    made = config(family)
    assert dropout_rates(made)
    set_dropout(made, 0.3, "it")
    assert set(dropout_rates(made).values()) == {0.3}
    assert apart(made) > 0.1
    set_dropout(made, 0.0, "it")
    assert apart(made) < 1e-5


def test_heads_and_whole_layers_keep_theirs():
    bart, bert = config("bart"), config("bert")
    bart.encoder_layerdrop, bart.activation_dropout = 0.2, 0.4
    set_dropout(bart, 0.3, "it")
    set_dropout(bert, 0.3, "it")
    assert (bart.encoder_layerdrop, bart.activation_dropout, bart.classifier_dropout) == (0.2, 0.4, 0.0)
    assert bert.classifier_dropout is None
    assert dropout_rates(bert) == {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.3}
    assert dropout_rates(transformers.PretrainedConfig()) == {}  # nor is a setting guessed
    with pytest.raises(NoDropoutError):
        set_dropout(transformers.PretrainedConfig(), 0.1, "it")
