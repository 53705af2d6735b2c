"""The end of a run: its summary (RUN/train.json), the exported encoder (RUN/best), the final test (RUN/eval); and loading
the whole trained method again, with the parts that are dropped for testing."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from stsbench.config import flatten
from stsbench.data.sets.catalog import entries
from stsbench.encoders.transformer.exported import Exported, read_trained_on, read_training_overlap
from stsbench.encoders.transformer.find import resolve_base, trained_model
from stsbench.encoders.transformer.parts import choose_device
from stsbench.errors import DataError, StsbenchError
from stsbench.evaluation.provenance import provenance
from stsbench.parsing import read_json_object
from stsbench.registry import is_file_class, names, resolve
from stsbench.torch_random import forked
from stsbench.training.api.method import Inference, Method
from stsbench.training.engine.checkpoint import Checkpoints, Position, newest_whole
from stsbench.training.engine.objective import make_objective
from stsbench.training.engine.selection import AVERAGED
from stsbench.training.recipes.method_plan import MethodPlan, load_plan
from stsbench.training.recipes.methods import GROUP, short_name
from stsbench.training.recipes.recipe import LATER, OPERATIONAL, Recipe
from stsbench.training.recipes.recipes import load_recipe, stored_recipe
from stsbench.training.recipes.sections import LABELLED_PAIRS
from stsbench.training.rows.files import LABELLED
from stsbench.training.rows.overlap import not_looked_for
from stsbench.training.rows.stage_rows import StageData
from stsbench.training.runs.export import ONE_STATE, export_adapter, export_model
from stsbench.training.runs.options import TrainOptions
from stsbench.training.runs.prepare import PreparedRun, fixed_inputs, make_backbone
from stsbench.training.runs.report import LOG, read_log, read_summary
from stsbench.training.runs.warm_start import earlier_run

CARDS = "stsbench.training_cards"  # entry points: functions of recipe, encoder and facts that return the model's card
_LATER: dict[str, Any] = {  # setting added after the first records -> the value that held before; LATER: after plans, too
    "training.adam": "torch", "training.optimizer": "adamw", "training.rho": None, "training.milestones": [],
    "training.rates": [], "training.weight_decay_on": "matrices", "data.lines_per_row": 1, "labelled.lines_per_row": 1,
    "backbone.mean_cnn": None, "training.warmup_of": None, "training.batch_tokens": None, **LATER,
}
_ABSENT = object()
SEARCH = "search.json"  # in a run folder: the search of `stsbench sweep` that chose the run


def summarise(run: PreparedRun, position: Position, overlap: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the content of RUN/train.json. position: the end of the last stage; overlap: the result of `training_overlap`,
    in the main process."""
    recipe, selection = run.recipe, run.selection
    lines = read_log(run.options.output / LOG)
    devs = [line for line in lines if line["kind"] == "dev"] if selection else []
    name = selection.name if selection else "none"
    before, after = (devs[0]["score"], devs[-1]["score"]) if devs else (None, None)
    undefined = [{"stage": line["stage"], "step": line["step"]} for line in devs if line["score"] is None]
    best, where = None, "the last step"
    if kept := position.best:
        stage = kept.stage or position.stage
        best = {"name": name, "stage": stage, "step": kept.step, "score": kept.score}
        devs = [line for line in devs if (line["stage"], line["step"]) == (stage, kept.step)]
        where = f"step {kept.step}" + (f" of stage {stage}" if stage != position.stage else "")
    elif run.manifest.dev_absent:
        where += ", as there were no development data"
    elif undefined and all(line["score"] is None for line in devs if line["step"]):
        where += ", as no development score is defined"
    averaged = next((line.get(AVERAGED) for line in (devs if best else lines)[-1:]), None)
    if averaged:
        where += f", the mean of {averaged} steps' weights"
    teachers = {name: digest for name, digest in position.inputs.items() if name.startswith("teacher ") or name == "guide"}
    written_in = {"method_file": run.manifest.method_file} if run.manifest.method_file else {}
    return {
        "method": recipe.method, **written_in, "recipe": recipe.name, "seed": recipe.seed,
        "stages": {stage.name: stage.batches.steps for stage in run.stages}, "stage": run.manifest.stage,
        "from": run.manifest.warm_start, "seconds": round(position.seconds_before + position.seconds, 1),
        "selected_by": name,
        "before": before, "best": best, "after": after, **({"undefined": undefined} if undefined else {}),
        "exported": where, **({AVERAGED: averaged} if averaged else {}),
        **({"encoder": devs[-1]["encoder"]} if devs and "encoder" in devs[-1] else {}),
        "backbone": position.inputs.get("backbone"),
        **({"teachers": teachers} if teachers else {}),
        "processes": run.accelerator.num_processes,
        "engine": run.method.backbone.engine_on(run.accelerator.device.type),
        "sample": selection is not None and selection.sample,
        "data": run.manifest.data, "overlap": overlap,
        "dev_data": selection.digests if selection else {},
        "truncated": {name: dict(data.tokens.truncated) for name, data in run.data.items()},
        "provenance": provenance(
            command=run.manifest.commands[0], resumed_by=run.manifest.commands[1:], started=run.manifest.started
        ),
    }


