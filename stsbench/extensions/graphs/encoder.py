"""Encoders of exported graphs: stsbench's tokenisation and pooling around a transformer in ONNX Runtime or OpenVINO."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stsbench.encoders.base import Encoded, Encoder, EncoderOptions, Progress
from stsbench.encoders.forward.checkpoint import first_line
from stsbench.encoders.forward.identity import Opened, external_data
from stsbench.encoders.forward.pooling import KINDS
from stsbench.encoders.model_folder import read_settings
from stsbench.encoders.options import CHANGING, spelled
from stsbench.encoders.prompt.tokenizer import load_tokenizer
from stsbench.encoders.transformer.config import EncoderConfig, check_cut, resolve_config, stated_positions
from stsbench.encoders.transformer.parts import Parts
from stsbench.encoders.transformer.transformer import TransformerEncoder
from stsbench.errors import EncoderError

if TYPE_CHECKING:
    from numpy.typing import NDArray


SUFFIXES = {"onnx": ".onnx", "openvino": ".xml"}
_MARKS = ("modules.json", "config.json")
STATES = ("last_hidden_state", "token_embeddings")  # as optimum's exports call them
_HONOURED = (  # options that change a vector and stand around a graph
    "pooler", "template", "full_stop", "max_length", "normalize", "truncate_dim", "prompt", "prompt_name", "prompts",
)
_FROM_0 = ("bert", "distilbert", "electra", "albert")  # kinds whose positions are 0, 1, ... from a text's first token on
_ALONE = "its vectors depend on the texts beside them, so that each text is computed alone"


def chosen(kind: str, argument: str) -> tuple[Path, Path]:
    """Return the model folder and the graph in it that `KIND:argument` names: a file, or a folder that holds one.

    Raises EncoderError, one line, for a missing file or folder, none or several graphs, or a file without model settings.
    """
    path, suffix = Path(argument).expanduser(), SUFFIXES[kind]
    if path.is_file():
        if path.suffix != suffix:
            raise EncoderError(f"{kind}:{argument}: not a {suffix} file")
        return _folder(path), path
    if not path.is_dir():
        raise EncoderError(f"{kind}:{argument}: there is no such folder or file; a Hub id has to be downloaded first")
    files = sorted(path.rglob(f"*{suffix}"))
    if not files:
        raise EncoderError(f"{kind}:{argument} holds no {suffix} file")
    if len(files) > 1:
        listed = ", ".join(file.relative_to(path).as_posix() for file in files)
        raise EncoderError(f"{kind}:{argument} holds {listed}: name one of them")
    return _folder(files[0], path), files[0]


def _folder(file: Path, top: Path | None = None) -> Path:
    """Return the nearest folder above a graph that has modules.json, else config.json."""
    above = [folder for folder in file.parents[:3] if top is None or folder == top or top in folder.parents]
    for mark in _MARKS:
        if folder := next((folder for folder in above if (folder / mark).is_file()), None):
            return folder
    raise EncoderError(f"{file}: no config.json or modules.json lies beside it or above it: its tokenizer is not known")


@dataclass(frozen=True)
class Runtime:
    """A loaded graph. run: from int64 (n, L) arrays, by the names in `inputs`, to float (n, L, d) states of the tokens."""

    library: str  # with its version
    provider: str  # what computes, with those of its settings that change vectors
    inputs: tuple[str, ...]
    run: Callable[[Mapping[str, NDArray[np.int64]]], NDArray[Any]]


def onnx_runtime(file: Path, device: str) -> Runtime:
    """Load a .onnx file in onnxruntime. Raises EncoderError if that is not installed, lacks the device or cannot load it."""
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
    except Exception as error:  # onnxruntime's exceptions have no common base
        raise EncoderError(f"onnxruntime cannot load {file}: {first_line(error)}") from error
    output = _states(file, [(one.name, len(one.shape)) for one in session.get_outputs()])
    inputs = tuple(one.name for one in session.get_inputs())
    return Runtime(f"onnxruntime {onnxruntime.__version__}", provider, inputs,
                   lambda arrays: session.run([output], dict(arrays))[0])


def openvino_runtime(file: Path, device: str) -> Runtime:
    """Load a .xml file in OpenVINO, with float32 computed as such: by default OpenVINO uses bfloat16 on CPUs that support
    it.

    Raises EncoderError if OpenVINO is not installed, lacks the device, or cannot load the file.
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
    """Return the name of the output with the tokens' states. outputs: (name, number of axes)."""
    named = [name for name, _ in outputs if name in STATES] or [name for name, axes in outputs if axes == 3]
    if len(named) != 1:
        listed = ", ".join(name for name, _ in outputs)
        raise EncoderError(f"{file} gives {listed}: none is known to be its tokens' states ({', '.join(STATES)})")
    return named[0]


