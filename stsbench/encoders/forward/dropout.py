"""The dropout of a transformers model, by the names that its config gives it; that of heads and whole layers left out."""

from __future__ import annotations

from typing import Any

from stsbench.errors import EncoderError

# On hidden states (BERT; Falcon, GPT-NeoX; DistilBERT, BART, XLNet; T5; ModernBERT; GPT-2, GPT-J, Phi; MPT; GPT-Neo;
# StarCoder 2) and on attention (BERT; most others; GPT-2; Reformer). A config has those of its own family.
_SETTINGS = (
    "hidden_dropout_prob", "hidden_dropout", "dropout", "dropout_rate", "embedding_dropout", "mlp_dropout", "embd_pdrop",
    "resid_pdrop", "emb_pdrop", "embed_dropout", "resid_dropout", "residual_dropout",
    "attention_probs_dropout_prob", "attention_dropout", "attn_pdrop",
    "local_attention_probs_dropout_prob", "lsh_attention_probs_dropout_prob",
)


class NoDropoutError(EncoderError):
    """A rate is asked for, and the config has no dropout setting that is known here."""


def dropout_rates(config: Any) -> dict[str, float]:
    """The known dropout settings that a transformers config has, with their rates; {} where it has none of them."""
    rates = {key: getattr(config, key, None) for key in _SETTINGS}
    return {key: float(rate) for key, rate in rates.items() if isinstance(rate, int | float) and not isinstance(rate, bool)}


def set_dropout(config: Any, rate: float, name: str) -> None:
    """Set every known dropout rate of a transformers config. NoDropoutError, one line, where there is none."""
    known = dropout_rates(config)
    if not known:
        raise NoDropoutError(
            f"backbone.dropout {rate:g} cannot be set: no dropout setting of {name} ({config.model_type}) is known: choose "
            "another backbone"
        )
    for key in known:
        setattr(config, key, rate)
