"""Dropout by whatever name a family gives it: set, it makes two passes differ; at 0 it does not."""

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModel, PretrainedConfig

from stsbench.encoders.forward.model import NoDropoutError, dropout_rates, set_dropout

SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
SEQ2SEQ = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
}
FAMILIES = {
    "bert": SHAPE, "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
    "bart": SEQ2SEQ, "t5": {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2},
    "modernbert": {**SHAPE, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
    "llama": {**SHAPE, "num_key_value_heads": 2},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2},
}


def config(family):
    positions = {} if family == "t5" else {"max_position_embeddings": 40}
    return CONFIG_MAPPING[family](vocab_size=50, pad_token_id=0, **positions, **FAMILIES[family])


def apart(made):
    """How far two rows of equal tokens are apart, in train mode, as a share of their length."""
    torch.manual_seed(0)
    model = AutoModel.from_config(made)
    model = (model.get_encoder() if made.is_encoder_decoder else model).train()
    ids = torch.arange(5, 13).repeat(2, 1)
    with torch.no_grad():
        first, second = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    return float((first - second).norm() / first.norm())


@pytest.mark.parametrize("family", FAMILIES)
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
    assert bert.classifier_dropout is None and dropout_rates(bert) == {
        "hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.3
    }


def test_a_model_without_a_known_setting_is_refused():
    plain = PretrainedConfig()
    assert dropout_rates(plain) == {}
    with pytest.raises(NoDropoutError):
        set_dropout(plain, 0.1, "it")