def _threads() -> int:
    import torch

    return torch.get_num_threads()


class Graph(torch.nn.Module):
    """An exported transformer, called as transformers' own: ids and mask in, `last_hidden_state` out."""

    def __init__(self, runtime: Runtime, settings: dict[str, Any], file: Path) -> None:
        """Open a graph. settings: of its config.json. Raises EncoderError for an unknown input of the graph."""
        super().__init__()
        self.runtime, self.file = runtime, file
        self.config = SimpleNamespace(**settings)
        self.here = torch.nn.Parameter(torch.zeros(0), requires_grad=False)  # its device, the CPU, is that of the inputs
        if unknown := set(runtime.inputs) - {"input_ids", "attention_mask", "token_type_ids", "position_ids"}:
            raise EncoderError(f"{file} asks for {', '.join(sorted(unknown))}, which is not given here")
        if "position_ids" in runtime.inputs and settings.get("model_type") not in _FROM_0:
            kind = settings.get("model_type")
            raise EncoderError(f"{file} asks for position_ids, and where those of a {kind} begin is not known here: "
                               "export it without them")

    def get_input_embeddings(self) -> Any:
        """Return a stand-in with `num_embeddings` alone, the vocabulary's size, or None if the config lacks it."""
        return SimpleNamespace(num_embeddings=getattr(self.config, "vocab_size", None))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        """Return (n, L) both; `last_hidden_state` float32 (n, L, d)."""
        ids = input_ids.numpy()
        known: dict[str, NDArray[np.int64]] = {
            "input_ids": ids, "attention_mask": attention_mask.numpy(), "token_type_ids": np.zeros_like(ids),
            "position_ids": np.broadcast_to(np.arange(ids.shape[1], dtype=np.int64), ids.shape),
        }
        try:
            states = self.runtime.run({name: np.ascontiguousarray(known[name]) for name in self.runtime.inputs})
        except Exception as error:  # whatever the library raises
            raise EncoderError(f"{self.file}: {self.runtime.library}: {first_line(error)}") from error
        return SimpleNamespace(last_hidden_state=torch.from_numpy(np.array(states, dtype=np.float32)))


