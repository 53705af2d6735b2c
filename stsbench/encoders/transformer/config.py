"""The configuration of a transformer encoder: a user's options and what its folder declares, combined before loading."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stsbench.encoders.base import EncoderOptions, EncoderSpec, Traits
from stsbench.encoders.forward.checkpoint import check_code, code_not_run
from stsbench.encoders.forward.identity import folder_digest, walk
from stsbench.encoders.forward.pooling import KINDS, LAST, STATES, check_pooler, padded_length, stored_token_pooler
from stsbench.encoders.model_folder import read_settings
from stsbench.encoders.options import CHANGING, spelled
from stsbench.encoders.prompt.prompt import PLAIN, PromptSettings, promised_tensors, prompt_file
from stsbench.encoders.prompt.reading import Reading, asked_reading
from stsbench.encoders.prompt.task_prompts import choose_prompts
from stsbench.encoders.traits import ROLES
from stsbench.encoders.transformer.declared import (
    BY_ROLE,
    ROTARY,
    Declared,
    lacking,
    length_source,
    library_settings,
    read_declared,
)
from stsbench.encoders.transformer.exported import FILE as EXPORTED
from stsbench.encoders.transformer.exported import (
    Exported,
    read_exported,
    read_trained_on,
    read_training_overlap,
    template_notes,
)
from stsbench.encoders.transformer.find import check_unpinned, find_minilm, in_doubt, resolve, resolve_base, resolve_code
from stsbench.errors import EncoderError

_WHERE = ("trust_remote_code", "revision")  # options that say what is loaded
_LIBRARIES = ("stsbench", "torch", "transformers", "tokenizers")
_WRITTEN = ("sentence_bert_config.json", "tokenizer_config.json")
# Architectures whose position limit follows from config.json; RoBERTa's kin count positions from the padding index on.
_PLAIN = ("bert", "distilbert", "electra", "ernie", "opt", *sorted(ROTARY))
_OFFSET = ("roberta", "xlm-roberta", "camembert", "mpnet", "data2vec-text")


@dataclass(frozen=True)
class EncoderConfig:
    """Everything that changes a vector of a transformer, and where it is loaded from. The spec derives from it."""

    name: str  # as the user wrote it
    folder: Path | None  # of the transformers model, or of all modules; None for a model in memory
    pooler: str | None  # None: sentence-transformers runs its own modules
    weights: str = "live"  # sha256 of every file; "live" for a model in memory, which may change
    sources: tuple[Path, ...] = ()  # the folders that `weights` covers
    base: Path | None = None  # the model that the adapter in `folder` builds on, where `folder` holds none
    prompt: PromptSettings = PLAIN
    prompts: Mapping[str, str] = field(default_factory=dict)  # by name; empty where the user chose one, or there is none
    reading: Reading | None = None  # replaces prompt and pooler
    layer: int | None = None  # the hidden state that is pooled, where the user chose one without a reading; None: as STATES
    role: str | None = None  # "query", "document", or a task that sentence-transformers is given; None: any text
    normalize: bool = False  # the folder's own last step
    rescale: bool = False  # to length 1 at the very end, after the cut: the user's --normalize
    truncate_dim: int | None = None
    max_length: int | None = None  # tokens asked for, special ones included
    stored_length: int | None = None  # token limit that the folder declares; None: the number of positions
    positions: int | None = None  # by config.json; None where only the loaded model can tell
    beyond_positions: bool = False  # a text may be longer than `positions`
    width: int | None = None  # the hidden states' width, by config.json
    dtype: str = "float32"
    similarity: str | None = None
    routes: bool = False  # queries and documents take different routes through the modules
    default_route: str | None = None  # where `routes` is set: the route of texts without a role
    adapters: tuple[str, ...] = ()  # names of the tasks that a module of the folder's own has an adapter for
    trust_remote_code: bool = False
    revision: str | None = None
    libraries: tuple[str, ...] = ()  # installed packages whose version may change a vector
    notes: tuple[str, ...] = ()  # what a user should know before a run, a line each
    post: Path | None = None  # the folder of the post-processing of its vectors
    trained_on: tuple[str, ...] = ()  # the test data whose sentences it was trained on
    training_overlap: tuple[Mapping[str, Any], ...] = ()  # what its training texts share with test sets

    @property
    def traits(self) -> Traits:
        """Return the traits of this encoder: what is known of it besides its spec."""
        return Traits(
            similarity=self.similarity or "cosine", prompts=self.prompts, adapters=self.adapters,
            default_route=self.default_route, trained_on=self.trained_on, training_overlap=self.training_overlap,
            libraries=self.libraries,
        )

    def spec(self, positions: int | None) -> EncoderSpec:
        """Return the spec of this encoder. positions: those of the model, None if it states none. EncoderError: max_length
        is larger."""
        asked = {
            "truncate_dim": self.truncate_dim, "role": self.role, "revision": self.revision,
            "trust_remote_code": self.trust_remote_code or None,
            "rescaled": (self.rescale and self.truncate_dim is not None) or None,
        }
        read = {"layer": self.layer} if self.reading is None else self.reading.spec_options()
        template = self.prompt.template if self.reading is None else self.reading.template
        return EncoderSpec(
            name=self.name, kind="transformers" if self.pooler else "sentence-transformers", weights=self.weights,
            pooler=self.pooler, template=template, prefix=self.prompt.text_prompt,
            max_length=self._limit(positions), dtype=self.dtype, normalize=self.normalize or self.rescale,
            options=self.prompt.spec_options() | {
                name: value for name, value in (read | asked).items() if value is not None
            },
        )

    @property
    def runs_code(self) -> bool:
        """Return whether Python code of the model's folders is run, which may open any file."""
        folders = [root for root in (self.folder, *self.sources) if root]
        return self.trust_remote_code and any(code_not_run(root, trusted=False) for root in folders)

    @property
    def last(self) -> bool:
        """Return whether the last hidden state is read, behind the model's final norm."""
        return (self.layer if self.reading is None else self.reading.layer) in (None, LAST)

    @property
    def limit_name(self) -> str:
        """Return the option or file that sets the limit on tokens, for messages."""
        if self.max_length is not None:
            return "--max-length"
        if self.stored_length is None or self.folder is None:
            return "the token limit"
        exported = self.folder / EXPORTED
        stated = exported.is_file() and read_settings(exported).get("max_length") is not None
        return f"{exported}: max_length" if stated else length_source(self.folder)

    def for_role(self, role: str | None, prompt: str | None) -> EncoderConfig:
        """Return the configuration for texts of a role, as of sentence-transformers' encode_query and encode_document.

        prompt: the prompt of these texts; None: the one stored under the role's name, or none.
        """
        text = self.prompts[role] if prompt is None and role is not None and role in self.prompts else prompt
        text = "" if text is None and role in ROLES else text
        if self.prompt.trained or self.prompt.template is not None or self.reading is not None:
            return self
        asked = not self.prompts and prompt is None  # the user chose one prompt for all, or there is none to choose
        kept = self if text is None or asked else replace(self, prompt=replace(self.prompt, text_prompt=text or None))
        return replace(kept, role=role) if self.routes or role in self.adapters else kept

    def with_prompt(self, prompt: str) -> EncoderConfig:
        """Return the configuration with this prompt, "" for none, before every text, whatever its role and task."""
        if self.prompt.trained or self.prompt.template is not None or self.reading is not None:
            return self
        return replace(self, prompt=replace(self.prompt, text_prompt=prompt or None), prompts={})

    def _limit(self, positions: int | None) -> int | None:
        """Return the number of tokens that a text is cut at; a trained prefix takes positions away."""
        shift = self.prompt.shift
        left = None if positions is None or self.beyond_positions else positions - shift
        if self.max_length is not None and left is not None and self.max_length > left:
            why = f"that its prefix leaves of {positions} " if shift else ""
            raise EncoderError(f"--max-length {self.max_length} is more than the {left} {why}positions of {self.name}")
        padded = padded_length(self.pooler)
        if padded is not None and left is not None and padded > left:
            raise EncoderError(f"--pooler {self.pooler}: {self.name} has {left} positions")
        if padded is not None and self.max_length is not None and self.max_length > padded:
            raise EncoderError(f"--max-length {self.max_length} is more than the {padded} positions of {self.pooler}")
        if self.max_length is not None:
            return self.max_length
        return min((size for size in (left, self.stored_length, padded) if size is not None), default=None)


