"""A SentenceTransformer as the backbone of a method: its transformer and its pooler, the very same weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from stsbench.encoders.forward.checkpoint import position_limit
from stsbench.encoders.forward.token_pooler import TokenPooler
from stsbench.encoders.transformer.declared import POOLING_MODES
from stsbench.encoders.transformer.find import resolve
from stsbench.errors import EncoderError, StsbenchError
from stsbench.training.modules.backbone import Backbone

_LONGEST = 512  # tokens, of a model that states no limit


def backbone_of(model: Any, log: Callable[[str], None]) -> Backbone:
    """The backbone that shares the weights of a SentenceTransformer of the modules Transformer and a pooling.

    A Normalize behind them is left out, and `log` is told. Raises StsbenchError, one line, for other modules, a pooler that
    methods do not train, and weights that are not float32.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from transformers import PreTrainedModel

    if not isinstance(model, SentenceTransformer):
        raise StsbenchError(f"model is a {type(model).__name__}: give the SentenceTransformer that the trainer trains")
    kinds = [type(module).__name__ for module in model]
    if len(kinds) < 2 or not isinstance(model[0], Transformer) or set(kinds[2:]) - {"Normalize"}:
        raise StsbenchError(f"a method trains a model of Transformer and Pooling, and this one is {', '.join(kinds)}")
    if kinds[2:]:
        log("warning: the loss compares the vectors before the module Normalize, as the papers do: cosines are the same")
    transformer, tokenizer = model[0].model, model[0].tokenizer
    if not isinstance(transformer, PreTrainedModel):
        raise StsbenchError(f"a {type(transformer).__name__} cannot be trained: load the model with backend='torch'")
    if dtypes := {str(weight.dtype) for weight in transformer.parameters() if weight.dtype != torch.float32}:
        raise StsbenchError(
            f"the model's weights are {min(dtypes)}: load it with model_kwargs={{'dtype': 'float32'}} (bf16=True of the "
            "training arguments computes in 16 bits all the same)"
        )
    pooler, head = _pooling(model[1])
    limit = model.max_seq_length or position_limit(transformer, tokenizer) or _LONGEST
    backbone = Backbone(transformer, tokenizer, pooler, int(limit), head=head)
    backbone.name = str(getattr(transformer.config, "_name_or_path", "")) or "the model"
    backbone.folder, backbone.offline = _folder(backbone.name), False
    return backbone


def _pooling(module: Any) -> tuple[str, TokenPooler | None]:
    """The name of a pooling module's pooler, and its learned one."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    from stsbench.encoders.transformer.token_pooling_module import MeanPaddedPooling, TokenPooling

    if isinstance(module, TokenPooling):
        return module.head.kind.pooler, module.head
    if isinstance(module, MeanPaddedPooling):
        return f"mean_padded:{module.length}", None
    if not isinstance(module, Pooling):
        raise StsbenchError(f"methods do not train the module {type(module).__name__}: take Pooling behind Transformer")
    mode = module.pooling_mode
    pooler = POOLING_MODES.get(mode) if isinstance(mode, str) else None
    if pooler is None or not module.include_prompt:
        what = f"pooling_mode {mode}" if pooler is None else "include_prompt False"
        raise StsbenchError(f"methods do not train a Pooling with {what}: take one of {', '.join(POOLING_MODES)}")
    return pooler, None


def _folder(name: str) -> Path:
    """Where the model was read, for methods that read more there (a masked-LM head): nothing is downloaded."""
    try:
        return resolve(name, offline=True)
    except EncoderError:  # a model made in memory: who needs the folder says so
        return Path(name)
