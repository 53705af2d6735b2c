"""A pretended accelerator: tensors that say they lie on the device "pretend" and refuse to meet the CPU's, as a GPU's would.

Every operation is computed by the CPU on the values behind, so numbers are right; a tensor on the wrong device, `.numpy()`
of one on the device, a factory without `device=` and a generator of the CPU are errors as on CUDA. It also notes where the
program would wait for the device. Needs torch 2.12 or later. Use:

    with pretend_device() as pretended:
        model.to(pretended.device); loss(model(ids.to(pretended.device))).backward()
    pretended.waits  # what would have waited"""

import contextlib
from collections import Counter
from functools import cache

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils.backend_registration import _DummyBackendModule, _DummyDeviceGuard, _DummyPrivateUse1Hook

aten = torch.ops.aten
COPIES = {aten.copy_.default, aten._to_copy.default}  # between devices, by nature
# the indexed tensor and the values decide the device; indices of the CPU are copied there
INDEXED = {aten.index.Tensor, aten._unsafe_index.Tensor}
PUT = {aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default, aten._unsafe_index_put.default}
# besides pointwise operations these take a number of the CPU
SCALARS = {aten.fill_.Tensor, aten.masked_fill.Tensor, aten.masked_fill_.Tensor}
# how much there is to return only the device knows
SIZED = {aten.nonzero.default, aten.masked_select.default, aten._unique2.default, aten.unique_dim.default,
         aten.unique_consecutive.default, aten.repeat_interleave.Tensor}
WAITS = {aten._local_scalar_dense.default, aten.equal.default} | SIZED


class Pretended:
    """device: torch.device("pretend:0"); waits: operation -> how often the program would have waited for it."""

    def __init__(self):
        self.device = torch.device("pretend:0")
        self.waits = Counter()

    def waits_for(self, name):
        self.waits[name.removeprefix("aten.")] += 1


_now = None


# At import, and so before the process takes its first gradient: autograd starts a thread for each device known then.
_acc = torch._C._acc
_acc.register_python_privateuseone_device_guard(_DummyDeviceGuard())


@cache
def _register():
    """The rest on first use, not at import: torch.distributed takes an accelerator that has a name for the one to use, and
    the tests' two processes are forks of one that has imported everything."""
    module = _DummyBackendModule()
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    torch.utils.rename_privateuse1_backend("pretend")
    torch.utils.generate_methods_for_privateuse1_backend()
    torch._register_device_module("pretend", module)
    _acc.register_python_privateuseone_hook(_DummyPrivateUse1Hook())


