"""Measuring encoders: what a protocol is, which ones run, and the records that they leave.

A protocol is written against `Protocol`, `Observations` with `Array` and `Names`, `Metric`, `Settings` with `setting`,
`ScoreRow` and `ScoreError` (docs/how-to/adding-a-protocol.md). A program measures with `evaluate` and reads back with
`load_records`. The names load on first use, so that `stsbench eval --help` is there at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stsbench.errors import ScoreError
    from stsbench.evaluation.api import evaluate
    from stsbench.evaluation.options import EvalOptions
    from stsbench.evaluation.protocol import Drawn, Observations, Protocol
    from stsbench.evaluation.records import Record, ScoreRow
    from stsbench.evaluation.result import Result
    from stsbench.evaluation.run_file import load_records
    from stsbench.evaluation.schema import (
        AnyOf,
        Array,
        Count,
        Factor,
        Fraction,
        Metric,
        Names,
        Settings,
        SomeOf,
        Text,
        Whole,
        setting,
    )

_PUBLIC = {
    "api": ("evaluate",), "result": ("Result",), "options": ("EvalOptions",),
    "protocol": ("Drawn", "Observations", "Protocol"), "records": ("Record", "ScoreRow"), "run_file": ("load_records",),
    "schema": ("AnyOf", "Array", "Count", "Factor", "Fraction", "Metric", "Names", "Settings", "SomeOf", "Text", "Whole",
               "setting"),
}
_MODULES = {name: f"stsbench.evaluation.{module}" for module, names in _PUBLIC.items() for name in names}
_MODULES["ScoreError"] = "stsbench.errors"
__all__ = [
    "AnyOf", "Array", "Count", "Drawn", "EvalOptions", "Factor", "Fraction", "Metric", "Names", "Observations", "Protocol",
    "Record", "Result", "ScoreError", "ScoreRow", "Settings", "SomeOf", "Text", "Whole", "evaluate", "load_records",
    "setting",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'stsbench.evaluation' has no attribute '{name}'")