def resolve_config(name: str, options: EncoderOptions) -> EncoderConfig:
    """Return the configuration of the encoder `name`: `minilm`, a transformers or sentence-transformers folder, a training
    run or a Hub id.

    Options override what a folder declares. Without a pooler in either, an EncoderError lists the poolers. A template
    replaces a stored prompt, and a pooler a trained one, too, which a note says; a reading of an extension replaces both.
    EncoderError, one line, for whatever a user can put right.
    """
    if options.pooler is not None:
        check_pooler(options.pooler, name)
    reading = asked_reading(options)
    pooler = options.pooler if reading is None else reading.pooler
    code = options.trust_remote_code
    folder = find_minilm() if name == "minilm" else resolve(name, options.offline, options.revision, code)
    exported, declared = _declared(folder, name, options)
    if declared.own_class and code:
        declared = replace(declared, pooler=None)
    prompt, prompts, notes = _prompt(name, options, exported, declared) if reading is None else (PLAIN, {}, ())
    if unrun := declared.transformer is not None and code_not_run(declared.transformer, code):
        notes = (*notes, f"warning: {name} declares code of its own ({unrun}), which is not run: transformers' own class is "
                 "(--trust-remote-code runs the folder's)")
    notes = (*notes, *template_notes(folder, name, options, prompt))
    trained_on = read_trained_on(folder)
    if trained_on:
        remark = f"trained on sentences of {', '.join(trained_on)}, test sets included: scores there are transductive"
        notes = (*notes, f"{name} was {remark}")
    normalize, cut = declared.normalize and options.normalize is not False, options.truncate_dim or declared.truncate_dim
    config = EncoderConfig(
        name, declared.transformer, pooler or declared.pooler, prompt=prompt, prompts=prompts,
        normalize=normalize, rescale=options.normalize is True and (cut is not None or not normalize), truncate_dim=cut,
        max_length=options.max_length, stored_length=declared.max_length, dtype=options.dtype,
        reading=reading, layer=None if reading is not None or options.layer == LAST else options.layer,
        similarity=declared.similarity, trust_remote_code=options.trust_remote_code, revision=options.revision, notes=notes,
        post=folder if exported is not None and exported.post else None,
        trained_on=trained_on, training_overlap=read_training_overlap(folder), beyond_positions=declared.beyond_positions,
    )
    if config.pooler is None and declared.modules and options.layer is not None:
        raise EncoderError(f"--layer: {name} runs its own modules; choose a --pooler with it")
    if declared.static:
        note = (f"{name} is a table of model2vec without modules.json: read as sentence-transformers reads one that has it "
                "(model2vec itself leaves unknown tokens out, and cuts texts at 512)")
        config = replace(config, notes=(*config.notes, note))
    if config.pooler is None and declared.modules:
        return _identified(_as_library(replace(config, folder=folder), declared, options), folder, options)
    if stray := declared.library_only:
        raise EncoderError(
            f"--pooler: {name} declares {', '.join(stray)} for its transformer, which only its own modules honour: leave "
            "--pooler out"
        )
    if declared.modules and declared.pooler is None:
        aside = ", ".join(declared.modules[1:])
        option = spelled("pooler" if reading is None else reading.option)
        note = f"{option} sets the modules of {name} aside ({aside}): it is measured without them"
        config = replace(config, normalize=False, rescale=options.normalize is True, notes=(*config.notes, note))
    return _identified(_native(config, options), folder, options)


