"""Encoders made of another one: what is known of that one is behind each of them, also what nobody has thought of yet."""

from importlib import import_module
from pathlib import Path

import pytest
from known_encoder import Known, check_known

from stsbench.encoders.base import Wrapper
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.encoders.roles import TextTask

ROOT = Path(__file__).resolve().parents[2] / "stsbench"
MADE = {PostProcessed: lambda base: PostProcessed(base, Chain.parse("standardise"))}


def wrappers(kind=Wrapper):
    return {kind for below in kind.__subclasses__() for kind in ({below} | wrappers(below))}


def test_every_wrapper_of_the_core_is_tried():
    for path in ROOT.rglob("*.py"):
        if "wrapper import" in path.read_text("utf-8") and "extensions" not in path.parts:
            import_module(".".join(("stsbench", *path.relative_to(ROOT).with_suffix("").parts)))
    assert {kind for kind in wrappers() if kind.__module__.startswith("stsbench.") and "extensions" not in kind.__module__} \
        == set(MADE)


@pytest.mark.parametrize("kind", MADE, ids=lambda kind: kind.__name__)
def test_whatever_is_known_of_the_base_is_behind_a_wrapper(kind):
    for read in (lambda made: made, lambda made: made.for_role("query"), lambda made: made.with_prompt("x: "),
                 lambda made: made.for_task(TextTask("T", "STS")), lambda made: made.with_prompt("x: ").for_role("query")):
        base = Known()
        made = read(MADE[kind](base))
        assert isinstance(made, kind) and made.spec.prefix == read(base).spec.prefix
        check_known(made, base)


def test_what_is_known_stands_in_the_traits():
    with pytest.raises(TypeError, match=r"Stray.libraries would have no effect: write traits = Traits\(libraries=\.\.\.\)"):
        class Stray(Known):
            libraries = ("numpy",)
