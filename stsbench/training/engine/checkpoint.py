"""Checkpoints from which a run is resumed exactly: written whole or not at all, and checked by digests. `Loop` (loop.py)
decides when to write one."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_file, save_model
from torch.utils._pytree import tree_map

from stsbench.errors import StsbenchError
from stsbench.files import sha256_file
from stsbench.parsing import parse_json
from stsbench.torch_random import Generators
from stsbench.training.engine.optimiser import Average
from stsbench.training.engine.shards import load_state, whole_state

_WRITING = (OSError, RuntimeError, SafetensorError)  # torch and safetensors raise errors of their own for a full disk
AVERAGE = "average.safetensors"
KEPT = 2  # the newest checkpoints are kept, as one may be damaged; so is the last of each stage, for runs that start there


@dataclass
class Best:
    """The best dev score so far, and the folder of its weights below checkpoints/."""

    score: float
    step: int
    folder: str
    sha256: str = ""  # the weights'
    stage: str = ""


@dataclass
class Position:
    """A position in a run. number, stage: the stage's number and name; step: how many of its `steps` are done; log: bytes of
    the log up to it; best: the best score among the stages that `selection.over` names; seconds, seconds_before: time spent
    in this stage and in earlier ones; unscored: whether the step's development score, or the stage's end, is still to come.
    """

    number: int
    stage: str
    step: int = 0
    log: int = 0
    best: Best | None = None
    seconds: float = 0.0
    seconds_before: float = 0.0
    steps: int = 0
    processes: int = 1
    unscored: bool = False
    inputs: dict[str, str] = field(default_factory=dict)  # the run's inputs -> sha256 (labels: names)
    files: dict[str, str] = field(default_factory=dict)  # the checkpoint's files -> sha256


class Checkpoints:
    """The folder checkpoints/ of one run, whose random numbers all come from `generators`."""

    def __init__(self, folder: Path, accelerator: Accelerator, generators: Generators) -> None:
        self.folder, self.accelerator, self.generators = folder, accelerator, generators

    def save(
        self, position: Position, method: torch.nn.Module, optimiser: Any, unlogged: dict[str, Any] | None = None,
        average: Average | None = None,
    ) -> None:
        """Write a checkpoint of `position`, then delete checkpoints and weights that are no longer needed.

        unlogged: this process's numbers of the steps since the log's last line, if any. Raises StsbenchError.
        """
        main, rank = self.accelerator.is_main_process, self.accelerator.process_index
        final = self.folder / f"{position.number}-{position.stage}-{position.step:08d}"
        building = self.folder / f".{final.name}.tmp"
        try:
            if main:
                shutil.rmtree(building, ignore_errors=True)
                building.mkdir(parents=True)
            self.accelerator.wait_for_everyone()
            torch.save(self.generators.states(self.accelerator.device), building / f"random-{rank}.pt")
            if unlogged:
                torch.save(unlogged, building / f"unlogged-{rank}.pt")
            state = whole_state(optimiser)
            if main:
                save_model(method, str(building / "model.safetensors"))
                if average is not None:
                    save_file(average.state(), building / AVERAGE)
                scaler = self.accelerator.scaler
                torch.save(
                    {"optimiser": state, "scaler": scaler.state_dict() if scaler else None},
                    building / "optimiser.pt",
                )
            self.accelerator.wait_for_everyone()
            if main:
                position.files = {path.name: sha256_file(path) for path in sorted(building.iterdir())}
                (building / "position.json").write_text(json.dumps(asdict(position), indent=1) + "\n", "utf-8")
                _settle(building, final)
                self._tidy(position)
        except _WRITING as error:
            shutil.rmtree(building, ignore_errors=True)
            raise StsbenchError(f"cannot write the checkpoint {final}: {_reason(error)}") from error

    def save_best(self, stage: str, step: int, score: float, method: torch.nn.Module) -> Best:
        """Store these weights as the best. Earlier best weights stay until a checkpoint refers to the new ones."""
        best = Best(score, step, f"best-{stage}-{step:08d}", stage=stage)
        if self.accelerator.is_main_process:
            with _new_folder(self.folder / best.folder, f"write {self.folder / best.folder}") as building:
                save_model(method, str(building / "model.safetensors"))
                best.sha256 = sha256_file(building / "model.safetensors")
        return best

    def newest(self) -> tuple[Position, Path] | None:
        """Return the newest checkpoint that is not damaged, None without one. Damaged checkpoints are skipped with a
        warning."""
        return newest_whole(self.folder, warn=self.accelerator.is_main_process)

    def load(self, position: Position, path: Path, optimiser: Any, average: Average | None = None) -> dict[str, Any]:
        """Restore the optimiser, the weights' mean and the generators' states, and return what was `unlogged`, {} for
        nothing. If the number of processes differs from the checkpoint's, generators keep their initial states, and the
        means of what was unlogged are returned."""
        if average is not None:
            average.load(load_file(path / AVERAGE))
        stored = torch.load(path / "optimiser.pt", map_location="cpu", weights_only=True)
        load_state(optimiser, stored["optimiser"])
        if stored["scaler"] is not None and self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(stored["scaler"])
        ranks = range(position.processes)
        if position.processes == self.accelerator.num_processes:
            self._restore(path)
            ranks = range(self.accelerator.process_index, self.accelerator.process_index + 1)
        files = [path / f"unlogged-{rank}.pt" for rank in ranks]
        if not files[0].is_file():
            return {}
        steps = [torch.load(file, map_location="cpu", weights_only=True) for file in files]
        mean: dict[str, Any] = tree_map(_mean, *steps)
        return mean

    def adopt(self, folder: Path, best: Best) -> None:
        """Copy the best weights of another run, from its checkpoints' `folder`. Raises StsbenchError if they are damaged."""
        if not self.accelerator.is_main_process:
            return
        with _new_folder(self.folder / best.folder, f"copy {folder / best.folder} to {self.folder}") as building:
            shutil.copytree(folder / best.folder, building, dirs_exist_ok=True)
            if sha256_file(building / "model.safetensors") != best.sha256:
                raise StsbenchError(f"{folder / best.folder} is damaged: train that run anew")

    def load_randomness(self, path: Path) -> None:
        """Restore the generators' states, and float16's loss scale, for the next stage of the run."""
        scale = torch.load(path / "optimiser.pt", map_location="cpu", weights_only=True)["scaler"]
        if scale is not None and self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(scale)
        self._restore(path)

    def _restore(self, path: Path) -> None:
        states = torch.load(path / f"random-{self.accelerator.process_index}.pt", weights_only=True)
        self.generators.restore(states, self.accelerator.device)

    def load_best(self, best: Best, method: torch.nn.Module) -> None:
        """Load the best weights into `method`. Raises StsbenchError if the file was changed."""
        path = self.folder / best.folder
        if self.accelerator.is_main_process and sha256_file(path / "model.safetensors") != best.sha256:
            raise StsbenchError(f"{path} is damaged: the best weights are lost; start the run anew")
        self.load_weights(path, method)

    @staticmethod
    def load_weights(path: Path, method: torch.nn.Module) -> None:
        """Load the weights stored in `path` into `method`."""
        load_model(method, str(path / "model.safetensors"))  # via the CPU, as a GPU may not hold the weights twice

    @staticmethod
    def load_result(path: Path, method: torch.nn.Module) -> None:
        """Load the result of a stage into `method`: the weights at its end, or their mean (training.average)."""
        Checkpoints.load_weights(path, method)
        if (path / AVERAGE).is_file():
            method.load_state_dict(load_file(path / AVERAGE), strict=False)

    def _tidy(self, position: Position) -> None:
        every = _all(self.folder)
        ends = {path.name.partition("-")[0]: path for path in every}  # the last one of each stage
        kept = [*every[-KEPT:], *ends.values()]
        keep = {path.name for path in kept} | {position.best.folder if position.best else ""}
        for path in kept:
            try:
                stored = _read_position(path)  # without checking digests, which takes seconds
            except (ValueError, TypeError, KeyError, OSError):
                continue
            keep.add(stored.best.folder if stored.best else "")
        for path in self.folder.iterdir():
            if path.is_dir() and path.name not in keep:
                shutil.rmtree(path, ignore_errors=True)