def check_cut(name: str, options: EncoderOptions, width: int | None) -> None:
    """Raise EncoderError where --truncate-dim is not below `width`: the encoder would differ in its fingerprint only."""
    if options.truncate_dim is not None and width is not None and options.truncate_dim >= width:
        raise EncoderError(
            f"--truncate-dim {options.truncate_dim} cuts nothing: the vectors of {name} have {width} numbers; leave it out"
        )


def _declared(folder: Path, name: str, options: EncoderOptions) -> tuple[Exported | None, Declared]:
    """Return the description that stsbench wrote of a trained model, or None, and what the folder's files declare."""
    exported = read_exported(folder)
    if exported is not None:  # its pooler and length count alone, so that no two descriptions are mixed
        for option in CHANGING if exported.post else ():
            if option not in ("dtype", *_WHERE) and getattr(options, option) != getattr(EncoderOptions, option):
                raise EncoderError(
                    f"{spelled(option)}: the post-processing of {name} was fitted on its own vectors: leave the "
                    "option out, or give the model that it was fitted on with --post"
                )
        length = exported.max_length
        return exported, Declared(folder, pooler=exported.pooler, max_length=length, normalize=exported.normalize)
    declared = read_declared(folder)
    if name == "minilm":  # a Hub cache may hold the transformers files alone
        declared = replace(declared, pooler="mean", normalize=True, max_length=256)
    if base := resolve_base(folder, options.offline):  # the adapter changes weights; all else is the base's
        check_code(base, f"{name} (its base {base})", options.trust_remote_code)
        declared = replace(declared, max_length=declared.max_length or read_declared(base).max_length)
    return None, declared


