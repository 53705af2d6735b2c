"""A SentenceTransformer as the backbone of a method: its transformer and its pooler, the very same weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

from torch import Tensor, nn

from stsbench.encoders.forward.model import position_limit
from stsbench.encoders.forward.passes import pad_right
from stsbench.encoders.forward.pooling import padded_length
from stsbench.encoders.forward.token_pooler import TokenPooler
from stsbench.encoders.transformer.declared import POOLING_MODES
from stsbench.encoders.transformer.find import resolve
from stsbench.errors import EncoderError, StsbenchError
from stsbench.training.api.batch import Batch
from stsbench.training.api.method import Method
from stsbench.training.modules.backbone import Backbone, method_backbones

_LONGEST = 512  # tokens, of a model that states no limit
_MODULES, _WRAPPERS = ("sentence_transformers", "stsbench"), ("accelerate", "torch")
_QUANTISED = ("bitsandbytes", "torch.ao", "torchao")


def shared_backbone(model: Any, log: Callable[[str], None]) -> Backbone:
    """Return the backbone that shares the weights of a SentenceTransformer of the modules Transformer and a pooling.

    A Normalize behind them is left out, and `log` is told. Raises StsbenchError, one line, for other modules, a pooler that
    methods do not train, and weights that are not float32.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer

    if not isinstance(model, SentenceTransformer):
        raise StsbenchError(f"model is a {type(model).__name__}: give the SentenceTransformer that the trainer trains")
    kinds = [type(module).__name__ for module in model]
    if len(kinds) < 2 or not isinstance(model[0], Transformer) or set(kinds[2:]) - {"Normalize"}:
        raise StsbenchError(f"a method trains a model of Transformer and Pooling, and this one is {', '.join(kinds)}")
    if kinds[2:]:
        log("warning: the loss compares the vectors before the module Normalize, as the papers do: cosines are the same")
    transformer, tokenizer = _transformer(model[0].model), model[0].tokenizer
    check_precision(transformer)
    pooler, head = _pooling(model[1])
    limit = model.max_seq_length or position_limit(transformer, tokenizer) or _LONGEST
    backbone = Backbone(transformer, tokenizer, pooler, int(limit), head=head)
    backbone.name = str(getattr(transformer.config, "_name_or_path", "")) or "the model"
    backbone.folder, backbone.offline = _folder(backbone.name), False
    return backbone


def check_precision(transformer: nn.Module) -> None:
    """Raise StsbenchError for weights that are neither float32 nor float64."""
    if dtypes := {str(weight.dtype) for weight in transformer.parameters()} - {"torch.float32", "torch.float64"}:
        raise StsbenchError(
            f"the model's weights are {min(dtypes)}: load it with model_kwargs={{'dtype': 'float32'}} (bf16=True of the "
            "training arguments computes in 16 bits all the same)"
        )


def surroundings(model: Any) -> str | None:
    """Return the name of anything besides its own modules that changes a SentenceTransformer's forward; None for nothing.

    That is a replaced forward (by a loss modifier while it runs, or by a subclass), a hook, or an adapter that acts in
    peft's own forward. Wrappers of accelerate and torch do not count, as they only choose precision and devices.
    """
    from peft import PeftModel

    parts = [*_wrappers(model)]
    model = parts[-1]
    for part in (*parts, *model):
        if (function := _foreign(part.forward, ("torch",) if part in parts[:-1] else _MODULES)) is not None:
            kind = function if isinstance(function, FunctionType) else type(function)
            return f"{kind.__module__.rpartition('.')[2]}.{kind.__qualname__}"
        if part._forward_hooks or part._forward_pre_hooks:
            return f"a hook of {type(part).__name__}"
    adapted = model[0].model
    if isinstance(adapted, PeftModel):
        for config in (adapted.peft_config[name] for name in adapted.active_adapters):
            acts = config.peft_type.value in ("XLORA", "POLY") or getattr(config, "alora_invocation_tokens", None)
            if config.is_prompt_learning or acts:
                return f"peft's {config.peft_type.value}"
    return None


def _wrappers(model: Any) -> Iterator[Any]:
    """Yield the wrappers of torch.compile or DataParallel around a SentenceTransformer, outermost first, and then itself."""
    from sentence_transformers import SentenceTransformer

    yield model
    while not isinstance(model, SentenceTransformer):
        model = model._orig_mod if hasattr(model, "_orig_mod") else model.module
        yield model


