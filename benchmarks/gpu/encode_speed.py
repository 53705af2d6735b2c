"""Part `encode`: texts a second against sentence-transformers, in turn on the same device, and the share of its rate."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from rates import product_rate, settle, torch_type, work_of
from setting import Setting

AIM = 2.0
BATCHES = (32, 256)  # of sentence-transformers: its default, and one for a GPU


def measure(name: str, setting: Setting) -> dict[str, Any]:
    """name: a precision. Ratios are medians over rounds of pairs; the least and the greatest stand beside them."""
    import torch
    from sentence_transformers import SentenceTransformer

    from stsbench.encoders.load import load_encoder

    kind = torch_type(name)
    folder, device, rounds = _with_modules(Path(setting.models["base"])), setting.device, 2 if setting.dry else 5
    texts = (setting.folder / "texts.txt").read_text("utf-8").splitlines()[: 600 if setting.dry else 20_000]
    encoder = load_encoder(str(folder), pooler="mean", device=device, dtype=str(kind).removeprefix("torch.")).built
    library = SentenceTransformer(str(folder), device=device, model_kwargs={"dtype": kind})
    sides: dict[str, Any] = {"ours": lambda: encoder.run(texts).vectors}
    for batch in BATCHES:
        sides[f"st {batch}"] = lambda batch=batch: library.encode(texts, batch_size=batch)
    compared = (sides["ours"], sides[f"st {BATCHES[0]}"])
    vectors, reference = (np.asarray(side(), np.float64) for side in compared)  # and warms up
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    memory = 0
    for number in range(rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            settle(device)
            began = time.perf_counter()
            sides[side]()
            settle(device)
            seconds[side].append(time.perf_counter() - began)
            if side == "ours" and device == "cuda":
                memory = max(memory, torch.cuda.max_memory_allocated())
    cosines = (vectors * reference).sum(1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(reference, axis=1)
    work = work_of(encoder.model.config, [len(ids) for ids in encoder.tokeniser(texts)[0]])
    best = min(seconds["ours"])
    began = time.perf_counter()
    encoder.tokeniser(texts)
    tokenising = time.perf_counter() - began
    row: dict[str, Any] = {
        "status": "ok", "texts": len(texts), "texts a second": round(len(texts) / best),
        "1 - cosine to st": float(np.abs(1 - cosines).max()), "share of the product rate": work / best
        / product_rate(device, kind), "share of tokenising": tokenising / best,
    }
    for side in list(sides)[1:]:
        ratios = [there / here for here, there in zip(seconds["ours"], seconds[side], strict=True)]
        row[f"over {side}"] = [statistics.median(ratios), min(ratios), max(ratios)]
    if device == "cuda":
        row["MiB"] = round(memory / 2**20)
    row["aim"] = min(row[f"over st {batch}"][0] for batch in BATCHES) >= AIM
    return row


def _with_modules(folder: Path) -> Path:
    """sentence-transformers' files: mean pooling."""
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
               for i, (path, kind) in enumerate(kinds.items())]
    width = json.loads((folder / "config.json").read_text("utf-8"))["hidden_size"]
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": width, "pooling_mode_mean_tokens": True})
    )
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder
