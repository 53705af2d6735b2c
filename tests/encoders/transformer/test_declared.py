"""What a model folder declares runs, or is refused by name: its own code, its tokenizer, its adapter's base, its files."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import tiny_models
import torch
from own_home import own_home  # noqa: F401 - a fixture
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoModel, PreTrainedTokenizerFast, RobertaTokenizer

from stsbench import load_encoder, train
from stsbench.encoders.base import EncoderOptions
from stsbench.encoders.model_folder import check_pattern
from stsbench.encoders.transformer.config import resolve_config
from stsbench.encoders.transformer.declared import lacking
from stsbench.encoders.transformer.find import resolve_base
from stsbench.errors import EncoderError
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.modules.packed_training import packable

TEXTS = ["a man plays the guitar", "the cat sleeps", "a big red dog eats food in the park"]
OWN = """
from transformers import {base}
class Own({base}):
    def forward(self, *args, **named):
        out = super().forward(*args, **named)
        out["last_hidden_state"] = out.last_hidden_state.flip(-1)
        return out
"""


def change(path, **values):
    stored = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({key: value for key, value in {**stored, **values}.items() if value is not ...}))


def vectors(folder, **options):
    return load_encoder(str(folder), pooler="mean", **options).encode(TEXTS)


def by_transformers(folder, tokenizer, base=None, **how):
    """Mean vectors, a text at a time: the independent way."""
    model = AutoModel.from_pretrained(base or folder, **how).eval()
    with torch.inference_mode():
        states = [model(input_ids=torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0] for text in TEXTS]
    return torch.stack([state.mean(0) for state in states]).numpy()


def read_file(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


@pytest.mark.parametrize(("family", "base"), [
    ("bert", "BertModel"), ("roberta", "RobertaModel"), ("distilbert", "DistilBertModel"),
])
def test_code_that_is_trusted_runs_whatever_the_family(tmp_path, family, base):
    folder = tiny_models.build(tmp_path / "m", family)
    (folder / "modeling_own.py").write_text(OWN.format(base=base))
    change(folder / "config.json", auto_map={"AutoModel": "modeling_own.Own"})
    stock, own = vectors(folder), vectors(folder, trust_remote_code=True)
    assert abs(own - stock[:, ::-1]).max() < 1e-5 and abs(own - stock).max() > 0.1
    notes = [load_encoder(str(folder), pooler="mean", trust_remote_code=trust).notes for trust in (False, True)]
    assert [any("auto_map: modeling_own.Own), which is not run" in line for line in each) for each in notes] == [True, False]


def test_what_the_packed_training_leaves_out_has_none(tmp_path):
    """Hooks, a patched forward, a class of another's: they may count on rows as they are padded."""
    folder = tiny_models.build(tmp_path / "m", "bert", pooler=False)

    def changed(how):
        model = AutoModel.from_pretrained(folder)
        assert packable(model)
        how(model)
        return model

    class Other(type(AutoModel.from_pretrained(folder).encoder.layer[0].output)):
        pass

    for how in (
        lambda model: model.encoder.layer[0].register_forward_hook(lambda *_: None),
        lambda model: model.embeddings.register_forward_pre_hook(lambda *_: None),
        lambda model: setattr(model.encoder.layer[1].output, "forward", lambda *_: None),
        lambda model: setattr(model.encoder.layer[0].output, "__class__", Other),
    ):
        assert not packable(changed(how))


def unigram():
    backend = Tokenizer(models.Unigram())
    backend.normalizer, backend.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    backend.train_from_iterator(
        [" ".join(tiny_models.WORDS), *TEXTS] * 9,
        trainers.UnigramTrainer(vocab_size=60, special_tokens=["<s>", "<pad>", "</s>", "[UNK]", "<mask>"], unk_token="[UNK]",
                                show_progress=False),
    )
    backend.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="<pad>", cls_token="<s>",
                                   sep_token="</s>", mask_token="<mask>")


@pytest.mark.parametrize(("family", "kind", "named"), [
    ("bert", "unigram", ...), ("roberta", "unigram", "RobertaTokenizer"), ("roberta", "unigram", "XLMRobertaTokenizer"),
    ("roberta", "wordpiece", "RobertaTokenizer"), ("bert", "wordpiece", "BertTokenizer"), ("bert", "cased", "BertTokenizer"),
    ("bert", "wordpiece", "NoSuchTokenizer"),
])
def test_the_tokenizer_is_that_of_tokenizer_json(tmp_path, family, kind, named):
    folder = tiny_models.build(tmp_path / "m", family)
    if kind == "unigram":
        unigram().save_pretrained(folder)
    change(folder / "tokenizer_config.json", tokenizer_class=named)
    if kind == "cased":
        stored = json.loads((folder / "tokenizer.json").read_text())
        stored["normalizer"]["lowercase"] = False
        (folder / "tokenizer.json").write_text(json.dumps(stored))
    try:
        got = vectors(folder)
    except EncoderError as error:
        assert named == "NoSuchTokenizer" and "tokenizer" in str(error)
        return
    assert abs(got - by_transformers(folder, read_file(folder))).max() < 1e-4


