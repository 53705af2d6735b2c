"""YAML and JSON of strangers: within the limits as ever, beyond them one line, at once."""

import io
import tarfile
import time

import pytest
import yaml

from stsbench import parsing
from stsbench.config import parse_yaml, read_yaml
from stsbench.data.fetch.install import MANIFEST, install_bundle, read_lock
from stsbench.data.sets.readers import json_object
from stsbench.errors import DataError, EncoderError, StsbenchError
from stsbench.evaluation.records import parsed
from stsbench.leaderboard.records.entries import read_entry
from stsbench.parsing import DEEPEST, parse_json, read_json, read_json_object

BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 30))
MERGED = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 30))
LONG = f"a: &a {'x' * 9999}\nb: [{', '.join(['*a'] * 999)}]"
CIRCLE = "a: &a [1, *a]"
NESTED = "[" * (DEEPEST + 1)
ENDLESS = "[" * 200_000


def refused(call, *parts, error=StsbenchError):
    began = time.perf_counter()
    with pytest.raises(error) as caught:
        call()
    assert time.perf_counter() - began < 5
    text = str(caught.value)
    assert len(text.splitlines()) == 1 and len(text) < 300
    for part in parts:
        assert str(part) in text, (part, text)


@pytest.mark.parametrize(("text", "reason"), [
    (BOMB, "aliases"), (MERGED, "aliases"), (LONG, "aliases"), (CIRCLE, "holds the alias itself"),
    (NESTED, "deep"), ("a:\n" + "".join(" " * i + "a:\n" for i in range(1, 500)), "deep"), ("x" * 1_000_001, "1,000,001"),
    (ENDLESS, "nest"),  # libyaml 0.2.6 counts them too, and may be the first to refuse
])
def test_a_yaml_text_beyond_the_limits_is_refused_at_once(text, reason):
    refused(lambda: parse_yaml(text, "recipe.yaml"), "recipe.yaml: ", reason)


def test_aliases_and_merged_keys_within_the_limits_stay():
    text = "a: &a {x: 1, y: 2}\nb: *a\nc: {<<: *a, y: 3}\nd: [*a, *a]"
    assert parse_yaml(text, "x") == yaml.safe_load(text)
    assert parse_yaml("", "x") is None


@pytest.mark.parametrize("read", [read_yaml, read_json])
def test_a_file_without_an_end_is_not_read_to_its_end(read, tmp_path, monkeypatch):
    monkeypatch.setattr(parsing, "MOST_JSON", 1_000)
    (tmp_path / "endless").symlink_to("/dev/zero")
    refused(lambda: read(tmp_path / "endless"), tmp_path / "endless", "larger than")


@pytest.mark.parametrize(("content", "reason"), [
    (b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}", "deep"), (b"[" * 100_000, "deep"),
    (b'{"a": ', "not valid JSON"), (b"", "not valid JSON"),
    (b'"\xff"', "UTF-8"), (b"1" * 5_000, "not valid JSON"), (b"\xef\xbb\xbf{}", "not valid JSON"),
])
def test_a_json_file_that_cannot_be_read_is_an_error_of_the_callers_class_that_names_it(content, reason, tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    refused(lambda: read_json(path, EncoderError), path, reason, error=EncoderError)


def test_a_missing_json_file_is_named(tmp_path):
    refused(lambda: read_json(tmp_path / "no.json", DataError), "cannot read", tmp_path / "no.json", error=DataError)


def test_json_within_the_limits_is_what_it_holds(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("[" * DEEPEST + "]" * DEEPEST, "utf-8")
    read_json(path)
    path.write_text('{"a": [1, null, "ä"]}', "utf-8")
    assert read_json_object(path) == {"a": [1, None, "ä"]}
    assert parse_json('{"a": 1.50}', parse_float=str) == {"a": "1.50"}


DEEP_JSON = "[" * 5_000 + "]" * 5_000


def bundle_of(folder, manifest):
    with tarfile.open(folder / "b.tar", "w") as tar:
        member = tarfile.TarInfo(MANIFEST)
        member.size = len(manifest)
        tar.addfile(member, io.BytesIO(manifest.encode()))
    return folder / "b.tar"


def record_of(text):
    """A record's text stands in a run file, whose reader says so."""
    try:
        return parsed(text)
    except ValueError as error:
        raise StsbenchError(f"record.json: {error}") from error


@pytest.mark.parametrize(("name", "content", "read"), [
    ("lock.json", DEEP_JSON, lambda path: read_lock(path.parent)),
    ("bundle", DEEP_JSON, lambda path: install_bundle(bundle_of(path.parent, DEEP_JSON), path.parent / "root")),
    ("entry.yaml", DEEP_JSON, read_entry),
    ("record.json", DEEP_JSON, lambda path: record_of(path.read_text())),
    ("line.jsonl", DEEP_JSON, lambda path: json_object(path.read_text(), path, 1)),
])
def test_every_reader_of_strangers_files_keeps_to_the_limits(name, content, read, tmp_path):
    (tmp_path / name).write_text(content, "utf-8")
    refused(lambda: read(tmp_path / name))


@pytest.mark.parametrize("text", ["[]", "null", "3"])
def test_an_object_is_demanded_where_one_is_needed(text, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(text, "utf-8")
    refused(lambda: read_json_object(path, EncoderError), path, "must hold a JSON object", error=EncoderError)
