"""Part `families`: the pass without padding on the device, family by family, against each text alone and the padded pass."""

from __future__ import annotations

import statistics
import time
from typing import Any

from rates import settle, torch_type
from setting import Setting

_PRECISIONS = ("float32", "bf16", "fp16")
BOUNDS = {"float32": 1e-4, "bf16": 3e-2, "fp16": 5e-3}  # of all states against the text alone, by their norms
_WIDTH = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 999,
          "max_position_embeddings": 640, "pad_token_id": 1}
_DECODER = {**_WIDTH, "num_key_value_heads": 2, "head_dim": 64}
_WINDOWED = {**_DECODER, "sliding_window": 64, "num_hidden_layers": 6}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {  # name -> class of transformers, its config
    "bert": ("Bert", _WIDTH), "roberta": ("Roberta", _WIDTH), "distilbert": ("DistilBert", {
        "dim": 256, "n_layers": 4, "n_heads": 4, "hidden_dim": 512, "vocab_size": 999, "max_position_embeddings": 640}),
    "modernbert": ("ModernBert", {**_WIDTH, "local_attention": 64}), "eurobert": ("EuroBert", _DECODER),
    "nomic_bert": ("NomicBert", _WIDTH), "qwen3": ("Qwen3", _DECODER), "llama": ("Llama", _DECODER),
    "mistral": ("Mistral", _WINDOWED), "gemma3": ("Gemma3Text", _WINDOWED),
    "gemma3 bidirectional": ("Gemma3Text", {**_WINDOWED, "use_bidirectional_attention": True}),
}


def measure(name: str, setting: Setting) -> dict[str, Any]:
    """name: a family. For each precision how far states in a row are from those of a text alone, in the same precision, how
    many times the kernel for texts of any lengths ran, and how many times as long the padded pass takes."""
    row: dict[str, Any] = {"status": "ok"}
    for precision in _PRECISIONS[:2] if setting.dry else _PRECISIONS:
        far, calls, ratio = _compare(name, precision, setting)
        row |= {f"{precision}: differs": far, f"{precision}: kernel": calls, f"{precision}: padded takes": ratio}
        if not far <= BOUNDS[precision]:
            why = f"{precision}: states in a row differ by {far:.1e} from those alone, {BOUNDS[precision]:.0e} at most"
            row |= {"status": "failed", "why": why}
    return row


def _compare(name: str, precision: str, setting: Setting) -> tuple[float, int, float]:
    import torch

    from stsbench.encoders.forward import attention
    from stsbench.encoders.forward.batching import groups
    from stsbench.encoders.forward.passes import PackedForward, PaddedForward

    model = _model(name).to(setting.device, torch_type(precision))
    lengths = torch.randint(3, 60 if setting.dry else 512, (12 if setting.dry else 96,)).sort(descending=True).values
    texts = [torch.randint(5, 999, (int(length),)).to(setting.device) for length in lengths]
    ids, runs, calls, kernel = torch.cat(texts), groups(lengths.numpy()), 0, attention._by_kernel

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return kernel(*arguments)

    forwards = {"row": PackedForward(model), "padded": PaddedForward(model, 1)}
    with torch.inference_mode():
        attention._by_kernel = counted
        try:
            states = forwards["row"](ids, runs, (-1,))[0].float()
        finally:
            attention._by_kernel = kernel
        alone = torch.cat([model(input_ids=text[None]).last_hidden_state[0] for text in texts]).float()
        seconds = {
            way: statistics.median([_seconds(forward, ids, runs, setting.device) for _ in range(4)][1:])
            for way, forward in forwards.items()
        }
    ratio = seconds["padded"] / seconds["row"]
    return float((states - alone).norm() / alone.norm()), calls, ratio


def _seconds(forward: Any, ids: Any, runs: Any, device: str) -> float:
    settle(device)
    began = time.perf_counter()
    forward(ids, runs, (-1,))
    settle(device)
    return time.perf_counter() - began


def _model(name: str) -> Any:
    import torch
    import transformers

    kind, settings = FAMILIES[name]
    torch.manual_seed(0)
    return getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**settings)).eval()