def described_data(plan: MethodPlan, names: Sequence[str], data: Mapping[str, StageData]) -> dict[str, dict[str, Any]]:
    """Return stage, or "labelled" -> facts on its training text: file name, digest, numbers of rows trained on and held
    out, and where its sentences are from test sets also their names (`texts_of`)."""
    uses = [plan.labelled(name) for name in names]
    trained_on = {*names, *([LABELLED] if set(uses) != {"none"} else [])}  # others were only opened to count steps
    return {
        name: {"file": rows.store.path.name, "digest": rows.store.digest,
               "rows": len(rows.trained), "held_out": len(rows.held_out),
               **({"texts_of": list(rows.texts_of)} if rows.texts_of else {})}
        for name, rows in data.items() if name in trained_on
    }


def export_best(run: PreparedRun, summary: dict[str, Any]) -> None:
    """Write the method's encoder, as `inference` returns it with the current weights, to RUN/best."""
    run.method.eval()
    inference = run.method.inference()
    files = [{"name": data["file"], "stage": stage, **data} for stage, data in _data(summary)]
    facts = {
        **summary, "adapter": (run.method.backbone.folder / "adapter_config.json").is_file(),
        "steps": sum(summary["stages"].values()), "data": files,
        "versions": summary["provenance"]["versions"],
    }
    card = "".join(resolve(CARDS, name)(run.recipe, inference, facts) for name in names(CARDS))
    about: dict[str, Any] = {
        "method": short_name(run.recipe.method), "recipe": run.recipe.name,
        "trained_on": _trained_on(summary, run.method.backbone.folder),
        "training_overlap": tuple(_training_overlap(run, summary)),
    }
    export_model(inference, run.options.output / "best", card=card, replace=True, **about)
    if base := _adapted_base(run, inference):
        export_adapter(inference, run.options.output / "adapter", base, Exported(None, **about))


def _adapted_base(run: PreparedRun, inference: Inference) -> str | None:
    """Return the Hub id or folder of the model that `backbone.lora` changes, if the encoder is that model, the changes and a
    pooler alone; None with other attention, fewer layers, a head, a template or an adapter that was merged before."""
    start, source = run.recipe.backbone, run.method.backbone
    if start.lora is None or start.layers is not None or start.attention != "own":
        return None
    parts = (inference.dense, inference.token_pooler, inference.prompt)
    plain = all(part is None for part in parts) and inference.pooler in ONE_STATE
    if not plain or (source.folder / "adapter_config.json").is_file() or inference.model is not source.model:
        return None
    return str(source.folder.resolve()) if Path(start.model).exists() or start.model == "minilm" else start.model


