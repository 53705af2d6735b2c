"""The backbone, the transformer that is trained: hidden states and pooled vectors of padded batches, and how it is
loaded."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from stsbench.data.text.tokens import cutting
from stsbench.encoders.forward.checkpoint import load_model
from stsbench.encoders.forward.identity import folder_digest
from stsbench.encoders.forward.model import keep_layers, position_limit
from stsbench.encoders.forward.passes import pad_right
from stsbench.encoders.forward.pooling import KINDS, STATES, padded_length, token_pooler_folder
from stsbench.encoders.forward.token_pooler import CLASSES, TokenPooler
from stsbench.encoders.prompt.tokenizer import load_tokenizer
from stsbench.encoders.transformer.declared import is_static
from stsbench.encoders.transformer.find import backbone_folder, resolve_base
from stsbench.encoders.transformer.parts import check_ends
from stsbench.errors import EncoderError, StsbenchError
from stsbench.torch_random import checkpointed
from stsbench.training.modules.lora import adapt, merge_adapter
from stsbench.training.modules.packed_training import PackedTraining, packable
from stsbench.training.modules.soft_prompt import SoftPrompt, changed_embeddings, check_factors, padded_inputs, scaled_heads

Engine = Literal["auto", "packed", "padded"]


class LayerStates:
    """The hidden states of all layers in the passes of one forward call: kept in a first call, read again after `replay`.

    vectors: the vectors that were pooled from them in the current call, (n, d) each.
    """

    def __init__(self, layers: int) -> None:
        """Set the model's number of layers; state 0 is the embeddings, -1 the last layer."""
        self.layers = layers
        self.vectors: list[Tensor] = []
        self._passes: list[list[Tensor]] = []
        self._layer: int | None = None  # the layer that replaces the last; None: passes run and their states are kept
        self._next = 0

    def replay(self, layer: int) -> None:
        """Make the following passes return the kept states, in the same order, with those of `layer` as the last layer's."""
        self._layer, self._next, self.vectors = layer, 0, []

    def read(self, run: Callable[[tuple[int, ...]], list[Tensor]], numbers: tuple[int, ...]) -> list[Tensor]:
        """Return the states `numbers` of a pass, each (n, L, d). run: computes the states of given numbers."""
        if self._layer is None:
            self._passes.append(run((*range(self.layers), -1)))
            states, last = self._passes[-1], self.layers
        else:
            states, last = self._passes[self._next], self._layer
            self._next += 1
        return [states[last if number in (-1, self.layers) else number] for number in numbers]


