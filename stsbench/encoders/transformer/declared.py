"""The settings that a model folder declares (pooler, limits, stored prompts), read as sentence-transformers reads them;
other kinds of model are refused.

[Transformer, Pooling or a learned pooler of ours] with or without Normalize runs through our own forward pass, if the
transformer is of a family for which both are known to give equal vectors; sentence-transformers runs all else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stsbench.encoders.forward.pooling import is_class, kind_of_module
from stsbench.encoders.model_folder import check_inside, read_settings
from stsbench.encoders.transformer.exported import PROMPT
from stsbench.errors import EncoderError
from stsbench.parsing import read_json

_LEGACY = {  # sentence-transformers before version 6 stored one switch per mode
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
POOLING_MODES = {"cls": "cls", "mean": "mean", "max": "max", "lasttoken": "last", "weightedmean": "weighted_mean"}
# model_type of the transformers whose vectors our forward passes compute, as tests/encoders/test_folder_kinds.py shows;
# the first eight also with a class of the folder's own, if that is trusted
_WHATEVER_CLASS = {"bert", "roberta", "xlm-roberta", "camembert", "distilbert", "mpnet", "electra", "albert"}
_TABLES = {"data2vec-text", "deberta-v2", "ernie", "gpt2", "opt"}  # tables of positions, which bound a text's length
ROTARY = {
    "eurobert", "gemma", "gemma2", "gemma3_text", "gpt_neox", "granite", "jina_embeddings_v3", "llama", "mistral",
    "modernbert", "nomic_bert", "olmo2", "phi3", "qwen2", "qwen3", "smollm3",
}
_FAMILIES = _WHATEVER_CLASS | _TABLES | ROTARY | {"t5", "mt5", "umt5"}
_BY_LENGTH = {"dynamic", "longrope"}  # rotary positions whose angles differ in texts beyond the model's positions
_LIMITS = tuple(  # where sentence-transformers keeps max_seq_length, and kept it once
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_USUAL = {  # settings of those files that change nothing
    "max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name", "unpad_inputs",
}
ROLE_PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}  # the library takes the first stored
BY_ROLE = ("query_length", "document_length", "query_expansion")  # settings not in _USUAL: texts of a role differ
_TEXT_ONLY = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
_OTHER_KINDS = {  # model_type in config_sentence_transformers.json -> what it is
    "SparseEncoder": "a sparse encoder", "CrossEncoder": "a cross-encoder",
    "MultiVectorEncoder": "a late-interaction model", "ColBERT": "a late-interaction model",
}
_OTHER_MODULES = {
    "SpladePooling": "a sparse encoder", "MLMTransformer": "a sparse encoder", "SparseAutoEncoder": "a sparse encoder",
    "CSRSparsity": "a sparse encoder", "SparseStaticEmbedding": "a sparse encoder", "IDF": "a sparse encoder",
    "LogitScore": "a cross-encoder", "MultiVectorMask": "a late-interaction model",
    "TokenPooling": "a late-interaction model",
}
_TOKENS = "token_embeddings"
TABLE = "model2vec"  # the model_type of a table of token vectors
_TOKENS_AT_MOST = 1_000_000  # beyond it a model_max_length means that there is none


@dataclass(frozen=True)
class Declared:
    """What the files of a model folder declare."""

    transformer: Path | None  # the folder of the transformers model, None if the first module is another kind
    modules: tuple[str, ...] = ()  # the class names of modules.json; empty: not a sentence-transformers folder
    pooler: str | None = None  # of POOLERS; None: the user's choice, or sentence-transformers has to run the modules
    normalize: bool = False  # the last step is Normalize
    max_length: int | None = None  # tokens, special ones included
    prompts: Mapping[str, str] = field(default_factory=dict)  # name -> text
    default_prompt: str | None = None  # the name of the prompt before every text
    pools: bool = True  # some module pools a text's tokens into one vector
    truncate_dim: int | None = None
    similarity: str | None = None  # None: the cosine
    own_class: bool = False  # its config.json names a class of the folder's own, which our passes do not know
    beyond_positions: bool = False  # max_length exceeds the positions of a model without a table of them
    static: bool = False  # a table of model2vec without modules.json
    unusual: tuple[str, ...] = ()  # settings of the transformer that our own forward pass does not know
    foreign: str | None = None  # the type of a module that is code of the folder's own
    routes: tuple[str, ...] = ()  # the routes of a Router, and tasks that it maps to them
    default_route: str | None = None  # its route for texts without a task
    adapters: tuple[str, ...] = ()  # the tasks that a module of the folder's own has an adapter for

    @property
    def library_only(self) -> tuple[str, ...]:
        """Return those of `unusual` that only sentence-transformers reads, so that transformers would ignore them."""
        return tuple(name for name in self.unusual if name not in ("truncation_side", "quantization_config", "is_decoder"))


def read_declared(folder: Path) -> Declared:
    """Return what a folder with or without modules.json declares.

    EncoderError, one line: broken files, and a sparse encoder, a cross-encoder or a late-interaction model.
    """
    settings = read_settings(folder / "config_sentence_transformers.json")
    modules = _modules(folder)
    kinds = tuple(kind.rpartition(".")[2] for kind, _ in modules)
    _refuse_other_kinds(folder, settings, kinds)
    if not modules and is_static(folder):
        normalize = read_settings(folder / "config.json").get("normalize", False)
        if not isinstance(normalize, bool):
            raise EncoderError(f"{folder / 'config.json'}: normalize {normalize!r} is neither true nor false")
        return Declared(None, ("StaticEmbedding", *(["Normalize"] if normalize else [])), normalize=normalize, static=True)
    if not modules:
        return Declared(folder, max_length=_length(folder))
    path = folder / "config_sentence_transformers.json"
    prompts = settings.get("prompts") or {}
    default = settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values() if text is not None):
        raise EncoderError(f"{path}: prompts must be names with their texts")
    if default is not None and default not in prompts:
        raise EncoderError(f"{path}: default_prompt_name {default!r} is not among its prompts ({', '.join(prompts)})")
    cut = settings.get("truncate_dim")
    if cut is not None and (not isinstance(cut, int) or isinstance(cut, bool) or cut < 1):
        raise EncoderError(f"{path}: truncate_dim {cut!r} is not a positive number")
    similarity = settings.get("similarity_fn_name")
    tokens = kinds[0] == "Transformer" and library_settings(modules[0][1]).get("module_output_name", _TOKENS) == _TOKENS
    declared = Declared(
        _transformer(folder, modules), kinds, normalize=kinds[-1] == "Normalize",
        prompts={name: text or "" for name, text in prompts.items()}, default_prompt=default,
        pools=not tokens or any("Pooling" in kind for kind in kinds) or any(not _is_librarys(kind) for kind, _ in modules),
        truncate_dim=cut,
        similarity=None if similarity == "cosine" else similarity,
        foreign=next((kind for kind, _ in modules if not _is_librarys(kind)), None), adapters=_adapters(folder),
    )
    return _native(folder, modules, _with_routes(modules, declared))


def is_static(folder: Path) -> bool:
    """Return whether a folder holds a table of token vectors, of model2vec or a StaticEmbedding, and no transformer."""
    config = read_settings(folder / "config.json")
    architectures = config.get("architectures")
    if config.get("model_type") == TABLE or (isinstance(architectures, list) and "StaticModel" in architectures):
        return True
    stored = _tensors(folder / "model.safetensors")
    return "model_type" not in config and ("embeddings" in stored or stored == ["embedding.weight"])


def first_table(folder: Path) -> Path | None:
    """Return the folder of the table if the first module of modules.json is one; None for another module."""
    kind, path = _modules(folder)[0]
    return path if kind.rpartition(".")[2] == "StaticEmbedding" else None


def _tensors(file: Path) -> list[str]:
    """Return the names in a .safetensors file; none where there is no such file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "np") as stored:
            return list(stored.keys())
    except (OSError, SafetensorError):
        return []