def _data(summary: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return (stage, its data) of this run and of the earlier runs that it continued (--from), the earliest first."""
    read, earlier = list(summary["data"].items()), summary["from"]
    while earlier:
        read, earlier = [*(item for item in earlier["data"].items() if item not in read), *read], earlier["from"]
    return read


def _trained_on(summary: Mapping[str, Any], backbone: Path) -> tuple[str, ...]:
    """Return the test sets whose sentences were trained on, in any stage or by the model that training started from."""
    here = [name for _, data in _data(summary) for name in data.get("texts_of", ())]
    base = resolve_base(backbone, offline=True)  # the base model of an adapter
    return tuple(dict.fromkeys([*read_trained_on(backbone), *(read_trained_on(base) if base else ()), *here]))


def _training_overlap(run: PreparedRun, summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the overlap with test sets of every training text: of all stages, of the earlier runs (--from) and of the model
    that training started from."""
    known: dict[str, Mapping[str, Any]] = {}
    if run.manifest.start_from is not None:  # only a finished run has stored its overlap
        with suppress(StsbenchError):  # a missing folder must not fail the finished training
            earlier = earlier_run(Path(run.manifest.start_from), run.recipe.seed) / "best"
            known = {text["digest"]: text for text in read_training_overlap(earlier)}
    earlier_data = [data for name, data in _data(summary) if summary["data"].get(name) != data]
    here = [*(known.get(data["digest"]) or not_looked_for(data["file"], data["digest"]) for data in earlier_data),
            *summary["overlap"].values()]
    backbone = run.method.backbone.folder
    base = resolve_base(backbone, offline=True)  # the base model of an adapter
    every = [*read_training_overlap(backbone), *(read_training_overlap(base) if base else ()), *here]
    return [text for at, text in enumerate(every) if text not in every[:at]]


def _without_folders(key: str, value: Any, keys: Container[str]) -> Any:
    """Return the value of a setting with files reduced to their names. keys: names of sets, which are not files."""
    if key.endswith(".teachers"):
        return [{**teacher, "model": Path(teacher["model"]).name} for teacher in value]
    if key == "selection.by" and value.startswith(LABELLED_PAIRS):  # pairs:FILE and sts:FILE select by different scores
        return f"{LABELLED_PAIRS}{Path(value.removeprefix(LABELLED_PAIRS)).name}"
    file = key.endswith((".file", ".model")) or key in ("method", "selection.by")
    return Path(value).name if value and file and value not in keys else value


def trained_as(recipe: Recipe) -> dict[str, Any]:
    """Return the facts in a record that distinguish trainings whose recipes have the same name and seed.

    settings: 16 hex digits of a sha256 over all values except the seed, the subset's seed, the recipe's name, description,
    source and published scores, folders of files, and settings with their value of _LATER; subset: the seed of the sampled
    rows, if rows are sampled; semi, search: as in the recipe, if it has them.
    """
    unsaid = {"name", "description", "source", "published", "seed", "search", *OPERATIONAL}
    values = recipe.model_dump(mode="json", exclude=unsaid)
    sampled = [part for part in (recipe.labelled, recipe.data) if part and (part.share < 1 or part.sample is not None)]
    known = {item.id for item in entries("senteval")}  # names of sets, not of files: stsb/train is not sick-r/train
    settings = {
        key: _without_folders(key, value, known)
        for key, value in flatten(values).items()
        if not key.endswith(".sample_seed") and _LATER.get(key, _ABSENT) != value
    }
    facts: dict[str, Any] = {"settings": hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]}
    if sampled:
        seed = sampled[0].sample_seed
        facts["subset"] = recipe.seed if seed is None else seed
    search = {"search": recipe.search.model_dump(mode="json")} if recipe.search else {}
    return {**facts, **({"semi": values["semi"]} if values["semi"] else {}), **search}


