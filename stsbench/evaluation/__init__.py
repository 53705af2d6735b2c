"""Evaluation of encoders: the classes that a protocol is written with, the run of an evaluation, and its records.

A protocol is written against `Protocol`, `Observations` with `Array` and `Names`, `Metric`, `Settings` with `setting`,
`ScoreRow` and `ScoreError` (docs/how-to/adding-a-protocol.md). A program measures with `evaluate` and reads back with
`load_records`. The names load on first use, so that `stsbench eval --help` is there at once.
"""

from typing import TYPE_CHECKING

from stsbench.registry import lazy_names

if TYPE_CHECKING:  # editors and mypy do not see names that are loaded lazily
    from stsbench.errors import ScoreError as ScoreError
    from stsbench.evaluation.api import evaluate as evaluate
    from stsbench.evaluation.options import EvalOptions as EvalOptions
    from stsbench.evaluation.protocol import *  # noqa: F403
    from stsbench.evaluation.records import *  # noqa: F403
    from stsbench.evaluation.result import Result as Result
    from stsbench.evaluation.run_file import load_records as load_records
    from stsbench.evaluation.schema import *  # noqa: F403

NAMES = {  # module -> its public names
    "api": ("evaluate",), "options": ("EvalOptions",), "result": ("Result",), "run_file": ("load_records",),
    "protocol": ("Drawn", "Observations", "Protocol"), "records": ("Record", "ScoreRow"),
    "schema": ("AnyOf", "Array", "Count", "Factor", "Fraction", "Metric", "Names", "Settings", "SomeOf", "Text", "Whole",
               "setting"),
    "stsbench.errors": ("ScoreError",),
}
__getattr__, __dir__, __all__ = lazy_names(__name__, NAMES)
