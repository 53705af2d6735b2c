"""The keyword arguments of all extensions together, for editors and type checkers. Not imported at run time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stsbench.encoders.options import CoreArguments
from stsbench.evaluation.options import MeasureArguments
from stsbench.extensions.decoders.options import DecoderArguments
from stsbench.extensions.server.options import ServerArguments


class EncoderArguments(CoreArguments, DecoderArguments, ServerArguments, total=False):
    """Options of an encoder as keyword arguments."""


class ComputeArguments(EncoderArguments, total=False):
    """Options of an encoder and of the processes that compute it, as keyword arguments."""

    devices: str | None
    processes: int | None
    ray: str | None


class EvaluateArguments(ComputeArguments, MeasureArguments, total=False):
    """Options of `evaluate` as keyword arguments."""

    protocols: str | Sequence[str]
    tasks: str | Sequence[str] | None
    output: str | Path | None
    fingerprint: str | None
    post: str | None
    fit_on: str | Path | None
    cost: bool
    sts: Any
    pairs: Any
    triplets: Any
    transfer: Any
    retrieval: Any
    robustness: Any
