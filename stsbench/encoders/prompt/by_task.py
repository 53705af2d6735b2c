"""The prompts that a text's role and task are to choose among: `--prompt none|card|mteb`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

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
    """by_name: what a text's role and task choose among, none where all texts are read alike; default: before a text that
    has none of them, ""; notes: what a user should know, a line each."""

    by_name: Mapping[str, str] = field(default_factory=dict)
    default: str = ""
    notes: tuple[str, ...] = ()


# Hub ids -> what their cards say in words: names as in mteb's order, and what all other texts are read behind. Where Ollama
# leaves a part of the name out, so may whoever asks for a model behind a server (`served_card`): no such id is on the Hub.
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
    # without an owner: behind servers alone, since on the Hub the folder stores them
    r"(nomic-ai-)?nomic-embed-text-v2-moe": Prompts(_NOMIC),
    r"(mixedbread-ai-)?mxbai-embed-large(-v1)?": Prompts(_BGE),
    r"(snowflake-)?snowflake-arctic-embed(-xs|-s|-m|-l|-m-long|-m-v1\.5)?": Prompts(_BGE),
    r"(snowflake-)?snowflake-arctic-embed(2|-[ml]-v2(\.0)?)": Prompts({"query": "query: "}),
}
# What servers write behind a model's name: how its weights are stored, and by what they are run.
_STORED_AS = re.compile(
    r"([-.](latest|main|default|model|gguf|ggml|mlx|onnx|awq|gptq|vllm|qat|dwq|ud|i1|imatrix|(un)?quantized|"
    r"(b?f|fp|int|i?q)\d+(-[0-9klmsx]+)*|\d-?bit))+$"
)
_SIZE = re.compile(r"-\d+(\.\d+)?[mb](?=-|$)")


def prompts_of(model: str, choice: str, stored: Mapping[str, str], default: str | None = None) -> Prompts:
    """What `--prompt` CHOICE (none, card, mteb) means for a model, its Hub id or its folder; stored: the folder's, by name,
    the one called `default` before every text.

    A card is known by the Hub id alone: a folder's name says nothing of what lies in it, so that a copy has what it stores.
    EncoderError: mteb loads this model by code whose prompts cannot be told without loading it.
    """
    if choice == "none":
        return Prompts()
    of_folder = Prompts(stored if any(stored.values()) else {}, stored.get(default or "", ""))
    hub_id = "" if Path(model).expanduser().exists() else model
    if choice == "mteb" and hub_id:
        from stsbench.encoders.prompt.mteb_prompts import passed_by_mteb

        passed = passed_by_mteb(hub_id)
        if passed is not None:
            return Prompts(passed, passed.get(default or "", ""))
    card = next((card for pattern, card in _CARDS.items() if choice == "card" and re.fullmatch(pattern, hub_id)), None)
    return replace(of_folder, notes=_doubts(model, of_folder)) if card is None else _with_card(model, of_folder, card)


def served_card(name: str) -> Prompts | None:
    """The prompts of the card of a model that a server calls `name`; None where none is known.

    It is the Hub's id, or what Ollama, LM Studio and others make of it: without the owner or behind another one, in a
    folder, in lower case, behind `text-embedding-`, with a tag, a size or how its weights are stored.
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


def _with_card(model: str, of_folder: Prompts, card: Prompts) -> Prompts:
    """What the folder stores, and of the card what it does not."""
    written = {name: text for name, text in of_folder.by_name.items() if text}
    added = [name for name in card.by_name if name not in written]
    note = f"{model}: its folder does not store the prompts {', '.join(added)}: they are those of its card"
    prompts = Prompts({**of_folder.by_name, **card.by_name, **written}, of_folder.default or card.default)
    return replace(prompts, notes=(note,) if added else ())


def _doubts(model: str, prompts: Prompts) -> tuple[str, ...]:
    """Where sentence-transformers says nothing, and a user may expect something else."""
    doubts, by_name = [], prompts.by_name
    passages = next((name for name in ("passage", "corpus") if by_name.get(name)), None)
    if passages and not any(by_name.get(name) for name in ("document", "Retrieval-document")):
        doubts.append(f"warning: {model} stores a prompt {passages!r} and none called 'document': documents are read "
                      "without a prompt, as sentence-transformers reads them")
    if prompts.default and "STS" not in by_name:
        doubts.append(f"warning: {model} stores no prompt for STS: before such texts stands its default prompt, "
                      f"{prompts.default!r}")
    return tuple(doubts)
