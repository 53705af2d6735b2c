"""Vectors to fit on, from an array, and a plain implementation of BERT-whitening beside ours."""

import numpy as np

from stsbench.encoders.post.base import Post, PostOptions


class Blocks:
    """A VectorSource over an array (n, d), cut into blocks of these lengths, repeated."""

    sides, name = 1, "made@0"

    def __init__(self, vectors, *lengths):
        self.vectors, self.lengths, self.passes = vectors, lengths or (len(vectors),), 0

    def __len__(self):
        return len(self.vectors)

    def blocks(self):
        self.passes += 1
        start = turn = 0
        while start < len(self.vectors):
            length = self.lengths[turn % len(self.lengths)]
            yield self.vectors[start : start + length]
            start, turn = start + length, turn + 1

    def shuffled(self, batch_size, rng):
        order = rng.permutation(len(self.vectors))
        for start in range(0, len(order), batch_size):
            yield self.vectors[order[start : start + batch_size]][:, None]


def anisotropic(n=400, d=12, seed=0, dtype=np.float64):
    """(n, d) vectors around a mean ten times as long as their spread, of unequal variances."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(n, d)) * np.geomspace(3, 0.05, d) @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    return (mixed + 10 * rng.normal(size=d)).astype(dtype)


def plain_whitening(vectors, k):
    """Su et al. 2021's algorithm in five lines: numpy's covariance, its SVD, W = U Lambda^-1/2."""
    vectors = np.asarray(vectors, dtype=np.float64)
    mean = vectors.mean(axis=0)
    u, variances, _ = np.linalg.svd(np.cov(vectors.T))
    return (vectors - mean) @ (u @ np.diag(1 / np.sqrt(variances)))[:, :k]


def cosines(vectors):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


class Cube(Post):
    """A post-processing of a user's own that is not affine, and remembers the vectors that it was fitted on."""

    name, Options = "cube", PostOptions

    def fit(self, source):
        self.seen = np.concatenate(list(source.blocks()))
        self.batches = list(source.shuffled(64, np.random.default_rng(0)))
        return self

    def transform(self, vectors):
        return np.asarray(vectors) ** 3

    def dimension(self, d):
        return d

    def state(self):
        return {"seen": self.seen}

    def restore(self, state):
        self.seen = state["seen"]
        return self
