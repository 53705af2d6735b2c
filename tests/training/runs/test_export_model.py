"""A trained model's folder: one vector for a text, whoever reads it; whole or absent; and found by the run's name.
backbone.lora of two families: the change alone, RUN/adapter, gives every reader the vectors of the whole export. The
tokenizer of an export is read by transformers as it was in training, and pads; else nothing is exported."""

import errno
import json
import os
import signal
from unittest.mock import Mock

import numpy as np
import pytest
import tiny_models
import torch
from families import family_model
from live_models import by_hand, close, inference, library
from method_runs import train
from peft import PeftModel
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from tiny_decoders import tokenizer
from tiny_models import sentences
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, GPT2Config, GPT2Model, PreTrainedTokenizerFast

import stsbench
from stsbench import load_encoder
from stsbench.encoders.forward.checkpoint import load_model
from stsbench.encoders.transformer.exported import read_with_layout
from stsbench.errors import EncoderError, StsbenchError
from stsbench.files import machine, new_folder
from stsbench.training.api.method import Inference
from stsbench.training.engine.selection import live_encoder
from stsbench.training.recipes.recipes import load_recipe
from stsbench.training.runs import export
from stsbench.training.runs.export import export_model, try_export, write_tokenizer

TEXTS = [*sentences(30), "the cat " * 25]  # the last one is longer than the tokenizer's stored 8, and than 32


@pytest.mark.parametrize(("family", "pooler"), [
    ("bert", "cls_avg"), ("bert", "weighted_mean"), ("roberta", "cls+dense"), ("distilbert", "first_last:layer1")])
def test_three_readers_give_the_methods_vectors(tmp_path, family, pooler):
    made = inference(tmp_path / "model", family, pooler)
    want = by_hand(made, TEXTS)
    export_model(made, tmp_path / "out", method="simcse", recipe="tiny-run")
    close(live_encoder(made, "live").encode(TEXTS), want)
    ours = load_encoder(str(tmp_path / "out"))
    assert (ours.spec.kind, ours.spec.pooler, ours.spec.max_length) == ("transformers", pooler, 64)
    close(ours.encode(TEXTS), want)
    model = library(tmp_path / "out")
    assert model.max_seq_length == 64
    close(model.encode(TEXTS), want)


