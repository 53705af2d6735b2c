"""Runs for boards, as if of a checkout without changes, so that boards take them, and boards made of them."""

import functools
import hashlib
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import stsbench
from stsbench.encoders.base import Encoded, Encoder, EncoderSpec
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.columns import observations_digest
from stsbench.evaluation.tables import main_rows, main_scores
from stsbench.files import sha256_file
from stsbench.leaderboard.ranks.gather import gather
from stsbench.leaderboard.records import publications
from stsbench.leaderboard.records.add import add
from stsbench.leaderboard.records.entries import Entry, check_seeds, checked_run, read_entries
from stsbench.protocols.sts import StsProtocol

SAMPLE = Path(stsbench.__file__).parent / "data" / "sample"
REVISION = "0123456789abcdef0123456789abcdef01234567"
NEW = {"method": "my method", "backbone": "none", "setting": "unsup", "flag": "nli"}
WORDS = ("--entry", "mine", "--method", "my method", "--backbone", "none", "--setting", "unsup", "--flag", "nli")
STS_TAB = "sts-spearman-all-sample"
PROMPTS = ["query: ", "the cat: ", "zzz zzz zzz: "]


def entry(method, **more):
    return Entry(**{"method": method, "backbone": "none", "setting": "unsup", **more})


LETTERS = entry("letters", flags=("nli",))


class Letters(Encoder):
    """Counts of letters with noise: the more noise, the worse. `seed` makes another encoder of the same kind."""

    cacheable = False

    def __init__(self, seed, noise, tag=""):
        weights = hashlib.sha256(f"{seed} {noise} {tag}".encode()).hexdigest()  # a tag: the same vectors, another encoder
        self.seed, self.noise, self.spec = seed, noise, EncoderSpec(name="letters", kind="callable", weights=weights)

    def run(self, texts, progress=None):
        out = np.zeros((len(texts), 27), dtype=np.float32)
        for row, text in enumerate(texts):
            for letter in text.lower():
                out[row, ord(letter) % 27] += 1
            out[row] += self.noise * np.random.default_rng([self.seed, *text.encode()]).normal(size=27)
        return Encoded(out, np.zeros(len(texts), dtype=bool))


@functools.cache
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


def measured(encoder, folder, **how):
    """What `evaluate` returns, by default on the sample, as if of a checkout without changes."""
    how = how if "data_dir" in how else {"sample": True, **how}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stsbench.evaluation.provenance.git_revision", lambda: REVISION)
        return evaluate(encoder, output=folder, **how)


def own(folder, encoder, **options):
    """The folder of a run on the sample with options of its own."""
    return measured(encoder, folder, **{"resamples": 50, **options}).folder


def prompted(folder, encoder, prompts=PROMPTS, *, neutral=False, **how):
    """Measure an encoder by default, behind a neutral prompt if wanted, and behind `prompts`, in folders as a study of
    prompts has them. Task -> its scores behind the prompts."""
    scores = {}
    measured(encoder, folder / "00-default", **how)
    if neutral:
        measured(encoder.with_prompt("text: "), folder / "02-neutral-prompt", **how)
    for number, prompt in enumerate(prompts, 3):
        result = measured(encoder.with_prompt(prompt), folder / f"{number:02}-prompt", **how)
        for row in main_scores(main_rows(result, "sts")).values():
            scores.setdefault(row.task, []).append(row.value)
    return scores


_memos = {}  # digest of observations -> what was drawn from them
_scores = {}  # what a score depends on, and the digest of its observations -> the rows


def _remembering(observations):
    """Equal observations, read from whichever file, share what was drawn from them. Returns their digest."""
    digest = observations_digest(observations)
    object.__setattr__(observations, "memo", _memos.setdefault(digest, observations.memo))
    return digest


@functools.wraps(StsProtocol.draw_all)
def _draw_all(protocol, observed, *how, real=StsProtocol.draw_all):
    for each in observed:
        _remembering(each)
    return real(protocol, observed, *how)