def _training_facts(recipe: Recipe, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts on the training that records of its encoder store, with the sha256 of FILE.py for FILE.py:CLASS."""
    return {
        "seed": recipe.seed, "recipe": f"{short_name(recipe.method)}/{recipe.name}", **trained_as(recipe),
        **{key: summary[key] for key in ("method_file",) if key in summary},
        **{key: summary[key] for key in ("stage", "from", "backbone", "teachers", AVERAGED) if summary.get(key)},
        **({"kept": summary["exported"]} if not summary["best"] and ", as " in summary["exported"] else {}),
        "data": {name: entry["digest"] for name, entry in summary["data"].items()},
    }


def stored_facts(run: Path) -> dict[str, Any]:
    """Return the facts that records store of a finished run, from its folder; {} for any other folder. Raises StsbenchError
    for a damaged run."""
    summary = read_summary(run)
    if summary is None or not (run / "recipe.yaml").is_file():
        return {}
    try:
        facts = _training_facts(stored_recipe(run), summary)
    except (KeyError, TypeError) as error:
        raise DataError(f"{run / 'train.json'} holds no summary of a run: {error!r}") from error
    return {**facts, **({"search": read_json_object(run / SEARCH, DataError)} if (run / SEARCH).is_file() else {})}


def tested(
    options: TrainOptions, summary: dict[str, Any], accelerator: Accelerator, log: Callable[[str], None]
) -> dict[str, Any]:
    """Test RUN/best under `options.evaluate` into RUN/eval, in the main process. Return the summary with the failures."""
    folder = options.output / "eval"
    if options.evaluate and accelerator.is_main_process:
        from stsbench.evaluation import api

        if folder.exists():
            shutil.rmtree(folder)
        result = api.run(
            api.EvalOptions(
                model=str(options.output / "best"), output=folder, protocols=list(options.evaluate), device=options.device,
                data_dir=options.data_dir, sample=options.sample, offline=options.offline, command=options.command,
                extra_provenance=_training_facts(options.recipe, summary),
            ),
            log=log,
        )
        summary = {**summary, "failures": dict(result.failures)}
    accelerator.wait_for_everyone()
    return summary


def load_trained(run: Path, device: str | None = None, method: str | None = None) -> Method:
    """Return the method of the training run in `run`, in eval mode, with the weights and buffers that the run kept.

    These are the best of its last stage (with selection.over all, of all stages), or the last ones where none were selected.
    No training text is read, so anything that `Method.prepare` learns from it must be in buffers. device: by default the
    GPU, if there is one. method: FILE.py:CLASS, for a run of such a method: a file that only the run folder names is not
    imported, as the folder may be untrusted. Raises StsbenchError, one line, for an unfinished run, several seeds, a missing
    or damaged checkpoint, and another backbone, tokenizer or further input than the run began with.
    """
    if trained_model(run) == run:
        raise StsbenchError(f"{run} is not a run folder of `stsbench train`: it has no recipe.yaml")
    recipe = _recipe(run, method)
    position, weights = _kept_position(run)
    plan = load_plan(recipe)
    with forked():  # without drawing from the caller's generator: the random weights are replaced below
        trained = plan.kind(make_backbone(recipe), plan.options)
    make_objective(plan, trained)  # with recipe.semi, adds a classifier to the method
    for name, sha in {**fixed_inputs(recipe, trained.backbone), **trained.inputs()}.items():
        if position.inputs.get(name, sha) != sha:
            raise StsbenchError(f"{run}: the {name} is not what it was trained with: put it back")
    try:
        Checkpoints.load_result(weights, trained)
    except (RuntimeError, OSError) as error:
        first = " ".join(str(error).split())[:200]
        raise StsbenchError(f"{weights} does not fit the method {recipe.method} as it is installed: {first}") from error
    trained.to(choose_device(device)).eval()
    return trained


def _recipe(run: Path, method: str | None) -> Recipe:
    """Return the run's complete recipe. Raises StsbenchError where it names a Python file and the caller does not."""
    stored = stored_recipe(run)
    if method is None and stored.method not in names(GROUP):
        file = is_file_class(stored.method)
        raise StsbenchError(
            f"{run} was trained by {stored.method}, " + ("a Python file, which is run only where it is named: method="
            "'FILE.py:CLASS', or --method FILE.py:CLASS" if file else "which is not installed: install it")
        )
    return load_recipe(method or stored.method, str(run / "recipe.yaml"))


def _kept_position(run: Path) -> tuple[Position, Path]:
    """Return the position at the run's end, and the folder of the weights that it kept. Raises StsbenchError where the run
    is unfinished or lacks a sound checkpoint of them."""
    summary = read_summary(run)
    if summary is None:
        raise StsbenchError(f"{run} has not finished training: go on with --resume")
    try:
        stages, best = summary["stages"], summary["best"]
        stage, steps = list(stages.items())[-1]
        stage, step = (best["stage"], best["step"]) if best else (stage, steps)
    except (KeyError, IndexError) as error:
        raise DataError(f"{run / 'train.json'} holds no summary of a run: {error!r}") from error
    folder = run / "checkpoints"
    newest = newest_whole(folder)
    if newest is None:
        raise StsbenchError(f"{folder} holds no sound checkpoint: only the encoder in {run / 'best'} is left")
    position, path = newest
    kept = position.best.step if position.best else position.step
    where = (position.best and position.best.stage) or position.stage
    if (where, kept, bool(position.best)) != (stage, step, bool(best)):
        raise StsbenchError(f"{folder} lacks a sound checkpoint of the weights that were kept, {stage} step {step}")
    return position, folder / position.best.folder if position.best else path
