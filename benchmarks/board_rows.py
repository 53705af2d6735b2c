"""The leaderboard's rows of encoders that were not trained here: measured, and entered.

    python ../shared/tools/real_encoders.py MODELS       # what the models are made of
    STSBENCH_DATA=DATA python benchmarks/board_rows.py MODELS [ENTRY ...]

board_rows.yaml lists them. Runs lie in MODELS/runs; one that is there is not measured again. The checkout must be clean:
its commit is in the records.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

PROTOCOLS = "sts,regression,transfer,retrieval,geometry"
ROWS = Path(__file__).with_suffix(".yaml")
STSBENCH = Path(sys.executable).with_name("stsbench")
USE = """import hashlib

from use import encode as _encode


def encode(texts):
    return _encode(texts)


encode.fingerprint = "{digest}"
"""


def name_use(models: Path) -> None:
    """Write the module whose function has the digest of its weights for a fingerprint."""
    digest = hashlib.sha256()
    for path in sorted((models / "site" / "use").rglob("*")):
        if path.is_file() and path.suffix not in (".pyc", ""):
            digest.update(path.read_bytes())
    (models / "board_use.py").write_text(USE.format(digest=digest.hexdigest()))


def random_bert(folder: Path) -> None:
    """Write BERT-base as it is initialised, seed 0, with MiniLM's tokenizer, which is BERT's."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    from stsbench.encoders.transformer.find import find_minilm

    torch.manual_seed(0)
    BertModel(BertConfig()).save_pretrained(folder)
    AutoTokenizer.from_pretrained(find_minilm()).save_pretrained(folder)


def measure(models: Path, name: str, row: dict[str, Any]) -> None:
    """Measure below `models`, so that no record names a folder of this machine."""
    run = models / "runs" / name
    if not run.exists():
        command = [STSBENCH, "eval", "--model", row["model"], "--protocol", PROTOCOLS, "--output", f"runs/{name}"]
        subprocess.run([*command, *row.get("options", ())], check=True, cwd=models)
    about = {key: value for key, value in row.items() if key not in ("model", "options", "flag")}
    entry = [*(f"--{key}={value}" for key, value in about.items()), *(f"--flag={flag}" for flag in row.get("flag", ()))]
    board = Path(__file__).parents[1] / "leaderboard"
    subprocess.run([STSBENCH, "leaderboard", "add", str(run), "--board", str(board), "--entry", name, *entry], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("entries", nargs="*")
    arguments = parser.parse_args()
    models, rows = arguments.models.resolve(), yaml.safe_load(ROWS.read_text("utf-8"))
    name_use(models)
    if not (models / "bert-random").exists():
        random_bert(models / "bert-random")
    for name in arguments.entries or rows:
        measure(models, name, rows[name])


if __name__ == "__main__":
    main()
