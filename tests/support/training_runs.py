"""Trainings of tiny models in processes of their own, which may be killed at an exact moment: forks of one that has
imported, computed and used once what each needs."""

import functools
import gc
import itertools
import json
import multiprocessing
import os
import signal
import tempfile
import traceback
from contextlib import suppress
from importlib import import_module
from multiprocessing import connection, forkserver, util
from pathlib import Path
from types import SimpleNamespace

import models_once
import pytest
import tiny_models
import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import imports, memory
from safetensors.torch import load_file
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

import stsbench
from stsbench import registry
from stsbench.encoders.forward.checkpoint import load_model
from stsbench.errors import StsbenchError
from stsbench.evaluation import api, provenance
from stsbench.training.engine import checkpoint, loop, selection

for name in (
    "stsbench.training.runs.seed_runs", "stsbench.methods.simcse.method", "stsbench.encoders.cache.mteb",
    "transformers.models.bert.tokenization_bert", "transformers.models.encoder_decoder", "stsbench.cli.main",
    "stsbench.cli.messages"):
    import_module(name)
for name in ("torch.profiler._cupti_monitor", "torch.utils.serialization"):  # of newer torch: not in the oldest we allow
    with suppress(ModuleNotFoundError):
        import_module(name)
get_checkpoint_conversion_mapping("bert")  # builds the table of all architectures: half of what a tiny training takes


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tiny models on one thread: for them more are a hindrance."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="module")
def no_pinned_memory():
    """torch pins what a foreign trainer loads for any accelerator, the pretended one of other tests, too, which cannot."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.accelerator, "is_available", lambda: False)
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a tiny model of one layer, tiny/, sentences, text.txt, and a cache that the tests of the module have."""
    folder = tmp_path_factory.mktemp("place")
    tiny_models.build(folder / "tiny", pooler=False, layers=1)
    make_text(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STSBENCH_CACHE", str(folder / "cache"))
        yield folder


_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([])  # nothing more than what the fork has


@functools.cache
def serve():
    """Starts the server that forks the children, itself a fork of this process, which has imported everything.
    To be called before any training here: torch takes no gradient in the fork of a process that has taken one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(util, "spawnv_passfds", _fork)
        forkserver.ensure_running()


def _fork(path, arguments, kept):
    """In the place of starting a fresh Python: what that one would run, in a fork. Returns its process id."""
    if process := os.fork():
        return process
    try:
        bounds = [2, *sorted(kept), os.sysconf("SC_OPEN_MAX")]
        for low, high in itertools.pairwise(bounds):
            os.closerange(low + 1, high)
        if "forkserver" in arguments[-1]:  # and not the process that looks after what they share
            _patch()
            _rehearse()
            gc.collect()
        gc.freeze()
        exec(arguments[-1])  # ends by SystemExit
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(0)


def _patch():
    """As the fixtures of conftest do, in the server of the forks."""
    os.fsync = lambda stream: None
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a fork has none of its parent's threads
    provenance.git_revision = api.git_revision = functools.cache(provenance.git_revision)
    models_once.patch(pytest.MonkeyPatch())
    memory.gc = SimpleNamespace(collect=lambda: 0)
    imports._is_package_available = functools.cache(imports._is_package_available)
    for kind in (torch.cuda, torch.xpu, torch.mtia):
        kind.traceback = SimpleNamespace(format_stack=list)


def _rehearse():
    """A short training, so that no fork is the first to compile a pattern, wrap a step or read a file of this package.
    Without a gradient: torch takes none in the fork of a process that has taken one."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patches:
        place = Path(folder)
        patches.setenv("STSBENCH_CACHE", str(place / "cache"))
        patches.setattr(Accelerator, "backward", _no_gradient)
        (place / "text.txt").write_text("\n".join(tiny_models.sentences(20, longest=9)) + "\n", "utf-8")
        model = tiny_models.build(place / "tiny", pooler=False)
        load_model(model, "tiny", "float32", 0.1)  # the training reads it for the second time: forks have copies
        values = {
            "backbone.model": str(model), "backbone.dropout": 0.1, "data.file": str(place / "text.txt"),
            "training.batch_size": 10, "training.epochs": 1, "selection.by": "sts-b dev", "selection.every": 1,
            "checkpoint_every": 1, "precision": "float32"}
        stsbench.train("simcse", output=place / "run", settings=values, device="cpu", sample=True)
        how = {"sample": True, "tasks": ["STS-B"], "resamples": 0, "device": "cpu", "offline": True}
        stsbench.evaluate(str(model), output=place / "eval", pooler="mean", **how)
    for group in ("encoders", "post", "protocols", "methods"):
        registry.names(f"stsbench.{group}")
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def _no_gradient(accelerator, loss, **options):
    for model in accelerator._models:
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)


def make_text(folder, count=60):
    path = folder / "text.txt"
    path.write_text("\n".join(tiny_models.sentences(count, longest=9)) + "\n", "utf-8")
    return path


