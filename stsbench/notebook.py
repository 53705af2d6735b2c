"""What a notebook shows while something runs: tqdm's bars, widgets where ipywidgets is installed."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook (Jupyter's, Colab's), and not a terminal's IPython or a
    script."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__)


def make_bar(**settings: Any) -> Any:
    """Return tqdm's bar for a notebook."""
    return _tqdm()(**settings)


def _tqdm() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that ipywidgets is not installed: the bar is text then
        from tqdm.auto import tqdm
    return tqdm


def load_tqdm() -> None:
    """In a notebook tqdm is loaded here, once: libraries that do so while a model is loaded let it remark on ipywidgets."""
    if in_notebook():
        _tqdm()


def start_bar(total: int) -> Callable[[int], None]:
    """Return a bar of `total` texts; call what is returned with the number of texts that were encoded since."""
    bar = make_bar(total=total, desc="encoding", unit="text")

    def step(done: int) -> None:
        bar.update(done)
        if bar.n >= total:
            bar.close()

    return step


class TrainingBar:
    """A bar for each stage of a training, with the last loss and the last score on development data beside it."""

    def __init__(self) -> None:
        load_tqdm()
        self._bar: Any = None
        self._numbers: dict[str, str] = {}

    def stage(self, name: str, steps: int, start: int) -> None:
        """Show that a stage of this many steps begins, or goes on after `start`."""
        self.close()
        self._numbers = {}
        self._bar = make_bar(total=steps, initial=start, desc=name, unit="step")

    def doing(self, step: int, what: str = "") -> None:
        """`step` steps of the stage are done; `what`, if anything, takes time before the next one."""
        self._bar.set_postfix({**self._numbers, **({"now": what} if what else {})}, refresh=False)
        self._bar.update(step - self._bar.n)
        if what:
            self._bar.refresh()

    def step(self, step: int, loss: float, sentences_per_second: float) -> None:
        """`step` steps of the stage are done."""
        self._numbers["loss"] = f"{loss:.4f}"
        self._bar.set_postfix(self._numbers, refresh=False)
        self._bar.update(step - self._bar.n)

    def dev(self, step: int, name: str, score: float | None, best: bool) -> None:
        """Show a dev evaluation after `step` steps."""
        digits = 4 if name.startswith("held-out") else 2
        self._numbers[name] = "undefined" if score is None else f"{score:.{digits}f}"
        self._bar.set_postfix(self._numbers)

    def close(self) -> None:
        """Leave the last bar as it is. May be called twice."""
        if self._bar is not None:
            self._bar.set_postfix(self._numbers)  # nothing takes time any more
            self._bar.close()
            self._bar = None
