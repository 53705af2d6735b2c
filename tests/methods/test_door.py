"""stsbench.methods: every method by its paper's name, which is its options."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError
from shipped_recipes import METHODS

import stsbench
from stsbench import methods
from stsbench.errors import StsbenchError
from stsbench.training.api.options import Options
from stsbench.training.recipes.methods import find_method, load_method, method_name, options_class

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted(path.parent.name for path in (ROOT / "methods").glob("*/method.py"))


def test_the_names_are_those_of_all_methods():
    classes = {find_method(name).attribute for name in METHODS}
    assert len(METHODS) == len(FOLDERS) == 24
    assert {*methods.__all__} == classes == {name for name in dir(methods) if not name.startswith("_")}
    assert stsbench.methods is methods and "methods" in dir(stsbench)
    with pytest.raises(AttributeError, match=r"^module 'stsbench\.methods' has no attribute 'SimCES'$"):
        _ = methods.SimCES


def test_an_editor_sees_the_same_names():
    block = re.search(r"^if TYPE_CHECKING:.*?\n\n", Path(methods.__file__).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert sorted(re.findall(r" import \w+ as (\w+)", block[0])) == sorted(methods.__all__)


@pytest.mark.parametrize("method", METHODS)
def test_a_paper_s_name_is_the_class_of_its_options(method):
    kind = getattr(methods, find_method(method).attribute)
    assert kind is options_class(method) is load_method(method).Options
    assert method_name(kind.model_construct()) == method  # unchecked: teachers have no default
    with pytest.raises(ValidationError):
        kind(no_such_option=1)


def test_options_of_no_method_are_refused():
    class Others(Options):
        pass

    class SimCSEOptions(methods.SimCSE):
        pass

    with pytest.raises(StsbenchError, match=r"^Others of .*test_door is not the options of an installed method: name the"):
        method_name(Others())
    SimCSEOptions.__module__ = methods.SimCSE.__module__
    with pytest.raises(StsbenchError, match=r"^SimCSEOptions of stsbench\.methods\.simcse\.options is not the options of"):
        method_name(SimCSEOptions())


def test_names_and_options_need_no_torch_and_losses_no_model_code():
    code = (
        "import sys, stsbench\n"
        "from stsbench.training.recipes.methods import method_name\n"
        "print(len({method_name(getattr(stsbench.methods, name).model_construct()) for name in stsbench.methods.__all__}))\n"
        "from stsbench import losses\n"
        "print('torch' in sys.modules); losses.simcse; losses.triplet\n"
        "print('torch' in sys.modules, 'transformers' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "24\nFalse\nTrue False\n", done.stderr
