"""Every model that mteb registers is an encoder or is refused by name; what is asked of one is honoured or refused."""

import json
import shutil
import sys
from collections import Counter

import numpy as np
import pytest
import torch

library = pytest.importorskip("sentence_transformers")
from clirun import cli  # noqa: E402, F401
from code_folders import CODE, own_model, ran  # noqa: E402
from model_folders import WIDTH, declare, nudge, pooling, transformer  # noqa: E402
from registered_models import (  # noqa: E402
    MODELS,
    PROMPTS,
    entry,
    judged,
    registered,
    retrieval_task,
    scored_pairs,
    scores_of_mteb,
    similarity_task,
)

import stsbench  # noqa: E402
from stsbench import load_encoder  # noqa: E402
from stsbench.data.fetch.mteb import undisturbed  # noqa: E402
from stsbench.encoders.cache.embed import Embed  # noqa: E402
from stsbench.encoders.traits import TextTask  # noqa: E402
from stsbench.errors import EncoderError, NotOnThisMachineError  # noqa: E402
from stsbench.extensions.mteb_models.registered import needs_code, refusal  # noqa: E402
from stsbench.protocols.mteb import HubData, MtebProtocol  # noqa: E402

TEXTS = ["a dog runs in the park .", "the young woman plays a guitar", "cat", "a " * 40 + "dog"]
LOCAL = {"device": "cpu", "offline": True}


def plain(folder, **settings):
    return declare(transformer(folder), pooling("mean"), settings={"prompts": PROMPTS, **settings})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return plain(tmp_path_factory.mktemp("plain") / "model")


@pytest.fixture
def model(folder):
    """Its name after --model, while mteb registers it."""
    with undisturbed():
        meta = entry(folder, "sentence-transformers/all-MiniLM-L6-v2")
    with registered(meta) as name:
        yield name


def test_all_that_mteb_registers_is_accepted_or_refused_with_a_reason():
    with undisturbed() as package:
        metas = package.get_model_metas()
    counts = Counter()
    for meta in metas:
        why = refusal(meta)
        counts["refused" if why else "code" if needs_code(meta) else "accepted"] += 1
        single = "dense" in meta.model_type or meta.model_type == ["router"]
        assert (why is None) == (single and "text" in meta.modalities and meta.loader is not None), meta.name
        assert why is None or len(why) > 20
        asked = json.dumps(meta.loader_kwargs, default=str)
        assert needs_code(meta) or '"trust_remote_code": true' not in asked, meta.name
    assert sum(counts.values()) == len(metas) >= 969
    assert counts["accepted"] >= 570 and counts["code"] >= 120 and counts["refused"] >= 260, counts


def test_options_that_a_folder_does_not_honour_are_refused(model):
    for option, why in (({"pooler": "cls"}, "--pooler"), ({"revision": "main"}, "which has no revisions"),
                        ({"max_length": 999}, "72 positions"), ({"truncate_dim": 99}, "gives vectors of 16 numbers")):
        with pytest.raises(EncoderError, match=why) as caught:
            load_encoder(model, **LOCAL, **option)
        assert "\n" not in str(caught.value)


def test_options_are_those_of_the_library(model, folder):
    theirs = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    prompt = PROMPTS["STS"]
    encoder = load_encoder(model, **LOCAL)
    np.testing.assert_allclose(encoder.encode(TEXTS), theirs.encode(TEXTS, prompt=prompt), atol=2e-6)
    assert encoder.spec.prefix == prompt and encoder.dimension == WIDTH and encoder.spec.max_length == 64
    for role in ("query", "document"):
        np.testing.assert_allclose(getattr(encoder, f"encode_{role}")(TEXTS),
                                   getattr(theirs, f"encode_{role}")(TEXTS, prompt=PROMPTS[role]), atol=2e-6)
    reading = encoder.for_task(TextTask("MR", "Classification"))
    np.testing.assert_allclose(reading.encode(TEXTS), theirs.encode(TEXTS, prompt=PROMPTS["Classification"]), atol=2e-6)
    assert reading.for_role("query").spec.prefix == PROMPTS["Classification"]  # mteb: the type before the role
    assert encoder.for_task(TextTask("STS12", "STS")) is encoder is encoder.for_task(TextTask(type="STS"))
    cut = load_encoder(model, **LOCAL, truncate_dim=5)
    np.testing.assert_allclose(cut.encode(TEXTS), theirs.encode(TEXTS, prompt=prompt)[:, :5], atol=2e-6)
    half = load_encoder(model, **LOCAL, dtype="bfloat16")
    assert half.spec.dtype == "bfloat16" and next(half.library.parameters()).dtype == torch.bfloat16
    short = load_encoder(model, **LOCAL, max_length=12)
    theirs.max_seq_length = 12
    np.testing.assert_allclose(short.encode(TEXTS), theirs.encode(TEXTS, prompt=prompt), atol=2e-6)
    assert short.run(TEXTS).truncated.tolist() == [True, False, False, True]  # the prompt has four tokens, two are special
    assert len({one.spec.fingerprint() for one in (encoder, cut, half, short, encoder.for_role("query"))}) == 5
    with pytest.raises(EncoderError, match="puts no prompt before a text"):
        encoder.encode(TEXTS, prompt="red ")


