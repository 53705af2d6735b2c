"""What the page of a trained model says of its prompt, and how the prompted encoder is loaded."""

from __future__ import annotations

from typing import Any

from stsbench.encoders.prompt.prompt import Prompt
from stsbench.encoders.prompt.template import parse_template


def prompt_summary(prompt: Prompt, mask_token: str) -> dict[str, Any]:
    """`prompt.settings()` with "filled" (what stands before and behind a text), "mask_last" and, with the head transform,
    its "activation" and "eps"."""
    filled = parse_template(prompt.template, mask_token, True)
    said = {**prompt.settings(), "filled": (filled.before, filled.after), "mask_last": filled.mask_last}
    if said["head"] == "transform":
        said |= {key: getattr(prompt.head, key) for key in ("activation", "eps")}
    return said


def prompt_rows(said: dict[str, Any] | None) -> list[tuple[str, Any]]:
    """Rows of the card's table. said: as of `prompt_summary`, None for an encoder without a prompt."""
    if said is None:
        return []
    alone = "tokenised apart from the template" + (f" and cut at {said['pieces']} tokens" if said["pieces"] else "")
    around = "around a text of as many tokens" if said["positions"] == "matched" else "around no text"
    first = ", counted from position 0" if said["start"] == "zero" else ""
    denoised = f"the vector of the template alone is subtracted, at its positions {around}{first}"
    lengths = said["prefixes"]
    several = "; the vectors of each are averaged" if len(lengths) > 1 else ""
    prefix = f"{' and '.join(map(str, lengths))} keys and values in every layer{several}"
    heads = {"dense": "a dense layer with tanh", "transform": "a masked LM's transform (dense layer, activation, LayerNorm)"}
    each = ", applied before the subtraction" if said["each"] and said["denoise"] else ""
    adapters = said["bottlenecks"] or {}
    return [
        ("template", said["template"]),
        ("the text", alone if said["text"] == "pieces" else "tokenised inside the template"),
        ("full stop", "put behind a text that ends in none of . ? \" '" if said["full_stop"] else "none is added"),
        ("prefix", prefix if lengths else None),
        ("positions before the text", said["shift"] or None),
        ("learned words", f"{said['words']} embeddings in the template" if said["words"] else None),
        ("adapters", f"of rank {adapters['rank']} in every layer" if adapters else None),
        ("denoising", denoised if said["denoise"] else "none"),
        ("head", f"{heads[said['head']]}{each}" if said["head"] else None),
    ]


def prompt_loading(said: dict[str, Any], pooling_layer: bool, ours: str, library: str) -> list[str]:
    """How each library loads it: a line and a snippet each.

    said: as of `prompt_summary`; pooling_layer: AutoModel makes one; ours, library: their snippets.
    """
    library = library.replace('"PATH"', '"PATH", trust_remote_code=True')
    reasons = beyond_transformers(said)
    snippets = [ours, library] if reasons else [ours, library, prompt_snippet(said, pooling_layer)]
    return [
        f"PATH is this folder. {'Both' if reasons else 'All three'} give the same vectors.\n", f"```python\n{ours}```\n",
        "sentence-transformers needs stsbench installed for the prompt, and trust_remote_code=True to import a module that "
        "is not its own; the folder holds no code. A `prompt` of its own goes directly before the text, inside the "
        "template.\n",
        *(f"```python\n{text}```\n" for text in snippets[1:]),
        *([f"With transformers alone there are no sentence vectors: it knows nothing of {' and '.join(reasons)}.\n"]
          if reasons else []),
    ]


def beyond_transformers(said: dict[str, Any]) -> list[str]:
    """What of a prompt its plain model and tokenizer cannot do; nothing where the vector is a filled template's mask."""
    return [
        reason
        for reason, there in (
            ("the prefix", bool(said["prefixes"]) or bool(said["shift"])), ("the template's learned words", said["words"]),
            ("the adapters", said["bottlenecks"]), ("denoising", said["denoise"]),
            ("a text that is tokenised apart from its template", said["text"] == "pieces"),
        )
        if there
    ]


def prompt_snippet(said: dict[str, Any], pooling_layer: bool) -> str:
    """Python that turns `texts` into `vectors` with transformers alone. Arguments: as of `prompt_loading`."""
    before, after = said["filled"]
    head = said["head"]
    option = ", add_pooling_layer=False" if pooling_layer else ""
    lines = ["import torch"]
    if head:
        lines.append("from safetensors.torch import load_file")
    lines += ["from transformers import AutoModel, AutoTokenizer"]
    if head == "transform":
        lines.append("from transformers.activations import get_activation")
    lines += ["", 'tokenizer = AutoTokenizer.from_pretrained("PATH")',
              f'model = AutoModel.from_pretrained("PATH"{option}).eval()']
    source = "texts"
    if said["full_stop"]:
        lines.append("""stopped = [text if text[-1:] in ("", ".", "?", '"', "'") else text + "." for text in texts]""")
        source = "stopped"
    lines += [
        f"filled = [{before!r} + text + {after!r} for text in {source}]",
        'batch = tokenizer(filled, padding=True, return_tensors="pt")  # not truncated: that would cut the template',
        "with torch.no_grad():", "    states = model(**batch).last_hidden_state",
        'masks = (batch["input_ids"] == tokenizer.mask_token_id).long()',
    ]
    if said["mask_last"]:
        lines.append("places = masks.shape[1] - 1 - masks.flip(1).argmax(1)  # the template's mask: the last one")
    else:
        lines.append("places = masks.argmax(1)  # the template's mask: the first one")
    lines.append("vectors = states[torch.arange(len(texts)), places]")
    if head:
        lines += ['head = load_file("PATH/prompt.safetensors")',
                  'vectors = vectors @ head["head.dense.weight"].T + head["head.dense.bias"]']
    if head == "dense":
        lines.append("vectors = torch.tanh(vectors)")
    elif head == "transform":
        lines += [
            f"vectors = get_activation({said['activation']!r})(vectors)",
            'norm = head["head.norm.weight"], head["head.norm.bias"]',
            f"vectors = torch.nn.functional.layer_norm(vectors, vectors.shape[1:], *norm, eps={said['eps']})",
        ]
    return "\n".join(lines) + "\n"
