"""The lazy transformer: what is in the cache needs no torch, and a spec that does not hold is refused."""

import json
import sys
from dataclasses import replace

import light_process
import pytest
from tiny_models import build

from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer.config import stated_positions
from stsbench.encoders.transformer.lazy import LazyEncoder
from stsbench.errors import EncoderError


def test_a_spec_that_does_not_hold_is_refused(tmp_path):
    build(tmp_path)
    lazy = load_encoder(str(tmp_path), pooler="mean", offline=True)
    assert isinstance(lazy, LazyEncoder)
    with pytest.raises(EncoderError, match="misstates its positions: the model cuts texts at 64 tokens instead of 7"):
        LazyEncoder(replace(lazy.config, positions=7), lazy.options).run(["a"])
    with pytest.raises(EncoderError, match="changed while it was being loaded"):
        LazyEncoder(replace(lazy.config, weights="0" * 64), lazy.options).run(["a"])


def test_unknown_architectures_are_not_guessed(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "novel", "max_position_embeddings": 64}))
    assert stated_positions(tmp_path) is None
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1})
    )
    assert stated_positions(tmp_path) == 512


def test_a_cached_run_imports_no_torch(tmp_path, monkeypatch, capsys):
    from stsbench.cli.main import main

    build(tmp_path / "model")
    command = ["eval", "--model", str(tmp_path / "model"), "--pooler", "mean", "--sample", "--tasks", "STS-B", "--json", "-",
               "--cache", str(tmp_path / "cache"), "--output", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", ["stsbench", *command])
    with pytest.raises(SystemExit) as end:
        main()
    first = capsys.readouterr().out
    code = (
        "import sys\nsys.argv = ['stsbench', *sys.argv[1:]]\nfrom stsbench.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print('torch' in sys.modules, file=sys.stderr)"
    )
    again = light_process.run(code, *command)
    assert again.returncode == 0, again.stderr
    assert not end.value.code and again.stderr.splitlines()[-1] == "False"
    assert again.stdout == first
