"""What all parts share: the device, the sizes, the texts and the models that they are measured on."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PARTS = {  # part -> its module, which has `measure(name, setting)`; the longest comes last
    "methods": "methods", "scores": "scores", "families": "families", "encode": "encode_speed", "processes": "processes",
    "train": "train_speed",
}
SAMPLE = Path(__file__).resolve().parents[2] / "stsbench" / "data" / "sample" / "train"
_SHAPES = {  # hidden, layers, heads, feed-forward
    "small": {"cuda": (256, 4, 8, 1024), "cpu": (32, 2, 4, 64)},
    "base": {"cuda": (768, 12, 12, 3072), "cpu": (64, 2, 4, 128)},
}


@dataclass
class Setting:
    """One run of the benchmark. work: a temporary folder; models: "small" (for the methods) and "base" (for speed)."""

    device: str
    work: str
    data_dir: str | None
    models: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def dry(self) -> bool:
        """Whether there is no GPU."""
        return self.device == "cpu"

    @property
    def folder(self) -> Path:
        """`work` as a path."""
        return Path(self.work)

    @property
    def precisions(self) -> tuple[str, ...]:
        """Those of encoding and training that are timed."""
        return ("float32",) if self.dry else ("float32", "bf16")

    def names(self, part: str) -> list[str]:
        """What a part measures, one row each."""
        if part == "methods":
            from cases import CASES

            return list(CASES)
        if part == "families":
            from families import FAMILIES

            return list(FAMILIES)
        if part == "scores":
            return ["float32", "bfloat16", "float16"]
        if part == "processes":
            return ["two"]
        return [*self.precisions, *(("fp16",) if part == "encode" and not self.dry else ())]

    def to_json(self) -> str:
        """For the command line of a part's process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Setting:
        """What `to_json` wrote."""
        return cls(**json.loads(text))

    @classmethod
    def make(cls, cpu: bool, data_dir: Path | None, work: Path) -> Setting:
        """Texts and models are made in `work`. SystemExit, one line, without a CUDA device."""
        import torch

        if not cpu and not torch.cuda.is_available():
            raise SystemExit("no CUDA device is available: --cpu is the dry run")
        device = "cpu" if cpu else "cuda"
        setting = cls(device, str(work), None if data_dir is None else str(data_dir.resolve()))
        setting.facts = facts(device)
        (work / "texts.txt").write_text("\n".join(texts(3_000 if cpu else 40_000)) + "\n", "utf-8")
        for name, shapes in _SHAPES.items():
            setting.models[name] = str(_model(work / name, *shapes[device]))
        return setting


def facts(device: str) -> dict[str, Any]:
    """Device, driver, versions, commit."""
    import torch

    from stsbench.evaluation.provenance import provenance

    more: dict[str, Any] = {"torch threads": torch.get_num_threads()}
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        more = {"devices": torch.cuda.device_count(), "memory GiB": round(properties.total_memory / 2**30, 1),
                "capability": f"{properties.major}.{properties.minor}", "cuda": torch.version.cuda, "driver": _driver(),
                "cudnn": torch.backends.cudnn.version()}
    return {**provenance(), **more}


def texts(count: int, seed: int = 0) -> list[str]:
    """`count` distinct texts of 3 to 40 words, drawn from the sample's sentences: as long as sentences are."""
    rng = random.Random(seed)
    sentences = (SAMPLE / "wiki_sentences.txt").read_text("utf-8").split("\n")
    lengths = [len(line.split()) for line in sentences if line.strip()]
    words = [word for line in sentences for word in line.split()]
    made: dict[str, None] = {}
    while len(made) < count:
        made[" ".join(rng.choices(words, k=max(3, rng.choice(lengths) + rng.randint(-3, 3))))] = None
    return list(made)


def _model(folder: Path, width: int, layers: int, heads: int, inner: int) -> Path:
    """A random masked LM of BERT's kind with MiniLM's tokenizer, as a transformers folder."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

    from stsbench.encoders.transformer.find import find_minilm

    tokenizer = AutoTokenizer.from_pretrained(find_minilm())
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=inner, initializer_range=0.05,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _driver() -> str | None:
    import subprocess

    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.splitlines()[0].strip()
