"""Tokens made when a batch needs them are those made beforehand."""

import numpy as np
import pytest
from tiny_models import sentences, tokenizer

from stsbench.data.text.store import open_store
from stsbench.data.text.tokens import TokensOnDemand, tokenised
from stsbench.errors import DataError


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "a.tsv"
    texts = sentences(60, 25)
    path.write_text("sent0\tsent1\n" + "".join(f"{text}\t{text[::-1]}\n" for text in texts))
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
    with pytest.raises(DataError, match="max_length 2 leaves no room"):
        TokensOnDemand(store, tokenizer("bert"), "t", 2, store.roles)


def test_the_digest_goes_by_text_tokenizer_and_length(store, tmp_path):
    def digest(name="t", length=12, roles=("anchor",), of=store, side="right"):
        tok = tokenizer("bert")
        tok.truncation_side = side
        return TokensOnDemand(of, tok, name, length, roles).digest

    other = open_store(store.path, drop_duplicates=True, columns={"anchor": "sent0"}, cache=tmp_path / "cache")
    variants = [digest(), digest("u"), digest(length=13), digest(roles=("positive",)), digest(of=other), digest(side="left")]
    assert len(set(variants)) == len(variants) and digest() == variants[0]