@pytest.mark.parametrize("named", ["BertTokenizer", "PreTrainedTokenizerFast"])
@pytest.mark.parametrize("added", [
    {"extra_special_tokens": {"x": "ov"}}, {"additional_special_tokens": ["ov"]},
    {"added_tokens_decoder": {"7": dict(content="ov", lstrip=False, rstrip=False, single_word=False, normalized=False,
                                        special=False)}},
])
def test_added_tokens_that_tokenizer_json_lacks_are_refused(tmp_path, named, added):
    """They cut other words in two, wherever they stand."""
    folder = tiny_models.build(tmp_path / "m", "bert")
    change(folder / "tokenizer_config.json", tokenizer_class=named, **added)
    with pytest.raises(EncoderError, match=r"added or special tokens.*makes another one of .*tokenizer\.json: make the two"):
        vectors(folder)


def test_a_tokenizer_class_that_is_trusted_reads_the_texts(tmp_path):
    folder = tiny_models.build(tmp_path / "m", "bert")
    want = load_encoder(str(folder), pooler="mean").encode([" ".join(text.split()[::-1]) for text in TEXTS])
    (folder / "tok_own.py").write_text(
        "from transformers import PreTrainedTokenizerFast\n"
        "class Own(PreTrainedTokenizerFast):\n"
        "    def _encode_plus(self, text, *rest, **how):\n"
        "        turned = [' '.join(one.split()[::-1]) for one in ([text] if isinstance(text, str) else text)]\n"
        "        return super()._encode_plus(turned[0] if isinstance(text, str) else turned, *rest, **how)\n"
    )
    change(folder / "tokenizer_config.json", tokenizer_class="Own", auto_map={"AutoTokenizer": [None, "tok_own.Own"]})
    got = vectors(folder, trust_remote_code=True)
    assert abs(got - want).max() < 1e-5 and abs(got - vectors(folder)).max() > 0.01


def test_a_pooling_module_of_the_folders_own_pools_under_any_name(tmp_path):
    folder = tiny_models.build(tmp_path / "m", "bert")
    (folder / "own_pool.py").write_text(
        "import torch\n"
        "class First(torch.nn.Module):\n"
        "    def forward(self, features):\n"
        "        return {**features, 'sentence_embedding': features['token_embeddings'][:, 1]}\n"
        "    @classmethod\n"
        "    def load(cls, *rest, **how):\n"
        "        return cls()\n"
    )
    kinds = {"": "sentence_transformers.models.Transformer", "1_First": "own_pool.First"}
    modules = [dict(idx=i, name=str(i), path=path, type=kind) for i, (path, kind) in enumerate(kinds.items())]
    (folder / "modules.json").write_text(json.dumps(modules))
    want = SentenceTransformer(str(folder), device="cpu", trust_remote_code=True).encode(TEXTS)
    assert abs(load_encoder(str(folder), trust_remote_code=True).encode(TEXTS) - want).max() < 1e-4
    with pytest.raises(EncoderError, match=r"own_pool\.First, which is code of its own.*--trust-remote-code"):
        load_encoder(str(folder))


