"""What editors and type checkers see of all extensions that come with stsbench together. Nothing imports it at run time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stsbench.encoders.options import CoreArguments
from stsbench.evaluation.options import MeasureArguments
from stsbench.extensions.decoders.options import DecoderArguments
from stsbench.extensions.server.options import ServerArguments


class EncoderArguments(CoreArguments, DecoderArguments, ServerArguments, total=False):
    """Options of an encoder, as arguments of a function."""


class ComputeArguments(EncoderArguments, total=False):
    """The same, and in which processes it computes."""

    devices: str | None
    processes: int | None
    ray: str | None


class EvaluateArguments(ComputeArguments, MeasureArguments, total=False):
    """Options of `evaluate`, as its arguments."""

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
