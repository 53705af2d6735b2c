"""The command line where only what a board needs is installed."""

import json
import sys

# What a machine that only builds a board need not have; an import of any of them fails.
HEAVY = ("torch", "transformers", "mteb", "sklearn", "matplotlib", "sentence_transformers", "datasets", "huggingface_hub")
BARRED = f"""
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
    """The command line in a process of its own, without the heavy packages."""
    return [sys.executable, "-c", BARRED, json.dumps(commands)]
