"""Separate random generators for all that torch draws: dropout, new weights, samples.

A training that draws from the process's generators gets other weights if a callback, another thread or another training
draws from them, too. Within `drawing(generators)` this thread draws from `generators`, and the process's generators are not
advanced. With equal seeds both give the same numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode

from stsbench.errors import StsbenchError

# Python functions that a mode sees as a single call, and whose inner operations, with other names, draw.
_COMPOSED = {
    "dropout1d", "dropout2d", "dropout3d", "gumbel_softmax", "kaiming_uniform_", "kaiming_normal_", "lobpcg",
    "multi_head_attention_forward", "pca_lowrank", "svd_lowrank", "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices", "fractional_max_pool3d", "fractional_max_pool3d_with_indices",
}
_MADE_OF_OTHERS = torch._C.DispatchKey.CompositeImplicitAutograd
_lent = Lock()  # held while one of the process's generators has the state of one of ours


class Generators:
    """A random generator for each device, created at its first draw."""

    def __init__(self, seed: int | None) -> None:
        """Set the seed of all devices, as torch.manual_seed does; None: start from the process's generators."""
        self.seed(seed)

    def seed(self, seed: int | None) -> None:
        """Restart all generators with this seed."""
        self._seed, self._made = seed, dict[torch.device, torch.Generator]()

    def generator(self, device: torch.device) -> torch.Generator:
        """Return the generator of a device."""
        if device.type == "cpu":
            device = torch.device("cpu")  # accelerate calls the CPU of several processes cpu:0
        elif device.index is None:
            device = torch.device(device.type, torch.accelerator.current_device_index())
        if device not in self._made:
            try:
                generator = torch.Generator(device)
            except RuntimeError:  # a device that draws from the CPU's generator
                return self.generator(torch.device("cpu"))
            if self._seed is None:
                generator.set_state(_of_process(device).get_state())
            else:
                generator.manual_seed(self._seed)
            self._made[device] = generator
        return self._made[device]

    def copy(self) -> Generators:
        """Return a copy with the same states, which will draw the same numbers."""
        other = Generators(self._seed)
        for device, generator in self._made.items():
            other.generator(device).set_state(generator.get_state())
        return other

    def states(self, device: torch.device) -> dict[str, Tensor]:
        """Return the states of the generators of the CPU and of `device`, by the device's type."""
        return {one.type: self.generator(one).get_state() for one in (torch.device("cpu"), device)}

    def restore(self, states: Mapping[str, Tensor | None], device: torch.device) -> None:
        """Set the generators of the CPU and of `device` to states from `states`."""
        for one in (torch.device("cpu"), device):
            if (state := states.get(one.type)) is not None:
                self.generator(one).set_state(state)


@contextmanager
def drawing(generators: Generators) -> Iterator[Generators]:
    """Let this thread's torch draw from `generators` in the block. Blocks may be nested: the innermost counts.

    >>> with drawing(Generators(7)):
    ...     first = torch.rand(3)
    >>> bool((first == torch.rand(3, generator=torch.Generator().manual_seed(7))).all())
    True
    """
    mode = _mode()
    if mode is None:
        with _Draws(generators):
            yield generators
        return
    before, mode.generators = mode.generators, generators
    try:
        yield generators
    finally:
        mode.generators = before


def current() -> Generators | None:
    """Return the generators from which this thread draws; None: the process's."""
    mode = _mode()
    return None if mode is None else mode.generators


def seeded() -> AbstractContextManager[Generators]:
    """Draw in the block from the generators of an outer `drawing`, else from ones seeded with 0. For libraries that draw
    what is not used, such as weights that a checkpoint lacks: each call is the same, and the process's generators stay."""
    return drawing(current() or Generators(0))


def forked() -> AbstractContextManager[Generators]:
    """Draw in the block from copies of the current generators: afterwards the same numbers are drawn again."""
    generators = current()
    return drawing(Generators(None) if generators is None else generators.copy())


