"""torch's ambient settings (autocast, precisions, default type and device, ...) as a fresh process has them, for a while.

A vector that is recorded as float32, cached or scored must not depend on what the calling program has switched on.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

_DEVICES = ("cpu", "cuda", "mps", "xpu")
# In this order: what an operation has not been given it takes from its backend, and a backend from "generic".
_FLOAT32 = [("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"),
            ("mkldnn", "all"), ("mkldnn", "matmul"), ("mkldnn", "conv"), ("mkldnn", "rnn")]
_NUMPY = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
_Setting = tuple[Callable[[], Any], Callable[[Any], Any], Any]
_Change = tuple[Callable[[Any], Any], Any]
_lock = threading.Lock()
_rounding = threading.Lock()
_open = Counter[int]()  # blocks in each thread: what is set for the whole process stays fresh until the last one ends
_later: list[_Change] = []  # what is to be put back then


@contextmanager
def fresh_torch(gradients: bool = False) -> Iterator[None]:
    """No autocast, float32 products in full, float32 on the CPU by default, and every other switch that moves a number as
    torch and numpy have it at their start; afterwards all is as it was. gradients: whether the block trains something.

    Where torch was not imported yet nothing is done, and nothing is imported. Blocks may be nested, and run in several
    threads at a time.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "autocast"):  # not imported, or just being imported by another thread
        yield
        return
    import numpy as np

    with ExitStack() as restored:
        restored.enter_context(_process_settings(torch))
        for device in _DEVICES:
            if torch.is_autocast_enabled(device):
                restored.enter_context(torch.autocast(device, enabled=False))
        if torch.is_inference_mode_enabled():
            restored.enter_context(torch.inference_mode(False))
        if torch.is_grad_enabled() != gradients:
            restored.enter_context(torch.set_grad_enabled(gradients))
        if np.geterr() != _NUMPY:
            restored.enter_context(np.errstate(**_NUMPY))  # type: ignore[arg-type]
        if _flushes():
            torch.set_flush_denormal(False)
            restored.callback(torch.set_flush_denormal, True)
        if torch.get_default_device().type != "cpu":  # a mode for every call: not entered without need
            restored.enter_context(torch.device("cpu"))
        yield


@contextmanager
def outside_torch() -> Iterator[None]:
    """For code of a user's within a block of `fresh_torch`, as a callback: it draws from the process's generators, and
    nothing that it sets in torch or numpy, or leaves open, acts on what comes after it."""
    import numpy as np
    import torch
    from torch.overrides import _get_current_function_mode_stack

    switched = [(kind, torch.is_autocast_enabled(kind)) for kind in _DEVICES]
    gradients, threads, errors, flushes = torch.is_grad_enabled(), torch.get_num_threads(), np.geterr(), _flushes()
    # What looks at this thread's calls of torch: a default device, a user's TorchFunctionMode, draws of ours.
    modes, device = list(_get_current_function_mode_stack()), torch.get_default_device()
    _put_modes([mode for mode in modes if not type(mode).__module__.startswith("stsbench.")
                and not isinstance(mode, torch.utils._device.DeviceContext)])
    by_default = torch.get_default_device()
    try:
        yield
    finally:
        if torch.get_default_device() != by_default:
            torch.set_default_device(by_default)
        _put_modes(modes)
        if torch.get_default_device() != device:
            _put_modes([torch.utils._device.DeviceContext(device), *modes])
        _put_fresh(torch)
        for kind, on in switched:
            torch.set_autocast_enabled(kind, on)
        if torch.is_inference_mode_enabled():
            _left_open.append(torch.inference_mode(False))
            _left_open[-1].__enter__()
        torch.set_grad_enabled(gradients)
        torch.set_flush_denormal(flushes)
        np.seterr(**errors)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


@contextmanager
def autocast_once() -> Iterator[None]:
    """Around one pass under autocast: the weights it rounds are kept until its end, and no longer, whatever autocast the
    caller is inside of. torch keeps them for the process: two such passes wait for one another."""
    import torch

    with _rounding:
        depth = torch.autocast_increment_nesting()
        for _ in range(depth):
            torch.autocast_decrement_nesting()
        torch.clear_autocast_cache()
        try:
            yield
        finally:
            torch.clear_autocast_cache()
            for _ in range(depth - 1):
                torch.autocast_increment_nesting()


_left_open: list[Any] = []  # inference modes that a callback left on, switched off: freed, they would be on again


@contextmanager
def _process_settings(torch: Any) -> Iterator[None]:
    """Make fresh what is set for all threads, until the block ends, or until those of other threads have."""
    thread = threading.get_ident()
    with _lock:
        changed = _put_fresh(torch)
        if _open.keys() - {thread}:  # then it is what a thread changes for a moment, as one that loads a model in float16
            changed = []
        _open[thread] += 1
    try:
        yield
    finally:
        with _lock:
            _open[thread] -= 1
            if not _open[thread]:
                del _open[thread]
            if not _open.keys() - {thread}:
                _put(changed)
            elif thread not in _open:
                _later.extend(changed)
            if not _open:
                _put(_later)
                _later.clear()


def _put_fresh(torch: Any) -> list[_Change]:
    """Put every setting of the process as it is at torch's start; those that were not, with what they were."""
    changed = list[_Change]()
    for get, put, wanted in _settings(torch):
        try:
            old = get()
        except RuntimeError:  # torch refuses the older name of a setting where a newer one was used
            continue
        if old != wanted:
            put(wanted)
            changed.append((put, old))
    return changed


def _put(changed: list[_Change]) -> None:
    for put, old in reversed(changed):
        put(old)


def _put_modes(modes: list[Any]) -> None:
    import torch
    from torch.overrides import _pop_mode, _push_mode

    for _ in range(torch._C._len_torch_function_stack()):
        _pop_mode()
    for mode in modes:
        _push_mode(mode)


def _flushes() -> bool:
    """Return whether this thread takes numbers near 0 for 0, as torch.set_flush_denormal has it, which tells nobody."""
    return sys.float_info.min / 2 == 0


def _settings(torch: Any) -> Iterator[_Setting]:
    """Yield how each setting of the process is read, how it is written, and what it is to be."""
    cuda, cudnn, mkldnn = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
    yield torch.get_default_dtype, torch.set_default_dtype, torch.float32
    yield torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"
    yield _attribute(cudnn, "allow_tf32", False)  # switched on at torch's start: float32 convolutions of 10 bits
    if hasattr(torch._C, "_get_fp32_precision_getter"):  # torch 2.9
        yield from (_float32(torch, *names) for names in _FLOAT32)
    yield (lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
           lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]), (False, False))
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
    """Return how float32 is multiplied: "none" and "ieee" are both in full, and are left as they are."""

    def get() -> str:
        now: str = torch._C._get_fp32_precision_getter(backend, operation)
        return "ieee" if now == "none" else now

    return get, lambda value: torch._C._set_fp32_precision_setter(backend, operation, value), "ieee"
