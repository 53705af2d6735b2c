"""A program that has switched on in torch whatever it can, and goes on to, while something else computes."""

import threading
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from accelerate.state import GradientState
from torch.overrides import TorchFunctionMode

from stsbench.training import TrainingCallback


class Shifted(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        value = func(*args, **(kwargs or {}))
        return value + 1e-3 if getattr(func, "__name__", "") == "linear" else value


def switch():
    """What is set for the whole process, and cannot be entered and left."""
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    torch.use_deterministic_algorithms(True)
    torch.set_flush_denormal(True)
    torch.manual_seed(5)
    np.random.seed(5)
    np.seterr(all="raise")


def switch_back():
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(False)
    torch.set_flush_denormal(False)
    depth = torch.autocast_increment_nesting()
    while depth > 0:  # autocast that was left open: a foreign trainer's rounded weights would stay until its outermost exit
        depth = torch.autocast_decrement_nesting()
    torch.clear_autocast_cache()
    np.seterr(divide="warn", over="warn", under="ignore", invalid="warn")


_LEFT_OPEN = []  # an inference mode that is freed puts back what torch's dispatch was when it was entered, autocast included


def around():
    return [torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode(), torch.device("meta")]


class Meddling(TrainingCallback):
    """Draws, encodes, seeds, switches, and leaves everything open."""

    def __init__(self, encoder):
        self.encoder = encoder

    def doing(self, step, what=""):
        torch.rand(3)
        self.encoder.encode(["a cat", "a dog"])
        switch()
        torch.set_grad_enabled(False)
        torch.set_num_threads(2)
        for context in (*around(), Shifted()):
            context.__enter__()
            _LEFT_OPEN.append(context)


@contextmanager
def disturbed(encoder):
    """Within, all of it is on, and a thread draws and seeds; gives a callback that does the same."""
    stop = threading.Event()

    def draw():
        while not stop.wait(0.0005):
            torch.manual_seed(3)
            torch.rand(3)

    thread, seeded = threading.Thread(target=draw), torch.get_rng_state()
    thread.start()
    GradientState().sync_gradients = False  # a trainer of the program's is between two steps
    try:
        with ExitStack() as entered:
            for context in around():
                entered.enter_context(context)
            switch()
            yield Meddling(encoder)
            assert torch.get_default_dtype() == torch.float64 and torch.is_inference_mode_enabled()
            assert torch.get_float32_matmul_precision() == "medium" and torch.get_default_device().type == "meta"
    finally:
        stop.set()
        thread.join()
        switch_back()
        GradientState._reset_state()
        torch.set_rng_state(seeded)
