"""Recipe files: what extends gives, what --set changes, and errors that are one line with file, line and key. YAML and
JSON of strangers: within the limits as ever, beyond them one line, at once."""

import string
import time
from typing import Literal

import pytest
import yaml
from hubserver import tar_of
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field
from shipped_recipes import one_line

from stsbench import parsing
from stsbench.config import apply_sets, dump_yaml, load_config, merge, parse_yaml, read_yaml, validate
from stsbench.data.fetch.install import MANIFEST, install_bundle, read_lock
from stsbench.errors import DataError, EncoderError, StsbenchError
from stsbench.evaluation.records import parsed
from stsbench.leaderboard.records.entries import read_entry
from stsbench.parsing import DEEPEST, parse_json, read_json, read_json_object


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, "utf-8")
    return folder


def test_powers_of_ten_are_numbers_and_other_words_stay_texts():
    for text in ("1e-5", "3e-05", "1E5", "-2e+3", "1.5e5", ".5e1", "1.e-3", "+4e0"):
        value = parse_yaml(f"a: {text}", "x")["a"]
        assert isinstance(value, float) and value == float(text)
    for text in ("e5", "1e", "v1e-5", "1e-5x", "'1e-5'", '"3e4"'):
        assert parse_yaml(f"a: {text}", "x") == {"a": text.strip("'\"")}


@settings(deadline=None, max_examples=50)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_set_as_python_writes_it(number):
    assert apply_sets({}, [f"a.b={number!r}"]) == {"a": {"b": number}}


KEYS = st.text(string.ascii_letters, min_size=1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
WORDS = st.sampled_from(["1e-5", "1.5e5", "no", "null", "~", "010", "1:30", "2021-01-01", "<<", "="])
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(st.none() | st.booleans() | NUMBERS | TEXTS | WORDS, max_leaves=6, extend=lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)))


@settings(deadline=None, max_examples=30)
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_what_is_written_is_read_again(data):
    assert repr(parse_yaml(dump_yaml(data), "x")) == repr(data)  # repr: 1 is not 1.0, nor True


def test_rare_characters_survive_and_a_shared_value_is_written_twice():
    for mark in ("\x85", "\u2028", "\u2029", "\r", "\r\n", "\n", "\t", "\ufeff", "\x00", "\U0001f600"):
        data = {"a": mark, "b": f"one{mark}two", "c": f"one {mark} two {mark}\n"}
        assert parse_yaml(dump_yaml(data), "x") == data
    shared = [0.9, 0.999]
    assert "&" not in dump_yaml({"a": shared, "b": shared})


@pytest.mark.parametrize(("text", "line", "part"), [
    ("a: 1\nb: 2\na: 3\n", ":3: ", "'a' is given twice"), ("a: 1\nb: [1, 2\nc: 3\n", ":3: ", "not valid YAML"),
    *((text, "", "needs a mapping") for text in ("", "- a\n- b\n", "1: a\n"))])
def test_a_broken_file_is_named_with_its_line(tmp_path, text, line, part):
    path = write(tmp_path, one=text) / "one.yaml"
    one_line(lambda: read_yaml(path), f"{path}{line}", part)


def test_extends_merges_mappings_and_replaces_lists(tmp_path):
    write(tmp_path, top="a: {x: 1, y: {p: 1, q: 2}}\nl: [1, 2, 3]\nkept: 1\n",
          mid="extends: top\na: {y: {q: 3}}\nl: [4]\n", low="extends: mid\na: {x: null}\nnew: {z: 1}\n")
    merged = {"a": {"x": None, "y": {"p": 1, "q": 3}}, "l": [4], "kept": 1, "new": {"z": 1}}
    assert load_config(tmp_path / "low.yaml") == merged


def test_own_keys_are_not_inherited(tmp_path):
    write(tmp_path, top="published: [1]\nname: top\na: 1\n", low="extends: top\nname: low\n")
    assert load_config(tmp_path / "low.yaml", not_inherited=["published", "name"]) == {"a": 1, "name": "low"}
    assert load_config(tmp_path / "top.yaml", not_inherited=["published"])["published"] == [1]


def test_extends_a_path_or_a_recipe_of_another_folder(tmp_path):
    shipped = write(tmp_path / "shipped", base="a: 1\n", mine="extends: base\na: 2\n")
    mine = write(tmp_path / "own", one="extends: ../shipped/base.yaml\nb: 1\n", two="extends: base\n")
    write(mine, mine="extends: mine\nb: 3\n")
    assert load_config(mine / "one.yaml") == {"a": 1, "b": 1}
    assert load_config(mine / "two.yaml", folders=[shipped]) == {"a": 1}
    assert load_config(mine / "mine.yaml", folders=[shipped]) == {"a": 2, "b": 3}  # the shipped one of the same name


def test_circles_and_what_is_not_there(tmp_path):
    write(tmp_path, a="extends: b\n", b="extends: c\n", c="extends: a\n", me="extends: me\n", tail="extends: a\n",
          base="a: 1\n", one="extends: bsae\n", two="extends: sub/base.yaml\n", three="extends: [base]\n")
    one_line(lambda: load_config(tmp_path / "a.yaml"), "in a circle", "a.yaml -> b.yaml -> c.yaml -> a.yaml")
    one_line(lambda: load_config(tmp_path / "me.yaml"), "in a circle", "me.yaml -> me.yaml")
    assert "tail" not in one_line(lambda: load_config(tmp_path / "tail.yaml"), "in a circle")
    one_line(lambda: load_config(tmp_path / "one.yaml"), "one.yaml", "bsae", "did you mean base?")
    one_line(lambda: load_config(tmp_path / "two.yaml"), "two.yaml", tmp_path / "sub" / "base.yaml")
    one_line(lambda: load_config(tmp_path / "three.yaml"), "three.yaml", "['base']")


