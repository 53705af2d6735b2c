"""Products of an encoder's layers in 8 bits, by every library at hand, against float32: rate, error, and what it is of.

    PEERS/bin/python benchmarks/int8.py --threads 1

PEERS has torch, and onnxruntime with onnx, and openvino, where they are to be measured. Each way takes float32 or bfloat16
rows and gives them back, so rounding the rows to 8 bits and scaling the result back is in its time: one scale for each
row and one for each of the weight's columns, unless said otherwise. `alone`: whether a row's result is the same bit for
bit without the others; where it is not, a text's vector depends on the texts beside it. Errors are relative, over all.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from markdown_table import line

Way = Callable[[Any], Any]
SHAPES = ((384, 384), (384, 1536), (1536, 384), (768, 768), (768, 3072), (3072, 768))  # MiniLM's and BERT-base's


def main() -> None:
    """Read the options, measure each way on each shape, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=int, default=1024, help="tokens of a batch")
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    names = [f"{inner} x {outer}" for inner, outer in SHAPES]
    line("way", *names, "mean", "error", "alone")
    line("---", *["---:"] * (len(names) + 2), "---")
    missing = []
    for name, build in WAYS.items():
        ratios, errors, alone = [], [], True
        try:
            for inner, outer in SHAPES:
                weight, bias = torch.randn(outer, inner) / inner**0.5, torch.randn(outer) / 10
                rows = torch.randn(args.rows, inner) * torch.rand(args.rows, 1).mul(4).exp2()  # tokens differ in length
                plain = partial(torch.nn.functional.linear, rows, weight, bias)
                want, way = plain(), build(weight, bias, args.threads)
                input = rows.bfloat16() if name in BFLOAT16 else rows
                first, second = least_seconds(plain, partial(way, input), args.repeats)
                ratios.append(first / second)
                actual = torch.as_tensor(way(input)).float()
                errors.append(float((actual - want).norm() / want.norm()))
                alone &= bool(torch.equal(torch.as_tensor(way(input[5:6])).float()[0], actual[5]))
        except Exception as error:  # a library that is not there, or a product that it lacks
            missing.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:160]}")
            continue
        line(name, *(f"{value:.2f}" for value in ratios), f"{statistics.geometric_mean(ratios):.2f}",
             *(("", "") if name.endswith("alone") else (f"{statistics.mean(errors):.4f}", "yes" if alone else "no")))
    print(*missing, sep="\n")


def least_seconds(first: Callable[[], Any], second: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Return the least seconds of each, called in turn."""
    seconds: tuple[list[float], list[float]] = ([], [])
    first(), second()
    for _ in range(repeats):
        for call, of_call in zip((first, second), seconds, strict=True):
            start = time.perf_counter()
            call()
            of_call.append(time.perf_counter() - start)
    return min(seconds[0]), min(seconds[1])


def rounded(rows: Any) -> tuple[Any, Any]:
    """Return int8 rows and the scale of each, float32 (n, 1)."""
    scales = rows.abs().amax(1, keepdim=True).float().clamp_min(1e-12) / 127
    return (rows / scales).round_().to(torch.int8), scales


def bfloat16(weight: Any, bias: Any, _: int) -> Way:
    half, shift = weight.bfloat16(), bias.bfloat16()
    return lambda rows: torch.nn.functional.linear(rows, half, shift)


def onednn(out: Any, product_alone: bool = False) -> Callable[..., Way]:
    """oneDNN's product of uint8 rows with packed int8 weights (torch.ops.onednn), its result in `out`."""
    def build(weight: Any, bias: Any, _: int) -> Way:
        columns, scales = rounded(weight)
        packed = torch.ops.onednn.qlinear_prepack(columns, None)
        scales, zeros = scales.flatten(), torch.zeros(len(weight), dtype=torch.int32)
        shift = torch.tensor(128.5)

        def product(codes: Any) -> Any:
            return torch.ops.onednn.qlinear_pointwise(
                codes, 1.0, 128, packed, scales, zeros, None, 1.0, 0, out, "none", [], "")

        def way(rows: Any) -> Any:
            of_rows = rows.abs().amax(1, keepdim=True).float().clamp_min(1e-12) / 127
            codes = torch.addcmul(shift, rows, of_rows.reciprocal()).to(torch.uint8)  # cut, and so rounded: none is negative
            return torch.addcmul(bias.to(out), product(codes), of_rows.to(out))

        return (lambda rows: product(torch.zeros(rows.shape, dtype=torch.uint8))) if product_alone else way

    return build


def int_mm(weight: Any, bias: Any, _: int) -> Way:
    """torch._int_mm: int8 times int8 in int32."""
    columns, scales = rounded(weight)
    columns, scales = columns.t(), scales.flatten()

    def way(rows: Any) -> Any:
        codes, of_rows = rounded(rows)
        return torch.addcmul(bias, torch._int_mm(codes, columns) * of_rows, scales)

    return way


def dynamic(weight: Any, bias: Any, _: int) -> Way:
    """torch's quantize_dynamic: one scale for all rows."""
    layer = torch.nn.Linear(weight.shape[1], len(weight))
    layer.weight.data, layer.bias.data = weight, bias
    return torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(layer), {torch.nn.Linear}, torch.qint8)