def test_an_adapter_beside_a_config_alone_is_refused_by_its_folder(tmp_path):
    folder = tiny_models.build(tmp_path / "m", "bert")
    (folder / "model.safetensors").unlink()
    base = tiny_models.build(tmp_path / "b")
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base)}))
    (folder / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(EncoderError, match=f"{folder}.* holds no weights"):
        vectors(folder)


def test_a_folder_without_a_tokenizer_gets_none_made_up(tmp_path):
    folder = tiny_models.build(tmp_path / "m")
    for path in folder.glob("token*"):
        path.unlink()
    with pytest.raises(EncoderError, match=r"holds no tokenizer: .* lacks tokenizer\.json"):
        vectors(folder)


def test_a_byte_level_tokenizer_that_asks_for_its_ends(tmp_path):
    """add_prefix_space and the ends that RobertaTokenizer makes are its tokenizer.json's as well."""
    folder = tiny_models.build(tmp_path / "m", "roberta")
    backend = Tokenizer(models.BPE(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.train_from_iterator(TEXTS * 9, trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    vocabulary = json.loads(backend.to_str())["model"]
    tokenizer = RobertaTokenizer(vocab=vocabulary["vocab"], merges=[tuple(pair) for pair in vocabulary["merges"]])
    tokenizer.save_pretrained(folder)
    resized = AutoModel.from_pretrained(folder)
    resized.resize_token_embeddings(len(tokenizer))
    resized.save_pretrained(folder)
    assert abs(vectors(folder) - by_transformers(folder, read_file(folder))).max() < 1e-4


@pytest.mark.parametrize("value", ["../other.safetensors", "/etc/other.safetensors", "C:\\other", "a/../../other"])
@pytest.mark.parametrize("file", ["weight_map", "transformers_weights", "vocab_file", "modules"])
def test_paths_stay_below_the_folder(tmp_path, value, file):
    folder = tiny_models.build(tmp_path / "m")
    shutil.copy(folder / "model.safetensors", tmp_path / "other.safetensors")
    if file == "weight_map":
        stored = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        change(folder / "model.safetensors.index.json", metadata={}, weight_map=dict.fromkeys(stored, value))
    elif file == "transformers_weights":
        change(folder / "config.json", transformers_weights=value)
    elif file == "vocab_file":
        change(folder / "tokenizer_config.json", vocab_file=value)
    else:
        (folder / "modules.json").write_text(json.dumps(
            [{"idx": 0, "name": "0", "path": value, "type": "sentence_transformers.models.Transformer"}]))
    with pytest.raises(EncoderError, match=f"{file}.*leads out of the folder"):
        vectors(folder)


def peft_adapter(folder, base, name):
    peft = pytest.importorskip("peft")
    torch.manual_seed(3)
    settings = peft.LoraConfig(r=2, target_modules=["query", "value"], init_lora_weights=False)
    peft.get_peft_model(AutoModel.from_pretrained(base), settings).save_pretrained(folder)
    change(folder / "adapter_config.json", base_model_name_or_path=name)
    return folder


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
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(hub))
    want = {place: vectors(peft_adapter(tmp_path / f"on-{place.name}", old, str(place))) for place in (old, new)}
    folder = peft_adapter(tmp_path / "pinned", old, "org/base")
    assert abs(vectors(folder, offline=True) - want[new]).max() < 1e-6
    change(folder / "adapter_config.json", revision="1" * 40)
    assert abs(vectors(folder, offline=True) - want[old]).max() < 1e-6 < abs(want[old] - want[new]).max()
    merged = {place: load_backbone(place, "x", offline=True).model.state_dict() for place in (folder, tmp_path / "on-old")}
    assert all(merged[folder][key].equal(value) for key, value in merged[tmp_path / "on-old"].items())  # of a training
    change(folder / "adapter_config.json", revision="3" * 40)
    with pytest.raises(EncoderError, match=f"base_model_name_or_path org/base in revision {'3' * 40}"):
        vectors(folder, offline=True)


@pytest.mark.parametrize(("changed", "matters"), [
    ({"use_cache": False}, False), ({"hidden_dropout_prob": 0.3}, False), ({"output_attentions": True}, False),
    ({"num_labels": 7}, False), ({"classifier_dropout": None}, False), ({"hidden_act": "relu"}, True),
    ({"layer_norm_eps": 1e-3}, True), ({"position_embedding_type": "relative_key"}, True),
])
def test_a_base_that_differs_in_what_moves_no_vector(tmp_path, changed, matters):
    base = tiny_models.build(tmp_path / "base", pooler=False)
    folder = shutil.copytree(base, tmp_path / "m")
    peft_adapter(folder, base, str(base))
    change(base / "config.json", **changed)
    if matters:
        with pytest.raises(EncoderError, match=f"differs from the one beside it .*{next(iter(changed))}"):
            resolve_base(folder, True)
    else:
        assert resolve_base(folder, True) is None


def test_a_token_beyond_the_table(tmp_path):
    folder = tiny_models.build(tmp_path / "m")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    size = len(tokenizer)
    tokenizer.add_tokens(["zebra"])
    tokenizer.save_pretrained(folder)
    encoder = load_encoder(str(folder), pooler="mean")
    assert np.isfinite(encoder.encode(["a cat"])).all()
    with pytest.raises(EncoderError, match=f"'zebra' the token id {size}, and the model has a vocabulary of {size}"):
        encoder.encode(["a cat", "a zebra"])


def test_a_limit_that_nobody_gave_is_named_by_its_place(tmp_path):
    folder = tiny_models.build(tmp_path / "m")
    change(folder / "sentence_bert_config.json", max_seq_length=2)
    config = resolve_config(str(folder), EncoderOptions(pooler="mean"))
    with pytest.raises(EncoderError, match=rf"{folder}/sentence_bert_config.json: max_seq_length 2 leaves no token") as told:
        vectors(folder)
    assert "--max-length" not in str(told.value)
    with pytest.raises(EncoderError, match="--max-length 2 leaves no token"):
        vectors(folder, max_length=2)
    for stated, named in (("null", "sentence_bert_config.json: max_seq_length"), ("2", "stsbench.json: max_length")):
        (folder / "stsbench.json").write_text(f'{{"max_length": {stated}}}')
        assert config.limit_name == f"{folder}/{named}"


@pytest.mark.parametrize("name", ["1_Pooling", "2_Dense"])
def test_part_of_a_snapshot_is_refused(tmp_path, name):
    folder = tiny_models.build(tmp_path / "m")
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense", "3_Normalize": "Normalize"}
    modules = [{"idx": i, "name": str(i), "path": place, "type": f"sentence_transformers.models.{kind}"}
               for i, (place, kind) in enumerate(kinds.items())]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, "pooling_mode": "mean"}))
    if name == "1_Pooling":
        shutil.rmtree(folder / "1_Pooling")
    with pytest.raises(EncoderError, match=rf"{name}/config\.json is missing"):
        load_encoder(str(folder))


