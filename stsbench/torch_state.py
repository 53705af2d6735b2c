"""Blocks in which torch's ambient settings (autocast, precisions, default type and device, ...) are those of a new process.

A vector that is recorded as float32, cached or scored must not depend on settings of the calling program.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

_DEVICES = ("cpu", "cuda", "mps", "xpu")
# In this order, as an operation without a setting has that of its backend, and a backend that of "generic".
_FLOAT32 = [("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"),
            ("mkldnn", "all"), ("mkldnn", "matmul"), ("mkldnn", "conv"), ("mkldnn", "rnn")]
_NUMPY = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
_Setting = tuple[Callable[[], Any], Callable[[Any], Any], Any]
_Change = tuple[Callable[[Any], Any], Any]
_lock = threading.Lock()
_rounding = threading.Lock()
_open = Counter[int]()  # thread -> its open blocks: process-wide settings stay fresh until the last block ends
_later: list[_Change] = []  # settings to restore when the last block ends


@contextmanager
def fresh_torch(gradients: bool = False) -> Iterator[None]:
    """Set the switches of torch and numpy that change numbers, in the block: no autocast, full float32 precision, float32
    and the CPU as defaults, the others as at their start. Afterwards all are restored. gradients: whether they are on.

    If torch was not imported, nothing is done, and nothing is imported. Blocks may be nested, and run in several threads at
    a time.
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
        if torch.get_default_device().type != "cpu":  # only then, as the mode slows down every call
            restored.enter_context(torch.device("cpu"))
        yield


@contextmanager
def outside_torch() -> Iterator[None]:
    """Run a user's code, such as a callback, within a block of `fresh_torch`: it draws from the process's generators, and
    all that it sets or leaves open in torch or numpy is undone afterwards."""
    import numpy as np
    import torch
    from torch.overrides import _get_current_function_mode_stack

    switched = [(kind, torch.is_autocast_enabled(kind)) for kind in _DEVICES]
    gradients, threads, errors, flushes = torch.is_grad_enabled(), torch.get_num_threads(), np.geterr(), _flushes()
    # Modes that intercept this thread's calls of torch: a default device, a user's TorchFunctionMode, `drawing`'s mode.
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
    """Keep the rounded weights of a pass under autocast until the end of the block only, whatever autocast the caller is in.
    As torch caches them for the whole process, such blocks of several threads run one after another."""
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


_left_open: list[Any] = []  # contexts that switch off inference modes of callbacks; freed, they would switch them on again


@contextmanager
def _process_settings(torch: Any) -> Iterator[None]:
    """Set process-wide settings to the values of `_settings` until the block, and those of other threads, have ended."""
    thread = threading.get_ident()
    with _lock:
        changed = _put_fresh(torch)
        if _open.keys() - {thread}:  # another thread's temporary change (of a model that loads in float16) is not restored
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
    """Set all process-wide settings to the values of `_settings`; return those that changed, with their old values."""
    changed = list[_Change]()
    for get, put, wanted in _settings(torch):
        try:
            old = get()
        except RuntimeError:  # torch raises for a setting's old name if its new name was used
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
    """Return whether this thread flushes denormal numbers to 0 (torch.set_flush_denormal), for which torch has no getter."""
    return sys.float_info.min / 2 == 0


def _settings(torch: Any) -> Iterator[_Setting]:
    """Yield a getter, a setter and the required value of each process-wide setting."""
    cuda, cudnn, mkldnn = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
    yield torch.get_default_dtype, torch.set_default_dtype, torch.float32
    yield torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"
    yield _attribute(cudnn, "allow_tf32", False)  # torch's default is True: float32 convolutions with 10 bits
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
    """Return the setting of float32 products; "none" and "ieee" both mean full precision, so that neither is changed."""

    def get() -> str:
        now: str = torch._C._get_fp32_precision_getter(backend, operation)
        return "ieee" if now == "none" else now

    return get, lambda value: torch._C._set_fp32_precision_setter(backend, operation, value), "ieee"
