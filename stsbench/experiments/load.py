"""`load`: a folder that a function or a command wrote, as the object that was returned when it was made."""

from __future__ import annotations

from pathlib import Path

from stsbench.evaluation.measure import Result
from stsbench.experiments.run import Run

_OF_TRAINING = ("train.json", "seeds.json", "subsets.json", "recipe.yaml")


def load(run: str | Path) -> Result | Run:
    """What made a run, from its folder: the Result of `evaluate` or `stsbench eval`, the Run of `train` or `stsbench train`.

    run: a run folder, or the run.parquet in it. Everything is read as it was written; `score` computes it again. The reasons
    why tasks failed or were left out are not stored: `failures` and `left_out` of what is loaded are empty. Raises
    StsbenchError, one line: no run, a training that has not ended, or a damaged file.

    >>> import stsbench
    >>> run = stsbench.evaluate("lexical:token-set", sample=True, tasks="STS-B", resamples=0, output="run")
    >>> stsbench.load("run").rows == run.rows
    True
    """
    from stsbench.evaluation.rescore import load_result
    from stsbench.evaluation.run_file import folder_of

    folder = folder_of(run)
    return Run.of(folder) if any((folder / name).is_file() for name in _OF_TRAINING) else load_result(folder)
