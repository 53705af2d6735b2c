"""The leaderboard's rows of encoders that were not trained here: measured, and entered.

    python ../shared/tools/real_encoders.py MODELS       # what the models are made of
    STSBENCH_DATA=DATA python benchmarks/board_rows.py MODELS [ENTRY ...]

board_rows.yaml lists them. Runs lie in MODELS/runs; one that is there is not measured again, so that an interrupted call
goes on. The checkout must be clean: its commit is in the records. The machine must be at rest: what an encoder costs is
measured, too.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

PROTOCOLS = "sts,regression,transfer,retrieval,geometry"
LANGUAGES = ("stsb-languages", "semrel", "jsts", "korsts")
FOLDER = "data/repositories"
MORE = ",".join([*(f"sts:{FOLDER}/{name}" for name in LANGUAGES), f"triplets:{FOLDER}/semantoneg"])
LAST = f"sts:{FOLDER}/csts"
CONDITION = ("--set", 'sts.condition="{condition}: {text}"')
ROWS = Path(__file__).with_suffix(".yaml")
BOARD = Path(__file__).parents[1] / "leaderboard"
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


def export_graph(source: Path, folder: Path) -> None:
    """Write a model's folder with onnx/model.onnx in the place of its weights, and onnx/model_qint8.onnx: weights of int8,
    activations of int8 with one scale a batch while it runs."""
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import AutoModel

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(source, attn_implementation="eager", dtype=torch.float32).eval()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            states: torch.Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            return states

    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.bin", "*.onnx", "openvino*"))
    (folder / "onnx").mkdir(exist_ok=True)
    ids, names = torch.randint(5, 20, (2, 7)), ("input_ids", "attention_mask")
    free = {0: torch.export.Dim("batch", max=4096), 1: torch.export.Dim("length", max=512)}
    torch.onnx.export(
        States(), (ids, torch.ones_like(ids)), str(folder / "onnx/model.onnx"), input_names=list(names),
        output_names=["last_hidden_state"], dynamo=True, external_data=False, dynamic_shapes=dict.fromkeys(names, free),
    )
    quantize_dynamic(folder / "onnx/model.onnx", folder / "onnx/model_qint8.onnx", weight_type=QuantType.QInt8)


def prepare(models: Path) -> None:
    """Make what rows need beside the models: a module for USE, random weights, exported graphs, the sets in languages."""
    from stsbench.encoders.transformer.find import find_minilm

    name_use(models)
    if not (models / "bert-random").exists():
        random_bert(models / "bert-random")
    for name, source in (("all-MiniLM-L6-v2", Path(find_minilm())), ("all-mpnet-base-v2", models / "all-mpnet-base-v2")):
        if not (folder := models / f"{name}-onnx").exists():
            export_graph(source, folder)
    subprocess.run([STSBENCH, "data", "fetch", *LANGUAGES, "csts", "semantoneg"], check=True)


def measure(models: Path, name: str, row: dict[str, Any]) -> None:
    """Measure below `models`, so that no record names a folder of this machine; enter what was measured."""
    encoder = ["--model", row["model"], *row.get("options", ())]
    cost = [] if "copy" in row else ["--cost"]  # smaller copies are measured in one process, and have no cost of their own
    parts = {"": ["--protocol", row.get("protocols", PROTOCOLS)], "-lang": ["--protocol", MORE],
             "-cost": ["--protocol", LAST, *CONDITION, *cost], "-robustness": ["--protocol", "robustness"]}
    description = BOARD / "measured" / name / "entry.yaml"
    if not description.exists():
        description.parent.mkdir()
        stated = yaml.safe_dump(row["entry"], sort_keys=False, allow_unicode=True, width=120)
        description.write_text(stated, encoding="utf-8")
    for part in row.get("parts", parts):
        run, asked = f"{name}{part}", parts[part]
        folder = models / "runs" / run
        if not folder.exists():
            subprocess.run([STSBENCH, "eval", *encoder, *asked, "--output", f"runs/{run}"], check=True, cwd=models)
        measured = next(folder.glob(row["copy"])) if "copy" in row else folder  # of smaller copies the one that is the row
        subprocess.run([STSBENCH, "leaderboard", "add", measured, "--board", BOARD, "--entry", name], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("entries", nargs="*")
    arguments = parser.parse_args()
    models, rows = arguments.models.resolve(), yaml.safe_load(ROWS.read_text("utf-8"))
    os.environ["STSBENCH_CACHE"] = str(models)
    prepare(models)
    for name in arguments.entries or rows:
        measure(models, name, rows[name])


if __name__ == "__main__":
    main()