def _prompt(
    name: str, options: EncoderOptions, exported: Exported | None, declared: Declared
) -> tuple[PromptSettings, Mapping[str, str], tuple[str, ...]]:
    """Return the prompt of all texts, the prompts that a text's role and task may still choose, and notes."""
    known = choose_prompts(name, options.prompt_source or "card", declared.prompts, declared.default_prompt)
    prompt, prompts = PromptSettings(text_prompt=known.default or None), known.by_name
    asked = options.prompt_text
    if options.prompt_name is not None:
        names = {**known.by_name, **declared.prompts}
        if options.prompt_name not in names:
            stored = ", ".join(names) or "none"
            raise EncoderError(f"--prompt name:{options.prompt_name}: {name} stores no such prompt (its prompts: {stored})")
        asked = names[options.prompt_name]
    if exported is not None and exported.prompt is not None:
        prompt = PromptSettings.from_stored(exported.prompt)
        if asked is not None:
            raise EncoderError(f"{name} was trained with a prompt: --prompt does not apply; --template sets its own aside")
        if options.pooler is not None or options.template is not None:
            if options.pooler == "mask" and options.template is None:
                raise EncoderError(f"{name} stores a prompt: leave --pooler out to use it, or give a --template with it")
            prompt = PLAIN
    if asked is not None:
        prompt, prompts = replace(prompt, text_prompt=asked or None), {}
    if options.template is not None or prompt.trained:
        prompts = {}
    return prompt.changed(options.template, options.full_stop), prompts, known.notes if prompts else ()


def _as_library(config: EncoderConfig, declared: Declared, options: EncoderOptions) -> EncoderConfig:
    """Return the configuration of a folder that sentence-transformers runs. EncoderError: an option its modules lack."""
    if stray := "--template" if options.template is not None else "--full-stop" if options.full_stop else None:
        raise EncoderError(f"{stray}: {config.name} runs its own modules; choose a --pooler with it")
    if not declared.pools:
        modules = ", ".join(declared.modules)
        raise EncoderError(f"{config.name}: its modules ({modules}) hold no Pooling: choose one with --pooler")
    if declared.foreign and not options.trust_remote_code:
        raise EncoderError(
            f"{config.name} declares the module {declared.foreign}, which is code of its own: read it, then give "
            "--trust-remote-code to run it"
        )
    if options.normalize is False and "Normalize" in declared.modules[:-1]:
        raise EncoderError(f"--no-normalize: {config.name} normalises before its last module, {declared.modules[-1]}")
    if options.normalize is False and declared.routes:
        raise EncoderError(f"--no-normalize: {config.name} has modules inside a Router, which may normalise: leave it out")
    by_role = [name for name in BY_ROLE if name in declared.unusual]
    if by_role and options.max_length is not None:
        raise EncoderError(f"--max-length does not apply to {config.name}, whose folder states {' and '.join(by_role)}")
    known = declared.routes or declared.adapters
    if options.route is not None:
        return _by_route(config, options.route, known, adapters=bool(declared.adapters))
    note = f"{config.name} has several routes for its texts ({', '.join(known)}); those without a role (STS) take "
    default = declared.default_route
    notes = (f"{note}{default}, its default (--route names another)",) if default else ()
    return replace(config, routes=bool(declared.routes or by_role), default_route=default, adapters=declared.adapters,
                   notes=(*config.notes, *notes))


def _by_route(config: EncoderConfig, route: str, routes: Sequence[str], adapters: bool) -> EncoderConfig:
    """Return the configuration with one route for all texts, an adapter with its prompt. EncoderError: no such route."""
    if route not in routes:
        choice = f"the routes {', '.join(routes)}" if routes else "no routes"
        raise EncoderError(f"--route {route}: {config.name} has {choice} for its texts")
    if adapters and route in config.prompts:
        prompt = replace(config.prompt, text_prompt=config.prompts[route] or None)
        config = replace(config, prompt=prompt, prompts={})
    return replace(config, role=route)


