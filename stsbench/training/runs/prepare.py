"""Preparation of a run: everything that it needs is built and checked before its folder is written to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from accelerate import Accelerator
from safetensors import SafetensorError

from stsbench.data.fetch.download import WAYS
from stsbench.data.sets.sets import DataSet
from stsbench.encoders.forward.identity import model_digest, tokenizer_digest
from stsbench.encoders.forward.model import NoDropoutError, dropout_rates
from stsbench.encoders.forward.pooling import KINDS, token_pooler_folder
from stsbench.encoders.transformer.declared import read_declared
from stsbench.encoders.transformer.exported import read_exported
from stsbench.encoders.transformer.find import backbone_folder, resolve_base
from stsbench.errors import DataError, DegenerateError, MissingDataError, StsbenchError
from stsbench.evaluation.plan import user_sets
from stsbench.registry import calling
from stsbench.torch_random import Generators
from stsbench.training.api.checks import check_candidates, check_inference, check_instance
from stsbench.training.api.method import Inference, Method
from stsbench.training.engine.checkpoint import Checkpoints, Position
from stsbench.training.engine.objective import Objective, make_objective
from stsbench.training.engine.passes import checkpoint_layers, why
from stsbench.training.engine.selection import Selection, fixed_randomness, live_encoder
from stsbench.training.engine.stage import Stage, counted_stages, held_out_batches, make_stage, set_schedules
from stsbench.training.modules.backbone import Backbone, load_backbone
from stsbench.training.recipes.method_plan import MethodPlan
from stsbench.training.recipes.methods import method_file
from stsbench.training.recipes.recipe import Recipe
from stsbench.training.rows.files import LABELLED, SetPlace, check_at_hand
from stsbench.training.rows.stage_rows import StageData, digests, label_names, open_rows
from stsbench.training.runs.export import try_export
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.run_folder import RunManifest
from stsbench.training.runs.warm_start import (
    WarmStart,
    began_with,
    check_best,
    check_inputs,
    check_labels,
    describe_warm_start,
    earlier_run,
    find_warm_start,
)

Log = Callable[[str], None]
MERGED = "it is merged into the weights of its base before the first step"


@dataclass
class PreparedRun:
    """A run in one process, ready to train. names: the stages to train; resumed: the checkpoint to resume from, if any."""

    options: TrainOptions
    manifest: RunManifest
    accelerator: Accelerator
    log: Log
    plan: MethodPlan
    names: list[str]
    checkpoints: Checkpoints
    resumed: tuple[Position, Path] | None
    warm_start: WarmStart | None
    data: dict[str, StageData]
    method: Method
    objective: Objective
    stages: list[Stage]
    selections: dict[str, Selection] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)

    @property
    def recipe(self) -> Recipe:
        """Return the recipe of the run."""
        return self.options.recipe

    @property
    def selection(self) -> Selection | None:
        """Return the development score of the last stage, None where it is not scored."""
        return self.selections.get(self.names[-1])


def prepare_run(
    options: TrainOptions, plan: MethodPlan, manifest: RunManifest, accelerator: Accelerator, generators: Generators,
    log: Log,
) -> PreparedRun:
    """Return the run, loaded, built and checked. The order matters, as steps draw random numbers from `generators`."""
    recipe = options.recipe
    names = [manifest.stage] if manifest.stage else list(plan.stages)
    if stray := [name for name in recipe.stages if name not in plan.stages]:
        raise StsbenchError(f"{plan.name} has no stage '{stray[0]}'; it has {', '.join(plan.stages)}")
    counted = counted_stages(recipe, plan, names)  # stages whose steps the schedules of `names` count
    opened = [name for name in plan.stages if name in (*names, *counted)]
    checkpoints = Checkpoints(options.output / "checkpoints", accelerator, generators)
    resumed = checkpoints.newest() if options.resume else None
    if options.resume and resumed is None:
        log("no checkpoint yet: the run begins again")
    warm_start = None if resumed else _warm_start(options, manifest, plan)
    where = SetPlace(options.data_dir, options.sample, options.offline)
    with accelerator.main_process_first():  # so that only one process downloads
        check_at_hand(recipe, plan, opened, where)
    dev = _dev_data(options, manifest, accelerator, log)
    generators.seed(recipe.seed)
    backbone = _backbone(options, plan, warm_start)
    method = calling(plan.kind, "__init__", lambda: plan.kind(backbone, plan.options))
    check_instance(method, backbone)  # fails before the text is read, which may take long
    with accelerator.main_process_first():  # the other processes then read the cache
        data = open_rows(recipe, plan, backbone, opened, log, where)
    objective = make_objective(plan, method)
    with accelerator.main_process_first():
        prepare_method(method, plan, data, names)
        if LABELLED in data:
            labelled = data[LABELLED].rows(data[LABELLED].trained)
            calling(plan.kind, "prepare_labelled", lambda: objective.prepare_labelled(labelled))
    pad, processes = backbone.tokenizer.pad_token_id, accelerator.num_processes
    ready = {name: make_stage(name, recipe, plan, data, pad, processes) for name in opened}
    if resumed and (before := resumed[0].processes) != processes:
        for name in names:
            _check_processes(before, make_stage(name, recipe, plan, data, pad, before), ready[name])
    set_schedules(ready, names)
    stages = [ready[name] for name in names]
    # From here on each process draws its own dropout masks.
    generators.seed((recipe.seed * 1_000_003 + accelerator.process_index) % 2**63)
    method.to(accelerator.device)
    for line in [*_dropped_parts(recipe, Path(backbone.folder)), *calling(plan.kind, "notes", objective.notes)]:
        log(line)
    run = PreparedRun(
        options, manifest, accelerator, log, plan, names, checkpoints, resumed, warm_start, data, method, objective, stages,
    )
    run.selections = _selections(run, dev)
    for line in run.selection.warnings if run.selection else ():
        log(f"warning: {line}")
    run.inputs = _inputs(run)
    _check_inputs(run)
    if warm_start:
        _take_weights(run, warm_start)
    with fixed_randomness(), torch.no_grad():
        check_inference(method)
        check_candidates(method, recipe.selection.by, run.manifest.dev_absent)
        if accelerator.is_main_process:
            _check_first_state(method.inference(), recipe.backbone.model)
            try_export(method.inference(), options.output, recipe.backbone.model)
    return run


def _check_processes(count: int, before: Stage, now: Stage) -> None:
    """Raise StsbenchError where a stage that `count` processes began would train differently with the present number."""
    one, other = (
        [(part.batches, part.steps, part.dropped, getattr(part, "fewest", None)) for part in
         (stage.batches, *([stage.labelled.batches] if stage.labelled else []))] for stage in (before, now)
    )
    if one != other or now.settings.gather != "exact":
        what = "the batches depend" if one != other else f"training.gather {now.settings.gather} depends"
        raise StsbenchError(f"--resume: {what} on how many processes train, and {count} did: resume with as many")


def _check_first_state(inference: Inference, name: str) -> None:
    """Raise StsbenchError where the encoder would give all texts the same vector, whatever it learns."""
    try:
        live_encoder(inference, name).run(["a"])
    except DegenerateError as error:
        raise StsbenchError(
            f"backbone.pooler {inference.pooler}: {name} is causal, and its first state knows the first token alone: set "
            "backbone.pooler to mean"
        ) from error


def make_backbone(recipe: Recipe, offline: bool = False) -> Backbone:
    """Return the recipe's backbone; its `folder` and `name` say where it was read from."""
    start = recipe.backbone
    source = backbone_folder(start.model, offline)
    asked = {name: settings.model_dump() for name in KINDS if (settings := getattr(start, name)) is not None}
    backbone = load_backbone(
        source, start.model, start.pooler, start.max_length, start.dropout, asked, offline, start.layers,
        start.attention == "bidirectional", None if start.lora is None else start.lora.model_dump(),
    )
    if start.gradient_checkpointing != "none":
        checkpoint_layers(backbone.model, start.model)
    backbone.folder, backbone.name, backbone.offline = source, start.model, offline
    return backbone


