"""Commands on folders from elsewhere, each in a fork of its own that tells what it did: which code it ran, what it read and
started outside, how long it took and how much memory."""

import contextlib
import os
import re
import resource
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import training_runs

MARKER = "RAN"  # code of a hostile folder writes a file of this name into the working folder
CODE = f'open("{MARKER}", "w").write("x")\nclass M:\n    pass\ndef call(texts):\n    return [[1.0]] * len(texts)\n'
OUTSIDE = "outside"  # beside the working folder: nothing there may be read
SECRET = f"../{OUTSIDE}/secret"
DEEP, HUGE = "[" * 100_000, 10**400
BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 14))
METHODS = ("m.py:M", "./m.py:M", "/proc/self/cwd/m.py:M", f"../{OUTSIDE}/m.py:M")
ASKED = {"git", "uname"}  # programs that provenance asks, whatever it measures
_STARTED = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "socket.connect")


@dataclass(frozen=True)
class Told:
    """How a command ended. lines: of stderr, the last being the error; ran: code it imported, compiled or started; read:
    files outside; seconds: of processor time in all its threads, which a busy machine does not stretch; mebibytes: memory
    beyond what it began with."""

    code: int
    out: str
    lines: tuple[str, ...]
    ran: tuple[str, ...]
    read: tuple[str, ...]
    seconds: float
    mebibytes: float


def told(words, folder, seconds=30):
    """`stsbench WORDS` in `folder`, killed after so many seconds by the clock: of one that waits for ever."""
    training_runs.serve()
    mine, theirs = training_runs._context.Pipe(duplex=False)
    out, err = folder.parent / "stdout", folder.parent / "stderr"
    child = training_runs._context.Process(target=_run, args=([*map(str, words)], folder, out, err, theirs, {**os.environ}))
    child.start()
    theirs.close()
    code, ran, read, taken, grown = None, ("killed",), (), seconds, 0.0
    with contextlib.suppress(EOFError):
        if mine.poll(seconds):
            code, ran, read, taken, grown = mine.recv()
    child.kill()
    child.join()
    lines = tuple(line for line in err.read_text("utf-8", "replace").splitlines() if line.strip())
    return Told(code, out.read_text("utf-8", "replace"), lines, ran, read, taken, grown)


def _run(words, folder, out, err, connection, environment):
    code, ran, read = 9, set(), set()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for path, stream in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    from stsbench.cli.main import main

    before, modules, began = _peak(), {*sys.modules}, time.process_time()
    watching = [True]
    sys.addaudithook(_hook(folder, ran, read, watching))
    sys.argv = ["stsbench", *words]
    try:
        main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
    watching.clear()
    sys.stdout.flush()
    sys.stderr.flush()
    new = [sys.modules[name] for name in {*sys.modules} - modules]
    ran |= {module.__file__ for module in new if str(getattr(module, "__file__", None)).startswith(str(folder))}
    ran |= {MARKER} if Path(folder, MARKER).exists() else set()
    used = time.process_time() - began
    connection.send((code, tuple(sorted(ran)), tuple(sorted(read)), used, (_peak() - before) / 1024))


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _hook(folder, ran, read, watching):
    inside, outside = str(folder), str(folder.parent / OUTSIDE)

    def hook(event, arguments):
        if not watching:
            return
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if path.startswith(outside):
                read.add(path)
        elif event == "compile" and isinstance(arguments[1], str) and arguments[1].startswith(inside):
            ran.add(arguments[1])
        elif event in _STARTED or (event == "subprocess.Popen" and Path(str(arguments[0])).name not in ASKED):
            ran.add(f"{event} {arguments[:2]!r:.200}")
        elif event == "pickle.find_class" and arguments[0] in ("os", "posix", "nt", "subprocess", "builtins"):
            ran.add(f"{event} {arguments!r}")

    return hook


class Evil:
    def __reduce__(self):
        return os.system, (f"touch {MARKER}",)


def spoils(change):
    """Turn change(folder, ...) into a function of the rest, which gives a function of the folder."""
    return lambda *words, **values: lambda folder: change(folder, *words, **values)


@spoils
def written(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@spoils
def several(folder, *changes):
    for change in changes:
        change(folder)


def assign(stored, values):
    """Set values of nested mappings; __ for a step inside."""
    for key, value in values.items():
        *way, last = key.split("__")
        inner = stored
        for part in way:
            inner[part] = inner = inner.get(part) or {}
        inner[last] = value


def forbidden(folder):
    """A folder beside the working folder that nobody may read."""
    outside = folder / OUTSIDE
    outside.mkdir()
    for name, text in (("secret.yaml", "seed: 1\n"), ("secret.txt", "word 1 2\nother 3 4\n"), ("m.py", CODE)):
        (outside / name).write_text(text, "utf-8")


def check(work, spoil, commands, line=None):
    """Spoil the folder; each command then runs nothing of it, reads nothing outside, and says what is wrong in one line.
    line: a regular expression of it, which makes a refusal of what may go well otherwise."""
    spoil(work)
    for words in commands:
        done = told(words.split(), work)
        assert (done.ran, done.read) == ((), ()), (words, done)
        assert done.seconds < 10 and done.mebibytes < 600, (words, done)
        assert done.code in ((0, 1, 2, 3) if line is None else (1,)), (words, done)
        assert not any("Traceback" in line for line in done.lines), (words, done)
        if done.code == 1:
            errors = [line for line in done.lines if line.startswith("stsbench: error: ")]
            assert errors == [done.lines[-1]] and "--debug" not in errors[0] and len(errors[0]) < 1500, (words, done)
            assert re.search(line or "", errors[0]), (words, done)
