"""Model soups (Wortsman et al. 2022): the mean of the weights of several models, uniform or greedy by development data."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.data.fetch.sources import load_data
from stsbench.data.own.overlap import PAIRED_TESTS, available_tests, refuse_tests
from stsbench.data.own.sets import read_scored_pairs
from stsbench.data.sets.sets import PairSet
from stsbench.display.markup import card_text
from stsbench.encoders.forward.identity import folder_digest, model_files
from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer.exported import FILE, Exported, read_exported, read_with_layout, write_exported
from stsbench.encoders.transformer.find import resolve
from stsbench.errors import EncoderError, StsbenchError
from stsbench.files import new_folder, sha256_file
from stsbench.metrics.similarity import correlation, paired_similarity

_OF_TRAININGS: dict[str, Any] = {"method": None, "recipe": None, "trained_on": (), "training_overlap": ()}
DEV = "stsb/dev"  # the set of the catalog that greedy chooses by unless told


def average_models(
    models: Sequence[str | Path], output: str | Path, *, greedy: str | Path | None = None, offline: bool = False,
    data_dir: Path | None = None, log: Callable[[str], None] = lambda line: None,
) -> list[tuple[str, float | None, bool]]:
    """Write the mean of the models' weights to `output`, a new folder, with all other files of the first.

    models: folders, Hub ids or runs of `train`; a run of several seeds stands for all of them. greedy: None, all of them;
    else a file of scored pairs, or `stsb/dev`: from the best on, each is kept that leaves the mean's Spearman no lower.

    Returns (name, Spearman x 100 or None, whether it is in the mean) of each, greedy's by falling score. Raises
    StsbenchError, one line: fewer than two models, or some that differ in more than the values of their weights.
    """
    folders = {str(path): resolve(str(path), offline) for name in models for path in _seeds(Path(name))}
    if len(folders) < 2:
        raise StsbenchError("a mean needs two models at least: name several runs, or one of several seeds")
    for name, folder in folders.items():
        if (folder / "adapter_config.json").is_file():  # the mean of A and of B is not that of B A
            raise StsbenchError(f"{name} is a PEFT adapter, whose factors have no mean: merge it into its model")
        if (folder / FILE).is_file() and read_with_layout(folder)[0].post:
            raise StsbenchError(f"{name} has a post-processing fitted on its vectors: average the models without it")
    first, *others = folders.values()
    for other in others:
        _check_alike(first, other)
    with new_folder(Path(output)) as building:
        rows: list[tuple[str, float | None, bool]] = [(name, None, True) for name in folders]
        if greedy is not None:
            rows = _choose(folders, _pairs(greedy, data_dir, offline, log), log)
        kept = [name for name, _, inside in rows if inside]
        _write(building, [folders[name] for name in kept])
        digests = {name: folder_digest(folders[name]) for name in kept}
        (building / "README.md").write_text(_card(digests, greedy), "utf-8")
    return rows


def _seeds(path: Path) -> Iterator[Path]:
    """Yield the runs of a training of several seeds; of anything else itself."""
    seeds = sorted(folder.parent for folder in path.glob("seed-*/recipe.yaml")) if path.is_dir() else []
    yield from seeds or [path]


def _weights(folder: Path) -> list[Path]:
    return [path.relative_to(folder) for path in model_files(folder) if path.suffix == ".safetensors"]


def _check_alike(first: Path, second: Path) -> None:
    """Raise StsbenchError where two folders differ in more than the values of their weights and what trained them."""
    unlike = f"{second} and {first} are no models of one kind"
    files = [{path.relative_to(folder) for path in model_files(folder)} - {Path(FILE)} for folder in (first, second)]
    if stray := sorted(files[0] ^ files[1]):
        raise StsbenchError(f"{unlike}: one of them lacks {stray[0]}")
    if all((folder / FILE).is_file() for folder in (first, second)):
        one, two = (asdict(replace(read_with_layout(folder)[0], **_OF_TRAININGS)) for folder in (first, second))
        if key := next((key for key in one if one[key] != two[key]), None):
            raise StsbenchError(f"{unlike}: the {key} in their {FILE} differs")
    weights = _weights(first)
    if not weights:
        raise StsbenchError(f"{first} holds no .safetensors file, and no others are averaged: save it as one")
    for path in sorted(files[0]):
        if path not in weights:
            if sha256_file(first / path) != sha256_file(second / path):
                raise StsbenchError(f"{unlike}: their {path} differs")
            continue
        one, two = _shapes(first / path), _shapes(second / path)
        if key := next((key for key in sorted(one.keys() | two.keys()) if one.get(key) != two.get(key)), None):
            raise StsbenchError(f"{unlike}: their weight {key} differs in its shape or type")


def _shapes(file: Path) -> dict[str, tuple[list[int], str]]:
    from safetensors import safe_open

    with safe_open(file, "pt") as stored:
        slices = {key: stored.get_slice(key) for key in stored.keys()}  # noqa: SIM118 - no mapping
        return {key: (part.get_shape(), part.get_dtype()) for key, part in slices.items()}


def _write(building: Path, folders: Sequence[Path]) -> None:
    """Write the mean of the models in `folders` to `building`, which may hold an earlier one."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    shutil.copytree(folders[0], building, dirs_exist_ok=True)
    for path in _weights(folders[0]):
        mean = {}
        with ExitStack() as stack:
            stored = [stack.enter_context(safe_open(folder / path, "pt")) for folder in folders]
            for key in stored[0].keys():  # noqa: SIM118 - no mapping
                tensors = [tensors.get_tensor(key) for tensors in stored]
                if tensors[0].is_floating_point():
                    mean[key] = torch.stack([tensor.double() for tensor in tensors]).mean(0).to(tensors[0].dtype)
                elif all(torch.equal(tensors[0], tensor) for tensor in tensors):
                    mean[key] = tensors[0]
                else:
                    raise StsbenchError(f"{folders[0] / path}: {key} are whole numbers, which differ and have no mean")
        save_file(mean, building / path, {"format": "pt"})
    if described := [read_with_layout(folder)[0] for folder in folders if (folder / FILE).is_file()]:
        trained_on = tuple(dict.fromkeys(name for one in described for name in one.trained_on))
        overlap = tuple({str(item): item for one in described for item in one.training_overlap}.values())
        # no training made these weights: a record shows no recipe; files that were changed since say how they are read
        first = described[0] if read_exported(folders[0]) is not None else Exported(None, method=described[0].method)
        write_exported(building, replace(first, recipe=None, trained_on=trained_on, training_overlap=overlap))


