"""What every kind of encoder does, ours and a plug-in's: what it reads, what it answers to other people's programs.
Encoders, post-processings and probes on a device that refuses the CPU's tensors: their numbers are the CPU's.
docs/how-to/adding-an-encoder.md works as it stands: its code blocks are an installed plug-in."""

import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import light_process
import numpy as np
import pandas
import pytest
import torch
from click.testing import CliRunner
from known_encoder import Known, check_known
from pretend_device import pretend_device
from probe_data import clouds, some_fits
from prompted import MORE, models, with_prompt  # noqa: F401
from tiny_models import add_modules, build, sentences
from training_runs import one_thread  # noqa: F401

import stsbench
from stsbench import load_encoder, registry
from stsbench.cli.main import cli
from stsbench.encoders.base import Encoded, Encoder, EncoderSpec, Wrapper
from stsbench.encoders.cache.embed import Embed
from stsbench.encoders.light.callable import CallableEncoder
from stsbench.encoders.post.chain import Chain
from stsbench.encoders.post.encoder import PostProcessed
from stsbench.encoders.traits import TextTask
from stsbench.encoders.transformer.live import LiveEncoder
from stsbench.errors import EncoderError, StsbenchError
from stsbench.probes.exact import Exact
from stsbench.probes.lockstep import lockstep_solver
from stsbench.training.runs.export import export_model

TEXTS = ["the cat", "a dog eats", "the cat", "the red cat sleeps", *sentences(12, longest=6)]


def lengths(texts):
    return [[len(text), text.count("a"), 1.0] for text in texts]


class Plugin(Encoder):
    spec = EncoderSpec("plugin", "plugin", "0" * 64)

    def run(self, texts, progress=None):
        return Encoded(np.array(lengths(texts), np.float32).reshape(-1, 3), np.zeros(len(texts), bool))


def model(folder):
    return load_encoder(str(build(folder / "model")), pooler="mean", offline=True, device="cpu")


def library(folder):
    import sentence_transformers

    place = str(add_modules(build(folder / "modules"), {"pooling_mode": "mean"}, extra=()))
    return CallableEncoder.wrap(sentence_transformers.SentenceTransformer(place, device="cpu"))


KINDS = {
    "live": lambda folder: LiveEncoder(model(folder).parts, pooler="mean", name="live"),
    "dropout": lambda folder: model(folder).with_dropout(3), "library": library, "plugin": lambda folder: Plugin(),
    "callable": lambda folder: CallableEncoder(lengths),
    "tfidf": lambda folder: load_encoder("lexical:tfidf").fit(TEXTS, "x@1"),
    "post": lambda folder: PostProcessed(Plugin(), Chain.parse("standardise")).fit(["b", "cc", "aaa", "dd a"], "x@1"),
}


def dense(vectors):
    return vectors.toarray() if hasattr(vectors, "toarray") else vectors


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_of_texts_is_any_and_other_people_s_programs_are_answered(kind, tmp_path):
    encoder = KINDS[kind](tmp_path)
    expected = dense(encoder.encode(TEXTS))
    assert expected.shape[0] == len(TEXTS) and expected.dtype == np.float32
    if kind not in ("callable", "library"):  # a function may return an empty list, which has no width
        assert dense(encoder.encode([])).shape[0] == 0
    alone = encoder.encode(TEXTS[1])
    series = pandas.Series(TEXTS, index=[7] * len(TEXTS))
    several = [dense(encoder.encode(same)) for same in (tuple(TEXTS), iter(TEXTS), np.array(TEXTS), np.array(TEXTS, object),
                                                        series)]
    assert alone.shape == (expected.shape[1],)
    if kind != "dropout":  # random
        assert np.allclose(alone, expected[1], atol=1e-5)
        assert all(np.allclose(vectors, expected, atol=1e-5) for vectors in several)
    vectors = encoder.encode(TEXTS, batch_size=4, normalize_embeddings=True)
    lengths = np.linalg.norm(dense(vectors), axis=1)
    np.testing.assert_allclose(lengths[lengths > 0], 1, rtol=1e-5)
    assert encoder.get_sentence_embedding_dimension() in (None, vectors.shape[1])
    assert encoder.similarity(vectors, vectors[:2]).shape == (len(TEXTS), 2)
    if kind != "tfidf":  # sparse
        tensor = encoder.encode_query(TEXTS, convert_to_tensor=True, truncate_dim=2)
        assert tensor.shape == (len(TEXTS), 2) and tensor.device == encoder.device == torch.device("cpu")


