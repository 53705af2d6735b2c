"""A fitted chain on disk: post.json (what it is) and post.safetensors (what fitting found)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.encoders.post.chain import Chain
from stsbench.errors import EncoderError, StsbenchError
from stsbench.parsing import read_json

SETTINGS, TENSORS = "post.json", "post.safetensors"
TYPE = "stsbench.encoders.post.module.PostProcessing"  # the module of sentence-transformers that reads them, in modules.json


def write_post(folder: Path, chain: Chain, fitted_on: str) -> None:
    """Write both files into `folder`. The arrays keep their types; those of step I, from 0, are called I.NAME."""
    from safetensors.numpy import save_file

    states = [step.state() for step in chain.steps]
    arrays = {  # contiguous: safetensors writes an array's memory, in whatever order that is
        f"{index}.{name}": np.ascontiguousarray(array) for index, state in enumerate(states) for name, array in state.items()
    }
    save_file(arrays, folder / TENSORS)
    settings = {"format": 1, "post": chain.spelled(), "fitted_on": fitted_on, "digest": chain.digest()}
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", "utf-8")


def read_post(folder: Path) -> tuple[Chain, str]:
    """The fitted chain and what it was fitted on. EncoderError, one line: a file is missing, broken or another one's."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        stored: Mapping[str, Any] = read_json(folder / SETTINGS, EncoderError)
        if stored["format"] != 1:
            raise EncoderError(f"{folder / SETTINGS} was written by a newer stsbench (format {stored['format']}): update it")
        chain = Chain.parse(stored["post"])
        arrays = load_file(folder / TENSORS)
        for index, step in enumerate(chain.steps):
            start = f"{index}."
            step.restore({name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)})
        digest, fitted_on = stored["digest"], str(stored["fitted_on"])
        same = chain.digest() == digest
    except EncoderError:
        raise
    except (StsbenchError, SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise EncoderError(f"{folder}: cannot read its post-processing: {reason}") from error
    if not same:
        raise EncoderError(f"{folder / TENSORS} is not the file that {SETTINGS} was written with (its digest differs)")
    return chain, fitted_on