class Backbone(nn.Module):
    """A transformers encoder without a pooling layer, its tokenizer and its pooler.

    head: the learned pooler over tokens that `pooler` names, trained with the encoder; None for every other pooler.
    engine: "packed" computes real tokens only (packed_training.py; on a CPU), "padded" is the model's pass over padded
    rows, "auto" is "packed" where possible. Results are the same up to rounding; dropout masks are different draws from the
    same distribution. The states of padding are not to be used.
    layer_states: None, or keeps all layers' states of each pass, to be read again.
    chunk: how many texts are read at a time if there is a gradient (`_in_chunks`), None: all; chunked: whether a pass had
    more texts since `set_chunk`.
    sharded: whether each layer's weights are sharded over processes (engine/shards.py).
    folder, name, offline: the checkpoint's folder, its name in messages, and whether downloads were forbidden, set by
    `make_backbone`.
    """

    folder: Path
    name: str
    offline: bool = False

    def __init__(
        self, model: Any, tokenizer: Any, pooler: str = "cls", max_length: int = 32, engine: Engine = "auto",
        head: TokenPooler | None = None,
    ) -> None:
        super().__init__()
        if (None if head is None else head.kind) != KINDS.get(pooler):
            raise ValueError(f"the pooler {pooler} and the head {head} do not go together")
        self.model = model
        self.tokenizer = tokenizer
        self.pooler = pooler
        self.max_length = max_length
        self.engine: Engine = engine
        self.head = head
        self.chunk: int | None = None
        self.chunked = False
        self.layer_states: LayerStates | None = None
        self.sharded = False

    @property
    def width(self) -> int:
        """Return d, the width of a hidden state."""
        return int(self.model.config.hidden_size)

    @property
    def vector_width(self) -> int:
        """Return the width of the vectors of `pooled`: d, except with a learned pooler over tokens."""
        return self.width if self.head is None else self.head.vector_width

    def tokenise(self, texts: list[str]) -> list[list[int]]:
        """Return `[text]` -> token ids, as of the training text: with special tokens, cut at max_length, not padded."""
        with cutting(self.tokenizer, self.max_length) as encode:
            return encode(texts)[0]

    def forward(
        self, ids: Tensor, mask: Tensor, layers: tuple[int, ...] = (-1,), soft: SoftPrompt | None = None,
        heads: Tensor | None = None,
    ) -> list[Tensor]:
        """Return the hidden states `layers` (0 embeddings ... -1 last layer), each (n, L, d). ids, mask: (n, L).

        soft: positions, learned words, prefixes and changes of the embeddings of this batch; state 0 is then the changed
        embeddings. heads: (n, layers, H) factors of each attention head's output (modules/soft_prompt.py). Raises
        EncoderError if the model does not support them (it is neither BERT nor RoBERTa) or has too few positions, ValueError
        if their shapes are not those of the batch.
        """
        change = None if soft is None else soft.change
        adversarial = change is not None and change.added is not None and change.added.requires_grad
        if adversarial and self.sharded:
            raise StsbenchError("FSDP: an adversarial view takes a gradient within the pass, when a layer's weights are in "
                                "parts: set fsdp_auto_wrap_policy to NO_WRAP, or take another view")
        if (states := self.layer_states) is not None:
            if adversarial:
                raise StsbenchError("adaptive_layers: an adversarial view needs a pass of its own: take another view")
            return states.read(lambda every: self._states(ids, mask, every, soft, heads), layers)
        if parts := self._in_chunks(lambda ids, mask, *more: self(ids, mask, layers, *more), ids, mask, soft, heads):
            return [torch.cat(states) for states in zip(*parts, strict=True)]
        return self._states(ids, mask, layers, soft, heads)

    def _states(
        self, ids: Tensor, mask: Tensor, layers: tuple[int, ...], soft: SoftPrompt | None, heads: Tensor | None
    ) -> list[Tensor]:
        """Return the hidden states of `forward`, of all rows at once."""
        if packed := self._packed(ids, mask, soft, heads):
            return packed.states(layers)
        return self._padded(ids, mask, layers, soft, heads)

    def _padded(
        self, ids: Tensor, mask: Tensor, layers: tuple[int, ...], soft: SoftPrompt | None, heads: Tensor | None
    ) -> list[Tensor]:
        """Return the hidden states of `forward` by the transformers module's own pass, those of padding included."""
        inputs = padded_inputs(self.model, ids, mask, soft)
        if heads is not None:
            check_factors(heads, len(ids), self.model)
        change = soft.change.padded if soft is not None and soft.change is not None else None
        with changed_embeddings(self.model, change), scaled_heads(self.model, heads):
            if layers == (-1,):
                return [self.model(**inputs).last_hidden_state]
            states = self.model(**inputs, output_hidden_states=True).hidden_states
        # BigBird pads rows to whole blocks, and removes that padding only from the last state
        return [states[index][:, : ids.shape[1]] for index in layers]

    def at(self, ids: Tensor, mask: Tensor, indices: Tensor, soft: SoftPrompt | None = None) -> Tensor:
        """Return (n, d), the last state of one real token a row, at `indices` (n,). ids, mask, soft: as for `forward`."""
        real = mask.gather(1, indices.unsqueeze(1)).bool()
        if real.device.type == "cpu" and not bool(real.all()):
            raise ValueError("the state of a padding place is asked for")
        if parts := self._in_chunks(lambda ids, mask, soft, at: self.at(ids, mask, at, soft), ids, mask, soft, indices):
            return torch.cat(parts)
        if self.layer_states is None and (packed := self._packed(ids, mask, soft)):
            return packed.at(indices)
        states: Tensor = self(ids, mask, soft=soft)[0]
        chosen = self._note_vectors(states[torch.arange(len(ids), device=ids.device), indices])
        # checking would wait for a GPU: instead padding gives NaN there, which the loop reports
        return chosen if real.device.type == "cpu" else chosen.masked_fill(~real, torch.nan)

    def pooled(
        self, ids: Tensor, mask: Tensor, soft: SoftPrompt | None = None, heads: Tensor | None = None
    ) -> Tensor:
        """Return (n, vector_width) sentence vectors by the pooler. ids, mask: (n, L), padded right for the poolers text_cnn
        and mean_padded; soft, heads: as for `forward`. mean_padded takes no `soft`.

        Raises EncoderError with the pooler mask: a method with a template calls `at` with the positions of its masks.
        """
        if self.pooler == "mask":
            raise EncoderError("the pooler mask needs a method with a template (promptbert, diffaug): choose another pooler")
        if parts := self._in_chunks(self.pooled, ids, mask, soft, heads):
            return torch.cat(parts)
        if self.layer_states is None and self.pooler == "cls" and (packed := self._packed(ids, mask, soft, heads)):
            return packed.at(mask.new_zeros(len(mask)))
        if (length := padded_length(self.pooler)) is not None:
            if soft is not None:
                raise ValueError(f"the pooler {self.pooler} reads the states of padding, which no soft prompt is made for")
            pad = self.tokenizer.pad_token_id or 0
            if self.engine == "packed":
                raise EncoderError(f"no packed training pass has the states of padding that {self.pooler} reads: use padded")
            return self._padded(*pad_right(ids, mask, length, pad), (-1,), None, heads)[0].mean(1)
        return self._note_vectors(self.pool(self(ids, mask, STATES[self.pooler], soft, heads), mask))

    def _note_vectors(self, vectors: Tensor) -> Tensor:
        """Record pooled vectors, (n, d), in `layer_states`, if set, and return them."""
        if self.layer_states is not None:
            self.layer_states.vectors.append(vectors)
        return vectors

    def pool(self, states: list[Tensor], mask: Tensor) -> Tensor:
        """Return (n, vector_width) sentence vectors, pooled from the hidden states STATES[pooler], each (n, L, d)."""
        if self.head is None:
            return pool_padded(self.pooler, states, mask)
        vectors: Tensor = self.head(states[0], mask)
        return vectors

    def _in_chunks(
        self, run: Callable[..., Any], ids: Tensor, mask: Tensor, soft: SoftPrompt | None, more: Tensor | None
    ) -> list[Any]:
        """Return the results of run(ids, mask, soft, more) on chunks of `chunk` rows, with the gradient of a single pass and
        the memory of a chunk; [] if one chunk holds all n rows, or no gradient is needed.

        Only the results are kept. Activations are computed again, chunk by chunk, in the backward pass (Gao et al. 2021,
        Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup), with the same dropout masks. ids, mask:
        (n, L); more: (n, ...), a further argument of `run`, or None.
        """
        if self.chunk is None or len(ids) <= self.chunk or not torch.is_grad_enabled():
            return []
        if self.layer_states is not None:
            raise StsbenchError("adaptive_layers: all states are held, and training.chunk holds few: set one to null")
        self.chunked = True
        parts = []
        for start in range(0, len(ids), self.chunk):
            rows = slice(start, start + self.chunk)
            some = None if soft is None else soft.part(rows), None if more is None else more[rows]
            parts.append(checkpointed(run, ids[rows], mask[rows], *some))
        return parts

    def engine_on(self, device: str) -> str:
        """Return the engine that this backbone uses on a kind of device ("cpu", "cuda"), as "auto" depends on it."""
        if self.engine != "auto":
            return self.engine
        packed = device == "cpu" and packable(self.model) and padded_length(self.pooler) is None
        return "packed" if packed else "padded"

    def _packed(
        self, ids: Tensor, mask: Tensor, soft: SoftPrompt | None = None, heads: Tensor | None = None
    ) -> PackedTraining | None:
        """Return the packed pass of this batch, or None for the padded pass. Raises EncoderError if engine "packed" is not
        possible."""
        if self.engine not in get_args(Engine):
            raise EncoderError(f"engine {self.engine!r} is unknown (there are {', '.join(get_args(Engine))})")
        if self.engine == "padded":
            return None
        # with padding on the left the cls pooler would read padding, but the packed pass the first real token
        if ids.device.type == "cpu" and packable(self.model) and bool(mask[:, 0].all()):
            return PackedTraining(self.model, ids, mask, soft, heads)
        if self.engine == "auto":
            return None
        raise EncoderError(
            f"no packed training pass for this {type(self.model).__name__} on {ids.device.type}: it needs a CPU, a model "
            "whose texts are in a row what they are alone, and rows that begin with a token; use engine 'padded'"
        )


