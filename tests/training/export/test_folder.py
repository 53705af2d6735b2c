"""A folder that appears whole or not at all: what killed processes leave of it is deleted by the next that writes there."""

import pytest

from stsbench.files import machine, new_folder


def hidden(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


@pytest.mark.parametrize("replace", [False, True])
def test_what_a_killed_process_left_is_deleted(tmp_path, replace):
    (tmp_path / f".model.dead.{machine()}.part").mkdir()
    (tmp_path / f".model-2.dead.{machine()}.part").mkdir()
    with new_folder(tmp_path / "model", replace) as building:
        assert len(hidden(tmp_path)) == 1
        (building / "file").write_text("x")
    assert hidden(tmp_path) == []
    assert (tmp_path / "model" / "file").read_text() == "x"


def test_what_others_are_building_stays(tmp_path):
    """A process that lives holds a lock; of another machine's nothing is known, nor of a model that gave way."""
    (tmp_path / ".model.one.elsewhere.part").mkdir()
    (tmp_path / f".model.one.{machine()}.old.part").mkdir()
    with new_folder(tmp_path / "model") as first:
        (first / "file").write_text("first")
        with pytest.raises(KeyError), new_folder(tmp_path / "model"):
            assert first.is_dir()
            raise KeyError
    assert (tmp_path / "model" / "file").read_text() == "first"
    assert len(hidden(tmp_path)) == 2
