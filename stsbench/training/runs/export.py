"""A trained encoder as a folder that stsbench, sentence-transformers and transformers load, with the same vectors.

Module types and keys in sentence-transformers' files are those that every version from 2 on reads; version 6 renames them
when it loads them.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, eye, from_numpy, nn, zeros

from stsbench.encoders.forward.checkpoint import check_weights, first_line, quiet
from stsbench.encoders.forward.model import position_limit
from stsbench.encoders.forward.pooling import KINDS, STATES, check_pooler, padded_length
from stsbench.encoders.forward.token_pooler import TokenPooler
from stsbench.encoders.post.chain import TYPE as POST
from stsbench.encoders.post.chain import Chain, write_post
from stsbench.encoders.prompt.prompt import fits_pooler, write_prompt
from stsbench.encoders.prompt.tokenizer import READ_ALIKE
from stsbench.encoders.transformer.declared import TABLE
from stsbench.encoders.transformer.exported import HEAD, PROMPT, Exported, write_exported
from stsbench.errors import StsbenchError
from stsbench.files import new_folder
from stsbench.training.api.method import Inference
from stsbench.training.modules.lora import base_arguments, merged_state, write_adapter

# Settings that a tokenizer keeps from its tokenizer.json or from the call that loaded it.
_LEFT_OVER = (
    "max_length", "stride", "truncation_strategy", "pad_to_multiple_of", "name_or_path", "local_files_only", "is_local",
)
_PADDING = ("eos_token", "sep_token", "unk_token", "bos_token", "cls_token")  # any of them can pad, as padding is masked


def export_model(
    inference: Inference,
    folder: Path,
    *,
    card: str = "",
    max_length: int | None = None,
    method: str | None = None,
    recipe: str | None = None,
    trained_on: tuple[str, ...] = (),
    training_overlap: Sequence[Mapping[str, Any]] = (),
    replace: bool = False,
    normalize: bool = False,
    post: tuple[Chain, str] | None = None,
) -> None:
    """Write the encoder to `folder`, which appears whole or not at all; the model and its tokenizer are not changed.

    The files are config.json and model.safetensors (float32; the masked-LM's where `inference` has one), the tokenizer,
    README.md (the card), sentence-transformers' files and stsbench.json. A kept head is stored as pooler.dense, too, a
    learned pooler in 1_TextCNN or 1_MeanCNN, a learned prompt in prompt.safetensors. max_length: tokens, special ones
    included, after which all readers cut a text; by default the model's position limit (less the positions that a prompt
    takes), not the training's. trained_on: test sets whose sentences were trained on. training_overlap: for each training
    text, its overlap with test sets. replace: overwrite an earlier export. normalize: scale vectors to length 1; post: a
    fitted chain of post-processings after that, and what it was fitted on. Raises StsbenchError when the folder exists or
    cannot be written.
    """
    described = Exported(
        inference.pooler, max_length, method, recipe, None if inference.prompt is None else inference.prompt.settings(),
        normalize, post is not None, trained_on, tuple(training_overlap),
    )
    limit = _limit(inference, max_length)
    with new_folder(folder, replace) as building:
        _fill(building, inference, limit, described, card, post)


def export_adapter(inference: Inference, folder: Path, base: str, described: Exported) -> None:
    """Write the low-rank changes of `backbone.lora` alone to `folder`, which appears whole or not at all. peft,
    sentence-transformers and stsbench add them to `base`, Hub id or folder, and compute the same vectors as with the whole
    export. For a base stored in bfloat16, sentence-transformers computes in that type and agrees up to its rounding.

    described: facts on the training; its pooler is None, as modules.json states the pooling. `inference` must not have a
    prompt, which such a folder cannot store.
    """
    with new_folder(folder, replace=True) as building:
        write_adapter(inference.model, building, base)
        limit = _limit(inference, None)
        write_tokenizer(inference.tokenizer, building, limit)
        config = inference.model.config
        write_layout(building, inference.pooler, config.hidden_size, limit, None, config.num_hidden_layers,
                     model_args=base_arguments(inference.model))
        write_exported(building, described)


def try_export(inference: Inference, parent: Path, name: str) -> None:
    """Check, before hours of training, that the encoder can be exported, in a temporary folder of `parent`.

    Raises StsbenchError, one line, where the model called `name` cannot be written, or would be read with other weights.
    """
    try:
        with tempfile.TemporaryDirectory(dir=parent, prefix=".export.", suffix=".tmp") as building:
            folder = Path(building)
            _fill(folder, inference, _limit(inference, None), Exported(inference.pooler), "", None)
            check_weights(folder, name)
    except Exception as error:  # libraries raise errors of their own kinds
        why = getattr(error, "strerror", None) or first_line(error)
        if isinstance(error, OSError) or "(os error" in why:  # how safetensors reports one
            raise StsbenchError(f"cannot write the model to {parent}: {why}") from error
        raise StsbenchError(f"{name} could be trained, but not exported then: {why}; choose another backbone") from error


def _limit(inference: Inference, max_length: int | None) -> int | None:
    """Return the number of tokens after which all readers cut a text, None for no limit. Raises ValueError for parts that
    do not fit the pooler, and StsbenchError for a length that it excludes."""
    model, pooler = inference.model, check_pooler(inference.pooler, "the method")
    if (pooler == "cls+dense") != (inference.dense is not None):
        raise ValueError(f"pooler {pooler} cannot be exported with dense={inference.dense}")
    if KINDS.get(pooler) != (None if inference.token_pooler is None else inference.token_pooler.kind):
        raise ValueError(f"pooler {pooler} cannot be exported with token_pooler={inference.token_pooler}")
    prompt = inference.prompt
    if pooler == "mask" if prompt is None else not fits_pooler(prompt.settings(), pooler):
        raise ValueError(f"pooler {pooler} cannot be exported with prompt={prompt}")
    limit = position_limit(model, inference.tokenizer) if max_length is None else max_length
    if max_length is None and limit is not None and prompt is not None:
        limit -= prompt.shift
    if (padded := padded_length(pooler)) is not None:
        if max_length is not None and max_length != padded:  # a tokenizer that pads to N cuts at N
            raise StsbenchError(
                f"a model of pooler {pooler} that cuts texts at {max_length} tokens cannot be written, because "
                f"sentence-transformers would cut them at {padded}: take mean_padded:{max_length}, or leave the length out"
            )
        limit = padded
    return limit


def _fill(
    building: Path, inference: Inference, limit: int | None, described: Exported, card: str, post: tuple[Chain, str] | None
) -> None:
    """Write all files of an export."""
    config, pooler, static = inference.model.config, inference.pooler, inference.model.config.model_type == TABLE
    if static:
        from stsbench.training.modules.static_table import write_table

        write_table(inference.model, inference.tokenizer, building, described.normalize)
        described = replace(described, pooler=None)  # modules.json states the pooling, and there is no transformer
    else:
        _write_model(inference, building, hidden_states=len(STATES.get(pooler, ())) > 1)
        write_tokenizer(inference.tokenizer, building, limit)
    write_layout(
        building, pooler, config.hidden_size, limit, inference.dense, config.num_hidden_layers, inference.token_pooler,
        described.normalize, post, "StaticEmbedding" if static else "Prompt" if inference.prompt is not None else None,
    )
    if post is not None:
        write_post(building, *post)
    if inference.prompt is not None:
        write_prompt(building, inference.prompt)
    if card:
        (building / "README.md").write_text(card, "utf-8")
    write_exported(building, described)


def _write_model(inference: Inference, folder: Path, hidden_states: bool) -> None:
    """Write config.json and model.safetensors. hidden_states: whether the loaded model returns all layers' states."""
    saved: Any = inference.model if inference.masked_lm is None else inference.masked_lm
    if inference.masked_lm is not None and saved.base_model is not inference.model:
        raise ValueError("masked_lm holds another encoder than model")
    state = merged_state(saved) if hasattr(inference.model, "peft_config") else saved.state_dict()
    if adapter := next((key for key in state if "lora_" in key or ".base_layer." in key), None):
        raise ValueError(f"the model holds an adapter ({adapter}): merge it into the weights, no plain reader would find it")
    if inference.dense is not None:
        start = "" if inference.masked_lm is None else f"{saved.base_model_prefix}."
        head = inference.dense.weight.detach(), inference.dense.bias.detach()
        state.update({f"{start}{key}": value for key, value in zip(HEAD, head, strict=True)})
    config = saved.config
    before = {key: copy.copy(getattr(config, key, None)) for key in ("architectures", "dtype")}
    try:
        with quiet():
            saved.save_pretrained(folder, state_dict=state)
    finally:
        for key, value in before.items():
            setattr(config, key, value)
    path = folder / "config.json"
    stored = json.loads(path.read_text("utf-8"))
    stored.pop("_name_or_path", None)  # a path on this machine
    stored["output_hidden_states"] = hidden_states
    if inference.masked_lm is not None:  # or readers would tie weights trained apart, or draw tied ones anew
        output = saved.get_output_embeddings()
        stored["tie_word_embeddings"] = output is not None and output.weight is saved.get_input_embeddings().weight
    path.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n", "utf-8")