def fixed_inputs(recipe: Recipe, backbone: Backbone) -> dict[str, str]:
    """Return the sha256 of the backbone, its tokenizer, an adapter's base and the method's file, by name."""
    folder = Path(backbone.folder)
    files = {"backbone": model_digest(folder), "tokenizer": tokenizer_digest(folder)}
    if base := resolve_base(folder, offline=True):
        files |= {"backbone's base": model_digest(base), "the base's tokenizer": tokenizer_digest(base)}
    return {**files, **method_file(recipe.method)}


def _warm_start(options: TrainOptions, manifest: RunManifest, plan: MethodPlan) -> WarmStart | None:
    """Return the earlier run that a later stage starts from, and describe it in the manifest. None for other runs."""
    if manifest.start_from is None or manifest.stage is None:
        return None
    run = earlier_run(Path(manifest.start_from), options.recipe.seed)
    warm_start = find_warm_start(run, plan, manifest.stage, options.recipe)
    if manifest.warm_start and manifest.warm_start["weights"] != warm_start.weights:
        raise StsbenchError(f"--resume: {run} is not what {options.output} began from: start another run")
    manifest.warm_start = describe_warm_start(warm_start, plan, options.recipe)
    return warm_start


def user_tests(options: TrainOptions) -> list[DataSet]:
    """Return the user's own test sets for the run's final test; none where one of them cannot be read, which the final test
    reports."""
    with suppress(StsbenchError):
        return user_sets(options.evaluate) if options.evaluate else []
    return []


