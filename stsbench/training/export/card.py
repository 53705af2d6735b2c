"""The page of a trained model: what it is, what it was trained on, how to load it in three libraries, its recipe."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import yaml

from stsbench.encoders.forward.pooling import padded_length
from stsbench.encoders.forward.token_pooler_files import KINDS
from stsbench.publish.model_card import plain
from stsbench.training.api.method import Inference
from stsbench.training.export.card_prompt import prompt_loading, prompt_rows, prompt_summary
from stsbench.training.recipes.methods import short_name
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.recipes.recipes import changes
from stsbench.wording import counted

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_MEANS = {"mean": (-1,), "first_last:embeddings": (0, -1), "first_last:layer1": (1, -1), "last2": (-2, -1)}


def describe(inference: Inference, max_length: int | None = None) -> dict[str, Any]:
    """What the card says of an encoder: pooler, max_length (None: the model's limit), and how AutoModel pools it.

    auto_pooler: "" (AutoModel makes no pooler layer), "same" (it makes the one that a kept head is stored as), or "other".
    prompt: that of the pooler mask (card_prompt.prompt_summary), only with one. Random states are not touched.
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
    if inference.prompt is not None:
        facts["prompt"] = prompt_summary(inference.prompt, inference.tokenizer.mask_token)
    return facts


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
        ("pooler", summary["pooler"]), *prompt_rows(summary.get("prompt")),
        ("longest text, in tokens", summary["max_length"] or "the model's positions"),
        ("trained on texts of, in tokens", recipe.backbone.max_length), ("precision", recipe.precision),
        *((f"data {item.get('stage', '')}".strip(), _data(item)) for item in summary.get("data", [])),
        ("seed", summary.get("seed", recipe.seed)), *_stage_rows(summary),
        ("steps", summary.get("steps")), ("kept", _kept(summary)),
        ("versions", ", ".join(f"{name} {number}" for name, number in summary.get("versions", {}).items())),
    ]
    rows = [f"| {plain(key)} | {plain(value)} |" for key, value in about if value not in (None, "")]
    changed = changes(recipe)
    source = f" as in {plain(recipe.source.paper)}" if recipe.source and not changed else ""
    described = changed and recipe.description.startswith(f"{changed[0]} with other ")  # the next line says it
    chosen = "; the dev score above chose these weights and is no result" if summary.get("best") else ""
    return "\n".join([
        f"---\n{yaml.safe_dump(meta, sort_keys=False, allow_unicode=True)}---\n",
        f"# {plain(method)} on {plain(_last(model))}\n",
        f"Recipe {plain(recipe.name)}.\n",
        *([f"{plain(recipe.description)}\n"] if recipe.description and not described else []),
        *([f"Changed from {plain(changed[0])}: {plain(', '.join(changed[1]))}.\n"] if changed else []),
        f"A sentence encoder trained with stsbench by the method {plain(method)}{source}.\n",
        "| what | value |", "| --- | --- |", *rows, "",
        f"No measured results yet{chosen}. To measure:\n",
        "```sh\nstsbench eval --model PATH\n```\n",
        "## How to load it\n", *_loading(summary),
        "## The recipe\n",
        "Every choice of this training. What stands under `published` is the paper's result and not this model's.\n",
        _fenced(_shown(recipe)),
    ])


_OURS = """from stsbench.encoders.load import load_encoder

vectors = load_encoder("PATH").encode(texts)
"""
_LIBRARY = """from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer("PATH").encode(texts)
"""


def _loading(summary: dict[str, Any]) -> list[str]:
    """How each library loads it: a line and a snippet each. summary: as of `describe`."""
    if summary["pooler"] == "mask":
        return prompt_loading(summary["prompt"], bool(summary["auto_pooler"]), _OURS, _LIBRARY)
    padded = padded_length(summary["pooler"])
    library = _LIBRARY.replace('"PATH"', '"PATH", trust_remote_code=True')
    if padded is not None:
        return [
            f"PATH is this folder. All three give the same vectors, of texts padded to {padded} tokens.\n",
            f"```python\n{_OURS}```\n",
            "sentence-transformers (6 or newer) needs stsbench installed for the mean over padding, and "
            "trust_remote_code=True to import a module that is not its own; the folder holds no code.\n",
            f"```python\n{library}```\n", f"```python\n{transformers_snippet(summary)}```\n",
        ]
    learned = KINDS.get(summary["pooler"])
    if learned is None:
        snippets = [_OURS, _LIBRARY, transformers_snippet(summary)]
        return ["PATH is this folder. All three give the same vectors.\n", *(f"```python\n{text}```\n" for text in snippets)]
    return [
        "PATH is this folder. Both give the same vectors.\n", f"```python\n{_OURS}```\n",
        f"sentence-transformers needs stsbench installed for the {learned.title}, and trust_remote_code=True to import a "
        "module that is not its own; the folder holds no code.\n",
        f"```python\n{library}```\n",
        f"With transformers alone there are no sentence vectors: none of its models has the {learned.title} that makes "
        "them.\n",
    ]


def transformers_snippet(summary: dict[str, Any]) -> str:
    """Python that turns `texts` into `vectors` with transformers alone. summary: as of `describe`."""
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
    """What is to be said of a run that trained one stage alone, and of the run that it went on from."""
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


def _kept(summary: dict[str, Any]) -> str:
    """Which weights these are, and why."""
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


def _shown(recipe: Recipe) -> str:
    """The recipe as YAML, files and folders by their last part."""

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