def set_chunk(method: nn.Module, size: int | None) -> None:
    """Set `chunk` to `size` in every backbone of `method`, and reset `chunked`."""
    for backbone in method_backbones(method):
        backbone.chunk, backbone.chunked = size, False


def method_backbones(method: nn.Module) -> list[Backbone]:
    """Return the backbones in `method`, the one that is trained first."""
    return [module for module in method.modules() if isinstance(module, Backbone)]


def pool_padded(name: str, states: list[Tensor], mask: Tensor) -> Tensor:
    """Return (n, d) vectors pooled from padded hidden states; stsbench.encoders.forward.pooling pools packed states.

    states: the hidden states STATES[name], each (n, L, d); mask: (n, L), 1 on real tokens.
    """
    if name == "cls":
        return states[0][:, 0]
    real = mask.unsqueeze(-1)
    if name == "max":
        return states[0].masked_fill(real == 0, -torch.inf).amax(1)
    if name == "last":
        indices = torch.arange(1, mask.shape[1] + 1, device=mask.device) * mask
        return states[0][torch.arange(len(mask), device=mask.device), indices.argmax(1)]
    if name == "weighted_mean":
        weights = (mask.cumsum(1) * mask).unsqueeze(-1)  # counted from the first real token, wherever padding stands
        return (states[0] * weights).sum(1) / weights.sum(1)
    means = [(state * real).sum(1) / real.sum(1) for state in states]
    if name == "cls_avg":
        return (states[0][:, 0] + means[0]) / 2
    return means[0] if len(means) == 1 else (means[0] + means[1]) / 2


