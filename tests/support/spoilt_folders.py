"""Model folders that are spoilt: copies of a few tiny ones, and functions of a copy `m` that change it."""

import contextlib
import functools
import json
import os
import shutil
import tempfile
from pathlib import Path

from hostile import CODE, assign, several, spoils  # noqa: F401 - for the tables, which import what is here
from hostile import written as put
from model_folder_kinds import static, word_embeddings
from model_folders import adapter, change, declare, dense, pooling, read, tokenizer, transformer, weights, write
from sentence_transformers.base.modules import Router

from stsbench import load_encoder

LIBRARY, BESIDE = "sentence_bert_config.json", "config_sentence_transformers.json"
CONFIG, TOKENIZER, WORDS, ADAPTER = "config.json", "tokenizer_config.json", "tokenizer.json", "adapter_config.json"
MODEL, WEIGHT = "model.safetensors", "embeddings.word_embeddings.weight"
DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000
OV = dict(content="ov", lstrip=False, rstrip=False, single_word=False, normalized=False, special=False)
SPLADE = ("sentence_transformers.sparse_encoder.models.SpladePooling", {"pooling_strategy": "max"})
MULTI_VECTOR = ("sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask", {})
TOKENS = dense(8, module_input_name="token_embeddings")
ROUTER = json.dumps({"types": {"a": "sentence_transformers.util.http_get"}, "structure": {"a": ["a"]}, "parameters": {}})


@functools.cache
def models():
    """A plain model with a pooling, one with a dense layer behind, which sentence-transformers runs, and other kinds."""
    root = Path(tempfile.mkdtemp(prefix="spoilt-folders-"))
    declare(transformer(root / "m"), pooling("mean"), settings={"prompts": {"query": "q: "}})
    declare(transformer(root / "library"), pooling("mean"), dense())
    transformer(root / "sharded", save={"max_shard_size": "8KB"})
    adapter(transformer(root / "adapted"), root / "m", named="elsewhere/base")
    transformer(root / "decoder", "qwen3", tok=tokenizer("qwen3"))
    declare(root / "words", word_embeddings(), pooling("mean"), first=None)
    declare(root / "router", Router.for_query_document([static(7)], [static(8)]), first=None)
    transformer(root / "classifier", "bert-classifier")
    transformer(root / "language model", "bert-lm")
    transformer(root / "no head", "distilbert")
    return root


def read_spoilt(model, spoil, **options):
    """Encode two texts with a copy `m` of a model that `spoil` changes, in a working folder of its own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shutil.copytree(models() / model, m := Path("m"))
        spoil(m)
        return load_encoder("m", device="cpu", offline=True, **options).encode(["a dog runs", "the cat"])


def unchanged(m):
    """What is wrong with a folder is how it is read."""


@spoils
def set_in(m, file, /, **values):
    """Keys of a JSON file; __ for a step inside."""
    stored = read(m / file) if (m / file).is_file() else {}
    assign(stored, values)
    write(m / file, stored)


@spoils
def module(m, i, **values):
    entries = read(m / "modules.json")
    entries[i].update(values)
    write(m / "modules.json", entries)
    (m / "code.py").write_text(CODE, "utf-8")


@spoils
def linked(m, file, target):
    (m / file).unlink(missing_ok=True)
    os.mkfifo(m / file) if target == "pipe" else (m / file).symlink_to(target)


@spoils
def declared(m, *modules, **more):
    """These modules around the transformer, in the place of what was declared."""
    for path in (*m.glob("[1-9]_*"), m / "modules.json"):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    declare(m, *modules, **more)


def tensors(change, file=MODEL):
    return lambda m: weights(m / file, change)


def without(part, file=MODEL):
    return tensors(lambda stored: {name: tensor for name, tensor in stored.items() if part not in name}, file)


def with_more(stored):
    layer = {name: tensor.clone() for name, tensor in stored.items() if "layer.1." in name}
    stored.update({name.replace("layer.1.", "layer.2."): tensor for name, tensor in layer.items()})


def extra_weights(**shapes):
    """Weights in the first layer's attention that the model has no place for, by name."""
    import torch

    return tensors(lambda stored: stored.update({
        f"encoder.layer.0.attention.self.{name}.weight": torch.ones(*shape) for name, shape in shapes.items()}))


def adapter_alone(m, base="base"):
    shutil.copytree(m, m.with_name(base), ignore=shutil.ignore_patterns("adapter*"))
    for name in (MODEL, CONFIG):
        (m / name).unlink()
    change(m / ADAPTER, base_model_name_or_path=str(m.with_name(base)))


def of_layer_7(stored):
    return {name.replace("layer.1.", "layer.7."): tensor for name, tensor in stored.items()}


def way(**values):
    """A way to call the model, as sentence-transformers stores it."""
    stored = {"method": "forward", "method_output_name": "last_hidden_state", **values}
    return set_in(LIBRARY, module_output_name="token_embeddings", modality_config={"text": stored})


def index_file(content):
    return put(f"{MODEL}.index.json", content)


def cut_short(file):
    return lambda m: (m / file).write_bytes((m / file).read_bytes()[:999])


def removed(file):
    return lambda m: (m / file).unlink()


def no_tokenizer(m):
    for path in m.glob("token*"):
        path.unlink()


def pooled_by(**values):
    return lambda m: write(m / "1_Pooling/config.json", {"embedding_dimension": 16, **values})
