"""What the page of a trained model says of its prompt, and how the prompted encoder is loaded."""

from __future__ import annotations

from typing import Any

from stsbench.encoders.prompt.prompt import Prompt
from stsbench.encoders.prompt.template import FullStop, parse_template

_STOPS: dict[FullStop, str] = {
    False: "none is added", True: "put behind a text that ends in none of . ? \" '",
    "punctuation32": "put behind a text, after a blank, unless it ends in punctuation (ASCII)",
}


def prompt_summary(prompt: Prompt, mask_token: str) -> dict[str, Any]:
    """`prompt.settings()` with "filled" (what stands before and behind a text), "mask_last" and, with the head transform,
    its "activation" and "eps"."""
    filled = parse_template(prompt.template, mask_token, True)
    summary = {**prompt.settings(), "filled": (filled.before, filled.after), "mask_last": filled.mask_last}
    if summary["head"] == "transform":
        summary |= {key: getattr(prompt.head, key) for key in ("activation", "eps")}
    return summary


def prompt_rows(summary: dict[str, Any] | None) -> list[tuple[str, Any]]:
    """Rows of the card's table. summary: as of `prompt_summary`, None for an encoder without a prompt."""
    if summary is None:
        return []
    alone = "tokenised apart from the template" + (f" and cut at {summary['pieces']} tokens" if summary["pieces"] else "")
    around = "around a text of as many tokens" if summary["positions"] == "matched" else "around no text"
    first = ", counted from position 0" if summary["start"] == "zero" else ""
    denoised = f"the vector of the template alone is subtracted, at its positions {around}{first}"
    lengths = summary["prefixes"]
    several = "; the vectors of each are averaged" if len(lengths) > 1 else ""
    prefix = f"{' and '.join(map(str, lengths))} keys and values in every layer{several}"
    heads = {"dense": "a dense layer with tanh", "transform": "a masked LM's transform (dense layer, activation, LayerNorm)"}
    order = ", applied before the subtraction" if summary["each"] and summary["denoise"] else ""
    adapters = summary["bottlenecks"] or {}
    return [
        ("template", summary["template"]),
        ("the text", alone if summary["text"] == "pieces" else "tokenised inside the template"),
        ("full stop", _STOPS[summary["full_stop"]]),
        ("prefix", prefix if lengths else None),
        ("positions before the text", summary["shift"] or None),
        ("learned words", f"{summary['words']} embeddings in the template" if summary["words"] else None),
        ("adapters", f"of rank {adapters['rank']} in every layer" if adapters else None),
        ("denoising", denoised if summary["denoise"] else "none"),
        ("head", f"{heads[summary['head']]}{order}" if summary["head"] else None),
    ]


def prompt_loading(summary: dict[str, Any], pooling_layer: bool, native: str, library: str) -> list[str]:
    """How each library loads it: a line and a snippet each.

    summary: as of `prompt_summary`; pooling_layer: AutoModel makes one; native, library: their snippets.
    """
    library = library.replace('"PATH"', '"PATH", trust_remote_code=True')
    reasons = beyond_transformers(summary)
    snippets = [native, library] if reasons else [native, library, prompt_snippet(summary, pooling_layer)]
    return [
        f"PATH is this folder. {'Both' if reasons else 'All three'} give the same vectors.\n", f"```python\n{native}```\n",
        "sentence-transformers needs stsbench installed for the prompt, and trust_remote_code=True to import a module that "
        "is not its own; the folder holds no code. A `prompt` of its own goes directly before the text, inside the "
        "template.\n",
        *(f"```python\n{text}```\n" for text in snippets[1:]),
        *([f"With transformers alone there are no sentence vectors: it knows nothing of {' and '.join(reasons)}.\n"]
          if reasons else []),
    ]


def beyond_transformers(summary: dict[str, Any]) -> list[str]:
    """What of a prompt its plain model and tokenizer cannot do; nothing where the vector is a filled template's mask."""
    return [
        reason
        for reason, there in (
            ("the prefix", bool(summary["prefixes"]) or bool(summary["shift"])),
            ("the template's learned words", summary["words"]), ("the adapters", summary["bottlenecks"]),
            ("denoising", summary["denoise"]),
            ("a text that is tokenised apart from its template", summary["text"] == "pieces"),
        )
        if there
    ]


def prompt_snippet(summary: dict[str, Any], pooling_layer: bool) -> str:
    """Python that turns `texts` into `vectors` with transformers alone. Arguments: as of `prompt_loading`."""
    before, after = summary["filled"]
    head = summary["head"]
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
    if summary["full_stop"] == "punctuation32":
        lines.insert(0, "import string\n")
        lines += ['ends = ("", *string.punctuation)',
                  'stopped = [text if text.rstrip()[-1:] in ends else text + " ." for text in texts]']
        source = "stopped"
    elif summary["full_stop"]:
        lines.append("""stopped = [text if text[-1:] in ("", ".", "?", '"', "'") else text + "." for text in texts]""")
        source = "stopped"
    lines += [
        f"filled = [{before!r} + text + {after!r} for text in {source}]",
        'batch = tokenizer(filled, padding=True, return_tensors="pt")  # not truncated: that would cut the template',
        "with torch.no_grad():", "    states = model(**batch).last_hidden_state",
        'masks = (batch["input_ids"] == tokenizer.mask_token_id).long()',
    ]
    if summary["mask_last"]:
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
            f"vectors = get_activation({summary['activation']!r})(vectors)",
            'norm = head["head.norm.weight"], head["head.norm.bias"]',
            f"vectors = torch.nn.functional.layer_norm(vectors, vectors.shape[1:], *norm, eps={summary['eps']})",
        ]
    return "\n".join(lines) + "\n"
