"""A string in a model folder's files chooses no method, class or module to run; every field of stsbench.json is checked."""

from __future__ import annotations

import copy
import json

import pytest
from model_folders import change, declare, dense, pooling, read, transformer, write
from tiny_models import build

from stsbench import load_encoder
from stsbench.encoders.model_folder import check_settings
from stsbench.encoders.transformer.exported import Exported, read_exported, write_exported
from stsbench.errors import EncoderError, StsbenchError

BESIDE = "sentence_bert_config.json"


def by_the_library(folder):
    """A folder that sentence-transformers runs."""
    return declare(transformer(folder), pooling("mean"), dense())


@pytest.mark.parametrize("method", ["save_pretrained", "push_to_hub", "__init__", "get_input_embeddings", 3, None])
def test_a_method_that_a_file_names_is_not_called(tmp_path, method):
    folder = by_the_library(tmp_path / "m")
    way = {"method": method, "method_output_name": "last_hidden_state"}
    change(folder / BESIDE, modality_config={"text": way}, module_output_name="token_embeddings")
    with pytest.raises(EncoderError, match=rf"{BESIDE}: modality_config: {method!r} is no method"):
        load_encoder(str(folder))


def test_an_output_that_a_file_names_is_no_attribute_of_python(tmp_path):
    folder = by_the_library(tmp_path / "m")
    way = {"method": "forward", "method_output_name": ["__class__", "__init__"]}
    change(folder / BESIDE, modality_config={"text": way}, module_output_name="token_embeddings")
    with pytest.raises(EncoderError, match="'__class__' is no output of a model"):
        load_encoder(str(folder))


@pytest.mark.parametrize("kind", [
    "sentence_transformers.base.model.json", "sentence_transformers.util.http_get",
    "sentence_transformers.SentenceTransformer", "sentence_transformers.nowhere.Nothing",
])
@pytest.mark.parametrize("where", ["modules.json", "router_config.json"])
def test_a_module_that_a_file_names_is_one(tmp_path, kind, where):
    folder = by_the_library(tmp_path / "m")
    if where == "modules.json":
        entries = read(folder / where)
        entries[2]["type"] = kind
        write(folder / where, entries)
    else:
        write(folder / "2_Dense" / where, {"types": {"a": kind}, "structure": {"a": ["a"]}, "parameters": {}})
    with pytest.raises(EncoderError, match=rf"{where}: .*{kind}"):
        load_encoder(str(folder))


def test_an_adapter_names_no_module_to_import(tmp_path):
    write(tmp_path / "adapter_config.json", {"megatron_config": {"a": 1}, "megatron_core": "antigravity"})
    with pytest.raises(EncoderError, match="megatron_config has peft import code"):
        check_settings(tmp_path)


_WRONG = (None, True, -1, 2.5, "x", [], [1], {}, {"a": 1})


def _places(value, at=()):
    """The path of every value in a JSON document, those of the first entries of a list included."""
    for key in value if isinstance(value, dict) else range(len(value[:2])) if isinstance(value, list) else ():
        yield (*at, key)
        yield from _places(value[key], (*at, key))


def _spoilt(document):
    """The document without each of its values, and with each replaced by one of another type."""
    for *above, last in _places(document):
        for wrong in ("left out", *_WRONG):
            changed = copy.deepcopy(document)
            inner = changed
            for key in above:
                inner = inner[key]
            if wrong == "left out":
                del inner[last]
            else:
                inner[last] = wrong
            yield changed
    yield from _WRONG


def test_whatever_is_wrong_with_stsbench_json_is_one_line(tmp_path):
    folder = build(tmp_path / "m")
    shared = {"sts12/test": {"texts": 3, "exact": 1, "normalised": 0, "rows": 1}}
    overlap = {"text": "notes.txt", "shared": shared, "none": ["mr"]}
    write_exported(folder, Exported("mean", 8, "simcse", "a", trained_on=("sts12",), training_overlap=(overlap,)))
    file = folder / "stsbench.json"
    refused = 0
    for document in _spoilt(json.loads(file.read_text())):
        file.write_text(json.dumps(document))
        try:
            exported = read_exported(folder)
            assert exported is None or all(isinstance(text["shared"], dict) for text in exported.training_overlap)
        except StsbenchError as error:
            assert "stsbench.json" in str(error) and "\n" not in str(error)
            refused += 1
    assert refused > 100
    file.write_text('{"pooler": "mean"}')
    with pytest.raises(EncoderError, match=r"stsbench\.json has no format: it is not as stsbench wrote it"):
        read_exported(folder)