@functools.wraps(StsProtocol.score)
def _score(protocol, observations, *of, real=StsProtocol.score):
    key = (type(protocol), repr(protocol.settings), protocol.label, _remembering(observations), *of)
    if key not in _scores:
        _scores[key] = real(protocol, observations, *of)
    return [row.model_copy() for row in _scores[key]]


_publications = {}


@functools.wraps(publications._read)
def _published(path, read=publications._read):
    key = path, sha256_file(path)
    if key not in _publications:
        _publications[key] = read(path)
    return _publications[key]


@pytest.fixture(scope="module", autouse=True)
def read_once(tmp_path_factory):
    """What the same bytes hold is redrawn and scored once; what builds keep is kept for the tests of a file alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StsProtocol, "draw_all", _draw_all)
        patch.setattr(StsProtocol, "score", _score)
        patch.setattr(publications, "_read", _published)
        patch.setenv("STSBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@functools.cache
def _made_once(place, **data):
    """Each file that imports a fixture has one of its own, and would make the runs again."""
    results = {name: measured(model, place / name, protocols=["sts", "retrieval", "geometry"], **data) for name, model in {
        "words": "lexical:token-set", "letters": Letters(0, 0.1), "noisy": Letters(1, 6.0), "noisy-2": Letters(2, 6.0),
    }.items()}
    assert not any(result.failures for result in results.values())
    return {name: result.folder for name, result in results.items()}


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Name -> run folder: token-set, and letters at two levels of noise, of which `noisy` has two seeds; on the sample."""
    return _made_once(tmp_path_factory.getbasetemp() / "runs")


@pytest.fixture(scope="session")
def own_runs(tmp_path_factory):
    """The same on data of one's own: the sample's files as if they were SentEval's, which the catalog does not know."""
    return _made_once(tmp_path_factory.getbasetemp() / "own-runs", data_dir=SAMPLE)


@pytest.fixture
def copied(runs, tmp_path):
    """`copied(name)`: a run of one's own to damage."""

    def copy(name):
        return Path(shutil.copytree(runs[name], tmp_path / f"copy-{name}"))

    return copy


@pytest.fixture(scope="module")
def repository(runs, tmp_path_factory):
    """With a board of two entries."""
    home = tmp_path_factory.mktemp("checkout")
    for name in ("words", "noisy"):
        add(home / "leaderboard", [runs[name]], name, entry(name))
    for command in (("init", "-q", "-b", "main"), ("add", "-A"),
                    ("-c", "user.name=tester", "-c", "user.email=t@example.org", "commit", "-qm", "board")):
        subprocess.run(["git", *command], cwd=home, check=True)
    return home


@pytest.fixture
def silent(request, capsys):
    """A function prints nothing."""
    yield
    if "cli" not in request.fixturenames:
        assert capsys.readouterr() == ("", "")


@pytest.fixture
def checkout(repository, tmp_path, monkeypatch):
    """A copy, as the working folder and to be damaged, of what the fixture `repository` holds."""
    home = tmp_path / "mine"
    shutil.copytree(repository, home)
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def board(runs, tmp_path):
    """A board of its own with the entries named, gathered: name -> (runs, description)."""
    root = tmp_path / "board"

    def made(**entries):
        stated = set()
        for slug, (names, entry) in entries.items():
            # Two entries never say the same of themselves.
            other = entry.model_copy(update={"backbone": slug}) if (entry.method, entry.backbone) in stated else entry
            stated.add((entry.method, entry.backbone))
            add(root, [runs.get(name, name) for name in names], slug, other)
        return gather(root)

    return made


def tab(board, name=STS_TAB):
    (actual,) = [each for each in board.tabs if each.id == name]
    return actual


def rows_by_id(board):
    return {row.id: row for row in tab(board).measured}


def load_entries(folder):
    """Every entry below `folder` (a board's measured/), with each record's scores recomputed, without a board around it.
    StsbenchError, naming the file, for what does not hold."""
    entries = [replace(entry, runs=tuple(map(checked_run, entry.runs)), prompts=tuple(map(checked_run, entry.prompts)))
               for entry in read_entries(folder)]
    check_seeds(entries)
    return entries
