"""torch's ambient settings (autocast, precisions, default type and device, ...) as a fresh process has them, for a while.

A vector that is recorded as float32, cached or scored must not depend on what the calling program has switched on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

_DEVICES = ("cpu", "cuda", "mps", "xpu")
# In this order: what an operation has not been given it takes from its backend, and a backend from "generic".
_FLOAT32 = [("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"),
            ("mkldnn", "all"), ("mkldnn", "matmul"), ("mkldnn", "conv"), ("mkldnn", "rnn")]
_Setting = tuple[Callable[[], Any], Callable[[Any], Any], Any]


@contextmanager
def fresh_torch(gradients: bool = False) -> Iterator[None]:
    """No autocast, float32 products in full, float32 on the CPU by default, and every other switch that moves a number as
    torch has it at its start; afterwards all is as it was. gradients: whether the block trains something.

    Where torch was not imported yet nothing is done, and nothing is imported. Blocks may be nested.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "autocast"):  # not imported, or just being imported by another thread
        yield
        return
    with ExitStack() as restored:
        for device in _DEVICES:
            if torch.is_autocast_enabled(device):
                restored.enter_context(torch.autocast(device, enabled=False))
        if torch.is_inference_mode_enabled():
            restored.enter_context(torch.inference_mode(False))
        if torch.is_grad_enabled() != gradients:
            restored.enter_context(torch.set_grad_enabled(gradients))
        if torch.get_default_device().type != "cpu":  # a mode for every call: not entered without need
            restored.enter_context(torch.device("cpu"))
        for get, put, wanted in _settings(torch):
            try:
                old = get()
            except RuntimeError:  # torch refuses the older name of a setting where a newer one was used
                continue
            if old != wanted:
                put(wanted)
                restored.callback(put, old)
        yield


def _settings(torch: Any) -> Iterator[_Setting]:
    """How each setting is read, how it is written, and what it is to be."""
    cuda, cudnn, mkldnn = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
    yield torch.get_default_dtype, torch.set_default_dtype, torch.float32
    yield torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"
    yield _attribute(cudnn, "allow_tf32", False)  # switched on at torch's start: float32 convolutions of 10 bits
    if hasattr(torch._C, "_get_fp32_precision_getter"):  # torch 2.9
        yield from (_float32(torch, *names) for names in _FLOAT32)
    yield _deterministic(torch)
    yield _attribute(cudnn, "enabled", True)
    yield _attribute(cudnn, "benchmark", False)
    yield _attribute(cudnn, "deterministic", False)
    yield _attribute(mkldnn, "enabled", True)
    if hasattr(mkldnn, "deterministic"):
        yield _attribute(mkldnn, "deterministic", False)
    yield cuda.flash_sdp_enabled, cuda.enable_flash_sdp, True
    yield cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp, True
    yield cuda.math_sdp_enabled, cuda.enable_math_sdp, True
    yield cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp, True
    yield cuda.fp16_bf16_reduction_math_sdp_allowed, cuda.allow_fp16_bf16_reduction_math_sdp, False
    yield _attribute(cuda.matmul, "allow_fp16_reduced_precision_reduction", True)
    yield _attribute(cuda.matmul, "allow_bf16_reduced_precision_reduction", True)
    if hasattr(torch._C, "_get_cublas_allow_fp16_accumulation"):  # torch 2.7
        yield _attribute(cuda.matmul, "allow_fp16_accumulation", False)
    yield torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled, True


def _attribute(owner: Any, name: str, wanted: Any) -> _Setting:
    return lambda: getattr(owner, name), lambda value: setattr(owner, name, value), wanted


def _float32(torch: Any, backend: str, operation: str) -> _Setting:
    """How float32 is multiplied: "none" and "ieee" are both in full, and are left as they are."""

    def get() -> str:
        now: str = torch._C._get_fp32_precision_getter(backend, operation)
        return "ieee" if now == "none" else now

    return get, lambda value: torch._C._set_fp32_precision_setter(backend, operation, value), "ieee"


def _deterministic(torch: Any) -> _Setting:
    def get() -> tuple[bool, bool]:
        return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()

    def put(value: tuple[bool, bool]) -> None:
        torch.use_deterministic_algorithms(value[0], warn_only=value[1])

    return get, put, (False, False)
