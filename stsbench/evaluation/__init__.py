"""Measuring encoders: what a protocol is, which ones run, and the records that they leave.

A protocol is written against `Protocol`, `Observations` with `Array` and `Names`, `Metric`, `Settings` with `setting`,
`ScoreRow` and `ScoreError` (docs/how-to/adding-a-protocol.md). A program measures with `evaluate` and reads back with
`load_records`.
"""

from stsbench.errors import ScoreError
from stsbench.evaluation.api import EvalOptions, evaluate
from stsbench.evaluation.measure import Result
from stsbench.evaluation.protocol import Drawn, Observations, Protocol
from stsbench.evaluation.records import Record, ScoreRow
from stsbench.evaluation.run_file import load_records
from stsbench.evaluation.schema import Array, Metric, Names
from stsbench.evaluation.settings import AnyOf, Count, Factor, Fraction, Settings, SomeOf, Text, Whole, setting

__all__ = [
    "AnyOf", "Array", "Count", "Drawn", "EvalOptions", "Factor", "Fraction", "Metric", "Names", "Observations", "Protocol",
    "Record", "Result", "ScoreError", "ScoreRow", "Settings", "SomeOf", "Text", "Whole", "evaluate", "load_records",
    "setting",
]
