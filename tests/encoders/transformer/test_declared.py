"""What a model folder declares runs, or is refused by name: its own code, its tokenizer, its adapter's base, its files."""

import json
import shutil

import numpy as np
import pytest
import tiny_models
import torch
from model_folders import adapter, change
from published_vectors import own_home  # noqa: F401 - a fixture
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoModel, PreTrainedTokenizerFast

from stsbench import load_encoder, train
from stsbench.encoders.model_folder import check_pattern
from stsbench.encoders.transformer.declared import lacking
from stsbench.encoders.transformer.find import resolve_base
from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import load_backbone

TEXTS = ["a man plays the guitar", "the cat sleeps", "a big red dog eats food in the park"]


def vectors(folder, **options):
    return load_encoder(str(folder), pooler="mean", **options).encode(TEXTS)


def by_transformers(folder):
    """Mean vectors by the folder's tokenizer.json, a text at a time: the independent way."""
    tokenizer, model = Tokenizer.from_file(str(folder / "tokenizer.json")), AutoModel.from_pretrained(folder).eval()
    tokenizer.no_padding()
    tokenizer.no_truncation()
    with torch.inference_mode():
        states = [model(input_ids=torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0] for text in TEXTS]
    return torch.stack([state.mean(0) for state in states]).numpy()


@pytest.mark.parametrize(("family", "named"), [
    ("roberta", "RobertaTokenizer"), ("bert", "BertTokenizer"), ("bert", "NoSuchTokenizer")])
def test_the_tokenizer_is_that_of_tokenizer_json(tmp_path, family, named):
    folder = tiny_models.build(tmp_path / "m", family)
    change(folder / "tokenizer_config.json", tokenizer_class=named)
    if named == "BertTokenizer":  # which lowers texts by itself
        stored = json.loads((folder / "tokenizer.json").read_text())
        stored["normalizer"]["lowercase"] = False
        (folder / "tokenizer.json").write_text(json.dumps(stored))
    try:
        result = vectors(folder)
    except EncoderError as error:
        assert named == "NoSuchTokenizer" and "tokenizer" in str(error)
        return
    assert abs(result - by_transformers(folder)).max() < 1e-4


def test_a_tokenizer_class_that_is_trusted_reads_the_texts(tmp_path):
    folder = tiny_models.build(tmp_path / "m", "bert")
    expected = load_encoder(str(folder), pooler="mean").encode([" ".join(text.split()[::-1]) for text in TEXTS])
    (folder / "tok_own.py").write_text(
        "from transformers import PreTrainedTokenizerFast\n"
        "class Own(PreTrainedTokenizerFast):\n"
        "    def _encode_plus(self, text, *rest, **how):\n"
        "        turned = [' '.join(one.split()[::-1]) for one in ([text] if isinstance(text, str) else text)]\n"
        "        return super()._encode_plus(turned[0] if isinstance(text, str) else turned, *rest, **how)\n")
    change(folder / "tokenizer_config.json", tokenizer_class="Own", auto_map={"AutoTokenizer": [None, "tok_own.Own"]})
    result = vectors(folder, trust_remote_code=True)
    assert abs(result - expected).max() < 1e-5 and abs(result - vectors(folder)).max() > 0.01


def snapshot(hub, repo, revision, folder, main=False):
    place = hub / f"models--{repo.replace('/', '--')}"
    shutil.copytree(folder, place / "snapshots" / revision)
    if main:
        (place / "refs").mkdir()
        (place / "refs" / "main").write_text(revision)


def test_an_adapter_is_read_with_the_revision_that_it_pins(tmp_path, monkeypatch):
    """Against the same adapter on the base's folder."""
    old = tiny_models.build(tmp_path / "old", pooler=False)
    new = shutil.copytree(old, tmp_path / "new")
    save_file({key: value * 1.5 for key, value in load_file(old / "model.safetensors").items()}, new / "model.safetensors",
              metadata={"format": "pt"})
    hub = tmp_path / "hub"
    snapshot(hub, "org/base", "1" * 40, old)
    snapshot(hub, "org/base", "2" * 40, new, main=True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub))
    expected = {place: vectors(adapter(tmp_path / f"on-{place.name}", old, named=str(place))) for place in (old, new)}
    folder = adapter(tmp_path / "pinned", old, named="org/base")
    assert abs(vectors(folder, offline=True) - expected[new]).max() < 1e-6
    change(folder / "adapter_config.json", revision="1" * 40)
    assert abs(vectors(folder, offline=True) - expected[old]).max() < 1e-6 < abs(expected[old] - expected[new]).max()
    merged = {place: load_backbone(place, "x", offline=True).model.state_dict() for place in (folder, tmp_path / "on-old")}
    assert all(merged[folder][key].equal(value) for key, value in merged[tmp_path / "on-old"].items())  # of a training
    change(folder / "adapter_config.json", revision="3" * 40)
    with pytest.raises(EncoderError):
        vectors(folder, offline=True)


@pytest.mark.parametrize(("changed", "matters"), [
    ({"use_cache": False, "hidden_dropout_prob": 0.3, "output_attentions": True, "num_labels": 7}, False),
    ({"layer_norm_eps": 1e-3}, True)])
def test_a_base_that_differs_in_what_moves_no_vector(tmp_path, changed, matters):
    base = tiny_models.build(tmp_path / "base", pooler=False)
    folder = shutil.copytree(base, tmp_path / "m")
    adapter(folder, base)
    change(base / "config.json", **changed)
    if matters:
        with pytest.raises(EncoderError, match=f"differs from the one beside it .*{next(iter(changed))}"):
            resolve_base(folder, True)
    else:
        assert resolve_base(folder, True) is None
    change(folder / "adapter_config.json", base_model_name_or_path=3)  # names no base that could differ
    assert resolve_base(folder, True) is None


