"""sentence-transformers' files around a transformers model, so that its users get a method's own vectors.

Module types and keys are those that every version from 2 on reads; version 6 renames them when it loads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, eye, from_numpy, nn, zeros

from stsbench.encoders.forward.pooling import KINDS, padded_length
from stsbench.encoders.forward.token_pooler import TokenPooler
from stsbench.encoders.post.chain import TYPE as POST
from stsbench.encoders.post.chain import Chain, write_post
from stsbench.encoders.transformer.exported import PROMPT

_MEAN_PADDED = "stsbench.encoders.transformer.token_pooling_module.MeanPaddedPooling"
_MODES = {
    "cls": "cls_token", "cls+dense": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "last": "lasttoken",
    "weighted_mean": "weightedmean_tokens",
}
_BOTH = "cls_avg"  # Pooling puts [CLS] and mean side by side, and a Dense without bias takes half of each


def layers_of(pooler: str, layers: int) -> Tensor | None:
    """The weights (layers + 1,) over the embeddings and all layers whose average `pooler` takes the mean over tokens of.

    None for poolers that read the last layer only. The mean of averages is the average's mean.
    """
    layers_of = {"first_last:embeddings": (0, layers), "first_last:layer1": (1, layers), "last2": (layers - 1, layers)}
    if pooler not in layers_of:
        return None
    weights = zeros(layers + 1)
    for layer in layers_of[pooler]:
        weights[layer] += 1  # a model of one layer has it twice
    return weights


def write_layout(
    folder: Path, pooler: str, width: int, limit: int | None, dense: nn.Linear | None, layers: int,
    token_pooler: TokenPooler | None = None, normalize: bool = False, post: tuple[Chain, str] | None = None,
) -> None:
    """Write modules.json and what it names into `folder`, beside the model of that width and number of layers.

    limit: tokens, special ones included, None for no limit. Poolers over several layers need output_hidden_states in the
    model's config.json: without it sentence-transformers would take the last layer, and say nothing. normalize: the module
    Normalize after them. post: a fitted chain and what it was fitted on, as the last module: a Dense without activation
    where all its steps are affine (computed in float32), else one of ours.
    """
    padded = padded_length(pooler)
    learned = "Pooling" if token_pooler is None else token_pooler.kind.title
    pooling = "MeanPadded" if padded is not None else learned
    kinds = ["Prompt"] if pooler == "mask" else ["Transformer", pooling]
    weights = layers_of(pooler, layers)
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
    if pooler != "mask":  # whose one module reads stsbench.json
        config: dict[str, Any] = {"max_seq_length": limit, "do_lower_case": False}
        if padded is not None:
            config["processing_kwargs"] = {"text": {"padding": "max_length", "max_length": padded}}
        _write(folder / "sentence_bert_config.json", config)
    _write(folder / "config_sentence_transformers.json", {"prompts": {}, "default_prompt_name": None,
                                                          "similarity_fn_name": "cosine"})
    settings: dict[str, Any]
    for kind, path in zip(kinds, paths, strict=True):
        if kind == "Pooling":
            on = ("cls_token", "mean_tokens") if pooler == _BOTH else (_MODES.get(pooler, "mean_tokens"),)
            # the three that every version knows, and the mode itself
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
            _affine(folder / path, *affine)
        elif kind == "Post" and post is not None:
            _module(folder / path, {"width": width if token_pooler is None else token_pooler.vector_width})
            write_post(folder / path, *post)


def _affine(folder: Path, kernel: NDArray[np.float64], bias: NDArray[np.float64]) -> None:
    """x @ kernel + bias as a Dense, in float32."""
    settings = {"in_features": kernel.shape[0], "out_features": kernel.shape[1], "bias": True,
                "activation_function": "torch.nn.modules.linear.Identity"}
    _module(folder, settings, {"linear.weight": from_numpy(kernel.T).float(), "linear.bias": from_numpy(bias).float()})


def _module(folder: Path, settings: dict[str, Any], weights: dict[str, Any] | None = None) -> None:
    from safetensors.torch import save_file

    folder.mkdir()
    _write(folder / "config.json", settings)
    if weights is not None:
        save_file({name: value.detach().contiguous() for name, value in weights.items()}, folder / "model.safetensors")


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