def _choose(
    folders: dict[str, Path], pairs: PairSet, log: Callable[[str], None]
) -> list[tuple[str, float | None, bool]]:
    """Return the models by falling Spearman on `pairs`, and whether each is in the mean (recipe 1 of Wortsman et al.)."""
    scores = {name: _score(folder, pairs) for name, folder in folders.items()}
    ranked = sorted(scores, key=lambda name: -scores[name])
    kept, best = [ranked[0]], scores[ranked[0]]
    log(f"{ranked[0]}: {best:.2f} on {pairs.id}")
    for name in ranked[1:]:
        with tempfile.TemporaryDirectory() as folder:
            _write(Path(folder), [folders[other] for other in (*kept, name)])
            value = _score(Path(folder), pairs)
        log(f"with {name}, alone {scores[name]:.2f}: {value:.2f}")
        if value >= best:
            kept, best = [*kept, name], value
    return [(name, scores[name], name in kept) for name in ranked]


def _pairs(greedy: str | Path, data_dir: Path | None, offline: bool, log: Callable[[str], None]) -> PairSet:
    """Return what the models are chosen on. Raises DataError for the pairs of a test set that is at hand."""
    data = load_data(DEV, data_dir=data_dir, offline=offline) if str(greedy) == DEV else read_scored_pairs(Path(greedy))
    assert isinstance(data, PairSet)
    if str(greedy) != DEV:
        for line in refuse_tests(data, available_tests(PAIRED_TESTS, data_dir=data_dir)[0], f"--greedy {data.task}"):
            log(f"warning: {line}")
    return data


def _score(folder: Path, pairs: PairSet) -> float:
    vectors = np.asarray(load_encoder(folder, offline=True).encode([*pairs.first, *pairs.second]))
    value = correlation(paired_similarity(vectors[: len(pairs)], vectors[len(pairs) :]), pairs.gold, "spearman")
    if not np.isfinite(value):
        raise EncoderError(f"{folder} has no Spearman on {pairs.id}, by which nothing can be chosen: leave --greedy out")
    return 100 * float(value)


def _card(digests: dict[str, str], greedy: str | Path | None) -> str:
    pairs = DEV if str(greedy) == DEV else Path(greedy or "").name
    chosen = "." if greedy is None else f", chosen one after another by Spearman on {card_text(pairs)}."
    return "\n".join([
        "---\nlibrary_name: sentence-transformers\n---\n", f"# The mean of the weights of {len(digests)} models\n",
        f"Averaged by `stsbench soup`{chosen}\n", "| model | fingerprint of its files |", "| --- | --- |",
        *(f"| {card_text(Path(name).name)} | {digest[:16]} |" for name, digest in digests.items()), "",
        "To measure:\n", "```sh\nstsbench eval --model PATH\n```\n",
    ])