def write_tokenizer(tokenizer: Any, folder: Path, limit: int | None) -> None:
    """Write a copy of `tokenizer` beside a model, without its own truncation and padding, which would also apply where a
    reader asks for none. A tokenizer without a padding token gets one of its special tokens for it.

    Raises StsbenchError where transformers would read a different tokenizer from the folder, or it cannot pad.
    """
    plain = copy.deepcopy(tokenizer)
    if getattr(plain, "is_fast", False):
        plain.backend_tokenizer.no_truncation()
        plain.backend_tokenizer.no_padding()
    for key in _LEFT_OVER:
        plain.init_kwargs.pop(key, None)
    if limit is not None:
        plain.model_max_length = limit
    if plain.pad_token_id is None:
        special = ((getattr(plain, name, None), getattr(plain, f"{name}_id", None)) for name in _PADDING)
        plain.pad_token = next((token for token, number in special if token and number is not None), None)
    if plain.pad_token_id is None:
        raise StsbenchError("its tokenizer has no special token to pad texts by: sentence-transformers cannot encode two")
    plain.save_pretrained(folder)
    if not (differs := _differs(plain, folder)):
        return
    # transformers builds some tokenizers from their class instead of tokenizer.json: the general class reads the file
    path = folder / "tokenizer_config.json"
    stored = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**stored, "tokenizer_class": "PreTrainedTokenizerFast"}, indent=2) + "\n", "utf-8")
    if not (folder / "tokenizer.json").is_file() or _differs(plain, folder):
        raise StsbenchError(f"transformers reads another tokenizer from the folder ({differs})")