def _dev_data(options: TrainOptions, manifest: RunManifest, accelerator: Accelerator, log: Log) -> Selection | None:
    """Return the recipe's development score with its data, read before anything that takes long; None without data to read.

    Where the data are not on this machine and no folder was named, no step is scored: the manifest records it, and the last
    weights are kept. Raises DataError, one line, for a named folder without the data.
    """
    by = options.recipe.selection.by
    if by in ("held-out", "none") or manifest.dev_absent:
        return None
    sample = options.sample or manifest.dev_sample
    with accelerator.main_process_first():  # so that only one process downloads
        tests = user_tests(options) if ":" in by else []  # the user's own dev pairs are compared with these
        try:
            return Selection(by, data_dir=options.data_dir, sample=sample, offline=options.offline, tests=tests)
        except MissingDataError as error:
            if sample or options.data_dir is not None:
                raise DataError(f"no dev data: {error}; or train without (--set selection.by=none)") from error
            missing = str(error).removesuffix(WAYS).rstrip(" :;")
    manifest.dev_absent = True
    log(
        f"warning: no dev data: {missing}; no step is scored and the weights of the last one are kept (`stsbench data "
        "fetch` brings the data, --set selection.by=held-out does without)"
    )
    return None


def _backbone(options: TrainOptions, plan: MethodPlan, warm_start: WarmStart | None) -> Backbone:
    """Return the backbone. Raises StsbenchError, one line, if it has no dropout and the method's views differ by nothing
    else."""
    recipe = options.recipe
    needs_dropout = plan.needs.dropout
    try:
        backbone = make_backbone(recipe, options.offline)
    except NoDropoutError as error:
        also = "" if needs_dropout else ", or set backbone.dropout to null: this method's views differ by more than dropout"
        raise StsbenchError(f"{error}{also}{began_with(warm_start, recipe)}") from error
    except StsbenchError as error:
        raise StsbenchError(f"{error}{began_with(warm_start, recipe)}") from error
    if needs_dropout and recipe.backbone.dropout is None and not any(dropout_rates(backbone.model.config).values()):
        raise StsbenchError(f"the two views of {plan.name} differ by dropout alone, and {why(recipe, backbone)}")
    if warm_start:
        check_inputs(warm_start, fixed_inputs(recipe, backbone), recipe.backbone.model)
    return backbone


def _dropped_parts(recipe: Recipe, folder: Path) -> list[str]:
    """Return lines on the parts of the backbone that training does not use: layers, and the dense layer, learned pooler,
    prompt or post-processing that it has as an encoder."""
    start = recipe.backbone
    if start.layers is not None:
        kept = f"layers {', '.join(map(str, start.layers))} of {start.model}, from 0, are kept, the others left out"
        whole = recipe.model_copy(update={"backbone": start.model_copy(update={"layers": None})})
        return [kept, *_dropped_parts(whole, folder)]
    if (folder / "adapter_config.json").is_file():
        return [f"{start.model} is a PEFT adapter: {MERGED}, and all of them are trained"]
    stored = token_pooler_folder(folder)
    if stored is not None and stored[0].pooler != start.pooler:
        title = stored[0].title
        return [f"{start.model} is tested with a {title}; as a backbone of pooler {start.pooler} it is used without"]
    if not (folder / "modules.json").is_file() and (folder.parent / "modules.json").is_file():
        folder = folder.parent  # the model is a first module in a folder of its own
    exported = read_exported(folder)
    lines: list[str] = []
    part = {"cls+dense": "dense layer", "mask": "prompt"}.get(exported.pooler or "") if exported is not None else None
    if exported is not None and exported.post:
        part = f"{part} and a post-processing" if part else "post-processing"
    if exported is None and (folder / "modules.json").is_file():
        declared = read_declared(folder)
        kinds = [kind for kind in declared.modules[1:] if "Pooling" not in kind]
        part = " and ".join(f"module {kind}" for kind in kinds) or None
        if declared.pooler not in (None, start.pooler):
            lines.append(f"{start.model} is tested with the pooler {declared.pooler}, and trained with {start.pooler} here")
    return [f"{start.model} is tested with a {part}; as a backbone it is used without", *lines] if part else lines