def checkpointed(run: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    """Return run(*inputs, **named) with gradient checkpointing: activations are computed again in the backward pass, with
    the same draws. torch.utils.checkpoint does so for draws from the process's generators only."""
    from torch.utils.checkpoint import checkpoint

    return checkpoint(
        run, *inputs, use_reentrant=False, preserve_rng_state=current() is None, context_fn=repeated, **named
    )


def repeated() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return two contexts for torch.utils.checkpoint (a context_fn): for the first pass, and for the pass that repeats it
    with the same draws."""
    generators = current()
    if generators is None:
        return nullcontext(), nullcontext()
    before = generators.copy()
    return _Block(lambda: _repeatable(generators)), _Block(lambda: _repeatable(before.copy()))


@contextmanager
def _repeatable(generators: Generators) -> Iterator[None]:
    with drawing(generators):
        mode = _mode()
        assert mode is not None
        before, mode.repeatable = mode.repeatable, True
        try:
            yield
        finally:
            mode.repeatable = before


class _Block(AbstractContextManager[None]):
    """A context that may be entered more than once, as a checkpointed pass is repeated for each backward pass."""

    def __init__(self, make: Callable[[], AbstractContextManager[None]]) -> None:
        self._make, self._entered = make, list[AbstractContextManager[None]]()

    def __enter__(self) -> None:
        self._entered.append(self._make())
        self._entered[-1].__enter__()

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)


class _Draws(TorchFunctionMode):
    """A mode that finds this thread's calls that draw, so that only these pay for inspecting each operation (`_Given`)."""

    def __init__(self, generators: Generators) -> None:
        super().__init__()
        self.generators, self.drawing = generators, _drawing_names()
        self.repeatable = False  # whether a pass that is computed again draws the same numbers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", None), kwargs or {}
        if name not in self.drawing or kwargs.get("training") is False or (
            name == "scaled_dot_product_attention" and not (args[4] if len(args) > 4 else kwargs.get("dropout_p"))
        ):
            return func(*args, **kwargs)
        hooked = torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
        if not self.repeatable and (hooked or not torch.is_grad_enabled()):  # as in torch.utils.checkpoint's first pass
            _check_repeated()
        with _Given(self.generators):
            return func(*args, **kwargs)


class _Given(TorchDispatchMode):
    """A mode that passes one of `generators` to each operation that draws."""

    def __init__(self, generators: Generators) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generators = generators

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        device = kwargs.get("device") or next((one.device for one in args if isinstance(one, Tensor)), torch.device("cpu"))
        if torch.Tag.nondeterministic_seeded not in func.tags or device.type == "meta":
            return func(*args, **kwargs)
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _MADE_OF_OTHERS):
            with self:  # in inference mode composite operations, such as dropout, are not split into those that draw
                return func._op_dk(_MADE_OF_OTHERS, *args, **kwargs)
        generator = self.generators.generator(torch.device(device))
        if generator.device.type == torch.device(device).type:
            func, at = _taking_a_generator(func)
        else:  # the device draws from the CPU's generator, and takes no other
            at = None
        if at is None and func is torch.ops.aten.native_dropout.default and device.type == "cuda" and args[2] is not False:
            dropped, kept = torch.ops.aten._fused_dropout(args[0], 1 - args[1], generator)  # the same kernel
            return dropped, kept.bool()
        if at is None:
            draw = partial(func, *args, **kwargs)
            return _lend(generator, torch.device(device), draw) if _draws(func, args, kwargs) else draw()
        if (args[at] if len(args) > at else kwargs.get("generator")) is None:
            args, kwargs["generator"] = args[:at], generator
        return func(*args, **kwargs)


@cache
def _drawing_names() -> frozenset[str]:
    """Return the names of torch's functions that draw: those that torch marks, and those composed of them."""
    drawing = set(_COMPOSED)
    for schema in torch._C._jit_get_all_schemas():
        library, _, name = schema.name.partition("::")
        operation = torch._C._get_operation_overload(schema.name, schema.overload_name) if library == "aten" else None
        if operation is not None and torch.Tag.nondeterministic_seeded in operation[2]:
            drawing.add(name)
    return frozenset(drawing)


def _draws(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether an operation that takes no generator draws: torch marks attention even without dropout."""
    if operation is torch.ops.aten._fused_sdp_choice.default:
        return False
    names = [name for name, _ in _arguments(operation)]
    at = names.index("dropout_p") if "dropout_p" in names else None
    return at is None or (args[at] if len(args) > at else kwargs.get("dropout_p", 0.0)) > 0


@cache
def _taking_a_generator(operation: Any) -> tuple[Any, int | None]:
    """Return the operation, or its overload with a generator, and the index of that argument; None if no overload takes
    a generator."""
    arguments = _arguments(operation)
    for overload in (operation, *(getattr(operation.overloadpacket, name) for name in operation.overloadpacket.overloads())):
        names = _arguments(overload)
        if ("generator", "Optional[Generator]") in names and [*filter(_foreign, names)] == [*filter(_foreign, arguments)]:
            return overload, names.index(("generator", "Optional[Generator]"))
    return operation, None


def _arguments(operation: Any) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in operation._schema.arguments]


def _foreign(argument: tuple[str, str]) -> bool:
    return argument[0] != "generator"


def _lend(generator: torch.Generator, device: torch.device, draw: Callable[[], Any]) -> Any:
    """Return draw(), which draws from the process's generator, with the state of `generator` lent to that generator in the
    meantime."""
    of_process = _of_process(device)
    with _lent:
        before = of_process.get_state()
        of_process.set_state(generator.get_state())
        try:
            return draw()
        finally:
            generator.set_state(of_process.get_state())
            of_process.set_state(before)


def _of_process(device: torch.device) -> torch.Generator:
    if device.type == "cpu":
        return torch.default_generator
    module = getattr(torch, device.type)
    if device.type != "mps" and not hasattr(module, "default_generators"):
        return torch.default_generator  # a device that draws from the CPU's generator
    if device.type == "mps":
        return module._get_default_mps_generator()  # type: ignore[no-any-return]
    module.init()  # creates the generators
    return module.default_generators[device.index or 0]  # type: ignore[no-any-return]


def _mode() -> _Draws | None:
    return next((mode for mode in reversed(_get_current_function_mode_stack()) if isinstance(mode, _Draws)), None)


def _check_repeated() -> None:
    """Raise StsbenchError within torch.utils.checkpoint, which restores only the process's generators: the pass that is
    computed again would draw other numbers, and give a wrong gradient."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            raise StsbenchError(
                "torch.utils.checkpoint would draw other dropout masks where it computes a pass again: use "
                "stsbench.torch_random.checkpointed, or give it context_fn=stsbench.torch_random.repeated"
            )
        frame = frame.f_back
