"""Runs of encoders that read texts behind prompts, as `measure_prompts` lays them out, for boards."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from board_runs import REVISION, SAMPLE, Letters

from stsbench import measure_prompts
from stsbench.encoders.base import Encoded

PROMPTS = ["query: ", "the cat: ", "zzz zzz zzz: "]


@cache
def knowing():
    """Text -> a vector, so that the cosine of each pair of the sample's STS-B is its gold score over 5."""
    known = {}
    lines = (SAMPLE / "downstream/STS/STSBenchmark/sts-test.csv").read_text("utf-8").splitlines()
    for number, line in enumerate(lines):
        *_, gold, one, other = line.split("\t")[:7]
        cosine, at = float(gold) / 5, number % 32 * 2
        for text, pair in ((one, (1.0, 0.0)), (other, (cosine, (1 - cosine**2) ** 0.5))):
            known[" ".join(text.split())] = np.pad(pair, (at, 62 - at))
    return known


class Prompted(Letters):
    """The right answers on STS-B, with noise: `noise`, and a tenth for each z in the prompt."""

    def behind(self, prompt):
        other = type(self)(self.seed, self.noise)
        other.spec = replace(self.spec, prefix=prompt or None)
        return other

    def run(self, texts, progress=None):
        prompt = self.spec.prefix or ""
        out = np.zeros((len(texts), 64), dtype=np.float32)
        for row, text in enumerate(texts):
            rng = np.random.default_rng([self.seed, *prompt.encode(), *text.encode()])
            out[row] = knowing().get(text, 0) + (self.noise + prompt.count("z") / 10) * rng.normal(size=64)
        return Encoded(out, np.zeros(len(texts), dtype=bool))


def prompted(folder, encoder, prompts=PROMPTS, **how):
    """What `measure_prompts` gives of an encoder on the sample, as if by a checkout without changes; its runs are in
    `folder`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stsbench.evaluation.provenance.git_revision", lambda: REVISION)
        return measure_prompts(encoder, prompts, output=folder, sample=True, **how)