def test_merge_leaves_both_as_they_are():
    below, above = {"a": {"x": [1]}}, {"a": {"y": [2]}}
    merged = merge(below, above)
    merged["a"]["x"].append(9), merged["a"]["y"].append(9)
    assert (below, above) == ({"a": {"x": [1]}}, {"a": {"y": [2]}})


def test_sets():
    data = {"a": {"b": 1, "c": [1]}, "d": None}
    got = apply_sets(data, ["a.b=1e-5", "a.c=[2, 3]", "d.e.f=x=y", "g={h: null}", "a.n=null", "a.b=2e-5"])
    assert got == {"a": {"b": 2e-5, "c": [2, 3], "n": None}, "d": {"e": {"f": "x=y"}}, "g": {"h": None}}
    assert data == {"a": {"b": 1, "c": [1]}, "d": None}


@pytest.mark.parametrize("text", [
    "a", "=1", "a..b=1", ".a=1", "a.=1", "a b=1", "a.b=", "a.b= ", "a={", "a.b.c=1", "a=2021-13-45"])
def test_sets_that_cannot_be(text):
    one_line(lambda: apply_sets({"a": {"b": 1}}, [text]), f"--set {text}".strip())


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rate: float = Field(0.1, gt=0, le=1)
    count: int = Field(1, ge=1)
    free: float = 0.0
    pair: tuple[float, float] = (0.9, 0.99)
    word: Literal["cls", "mean"] = "cls"
    texts: dict[str, str] = {}
    flag: bool = False


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: Inner
    maybe: Inner | None = None
    several: list[Inner] = []


@pytest.mark.parametrize(("data", "part"), [
    ({"iner": {}}, "unknown key 'at.iner'; did you mean at.inner?"),  # and not that `inner` is missing
    ({"inner": {}, "several": [{}, {"flga": 1}]}, "'at.several.1.flga'; did you mean at.several.1.flag?"),
    ({"inner": {"count": 64.5}}, "at.inner.count must be a whole number, not 64.5"),
    ({"inner": {"pair": [1]}}, "at.inner.pair.1"), ({"inner": {"pair": [1, 2, 3]}}, "at.inner.pair has 3 values"),
    ({"inner": {"word": "maen"}}, "at.inner.word must be 'cls' or 'mean', not 'maen'; did you mean mean?"),
    ({"inner": {"texts": []}}, "at.inner.texts must be a mapping, not []"),
    ({"inner": {"flag": "yes\nno"}}, "at.inner.flag must be true or false")])
def test_errors_are_one_line_with_the_dotted_key(data, part):
    assert one_line(lambda: validate(Outer, data, "FILE", "at."), part).startswith("FILE: ")


def test_a_long_value_is_cut_and_right_values_pass():
    assert len(one_line(lambda: validate(Inner, {"count": "x" * 5000}, "FILE"), "x...")) < 200
    got = validate(Outer, {"inner": {"rate": 1, "pair": [1, 0.5], "texts": {"a": "b"}}}, "FILE")
    assert got.inner == Inner(rate=1.0, pair=(1.0, 0.5), texts={"a": "b"})


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 30))
MERGED = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 30))
LONG = f"a: &a {'x' * 9999}\nb: [{', '.join(['*a'] * 999)}]"


def refused(call, *parts, error=StsbenchError):
    began = time.perf_counter()
    assert len(one_line(call, *parts, error=error)) < 300
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(("text", "reason"), [
    (BOMB, "aliases"), (MERGED, "aliases"), (LONG, "aliases"), ("a: &a [1, *a]", "holds the alias itself"),
    ("[" * (DEEPEST + 1), "deep"), ("a:\n" + "".join(" " * i + "a:\n" for i in range(1, 500)), "deep"),
    ("x" * 1_000_001, "1,000,001"), ("[" * 200_000, "nest"),  # libyaml 0.2.6 counts them too, and may be the first to refuse
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


@pytest.mark.parametrize(("content", "reason", "read"), [
    (b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}", "deep", read_json), (b"[" * 100_000, "deep", read_json),
    *((content, "not valid JSON", read_json) for content in (b'{"a": ', b"", b"1" * 5_000, b"\xef\xbb\xbf{}")),
    (b'"\xff"', "UTF-8", read_json),
    *((content, "must hold a JSON object", read_json_object) for content in (b"[]", b"null", b"3"))])
def test_a_json_file_that_cannot_be_read_is_an_error_of_the_callers_class_that_names_it(content, reason, read, tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    refused(lambda: read(path, EncoderError), path, reason, error=EncoderError)
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
    (folder / "b.tar").write_bytes(tar_of({MANIFEST: manifest.encode()}))
    return folder / "b.tar"


@pytest.mark.parametrize(("name", "read", "error"), [
    ("lock.json", lambda path: read_lock(path.parent), StsbenchError),
    ("bundle", lambda path: install_bundle(bundle_of(path.parent, DEEP_JSON), path.parent / "root"), StsbenchError),
    ("entry.yaml", read_entry, StsbenchError),
    ("record.json", lambda path: parsed(path.read_text()), ValueError)])  # a record stands in a run file, which is named
def test_every_reader_of_strangers_files_keeps_to_the_limits(name, read, error, tmp_path):
    (tmp_path / name).write_text(DEEP_JSON, "utf-8")
    refused(lambda: read(tmp_path / name), error=error)