def test_a_kept_head_is_automodels_pooler_and_no_other_is_made_up_unseen(tmp_path):
    made = inference(tmp_path / "a", "roberta", "cls+dense")
    export_model(made, tmp_path / "head")
    model, info = AutoModel.from_pretrained(tmp_path / "head", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    batch = AutoTokenizer.from_pretrained(tmp_path / "head")(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        close(model.eval()(**batch).pooler_output.numpy(), by_hand(made, TEXTS))
    export_model(inference(tmp_path / "b", "roberta"), tmp_path / "bare")
    with pytest.raises(EncoderError, match="stores no pooler weights"):
        load_encoder(str(tmp_path / "bare"), pooler="cls+dense").encode(TEXTS)
    assert {weight.dtype for weight in load_file(tmp_path / "head" / "model.safetensors").values()} == {torch.float32}


def masked(made, tied=True):
    """A masked LM around the model, its head random; untied: an output layer of its own."""
    config = made.model.config
    config.tie_word_embeddings = tied
    torch.manual_seed(11)
    language_model = AutoModelForMaskedLM.from_config(config)
    setattr(language_model, language_model.base_model_prefix, made.model)
    output = language_model.get_output_embeddings()
    shape = output.weight.shape
    output.weight = made.model.get_input_embeddings().weight if tied else torch.nn.Parameter(torch.randn(shape))
    torch.nn.init.normal_(output.bias)
    made.masked_lm = language_model
    return made


@pytest.mark.parametrize(("family", "tied"), [("roberta", True), ("distilbert", False)])
def test_a_masked_lm_comes_back_whole(tmp_path, family, tied):
    made = masked(inference(tmp_path / "model", family, "cls+dense"), tied)
    made.model.config.tie_word_embeddings = True  # what the config claims must not decide
    export_model(made, tmp_path / "out")
    back, info = AutoModelForMaskedLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"]
    batch = made.tokenizer(TEXTS, padding=True, return_tensors="pt")
    batch = {key: batch[key] for key in ("input_ids", "attention_mask")}
    with torch.no_grad():
        assert torch.equal(back.eval()(**batch).logits, made.masked_lm.eval()(**batch).logits)
        assert (back.get_output_embeddings().weight is back.get_input_embeddings().weight) is tied
        encoder = AutoModel.from_pretrained(tmp_path / "out").eval()
        assert torch.equal(encoder(**batch).last_hidden_state, made.model(**batch).last_hidden_state)
    _, missing = load_model(tmp_path / "out", "out", "float32")
    assert all(key.startswith("pooler.") for key in missing)
    for encoder in (load_encoder(str(tmp_path / "out")), library(tmp_path / "out")):
        close(encoder.encode(TEXTS), by_hand(made, TEXTS))
    made.model = inference(tmp_path / "other", family).model
    with pytest.raises(ValueError, match="another encoder"):
        export_model(made, tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


def test_the_card_is_no_part_of_the_fingerprint_and_all_else_is(tmp_path):
    made = inference(tmp_path / "model", "distilbert", "cls+dense")
    export_model(made, tmp_path / "a", card="one", method="x", recipe="y")
    export_model(made, tmp_path / "b", card="two", method="x", recipe="y")
    assert "/" not in (tmp_path / "a" / "config.json").read_text()  # no folder of this machine
    with torch.no_grad():
        made.dense.bias.add_(0.1)  # a head that no layer of DistilBERT would load
    export_model(made, tmp_path / "c")
    first, second, changed = (load_encoder(str(tmp_path / name)).spec.fingerprint() for name in "abc")
    assert first == second != changed


def test_a_folder_that_another_program_wrote_over_is_read_as_that_program_reads_it(tmp_path):
    export_model(inference(tmp_path / "model", "bert", "cls"), tmp_path / "out")
    model = library(tmp_path / "out")
    model[1] = type(model[1])(32, pooling_mode="mean")
    model.save(str(tmp_path / "out"), create_model_card=False)
    assert (tmp_path / "out" / "stsbench.json").is_file()
    encoder = load_encoder(str(tmp_path / "out"))
    assert encoder.spec.pooler == "mean"
    close(encoder.encode(TEXTS), library(tmp_path / "out").encode(TEXTS))
    for text in ('{"format": 4}', "["):  # of a newer stsbench; damaged
        (tmp_path / "out" / "stsbench.json").write_text(text)
        with pytest.raises(EncoderError):
            load_encoder(str(tmp_path / "out"))


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_full_disk_or_a_kill_leaves_nothing_and_the_earlier_model_as_it_was(tmp_path, monkeypatch):
    made, out = inference(tmp_path / "model"), tmp_path / "run" / "best"
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    for step in ("write_tokenizer", "write_layout", "write_exported"):
        with monkeypatch.context() as broken, pytest.raises(StsbenchError, match=r"cannot write .*best: No space left on"):
            broken.setattr(export, step, full)
            export_model(made, out)
        assert not list(out.parent.iterdir())
    export_model(made, out, card="first")
    before = files(out)
    with pytest.raises(StsbenchError, match="already there"):
        export_model(made, out, card="second")
    child = os.fork()
    if not child:  # dies in the middle of writing, as by SIGKILL from outside
        export.write_layout = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        export_model(made, out, card="second", replace=True)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert files(out) == before and len(list(out.parent.iterdir())) == 2
    export_model(made, out, card="third", replace=True)
    assert (out / "README.md").read_text() == "third" and list(out.parent.iterdir()) == [out]


def test_a_training_run_is_a_model(tmp_path):
    run, made = tmp_path / "run", inference(tmp_path / "model", "distilbert", "cls+dense")
    run.mkdir()
    (run / "recipe.yaml").write_text("name: tiny-run\n")
    with pytest.raises(StsbenchError, match=r"the training has not finished \(go on with --resume\)$"):
        load_encoder(str(run))
    export_model(made, run / "best")
    whole, best = load_encoder(str(run)), load_encoder(str(run / "best"))
    assert whole.spec.name == str(run) and whole.spec.fingerprint() == best.spec.fingerprint()
    close(whole.encode(TEXTS), by_hand(made, TEXTS))
    (tmp_path / "seeds" / "seed-1").mkdir(parents=True)
    (tmp_path / "seeds" / "seed-1" / "recipe.yaml").write_text("")
    with pytest.raises(EncoderError, match=r"one training for each seed: choose one, e\.g\. .*seed-1"):
        load_encoder(str(tmp_path / "seeds"))
    # a head that is gone is not replaced
    file = run / "best" / "model.safetensors"
    save_file({key: value for key, value in load_file(file).items() if "pooler" not in key}, file, metadata={"format": "pt"})
    with pytest.raises(EncoderError, match="lacks the head"):
        load_encoder(str(run)).encode(TEXTS)

# --- a folder that appears whole or not at all ---
def hidden(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


@pytest.mark.parametrize("replace", [False, True])
def test_what_a_killed_process_left_is_deleted(tmp_path, replace):
    (tmp_path / f".model.dead.{machine()}.part").mkdir()
    (tmp_path / f".model-2.dead.{machine()}.part").mkdir()
    with new_folder(tmp_path / "model", replace) as building:
        assert len(hidden(tmp_path)) == 1
        (building / "file").write_text("x")
    assert hidden(tmp_path) == []
    assert (tmp_path / "model" / "file").read_text() == "x"


def test_what_others_are_building_stays(tmp_path):
    """A process that lives holds a lock; of another machine's nothing is known, nor of a model that gave way."""
    (tmp_path / ".model.one.elsewhere.part").mkdir()
    (tmp_path / f".model.one.{machine()}.old.part").mkdir()
    with new_folder(tmp_path / "model") as first:
        (first / "file").write_text("first")
        with pytest.raises(KeyError), new_folder(tmp_path / "model"):
            assert first.is_dir()
            raise KeyError
    assert (tmp_path / "model" / "file").read_text() == "first"
    assert len(hidden(tmp_path)) == 2


@pytest.mark.parametrize(("family", "pooler"), [("llama", "last"), ("mpnet", "cls")])
def test_the_change_alone_gives_every_reader_the_vectors_of_the_export(tmp_path, family, pooler):
    """modernbert: modules/test_lora.py."""
    folder, words, texts = tmp_path / family, tokenizer("eos"), ["cat", "the man runs .", "a dog with a guitar"]
    words.pad_token = words.convert_ids_to_tokens(1)  # MPNet counts positions by this id, whatever its config says
    family_model(family, vocab_size=len(words)).save_pretrained(folder)
    words.save_pretrained(folder)
    (tmp_path / "text.txt").write_text("\n".join(sentences(30, longest=9)) + "\n", "utf-8")
    values = {"backbone.model": str(folder), "backbone.pooler": pooler, "backbone.lora": {"rank": 2}, "options.head": "none",
              "data.file": str(tmp_path / "text.txt"), "training.batch_size": 10, "training.max_steps": 2,
              "training.learning_rate": 0.05, "precision": "float32", "selection.by": "none", "backbone.dropout": 0.1}
    train(load_recipe("simcse", "unsup-bert-base", (), values), tmp_path / "run", tmp_path)
    best, adapter = tmp_path / "run" / "best", tmp_path / "run" / "adapter"
    vectors = load_encoder(str(best), device="cpu").encode(texts)
    assert np.abs(load_encoder(str(folder), pooler=pooler, device="cpu").encode(texts) - vectors).max() > 1e-3
    assert np.abs(load_encoder(str(adapter), device="cpu").encode(texts) - vectors).max() < 1e-5
    assert np.abs(SentenceTransformer(str(adapter), device="cpu").encode(texts) - vectors).max() < 1e-5
    read = PeftModel.from_pretrained(AutoModel.from_pretrained(folder), adapter)
    words = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        states = [read(**words(text, return_tensors="pt")).last_hidden_state[0] for text in texts]
    place = {"last": -1, "cls": 0}[pooler]
    assert np.abs(torch.stack([state[place] for state in states]).numpy() - vectors).max() < 1e-5
    assert read_with_layout(adapter)[0].recipe == read_with_layout(best)[0].recipe  # and what the weights were trained on
    size = sum(path.stat().st_size for path in adapter.glob("*.safetensors"))
    assert size < (best / "model.safetensors").stat().st_size / 2 and not (adapter / "model.safetensors").exists()


TOKENIZER_TEXTS = ["the cat.", "the dog runs in the big park with a woman and a man, and eats."]
CHARACTERS = " abcdefghijklmnopqrstuvwxyz.,'\"-?0123456789"


def by_characters(**special):
    """A tokenizer with the special tokens given, in this order, and no others."""
    named = [*dict.fromkeys(special.values())]
    vocabulary = {token: number for number, token in enumerate([*named, *CHARACTERS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=special.get("unk_token", " ")))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    if "cls_token" in special:
        ends = [(special[name], vocabulary[special[name]]) for name in ("cls_token", "sep_token")]
        backend.post_processor = processors.TemplateProcessing(single=f"{ends[0][0]} $A {ends[1][0]}", special_tokens=ends)
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def gpt2(tokenizer):
    torch.manual_seed(0)
    return GPT2Model(GPT2Config(vocab_size=len(tokenizer), n_positions=256, n_embd=16, n_layer=2, n_head=2))


@pytest.mark.parametrize("special", [
    {"unk_token": "<unk>"}, {"bos_token": "<s>", "eos_token": "</s>"}, {"cls_token": "[CLS]", "sep_token": "[SEP]"},
    {"eos_token": "<|end|>", "pad_token": "<pad>"}])
def test_three_readers_have_the_same_vectors(tmp_path, special):
    """Of two texts of unlike lengths, where the tokenizer had a padding token and where it had none."""
    tokenizer = by_characters(**special)
    before, model = tokenizer.pad_token, gpt2(tokenizer).eval()
    model.config._attn_implementation = "eager"
    export_model(Inference(model, tokenizer, "mean"), tmp_path / "out", card="")
    assert tokenizer.pad_token == before
    ours = stsbench.load_encoder(str(tmp_path / "out"), device="cpu").encode(TOKENIZER_TEXTS)
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(TOKENIZER_TEXTS)
    read = AutoTokenizer.from_pretrained(tmp_path / "out")
    batch = read(TOKENIZER_TEXTS, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        states = AutoModel.from_pretrained(tmp_path / "out").eval()(**batch).last_hidden_state
    real = batch["attention_mask"].unsqueeze(-1)
    plain = ((states * real).sum(1) / real.sum(1)).numpy()
    np.testing.assert_allclose(theirs, ours, atol=1e-5)
    np.testing.assert_allclose(plain, ours, atol=1e-5)
    assert read.pad_token is not None and read.pad_token in special.values()


def test_no_special_token_at_all(tmp_path):
    tokenizer = by_characters()
    with pytest.raises(StsbenchError, match="no special token to pad texts by"):
        write_tokenizer(tokenizer, tmp_path, 16)
    with pytest.raises(StsbenchError, match=r"^tiny could be trained, but not exported then: .*; choose another backbone$"):
        try_export(Inference(gpt2(tokenizer), tokenizer, "mean"), tmp_path, "tiny")
    assert not list(tmp_path.glob(".*"))


class Remade(PreTrainedTokenizerFast):
    """Says that it is a class that transformers makes anew, by other rules than its tokenizer.json."""

    named = "BertTokenizer"

    def save_pretrained(self, folder, **how):
        super().save_pretrained(folder, **how)
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "tokenizer_class": self.named}))


@pytest.mark.parametrize("named", ["BertTokenizer", "PreTrainedTokenizerFast", "NoSuchTokenizer"])
def test_a_class_that_would_be_remade(tmp_path, named):
    special = {f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
    whole = by_characters(**special)
    tokenizer = Remade(tokenizer_object=whole.backend_tokenizer, **special)
    tokenizer.named = named
    tiny_models.build(tmp_path / "out", pooler=False)  # with its config.json, which transformers also looks into
    for path in (tmp_path / "out").glob("tokenizer*"):
        path.unlink()
    write_tokenizer(tokenizer, tmp_path / "out", 64)
    read = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert [read(text)["input_ids"] for text in TOKENIZER_TEXTS] == [whole(text)["input_ids"] for text in TOKENIZER_TEXTS]
