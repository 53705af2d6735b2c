"""sentence-transformers with another backend, in a process of its own: its extras may need other versions than ours.

    PYTHON peer.py JOB.json OUT.npz
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

_INT8 = {"avx512_vnni": "avx512_vnni", "avx512": "avx512", "": "avx2"}  # flag of the processor -> the library's setting


def main() -> None:
    """Times the job's texts, and writes the vectors of these and of its other texts. Exit code 1: the reason, one line."""
    job = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    os.environ["RAYON_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(job["threads"])
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    clock = time.process_time if job["cpu_time"] else time.perf_counter
    try:
        import numpy as np
        import torch

        torch.set_num_threads(job["threads"])
        model = _LOAD[job["backend"]](job)
        model.encode(job["texts"][:64])
        seconds = []
        for _ in range(job["repeats"]):
            start = clock()
            vectors = model.encode(job["texts"])
            seconds.append(clock() - start)
        more = model.encode(job["more"]) if job["more"] else np.zeros((0, vectors.shape[1]))
        np.savez(sys.argv[2], vectors=vectors, more=more, seconds=min(seconds))
    except Exception as error:  # whatever is missing or fails
        print(f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")
        raise SystemExit(1) from error


def _onnx(job: dict[str, Any]) -> Any:
    from sentence_transformers import SentenceTransformer, export_dynamic_quantized_onnx_model

    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
    level = next(name for flag, name in _INT8.items() if flag in flags)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job["threads"]
    how = {"provider": "CPUExecutionProvider", "session_options": options}
    work = job["work"]
    export_dynamic_quantized_onnx_model(
        SentenceTransformer(job["folder"], backend="onnx", device="cpu", model_kwargs={**how, "export": True}), level, work
    )
    _rest_of(job["folder"], work)
    name = next(Path(work).rglob("*int8*.onnx")).relative_to(work).as_posix()
    return SentenceTransformer(work, backend="onnx", device="cpu", model_kwargs={**how, "file_name": name})


def _openvino(job: dict[str, Any]) -> Any:
    import csv

    from optimum.intel import OVQuantizationConfig
    from sentence_transformers import SentenceTransformer, export_static_quantized_openvino_model

    work, data = Path(job["work"]), Path(job["work"]) / "calibration"
    data.mkdir()
    with (data / "train.csv").open("w", newline="") as file:  # the library's default set lies on the Hub
        csv.writer(file).writerows([["sentence"], *([text] for text in job["calibration"])])
    how = {"ov_config": {"INFERENCE_NUM_THREADS": str(job["threads"])}}
    export_static_quantized_openvino_model(
        SentenceTransformer(job["folder"], backend="openvino", device="cpu", model_kwargs={"export": True}),
        OVQuantizationConfig(), str(work), str(data), "default", "train", "sentence",
    )
    _rest_of(job["folder"], str(work))
    name = next(work.rglob("*qint8*.xml")).relative_to(work).as_posix()
    return SentenceTransformer(str(work), backend="openvino", device="cpu", model_kwargs={**how, "file_name": name})


def _rest_of(folder: str, work: str) -> None:
    """The folder's settings and tokenizer beside the exported model."""
    import shutil

    for path in Path(folder).rglob("*"):
        target = Path(work) / path.relative_to(folder)
        if path.is_file() and path.suffix in (".json", ".txt") and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


_LOAD = {"onnx-int8": _onnx, "openvino-int8": _openvino}

if __name__ == "__main__":
    main()