def _differs(tokenizer: Any, folder: Path) -> str:
    """Return how the tokenizer that transformers reads from `folder` differs from `tokenizer`; "" where both agree."""
    from transformers import AutoTokenizer

    try:
        with quiet():
            read = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        expected = [tokenizer(text, padding=False, truncation=False)["input_ids"] for text in READ_ALIKE]
        padded = read(list(READ_ALIKE), padding=True, truncation=False)
    except Exception as error:
        return first_line(error)
    for text, ids, row, mask in zip(READ_ALIKE, expected, padded["input_ids"], padded["attention_mask"], strict=True):
        real = [token for token, counts in zip(row, mask, strict=True) if counts]
        if real != list(ids):
            return f"{text!r}: tokens {real[:9]} instead of {list(ids)[:9]}"
    return ""


_MEAN_PADDED = "stsbench.encoders.transformer.token_pooling_module.MeanPaddedPooling"
_MODES = {
    "cls": "cls_token", "cls+dense": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "last": "lasttoken",
    "weighted_mean": "weightedmean_tokens",
}
_BOTH = "cls_avg"  # Pooling puts [CLS] and mean side by side, and a Dense without bias takes half of each


ONE_STATE = ("cls", "mean", "max", "last", "weighted_mean")  # poolers of the last layer without weights of their own


def layer_weights(pooler: str, layers: int) -> Tensor | None:
    """Return (layers + 1,) weights of the embeddings and all layers, by which `pooler` averages them before its mean over
    tokens (the order of the two means makes no difference); None for poolers that read the last layer only.
    """
    layers_of = {"first_last:embeddings": (0, layers), "first_last:layer1": (1, layers), "last2": (layers - 1, layers)}
    if pooler not in layers_of:
        return None
    weights = zeros(layers + 1)
    for layer in layers_of[pooler]:
        weights[layer] += 1  # added up, as both may be the one layer of a model
    return weights