def test_a_token_beyond_the_table_is_found_in_a_text_and_before_a_training(tmp_path):
    folder = tiny_models.build(tmp_path / "m", pooler=False)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    size = len(tokenizer)
    tokenizer.add_tokens(["zebra"])
    tokenizer.save_pretrained(folder)
    encoder = load_encoder(str(folder), pooler="mean")
    assert np.isfinite(encoder.encode(["a cat"])).all()
    (tmp_path / "a.txt").write_text("\n".join([*tiny_models.sentences(30), "a zebra runs"]))
    settings = {"backbone.model": str(folder), "data.file": str(tmp_path / "a.txt"), "training.max_steps": 1,
                "training.batch_size": 8, "selection.by": "none"}
    for call in (lambda: encoder.encode(["a cat", "a zebra"]),
                 lambda: train("simcse", output=tmp_path / "run", settings=settings, device="cpu")):
        with pytest.raises(EncoderError, match=f"'zebra' the token id {size}, and the model has a vocabulary of {size}"):
            call()


def test_patterns_that_end():
    for pattern in ("query", r"^(?!.*vision).*(q_proj|k_proj)$", ["a+", "(a+)+"], r"model\.layers\.(\d+)\.attn", None,
                    ".*.*.*.*x", "a" * 1000):
        check_pattern(pattern, "target_modules")


def test_a_folder_that_was_copied_in_part_is_said_to_be(tmp_path):
    folder = tiny_models.add_modules(tiny_models.build(tmp_path / "m", pooler=False), {"pooling_mode_mean_tokens": True})
    assert not any("is the folder complete" in note for note in load_encoder(str(folder)).notes)
    for lost in ("tokenizer_config.json", "sentence_bert_config.json"):
        content = (folder / lost).read_text()
        (folder / lost).unlink()
        assert any(f"no {lost}, which" in note for note in load_encoder(str(folder)).notes)
        (folder / lost).write_text(content)


@pytest.mark.parametrize("lost", ["modules.json", "tokenizer_config.json"])
def test_a_snapshot_that_may_lack_a_file_is_said_to(tmp_path, lost, monkeypatch):
    whole = tiny_models.add_modules(tiny_models.build(tmp_path / "m", pooler=False), {"pooling_mode_mean_tokens": True},
                                    prompts={"query": "a "})
    hub, commit = tmp_path / "hub", "1" * 40
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub))
    snapshot(hub, "org/m", commit, whole, main=True)
    cache = hub / "models--org--m"
    folder, absent, listing = cache / "snapshots" / commit, cache / ".no_exist" / commit, cache / "trees" / f"{commit}.json"

    def doubts(model="org/m"):
        return [note for note in load_encoder(str(model), offline=True, pooler="mean").notes if "may be incomplete" in note]

    def listed(name):
        listing.write_text(json.dumps({"format_version": 1, "files": {name: {"size": 1, "blob_id": "0" * 40}}}))

    (folder / lost).unlink(missing_ok=True)
    absent.mkdir(parents=True)
    for name in set(lacking(folder)) - {lost}:
        (absent / name).touch()  # a library asked for it
    assert len(doubts()) == len(doubts(folder)) == 1 and f"has {lost} is not known" in doubts()[0]
    (absent / lost).touch()
    assert doubts() == []
    (absent / lost).unlink()
    listing.parent.mkdir()
    listed("config.json")  # and no such file
    assert doubts() == []
    listed(lost)
    with pytest.raises(EncoderError, match=rf"is incomplete.*{lost}"):
        load_encoder(str(folder), offline=True, pooler="mean")


@pytest.mark.parametrize(("config", "tensors"), [
    ({"model_type": "model2vec", "normalize": False}, ("weights",)),
    ({"architectures": ["StaticModel"], "normalize": True}, ("mapping", "weights")),
    ({"apply_pca": 16, "apply_zipf": True, "hidden_dim": 16, "seq_length": 1_000_000}, ()),  # of its first versions
])
def test_a_table_of_model2vec_without_modules(tmp_path, config, tensors):
    folder = tiny_models.build(tmp_path / "m", pooler=False)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    long = [len(tokenizer.encode(text, add_special_tokens=False).ids) > 4 for text in TEXTS]
    tokenizer.enable_truncation(4)  # which sentence-transformers heeds, as model2vec's own 512
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    size = tokenizer.get_vocab_size()
    stored = {"embeddings": torch.randn(size, 16), "mapping": torch.randint(0, size, (size,)), "weights": torch.rand(size)}
    stored = {name: stored[name] for name in ("embeddings", *tensors)}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    expected = []
    for text in TEXTS:
        ids = torch.tensor(tokenizer.encode(text, add_special_tokens=False).ids)
        rows = stored["embeddings"][stored["mapping"][ids] if "mapping" in stored else ids]
        mean = (rows * stored["weights"][ids][:, None] if "weights" in stored else rows).mean(0)
        expected.append(mean / mean.norm() if config.get("normalize") else mean)
    encoder = load_encoder(str(folder))
    np.testing.assert_allclose(encoder.encode(TEXTS), torch.stack(expected).numpy(), atol=1e-6)
    assert encoder.run(TEXTS).truncated.tolist() == long and any(long)
    assert encoder.dimension == 16 and any("model2vec" in note for note in encoder.notes)
