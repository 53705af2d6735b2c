"""What makes the suite quick and repeatable: no search for garbage among all that is imported, no wait for the disk, no
numbers drawn for weights that are read from a file, no stack kept for a seed, nothing compiled or looked for twice, the
files of trainings and browsers first, and hypothesis' examples the same every time."""

import gc
import hashlib
import os
import re
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from functools import cache, wraps
from multiprocessing.util import Finalize
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings

from stsbench.evaluation import provenance

# Each of a hundred processes would compile again what it imports, and pytest rewrite every test file.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ.pop("COLUMNS", None)  # of readline, which pytest imports: what is printed has no width
os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"  # four threads for a tiny model's weights wait for one another
os.environ["TRANSFORMERS_VERBOSITY"] = "error"  # as `checkpoint.quiet` sets it for each model, which it then need not

settings.register_profile("repeatable", derandomize=True, deadline=None)  # the same examples, however busy the machine is
settings.load_profile("repeatable")


LARGE = 20_000_000  # bytes
ROOT = Path(__file__).resolve().parents[1]
TOOLS = {".pytest_cache", ".hypothesis", ".mypy_cache", ".ruff_cache", "build", "dist", "stsbench.egg-info", "runs"}


# Calls that start a training, a command, a process or a page in a browser: their seconds are most of the suite's.
STARTS = re.compile(r"\b(?:\w*train(?:ed|_ranks)?|spawn|run(?:_cell)?|exec|command|cli|told|Popen|visit|session)\(")


@cache
def starts(path: Path) -> int:
    return len(STARTS.findall(path.read_text("utf-8")))


def pytest_configure(config):
    """Each process of pytest-xdist takes the next file of the order below; its own order is by the number of tests.
    What a run writes among the temporary files goes with it, but for the folders of tests that failed."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False
    if not hasattr(config, "workerinput"):  # the others have it from this process
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="stsbench-tests-")
        # after what multiprocessing itself removes from it, whose priority is -100
        Finalize(None, shutil.rmtree, (tempfile.tempdir,), {"ignore_errors": True}, exitpriority=-200)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Hundreds of thousands of objects are imported that stay: to look for garbage among them takes a fifth of the time.
    mteb's 149 tasks each set a seed as they are imported, of which torch keeps the stack."""
    gc.disable()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(traceback, "format_stack", list)
            return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items):
    """A long file that came last would keep one process at work alone: each of a page's, method's or refusal's tests starts
    what its file names once."""
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: -starts(item.path) * tests[item.path])


def pytest_collection_finish():
    """Whatever looks for garbage does not look among all that the test files import, nor often: a twentieth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()
    if "training_runs" in sys.modules:
        sys.modules["training_runs"].serve()


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_in_the_checkout():
    """A test that forgets its own folder writes beside the code, and `git add` takes it in."""
    before = {path.name for path in ROOT.iterdir()}
    yield
    left = {path.name for path in ROOT.iterdir()} - before - TOOLS
    assert not left, f"left in the checkout: {', '.join(sorted(left))}"


def _where_held(draw):
    @wraps(draw)
    def drawn(tensor, *given, **named):
        return tensor if tensor.is_meta else draw(tensor, *given, **named)

    return drawn


def _large_ones_once(digest):
    known = {}

    def once(stream, name):
        about = os.fstat(stream.fileno())
        if about.st_size < LARGE:
            return digest(stream, name)
        key = (name, about.st_dev, about.st_ino, about.st_size, about.st_ctime_ns)  # no program sets the time of a change
        if key not in known:
            known[key] = digest(stream, name)
        return known[key]

    return once


@pytest.fixture(scope="session", autouse=True)
def nothing_is_done_twice_or_for_nothing():
    with pytest.MonkeyPatch.context() as patch:
        # A training syncs forty files, which matters after a power cut alone: what a killed process wrote is there without.
        patch.setattr(os, "fsync", lambda stream: None)
        # MiniLM's ninety megabytes, which nothing changes, take a tenth of a second whenever it is found or named.
        patch.setattr(hashlib, "file_digest", _large_ones_once(hashlib.file_digest))
        # Every record names the checkout's revision: git is asked once, and whoever edits files sees the same as CI.
        clean = cache(lambda asked=provenance.git_revision: (asked() or "").removesuffix("+changes") or None)
        patch.setattr(provenance, "git_revision", clean)
        patch.setattr("stsbench.evaluation.api.git_revision", clean)
        # A training ends by a search for garbage: a tenth of a second, once the tests before it have imported more and left
        # their models.
        if memory := sys.modules.get("accelerate.utils.memory"):
            patch.setattr(memory, "gc", SimpleNamespace(collect=lambda: 0))
        # from_pretrained makes a model on the device "meta", where every layer draws numbers that nothing holds.
        if init := sys.modules.get("torch.nn.init"):
            for name in ("normal_", "uniform_", "kaiming_uniform_"):
                patch.setattr(init, name, _where_held(getattr(init, name)))
        # The suite reads the same few tiny models thousands of times: seventeen milliseconds each, five for a copy.
        if "transformers.modeling_utils" in sys.modules:
            import models_once

            models_once.patch(patch)
        # accelerate looks for three optional packages in all of sys.path at each step of each training; the key of the cache
        # names the versions of four, a millisecond each; each SentenceTransformer asks who made two.
        for module, name in (("accelerate.utils.imports", "_is_package_available"),
                             ("stsbench.encoders.cache.encode", "version"),
                             ("sentence_transformers.util.environment", "check_package_availability")):
            if loaded := sys.modules.get(module):
                patch.setattr(loaded, name, cache(getattr(loaded, name)))
        # torch.manual_seed keeps the text of the stack for each kind of device not in use: nearly all of its millisecond.
        torch = sys.modules.get("torch")
        for kind in (torch.cuda, torch.xpu, torch.mtia) if torch else ():
            patch.setattr(kind, "traceback", SimpleNamespace(format_stack=list), raising=False)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny BERT, for tests that leave it as it is."""
    import tiny_models

    return tiny_models.build(tmp_path_factory.mktemp("folder") / "model")
