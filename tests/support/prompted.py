"""Prompted encoders with random weights for tests: what a method would hand over, and what may be around a mask's vector."""

import json
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_models
import torch
from live_models import close, inference
from live_models import library as plain_library
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModel, AutoTokenizer, DynamicCache

from stsbench.encoders.forward.batching import KeyValues
from stsbench.encoders.prompt.modules import Bottlenecks, LMTransform, MLPHead, attached
from stsbench.encoders.prompt.prompt import Prompt
from stsbench.encoders.prompt.template import TokenTemplate
from stsbench.errors import EncoderError
from stsbench.training.runs.export import export_model

TEMPLATES = {"bert": 'the cat of "{}" means [MASK] .', "roberta": "the cat : ' {} ' means {mask} ."}
TEXTS = [*tiny_models.sentences(12, longest=12), "", "a", "the dog ?", "the cat " * 20]
PLAIN = [  # what transformers alone can do, too
    ("bert", {}), ("roberta", {"full_stop": True}), ("bert", {"head": "dense", "full_stop": True}),
    ("roberta", {"head": "transform"}), ("bert", {"template": "{mask} is the cat {} ."})]
MORE = [
    ("bert", {"prefixes": 1, "denoise": True, "head": "dense"}),
    ("bert", {"prefixes": 2, "words": True, "denoise": True, "each": True, "head": "transform", "full_stop": True}),
    ("bert", {"denoise": True, "positions": "empty", "text": "pieces", "pieces": 5}), ("bert", {"prefixes": 1, "shift": 7}),
    ("roberta", {"prefixes": 1, "denoise": True, "start": "zero", "full_stop": True}),
    ("roberta", {"prefixes": 2, "text": "pieces"})]
LAYERS, WIDTH, HEADS = 3, 32, 4  # of tiny_models


def random_prompt(tokenizer, family="bert", *, prefixes=0, words=False, head=None, shift=None, rank=None, **more):
    """A Prompt with random tensors for the tiny model of that tokenizer.
    prefixes: how many, of 3 and then 2 slots; words: learned ones; head: "dense" or "transform"; rank: of adapters."""
    torch.manual_seed(21)
    lengths = (3, 2)[:prefixes]
    template = more.pop("template", TEMPLATES[family])
    count = len(TokenTemplate(tokenizer, template, "template").word_ids)
    tanh, transform = MLPHead(WIDTH), LMTransform(WIDTH, "gelu", 1e-12)
    adapters = None
    if rank is not None:
        adapters = Bottlenecks(SimpleNamespace(num_hidden_layers=LAYERS, hidden_size=WIDTH), sets=1, rank=rank)
    for part in (tanh, transform, *([adapters] if adapters else [])):
        for weight in part.parameters():
            nn.init.normal_(weight, std=0.3)
    return Prompt(template, words=torch.randn(count, WIDTH) if words else None,
                  prefixes=tuple(KeyValues(*torch.randn(2, LAYERS, length, WIDTH)) for length in lengths),
                  shift=sum(lengths) if shift is None else shift, head={"dense": tanh, "transform": transform}.get(head),
                  bottlenecks=adapters, **more)


def values(prompt):
    named = {"words": prompt.words}
    for i, prefix in enumerate(prompt.prefixes):
        named |= {f"keys {i}": prefix.keys, f"values {i}": prefix.values}
    for part in prompt.modules():
        named |= {f"{type(part).__name__} {name}": value for name, value in part.state_dict().items()}
    return {name: None if value is None else value.tolist() for name, value in named.items()}


