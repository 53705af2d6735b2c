"""The public nouns of the rooms: each name that a package lists is there, and what is heavy loads on first use."""

import importlib

import light_process
import pytest

ROOMS = ("stsbench.evaluation", "stsbench.protocols")


@pytest.mark.parametrize("room", ROOMS)
def test_every_listed_name_is_there(room):
    package = importlib.import_module(room)
    assert package.__doc__
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing


def test_the_rooms_load_no_torch():
    heavy = {"torch", "sklearn", "huggingface_hub", "mteb"}
    code = f"import sys, {', '.join(ROOMS)}; print(sorted({heavy!r} & set(sys.modules)))"
    done = light_process.run(code)
    assert done.stdout == "[]\n", done.stdout + done.stderr