def settings(model, text, **more):
    """Values of a small run: 12 steps, a checkpoint every 3. max_length: of its own texts, which are short, nothing is cut;
    of the sample's, most of whose words it reads letter by letter, the beginnings score it."""
    return {
        "backbone.model": str(model), "backbone.dropout": 0.1, "backbone.max_length": 16, "data.file": str(text),
        "training.batch_size": 10, "training.epochs": 2, "training.learning_rate": 1e-3, "selection.by": "sts-b dev",
        "selection.every": 4, "checkpoint_every": 3, "precision": "float32", **more}


def train(folder, values, *, method="simcse", recipe=None, seeds=None, kill=None, cache=None, **options):
    """Train in a child process; (exit code, error line or None). kill: (name of a moment, how often it comes first), and
    the signal, SIGKILL where none is named."""
    return _finished(_started(folder, values, method, recipe, seeds, kill, cache, options))


def train_ranks(folder, values, *, method="simcse", recipe=None, seeds=None, kill=None, cache=None, **options):
    """The same in two processes that share the work; [(exit code, error line or None)]. kill: one of them, by its rank.
    They find what torchrun would tell them."""
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port),
              "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    children = [_started(folder, values, method, recipe, seeds, (kill or {}).get(rank), cache, options,
                         {**shared, "RANK": rank, "LOCAL_RANK": rank}) for rank in "01"]
    processes = [child for child, _ in children]
    while running := [child for child in processes if child.exitcode is None]:
        late = not connection.wait([child.sentinel for child in running], 600)
        if late or (not kill and any(child.exitcode for child in processes)):  # the other one would wait for it
            for child in running:
                child.kill()
                child.join()
    return [_finished(child) for child in children]


def undisturbed(place, values, method, name="whole", **options):
    """(a run in this process, its values, its cache), all in `place`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STSBENCH_CACHE", str(place / "cache"))
        stsbench.train(method, output=place / name, settings=values, device="cpu", sample=True, **options)
    return place / name, values, place / "cache"


def spawn(worker, *arguments):
    """worker(rank, *arguments) in two processes, which need not import everything again. Workers end by `leave`."""
    serve()
    torch.multiprocessing.start_processes(worker, arguments, nprocs=2, start_method="forkserver")


def forked(target, *arguments):
    """target(*arguments) in a process of its own, which need not import everything again."""
    serve()
    process = _context.Process(target=target, args=arguments)
    process.start()
    return process


def leave():
    """The end of a worker of `spawn`, instead of a return: nothing of torch.distributed is taken apart.
    A gloo thread that wants the interpreter's lock and the main thread that holds it, and destroys the process group, can
    wait for each other forever (torch 2.13)."""
    torch.distributed.barrier()
    os._exit(0)


def _started(folder, values, method, recipe, seeds, kill, cache, options, environment=None):
    rank = (environment or {}).get("RANK", "")
    told = folder.with_name(f"{folder.name}.error{rank}")
    environment = {"STSBENCH_CACHE": str(cache or folder.parent / "cache"), **(environment or {})}
    return forked(_child, folder, values, method, recipe, seeds, kill, environment, told, options), told


def _finished(started):
    child, told = started
    child.join()
    said = told.read_text("utf-8") if told.exists() else None
    told.unlink(missing_ok=True)
    return child.exitcode, said


def _child(folder, values, method, recipe, seeds, kill, environment, told, options):
    gc.freeze()  # a run looks for garbage, and would do so among all that has been imported
    os.environ.update(environment)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what is started in the background
    if kill:
        _arm(*kill)
    try:
        options = {"sample": True, **options}
        stsbench.train(method, output=folder, recipe=recipe, settings=values, seeds=seeds, device="cpu", **options)
    except StsbenchError as error:
        told.write_text(str(error), "utf-8")
        os._exit(1)
    except BaseException:
        told.write_text(traceback.format_exc(), "utf-8")
        os._exit(9)


def _arm(moment, times, number=signal.SIGKILL):
    """A signal to this process when `moment` comes for the `times`-th time: nothing of ours runs any more after SIGKILL.
    The moment "poison" only makes a weight NaN."""
    places = {
        "update": (AcceleratedOptimizer, "step"), "scoring": (selection, "live_encoder"), "step": (loop.Loop, "_step"),
        "poison": (loop.Loop, "_step"), "dev": (loop.Loop, "_dev"),
        "checkpoint": (checkpoint, "_settle"),  # everything is written, nothing has its name yet
        "tidy": (checkpoint.Checkpoints, "_tidy"),  # the checkpoint has its name, the older ones are still there
    }
    place, name = places[moment]
    real, seen = getattr(place, name), []

    def deadly(*args, **kwargs):
        seen.append(1)
        if len(seen) == times and moment == "poison":
            with torch.no_grad():
                next(args[0].method.parameters())[:] = torch.nan
        elif len(seen) == times:
            os.kill(os.getpid(), number)
        return real(*args, **kwargs)

    setattr(place, name, deadly)


def log_of(folder):
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text("utf-8").splitlines()]
    return [{key: value for key, value in line.items() if key != "sentences_per_second"} for line in lines]


def weights_of(folder):
    newest = sorted((folder / "checkpoints").glob("[0-9]*"))[-1]
    # tensor by tensor: the file's header has no fixed order
    return {f"{path.name} {name}": weight.numpy().tobytes()
            for path in (newest, folder / "best") for name, weight in load_file(path / "model.safetensors").items()}
