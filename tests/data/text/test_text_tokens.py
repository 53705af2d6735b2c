"""Tokens of training texts are transformers' own, made beforehand or when a batch needs them; their counts, against a
Counter, and the cache of these."""

import json
from collections import Counter

import numpy as np
import pytest
from clirun import refuses
from method_oracle import tokens
from tiny_models import build, sentences, tokenizer
from transformers import AutoTokenizer, ByT5Tokenizer

from stsbench.data.text import examples
from stsbench.data.text.examples import TextRows, token_counts
from stsbench.data.text.store import open_store
from stsbench.data.text.tokens import TokensOnDemand, tokenised
from stsbench.errors import DataError

FIRST, SECOND = sentences(40, longest=12, seed=8), sentences(40, longest=4, seed=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build(tmp_path_factory.mktemp("frequency") / "tiny", "roberta", pooler=False)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("frequency") / "pairs.tsv"
    lines = [f"{one}\t{two}" for one, two in zip(FIRST, SECOND, strict=True)]
    path.write_text("\n".join(["one\ttwo", *lines, "\tcat"]) + "\n", "utf-8")  # the last row has an empty text
    return path


def rows_of(folder, text, cache, numbers=None, limit=10, roles=("anchor", "positive")):
    store = open_store(text, columns={"anchor": "one", "positive": "two"}, cache=cache)
    held = tokenised(store, AutoTokenizer.from_pretrained(folder), "tiny", limit, roles, cache=cache)
    return TextRows(store, held, range(len(store)) if numbers is None else numbers)


def naive(folder, texts, limit, special):
    actual = Counter(token for row in tokens(folder, texts, limit) for token in row)
    return [0 if token in special else actual[token] for token in range(60)]


@pytest.mark.parametrize(("limit", "special"), [(5, (0, 1, 2)), (30, ())])
def test_counts(folder, text, tmp_path, monkeypatch, limit, special):
    monkeypatch.setattr(examples, "_CHUNK", 7 if special else 1000)  # makes no difference
    rows = rows_of(folder, text, tmp_path, limit=limit)
    texts = [*FIRST, "", *SECOND, "cat"]
    actual = token_counts(rows, 60, special, tmp_path)
    assert actual.dtype == np.int64 and actual.tolist() == naive(folder, texts, limit, special)
    assert token_counts(rows, 60, special, tmp_path).tolist() == actual.tolist()
    some = token_counts(rows_of(folder, text, tmp_path, [3, 5, 5], limit), 60, special, tmp_path)  # the rows decide
    column = [FIRST[3], FIRST[5], FIRST[5], SECOND[3], SECOND[5], SECOND[5]]
    assert some.tolist() == naive(folder, column, limit, special)
    assert token_counts(rows_of(folder, text, tmp_path, []), 60, special, tmp_path).tolist() == [0] * 60
    for role, column in (("anchor", [*FIRST, ""]), ("positive", [*SECOND, "cat"])):
        only = rows_of(folder, text, tmp_path, limit=limit, roles=(role,))
        assert token_counts(only, 60, special, tmp_path).tolist() == naive(folder, column, limit, special)


def test_counted_once_and_again_where_the_file_is_damaged(folder, text, tmp_path, monkeypatch):
    rows, count, calls = rows_of(folder, text, tmp_path), examples._count, []
    words = r"pairs\.tsv: token id \d+ is not below the model's vocabulary size, 6"
    refuses(DataError, words, token_counts, rows, 6, [0, 1, 2], tmp_path)
    assert not (tmp_path / "counts").exists()
    monkeypatch.setattr(examples, "_count", lambda *arguments: calls.append(1) or count(*arguments))
    first = token_counts(rows, 60, [0, 2, 1], tmp_path)
    assert token_counts(rows, 60, [2, 1, 0, 0], tmp_path).tolist() == first.tolist() and len(calls) == 1
    [path] = (tmp_path / "counts").iterdir()
    whole = path.read_bytes()
    last, first_byte = bytes([whole[-1] ^ 1]), bytes([whole[0] ^ 1])
    for broken in (whole[:-8], b"", whole[:-1] + last, whole + bytes(8), first_byte + whole[1:]):
        path.write_bytes(broken)
        assert token_counts(rows, 60, [0, 1, 2], tmp_path).tolist() == first.tolist()
        assert path.read_bytes() == whole
    assert len(calls) == 6
    token_counts(rows, 60, [0, 1], tmp_path)
    token_counts(rows, 61, [0, 1, 2], tmp_path)
    assert len(calls) == 8 and len(list((tmp_path / "counts").iterdir())) == 3


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("sent0\tsent1\n" + "".join(f"{text}\t{text[::-1]}\n" for text in sentences(60, 25)))
    return open_store(path, cache=tmp_path / "cache")


def test_the_ids_are_those_of_the_token_store(store, tmp_path):
    tok, said = tokenizer("bert"), []
    stored = tokenised(store, tokenizer("bert"), "t", 12, store.roles, cache=tmp_path / "other")
    live = TokensOnDemand(store, tok, "t", 12, store.roles, log=said.append, cache=tmp_path / "cache")
    assert live.roles == stored.roles == ("anchor", "positive")
    share = sum(stored.truncated.values()) / (2 * len(store))
    assert live.share_cut() == pytest.approx(share) and 0 < share < 1
    assert live.truncated == {"anchor": None, "positive": None}
    rows = np.random.default_rng(0).permutation(len(store))
    for _ in range(2):  # as they are read; then from the store that `lengths` has built
        for role in live.roles:
            needed = live.ids(role, rows)
            assert [ids.tolist() for ids in needed] == [ids.tolist() for ids in stored.ids(role, rows)]
            assert all(ids.dtype == np.int32 and not ids.flags.writeable for ids in needed)
        assert len(said) == 0 or said == [f"tokenising 120 texts of {store.path} once"]
        assert live.lengths("positive").tolist() == stored.lengths("positive").tolist()
    assert len(said) == 1
    with pytest.raises(IndexError, match="out of range"):
        live.ids("anchor", [0, -1])
    refuses(DataError, "max_length 2 leaves no room", TokensOnDemand, store, tokenizer("bert"), "t", 2, store.roles)


def test_the_digest_goes_by_text_tokenizer_and_length(store, tmp_path):
    def digest(name="t", length=12, roles=("anchor",), of=store, side="right"):
        tok = tokenizer("bert")
        tok.truncation_side = side
        return TokensOnDemand(of, tok, name, length, roles).digest

    other = open_store(store.path, drop_duplicates=True, columns={"anchor": "sent0"}, cache=tmp_path / "cache")
    variants = [digest(), digest("u"), digest(length=13), digest(roles=("positive",)), digest(of=other), digest(side="left")]
    assert len(set(variants)) == len(variants) and digest() == variants[0]


@pytest.mark.parametrize(("family", "side"), [("bert", "right"), ("roberta", "left"), ("byt5", "right")])
def test_ids_are_those_of_transformers_and_the_tokenizer_is_left_alone(tmp_path, family, side):
    """Of texts that are cut, and the pieces of whole ones without special tokens. ByT5's has no fast backend."""
    def stored():
        return family == "byt5" or (tok.backend_tokenizer.truncation, tok.backend_tokenizer.padding)

    tok = ByT5Tokenizer() if family == "byt5" else tokenizer(family)
    own = tok if family == "byt5" else tokenizer(family)
    tok.truncation_side = own.truncation_side = side
    texts = ["", "  the \t cat\u3000runs ", "a", *sentences(30, 25), "[SEP] in </s> text", "猫\u2028\x85 zzz"]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"sent0": text, "sent1": text[::-1]}) for text in texts))
    store = open_store(path, cache=tmp_path / "cache")
    before, done = stored(), []
    assert family == "byt5" or before[0]["max_length"] == 8  # what must not act
    for length in (3, 12, None):
        tokens = tokenised(store, tok, "t", length, ("anchor", "positive"), cache=tmp_path / "cache", progress=done.append)
        assert stored() == before
        for role in store.roles:
            rows = store.texts(role, range(len(store)))
            if length is None:
                rows = [" " + " ".join(text.split()) for text in rows]
            how = {"add_special_tokens": False} if length is None else {"truncation": True, "max_length": length}
            expected = [own(text, **how)["input_ids"] for text in rows]
            assert [ids.tolist() for ids in tokens.ids(role, range(len(store)))] == expected
            assert all(ids.dtype == np.int32 for ids in tokens.ids(role, [0, 1]))
            assert tokens.lengths(role).tolist() == list(map(len, expected))
            whole = [own(text, truncation=False)["input_ids"] for text in rows]
            assert tokens.truncated[role] == (0 if length is None else sum(len(ids) > length for ids in whole))
    assert sum(done) == 3 * 2 * len(texts)
