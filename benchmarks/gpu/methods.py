"""Part `methods`: ten steps on the device in each precision against float32 on the CPU."""

from __future__ import annotations

import json
import os
import shutil
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from cases import recipe_of, texts
from setting import Setting

# precision -> the most that a step's loss may differ, as a share of the largest of the run, and a final vector, 1 - cosine.
# float32: rounding, and other orders of summation. The others: measured on a CPU in bf16, times three; fp16 has eight times
# its resolution, but leaves out the steps that overflow until its scale has fallen.
TOLERANCES = {"float32": (1e-3, 1e-5), "bf16": (0.03, 0.01), "fp16": (0.03, 0.01)}


def measure(name: str, setting: Setting) -> dict[str, Any]:
    """One method's row: by precision the differences, seconds, peak memory and waits; failed beyond TOLERANCES."""
    os.environ["STSBENCH_CACHE"] = str(setting.folder / "cache")
    reference = _trained(name, setting, "float32", "cpu")
    row: dict[str, Any] = {"status": "ok", "precisions": {}}
    precisions = ("float32", "bf16") if setting.dry else tuple(TOLERANCES)
    for precision in precisions:
        try:
            figures = _compared(reference, _trained(name, setting, precision, setting.device), TOLERANCES[precision])
        except Exception as error:
            why = f"{precision}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
            # on a GPU nothing that follows in this process could be trusted
            return {**row, "status": "failed", "why": why, "ended": not setting.dry}
        row["precisions"][precision] = figures
        if beyond := figures.pop("beyond"):
            row |= {"status": "failed", "why": f"{precision}: {beyond}"}
    return row


def _trained(name: str, setting: Setting, precision: str, device: str) -> dict[str, Any]:
    import torch

    from stsbench.encoders.load import load_encoder
    from stsbench.training.engine import loop
    from stsbench.training.runs.options import TrainOptions
    from stsbench.training.runs.run import train

    folder = setting.folder / "runs" / f"{name}-{precision}-{device}"
    shutil.rmtree(folder, ignore_errors=True)
    steps = Steps(loop.Loop, device)
    try:
        train(TrainOptions(recipe_of(name, setting.models["small"], precision), folder, device=device, offline=True),
              log=lambda line: None)
    finally:
        steps.stop()
    lines = [json.loads(line) for line in Path(folder / "log.jsonl").read_text("utf-8").splitlines()]
    lines = [line for line in lines if line["kind"] == "train"]
    vectors = load_encoder(str(folder), device="cpu").encode(texts())  # the weights are compared, not how they are read
    shutil.rmtree(folder, ignore_errors=True)
    if device == "cuda":
        torch.cuda.empty_cache()
    return {"losses": [line["loss"] for line in lines], "skipped": sum(line.get("skipped_steps", 0) for line in lines),
            "vectors": vectors, **steps.figures()}


class Steps:
    """Watches the steps of a training: milliseconds, peak memory, and how often one waits for the GPU."""

    def __init__(self, loop: Any, device: str) -> None:
        self.loop, self.device, self.real = loop, device, loop._step
        self.seconds: list[float] = []
        self.waits: list[int] = []
        self.wait_lines: set[str] = set()
        if device == "cuda":
            import torch

            torch.cuda.reset_peak_memory_stats()
        watch = self

        def step(self: Any, number: int) -> None:
            began = time.perf_counter()
            watch._watched(self, number)
            watch.seconds.append(time.perf_counter() - began)

        loop._step = step

    def _watched(self, loop: Any, number: int) -> None:
        import torch

        if self.device != "cuda":
            return self.real(loop, number)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                self.real(loop, number)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
        noticed = [warning for warning in caught if "synchronizing" in str(warning.message)]
        if number:  # the first step has checks of its own
            self.waits.append(len(noticed))
            self.wait_lines |= {f"{Path(warning.filename).name}:{warning.lineno}" for warning in noticed}
        return None

    def stop(self) -> None:
        """Leave the loop as it was."""
        self.loop._step = self.real

    def figures(self) -> dict[str, Any]:
        """Medians over the steps but the first two."""
        import torch

        figures: dict[str, Any] = {"ms a step": round(1000 * float(np.median(self.seconds[2:])), 2)}
        if self.device == "cuda":
            figures["MiB"] = round(torch.cuda.max_memory_allocated() / 2**20)
            figures |= {"waits a step": float(np.median(self.waits)), "waits at": sorted(self.wait_lines)}
        return figures


def _compared(reference: dict[str, Any], here: dict[str, Any], tolerance: tuple[float, float]) -> dict[str, Any]:
    losses, expected = np.array(here["losses"]), np.array(reference["losses"])
    if losses.shape != expected.shape:
        return {"beyond": f"{len(losses)} losses, and {len(expected)} on the CPU"}
    loss = float(np.abs(losses - expected).max() / np.abs(expected).max())
    one, other = here["vectors"].astype(np.float64), reference["vectors"].astype(np.float64)
    cosines = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    vector = float(np.abs(1 - cosines).max())
    beyond = ""
    if not (loss <= tolerance[0] and vector <= tolerance[1]):
        least = f"tolerances {tolerance[0]:.0e} and {tolerance[1]:.0e}"
        beyond = f"losses differ by {loss:.1e}, vectors by {vector:.1e} ({least})"
    kept = {key: value for key, value in here.items() if key not in ("losses", "vectors")}
    return {"losses differ": loss, "vectors differ": vector, **kept, "beyond": beyond}
