"""TSDAE's decoder: the checkpoint as a causal language model that attends to one vector. Trained, never tested."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from stsbench.data.text.tokens import cutting
from stsbench.encoders.forward.checkpoint import quiet
from stsbench.encoders.forward.identity import folder_digest
from stsbench.encoders.transformer.find import backbone_folder, resolve_base
from stsbench.errors import StsbenchError
from stsbench.training.modules.backbone import Backbone, load_backbone
from stsbench.training.modules.masked_lm import LMHead

from .options import TSDAEOptions

_CROSS = "crossattention"  # in names of the weights that an encoder does not have
_IDLE = (f"{_CROSS}.self.query.", f"{_CROSS}.self.key.")


class Decoder(nn.Module):
    """transformers' own causal model of the backbone's architecture, with cross-attention, and its language-model head.

    The cross-attention starts from transformers' random weights. Its softmax is over one key, and so 1: queries and keys
    have neither effect nor gradient, and are not trained.
    digest: of the checkpoint read, where it is another than the encoder's.
    """

    def __init__(self, backbone: Backbone, options: TSDAEOptions) -> None:
        """With options.tie every weight that the encoder has, too, is the encoder's parameter itself, with its values as
        they are in memory. Raises StsbenchError, one line, for an architecture without such a decoder, or another width."""
        super().__init__()
        self.digest: str | None = None
        source = backbone if options.decoder is None else self._load(backbone, options.decoder)
        self.tokenizer, self.max_length = source.tokenizer, source.max_length
        self.reads_as_encoder = source.tokenizer.get_vocab() == backbone.tokenizer.get_vocab()
        self.model, others = _with_cross_attention(source)
        _take(self.model, source, options.tie)
        self.model.train(source.model.training)
        self.head = LMHead.load(source.folder, self.model, source.name, tied=True)
        if others != {*self.head.parts}:
            raise StsbenchError(_refusal(source, "another head as a causal than as a masked language model"))
        for name, weight in self.model.named_parameters():
            if any(part in name for part in _IDLE):
                weight.requires_grad_(False)

    def forward(self, vectors: Tensor, ids: Tensor, chosen: Tensor) -> Tensor:
        """Return (m, V) logits for the token after each of the m chosen positions.

        vectors: (n, d), one a text, with their gradient; ids: (n, L), padded right: padding is read as any other token,
        behind all that a chosen position attends to; chosen: (n, L) bool.
        """
        states: Tensor = self.model(
            input_ids=ids, attention_mask=None, encoder_hidden_states=vectors.unsqueeze(1), use_cache=False
        ).last_hidden_state
        logits: Tensor = self.head(states[chosen.nonzero(as_tuple=True)])  # a GPU is waited for once
        return logits

    def tokenise(self, texts: list[str]) -> list[list[int]]:
        """Return [text] -> token ids of its own tokenizer: special tokens included, cut at the backbone's max_length."""
        with cutting(self.tokenizer, self.max_length) as encode:
            return encode(texts)[0]

    def _load(self, backbone: Backbone, name: str) -> Backbone:
        offline = getattr(backbone, "offline", False)
        folder = backbone_folder(name, offline, "options.decoder")
        dropout = getattr(backbone.model.config, "hidden_dropout_prob", None)  # the encoder's: backbone.dropout is of both
        other = load_backbone(folder, name, max_length=backbone.max_length, dropout=dropout, offline=offline)
        other.folder, other.name, other.offline = folder, name, offline
        if other.width != backbone.width:
            raise StsbenchError(
                f"options.decoder {name} has the width {other.width}, and {backbone.name} {backbone.width}: its "
                "cross-attention reads the encoder's vector, so name a model of the same width"
            )
        base = resolve_base(folder, offline)
        self.digest = folder_digest(folder, [base] if base else [])
        return other


def _with_cross_attention(backbone: Backbone) -> tuple[Any, set[str]]:
    """Return the backbone's architecture as a causal model with random weights, and the names of what its class has
    beside it."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM

    encoder: Any = backbone.model
    config = copy.deepcopy(encoder.config)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise StsbenchError(_refusal(backbone, "no causal language model"))
    config.is_decoder, config.add_cross_attention, config.use_cache = True, True, False
    with quiet():
        whole = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model: Any = getattr(whole, whole.base_model_prefix, None)
    if type(model) is not type(encoder) or not any(_CROSS in name for name, _ in model.named_parameters()):
        raise StsbenchError(_refusal(backbone, "no cross-attention in its causal language model"))
    others = {name for name, _ in whole.named_children() if name != whole.base_model_prefix}
    device = next(encoder.parameters()).device
    return model.to(device), others


def _take(model: Any, backbone: Backbone, tie: bool) -> None:
    """Give the decoder `model` the backbone's weights: its parameters themselves, or their values."""
    weights = dict(backbone.model.named_parameters())
    names = [path for path, _ in model.named_parameters() if _CROSS not in path]
    if stray := min({*names} ^ {path for path in weights if not path.startswith("pooler.")}, default=None):
        if any(".base_layer." in path for path in weights):
            raise StsbenchError(
                f"tsdae's decoder starts from the encoder's weights, and {backbone.name} has adapters between them: set "
                "options.decoder to a model without, and tie to false"
            )
        raise StsbenchError(_refusal(backbone, f"another causal language model than encoder ({stray})"))
    for path in names:
        owner, _, attribute = path.rpartition(".")
        if tie:
            setattr(model.get_submodule(owner), attribute, weights[path])
        else:
            getattr(model.get_submodule(owner), attribute).data.copy_(weights[path].data)


def _refusal(backbone: Backbone, why: str) -> str:
    kind = backbone.model.config.model_type
    return f"tsdae has no decoder for {backbone.name}: transformers has {why} for {kind}; take a BERT or RoBERTa"
