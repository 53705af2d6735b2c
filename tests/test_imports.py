"""The layers import to the left only: metrics, data, encoders, evaluation, command line; and stay quick to load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Anyone may import these; among themselves they may import one another.
BASE = {"errors", "latex", "files", "registry", "records", "provenance", "settings"}
LAYERS = {
    "metrics": 0, "probes": 0, "data": 1, "objectives": 1, "encoders": 2, "modules": 2, "config": 2,
    "training": 3, "protocol": 3, "evaluation": 3, "api": 3, "plan": 3, "plots": 3,
    "comparability": 3, "forms": 3, "compare": 3, "model_card": 3, "model_index": 3, "export": 3, "cli": 4,
}  # fmt: skip
OUTSIDE = {"protocols", "methods", "leaderboard"}


def arrows():
    """(importing module, imported module), both dotted below stsbench, for every import of stsbench's own modules."""
    folders = [(ROOT / "stsbench", ()), *((ROOT / name, (name,)) for name in OUTSIDE)]
    for folder, package in folders:
        for path in sorted(folder.rglob("*.py")):
            own = (*package, *path.relative_to(folder).with_suffix("").parts)
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    targets = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    assert not node.level, f"{path}:{node.lineno}: relative import"
                    # `from stsbench.data import fetch` may name a module or an object: both spellings are arrows.
                    targets = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
                else:
                    continue
                for target in targets:
                    if target.startswith("stsbench."):
                        yield own, tuple(target.split(".")[1:]), f"{path.relative_to(ROOT)}:{node.lineno}: {target}"


def wrong(own, target):
    """Why this arrow may not be, or None."""
    here, there = own[0], target[0]
    if here in OUTSIDE:
        if there == here == "protocols" and own[1] != "__init__":
            return "a protocol imports another protocol" if target[1:] and target[1] != own[1] else None
        return "a protocol imports the command line" if there == "cli" else None
    if there in OUTSIDE:
        return f"the core imports {there}: it is reached through entry points"
    if here in BASE and there in LAYERS:
        return f"{here} imports {there}"
    if here in LAYERS and there in LAYERS and LAYERS[there] > LAYERS[here]:
        return f"{here} imports {there}, which stands to its right"
    return None


def test_imports_point_to_the_left():
    found = list(arrows())
    assert len(found) > 80  # the walk sees something
    assert not [f"{where}: {why}" for own, target, where in found if (why := wrong(own, target))]


def test_every_module_has_a_layer():
    known = {*LAYERS, *BASE, "__init__", "__main__"}
    entries = (ROOT / "stsbench").iterdir()
    assert {path.stem for path in entries if path.suffix == ".py" or (path / "__init__.py").is_file()} <= known


@pytest.mark.parametrize(
    ("own", "target"),
    [
        (("metrics", "x"), ("data", "sets")), (("data", "x"), ("encoders", "base")), (("encoders", "x"), ("evaluation",)),
        (("api",), ("cli", "main")), (("plan",), ("protocols", "sts")), (("records",), ("encoders", "base")),
        (("protocols", "sts"), ("protocols", "other")), (("evaluation",), ("leaderboard",)),
    ],
)  # fmt: skip
def test_the_check_itself_fails_on_a_wrong_arrow(own, target):
    assert wrong(own, target)


HEAVY = ("torch", "transformers", "sentence_transformers", "numpy", "scipy", "sklearn", "pydantic", "huggingface_hub")


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_help_loads_nothing_heavy(words):
    code = (
        f"import sys; sys.argv = ['stsbench', *{words!r}]\n"
        "from stsbench.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        f"print('loaded:', sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.endswith("loaded: []\n"), done.stdout + done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["eval", "--help"], ["score", "--help"], ["list", "protocols"], ["list", "encoders"], ["list", "methods"],
        ["list", "recipes"], ["show", "method", "simcse"], ["show", "recipe", "simcse/unsup-bert-base"],
    ],
)  # fmt: skip
def test_help_of_commands_loads_no_torch(words):
    code = (
        f"import sys; sys.argv = ['stsbench', *{words!r}]\n"
        "from stsbench.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "assert not {'torch', 'transformers', 'sklearn'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
