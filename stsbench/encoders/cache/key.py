"""Under which key an encoder's vectors are kept: what the encoder is, and the code that computes with it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version

from stsbench.encoders.base import Encoder

# Raise it with every change that moves the vectors of any encoder: no vector from before is then read again.
# 2: texts beyond the length up to which BigBird and longrope models share batches; word files with a byte order mark.
# 3: what the calling program set in torch (autocast, TF32, ...) no longer acts; vectors made with it were kept as float32.
# 4: texts without padding for more families than BERT and RoBERTa: last digits.
# 5: frequencies of rotary positions stay float32 beside bfloat16 weights.
ENCODING = "5"
# Variables by which the libraries below torch round float32 products, whatever torch is told.
_ROUNDING = ("NVIDIA_TF32_OVERRIDE", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")

_ENCODING = "stsbench's encoding"


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """The installed versions of packages, "none" for one that is not installed; and the number of our own way to encode."""
    return {_ENCODING: ENCODING, **{name: _version(name) for name in libraries}}


def cache_key(encoder: Encoder) -> str:
    """64 hex digits of the fingerprint, the versions of `Traits.libraries`, ENCODING, what the environment says of
    rounding, and a pass that the user asked for: whoever doubts one is not answered with its vectors. Raises nothing."""
    rounding = {name: os.environ[name] for name in _ROUNDING if os.environ.get(name)}
    if encoder.traits.attention != "auto":
        rounding["attention"] = encoder.traits.attention
    about = json.dumps([encoder.spec.fingerprint(), versions(encoder.traits.libraries), *([rounding] if rounding else [])],
                       sort_keys=True)
    return hashlib.sha256(about.encode()).hexdigest()


def changed(stored: Mapping[str, str]) -> list[str]:
    """What `versions` says otherwise now, as "torch 2.12 -> 2.13"."""
    before = {_ENCODING: "1", **stored}  # the first number was not kept
    return [f"{name} {old} -> {new}" for name, old in before.items() if (new := _version(name)) != old]


def _version(name: str) -> str:
    if name == _ENCODING:
        return ENCODING
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