def test_a_batch_moves_no_vector_of_a_model_that_does_not_honour_its_mask(tmp_path):
    declare(transformer(tmp_path / "model", "fnet"), pooling("mean"))
    with undisturbed():
        meta = entry(tmp_path / "model", "sentence-transformers/all-MiniLM-L6-v2")
    with registered(meta) as name:
        encoder = load_encoder(name, **LOCAL)
    assert encoder.equal_lengths and "texts of equal length only" in encoder.notes[-1]
    for text, vector in zip(TEXTS, encoder.encode(TEXTS), strict=True):
        np.testing.assert_allclose(encoder.encode([text])[0], vector, atol=1e-6)


def test_the_fingerprint_names_files_loader_arguments_and_versions(tmp_path, model, folder):
    encoder = load_encoder(model, **LOCAL)
    assert encoder.spec.options["versions"].keys() == {"mteb", "sentence-transformers", "transformers", "torch"}
    other = shutil.copytree(folder, tmp_path / "copy")
    fingerprints = {encoder.spec.fingerprint()}
    with undisturbed():
        meta = entry(other, "sentence-transformers/all-MiniLM-L6-v2")
        prompted = meta.model_copy(update={"loader_kwargs": {"model_prompts": {"query": "a "}}})
    for changed in (meta, prompted, meta):
        with registered(changed) as name:
            fingerprints.add(load_encoder(name, **LOCAL).spec.fingerprint())
        nudge(other / "model.safetensors")
    assert len(fingerprints) == 4


@pytest.mark.parametrize("hidden", [False, True])
def test_no_code_runs_unless_it_is_allowed(tmp_path, hidden, monkeypatch):
    """Whether the loader's arguments ask for it, or its own lines do, where nobody sees them."""
    folder = declare(own_model(tmp_path / "model"), pooling("mean"))
    with undisturbed():
        from mteb.models import SentenceTransformerEncoderWrapper

        meta = entry(folder, "nomic-ai/nomic-embed-text-v1")
        if hidden:
            def loader(name, revision, **more):
                return SentenceTransformerEncoderWrapper(name, revision, **{"trust_remote_" + "code": True}, **more)

            meta = meta.model_copy(update={"loader": loader, "loader_kwargs": {}})
    assert needs_code(meta) != hidden
    with registered(meta) as name:
        with pytest.raises(EncoderError, match=r"with code from its repository.* --trust-remote-code") as caught:
            load_encoder(name, **LOCAL)
        assert not ran(folder).exists() and "\n" not in str(caught.value)
        allowed = load_encoder(name, **LOCAL, trust_remote_code=True)
        assert ran(folder).exists() and len(allowed.spec.options["code"]) == 1
        assert np.isfinite(allowed.encode(TEXTS)).all() and allowed.notes == ()


def told(loader):
    """What is said where a loader of mteb's does this."""
    import mteb

    meta = mteb.get_model_meta("mteb/baseline-random-encoder")
    about = {"loader": loader, "name": "org/made-up", "loader_kwargs": {}, "modalities": ["text"]}
    meta = meta.model_copy(update=about)
    with registered(meta) as name, pytest.raises(EncoderError) as caught:
        load_encoder(name, **LOCAL)
    assert "\n" not in str(caught.value) and "org/made-up" in str(caught.value)
    return f"{type(caught.value).__name__}: {caught.value}"


def test_what_a_loader_raises_is_one_line(tmp_path):
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError

    http = sys.modules[HfHubHTTPError.__mro__[1].__module__.partition(".")[0]]  # httpx, or what has followed it

    def raising(error, cause=None):
        def loader(name, revision, **more):
            raise error from cause
        return told(loader)

    torch.save({"a": torch.zeros(1)}, tmp_path / "w.pt")
    request = http.Request("GET", "https://huggingface.co")
    gated = GatedRepoError("no", response=http.Response(403, request=request))
    assert "NotOnThisMachineError: mteb:org/made-up is not in the Hub cache" in raising(OSError("long\nstory"),
                                                                                         LocalEntryNotFoundError("x"))
    assert "not in the Hub cache" in raising(http.ConnectError("no route"))
    assert "is gated: accept its terms on the Hub and set HF_TOKEN" in raising(gated)
    assert raising(ZeroDivisionError("odd\nstory")).endswith("mteb cannot load mteb:org/made-up: ZeroDivisionError: odd")
    assert "needs the package flair: pip install flair" in raising(ModuleNotFoundError("No module", name="flair.x"))
    pickled = told(lambda name, revision, **more: torch.load(tmp_path / "w.pt", weights_only=False))
    assert "from a pickle that may run code (w.pt): --trust-remote-code" in pickled
    assert "has no encode" in told(lambda name, revision, **more: type("Search", (), {})())


