"""Part `scores`: `eval` of MiniLM on the device against the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from setting import Setting

POINTS = 1e-3  # in float32, of scores x 100


def measure(name: str, setting: Setting) -> dict[str, Any]:
    """The largest difference of all scores of sts and geometry, in points; of the others it is told and has no bound."""
    kept = setting.folder / "scores-cpu.json"
    if not kept.is_file():
        kept.write_text(json.dumps(_scores("float32", "cpu", setting)), "utf-8")
    expected = json.loads(kept.read_text("utf-8"))
    scores = _scores(name, setting.device, setting)
    if scores.keys() != expected.keys() or not scores:
        return {"status": "failed", "why": f"{len(scores)} scores, and {len(expected)} on the CPU"}
    worst = max(scores, key=lambda key: abs(scores[key] - expected[key]))
    points = abs(scores[worst] - expected[worst])
    row = {"status": "ok", "scores": len(scores), "points": points, "at": worst}
    if name == "float32" and not points <= POINTS:
        row |= {"status": "failed", "why": f"{worst} differs by {points:.1e} points, {POINTS:.0e} at most"}
    return row


def _scores(dtype: str, device: str, setting: Setting) -> dict[str, float]:
    from stsbench.evaluation.api import EvalOptions, run

    result = run(
        EvalOptions(
            model="minilm", output=setting.folder / f"eval-{dtype}-{device}", protocols=["sts", "geometry"], device=device,
            dtype=dtype, data_dir=None if setting.data_dir is None else Path(setting.data_dir),
            sample=setting.data_dir is None, no_cache=True, resamples=0,
        ),
        log=lambda line: None,
    )
    if result.failures:
        raise RuntimeError(f"not scored: {result.failures}")
    return {" ".join(str(part) for part in (row.protocol, row.task, row.subset, row.aggregation, row.metric) if part):
            row.value for row in result.rows}
