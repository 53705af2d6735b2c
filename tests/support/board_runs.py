"""Runs on the sample for boards, made once a session: as if by a checkout without changes, so that boards take them."""

import functools
import hashlib
import inspect
import shutil
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest

import stsbench
from stsbench.encoders.base import Encoded, Encoder, EncoderSpec
from stsbench.evaluation.api import evaluate
from stsbench.evaluation.columns import observations_digest
from stsbench.files import sha256_file
from stsbench.leaderboard.api import add
from stsbench.leaderboard.records import publications
from stsbench.protocols.sts import StsProtocol

SAMPLE = Path(stsbench.__file__).parent / "data" / "sample"
REVISION = "0123456789abcdef0123456789abcdef01234567"


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


def made(folder, **data):
    """Name -> run folder: token-set, and letters at two levels of noise, of which `noisy` has two seeds."""
    folders = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stsbench.evaluation.provenance.git_revision", lambda: REVISION)
        for name, model in {"words": "lexical:token-set", "letters": Letters(0, 0.1), "noisy": Letters(1, 6.0),
                            "noisy-2": Letters(2, 6.0)}.items():
            result = evaluate(model, protocols=["sts", "retrieval", "geometry"], output=folder / name, **data)
            assert not result.failures
            folders[name] = result.folder
    return folders


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
def _made_once(place, name):
    """Each file that imports a fixture has one of its own, and would make the runs again."""
    how = {"runs": {"sample": True}, "own-runs": {"data_dir": SAMPLE}}
    return made(place / name, **how[name])


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """`made`, on the sample."""
    return _made_once(tmp_path_factory.getbasetemp(), "runs")


@pytest.fixture(scope="session")
def own_runs(tmp_path_factory):
    """`made`, on data of one's own: the sample's files as if they were SentEval's, which the catalog does not know."""
    return _made_once(tmp_path_factory.getbasetemp(), "own-runs")


@pytest.fixture
def copied(runs, tmp_path):
    """`copied(name)`: a run of one's own to damage."""

    def copy(name):
        return Path(shutil.copytree(runs[name], tmp_path / f"copy-{name}"))

    return copy


NEW = {"method": "my method", "backbone": "none", "setting": "unsup", "flag": "nli"}
WORDS = ("--entry", "mine", "--method", "my method", "--backbone", "none", "--setting", "unsup", "--flag", "nli")


@pytest.fixture(scope="module")
def repository(runs, tmp_path_factory):
    """With a board of two entries."""
    home = tmp_path_factory.mktemp("checkout")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("words", "noisy"):
            add(runs[name], name, board=home / "leaderboard", method=name, backbone="none", setting="unsup")
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


def check_signature(command, function, renamed=()):
    """A function takes the options of its command, with their defaults. renamed: an option's name -> the argument's."""
    names = dict(renamed)
    options = {names.get(option.name, option.name): option for option in command.params}
    parameters = inspect.signature(function).parameters
    assert options.keys() == parameters.keys()
    for key, parameter in parameters.items():
        default = () if options[key].multiple else options[key].to_info_dict()["default"]
        assert parameter.default == (inspect.Parameter.empty if options[key].required else default), key


@pytest.fixture
def checkout(repository, tmp_path, monkeypatch):
    """A copy, as the working folder and to be damaged, of what the fixture `repository` holds."""
    home = tmp_path / "mine"
    shutil.copytree(repository, home)
    monkeypatch.chdir(home)
    return home
