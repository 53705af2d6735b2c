"""A backbone that trains is one that can be exported: adapters are merged, others refused before the first step."""

from __future__ import annotations

import shutil
from unittest.mock import Mock

import peft
import pytest
import tiny_models
import torch
import training_runs
from method_options import effect
from method_runs import cached_place
from safetensors import SafetensorError
from transformers import AutoModel, AutoTokenizer, BertConfig, BertForMaskedLM, GPT2Config, GPT2Model

import stsbench
from stsbench.errors import StsbenchError
from stsbench.training.export import export
from stsbench.training.modules.backbone import load_backbone

LORA = {"r": 3, "target_modules": ["query", "value"], "init_lora_weights": False, "task_type": "FEATURE_EXTRACTION"}
ADAPTERS = {
    "rslora": peft.LoraConfig(**LORA, use_rslora=True, lora_alpha=5, lora_dropout=0.3),
    "embeddings": peft.LoraConfig(**{**LORA, "target_modules": ["query", "word_embeddings"]}, bias="lora_only"),
    "dora": peft.LoraConfig(**LORA, use_dora=True, lora_alpha=5),
    "saved": peft.LoraConfig(**LORA, modules_to_save=["dense", "classifier"]),  # the second one is in no plain encoder
    "saved embeddings": peft.LoraConfig(**LORA, modules_to_save=["word_embeddings"]),
    "ia3": peft.IA3Config(target_modules=["key", "dense"], feedforward_modules=["dense"], init_ia3_weights=False),
}


def adapter(folder, kind):
    """A base, and an adapter of it; the oracle: peft's own merged model."""
    base = tiny_models.build(folder / "base", pooler=False)
    torch.manual_seed(3)
    model = peft.get_peft_model(AutoModel.from_pretrained(base), ADAPTERS[kind])
    for name, weight in model.named_parameters():
        if weight.requires_grad and ("ia3" in name or "magnitude" in name):
            torch.nn.init.normal_(weight, 1, 0.2)
        elif "modules_to_save" in name:  # a copy of the base's, before any training
            torch.nn.init.normal_(weight, 0, 0.2)
    model.save_pretrained(folder / "adapter")
    for path in base.glob("tokenizer*"):
        shutil.copy(path, folder / "adapter")
    return peft.PeftModel.from_pretrained(AutoModel.from_pretrained(base), folder / "adapter").merge_and_unload()


@pytest.mark.parametrize("kind", ADAPTERS)
def test_an_adapter_is_merged(tmp_path, kind):
    merged = adapter(tmp_path, kind).eval()
    expected = merged.state_dict()
    found = load_backbone(tmp_path / "adapter", "x").model.state_dict()
    assert found.keys() == {name for name in expected if not name.startswith("pooler.")}
    for name, weight in found.items():
        torch.testing.assert_close(weight, expected[name], atol=1e-6, rtol=1e-6)
    batch = AutoTokenizer.from_pretrained(tmp_path / "base")(["the cat runs"], return_tensors="pt")
    with torch.no_grad():
        states = merged(**batch).last_hidden_state
    vectors = stsbench.load_encoder(str(tmp_path / "adapter"), pooler="cls", device="cpu").encode(["the cat runs"])
    torch.testing.assert_close(torch.tensor(vectors), states[:, 0], atol=1e-5, rtol=1e-5)


def test_it_is_trained_exported_and_named(tmp_path):
    merged = adapter(tmp_path, "rslora").eval()
    values = training_runs.settings(tmp_path / "adapter", training_runs.make_text(tmp_path), **{
        "training.max_steps": 1, "training.learning_rate": 1e-12, "selection.by": "none"})
    stsbench.train("simcse", output=tmp_path / "out", settings=values, device="cpu")
    batch = AutoTokenizer.from_pretrained(tmp_path / "base")(["the cat runs"], return_tensors="pt")
    with torch.no_grad():
        read = AutoModel.from_pretrained(tmp_path / "out" / "best", add_pooling_layer=False).eval()
        torch.testing.assert_close(read(**batch)[0], merged(**batch)[0], atol=1e-5, rtol=1e-5)


def test_what_cannot_be_exported_is_refused_before_the_first_step(place, tmp_path, monkeypatch):
    values = training_runs.settings(place / "tiny", place / "text.txt")
    full = "I/O error: No space left on device (os error 28)"
    for error, line in (
        (KeyError("hidden_size"), "could be trained, but not exported then: .*; choose another backbone$"),
        (OSError(28, "No space left on device"), "^cannot write the model to .*out: No space left on device$"),
        (SafetensorError(full), "^cannot write the model to .*out: .*No space"),
    ):
        monkeypatch.setattr(export, "_write_model", Mock(side_effect=error))
        with pytest.raises(StsbenchError, match=line):
            stsbench.train("simcse", output=tmp_path / "out", settings=values, sample=True, device="cpu")
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("pooler", ["cls", "mean"])
def test_a_causal_models_first_state_is_no_sentence(tmp_path, pooler):
    """Also where no development score would show it: all steps were trained, and the export could not be tested."""
    tiny_models.build(tmp_path / "gpt2", pooler=False)
    for path in (tmp_path / "gpt2").glob("*model*"):
        path.unlink()
    config = GPT2Config(vocab_size=99, n_positions=64, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=1)
    GPT2Model(config).save_pretrained(tmp_path / "gpt2")
    values = training_runs.settings(tmp_path / "gpt2", training_runs.make_text(tmp_path), **{
        "training.max_steps": 1, "selection.by": "none", "backbone.pooler": pooler, "options.head": "none"})
    if pooler == "mean":
        with pytest.warns(UserWarning, match="no dev data: .* the weights of the last one are kept"):
            stsbench.train("simcse", output=tmp_path / "out", device="cpu", offline=True,
                           settings={**values, "selection.by": "sts-b dev"})
        return
    with pytest.raises(StsbenchError, match=r"^backbone.pooler cls: .*gpt2 is causal, .*: set backbone.pooler to mean$"):
        stsbench.train("simcse", output=tmp_path / "out", settings=values, device="cpu")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    yield from cached_place(tmp_path_factory.mktemp("texts"))


def bare(folder):
    """BERT with a vocabulary that has neither the word "a" nor any letter alone, and no mask token."""
    tiny_models.build(folder, pooler=False)
    tokenizer = tiny_models.tokenizer("bert")
    text = tokenizer.backend_tokenizer.to_str()
    for letter in "abcdefghijklmnopqrstuvwxyz":
        text = text.replace(f'"{letter}":', f'"{letter}{letter}{letter}":')
    read = type(tokenizer)(
        tokenizer_object=tokenizer.backend_tokenizer.from_str(text), cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]",
        unk_token="[UNK]", model_max_length=64,
    )
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(read), max_position_embeddings=128, **tiny_models.SHAPE)
    BertForMaskedLM(config).save_pretrained(folder)
    read.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", ["simcse", "mlm", "diffcse", "promptbert", "sncse", "mirror-bert", "tsdae", "distil"])
def test_a_vocabulary_without_the_usual_tokens_trains_or_the_mask_token_is_missed(texts, tmp_path, name):
    model = bare(tmp_path / "bare")
    first_steps = effect(texts, tmp_path / "run", name, {"backbone.model": str(model)})
    assert isinstance(first_steps, str) or "mask token" in str(first_steps), first_steps