def pool_layers(pooling: Literal["mean", "max", "sum"], states: list[Tensor], mask: Tensor) -> Tensor:
    """Return (n, k, d), for each of k hidden states, each (n, L, d), its vector pooled over real tokens. mask: (n, L)."""
    if pooling == "sum":
        real = mask.unsqueeze(-1)
        return torch.stack([(state * real).sum(1) for state in states], 1)
    return torch.stack([pool_padded(pooling, [state], mask) for state in states], 1)


def load_backbone(
    folder: Path, name: str, pooler: str = "cls", max_length: int = 32, dropout: float | None = None,
    token_poolers: Mapping[str, dict[str, Any]] | None = None, offline: bool = False, layers: Sequence[int] | None = None,
    bidirectional: bool = False, lora: Mapping[str, Any] | None = None,
) -> Backbone:
    """Return the backbone in a folder, in float32 and train mode, all weights trainable; an adapter is merged. The folder
    may hold a static model. dropout: the rate for states and attention; None: the model's own.

    bidirectional: lets the tokens of a causal model attend to later tokens; lora: arguments of `adapt`, to train low-rank
    changes instead of the weights. offline: forbids fetching an adapter's base, which is read in the revision that the
    adapter pins. layers: the layers that are kept, from 0; None: all.
    token_poolers: the name of the chosen learned pooler -> arguments of its class without the width; default: those of the
    pooler in the folder, which is always kept, else the class's. Raises EncoderError for files that cannot be loaded, a
    max_length beyond the model's positions, and settings that are of another pooler or contradict the folder's pooler.
    """
    if is_static(folder):
        from stsbench.training.modules.static_table import load_table

        unread = {"dropout": dropout, "layers": layers, "attention": bidirectional, "lora": lora, **(token_poolers or {})}
        table = f"{name} is a table of tokens' vectors"
        if stray := next((key for key, value in unread.items() if value), None):
            raise EncoderError(f"backbone.{stray} has no effect: {table}: leave it at its default")
        if pooler != "mean":
            raise EncoderError(f"backbone.pooler {pooler}: {table}: set it to mean")
        return Backbone(*load_table(folder, name), pooler, max_length)
    asked = token_poolers or {}
    if idle := next((other for other in asked if other != pooler), None):
        raise EncoderError(f"backbone.{idle} has no effect with backbone.pooler {pooler}: set it to null")
    base = resolve_base(folder, offline)
    model, _ = load_model(folder, name, "float32", dropout=dropout, base=base)
    if (folder / "adapter_config.json").is_file():
        merge_adapter(model, name)
    if layers is not None:
        keep_layers(model, layers, name, "backbone.layers")
    if bidirectional:
        look_ahead(model.requires_grad_(True), name)
    tokenizer = load_tokenizer(folder, name, base=base)
    limit = position_limit(model, tokenizer)
    if limit is not None and max_length > limit:
        raise EncoderError(
            f"backbone.max_length {max_length} is more than the {limit} positions of {name}: "
            f"--set backbone.max_length={limit}"
        )
    if (padded := padded_length(pooler)) is not None:
        if padded < max_length:
            raise EncoderError(f"backbone.pooler {pooler} has no room for texts of backbone.max_length {max_length} tokens")
        if limit is not None and padded > limit:
            raise EncoderError(f"backbone.pooler {pooler} is more than the {limit} positions of {name}")
    if getattr(model, "pooler", None) is not None:
        # transformers' pooler is neither trained nor tested: methods that need a dense layer have their own
        model.pooler = None if "self.pooler is not None" in inspect.getsource(type(model).forward) else nn.Identity()
    _check_pass(model, name)
    head = None
    if pooler in KINDS:
        check_ends(tokenizer, pooler, name)
        head = _token_pooler(folder, name, pooler, int(model.config.hidden_size), asked.get(pooler, {}))
    for weight in model.parameters():  # safetensors refuses views, such as q, k and v that transformers split from a tensor
        if weight.untyped_storage().nbytes() != weight.nbytes:
            weight.data = weight.data.clone()
    model.requires_grad_(True).train()
    if lora is not None:
        adapt(model, name, **lora)
    return Backbone(model, tokenizer, pooler, max_length, head=head)


