"""The models that are measured: MiniLM, and random weights in the shapes of other families."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_SHARED = Path(__file__).resolve().parents[3] / "shared" / "models" / "minilm-l6-fp16"
# name -> class of transformers, its config, the pooling that such models declare
SHAPES: dict[str, tuple[str, dict[str, Any], str]] = {
    "bert-base": ("Bert", {
        "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    }, "mean"),
    "e5-small": ("Bert", {
        "hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 1536,
    }, "mean"),
    "mpnet-base": ("MPNet", {
        "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
        "max_position_embeddings": 514, "relative_attention_num_buckets": 32,
    }, "mean"),
    "deberta-v3-base": ("DebertaV2", {
        "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
        "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0,
    }, "mean"),
    "t5-base": ("T5", {
        "d_model": 768, "d_kv": 64, "d_ff": 3072, "intermediate_size": 3072, "num_layers": 12, "num_heads": 12,
    }, "mean"),
    "modernbert-base": ("ModernBert", {
        "hidden_size": 768, "num_hidden_layers": 22, "num_attention_heads": 12, "intermediate_size": 1152,
        "max_position_embeddings": 8192, "local_attention": 128, "global_attn_every_n_layers": 3,
    }, "mean"),
    "qwen3-0.6b": ("Qwen3", {
        "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 3072,
    }, "lasttoken"),
    "gemma3-300m": ("Gemma3Text", {
        "hidden_size": 768, "num_hidden_layers": 24, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 256,
        "intermediate_size": 1152, "sliding_window": 512, "use_bidirectional_attention": True,
    }, "mean"),
}
NAMES = ("minilm", *SHAPES)


def model_folder(name: str, folder: Path, layers: int | None) -> Path:
    """Return a folder that is one, that of `minilm`, or a new one of a shape's random weights behind MiniLM's tokenizer.

    layers: in the place of a shape's own number.
    """
    if Path(name).is_dir():
        return Path(name).resolve()
    minilm = _minilm()
    if name == "minilm":
        return minilm
    import torch
    import transformers

    kind, shape, pooling = SHAPES[name]
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    special = {f"{token}_token_id": getattr(tokenizer, f"{token}_token_id") for token in ("pad", "bos", "eos", "cls", "sep")}
    config = getattr(transformers, f"{kind}Config")(
        **{"vocab_size": len(tokenizer), **special, **shape, **({} if layers is None else {"num_hidden_layers": layers})}
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}EncoderModel" if config.is_encoder_decoder else f"{kind}Model")
    model(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
               for i, (path, kind) in enumerate(kinds.items())]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 512}))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(
        {"word_embedding_dimension": config.hidden_size, f"pooling_mode_{_LEGACY[pooling]}": True}
    ))
    return folder


_LEGACY = {"mean": "mean_tokens", "lasttoken": "lasttoken"}  # as every version of the library reads it


def _minilm() -> Path:
    from stsbench.encoders.transformer.find import find_minilm
    from stsbench.errors import EncoderError

    try:
        return find_minilm()
    except EncoderError:
        return _SHARED


def multiply_adds(model: Any, lengths: list[int]) -> float:
    """Of one pass over texts of so many real tokens: every linear layer once a token, and attention's two products."""
    import torch

    config = model.config
    linear = sum(
        part.weight.numel() for name, part in model.named_modules()
        if isinstance(part, torch.nn.Linear) and not name.startswith("pooler")
    )
    heads = config.num_attention_heads
    width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
    attention = 2 * width * config.num_hidden_layers  # of causal models half: too little to matter for sentences
    return float(sum(n * linear + attention * n * n for n in lengths))


def product_rate(width: int, inner: int, dtype: Any, device: str, clock: Any, seconds: float) -> float:
    """Multiply-adds a second of a large matrix product: the best of several shapes that an encoder meets."""
    import torch

    best = 0.0
    rows = 1024 if device == "cpu" else 32_768
    for shape in ((rows, width, inner), (rows, inner, width), (1024, 1024, 1024)):
        a, b = (torch.randn(*size, device=device).to(dtype) for size in ((shape[0], shape[1]), (shape[2], shape[1])))
        torch.nn.functional.linear(a, b)
        until = clock() + seconds
        while clock() < until:
            start = clock()
            for _ in range(4):
                torch.nn.functional.linear(a, b)
            if device != "cpu":
                torch.cuda.synchronize()
            best = max(best, 4 * shape[0] * shape[1] * shape[2] / (clock() - start))
    return best