def _native(config: EncoderConfig, options: EncoderOptions) -> EncoderConfig:
    """Return the configuration for our own forward pass, checked, with the positions and width that config.json states."""
    name, folder, prompt = config.name, config.folder, config.prompt
    if options.route is not None:
        _by_route(config, options.route, (), adapters=False)
    if folder is None:
        raise EncoderError(f"--pooler {config.pooler}: {name} has no transformers model to pool over")
    pooler = check_pooler(config.pooler, name)
    if pooler == "mask" and prompt.template is None:
        raise EncoderError("--pooler mask needs a --template that holds [MASK]")
    if pooler in KINDS:
        stored_token_pooler(folder, pooler, name)
    if config.layer is not None and (STATES.get(pooler) != (LAST,) or pooler in KINDS or pooler == "cls+dense"):
        raise EncoderError(f"--layer {config.layer}: the pooler {pooler} chooses the hidden states that it reads")
    if prompt.trained and promised_tensors(prompt.stored()):
        prompt_file(folder)
    if not any((folder / file).is_file() for file in ("config.json", "adapter_config.json")):
        raise EncoderError(f"{name} is not a model folder: it holds no config.json")
    check_code(folder, name, config.trust_remote_code)
    width = state_width(read_settings(folder / "config.json").get, config.last) if pooler not in KINDS else None
    return replace(config, positions=stated_positions(folder), width=width if isinstance(width, int) else None)


def _identified(config: EncoderConfig, folder: Path, options: EncoderOptions) -> EncoderConfig:
    """Return the configuration with the digest of all files of `folder` and of the folders that it builds on."""
    adapters = sorted(path for path in walk(folder) if path.name == "adapter_config.json")
    based = {adapter.parent: resolve_base(adapter.parent, options.offline) for adapter in adapters}
    bases = [base for base in based.values() if base]
    if config.pooler is None:
        for adapter in adapters:
            check_unpinned(adapter, options.offline)
    code = resolve_code(config.folder or folder, options.offline) if config.trust_remote_code else []
    sources = (folder, *dict.fromkeys([*bases, *code]))
    extra = (() if config.pooler else ("sentence-transformers",)) + (("peft",) if adapters else ())
    if any("quantization_config" in str(library_settings(adapter.parent)) for adapter in adapters):
        extra += ("bitsandbytes",)
    notes = (*config.notes, *_doubts(config, sources, options))
    config = replace(config, base=based.get(config.folder or folder), notes=notes)
    return replace(config, sources=sources, weights=folder_digest(sources[0], sources[1:]), libraries=(*_LIBRARIES, *extra))


def _doubts(config: EncoderConfig, sources: Sequence[Path], options: EncoderOptions) -> Iterator[str]:
    """Yield a warning for each folder that may lack a file, so that a default is used instead."""
    for root in sources if config.name != "minilm" else ():
        absent = lacking(root)
        if doubtful := in_doubt(root, absent, options.offline):
            where = config.name if root == sources[0] else f"{config.name}: {root}"
            yield (f"warning: {where}: its snapshot in the Hub cache may be incomplete: whether the repository has "
                   f"{', '.join(doubtful)} is not known, and it is read without; fetch it once without --offline")
        elif (root / "modules.json").is_file() and (lost := [name for name in absent if name.endswith(_WRITTEN)]):
            yield (f"warning: {config.name} has no {' and no '.join(lost)}, which sentence-transformers writes: a limit or "
                   "a setting of the tokenizer may be lost; is the folder complete?")


def state_width(setting: Callable[[str, None], Any], last: bool) -> Any:
    """Return the width of a hidden state, of the last one if `last`: OPT-350m projects only its last state.

    setting: called with a name in config.json and a default, None; returns the value or the default.
    """
    return (last and setting("word_embed_proj_dim", None)) or setting("hidden_size", None)


def stated_positions(folder: Path) -> int | None:
    """Return the number of positions by config.json; None where only the loaded model can tell."""
    config = read_settings(folder / "config.json")
    positions, kind = config.get("max_position_embeddings"), config.get("model_type")
    if not isinstance(positions, int) or kind not in (*_PLAIN, *_OFFSET):
        return None
    return positions if kind in _PLAIN else positions - config.get("pad_token_id", 1) - 1