@pytest.mark.parametrize(("settings", "message"), [
    ({"num_hidden_layers": 10**9}, "num_hidden_layers 1000000000 is no model's"),
    ({"max_position_embeddings": 10**12}, "max_position_embeddings"), ({"hidden_size": -(10**9)}, "hidden_size"),
    ({"attn_implementation": "org/kernel"}, "attn_implementation 'org/kernel' is code from the Hub"),
    ({"_attn_implementation": "org/kernel:fn"}, "code from the Hub"),
    ({"text_config": {"num_hidden_layers": 10**6}}, "num_hidden_layers"),
])
def test_absurd_sizes_and_kernels(tmp_path, settings, message):
    folder = tiny_models.build(tmp_path / "m")
    change(folder / "config.json", **settings)
    with pytest.raises(EncoderError, match=message):
        vectors(folder)


def test_large_numbers_that_are_no_sizes(tmp_path):
    folder = tiny_models.build(tmp_path / "m")
    change(folder / "config.json", rope_theta=10**9, num_parameters=22_713_216, max_position_embeddings=64)
    assert np.isfinite(vectors(folder)).all()


@pytest.mark.parametrize(("pattern", "fine"), [
    ("query", True), (r".*\.(query|value)", True), (r"^(?!.*vision).*(q_proj|k_proj)$", True), (["a+", "(a+)+"], True),
    (r"model\.layers\.(\d+)\.attn", True), (None, True), ("(a+)+$", False), ("(a|a)*b", False), ("(.*)*x", False),
    (".*.*.*.*.*.*x", False), ("(?:a{1,99}){1,99}", False), ("(", False), ("a" * 2000, False),
])
def test_patterns_that_may_never_end(pattern, fine):
    if fine:
        check_pattern(pattern, "target_modules")
    else:
        with pytest.raises(EncoderError, match=r"^target_modules "):
            check_pattern(pattern, "target_modules")


def test_a_token_beyond_the_table_is_found_before_a_training(tmp_path):
    folder = tiny_models.build(tmp_path / "m", pooler=False)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens(["zebra"])
    tokenizer.save_pretrained(folder)
    for text, told in (("a zebra runs", True), ("a dog runs", False)):
        (tmp_path / "a.txt").write_text("\n".join([*tiny_models.sentences(30), text]))
        settings = {"backbone.model": str(folder), "data.file": str(tmp_path / "a.txt"), "training.max_steps": 1,
                    "training.batch_size": 8, "selection.by": "none"}
        if told:
            with pytest.raises(EncoderError, match="'zebra' the token id"):
                train("simcse", output=tmp_path / "run", settings=settings, device="cpu")
        else:
            train("simcse", output=tmp_path / "run", settings=settings, device="cpu")


