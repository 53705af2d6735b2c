"""Invented STS-B sets and runs on them, for the tests of geometry and of pictures."""

import hashlib
from functools import cache

import numpy as np

from stsbench.data.sets.sets import PairSet
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.evaluation.measure import measure
from stsbench.evaluation.result import Result
from stsbench.protocols.geometry import GeometryProtocol
from stsbench.protocols.sts import TASKS, StsProtocol

NOUNS = ("heron", "kettle", "lantern", "quarry", "violin", "willow", "anchor", "cellar", "mitten", "pigeon")


def pair_set(id="stsb/test", n=60, seed=0):
    """n pairs of invented sentences that share the more words the higher their rating; some sentences stand twice."""
    rng = np.random.default_rng(seed)
    gold = np.concatenate([[0.0, 1.0, 4.0, 5.0, 5.0], rng.integers(0, 26, n - 5) / 5])
    first, second = [], []
    for rating in gold:
        words = rng.choice(NOUNS, 5)
        keep = rng.random(5) < rating / 5
        first.append("the " + " ".join(words))
        second.append("the " + " ".join(np.where(keep, words, rng.choice(NOUNS, 5))))
    return PairSet(id, "STS-B", "sample", tuple(first), tuple(second), gold, ("all",) * n)


@cache
def word_vector(word, shift):
    return np.random.default_rng(int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")).normal(shift, 1, 12)


def vectors(texts, shift=0.0):
    """float32 (n, 12): sums of a vector a word, known by the word alone."""
    return np.array([sum(word_vector(word, shift) for word in text.split()) for text in texts], dtype=np.float32)


def embed(**options):
    return Embed(CallableEncoder(lambda texts: vectors(texts, **options)))


def make_run(folder, shift=0.0, protocols=("geometry",), data=None, **settings):
    """A run folder with records and observations of these protocols on an invented STS-B."""
    data, source, result = data or pair_set(), embed(shift=shift), Result(folder)
    for name in protocols:
        if name == "geometry":
            measure(result, source, GeometryProtocol(settings), {"STS-B": data})
        else:
            sets = {"STS-B": data} if name == "sts" else {task: pair_set(id, 20) for task, id in list(TASKS.items())[:7]}
            measure(result, source, StsProtocol({"resamples": 0}), {**sets, "STS-B": data})
    result.write()
    return folder
