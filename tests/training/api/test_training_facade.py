"""What the training packages name at their door."""

from __future__ import annotations

import light_process
import pytest

import stsbench.training
import stsbench.training.api


@pytest.mark.parametrize("room", [stsbench.training, stsbench.training.api])
def test_every_public_name_loads_and_no_other(room):
    for name in room.__all__:
        value = getattr(room, name)
        assert not hasattr(value, "__path__") and type(value).__name__ != "module", name
    with pytest.raises(AttributeError, match="has no attribute 'Metod'"):
        room.Metod  # noqa: B018


def test_options_come_without_torch():
    code = "import sys; from stsbench.training.api import Options; assert 'torch' not in sys.modules"
    done = light_process.run(code)
    assert done.returncode == 0, done.stderr
