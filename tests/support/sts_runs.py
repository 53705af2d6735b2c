"""Runs of made-up observations, for tests that compare, choose and average: nothing is encoded."""

import hashlib

import numpy as np
import pytest
from run_edits import edit_all
from scipy.stats import spearmanr

from stsbench.evaluation.columns import observations_digest
from stsbench.evaluation.protocol import Observations
from stsbench.evaluation.records import DataIdentity, EncoderIdentity, Observed, ProtocolIdentity, Record, now
from stsbench.evaluation.result import Result
from stsbench.protocols.regression import RegressionProtocol
from stsbench.protocols.sts import AVERAGED, TASKS, StsProtocol

N = 60


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def add(result, protocol, task, observations, *, text_version="senteval", digest="", known=True, name="invented"):
    """A record of made-up observations, as `measure` would have written it."""
    set_id = protocol.tasks()[task]
    names, subset = observations.names.get("subsets", ["all"]), observations.arrays.get("subset", np.zeros(N))
    data = DataIdentity(
        id=set_id, task=task, text_version=text_version, digest=sha(digest or set_id), known=known, origin="here",
        n=int(observations.arrays.get("sizes", np.array([N])).sum()),
        subsets={each: int((subset == i).sum()) for i, each in enumerate(names)})
    who = EncoderIdentity(spec={"name": name, "weights": sha(name), "pooler": "mean"}, fingerprint=sha(name), dimension=3)
    how = ProtocolIdentity(name=protocol.name, label=protocol.label, version=protocol.version, settings=protocol.settings)
    result.observed.append(observations)
    result.records.append(Record(
        created=now(), encoder=who, protocol=how, data=data, counts={}, provenance={},
        observations=Observed(sha256=observations_digest(observations)), scores=protocol.score(observations, set_id, task)))


def pairs(task, noise, subsets=("all",), draw=0):
    """Gold known by the task alone, and similarities that follow it the less the more noise there is."""
    seed = int(sha(task)[:8], 16)
    gold = np.round(np.random.default_rng(seed).uniform(0, 5, N), 1)
    similarity = (gold / 5 + noise * np.random.default_rng([seed, draw]).normal(size=N)) / 8
    subset = np.arange(N) % len(subsets)
    pair = np.arange(N, dtype=np.uint64) + np.uint64(seed)  # none stands in two tasks
    return Observations({"similarity": similarity, "gold": gold, "subset": subset, "pair": pair}, {"subsets": list(subsets)})


def sts_run(folder, noise, tasks=AVERAGED, draw=0, settings=None, label=None, **options):
    protocol, result = StsProtocol({"resamples": 40, **(settings or {})}, label), Result(folder)
    for task in tasks:
        several = ("x", "y") if TASKS[task] in ("sts12/test", "sts13/test") else ("all",)
        add(result, protocol, task, pairs(task, noise, several, draw), **options)
    result.write()
    return folder


def head(folder, noise, draw=0):
    protocol, result = RegressionProtocol({}), Result(folder)
    seen = pairs("STS-B", noise, draw=draw).arrays
    arrays = {"predicted": 40 * seen["similarity"], "gold": seen["gold"], "row": np.arange(N),
              "sizes": np.array([90, 30, N]), "dev_spearman": np.array([0.5])}
    add(result, protocol, "STS-B", Observations(arrays))
    result.write()
    return folder


def seed_run(folder, seed, noise, tasks=("STS-B",), **provenance):
    sts_run(folder, noise, tasks, draw=seed, name=f"{folder.parent.name} {seed}")

    def change(row):
        row.record["provenance"].update({"seed": seed, "recipe": folder.parent.name, **provenance})
        row.record["encoder"]["spec"].update({"name": folder.parent.name, "weights": str(folder)})

    return edit_all(folder, change)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    folders = [[seed_run(folder / name / str(seed), seed, noise) for seed in (42, 43, 44)]
               for name, noise in (("good", 0.3), ("poor", 0.6))]
    scores = [[100 * spearmanr(each.arrays["similarity"], each.arrays["gold"]).statistic for each in
               (pairs("STS-B", noise, draw=seed) for seed in (42, 43, 44))] for noise in (0.3, 0.6)]
    return folders, scores
