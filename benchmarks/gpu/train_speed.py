"""Part `train`: benchmarks/train.py on this device: unsupervised SimCSE against sentence-transformers' trainer, in turn."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from rates import product_rate, torch_type, work_of
from setting import Setting

AIM = 2.0


def measure(name: str, setting: Setting) -> dict[str, Any]:
    """name: a precision. Ratios of seconds a step; the share is of three passes over the real tokens of both views."""
    from transformers import AutoConfig, AutoTokenizer

    batch, warm, steps, rounds = (8, 1, 3, 1) if setting.dry else (128, 5, 30, 2)
    out, model = setting.folder / f"train-{name}.json", setting.models["base"]
    command = [
        sys.executable, str(Path(__file__).resolve().parents[1] / "train.py"), "--model", model, "--data",
        str(setting.folder / "texts.txt"), "--batch", str(batch), "--warm-up", str(warm), "--steps", str(steps), "--rounds",
        str(rounds), "--precision", name, "--device", setting.device, "--json", str(out),
    ]
    # transformers' trainer would spread its batch over all devices
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        return {"status": "failed", "why": " ".join(done.stderr.split())[-400:]}
    summary = json.loads(out.read_text("utf-8"))["summary"]
    a_step = summary["ours"]["seconds a step"]
    tokenizer = AutoTokenizer.from_pretrained(model)
    texts = (setting.folder / "texts.txt").read_text("utf-8").splitlines()[: batch * (warm + steps + 1)]
    lengths = [len(ids) for ids in tokenizer(texts, truncation=True, max_length=32, padding=False)["input_ids"]]
    work = 2 * 3 * work_of(AutoConfig.from_pretrained(model), lengths) / len(texts) * batch
    ratios = summary["ours"]["seconds, ratios"]
    return {
        "status": "ok", "batch": batch, "sentences a second": round(batch / a_step), "ms a step": round(1000 * a_step, 1),
        "over st": [statistics.median(ratios), min(ratios), max(ratios)],
        "share of the product rate": work / a_step / product_rate(setting.device, torch_type(name)),
        "MiB": round(summary["ours"]["mib"]), "MiB of st": round(summary["st"]["mib"]),
        "aim": statistics.median(ratios) >= AIM,
    }