def _with_routes(modules: list[tuple[str, Path]], declared: Declared) -> Declared:
    """Return `declared` with the routes of a Router, and the tasks that its settings map to them."""
    path = next((path for kind, path in modules if kind.rpartition(".")[2] in ("Router", "Asym")), None)
    if path is None:
        return declared
    stored = read_settings(path / "router_config.json") or read_settings(path / "config.json")
    settings = stored.get("parameters") or {}
    names = list(stored.get("structure") or {})
    mapped = [task for task in _tasks(settings.get("route_mappings")) if task]
    first = names[0] if names and settings.get("allow_empty_key", True) else None
    default = settings.get("default_route") or first
    return replace(declared, routes=tuple(dict.fromkeys([*names, *mapped])), default_route=default)


def _tasks(mappings: Any) -> list[str]:
    """Return the tasks in a Router's route_mappings, whose keys are a task and a modality."""
    keys = [read for key in mappings or {} if isinstance(read := _literal(key), tuple) and read]
    return [key[0] for key in keys if isinstance(key[0], str)]


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None


def _adapters(folder: Path) -> tuple[str, ...]:
    """Return the names in `lora_adaptations` of config.json (jina-embeddings-v3) where a module is given the name of a
    task."""
    entries = read_json(folder / "modules.json", EncoderError)
    named = read_settings(folder / "config.json").get("lora_adaptations")
    takes = any("task" in (entry.get("kwargs") or ()) for entry in entries)
    return tuple(map(str, named)) if takes and isinstance(named, list) else ()


