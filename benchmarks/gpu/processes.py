"""Part `processes`: ten steps of SimCSE in two processes, a device each (NCCL), against one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from cases import STEPS, recipe_of
from setting import Setting

LOSS = 1e-3  # a step's, as a share of the largest


def measure(name: str, setting: Setting) -> dict[str, Any]:
    """Skipped where there are fewer than two devices; the dry run has two processes on the CPU (gloo)."""
    import torch

    if not setting.dry and torch.cuda.device_count() < 2:
        return {"status": "skipped", "why": f"{torch.cuda.device_count()} device, and two are needed"}
    from stsbench.config import dump_yaml

    recipe = setting.folder / "simcse.yaml"
    values = recipe_of("simcse", setting.models["small"], "float32").model_dump(mode="json")
    recipe.write_text(dump_yaml(values), "utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    both = _losses([*launch, "-m", "stsbench"], recipe, setting, "two")
    one = _losses([sys.executable, "-m", "stsbench"], recipe, setting, "one")
    if len(both) != STEPS or len(one) != STEPS:
        return {"status": "failed", "why": f"{len(both)} losses of two processes, {len(one)} of one, and {STEPS} steps"}
    differ = float(np.abs(np.array(both) - one).max() / np.abs(one).max())
    row: dict[str, Any] = {"status": "ok", "losses differ": differ, "backend": "gloo" if setting.dry else "nccl"}
    if not differ <= LOSS:
        row |= {"status": "failed", "why": f"losses differ by {differ:.1e}, {LOSS:.0e} at most"}
    return row


def _losses(start: list[str], recipe: Path, setting: Setting, name: str) -> list[float]:
    folder = setting.folder / f"processes-{name}"
    command = [*start, "train", "simcse", "--recipe", str(recipe), "--output", str(folder), "--device", setting.device]
    environment = {**os.environ, "STSBENCH_CACHE": str(setting.folder / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    if done.returncode:
        raise RuntimeError(f"{name}: {' '.join(done.stderr.split())[-600:]}")
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text("utf-8").splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "train"]
