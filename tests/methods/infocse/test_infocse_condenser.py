"""The head of a Condenser pre-training as the head's start: its file, and whatever may be wrong with that."""

import shutil

import promptbert_oracle
import pytest
import torch
from infocse_oracle import infocse

from stsbench.errors import StsbenchError


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("condenser")
    return {family: promptbert_oracle.build(place / family, family) for family in ("bert", "roberta")}


def stored(folder, layers=2, place=None):
    """A copy of the model with model.pt as Condenser's pre-training writes it, and the weights in it."""
    copy = place or folder.parent / f"{folder.name}-condenser-{layers}"
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    head = infocse(folder, head_layers=layers, seed=5).auxiliary.head.float().state_dict()
    torch.save({f"c_head.{name}": value for name, value in head.items()}, copy / "model.pt")
    return copy, head


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_layers_are_those_of_the_file(folders, family):
    folder, head = stored(folders[family])
    method, other = infocse(folder, head_init="condenser"), infocse(folder)
    loaded, random = (each.auxiliary.head.state_dict() for each in (method, other))
    assert loaded.keys() == head.keys() and all(torch.equal(loaded[name], value.double()) for name, value in head.items())
    assert not torch.equal(random["0.output.dense.weight"], loaded["0.output.dense.weight"])


class Planted:
    def __reduce__(self):
        return print, ("unpickled",)


@pytest.mark.parametrize(("content", "message"), [
    (None, "which is not there: let backbone.model be a folder of Condenser's pre-training, or set random"),
    (b"no archive", "which cannot be read as weights alone"),
    ({"c_head.0.weight": Planted()}, "which cannot be read as weights alone"),
    ([1, 2], "which holds no weights by name"),
    ({"other": torch.ones(2)}, "which holds 0: options.head_layers 2 must be as many"),
    ({"c_head.0.a": torch.ones(2), "c_head.1.a": torch.ones(2)}, "which do not fit the encoder: Error"),
    ({"c_head.0.a": 1, "c_head.1.a": 2}, "which do not fit the encoder"),
])
def test_a_file_that_holds_no_such_layers(folders, tmp_path, capsys, content, message):
    folder, _ = stored(folders["bert"], place=tmp_path / "model")
    (folder / "model.pt").unlink()
    if isinstance(content, bytes):
        (folder / "model.pt").write_bytes(content)
    elif content is not None:
        torch.save(content, folder / "model.pt")
    with pytest.raises(StsbenchError) as caught:
        infocse(folder, head_init="condenser")
    assert str(caught.value).startswith("options.head_init condenser reads the head's layers from ")
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert "unpickled" not in capsys.readouterr().out


def test_another_number_of_layers(folders):
    folder, _ = stored(folders["bert"], layers=3)
    with pytest.raises(StsbenchError, match=r"which holds 3: options\.head_layers 2 must be as many$"):
        infocse(folder, head_init="condenser")
    assert len(infocse(folder, head_init="condenser", head_layers=3).auxiliary.head) == 3