class OnDevice(torch.Tensor):
    """`raw`: the values, on the CPU."""

    @staticmethod
    def __new__(cls, raw, requires_grad=False):
        made = torch.Tensor._make_wrapper_subclass(
            cls, raw.size(), strides=raw.stride(), storage_offset=raw.storage_offset(), dtype=raw.dtype, layout=raw.layout,
            device=torch.device("pretend:0"), requires_grad=requires_grad)
        made.raw = raw
        return made

    def __repr__(self, *args, **kwargs):
        return f"OnDevice({self.raw})"

    def tolist(self):
        if _now is not None:
            _now.waits_for("tolist")
        return self.raw.tolist()

    def untyped_storage(self):
        return self.raw.untyped_storage()  # safetensors tells by it which names share a tensor

    def data_ptr(self):
        return self.raw.data_ptr()

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            made = self.detach().clone().requires_grad_(self.requires_grad)
            memo[id(self)] = torch.nn.Parameter(made, self.requires_grad) if isinstance(self, torch.nn.Parameter) else made
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return self.raw.__reduce_ex__(protocol)  # a file holds the values

    def __tensor_flatten__(self):
        return ["raw"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return OnDevice(inner["raw"])

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


class _Mode(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls):
        return False  # nothing is compiled here: its guard around each operation costs as much as the operation

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


class _Factories(TorchFunctionMode):
    """torch.tensor and its like build their values in C++, where no dispatch mode is asked: build on the CPU, then move."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.new_tensor:
            made = torch.tensor(*args[1:], **{"dtype": args[0].dtype, **kwargs, "device": "cpu"})
            return made.to(kwargs.get("device", args[0].device))
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") is not None:
            device = kwargs.pop("device")
            return func(*args, **kwargs).to(device)
        return func(*args, **kwargs)


def _leaves(tree, kept):
    """All tensors of a tree of lists, tuples and dicts, and nothing else."""
    if isinstance(tree, torch.Tensor):
        kept.append(tree)
    elif isinstance(tree, list | tuple):
        for each in tree:
            _leaves(each, kept)
    return kept


def _mapped(tree, change):
    """The tree with its tensors changed: pytree's tree_map, at a tenth of its time."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, list | tuple):
        return type(tree)(_mapped(each, change) for each in tree)
    return tree


def _raw(x):
    return x.raw if isinstance(x, OnDevice) else x


@cache
def _aliases(func):
    """Whether an operation's results are views of what it was handed."""
    return any(each.alias_info is not None for each in func._schema.returns)


def _refuse(func, here, wrong):
    shapes = [tuple(x.shape) for x in here], [tuple(x.shape) for x in wrong]
    both = f"found pretend:0 and cpu (shapes {shapes[0]} and {shapes[1]})"
    raise RuntimeError(f"{func}: Expected all tensors to be on the same device, but {both}")


@cache
def _kind(func):
    """(a copy between devices, it indexes, it takes numbers of the CPU, it waits, its name)"""
    scalars = torch.Tag.pointwise in func.tags or func in SCALARS or "_foreach" in str(func)
    return func in COPIES, func in INDEXED | PUT, scalars, func in WAITS, str(func)


def _check(func, args, kwargs, here, away):
    """RuntimeError where CUDA would have one; notes where it would wait."""
    copies, indexes, scalars, waits, name = _kind(func)
    if kwargs.get("generator") is not None:
        raise RuntimeError(f"{name}: Expected a 'pretend' device type for generator but found 'cpu'")
    if copies:
        return
    if func._schema.is_mutable and args and isinstance(args[0], torch.Tensor) and not isinstance(args[0], OnDevice):
        _refuse(func, here, [args[0]])
    if indexes:
        _check_indexed(func, args, here)
    elif away and (wrong := [x for x in away if x.dim() > 0 or not scalars]):
        _refuse(func, here, wrong)
    if waits and here and _now is not None:
        _now.waits_for(name)


def _check_indexed(func, args, here):
    if not isinstance(args[0], OnDevice):
        raise RuntimeError(f"{func}: indices should be either on cpu or on the same device as the indexed tensor (cpu)")
    values = args[2:3] if func in PUT else ()
    if wrong := [x for x in values if not isinstance(x, OnDevice) and x.dim() > 0]:
        _refuse(func, here, wrong)
    indices = [x for x in args[1] if isinstance(x, torch.Tensor)]
    if _now is not None and any(x.dtype in (torch.bool, torch.uint8) for x in indices):
        _now.waits_for(f"{func} by a mask")


def _run(func, args, kwargs):
    flat = _leaves([args, *kwargs.values()], [])
    here = [x for x in flat if isinstance(x, OnDevice)]
    away = [x for x in flat if isinstance(x, torch.Tensor) and not isinstance(x, OnDevice)]
    wanted = kwargs.get("device")
    to_device = wanted is not None and torch.device(wanted).type == "pretend"
    if not here and not to_device:
        return func(*args, **kwargs)
    _check(func, args, kwargs, here, away)
    inner = dict(kwargs)
    if to_device:
        inner["device"] = torch.device("cpu")
        inner.pop("pin_memory", None)
    out = func(*_mapped(args, _raw), **{name: _mapped(each, _raw) for name, each in inner.items()})
    if func is aten._local_scalar_dense.default:
        return out
    if func is aten.copy_.default:
        if not isinstance(args[0], OnDevice) and _now is not None:
            _now.waits_for("copy to the CPU")
        return args[0]
    if here and wanted is not None and not to_device:
        if _now is not None:
            _now.waits_for("copy to the CPU")
        return out
    known = {id(x.raw): x for x in here}

    def wrap(x):
        return known[id(x)] if id(x) in known else OnDevice(x)

    wrapped = _mapped(out, wrap)
    if func._schema.is_mutable or not here or not _aliases(func):
        return wrapped
    return return_and_correct_aliasing(func, args, kwargs, wrapped)


@contextlib.contextmanager
def pretend_device():
    """A `Pretended`, whose device there is as long as this lasts."""
    global _now
    _register()
    _now, inference_mode = Pretended(), torch.inference_mode
    torch.inference_mode = torch.no_grad  # tensors of inference cannot be wrapped
    try:
        with _Mode(), _Factories():
            yield _now
    finally:
        _now, torch.inference_mode = None, inference_mode
