"""The prompts of a model that a text's role and task choose among: `--prompt none|card|mteb`.

They are those of the model's card, or those that mteb's loader of the model passes, read off its arguments alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stsbench.data.fetch.mteb import undisturbed
from stsbench.encoders.traits import ROLES
from stsbench.errors import EncoderError

_WEB_SEARCH = "Given a web search query, retrieve relevant passages that answer the query"
_SIMILAR = "Retrieve semantically similar text."
_BGE = {"query": "Represent this sentence for searching relevant passages: "}
_NOMIC = {
    "query": "search_query: ", "document": "search_document: ", "Clustering": "clustering: ",
    **dict.fromkeys(
        ("Classification", "MultilabelClassification", "PairClassification", "STS", "Summarization"), "classification: "
    ),
}
_GEMMA = {
    "query": "task: search result | query: ", "document": "title: none | text: ",
    **dict.fromkeys(("BitextMining", "Reranking"), "task: search result | query: "),
    **dict.fromkeys(("Classification", "MultilabelClassification"), "task: classification | query: "),
    **dict.fromkeys(("STS", "PairClassification"), "task: sentence similarity | query: "),
    "Clustering": "task: clustering | query: ", "Summarization": "task: summarization | query: ",
    "InstructionRetrieval": "task: code retrieval | query: ",
}


@dataclass(frozen=True)
class Prompts:
    """A model's prompts. by_name: those that a text's role and task choose among, empty where all texts have the same;
    default: the prompt of all other texts, "" for none; notes: what a user should know, a line each."""

    by_name: Mapping[str, str] = field(default_factory=dict)
    default: str = ""
    notes: tuple[str, ...] = ()


# Hub ids -> the prompts that their cards describe: names as in mteb's order, and a default for all other texts. Parts of a
# name that Ollama leaves out are optional, for models behind a server (`served_card`): no such id is on the Hub.
# e5: "query: " before both sides of a symmetric task, and before features for a classifier. Qwen3 and e5's instruct models:
# the card's form with the instruction that their authors registered for STS in mteb. nomic: as its
# authors registered it there.
_CARDS = {
    r"intfloat/(multilingual-)?e5-(small|base|large)(-v2|-unsupervised)?":
        Prompts({"query": "query: ", "document": "passage: "}, "query: "),
    r"intfloat/(multilingual-e5-large-instruct|e5-mistral-7b-instruct)":
        Prompts({"query": f"Instruct: {_WEB_SEARCH}\nQuery: ", "STS": f"Instruct: {_SIMILAR}\nQuery: "}),
    r"Qwen/Qwen3-Embedding(-(0\.6B|4B|8B))?":
        Prompts({"query": f"Instruct: {_WEB_SEARCH}\nQuery:", "STS": f"Instruct: {_SIMILAR}\nQuery:"}),
    r"nomic-ai/nomic-embed-text(-v1(\.5|-unsupervised)?)?": Prompts(_NOMIC),
    r"BAAI/bge-((small|base|large)-en(-v1\.5)?|large)": Prompts(_BGE),
    r"google/embeddinggemma(-300m)?": Prompts(_GEMMA),
    # ids without an owner, for models behind servers only: on the Hub, the folder stores these prompts
    r"(nomic-ai-)?nomic-embed-text-v2-moe": Prompts(_NOMIC),
    r"(mixedbread-ai-)?mxbai-embed-large(-v1)?": Prompts(_BGE),
    r"(snowflake-)?snowflake-arctic-embed(-xs|-s|-m|-l|-m-long|-m-v1\.5)?": Prompts(_BGE),
    r"(snowflake-)?snowflake-arctic-embed(2|-[ml]-v2(\.0)?)": Prompts({"query": "query: "}),
}
# Suffixes that servers add to a model's name: how its weights are stored, and what runs them.
_STORED_AS = re.compile(
    r"([-.](latest|main|default|model|gguf|ggml|mlx|onnx|awq|gptq|vllm|qat|dwq|ud|i1|imatrix|(un)?quantized|"
    r"(b?f|fp|int|i?q)\d+(-[0-9klmsx]+)*|\d-?bit))+$"
)
_SIZE = re.compile(r"-\d+(\.\d+)?[mb](?=-|$)")


def choose_prompts(model: str, choice: str, stored: Mapping[str, str], default: str | None = None) -> Prompts:
    """Return the prompts of `--prompt` CHOICE (none, card, mteb) for a model, a Hub id or a folder. stored: the folder's
    prompts by name; default: the name of the one before all other texts.

    Cards are found by the Hub id alone: a folder's name does not say which model it holds, so a copy has what it stores.
    EncoderError: mteb loads this model by code whose prompts cannot be known without loading it.
    """
    if choice == "none":
        return Prompts()
    of_folder = Prompts(stored if any(stored.values()) else {}, stored.get(default or "", ""))
    hub_id = "" if Path(model).expanduser().exists() else model
    if choice == "mteb" and hub_id:
        passed = passed_by_mteb(hub_id)
        if passed is not None:
            return Prompts(passed, passed.get(default or "", ""))
    card = next((card for pattern, card in _CARDS.items() if choice == "card" and re.fullmatch(pattern, hub_id)), None)
    if card is None:
        return replace(of_folder, notes=_doubts(model, of_folder))
    written = {name: text for name, text in of_folder.by_name.items() if text}
    added = [name for name in card.by_name if name not in written]
    note = f"{model}: its folder does not store the prompts {', '.join(added)}: they are those of its card"
    prompts = Prompts({**of_folder.by_name, **card.by_name, **written}, of_folder.default or card.default)
    return replace(prompts, notes=(note,) if added else ())


def served_card(name: str) -> Prompts | None:
    """Return the prompts of the card of a model that a server calls `name`; None where none is known.

    `name` is the Hub's id, or what Ollama, LM Studio and others make of it: without the owner or with another one, in a
    folder, in lower case, after `text-embedding-`, with a tag, a size or how its weights are stored.
    """
    name = re.sub(r"(?<=[^/])@.*", "", name.replace("\\", "/").rstrip("/").lower())
    if of_cache := re.search(r"models--([^/]+)--([^/]+)", name):  # a folder of the Hub's cache
        name = of_cache[2]
    name = re.sub("[:_]+", "-", name.rpartition("/")[2]).removeprefix("text-embedding-")
    name = _STORED_AS.sub("", name)
    for spelling in (name, _SIZE.sub("", name)):
        for pattern, card in _CARDS.items():
            owner, _, model = pattern.rpartition("/")
            if re.fullmatch(f"({owner}-)?({model})", spelling, re.IGNORECASE):
                return card
    return None


def _doubts(model: str, prompts: Prompts) -> tuple[str, ...]:
    """Return warnings of texts read in a way that a user may not expect and sentence-transformers does not mention."""
    doubts, by_name = [], prompts.by_name
    passages = next((name for name in ("passage", "corpus") if by_name.get(name)), None)
    if passages and not any(by_name.get(name) for name in ("document", "Retrieval-document")):
        doubts.append(f"warning: {model} stores a prompt {passages!r} and none called 'document': documents are read "
                      "without a prompt, as sentence-transformers reads them")
    if prompts.default and "STS" not in by_name:
        doubts.append(f"warning: {model} stores no prompt for STS: before such texts stands its default prompt, "
                      f"{prompts.default!r}")
    return tuple(doubts)


class Instructions(Mapping[str, str]):
    """The prompts of a model that takes an instruction for each task, made by mteb's code when they are looked up.

    Names are mteb's tasks and types of task, alone or with -query or -document. `described`: all that decides the prompts.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        from mteb import __version__
        from mteb.models.instruct_wrapper import InstructSentenceTransformerModel

        self._model: Any = object.__new__(InstructSentenceTransformerModel)  # without its weights
        for name in ("instruction_template", "prompts_dict"):
            setattr(self._model, name, arguments.get(name))
        if (order := arguments.get("prompt_priority")) is not None:
            from mteb.models.abs_encoder import PromptSource

            self._model.prompt_priority = [PromptSource.from_str(source) for source in order]
        self._passages = bool(arguments.get("apply_instruction_to_passages", True))
        shown = self._model.format_instruction("{instruction}") if self._model.instruction_template else "{instruction}"
        self.described = {"mteb": __version__, "template": shown, "documents": self._passages,
                          "instructions": dict(arguments.get("prompts_dict") or {})}

    def __getitem__(self, key: str) -> str:
        task, _, role = key.rpartition("-") if key.endswith(tuple(f"-{role}" for role in ROLES)) else (key, "", "")
        metadata = _metadata(task)
        if metadata is None:
            raise KeyError(key)
        from mteb.types import PromptType

        if role == "document" and not self._passages:
            return ""
        with undisturbed():
            return str(self._model.get_task_instruction(metadata, PromptType(role) if role else None) or "")

    def __contains__(self, key: object) -> bool:
        name = str(key)
        return _metadata(name.rpartition("-")[0] if name.endswith(tuple(f"-{role}" for role in ROLES)) else name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(_types())

    def __len__(self) -> int:
        return len(_types())


@cache
def _types() -> dict[str, str]:
    """Return mteb's types of task -> the name of one such task, whose class has the instruction of its type."""
    from mteb.get_tasks import TASK_LIST

    return {task.metadata.type: task.metadata.name for task in reversed(TASK_LIST) if getattr(task, "abstask_prompt", "")}


@cache
def _metadata(name: str) -> Any:
    """Return mteb's metadata of a task; for a type of task, metadata without its own instruction; None for other names."""
    if name in _types():
        return SimpleNamespace(name=_types()[name], type=name, prompt=None)
    with undisturbed() as mteb:
        try:
            return mteb.get_task(name).metadata
        except KeyError:
            return None


def passed_by_mteb(hub_id: str) -> Mapping[str, str] | None:
    """Return the prompts that mteb's loader of this model passes; None where mteb leaves them to the model's folder.

    EncoderError, one line: mteb loads the model by code of its own.
    """
    with undisturbed():
        from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
        from mteb.models.model_implementations import MODEL_REGISTRY
        from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper
    meta = MODEL_REGISTRY.get(hub_id)
    if meta is None:
        return None
    arguments, loader = meta.loader_kwargs, meta.loader
    if loader is SentenceTransformerEncoderWrapper:
        prompts: Mapping[str, str] | None = arguments.get("model_prompts")
        return prompts
    if loader is InstructSentenceTransformerModel:
        return Instructions(arguments)
    if getattr(loader, "__name__", "") == "q3e_instruct_loader":  # Qwen3: an InstructSentenceTransformerModel of its making
        template = sys.modules[loader.__module__].instruction_template
        return Instructions({"instruction_template": template, "apply_instruction_to_passages": False})
    name = getattr(loader, "__name__", loader)
    raise EncoderError(f"--prompt mteb: mteb loads {hub_id} by code of its own ({name}), and what that passes cannot be "
                       "told from outside: leave --prompt out")
