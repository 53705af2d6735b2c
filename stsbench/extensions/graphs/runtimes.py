"""The libraries that run an exported model: which of its outputs are the tokens' states, by which version, and on what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stsbench.encoders.forward.checkpoint import first_line
from stsbench.errors import EncoderError

STATES = ("last_hidden_state", "token_embeddings")  # as optimum's exports call them


@dataclass(frozen=True)
class Runtime:
    """A loaded graph. run: int64 (n, L) arrays by the names of `inputs` to the float (n, L, d) states of the tokens."""

    library: str  # with its version
    provider: str  # what computes, and what of its settings moves a vector
    inputs: tuple[str, ...]
    run: Callable[[Mapping[str, NDArray[np.int64]]], NDArray[Any]]


def onnx_runtime(file: Path, device: str) -> Runtime:
    """A .onnx file in onnxruntime. EncoderError: it is not installed, has no such device, or cannot load the file."""
    try:
        import onnxruntime
    except ImportError as error:
        raise EncoderError(f"{file} needs onnxruntime: pip install onnxruntime, or 'stsbench[graphs]'") from error
    providers = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
    provider = providers.get(device.partition(":")[0], device)
    if provider not in onnxruntime.get_available_providers():
        known = ", ".join(name for name, long in providers.items() if long in onnxruntime.get_available_providers())
        raise EncoderError(f"--device {device}: this onnxruntime computes on {known}")
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = _threads(), 3
    where = {"device_id": int(device.partition(":")[2] or 0)} if device.startswith("cuda") else {}
    try:
        session = onnxruntime.InferenceSession(str(file), settings, providers=[(provider, where)])
    except Exception as error:  # its own classes, which have no base in common
        raise EncoderError(f"onnxruntime cannot load {file}: {first_line(error)}") from error
    output = _states(file, [(one.name, len(one.shape)) for one in session.get_outputs()])
    inputs = tuple(one.name for one in session.get_inputs())
    return Runtime(f"onnxruntime {onnxruntime.__version__}", provider, inputs,
                   lambda arrays: session.run([output], dict(arrays))[0])


def openvino_runtime(file: Path, device: str) -> Runtime:
    """A .xml file in OpenVINO, in float32 where the graph is: by itself it computes in bfloat16 on processors that can.

    EncoderError: it is not installed, has no such device, or cannot load the file.
    """
    try:
        import openvino
    except ImportError as error:
        raise EncoderError(f"{file} needs openvino: pip install openvino, or 'stsbench[graphs]'") from error
    if device != "cpu":
        raise EncoderError(f"--device {device}: an OpenVINO model is run on the cpu here")
    how = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": _threads()}
    try:
        compiled = openvino.Core().compile_model(str(file), "CPU", how)
    except Exception as error:  # whatever its C++ raises
        raise EncoderError(f"OpenVINO cannot load {file}: {first_line(error)}") from error
    names = [(sorted(one.get_names())[0] if one.get_names() else str(number), len(one.get_partial_shape()))
             for number, one in enumerate(compiled.outputs)]
    output = [name for name, _ in names].index(_states(file, names))
    inputs = tuple(one.get_any_name() for one in compiled.inputs)
    return Runtime(f"openvino {openvino.__version__.partition('-')[0]}", "CPU f32", inputs,
                   lambda arrays: compiled(dict(arrays))[output])


RUNTIMES = {"onnx": onnx_runtime, "openvino": openvino_runtime}


def _states(file: Path, outputs: Sequence[tuple[str, int]]) -> str:
    """The name of the output that holds the tokens' states. outputs: name and number of axes."""
    named = [name for name, _ in outputs if name in STATES] or [name for name, axes in outputs if axes == 3]
    if len(named) != 1:
        listed = ", ".join(name for name, _ in outputs)
        raise EncoderError(f"{file} gives {listed}: none is known to be its tokens' states ({', '.join(STATES)})")
    return named[0]


def _threads() -> int:
    import torch

    return torch.get_num_threads()