LIGHT = """
import sys
before = set(sys.modules)
import stsbench.encoders as room
assert not {"numpy", "torch"} & set(sys.modules) - before
assert all(getattr(room, name) for name in room.__all__) and not hasattr(room, "nothing")
import stsbench.encoders.transformer.lazy, stsbench.encoders.transformer.find
import stsbench.encoders.cache.cache, stsbench.encoders.light.words, stsbench.encoders.light.vectors
from stsbench import load_encoder
load_encoder("lexical:token-set").encode(["a b"])
assert not {"torch", "transformers"} & set(sys.modules)
"""


def test_torch_is_imported_by_what_needs_it_alone():
    done = light_process.run(LIGHT)
    assert done.returncode == 0, done.stderr


# ---- encoders made of another one: what is known of that one is behind each of them
ROOT = Path(__file__).resolve().parents[2] / "stsbench"


def wrappers(kind=Wrapper):
    return {kind for below in kind.__subclasses__() for kind in ({below} | wrappers(below))}


def test_every_wrapper_of_the_core_is_tried():
    for path in ROOT.rglob("*.py"):
        if "wrapper import" in path.read_text("utf-8") and "extensions" not in path.parts:
            import_module(".".join(("stsbench", *path.relative_to(ROOT).with_suffix("").parts)))
    assert {kind for kind in wrappers() if kind.__module__.startswith("stsbench.") and "extensions" not in kind.__module__} \
        == {PostProcessed}  # another one: try it below, too


def test_whatever_is_known_of_the_base_is_behind_a_wrapper():
    for read in (lambda made: made, lambda made: made.for_role("query"), lambda made: made.with_prompt("x: "),
                 lambda made: made.for_task(TextTask("T", "STS")), lambda made: made.with_prompt("x: ").for_role("query")):
        base = Known()
        made = read(PostProcessed(base, Chain.parse("standardise")))
        assert isinstance(made, PostProcessed) and made.spec.prefix == read(base).spec.prefix
        check_known(made, base)


PRETENDED_TEXTS = [*sentences(3, longest=9), ""]
DEVICE = "pretend:0"


def check_same(folder, **options):
    """The vectors on either device."""
    expected = load_encoder(str(folder), device="cpu", **options).encode(PRETENDED_TEXTS)
    with pretend_device() as pretended:
        encoder = load_encoder(str(folder), device=DEVICE, **options)
        np.testing.assert_allclose(encoder.encode(PRETENDED_TEXTS), expected, atol=1e-5)
        assert encoder.built.device == pretended.device
    assert np.abs(expected).max() > 0


def test_poolers_and_templates(folder):
    for pooler in ("max", "weighted_mean", "first_last:layer1", "mean_padded:20", "cls+dense"):
        check_same(folder, pooler=pooler)
    check_same(folder, pooler="mask", template="the cat : {} means [MASK] .", full_stop=True, normalize=True)


@pytest.mark.parametrize("more", [MORE[1], ("bert", {"rank": 2})], ids=str)
def test_trained_prompts(models, tmp_path, more):
    export_model(with_prompt(models, *more), tmp_path / "model", card="")
    check_same(tmp_path / "model")


@pytest.mark.parametrize("solver", ["lockstep", "exact"])
def test_probes(solver):
    x, y = clouds(48, 5, 3)

    def classes(device):
        fits = some_fits(48, regs=(1e-3, 1e-2) if solver == "lockstep" else (0.5, 2.0), k=2)
        options = {"max_epoch": 8} if solver == "lockstep" else {}
        return list({"lockstep": lockstep_solver, "exact": Exact}[solver](x, y, 3, device=device, **options)(fits))

    expected = classes("cpu")
    with pretend_device() as pretended:
        predicted = classes(DEVICE)
        assert pretended.waits  # the results are copied back
    assert all(len(set(one.tolist())) > 1 for one in expected)
    assert all(np.array_equal(one, other) for one, other in zip(predicted, expected, strict=True))