def by_hand(folder, texts, bottlenecks=None):
    """float64 vectors (n, d) from what the folder's files say, by transformers and safetensors alone, one text at a time.
    bottlenecks: those of the prompt, whose equations are tested by themselves, attached to each pass."""
    said = json.loads((folder / "stsbench.json").read_text("utf-8"))["prompt"]
    path = folder / "prompt.safetensors"
    held = {key: value.double() for key, value in load_file(path).items()} if path.is_file() else {}
    model = AutoModel.from_pretrained(folder, dtype=torch.float64, add_pooling_layer=False).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    before, after = said["template"].replace("[MASK]", "{mask}").format("\0", mask=tokenizer.mask_token).split("\0")
    start, stop = tokenizer(before.rstrip())["input_ids"][:-1], tokenizer(after)["input_ids"][1:]
    first = 0 if model.config.model_type == "bert" else model.config.pad_token_id + 1
    mask = tokenizer.mask_token_id
    mask_at = stop.index(mask) - len(stop) if mask in stop else start.index(mask)

    def state(ids, positions, prefix):
        """The last state at the template's mask."""
        embeds = model.get_input_embeddings()(torch.tensor(ids))
        if "words" in held:
            places = [*range(1, len(start)), *range(len(ids) - len(stop), len(ids) - 1)]
            places.remove(mask_at % len(ids))
            if said.get("word_places") == "rightmost":  # of the same token, wherever it is
                places = [max(at for at, token in enumerate(ids) if token == ids[place]) for place in places]
            for place, word in zip(places, held["words"], strict=True):
                embeds[place] = word
        cache, slots = DynamicCache(), 0
        if prefix is not None:
            keys, values = held[f"prefix.{prefix}.keys"], held[f"prefix.{prefix}.values"]
            slots = keys.shape[1]
            for layer in range(len(keys)):
                cache.update(*(part[layer].view(1, slots, HEADS, -1).transpose(1, 2) for part in (keys, values)), layer)
        seen = torch.ones(1, 1, len(ids), slots + len(ids), dtype=torch.bool)
        with attached(model, bottlenecks.double(), 0) if bottlenecks else nullcontext():
            output = model(inputs_embeds=embeds[None], position_ids=torch.tensor([positions]), attention_mask=seen,
                           past_key_values=cache if slots else None)
        return output.last_hidden_state[0, mask_at]

    def head(vector):
        if said["head"] is None:
            return vector
        vector = held["head.dense.weight"] @ vector + held["head.dense.bias"]
        if said["head"] == "dense":
            return vector.tanh()
        norm = held["head.norm.weight"], held["head.norm.bias"]
        return nn.functional.layer_norm(nn.functional.gelu(vector), vector.shape, *norm, eps=1e-12)

    rows = []
    for text in texts:
        if said["full_stop"] and text and text[-1] not in ".?\"'":
            text += "."
        if said["text"] == "pieces":
            ids = [*start, *tokenizer(text)["input_ids"][1:-1][: said["pieces"]], *stop]
        else:
            ids = tokenizer(before + text + after)["input_ids"]
        actual = []
        for prefix in range(len(said["prefixes"])) or (None,):
            vector = state(ids, [said["shift"] + first + i for i in range(len(ids))], prefix)
            if said["denoise"]:
                base = said["shift"] + (first if said["start"] == "own" else 0)
                gap = len(ids) - len(start) - len(stop) if said["positions"] == "matched" else 0
                places = [base + i + gap * (i >= len(start)) for i in range(len(start) + len(stop))]
                alone = state([*start, *stop], places, prefix)
                vector = head(vector) - head(alone) if said["each"] else head(vector - alone)
            else:
                vector = head(vector)
            actual.append(vector.detach())
        rows.append(torch.stack(actual).mean(0).numpy())
    return np.stack(rows)


__all__ = ["close"]


def library(folder, **options):
    return plain_library(folder, trust_remote_code=True, **options)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return {family: inference(tmp_path_factory.mktemp(family), family) for family in ("bert", "roberta")}


@pytest.fixture(scope="module")
def rich(models, tmp_path_factory):
    """(what was exported, its folder) with everything but adapters; not to be changed."""
    made = with_prompt(models, *MORE[1])
    folder = tmp_path_factory.mktemp("rich") / "out"
    export_model(made, folder, method="promptbert", recipe="tiny-run")
    return made, folder


def with_prompt(models, family, more):
    made = models[family]
    return replace(made, pooler="mask", prompt=random_prompt(made.tokenizer, family, **more))


def one_line(call, message):
    with pytest.raises(EncoderError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
