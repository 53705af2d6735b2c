"""`stsbench cache`: what is kept, what no run reads again, and emptying it."""

import numpy as np
from click.testing import CliRunner
from toy_encoder import Toy, embed

from stsbench.encoders.cache.cache import CacheNote, EmbeddingCache
from stsbench.encoders.cache.encode import encode_cached, versions
from stsbench.extensions.installation.cache import cache as cache_command


def test_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path))
    store = EmbeddingCache(tmp_path / "embeddings")
    encode_cached(Toy(), ["a", "b"], store)
    run = CliRunner().invoke(cache_command, ["info"])
    assert run.exit_code == 0, run.output
    assert str(store.folder) in run.output and "1 encoder" in run.output
    assert Toy().spec.fingerprint()[:12] in run.output and "2 texts" in run.output
    assert "toy" in run.output and "stale" not in run.output
    store.put("a" * 64, ["a"], embed(["a"]))
    store.note("a" * 64, CacheNote({"name": "old"}, {"numpy": "0.1"}))
    store.put("b" * 64, ["a"], embed(["a"]))
    lines = CliRunner().invoke(cache_command, ["info"]).output.splitlines()
    assert f"old, stale: stsbench's encoding 1 -> 5, numpy 0.1 -> {np.__version__}" in "\n".join(lines)
    assert "?, stale: made before the versions of libraries were kept" in "\n".join(lines)
    store.put("c" * 64, ["a"], embed(["a"]))
    store.note("c" * 64, CacheNote({"name": "mine", "pooler": "cls", "prefix": "query: "}, versions([])))
    assert "mine, pooler cls, prefix 'query: '\n" in CliRunner().invoke(cache_command, ["info"]).output
    assert "freed" in CliRunner().invoke(cache_command, ["clear"]).output
    assert store.size() == 0 and list(store.folder.iterdir()) == []
    run = CliRunner().invoke(cache_command, ["info", "--cache", str(tmp_path / "elsewhere")])
    assert run.exit_code == 0 and "0 encoders" in run.output
