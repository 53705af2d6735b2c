"""A model folder whose transformer is exported to ONNX and OpenVINO, and as onnxruntime quantises it."""

from __future__ import annotations

import logging
import shutil
import warnings
from pathlib import Path

import pytest
import torch


class _States(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids):  # type: ignore[no-untyped-def]
        given = {"attention_mask": attention_mask, "token_type_ids": token_type_ids}
        return self.model(input_ids=input_ids, **given).last_hidden_state


def exported(source: Path, folder: Path) -> Path:
    """`folder` with the settings of `source` and onnx/model.onnx: as torch's exporter makes it, batch and length free."""
    for library in ("onnx", "onnxscript"):
        pytest.importorskip(library, reason=f"torch exports by {library}: pip install 'stsbench[dev]'")
    from transformers import AutoModel

    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.bin"))
    (folder / "onnx").mkdir()
    model = AutoModel.from_pretrained(source, attn_implementation="eager", dtype=torch.float32).eval()
    ids = torch.randint(5, 20, (2, 7))
    batch, length = torch.export.Dim("batch", max=4096), torch.export.Dim("length", max=model.config.max_position_embeddings)
    names = ("input_ids", "attention_mask", "token_type_ids")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        torch.onnx.export(
            _States(model), (ids, torch.ones_like(ids), torch.zeros_like(ids)), str(folder / "onnx" / "model.onnx"),
            input_names=list(names), output_names=["last_hidden_state"], dynamo=True, external_data=False, verbose=False,
            dynamic_shapes={name: {0: batch, 1: length} for name in names},
        )
    return folder


def quantised(folder: Path) -> Path:
    """onnx/model_qint8.onnx beside the exported file: weights of int8, and one scale for a batch's numbers while it runs."""
    pytest.importorskip("onnxruntime")
    from onnxruntime.quantization import QuantType, quantize_dynamic

    file = folder / "onnx" / "model_qint8.onnx"
    quantize_dynamic(folder / "onnx" / "model.onnx", file, weight_type=QuantType.QInt8)
    return file


def converted(folder: Path) -> Path:
    """openvino/openvino_model.xml of the exported file."""
    openvino = pytest.importorskip("openvino")
    file = folder / "openvino" / "openvino_model.xml"
    openvino.save_model(openvino.convert_model(folder / "onnx" / "model.onnx"), file, compress_to_fp16=False)
    return file