def test_no_kind_of_folder_runs_its_code(tmp_path):
    for number, kind in enumerate(CODE.values()):
        kind.build(folder := tmp_path / str(number))
        with undisturbed():
            meta = entry(folder, "sentence-transformers/all-MiniLM-L6-v2")
        with registered(meta) as name:
            try:
                load_encoder(name, **LOCAL).encode(TEXTS)
            except EncoderError as error:
                assert "\n" not in str(error)
        assert not ran(folder).exists()


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub cache that holds two commits of a model that mteb registers."""
    import mteb

    meta = mteb.get_model_meta("sentence-transformers/all-MiniLM-L6-v2")
    place = tmp_path / "hub" / f"models--{meta.name.replace('/', '--')}"
    for commit, factor in ((meta.revision, 0.0), ("2" * 40, 0.3)):
        folder = plain(place / "snapshots" / commit)
        if factor:
            nudge(folder / "model.safetensors", by=factor)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("2" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return meta, place / "snapshots"


def test_the_revision_is_the_one_that_mteb_pins_unless_another_is_asked_for(hub):
    meta, snapshots = hub
    pinned = load_encoder(f"mteb:{meta.name}", **LOCAL)
    main = load_encoder(f"mteb:{meta.name}", **LOCAL, revision="main")
    assert pinned.spec.options["revision"] == meta.revision and main.spec.options["revision"] == "2" * 40
    assert pinned.spec.fingerprint() != main.spec.fingerprint()
    for encoder, commit in ((pinned, meta.revision), (main, "2" * 40)):
        theirs = library.SentenceTransformer(str(snapshots / commit), device="cpu", local_files_only=True)
        np.testing.assert_allclose(encoder.encode(TEXTS), theirs.encode(TEXTS, prompt=PROMPTS["STS"]), atol=2e-6)
    for name, more in ((meta.name, {"revision": "3" * 40}), ("intfloat/e5-small", {})):
        with pytest.raises(NotOnThisMachineError, match="not in the Hub cache, and --offline forbids"):
            load_encoder(f"mteb:{name}", **LOCAL, **more)


def test_every_protocol_measures_it_and_its_records_name_one_encoder(model, tmp_path, cli):
    code, _, lines = cli("eval", "--model", model, "--sample", "--protocol", "sts,mteb,transfer", "--tasks", "STS-B,MR",
                         "--offline", "--no-cache", "--device", "cpu", "--output", tmp_path / "run")
    assert code == 0, lines
    records = stsbench.load(tmp_path / "run").records
    assert {record.protocol.name for record in records} == {"sts", "mteb", "transfer"}
    assert len({record.encoder.fingerprint for record in records}) == 1
    assert f"encoder {model}" in lines and f"prompt {PROMPTS['STS']!r}" in lines
    assert f'transfer "{PROMPTS["Classification"]}"' in lines
    [of_transfer] = (record for record in records if record.protocol.name == "transfer")
    assert of_transfer.provenance["prompts"] == {"text": PROMPTS["Classification"]}


def values(result, metrics):
    return {row.metric: row.value for row in result.rows if row.metric in metrics}


@pytest.mark.parametrize("name", ["qwen3", "gemma3", "jina", "router"])  # by instructions, prompts, tasks and roles
def test_our_protocols_mteb_s_and_mteb_itself_agree(name, tmp_path, monkeypatch):
    """`mteb:NAME` gives what mteb.evaluate gives for the same model, prompts included."""
    build, like = MODELS[name]
    folder = tmp_path / "org" / "model"
    build(folder)
    with undisturbed() as package:
        meta = entry(folder, like)
        direct = meta.load_model(device="cpu")
        similar, retrieved = scores_of_mteb(package, direct, [similarity_task(), retrieval_task()])
    with registered(meta) as model:
        encoder = load_encoder(model, **LOCAL, trust_remote_code=True)
    data = dict(zip(("queries", "corpus", "relevant_docs"), judged(), strict=True))
    own = stsbench.evaluate(encoder, sts=[*zip(*scored_pairs(), strict=True)], retrieval=data, resamples=0, no_cache=True)
    assert not own.failures
    assert values(own, ("spearman",))["spearman"] == pytest.approx(100 * similar["spearman"], abs=1e-4)
    got = values(own, ("recall@1", "recall@5", "recall@10", "mrr"))
    expected = {"mrr": retrieved["mrr_at_1000"], **{f"recall@{k}": retrieved[f"recall_at_{k}"] for k in (1, 5, 10)}}
    for key, value in got.items():  # mteb rounds all but MRR to five digits
        assert round(value / 100, 5) == round(expected[key], 5), key
    for task, scores in ((similarity_task(), similar), (retrieval_task(), retrieved)) if name in ("gemma3", "jina") else ():
        monkeypatch.setattr(MtebProtocol, "_task", lambda self, mteb, name, task=task: task)
        monkeypatch.setattr(type(task), "load_data", lambda self, *arguments, **more: None)
        protocol = MtebProtocol({"tasks": {"X": "mteb:X"}})
        data = HubData("mteb:X", "X", "own", (), origin="", known=False)
        seen = protocol.observe(Embed(encoder), data)
        for row in protocol.score(seen, data.id, "X"):
            assert row.value == pytest.approx(100 * scores[row.metric], abs=1e-4), row.metric