def write_layout(
    folder: Path, pooler: str, width: int, limit: int | None, dense: nn.Linear | None, layers: int,
    token_pooler: TokenPooler | None = None, normalize: bool = False, post: tuple[Chain, str] | None = None,
    alone: Literal["StaticEmbedding", "Prompt"] | None = None, model_args: Mapping[str, Any] | None = None,
) -> None:
    """Write modules.json and the modules that it names into `folder`, beside a model of this width and number of layers.

    limit: tokens, special ones included, None for no limit. Poolers over several layers need output_hidden_states in the
    model's config.json: without it sentence-transformers would silently take the last layer. normalize: add the module
    Normalize. post: a fitted chain and what it was fitted on, as the last module: a Dense without activation if all its
    steps are affine (computed in float32), else stsbench's own module; alone: the module that replaces Transformer and
    pooling, for a static table or a prompt. model_args: arguments by which sentence-transformers loads the model.
    """
    padded = padded_length(pooler)
    learned = "Pooling" if token_pooler is None else token_pooler.kind.title
    pooling = "MeanPadded" if padded is not None else learned
    kinds: list[str] = [alone] if alone else ["Transformer", pooling]
    weights = layer_weights(pooler, layers)
    if weights is not None:
        kinds.insert(1, "WeightedLayerPooling")
    if pooler == _BOTH:
        kinds.append("Average")
    if dense is not None:
        kinds.append("Dense")
    if normalize:
        kinds.append("Normalize")
    affine = None if post is None else post[0].affine()
    if post is not None:
        kinds.append("Post" if affine is None else "Affine")
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds[1:], start=1))]
    named = {
        "MeanPadded": _MEAN_PADDED, "Prompt": PROMPT, "Post": POST, "Affine": "sentence_transformers.models.Dense",
        "Average": "sentence_transformers.models.Dense",
    }
    named |= {learned.title: learned.module for learned in KINDS.values()}
    types = [named.get(kind, f"sentence_transformers.models.{kind}") for kind in kinds]
    _write(folder / "modules.json", [
        {"idx": number, "name": str(number), "path": path, "type": kind}
        for number, (kind, path) in enumerate(zip(types, paths, strict=True))
    ])
    if not alone:  # a module that stands alone reads stsbench.json, or has no settings
        config: dict[str, Any] = {"max_seq_length": limit, "do_lower_case": False}
        if model_args:
            config["model_args"] = model_args
        if padded is not None:
            config["processing_kwargs"] = {"text": {"padding": "max_length", "max_length": padded}}
        _write(folder / "sentence_bert_config.json", config)
    _write(folder / "config_sentence_transformers.json", {"prompts": {}, "default_prompt_name": None,
                                                          "similarity_fn_name": "cosine"})
    settings: dict[str, Any]
    for kind, path in zip(kinds, paths, strict=True):
        if kind == "Pooling":
            on = ("cls_token", "mean_tokens") if pooler == _BOTH else (_MODES.get(pooler, "mean_tokens"),)
            # the three modes that every version of sentence-transformers knows, and the pooler's own
            modes = {f"pooling_mode_{name}": name in on for name in ("cls_token", "mean_tokens", "max_tokens", *on)}
            _module(folder / path, {"word_embedding_dimension": width, **modes})
        elif kind == "Average":
            settings = {"in_features": 2 * width, "out_features": width, "bias": False,
                        "activation_function": "torch.nn.modules.linear.Identity"}
            _module(folder / path, settings, {"linear.weight": eye(width).repeat(1, 2) / 2})
        elif kind == "MeanPadded":
            _module(folder / path, {"length": padded, "width": width})
        elif token_pooler is not None and kind == token_pooler.kind.title:
            token_pooler.save(folder / path)
        elif kind == "WeightedLayerPooling":
            settings = {"word_embedding_dimension": width, "layer_start": 0, "num_hidden_layers": layers}
            _module(folder / path, settings, {"layer_weights": weights})
        elif kind == "Dense" and dense is not None:
            settings = {"in_features": dense.in_features, "out_features": dense.out_features, "bias": True,
                        "activation_function": "torch.nn.modules.activation.Tanh"}
            _module(folder / path, settings, {f"linear.{name}": value for name, value in dense.state_dict().items()})
        elif kind == "Affine" and affine is not None:
            kernel, bias = affine
            settings = {"in_features": kernel.shape[0], "out_features": kernel.shape[1], "bias": True,
                        "activation_function": "torch.nn.modules.linear.Identity"}
            weights_of = {"linear.weight": from_numpy(kernel.T).float(), "linear.bias": from_numpy(bias).float()}
            _module(folder / path, settings, weights_of)
        elif kind == "Post" and post is not None:
            _module(folder / path, {"width": width if token_pooler is None else token_pooler.vector_width})
            write_post(folder / path, *post)


def _module(folder: Path, settings: dict[str, Any], weights: dict[str, Any] | None = None) -> None:
    from safetensors.torch import save_file

    folder.mkdir()
    _write(folder / "config.json", settings)
    if weights is not None:
        save_file({name: value.detach().contiguous() for name, value in weights.items()}, folder / "model.safetensors")


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