def _foreign(function: Any, libraries: tuple[str, ...]) -> Any:
    """Return the forward inside the wrappers of accelerate and torch if it is not of `libraries`; None otherwise."""
    while function is not None:
        function = getattr(function, "__func__", function)
        name = function.__globals__["__name__"] if isinstance(function, FunctionType) else type(function).__module__
        root = name.partition(".")[0]
        if isinstance(function, FunctionType) and root in libraries:
            return None
        inner = getattr(function, "__wrapped__", None)
        if root not in _WRAPPERS or inner is None:
            return function
        function = inner
    return None


class SurroundedBatch:
    """A batch whose vectors are what a SentenceTransformer's forward gives, with what stands around it.

    A loss modifier calls a loss several times for one batch, and gives what it computed the first time, cut or of another
    layer: the batch is the same each time, and so are the features that forward writes its results into.
    """

    def __init__(self, columns: Any, batch: Batch, around: str) -> None:
        """columns: what the modifier calls with; around: the name of what stands there."""
        self.columns, self.batch, self.around = columns, batch, around
        self.features: list[dict[str, Any]] = []

    @contextmanager
    def read_through(self, model: Any, method: Method) -> Iterator[None]:
        """Within, the method's backbone pools by model.forward. Raises StsbenchError for whatever else a method reads."""
        backbone, trained = method.backbone, {id(weight) for weight in model.parameters()}
        added = [name for name, weight in method.named_parameters() if id(weight) not in trained]
        calls = iter(range(2**31))

        def refused(reason: str) -> StsbenchError:
            return StsbenchError(
                f"{self.around} acts in the model's forward, and {method.name} {reason}: take it away, or train by "
                "stsbench.train (matryoshka in a recipe)"
            )

        def pooled(ids: Tensor, mask: Tensor, soft: Any = None, heads: Any = None) -> Tensor:
            if soft is not None or heads is not None:
                raise refused("changes embeddings or attention heads, which it does not see")
            if (number := next(calls)) == len(self.features):
                if (length := padded_length(backbone.pooler)) is not None:
                    ids, mask = pad_right(ids, mask, length, backbone.tokenizer.pad_token_id or 0)
                self.features.append({"input_ids": ids, "attention_mask": mask})
            try:
                vectors: Tensor = model(self.features[number])["sentence_embedding"]
            except Exception as error:
                cause = f"{type(error).__name__}: {' '.join(str(error).split())}"
                raise StsbenchError(f"the model's forward, with {self.around}, failed: {cause}") from error
            if added and vectors.shape[1] != backbone.vector_width:
                numbers = f"{backbone.vector_width} numbers of a vector, not {vectors.shape[1]}"
                raise refused(f"has weights for {numbers} ({added[0]})")
            return vectors

        def hidden(*arguments: Any, **more: Any) -> Any:
            raise refused("reads hidden states, which it does not change")

        if len(method_backbones(method)) > 1:
            raise refused("has a second encoder, which it does not reach")
        vars(backbone).update(pooled=pooled, forward=hidden, at=hidden)
        try:
            yield
        finally:
            for name in ("pooled", "forward", "at"):
                delattr(backbone, name)


def _transformer(model: Any) -> Any:
    """Return the transformers model that is trained, with its adapters in it. Raises StsbenchError, one line, for what
    wraps or replaces one otherwise."""
    from peft import PeftMixedModel, PeftModel
    from transformers import PreTrainedModel

    kind = type(model).__name__
    if isinstance(model, (PeftModel, PeftMixedModel)):
        model = model.get_base_model()
    elif hasattr(model, "_orig_mod") or isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        raise StsbenchError(
            f"model[0].model is wrapped in a {kind}: give the model itself (the trainer wraps it, and torch_compile=True of "
            "the training arguments compiles it)"
        )
    if not isinstance(model, PreTrainedModel):
        raise StsbenchError(f"model[0].model is a {kind}, which cannot be trained: load the model with backend='torch'")
    parts = {f"{type(part).__module__}." for part in model.modules()}
    if getattr(model, "is_quantized", False) or any(part.startswith(f"{name}.") for name in _QUANTISED for part in parts):
        raise StsbenchError("the model's weights are quantised: load it without quantization_config, in float32")
    return model


def _pooling(module: Any) -> tuple[str, TokenPooler | None]:
    """Return the name of a pooling module's pooler, and its learned one."""
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
    """Return where the model was read, for methods that read more there (a masked-LM head): nothing is downloaded."""
    try:
        return resolve(name, offline=True)
    except EncoderError:  # a model made in memory: who needs the folder says so
        return Path(name)