def test_the_pretended_device_refuses_and_notes_where_it_would_wait_as_cuda_does():
    with pretend_device() as pretended:
        states = torch.randn(2, 3, device=pretended.device)
        with pytest.raises(RuntimeError, match="same device"):
            torch.nn.functional.linear(states, torch.randn(4, 3))
        pretended.waits.clear()
        assert (states * torch.tensor(2.0))[torch.tensor([1, 0])].device == pretended.device
        assert not pretended.waits
        states[states > 0], float(states.sum()), states.cpu(), states.nonzero(), states.tolist()
        names = " ".join(pretended.waits)
        assert all(each in names for each in ("by a mask", "_local_scalar_dense", "copy to the CPU", "nonzero", "tolist"))


PAGE = Path(stsbench.__file__).resolve().parents[1] / "docs" / "how-to" / "adding-an-encoder.md"


def block(language):
    return re.search(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[1]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The page's module and, from its pyproject.toml, the metadata that pip would write; a kind that is not an encoder."""
    (tmp_path / "ngrams.py").write_text(block("python"))
    project = tomllib.loads(block("toml"))["project"]
    points = [f"{name} = {value}\n" for name, value in project["entry-points"]["stsbench.encoders"].items()]
    facts = tmp_path / "stsbench_ngrams-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points += ["odd = json:dumps\n", "bad = nowhere:X\n"]
    (facts / "entry_points.txt").write_text("[stsbench.encoders]\n" + "".join(points))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    registry._points.cache_clear()
    yield
    registry._points.cache_clear()
    sys.modules.pop("ngrams", None)


def test_the_plug_in_is_measured_and_what_is_none_is_refused(installed, tmp_path):
    words = ["eval", "--model", "ngrams:3", "--tasks", "STS-B", "--sample", "--resamples", "0"]
    result = CliRunner().invoke(cli, [*words, "--output", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert "encoder ngrams:3" in result.output and "STS-B" in result.output
    assert "ngrams" in CliRunner().invoke(cli, ["list", "encoders"]).output
    for name, message in (
        ("ngrams:x", "expected a number of characters"), ("ngrams", "ngrams is a kind of encoder: write ngrams:ARGUMENT"),
        ("odd:x", "not a class derived from stsbench.encoders.base.Encoder"), ("bad:x", "failed to load"),
    ):
        with pytest.raises(StsbenchError, match=message):
            load_encoder(name)


CLASS = r"NGrams \(ngrams.py\)"
MISTAKES = {  # what is replaced on the page, by what, the line that says so
    "spec": ("self.spec =", "spec =", f"{CLASS} does not set self.spec to an EncoderSpec"),
    "no run": ("def run", "def ran", f"{CLASS} does not define run"),
    "construction": ("int(argument)\n", "argument.size\n",
                     r"NGrams.load failed \(ngrams.py:16\): AttributeError: 'str' object has no attribute 'size'"),
    "run": ("zlib.crc32", "zlib.crc",
            r"NGrams.run failed \(ngrams.py:24\): AttributeError: module 'zlib' has no attribute 'crc'"),
    "array": ("return Encoded(", "return vectors  # ",
              rf"{CLASS}: run must return Encoded\(vectors, truncated\), not ndarray"),
    "load": ("    def run", "    def load(*_): pass\n\n    def run", f"{CLASS}: load must return an Encoder, not NoneType"),
}


@pytest.mark.parametrize(("before", "after", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_the_class_is_one_line(installed, tmp_path, before, after, message):
    code = (tmp_path / "ngrams.py").read_text()
    assert before in code
    (tmp_path / "ngrams.py").write_text(code.replace(before, after))
    with pytest.raises(EncoderError, match=f"^{message}$"):
        Embed(load_encoder("ngrams:3")).add(["a"])