def _is_librarys(kind: str) -> bool:
    """Return whether a module is sentence-transformers' or ours, not the folder's own code, which may pool under any
    name."""
    return kind.startswith(("sentence_transformers.", "stsbench."))


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """Return (type, folder) of each entry of modules.json; none without one."""
    path = folder / "modules.json"
    if not path.is_file():
        return []
    try:
        modules = [(str(module["type"]), str(module["path"])) for module in read_json(path, EncoderError)]
    except (KeyError, TypeError) as error:
        raise EncoderError(f"cannot read {path}: each entry needs a type and a path ({error!r})") from error
    if not modules:
        raise EncoderError(f"{path} names no module")
    for _, module in modules:
        check_inside(folder, module, "modules.json")
    for kind, module in modules:
        library = kind.startswith("sentence_transformers.") and not kind.endswith((".Normalize", ".Transformer"))
        if module and library and not _stored(folder / module):
            lacking = folder / module / "config.json"
            raise EncoderError(f"{lacking} is missing, and {path} names its module ({kind}): fetch the whole model")
    return [(kind, folder / subfolder) for kind, subfolder in modules]


def _stored(module: Path) -> bool:
    """Return whether a module's folder holds a file that every kind but Normalize stores; an incomplete copy may lack it."""
    return any(path.name.endswith("config.json") or path.name == "tokenizer.json" for path in module.glob("*.json"))


def _refuse_other_kinds(folder: Path, settings: Mapping[str, Any], kinds: tuple[str, ...]) -> None:
    config = read_settings(folder / "config.json")
    architectures = config.get("architectures") or []
    architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    refused = [kind for kind in kinds if kind in _OTHER_MODULES]
    declared = {
        f"model_type {settings.get('model_type')}": _OTHER_KINDS.get(str(settings.get("model_type"))),
        f"the modules {', '.join(refused)}": _OTHER_MODULES[refused[-1]] if refused else None,
    }
    if not kinds and (architecture.endswith("ForSequenceClassification") or "sentence_transformers" in config):
        declared[f"architecture {architecture}"] = "a cross-encoder or another classifier"
    late = "colbert" in architecture.lower() or architecture.endswith("ForRetrieval")
    if late or (folder / "artifact.metadata").is_file():
        declared[f"architecture {architecture}"] = "a late-interaction model"
    for what, kind in declared.items():
        if kind:
            raise EncoderError(f"{folder} is {kind} ({what}), not an encoder with one dense vector a text")
    if settings.get("model_type") not in (None, "SentenceTransformer"):
        path = folder / "config_sentence_transformers.json"
        raise EncoderError(f"{path}: the model_type {settings['model_type']!r} is unknown")


def _transformer(folder: Path, modules: list[tuple[str, Path]]) -> Path | None:
    kind, path = modules[0]
    library = kind.startswith("sentence_transformers.") and kind.endswith(".Transformer")  # not a class of the folder's own
    plain = library or is_class(kind, PROMPT)  # a prompt's module has its model in the same folder
    stored = any((path / name).is_file() for name in ("config.json", "adapter_config.json"))
    return path if plain and stored else None


def _native(folder: Path, modules: list[tuple[str, Path]], declared: Declared) -> Declared:
    """Return `declared` with the token limit, and the pooler where our own forward pass computes what the modules do."""
    kinds, transformer = declared.modules, declared.transformer
    if transformer is None:
        return declared
    declared = replace(declared, max_length=_length(transformer))
    learned = kind_of_module(modules[1][0]) if len(modules) > 1 and transformer == folder else None
    native = (learned or kinds[1:2] == ("Pooling",)) and kinds[2:] in ((), ("Normalize",)) and not declared.foreign
    config = read_settings(transformer / "config.json")
    family, longer = config.get("model_type") in _FAMILIES, _beyond(transformer, config)
    declared = replace(
        declared, unusual=tuple(_unusual(transformer)), beyond_positions=longer and not _turns_by_length(config),
        own_class=bool(config.get("auto_map")) and config.get("model_type") not in _WHATEVER_CLASS,
    )
    if longer and _turns_by_length(config):
        return declared
    if not native or declared.unusual or not (family or learned) or (transformer / "adapter_config.json").is_file():
        return declared
    return replace(declared, pooler=learned.pooler if learned else _pooler(modules[1][1]))