def weight_only(weight: Any, bias: Any, _: int) -> Way:
    """torch's 8-bit weights, computed in bfloat16."""
    columns, scales = rounded(weight)
    of_columns = scales.flatten().bfloat16()
    return lambda rows: torch.ops.aten._weight_int8pack_mm(rows.bfloat16(), columns, of_columns) + bias.bfloat16()


def matmul_nbits(bits: int) -> Callable[..., Way]:
    """onnxruntime's MatMulNBits with accuracy_level 4: int8 rows, a scale for each 32 numbers of a row and of a column."""
    def build(weight: Any, bias: Any, threads: int) -> Way:
        import numpy as np
        import onnx
        from onnx import TensorProto, helper

        outer, inner = weight.shape
        block, half = 32, 2 ** (bits - 1)
        parts = weight.reshape(outer, inner // block, block)
        scales = parts.abs().amax(2, keepdim=True).clamp_min(1e-12) / (half - 1)
        codes = ((parts / scales).round() + half).to(torch.uint8).numpy()
        if bits == 4:
            codes = codes[..., 0::2] | codes[..., 1::2] << 4
        node = helper.make_node("MatMulNBits", ["a", "b", "s"], ["y0"], domain="com.microsoft", K=inner, N=outer, bits=bits,
                                block_size=block, accuracy_level=4)
        graph = helper.make_graph(
            [node, helper.make_node("Add", ["y0", "c"], ["y"])], "g",
            [helper.make_tensor_value_info("a", TensorProto.FLOAT, [None, inner])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, outer])],
            [onnx.numpy_helper.from_array(np.ascontiguousarray(codes), "b"),
             onnx.numpy_helper.from_array(scales.flatten().numpy(), "s"), onnx.numpy_helper.from_array(bias.numpy(), "c")],
        )
        return session(graph, threads)

    return build


def dynamic_onnx(weight: Any, bias: Any, threads: int) -> Way:
    """onnxruntime's dynamic quantisation: one scale for all rows, as sentence-transformers exports it."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper

    columns, scales = rounded(weight)
    nodes = [helper.make_node("DynamicQuantizeLinear", ["a"], ["q", "qs", "qz"]),
             helper.make_node("MatMulInteger", ["q", "b", "qz"], ["i"]), helper.make_node("Cast", ["i"], ["f"], to=1),
             helper.make_node("Mul", ["qs", "s"], ["qss"]), helper.make_node("Mul", ["f", "qss"], ["m"]),
             helper.make_node("Add", ["m", "c"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("a", TensorProto.FLOAT, [None, weight.shape[1]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, len(weight)])],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(columns.t().numpy()), "b"),
         onnx.numpy_helper.from_array(scales.flatten().numpy(), "s"), onnx.numpy_helper.from_array(bias.numpy(), "c")],
    )
    return session(graph, threads)


def session(graph: Any, threads: int) -> Way:
    """Return what runs an ONNX graph of one input."""
    import onnxruntime
    from onnx import helper

    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
                              ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    run = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda rows: run.run(None, {"a": rows.numpy()})[0]


def openvino(group: int) -> Callable[..., Way]:
    """OpenVINO's 8-bit weights with rows rounded in groups of so many numbers; 0: whatever it does by itself."""
    def build(weight: Any, bias: Any, threads: int) -> Way:
        import numpy as np
        import openvino as ov
        from openvino import opset13 as ops

        columns, scales = rounded(weight)
        rows = ops.parameter([-1, weight.shape[1]], np.float32)
        stored = ops.multiply(ops.convert(ops.constant(columns.numpy()), "f32"), ops.constant(scales.numpy()))
        result = ops.add(ops.matmul(rows, stored, False, True), ops.constant(bias.numpy()))
        settings = {"INFERENCE_NUM_THREADS": threads, "DYNAMIC_QUANTIZATION_GROUP_SIZE": group,
                    "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        compiled = ov.compile_model(ov.Model([result], [rows]), "CPU", settings)
        return lambda rows: compiled(rows.numpy())[0]

    return build


BFLOAT16 = ("torch, bfloat16", "oneDNN, rows in bfloat16", "oneDNN, product alone")
WAYS: dict[str, Callable[[Any, Any, int], Way]] = {
    "torch, bfloat16": bfloat16,
    "oneDNN, rows in float32": onednn(torch.float32), "oneDNN, rows in bfloat16": onednn(torch.bfloat16),
    "oneDNN, product alone": onednn(torch.bfloat16, True),
    "torch._int_mm": int_mm, "torch, quantize_dynamic": dynamic, "torch, 8-bit weights": weight_only,
    "onnxruntime, dynamic": dynamic_onnx, "onnxruntime, MatMulNBits 8": matmul_nbits(8),
    "onnxruntime, MatMulNBits 4": matmul_nbits(4),
    "openvino, groups of 32": openvino(32), "openvino, a group a row": openvino(2**32 - 1), "openvino, none": openvino(0),
}


if __name__ == "__main__":
    main()
