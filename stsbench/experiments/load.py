"""`load`: a folder that a function or a command wrote, as the object that was returned when it was made."""

from __future__ import annotations

from pathlib import Path

from stsbench.evaluation.result import Result
from stsbench.experiments.run import Run

_OF_TRAINING = ("train.json", "seeds.json", "subsets.json", "recipe.yaml")


def load(run: str | Path) -> Result | Run:
    """What made a run, from its folder: the Result of `evaluate` or `stsbench eval`, the Run of `train` or `stsbench train`.

    run: a run folder, or the run.parquet in it. A Result's scores are computed from its observations, as `score` does, so
    that nothing edited is taken for a score. Raises StsbenchError, one line: no run, a training that has not ended, a file
    that is damaged or was edited.

    >>> import stsbench
    >>> run = stsbench.evaluate("lexical:token-set", sample=True, tasks="STS-B", resamples=0, output="run")
    >>> stsbench.load("run").rows == run.rows
    True
    """
    from stsbench.evaluation.rescore import score_again
    from stsbench.evaluation.run_file import folder_of

    folder = folder_of(run)
    if any((folder / name).is_file() for name in _OF_TRAINING):
        return Run.of(folder)
    result = score_again(folder)
    result.read_missing()
    return result
