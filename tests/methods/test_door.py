"""stsbench.methods: every method by its paper's name, which is its options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError
from shipped_recipes import METHODS

import stsbench
from stsbench import methods
from stsbench.errors import StsbenchError
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


def test_a_paper_s_name_is_the_class_of_its_options():
    for method in METHODS:
        kind = getattr(methods, find_method(method).attribute)
        assert kind is options_class(method) is load_method(method).Options
        assert method_name(kind.model_construct()) == method  # unchecked: teachers have no default


def test_options_of_no_method_are_refused():
    class SimCSEOptions(methods.SimCSE):
        pass

    with pytest.raises(ValidationError):
        methods.SimCSE(no_such_option=1)
    SimCSEOptions.__module__ = methods.SimCSE.__module__
    with pytest.raises(StsbenchError, match=r"^SimCSEOptions of stsbench\.methods\.simcse\.options is not the options of"):
        method_name(SimCSEOptions())
