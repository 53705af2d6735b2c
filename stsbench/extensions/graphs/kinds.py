"""The encoder kinds `onnx` and `openvino`; their code, which needs torch, is imported on loading."""

from __future__ import annotations

from stsbench.encoders.base import Encoder, EncoderOptions


class Onnx(Encoder):
    """`onnx:FOLDER`, `onnx:FOLDER/onnx/model_qint8.onnx`."""

    usage = "onnx:FILE: an exported model, run by onnxruntime (extra graphs)"

    @classmethod
    def load(cls, argument: str, options: EncoderOptions) -> Encoder:
        """Return the encoder that runs it. EncoderError as its own `load`."""
        from stsbench.extensions.graphs.encoder import OnnxEncoder

        return OnnxEncoder.load(argument, options)


class Openvino(Encoder):
    """`openvino:FOLDER`, `openvino:FOLDER/openvino/model.xml`."""

    usage = "openvino:FILE: an exported model, run by OpenVINO (extra graphs)"

    @classmethod
    def load(cls, argument: str, options: EncoderOptions) -> Encoder:
        """Return the encoder that runs it. EncoderError as its own `load`."""
        from stsbench.extensions.graphs.encoder import OpenvinoEncoder

        return OpenvinoEncoder.load(argument, options)
