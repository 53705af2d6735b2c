"""Runs of encoders that read texts behind prompts, as a study of prompts lays them out, for boards."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from board_runs import REVISION, SAMPLE, Letters

from stsbench import evaluate
from stsbench.encoders.base import Encoded
from stsbench.evaluation.tables import firsts, main_rows

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

    def with_prompt(self, prompt):
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
    """Measure an encoder by default, behind a neutral prompt and behind `prompts` on the sample, as if by a checkout without
    changes; the runs are in `folder`. Task -> its scores behind the prompts."""
    scores = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stsbench.evaluation.provenance.git_revision", lambda: REVISION)
        evaluate(encoder, output=folder / "00-default", sample=True, **how)
        for number, prompt in enumerate(["text: ", *prompts], 2):
            kind = "prompt" if number > 2 else "neutral-prompt"
            result = evaluate(encoder.with_prompt(prompt), output=folder / f"{number:02}-{kind}", sample=True, **how)
            for row in firsts(main_rows(result, "sts")).values() if number > 2 else ():
                scores.setdefault(row.task, []).append(row.value)
    return scores