class GraphEncoder(TransformerEncoder):
    """A model folder whose exported transformer another library runs. Its fingerprint covers file, library and provider."""

    kind: ClassVar[str]

    def __init__(
        self, config: EncoderConfig, parts: Parts, options: EncoderOptions, more: dict[str, Any], opened: Opened
    ) -> None:
        """Make the encoder. more: the spec's facts on the graph; opened: the files that it was loaded from."""
        super().__init__(config, parts, batch_tokens=options.batch_tokens)
        self.config, self._parts, self._options, self._more, self._opened = config, parts, options, more, opened
        self.spec = replace(self.spec, kind=self.kind, options={**self.spec.options, **more})

    @classmethod
    def load(cls, argument: str, options: EncoderOptions) -> Encoder:
        """Return `onnx:FOLDER`, `onnx:FOLDER/onnx/model_qint8.onnx`, `openvino:FOLDER`,
        `openvino:FOLDER/openvino/model.xml`.

        Raises EncoderError, one line, for a missing or ambiguous file, or options that do not apply to a graph.
        """
        for name in (*CHANGING, "attention"):
            if name not in _HONOURED and getattr(options, name) != getattr(EncoderOptions, name):
                raise EncoderError(f"{spelled(name)} does not apply to {options.model}: an exported model is run as it is")
        folder, file = chosen(cls.kind, argument)
        config = replace(resolve_config(str(folder), options), name=options.model or f"{cls.kind}:{argument}")
        _check(config)
        assert config.folder is not None
        data = external_data(file) if cls.kind == "onnx" else [file.with_suffix(".bin").name]
        with Opened(config.sources, [file, *(file.parent / name for name in data)], native=True) as opened:
            runtime = RUNTIMES[cls.kind](file, options.device or "cpu")
            tokenizer = load_tokenizer(config.folder, config.name)
        settings = read_settings(config.folder / "config.json")
        settings["max_position_embeddings"] = stated_positions(config.folder) or settings.get("max_position_embeddings")
        config = replace(config, weights=opened.digest(config.name, config.weights))
        parts = Parts(Graph(runtime, settings, file), tokenizer)
        more = {"file": file.relative_to(folder).as_posix(), "library": runtime.library, "provider": runtime.provider}
        encoder = cls(config, parts, options, more, opened)
        check_cut(config.name, options, encoder.width)
        return encoder

    @property
    def engine(self) -> str:  # type: ignore[override]
        """Return the library and the kind of forward pass."""
        return f"{self._more['library']}, {self._more['provider']}, padded"

    def for_role(self, role: str | None, prompt: str | None = None) -> Encoder:
        """Return the same model with `prompt`, or the prompt that its folder stores for the role."""
        config = self.config.for_role(role, prompt)
        return self if config == self.config else type(self)(config, self._parts, self._options, self._more, self._opened)

    def with_prompt(self, prompt: str) -> Encoder:
        """Return the same model with one prompt for all texts."""
        return type(self)(self.config.with_prompt(prompt), self._parts, self._options, self._more, self._opened)

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Return float32 (n, d) vectors of n texts. Raises EncoderError if the graph's files, which may be memory-mapped,
        have changed."""
        with self._opened:
            encoded = super().run(texts, progress)
        self._opened.check(self.config.name)
        return encoded

    def keep_lengths_apart(self) -> None:
        """Encode each text alone from now on: equal lengths do not suffice, as dynamically quantised layers use one scale
        for all numbers of a batch."""
        if not self.equal_lengths:
            self.equal_lengths = True
            self.notes = (*self.notes, f"{self.spec.name}: {_ALONE}")

    def ready(self) -> None:
        """Find out whether texts may share a batch."""
        super().ready()
        if self.equal_lengths:
            self.budget = 1

    def _foreseen(self, prompt: Any) -> str | None:
        return "an exported graph takes texts side by side"


class OnnxEncoder(GraphEncoder):
    """A .onnx file, run by onnxruntime."""

    kind = "onnx"


class OpenvinoEncoder(GraphEncoder):
    """A .xml file with its weights, run by OpenVINO."""

    kind = "openvino"


def _check(config: EncoderConfig) -> None:
    """Raise EncoderError for a folder that is more than a transformer, a pooler over its last states, and the length 1."""
    if config.pooler is None:
        raise EncoderError(f"{config.name}: its modules are more than a transformer, a pooling and a normalisation that are "
                           "known here: choose a --pooler, which sets them aside")
    if config.pooler in KINDS or config.pooler in ("cls+dense", "first_last:embeddings", "first_last:layer1", "last2"):
        raise EncoderError(f"--pooler {config.pooler}: an exported model gives its last states alone, and no head")
    if config.prompt.trained or config.post is not None:
        raise EncoderError(f"{config.name} stores a prompt or a post-processing that stsbench trained: an export lacks it")
