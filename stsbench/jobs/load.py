"""`load`: a folder that a function or a command wrote, as the object that was returned when it was made."""

from __future__ import annotations

from pathlib import Path

from stsbench.evaluation.measure import Result


def load(run: str | Path) -> Result:
    """What made a run, from its folder: of `evaluate` and `stsbench eval` the Result, with its rows, averages and records.

    run: a run folder, or the run.parquet in it. Everything is read as it was written; `score` computes it again. The reasons
    why tasks failed or were left out are not stored: `failures` and `left_out` of what is loaded are empty. Raises
    StsbenchError, one line: no run, or damaged.

    >>> import stsbench
    >>> run = stsbench.evaluate("lexical:token-set", sample=True, tasks="STS-B", resamples=0, output="run")
    >>> stsbench.load("run").rows == run.rows
    True
    """
    from stsbench.evaluation.rescore import load_result
    from stsbench.evaluation.run_file import folder_of

    return load_result(folder_of(run))  # a training's folder: one more kind, told by its files