@pytest.mark.parametrize("lost", [
    "config_sentence_transformers.json", "modules.json", "tokenizer_config.json", "sentence_bert_config.json",
])
def test_a_snapshot_that_may_lack_a_file_is_said_to(tmp_path, lost, monkeypatch):
    whole = tiny_models.add_modules(tiny_models.build(tmp_path / "m", pooler=False), {"pooling_mode_mean_tokens": True},
                                    prompts={"query": "a "})
    hub, commit = tmp_path / "hub", "1" * 40
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub))
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(hub))
    snapshot(hub, "org/m", commit, whole, main=True)
    place = hub / "models--org--m"
    folder = place / "snapshots" / commit

    def doubts(model="org/m"):
        return [note for note in load_encoder(str(model), offline=True, pooler="mean").notes if "may be incomplete" in note]

    (folder / lost).unlink(missing_ok=True)
    (place / ".no_exist" / commit).mkdir(parents=True)
    for name in lacking(folder):
        if name != lost:  # a library asked for it
            (place / ".no_exist" / commit / name).touch()
    assert len(doubts()) == len(doubts(folder)) == 1 and f"has {lost} is not known" in doubts()[0]
    (place / ".no_exist" / commit / lost).touch()
    assert doubts() == []
    (place / ".no_exist" / commit / lost).unlink()
    (place / "trees").mkdir()
    (place / "trees" / f"{commit}.json").write_text(json.dumps({"format_version": 1, "files": {"config.json": {
        "size": 1, "blob_id": "0" * 40}}}))
    assert doubts() == []  # the listing has no such file
    (place / "trees" / f"{commit}.json").write_text(json.dumps({"format_version": 1, "files": {lost: {
        "size": 1, "blob_id": "0" * 40}}}))
    with pytest.raises(EncoderError, match=rf"is incomplete.*{lost}"):
        load_encoder(str(folder), offline=True, pooler="mean")


@pytest.mark.parametrize("lost", ["tokenizer_config.json", "sentence_bert_config.json"])
def test_a_folder_that_was_copied_in_part_is_said_to_be(tmp_path, lost):
    folder = tiny_models.add_modules(tiny_models.build(tmp_path / "m", pooler=False), {"pooling_mode_mean_tokens": True})
    for name in ("tokenizer_config.json", "sentence_bert_config.json"):
        if not (folder / name).is_file():
            (folder / name).write_text("{}")
    assert not any("is the folder complete" in note for note in load_encoder(str(folder)).notes)
    (folder / lost).unlink()
    assert any(f"no {lost}, which" in note for note in load_encoder(str(folder)).notes)


def test_a_static_model_as_the_library_writes_it_lacks_nothing(tmp_path):
    """It has a tokenizer.json alone: no settings of a tokenizer, and no limit."""
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "cat": 1}, "[UNK]"))
    folder = str(tmp_path / "m")
    SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=4)], device="cpu").save(folder)
    assert lacking(tmp_path / "m") == [] and not any("complete" in note for note in load_encoder(folder).notes)


def test_an_adapter_without_its_settings_is_refused(tmp_path):
    folder = tiny_models.build(tmp_path / "m", pooler=False)
    save_file({"a": torch.zeros(2)}, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EncoderError, match=r"adapter_model\.safetensors, and no adapter_config\.json"):
        vectors(folder)


@pytest.mark.parametrize(("config", "tensors"), [
    ({"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": True}, ()),
    ({"model_type": "model2vec", "normalize": False}, ("weights",)),
    ({"architectures": ["StaticModel"], "normalize": True}, ("mapping", "weights")),
    ({"apply_pca": 16, "apply_zipf": True, "hidden_dim": 16, "seq_length": 1_000_000}, ()),  # of its first versions
])
def test_a_table_of_model2vec_without_modules(tmp_path, config, tensors):
    folder = tiny_models.build(tmp_path / "m", pooler=False)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    size = tokenizer.get_vocab_size()
    stored = {"embeddings": torch.randn(size, 16), "mapping": torch.randint(0, size, (size,)), "weights": torch.rand(size)}
    stored = {name: value for name, value in stored.items() if name in ("embeddings", *tensors)}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    want = []
    for text in TEXTS:
        ids = torch.tensor(tokenizer.encode(text, add_special_tokens=False).ids)
        rows = stored["embeddings"][stored["mapping"][ids] if "mapping" in stored else ids]
        mean = (rows * stored["weights"][ids][:, None] if "weights" in stored else rows).mean(0)
        want.append(mean / mean.norm() if config.get("normalize") else mean)
    encoder = load_encoder(str(folder))
    np.testing.assert_allclose(encoder.encode(TEXTS), torch.stack(want).numpy(), atol=1e-6)
    assert encoder.dimension == 16 and any("model2vec" in note for note in encoder.notes)
    with pytest.raises(EncoderError, match="no transformers model to pool over"):
        load_encoder(str(folder), pooler="mean")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(EncoderError, match=r"table of model2vec, and tokenizer\.json is missing"):
        load_encoder(str(folder))
