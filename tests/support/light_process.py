"""Code in a process that has loaded nothing but the light libraries, a fork of one that has imported those once: what it
loads beyond them can be looked up there. And the command line where only what a board needs is installed."""

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LIGHT = ("numpy", "scipy.stats", "pydantic", "yaml", "click", "json")
HEAVY = ("torch", "transformers", "tokenizers", "sentence_transformers", "sklearn", "mteb", "datasets", "matplotlib",
         "huggingface_hub")

_SERVER = f"""
import os, sys, {", ".join(LIGHT)}
assert not {({*HEAVY, "stsbench"})!r} & set(sys.modules)
for line in sys.stdin:
    asked = json.loads(line)
    if process := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
        continue
    for number, path in ((0, os.devnull), (1, asked["out"]), (2, asked["err"])):
        os.dup2(os.open(path, os.O_RDWR), number)
    sys.argv[1:] = asked["arguments"]
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    exec(asked["code"], {{"__name__": "__main__"}})
    break  # this fork ends as a script does: by its end, SystemExit or an error
"""


def run(code, *arguments):
    """As subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)."""
    server = _server()
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder, name) for name in ("out", "err")}
        for path in paths.values():
            path.touch()
        asked = {"code": code, "arguments": arguments, "environment": dict(os.environ), "folder": str(Path.cwd()),
                 **{name: str(path) for name, path in paths.items()}}
        print(json.dumps(asked), file=server.stdin, flush=True)
        status = int(server.stdout.readline())
        return subprocess.CompletedProcess([], status, *(path.read_text("utf-8") for path in paths.values()))


@functools.cache
def _server():
    """It ends when this process, which holds the other end of its pipe, does."""
    return subprocess.Popen([sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


# An import of any of the heavy packages fails.
_BARRED = f"""
import json, sys
class Barred:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY!r}:
            raise ImportError(f"{{name}} is barred")
sys.meta_path.insert(0, Barred())
from stsbench.cli.main import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["stsbench", *words]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, words
    sys.stdout.flush()
"""


def barred(*commands):
    """The words that run commands in a process of its own, without the heavy packages."""
    return [sys.executable, "-c", _BARRED, json.dumps(commands)]
