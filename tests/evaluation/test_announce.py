"""What measuring says: estimates of the time left, right where work is what they take it for, and silent where there is
nothing to say. A similarity that an extension registers compares texts without their vectors."""

import re

import numpy as np
import pytest
from clirun import cli, evaluate, place, record  # noqa: F401 - fixtures

import stsbench
from stsbench import registry
from stsbench.data.sets.sets import PairSet
from stsbench.encoders.base import Encoder, EncoderSpec
from stsbench.encoders.similarity import GROUP, Compared
from stsbench.errors import EncoderError
from stsbench.evaluation.announce import EncodingTime, TasksTime
from stsbench.evaluation.run_file import read_observations
from stsbench.protocols.sts import StsProtocol

TEXTS = ["x" * int(length) for length in np.random.default_rng(0).integers(1, 400, size=6000)]
ROWS = [("a", "a dog", 0.5), ("a cat", "a", 1.5), ("a", "a", 5), ("the rain", "rain", 4)]


def encoded(texts, *, cached=0, batch=50, second=60_000.0, loading=4.0, slower=1.0):
    """(lines said, seconds that were left when they were) where a second encodes so many characters, longest text first, and
    from a fifth of the texts on fewer by the factor `slower`."""
    now, lines, done_at = [0.0], [], []
    time = EncodingTime(texts, lambda line: lines.append((line, now[0])), done_at.append, clock=lambda: now[0])
    time(cached)
    now[0] += loading
    computed = sorted(texts[cached:], key=len, reverse=True)
    for start in range(0, len(computed), batch):
        part = computed[start : start + batch]
        now[0] += sum(map(len, part)) / second * (slower if start >= len(computed) / 5 else 1)
        time(len(part))
    assert sum(done_at) == len(texts)
    return [(line, now[0] - at) for line, at in lines]


@pytest.mark.parametrize("cached", [0, 2000])
def test_the_estimate_is_right_though_the_longest_texts_come_first(cached):
    # the rate in texts a second of the first three seconds alone would say about twice as much
    [(line, left)] = encoded(TEXTS, cached=cached, second=20_000.0)
    assert seconds_said(line) == pytest.approx(left, rel=0.06) and left > 30


def seconds_said(line):
    hours, minutes, seconds = map(int, re.search(r"about (\d+):(\d+):(\d+) left for [\d,]+ texts", line).groups())
    return 3600 * hours + 60 * minutes + seconds


def test_an_estimate_that_is_over_is_made_again_and_nothing_is_said_of_what_is_soon_done():
    [(first, left), *later] = encoded(TEXTS, second=20_000.0, slower=3.0)
    assert seconds_said(first) < 0.5 * left
    assert len(later) == 2 and later[0][1] > 30
    assert seconds_said(later[1][0]) == pytest.approx(later[1][1], rel=0.1)
    assert encoded(TEXTS, second=200_000.0) == []
    assert encoded(TEXTS, cached=len(TEXTS)) == [] and encoded([]) == []


def test_tasks_are_weighed_by_the_protocol():
    text = tuple("ab")
    sets = {task: PairSet(task, task, "own", text * n, text * n, np.zeros(2 * n), ("",) * 2 * n)
            for task, n in (("STS12", 10), ("STS13", 5), ("STS14", 15))}
    rest = TasksTime(StsProtocol({}), sets)
    assert rest.after("STS12", 20.0) == "; about 0:00:40 left for STS13, STS14"
    assert rest.after("STS13", 10.0) == "; about 0:00:30 left for STS14"
    assert rest.after("STS14", 30.0) == ""


def test_the_line_before_a_run_says_which_pass_runs(evaluate, folder):
    """No pass is named where all vectors are in the cache; an attention that was asked for moves no fingerprint."""
    errs = [evaluate(folder, "--pooler", "mean", "--cache", *more)[2]
            for more in (("a",), ("a",), ("b", "--attention", "padded"))]
    lines = [re.search(r"^encoder .*", err, re.M)[0] for err in errs]
    assert "run by our own forward pass without padding, float32, fingerprint" in lines[0]
    assert "run by our own forward pass, float32, fingerprint" in lines[1]
    assert "run by our own forward pass, padded, because --attention padded says so, float32, fingerprint" in lines[2]
    assert len({line[-12:] for line in lines}) == 1
    assert [record(run)["provenance"].get("attention") for run in ("run", "run-2", "run-3")] == [None, None, "padded"]


def longer(encoder, first, second):
    values = [-abs(len(a) - len(b)) for a, b in zip(first, second, strict=True)]
    return Compared(np.array(values, float), np.array([len(a) > 5 for a in first]))


class Judging(Encoder):
    text_similarities = ("longer",)

    def __init__(self):
        self.spec = EncoderSpec("judging", "judging", "0" * 64)

    def run(self, texts, progress=None):
        raise EncoderError("judging has no vectors")


@pytest.mark.parametrize(("model", "options"), [(Judging(), {}), ("lexical:token-set", {"similarity": "longer"})], ids=str)
def test_pairs_are_compared_and_no_text_is_encoded(monkeypatch, model, options):
    monkeypatch.setitem(registry._of_files, GROUP, {"longer": longer})
    with pytest.warns(match="1 pairs were truncated"):
        result = stsbench.evaluate(model, sts=ROWS, resamples=0, **options)
    [record] = result.records
    assert read_observations(result.folder, record).arrays["similarity"].tolist() == [-4, -4, 0, -4]
    assert (record.protocol.settings["similarity"], record.encoder.dimension) == ("longer", 0)
    assert record.counts == {"zero_vectors": 0, "truncated": 1}