def _mean(value: Any, *others: Any) -> Any:
    several = others and isinstance(value, torch.Tensor) and value.is_floating_point()
    return torch.stack([value, *others]).mean(0) if several else value


def newest_whole(folder: Path, warn: bool = True) -> tuple[Position, Path] | None:
    """Return the newest checkpoint in the folder checkpoints/ that is not damaged, of any run; None without one."""
    for path in reversed(_all(folder)):
        try:
            return _read(path), path
        except (ValueError, TypeError, KeyError, OSError) as error:
            if warn:
                warnings.warn(f"{path} is damaged ({error}): passed over", stacklevel=3)
    return None


def end_of_stage(folder: Path, number: int) -> tuple[Position, Path] | None:
    """Return the checkpoint at the end of a stage in the folder checkpoints/; None if it is missing or damaged."""
    for path in reversed([path for path in _all(folder) if path.name.startswith(f"{number}-")]):
        try:
            position = _read(path)
        except (ValueError, TypeError, KeyError, OSError):
            continue
        if position.step == position.steps and not position.unscored:
            return position, path
    return None


def _all(folder: Path) -> list[Path]:
    """Return the complete checkpoints, oldest first: by the stage's number, then the step."""
    return sorted(path for path in folder.glob("[0-9]*-*") if (path / "position.json").is_file())


def _reason(error: Exception) -> str:
    plain = getattr(error, "strerror", None)
    return plain or f"is the disk full? ({str(error).splitlines()[0] if str(error) else type(error).__name__})"


@contextmanager
def _new_folder(final: Path, doing: str) -> Iterator[Path]:
    """Yield a folder to write into, which replaces `final` at the end of the block. Raises StsbenchError, with `doing` as
    the action that failed."""
    building = final.with_name(f".{final.name}.tmp")
    try:
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        yield building
        _settle(building, final)
    except _WRITING as error:
        raise StsbenchError(f"cannot {doing}: {_reason(error)}") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _settle(building: Path, final: Path) -> None:
    """Rename a finished folder to its final name, replacing an older one (of a stage's end before it was scored, say)."""
    for path in building.iterdir():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    old = building.with_suffix(".old.tmp")
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.rename(old)
    building.rename(final)
    shutil.rmtree(old, ignore_errors=True)


def _read(path: Path) -> Position:
    """Return a checkpoint's position and check its files' digests. Raises ValueError, or other errors, if it is damaged."""
    position = _read_position(path)
    for name, known in position.files.items():
        if sha256_file(path / name) != known:
            raise ValueError(f"{name} is not what was written")
    if position.best and sha256_file(path.parent / position.best.folder / "model.safetensors") != position.best.sha256:
        raise ValueError(f"its best weights, {position.best.folder}, are not what was written")
    return position


def _read_position(path: Path) -> Position:
    """Return a checkpoint's position, without checking the digests of its files."""
    text = (path / "position.json").read_text("utf-8")
    Position(**parse_json(text))  # TypeError for an unknown key
    position = TypeAdapter(Position).validate_json(text, strict=True)
    named = [*position.files, *([position.best.folder] if position.best else [])]
    if stray := [name for name in named if Path(name).name != name]:
        raise ValueError(f"it names {stray[0]}, which is not in its folder")
    return position
