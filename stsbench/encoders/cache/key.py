"""Under which key an encoder's vectors are kept: what the encoder is, and the libraries that compute with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version

from stsbench.encoders.base import Encoder


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """The installed versions of packages; "none" for one that is not installed."""
    return {name: _version(name) for name in libraries}


def cache_key(encoder: Encoder) -> str:
    """64 hex digits: the fingerprint, and with it the versions of `encoder.libraries`; another one is another key.

    Raises nothing. An encoder that names no library has its fingerprint for a key.
    """
    fingerprint = encoder.spec.fingerprint()
    if not encoder.libraries:
        return fingerprint
    about = json.dumps([fingerprint, versions(encoder.libraries)], sort_keys=True)
    return hashlib.sha256(about.encode()).hexdigest()


def changed(stored: Mapping[str, str]) -> list[str]:
    """The packages whose installed version is not the stored one, as "torch 2.12 -> 2.13"."""
    return [f"{name} {old} -> {new}" for name, old in stored.items() if (new := _version(name)) != old]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
