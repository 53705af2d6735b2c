"""stsbench.json, which a training writes beside a model: every field of it is checked."""

import copy
import json

import pytest
from tiny_models import build

from stsbench.encoders.transformer.exported import Exported, read_exported, write_exported
from stsbench.errors import EncoderError, StsbenchError

WRONG = (None, True, -1, 2.5, "x", [], [1], {}, {"a": 1})


def paths_of(value, at=()):
    """The path of every value in a JSON document, those of the first entries of a list included."""
    for key in value if isinstance(value, dict) else range(len(value[:2])) if isinstance(value, list) else ():
        yield (*at, key)
        yield from paths_of(value[key], (*at, key))


def spoilt(document):
    """The document without each of its values, and with each replaced by one of another type."""
    for *above, last in paths_of(document):
        for wrong in ("left out", *WRONG):
            changed = copy.deepcopy(document)
            inner = changed
            for key in above:
                inner = inner[key]
            if wrong == "left out":
                del inner[last]
            else:
                inner[last] = wrong
            yield changed
    yield from WRONG


def test_whatever_is_wrong_with_stsbench_json_is_one_line(tmp_path):
    folder = build(tmp_path / "m")
    shared = {"sts12/test": {"texts": 3, "exact": 1, "normalised": 0, "rows": 1}}
    overlap = {"text": "notes.txt", "shared": shared, "none": ["mr"]}
    write_exported(folder, Exported("mean", 8, "simcse", "a", trained_on=("sts12",), training_overlap=(overlap,)))
    file = folder / "stsbench.json"
    refused = 0
    for document in spoilt(json.loads(file.read_text())):
        file.write_text(json.dumps(document))
        try:
            exported = read_exported(folder)
            assert exported is None or all(isinstance(text["shared"], dict) for text in exported.training_overlap)
        except StsbenchError as error:
            assert "stsbench.json" in str(error) and "\n" not in str(error)
            refused += 1
    assert refused > 100
    file.write_text('{"pooler": "mean"}')
    with pytest.raises(EncoderError):
        read_exported(folder)