def load_another(
    model: str | None, backbone: Backbone, option: str, dropout: float | None = None
) -> tuple[Backbone, str]:
    """Return a second backbone, from the Hub id or folder that an option names, and the digest of its files.

    model: None: the checkpoint of `backbone`, as it is stored; dropout, errors: as for `load_backbone`.
    """
    offline, name = backbone.offline, backbone.name if model is None else model
    folder = backbone.folder if model is None else backbone_folder(model, offline, option)
    another = load_backbone(folder, name, max_length=backbone.max_length, dropout=dropout, offline=offline)
    another.folder, another.name, another.offline = folder, name, offline
    base = resolve_base(folder, offline)
    return another, folder_digest(folder, [base] if base else [])


def look_ahead(model: Any, name: str) -> None:
    """Let the tokens of a causal model attend to later tokens. Raises EncoderError if the model is not causal, or stays so.

    The setting is transformers' is_causal, which an export's config.json holds. All layers have to change: in some models
    only the attention layers would, and in others attention would be limited to a chunk of the text. Source: BehnamGhader et
    al. (2024), LLM2Vec, section 2.1.
    """
    ids = torch.tensor([[5, 6, 7, 8]])

    def looking() -> list[bool]:
        """Return for each layer whether its first token's output depends on its last token's input."""
        with torch.enable_grad():
            output = model.eval()(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
            gradients = [
                torch.autograd.grad(after[0, 0].square().sum(), before, retain_graph=True, allow_unused=True)[0]
                for before, after in pairwise(output.hidden_states)
            ]
        return [gradient is not None and bool(gradient[0, -1].any()) for gradient in gradients]

    refusal = EncoderError(
        f"backbone.attention: a {type(model).__name__} cannot be switched to both directions: set it to own"
    )
    try:
        if getattr(model.config, "is_causal", True) and any(looking()):
            raise EncoderError(f"backbone.attention: the tokens of {name} attend to what follows already: set it to own")
        model.config.is_causal = False
        switched = all(looking()) and getattr(model.config, "attention_chunk_size", None) is None
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise refusal from error
    if not switched:
        raise refusal


def _check_pass(model: Any, name: str) -> None:
    """Raise EncoderError if the model cannot encode a short text, or if its states do not have the config's width."""
    ids = torch.tensor([[5, 6, 7]])
    try:
        with torch.no_grad():
            states = model.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    except Exception as error:
        cause = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise EncoderError(
            f"{name}: a {type(model).__name__} cannot read a text of three tokens ({cause}): choose another backbone"
        ) from error
    if states.shape[2] != (width := int(model.config.hidden_size)):
        raise EncoderError(
            f"{name}: the states of a {type(model).__name__} have {states.shape[2]} numbers, and its hidden_size is {width}"
            ": choose another backbone"
        )


def _token_pooler(folder: Path, name: str, pooler: str, width: int, settings: dict[str, Any]) -> TokenPooler:
    """Return the learned pooler in the folder, else a new one with weights from torch's global generator."""
    kind, stored = KINDS[pooler], token_pooler_folder(folder)
    if stored is None or stored[0] != kind:
        return CLASSES[pooler](width=width, **settings)
    head = CLASSES[pooler].load(stored[1])
    kept = {**head.settings(), "kernels": tuple(head.kernels)}
    asked = {**kept, **settings, "width": width}
    if differs := [f"{key} {asked[key]} instead of {value}" for key, value in kept.items() if asked[key] != value]:
        raise EncoderError(
            f"backbone.{pooler}: {name} stores a different {kind.title} ({', '.join(differs)}): set "
            f"backbone.{pooler} to null"
        )
    return head
