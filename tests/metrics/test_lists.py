"""What the statistics document of arrays holds of lists: each example gives the same with lists."""

from __future__ import annotations

import doctest
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stsbench.metrics import aggregation, equivalence, paired, ranks, seeds, similarity


def with_arrays() -> list[Callable[..., Any]]:
    """The public functions of these modules whose example makes an array."""
    modules = (aggregation, equivalence, paired, ranks, seeds, similarity)
    return [function for module in modules for name, function in inspect.getmembers(module, inspect.isfunction)
            if function.__module__ == module.__name__ and name[0] != "_" and "np." in (function.__doc__ or "")]


def listed(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("function", with_arrays(), ids=lambda function: function.__name__)
def test_the_example_of_a_function_takes_lists(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    lists = []

    @functools.wraps(function)
    def called(*args: object, **kwargs: object) -> object:
        lists.extend([value for value in (*args, *kwargs.values()) if isinstance(value, np.ndarray)])
        return function(*map(listed, args), **{name: listed(value) for name, value in kwargs.items()})

    monkeypatch.setattr(importlib.import_module(function.__module__), function.__name__, called)
    [example] = doctest.DocTestFinder(recurse=False).find(function, function.__name__, globs={})
    said: list[str] = []
    failures = doctest.DocTestRunner().run(example, out=said.append).failed
    assert lists and not failures, "".join(said)
