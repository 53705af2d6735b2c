"""The page of a trained model: what it is, what it was trained on, how to load it in three libraries, its recipe."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import yaml

from stsbench.display.markup import card_text
from stsbench.encoders.forward.pooling import KINDS, padded_length
from stsbench.encoders.prompt.prompt import Prompt
from stsbench.encoders.prompt.template import FullStop, parse_template
from stsbench.encoders.transformer.declared import TABLE
from stsbench.training.api.method import Inference
from stsbench.training.recipes.methods import short_name
from stsbench.training.recipes.recipe import Recipe, changes
from stsbench.wording import counted

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_MEANS = {"mean": (-1,), "first_last:embeddings": (0, -1), "first_last:layer1": (1, -1), "last2": (-2, -1)}
_STOPS: dict[FullStop, str] = {
    False: "none is added", True: "put behind a text that ends in none of . ? \" '",
    "punctuation32": "put behind a text, after a blank, unless it ends in punctuation (ASCII)",
    "prompteol": "put behind a text that ends in none of . ? \" ', then each \" becomes ', and a ? at its end a full stop",
}


def describe(inference: Inference, max_length: int | None = None) -> dict[str, Any]:
    """Return what the card says of an encoder: pooler, max_length (None: the model's limit), and how AutoModel pools it.

    auto_pooler: "" (AutoModel makes no pooler layer), "same" (it makes the one that a kept head is stored as), or "other".
    prompt: what stands around a text (`prompt_summary`), only with one; static: only of a table of tokens' vectors. Random
    states are not touched.
    """
    import torch

    from stsbench.torch_random import forked

    kind = type(inference.model)
    auto_pooler = ""
    if "add_pooling_layer" in inspect.signature(kind.__init__).parameters:
        with forked(), torch.device("meta"):
            pooler = kind(inference.model.config).pooler
        dense, same = getattr(pooler, "dense", None), isinstance(getattr(pooler, "activation", None), torch.nn.Tanh)
        auto_pooler = "same" if isinstance(dense, torch.nn.Linear) and same else "other"
    facts: dict[str, Any] = {"pooler": inference.pooler, "max_length": max_length, "auto_pooler": auto_pooler}
    if inference.model.config.model_type == TABLE:
        facts["static"] = True
    if inference.prompt is not None:
        facts["prompt"] = prompt_summary(inference.prompt, inference.tokenizer.mask_token, inference.pooler)
    return facts


def training_card(recipe: Recipe, inference: Inference, facts: dict[str, Any]) -> str:
    """Return the card of the encoder that a training gave. facts: as of `model_card`, but for what `describe` gives."""
    return model_card(recipe, {**describe(inference), **facts})


def model_card(recipe: Recipe, summary: dict[str, Any]) -> str:
    """README.md: metadata between two lines of ---, then Markdown. Of paths only the last part is given.

    summary: what `describe` gives (required), and of the training as far as known: seed; best: {"name", "score", "stage",
    "step"} of the dev evaluation whose weights were kept (None or left out: the last step's; a name that ends in
    " (sample)": on the sample data); encoder: of several candidates the one that was kept; steps; data: one {"name",
    "digest", "rows"} a file, with "stage" where there are several; versions: {package: version}.
    """
    method, model = short_name(recipe.method), recipe.backbone.model
    hub = _HUB_ID.fullmatch(model) is not None and not Path(model).exists()
    meta = {
        "library_name": "sentence-transformers", "pipeline_tag": "sentence-similarity",
        "tags": ["sentence-transformers", "sentence-similarity", "feature-extraction", "stsbench", method],
        **({"base_model": model} if hub and model != "minilm" else {}),
    }
    about = [
        ("method", method), ("recipe", recipe.name), ("backbone", model if hub else _last(model)),
        ("adapter of the backbone", "merged into its weights before the training" if summary.get("adapter") else None),
        ("layers of the backbone that were kept, from 0", ", ".join(map(str, recipe.backbone.layers or ()))),
        ("attention", None if recipe.backbone.attention == "own" else recipe.backbone.attention),
        ("trained in the place of weights", None if (lora := recipe.backbone.lora) is None else str(lora)),
        ("pooler", summary["pooler"]), *prompt_rows(summary.get("prompt")),
        ("longest text, in tokens", summary["max_length"] or ("any" if summary.get("static") else "the model's positions")),
        ("trained on texts of, in tokens", recipe.backbone.max_length), ("precision", recipe.precision),
        *((f"data {item.get('stage', '')}".strip(), _data(item)) for item in summary.get("data", [])),
        ("seed", summary.get("seed", recipe.seed)), *_stage_rows(summary),
        ("steps", summary.get("steps")), ("kept", _kept_weights(summary)),
        ("versions", ", ".join(f"{name} {number}" for name, number in summary.get("versions", {}).items())),
    ]
    rows = [f"| {card_text(key)} | {card_text(value)} |" for key, value in about if value not in (None, "")]
    changed = changes(recipe)
    source = f" as in {card_text(recipe.source.paper)}" if recipe.source and not changed else ""
    described = changed and recipe.description.startswith(f"{changed[0]} with other ")  # the line "Changed from" says it
    chosen = "; the dev score above chose these weights and is no result" if summary.get("best") else ""
    return "\n".join([
        f"---\n{yaml.safe_dump(meta, sort_keys=False, allow_unicode=True)}---\n",
        f"# {card_text(method)} on {card_text(_last(model))}\n",
        f"Recipe {card_text(recipe.name)}.\n",
        *([f"{card_text(recipe.description)}\n"] if recipe.description and not described else []),
        *([f"Changed from {card_text(changed[0])}: {card_text(', '.join(changed[1]))}.\n"] if changed else []),
        f"A sentence encoder trained with stsbench by the method {card_text(method)}{source}.\n",
        "| what | value |", "| --- | --- |", *rows, "",
        f"No measured results yet{chosen}. To measure:\n",
        "```sh\nstsbench eval --model PATH\n```\n",
        "## How to load it\n", *_loading(summary),
        "## The recipe\n",
        "Every choice of this training. What stands under `published` is the paper's result and not this model's.\n",
        _fenced(_recipe_text(recipe)),
    ])


_OURS = """from stsbench.encoders.load import load_encoder

vectors = load_encoder("PATH").encode(texts)
"""
_LIBRARY = """from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer("PATH").encode(texts)
"""
_TABLE = """from model2vec import StaticModel

vectors = StaticModel.from_pretrained("PATH").encode(texts)
"""


def _loading(summary: dict[str, Any]) -> list[str]:
    """Return how each library loads it: a line and a snippet each. summary: as of `describe`."""
    prompt, padded, learned = summary.get("prompt"), padded_length(summary["pooler"]), KINDS.get(summary["pooler"])
    needed, version, more, lacking = "", "", "", ""  # what needs stsbench installed, and what transformers lacks
    if prompt is not None:
        needed, more = "the prompt", " A `prompt` of its own goes directly before the text, inside the template."
        if reasons := beyond_transformers(prompt):
            lacking = f"it knows nothing of {' and '.join(reasons)}"
    elif padded is not None:
        needed, version = "the mean over padding", " (6 or newer)"
    elif learned is not None:
        needed, lacking = f"the {learned.title}", f"none of its models has the {learned.title} that makes them"
    texts = "" if padded is None else f", of texts padded to {padded} tokens"
    if summary.get("static"):
        texts = " (but that model2vec leaves unknown tokens out and cuts texts at 512)"
    lines = [f"PATH is this folder. {'Both' if lacking else 'All three'} give the same vectors{texts}.\n", _python(_OURS)]
    if needed:
        lines.append(
            f"sentence-transformers{version} needs stsbench installed for {needed}, and trust_remote_code=True to import a "
            f"module that is not its own; the folder holds no code.{more}\n"
        )
    if summary.get("static"):
        return [*lines, _python(_LIBRARY), _python(_TABLE)]
    lines.append(_python(_LIBRARY.replace('"PATH"', '"PATH", trust_remote_code=True') if needed else _LIBRARY))
    if lacking:
        return [*lines, f"With transformers alone there are no sentence vectors: {lacking}.\n"]
    alone = transformers_snippet(summary) if prompt is None else prompt_snippet(prompt, bool(summary["auto_pooler"]))
    return [*lines, _python(alone)]


def _python(text: str) -> str:
    return f"```python\n{text}```\n"


def transformers_snippet(summary: dict[str, Any]) -> str:
    """Return Python that turns `texts` into `vectors` with transformers alone. summary: as of `describe`."""
    pooler, auto = summary["pooler"], summary["auto_pooler"]
    kept = pooler == "cls+dense" and auto == "same"
    option = ", add_pooling_layer=False" if auto and not kept else ""
    padded = padded_length(pooler)
    padding = "True" if padded is None else f'"max_length", max_length={padded}'
    lines = [
        "import torch", "from transformers import AutoModel, AutoTokenizer", "",
        'tokenizer = AutoTokenizer.from_pretrained("PATH")',
        f'model = AutoModel.from_pretrained("PATH"{option}).eval()',
        f'batch = tokenizer(texts, padding={padding}, truncation=True, return_tensors="pt")',
        "with torch.no_grad():", "    output = model(**batch)",
    ]
    if padded is not None:
        lines.append("vectors = output.last_hidden_state.mean(1)")
    elif pooler == "cls":
        lines.append("vectors = output.last_hidden_state[:, 0]")
    elif kept:
        lines.append("vectors = output.pooler_output")
    elif pooler == "cls+dense":
        lines.insert(1, "from safetensors.torch import load_file")
        lines += ['head = load_file("PATH/2_Dense/model.safetensors")', "first = output.last_hidden_state[:, 0]",
                  'vectors = torch.tanh(first @ head["linear.weight"].T + head["linear.bias"])']
    else:
        lines.append('real = batch["attention_mask"].unsqueeze(-1)')
        if pooler == "max":
            lines.append('vectors = output.last_hidden_state.masked_fill(real == 0, float("-inf")).amax(1)')
        elif pooler == "last":
            lines += ['last = (batch["attention_mask"] * torch.arange(1, real.shape[1] + 1)).argmax(1)',
                      "vectors = output.last_hidden_state[torch.arange(len(last)), last]"]
        elif pooler == "weighted_mean":
            lines += ["weights = real.cumsum(1) * real",
                      "vectors = (output.last_hidden_state * weights).sum(1) / weights.sum(1)"]
        elif pooler == "cls_avg":
            lines += ["states = output.last_hidden_state", "mean = (states * real).sum(1) / real.sum(1)",
                      "vectors = (states[:, 0] + mean) / 2"]
        else:
            layers = _MEANS[pooler]
            states = [f"output.hidden_states[{layer}]" for layer in layers]
            state = "output.last_hidden_state" if len(layers) == 1 else f"({' + '.join(states)}) / 2"
            lines.append(f"vectors = ({state} * real).sum(1) / real.sum(1)")
    return "\n".join(lines) + "\n"


def _stage_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is to be said of a run that trained one stage alone, and of the run that it went on from."""
    rows, earlier = [], summary.get("from")
    if summary.get("stage"):
        rows.append(("stage trained here", f"{summary['stage']} alone"))
    while earlier:
        where = f"the end of stage {earlier['stage']} (step {earlier['step']:,}) of the run {earlier['run']}"
        training = f"recipe {earlier['recipe']}, seed {earlier['seed']}, weights sha256 {earlier['weights']}"
        rows.append(("went on from", f"{where}, {training}"))
        if earlier["differs"]:
            differs = ", ".join(f"{key} {value}" for key, value in earlier["differs"].items())
            rows.append(("that run's settings, other than in the recipe below", differs))
        earlier = earlier["from"]
    return rows


def _data(item: dict[str, Any]) -> str:
    tested = "; sentences of the STS data, test sets included: scores there are transductive" if item.get("texts_of") else ""
    return f"{_last(str(item['name']))}, {counted(item['rows'], 'row')}, sha256 {item['digest']}{tested}"


def _kept_weights(summary: dict[str, Any]) -> str:
    """Return which weights these are, and why."""
    best, encoder = summary.get("best"), f" of {summary['encoder']}" if "encoder" in summary else ""
    if not best:
        return f"the weights{encoder} of {summary.get('exported', 'the last step')}"
    name = best["name"].removesuffix(" (sample)")
    sample = " (sample data: not comparable with published numbers)" if name != best["name"] else ""
    digits = 2 if abs(best["score"]) >= 1 else 4  # a held-out loss may be small
    return f"the weights{encoder} of step {best['step']:,}, the best on {name}: {best['score']:.{digits}f}{sample}"


def _exists(text: str) -> bool:
    try:
        return "/" in text and Path(text).exists()
    except OSError:  # too long for a path
        return False


def _last(path: str) -> str:
    return Path(path).name or path


def _recipe_text(recipe: Recipe) -> str:
    """Return the recipe as YAML, files and folders by their last part."""

    def short(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: short(part) for key, part in value.items()}
        if isinstance(value, list):
            return [short(part) for part in value]
        path = isinstance(value, str) and (value.startswith(("/", "~", "./", "../")) or _exists(value))
        return _last(value) if path else value

    return yaml.safe_dump(short(recipe.model_dump(mode="json")), sort_keys=False, allow_unicode=True)


def _fenced(text: str) -> str:
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    return f"{fence}yaml\n{text}{fence}\n"


def prompt_summary(prompt: Prompt, mask_token: str | None, pooler: str = "mask") -> dict[str, Any]:
    """Return `prompt.settings()` with "filled" (what stands before and behind a text), "mask_last" (None: the last token is
    read) and, with the head transform, its "activation" and "eps"."""
    filled = parse_template(prompt.template, mask_token, pooler == "mask")
    last = filled.mask_last if pooler == "mask" else None
    summary = {**prompt.settings(), "filled": (filled.before, filled.after), "mask_last": last}
    if summary["head"] == "transform":
        summary |= {key: getattr(prompt.head, key) for key in ("activation", "eps")}
    return summary


def prompt_rows(summary: dict[str, Any] | None) -> list[tuple[str, Any]]:
    """Return rows of the card's table. summary: as of `prompt_summary`, None for an encoder without a prompt."""
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


def beyond_transformers(summary: dict[str, Any]) -> list[str]:
    """Return the features of a prompt that transformers alone does not reproduce; none where the vector is that of a
    filled template's mask."""
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
    """Return Python that turns `texts` into `vectors` with transformers alone.

    summary: as of `prompt_summary`; pooling_layer: AutoModel makes one.
    """
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
    if summary["full_stop"] == "prompteol":
        lines += ["""stopped = [text.replace('"', "'") for text in stopped]""",
                  """stopped = [text[:-1] + "." if text.endswith("?") else text for text in stopped]"""]
    lines += [
        f"filled = [{before!r} + text + {after!r} for text in {source}]",
        'batch = tokenizer(filled, padding=True, return_tensors="pt")  # not truncated: that would cut the template',
        "with torch.no_grad():", "    states = model(**batch).last_hidden_state",
    ]
    if summary["mask_last"] is not None:
        lines.append('masks = (batch["input_ids"] == tokenizer.mask_token_id).long()')
    if summary["mask_last"] is None:
        lines.append('places = batch["attention_mask"].cumsum(1).argmax(1)  # the last token')
    elif summary["mask_last"]:
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
