"""Progress bars in notebooks, by tqdm: widgets if ipywidgets is installed, else text."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook (Jupyter, Colab), and not IPython in a terminal or a
    script."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__)


def make_bar(**settings: Any) -> Any:
    """Return tqdm's bar for a notebook."""
    return _tqdm()(**settings)


def _tqdm() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm warns if ipywidgets is not installed, and shows text
        from tqdm.auto import tqdm
    return tqdm


def load_tqdm() -> None:
    """Import tqdm in a notebook, before other libraries do so and show its warning about ipywidgets."""
    if in_notebook():
        _tqdm()


def start_bar(total: int) -> Callable[[int], None]:
    """Show a bar of `total` texts; return a function to call with the number of texts encoded since its last call."""
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
        """Show a new bar for a stage of `steps` steps, of which `start` are done."""
        self.close()
        self._numbers = {}
        self._bar = make_bar(total=steps, initial=start, desc=name, unit="step")

    def doing(self, step: int, what: str = "") -> None:
        """Show that `step` steps of the stage are done, and `what` delays the next one."""
        self._bar.set_postfix({**self._numbers, **({"now": what} if what else {})}, refresh=False)
        self._bar.update(step - self._bar.n)
        if what:
            self._bar.refresh()

    def step(self, step: int, loss: float, sentences_per_second: float) -> None:
        """Show the loss, and that `step` steps of the stage are done."""
        self._numbers["loss"] = f"{loss:.4f}"
        self._bar.set_postfix(self._numbers, refresh=False)
        self._bar.update(step - self._bar.n)

    def dev(self, step: int, name: str, score: float | None, best: bool) -> None:
        """Show a development score; None: undefined."""
        digits = 4 if name.startswith("held-out") else 2
        self._numbers[name] = "undefined" if score is None else f"{score:.{digits}f}"
        self._bar.set_postfix(self._numbers)

    def close(self) -> None:
        """Close the last bar, which stays visible. May be called twice."""
        if self._bar is not None:
            self._bar.set_postfix(self._numbers)  # without "now", what delays the next step
            self._bar.close()
            self._bar = None