def _beyond(transformer: Path, config: Mapping[str, Any]) -> bool:
    """Return whether max_seq_length exceeds the positions of a model without a table of them, which can read further."""
    limit, positions = library_settings(transformer).get("max_seq_length"), config.get("max_position_embeddings")
    longer = isinstance(limit, int) and isinstance(positions, int) and limit > positions
    return longer and config.get("model_type") in ROTARY


def _turns_by_length(config: Mapping[str, Any]) -> bool:
    """Return whether a long text changes the rotary positions of all texts in its batch."""
    stated = [config.get(name) for name in ("rope_parameters", "rope_scaling")]
    settings = [part for rope in stated if isinstance(rope, dict) for part in (rope, *rope.values())]
    return any({part.get("rope_type"), part.get("type")} & _BY_LENGTH for part in settings if isinstance(part, dict))


def _unusual(transformer: Path) -> Iterator[str]:
    """Yield the names of settings that make the transformer more than a plain text model."""
    settings, config = library_settings(transformer), read_settings(transformer / "config.json")
    yield from sorted(name for name in settings.keys() - _USUAL if settings[name])
    usual = {"transformer_task": "feature-extraction", "modality_config": _TEXT_ONLY, "module_output_name": _TOKENS,
             "do_lower_case": False, "unpad_inputs": None}
    yield from (name for name, value in usual.items() if settings.get(name, value) != value)
    if read_settings(transformer / "tokenizer_config.json").get("truncation_side", "right") != "right":
        yield "truncation_side"
    yield from (name for name in ("quantization_config", "is_decoder") if config.get(name))


def library_settings(transformer: Path) -> dict[str, Any]:
    """Return the settings that sentence-transformers stores beside a transformers model."""
    return next((stored for name in _LIMITS if (stored := read_settings(transformer / name))), {})


def _length(transformer: Path) -> int | None:
    """Return the token limit stored with a model: max_seq_length, else what the tokenizer states; None for none."""
    stored = library_settings(transformer).get("max_seq_length")
    if stored is None:
        tokenizer = read_settings(transformer / "tokenizer_config.json")
        stored = tokenizer.get("model_max_length", tokenizer.get("max_len"))
        if not isinstance(stored, int | float) or stored > _TOKENS_AT_MOST:
            return None
    if not isinstance(stored, int | float) or isinstance(stored, bool) or stored < 1:
        raise EncoderError(f"{transformer}: its token limit {stored!r} is not a positive number")
    return int(stored)


def lacking(folder: Path) -> list[str]:
    """Return the files, as paths from `folder`, that are missing, which a model may lack but which change how a text is
    read."""
    modules = _modules(folder)
    read = [path for kind, path in modules if kind.startswith("sentence_transformers.") and kind.endswith(".Transformer")]
    # Only this module of the library reads a tokenizer's settings; a model's own modules may read them in the root.
    roots = read or ([] if modules and all(kind.startswith("sentence_transformers.") for kind, _ in modules) else [folder])
    names = [path / "tokenizer_config.json" for path in roots]
    names += [path / _LIMITS[0] for path in read if not any((path / name).is_file() for name in _LIMITS)]
    names.append(folder / ("config_sentence_transformers.json" if modules else "modules.json"))
    for path in roots:
        if not (path / "tokenizer.json").is_file():
            names += [path / name for name in ("tokenizer.json", "special_tokens_map.json", "added_tokens.json")]
    return sorted(path.relative_to(folder).as_posix() for path in names if not path.is_file())


def length_source(transformer: Path) -> str:
    """Return the file, and the key in it, that `_length` reads."""
    for name in _LIMITS:
        if "max_seq_length" in read_settings(transformer / name):
            return f"{transformer / name}: max_seq_length"
    return f"{transformer / 'tokenizer_config.json'}: model_max_length"


def _pooler(folder: Path) -> str | None:
    if not (folder / "config.json").is_file():
        raise EncoderError(f"{folder} lacks the config.json that says how to pool")
    config = read_settings(folder / "config.json")
    modes = config.get("pooling_mode", [mode for key, mode in _LEGACY.items() if config.get(key)] or ["mean"])
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or not modes:
        raise EncoderError(f"{folder / 'config.json'}: pooling_mode {modes!r} names no pooling")
    if len(modes) > 1 or config.get("include_prompt") is False:  # without the prompt's tokens: not ours
        return None
    return POOLING_MODES.get(str(modes[0]))