def _selections(run: PreparedRun, dev: Selection | None) -> dict[str, Selection]:
    """Return stage -> its development score: `dev`, or the loss on held-out rows of the stage; {} without either."""
    by = run.recipe.selection.by
    if by != "held-out":
        return {} if dev is None else dict.fromkeys(run.names, dev)
    if run.recipe.selection.over == "all" and len(run.plan.stages) > 1:
        raise StsbenchError("selection.over all: the stages' scores on held-out rows do not compare; set it to last")
    selections = {}
    for stage in run.stages:
        data = run.data[LABELLED if stage.labelled_only else stage.name]
        if len(data.held_out) or stage is run.stages[-1]:
            batches = held_out_batches(
                run.objective, run.method, data.rows, data.held_out, stage.tokens_pad, stage.settings.batch_size,
                run.recipe.seed, run.accelerator.device, stage.labelled_only, stage.group,
            )
            held_out = (run.objective, batches) if len(data.held_out) else None
            selections[stage.name] = Selection(by, held_out=held_out)
    return selections


def _inputs(run: PreparedRun) -> dict[str, str]:
    """Return the sha256 of everything that the run reads, by its name in messages, and the class names of labelled rows."""
    inputs = fixed_inputs(run.recipe, run.method.backbone)
    inputs |= digests(run.data)
    inputs |= label_names(run.data, run.plan)
    if run.manifest.dev_absent:
        inputs["dev data"] = "absent"
    elif run.selection:
        scored_on = f"{run.selection.name} {run.selection.digests}"
        inputs["dev data"] = hashlib.sha256(scored_on.encode()).hexdigest()
    return {**inputs, **calling(run.plan.kind, "inputs", run.objective.inputs)}


def _check_inputs(run: PreparedRun) -> None:
    """Raise StsbenchError where the resumed run, or the earlier run (--from), read other inputs than this one."""
    recipe, inputs, output = run.recipe, run.inputs, run.options.output
    if warm_start := run.warm_start:
        check_inputs(warm_start, run.objective.inputs(), recipe.backbone.model)
        check_labels(f"--from {warm_start.run}", warm_start.position.inputs, inputs)
        if recipe.selection.over == "all" and run.selection:
            check_best(warm_start, inputs["dev data"])
    known = run.resumed[0].inputs if run.resumed else {}
    check_labels(f"--resume: {output}", known, inputs)
    if changed := next((name for name, sha in known.items() if inputs.get(name) != sha), None):
        raise StsbenchError(f"--resume: the {changed} is not what {output} began with: put it back or start another run")


def _take_weights(run: PreparedRun, warm_start: WarmStart) -> None:
    """Load the earlier run's weights into the method. Raises StsbenchError where they do not fit."""
    try:
        run.checkpoints.load_result(warm_start.folder, run.method)
    except (RuntimeError, OSError, SafetensorError) as error:
        first = " ".join(str(error).split())[:300]
        raise StsbenchError(
            f"--from {warm_start.run}: its weights do not fit what this run trains, by other data or versions: {first}"
        ) from error


def prepare_method(method: Method, plan: MethodPlan, data: Mapping[str, StageData], running: Sequence[str]) -> None:
    """Call the method's `prepare` with the rows of its first own stage, if that stage runs: in a run of a later stage, the
    earlier run's weights include what was learnt there."""
    first = plan.method_stages[0]
    if first in running:
        rows = data[LABELLED if plan.labelled(first) == "only" else first]
        calling(type(method), "prepare", lambda: method.prepare(rows.rows(rows.trained)))
