"""The whole method of a finished run: the weights that were kept, the dropped head too, and every refusal in one line. A
backbone that trains is one that can be exported: adapters are merged, others refused before the first step; token ids are
held against the model's table of embeddings, of whatever kind it is."""

import json
import shutil
from unittest.mock import Mock

import numpy as np
import peft
import pytest
import tiny_models
import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file
from training_runs import make_text, settings
from transformers import AutoModel, AutoTokenizer, GPT2Config, GPT2Model

import stsbench
from stsbench.encoders.prompt.tokenizer import table_size
from stsbench.errors import StsbenchError
from stsbench.training.modules.backbone import load_backbone
from stsbench.training.runs import export
from stsbench.training.runs.finish import load_trained


def trained(place, run, **values):
    """A finished run of 12 steps with dev scores at 4, 8 and 12; its folder."""
    chosen = settings(place / "tiny", place / "text.txt", **values)
    stsbench.train("simcse", output=run, settings=chosen, sample=True, device="cpu")
    return run


@pytest.fixture(scope="module")
def whole(place):
    """The first of some seeds whose best step is not its last."""
    runs = (trained(place, place / f"seed-{seed}", seed=seed) for seed in range(1, 9))
    return next(run for run in runs if json.loads((run / "train.json").read_text())["best"]["step"] < 12)


def same_weights(method, folder):
    actual, expected = method.state_dict(), load_file(folder / "model.safetensors")
    assert expected and actual.keys() == expected.keys()
    return all(torch.equal(actual[name], expected[name]) for name in expected)


def test_the_best_is_not_just_the_last(whole, tmp_path):
    """The set of weights that train.json names, or none."""
    run = shutil.copytree(whole, tmp_path / "run")
    last = sorted(run.glob("checkpoints/[0-9]*"))[-1]
    summary = json.loads((run / "train.json").read_text())
    assert summary["best"]["step"] < json.loads((last / "position.json").read_text())["step"] == 12
    assert not same_weights(load_trained(run, "cpu"), last)
    summary["best"]["step"] += 4
    (run / "train.json").write_text(json.dumps(summary))
    with pytest.raises(StsbenchError, match=f"lacks a sound checkpoint .* main step {summary['best']['step']}"):
        load_trained(run, "cpu")


def test_the_last_weights_where_nothing_was_selected(place, tmp_path):
    run = trained(place, tmp_path / "run", **{"selection.by": "none", "training.max_steps": 4})
    assert same_weights(load_trained(run, "cpu"), run / "checkpoints" / "0-main-00000004")
    # A damaged last checkpoint: the one before holds other weights, which are no substitute.
    (run / "checkpoints" / "0-main-00000004" / "model.safetensors").write_bytes(b"x")
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(StsbenchError, match="main step 4"):
        load_trained(run, "cpu")


@pytest.mark.filterwarnings("ignore:.*is damaged")
def test_a_run_that_lacks_something_is_refused_in_a_line(whole, tmp_path):
    def damage_all(run):
        for path in run.glob("checkpoints/[0-9]*/model.safetensors"):
            path.write_bytes(path.read_bytes()[:-8])

    def edit(run, file, old, new):
        (run / file).write_text((run / file).read_text().replace(old, new))

    for number, (spoil, why) in enumerate([
            (lambda run: (run / "recipe.yaml").unlink(), "is not a run folder of `stsbench train`"),
            (lambda run: shutil.rmtree(run / "best"), "has not finished"),
            (lambda run: (run / "train.json").unlink(), "has not finished training: go on with --resume"),
            (lambda run: (run / "train.json").write_text("[]"), "must hold a JSON object, not a list"),
            (lambda run: shutil.rmtree(run / "checkpoints"), "holds no sound checkpoint"),
            (damage_all, "holds no sound checkpoint"),
            (lambda run: edit(run, "recipe.yaml", "head: mlp_train_only", "head: none"), "does not fit the method simcse")]):
        run = shutil.copytree(whole, tmp_path / "runs" / f"seed-{number}")
        spoil(run)
        with pytest.raises(StsbenchError, match=why) as error:
            load_trained(run, "cpu")
        assert "\n" not in str(error.value)
    with pytest.raises(StsbenchError, match="one training for each seed: choose one"):
        load_trained(tmp_path / "runs", "cpu")


def test_another_backbone_is_noticed(whole, tmp_path):
    run = shutil.copytree(whole, tmp_path / "run")
    [line] = [line for line in (run / "recipe.yaml").read_text().splitlines() if line.startswith("  model: ")]
    source = shutil.copytree(line.removeprefix("  model: "), tmp_path / "tiny")
    (run / "recipe.yaml").write_text((run / "recipe.yaml").read_text().replace(line, f"  model: {source}"))
    load_trained(run, "cpu")  # the same files in another place
    for file, name in (("config.json", "backbone"), ("tokenizer_config.json", "tokenizer")):
        before = (source / file).read_text()
        (source / file).write_text(json.dumps({**json.loads(before), "something_else": 1}))
        with pytest.raises(StsbenchError, match=f"the {name} is not what it was trained with"):
            load_trained(run, "cpu")
        (source / file).write_text(before)


LORA = {"r": 3, "target_modules": ["query", "value"], "init_lora_weights": False, "task_type": "FEATURE_EXTRACTION"}
ADAPTERS = {
    "rslora": peft.LoraConfig(**LORA, use_rslora=True, lora_alpha=5, lora_dropout=0.3),
    "dora": peft.LoraConfig(**LORA, use_dora=True, lora_alpha=5),
    "embeddings": peft.LoraConfig(**{**LORA, "target_modules": ["query", "word_embeddings"]}, bias="lora_only"),
    "saved": peft.LoraConfig(**LORA, modules_to_save=["dense", "classifier"]),  # the second one is in no plain encoder
    "ia3": peft.IA3Config(target_modules=["key", "dense"], feedforward_modules=["dense"], init_ia3_weights=False)}


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


@pytest.mark.parametrize("kind", [kind for kind in ADAPTERS if kind != "rslora"])  # which is trained below
def test_an_adapter_is_merged(tmp_path, kind):
    merged = adapter(tmp_path, kind).eval()
    expected = merged.state_dict()
    actual = load_backbone(tmp_path / "adapter", "x").model.state_dict()
    assert actual.keys() == {name for name in expected if not name.startswith("pooler.")}
    for name, weight in actual.items():
        torch.testing.assert_close(weight, expected[name], atol=1e-6, rtol=1e-6)
    batch = AutoTokenizer.from_pretrained(tmp_path / "base")(["the cat runs"], return_tensors="pt")
    with torch.no_grad():
        states = merged(**batch).last_hidden_state
    vectors = stsbench.load_encoder(str(tmp_path / "adapter"), pooler="cls", device="cpu").encode(["the cat runs"])
    torch.testing.assert_close(torch.tensor(vectors), states[:, 0], atol=1e-5, rtol=1e-5)


def test_it_is_trained_exported_and_named(tmp_path):
    merged = adapter(tmp_path, "rslora").eval()
    values = settings(tmp_path / "adapter", make_text(tmp_path), **{
        "training.max_steps": 1, "training.learning_rate": 1e-12, "selection.by": "none"})
    stsbench.train("simcse", output=tmp_path / "out", settings=values, device="cpu")
    batch = AutoTokenizer.from_pretrained(tmp_path / "base")(["the cat runs"], return_tensors="pt")
    with torch.no_grad():
        read = AutoModel.from_pretrained(tmp_path / "out" / "best", add_pooling_layer=False).eval()
        torch.testing.assert_close(read(**batch)[0], merged(**batch)[0], atol=1e-5, rtol=1e-5)


def test_what_cannot_be_exported_is_refused_before_the_first_step(place, tmp_path, monkeypatch):
    values = settings(place / "tiny", place / "text.txt")
    full, other = OSError(28, "No space left on device"), SafetensorError("I/O error: No space left on device (os error 28)")
    for error, line in ((KeyError("hidden_size"), "could be trained, but not exported then: .*; choose another backbone$"),
                        (full, "^cannot write the model to .*out: No space left on device$"),
                        (other, "^cannot write the model to .*out: .*No space")):
        monkeypatch.setattr(export, "_write_model", Mock(side_effect=error))
        with pytest.raises(StsbenchError, match=line):
            stsbench.train("simcse", output=tmp_path / "out", settings=values, sample=True, device="cpu")
        assert not (tmp_path / "out").exists()


def test_a_causal_models_first_state_is_no_sentence(tmp_path):
    """Also where no development score would show it: all steps were trained, and the export could not be tested."""
    tiny_models.build(tmp_path / "gpt2", pooler=False)
    for path in (tmp_path / "gpt2").glob("*model*"):
        path.unlink()
    config = GPT2Config(vocab_size=99, n_positions=64, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=1)
    GPT2Model(config).save_pretrained(tmp_path / "gpt2")
    values = settings(tmp_path / "gpt2", make_text(tmp_path), **{
        "training.max_steps": 1, "selection.by": "none", "options.head": "none"})
    with pytest.raises(StsbenchError, match=r"^backbone.pooler cls: .*gpt2 is causal, .*: set backbone.pooler to mean$"):
        stsbench.train("simcse", output=tmp_path / "out", settings=values, device="cpu")
    assert not (tmp_path / "out").exists()

# --- families with tables of their own ---
def model_of(family, **more):
    config = getattr(transformers, f"{family}Config")(**tiny_models.SHAPE, max_position_embeddings=64, **more)
    return getattr(transformers, f"{family}Model")(config)


def test_a_table_of_any_kind_has_its_size():
    """I-BERT's and peft's are no torch.nn.Embedding, CANINE has hashes of characters."""
    bert = model_of("Bert", vocab_size=70)
    assert table_size(bert) == table_size(model_of("IBert", vocab_size=70)) == 70
    assert table_size(peft.get_peft_model(bert, peft.TrainableTokensConfig(token_indices=[5, 6]))) == 70
    assert table_size(model_of("Canine")) is None


@pytest.mark.parametrize("family", ["NomicBert", "LayoutLM"])
def test_families_with_tables_or_stored_weights_of_their_own_are_trained(tmp_path, family):
    """NomicBert's q, k and v are stored as one, and each is a part of it once read; LayoutLM always asks its pooler."""
    tokenizer = tiny_models.tokenizer("roberta")
    for part in (model_of(family, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id), tokenizer):
        part.save_pretrained(tmp_path / "model")
    stsbench.train("simcse", backbone=tmp_path / "model", data=make_text(tmp_path), output=tmp_path / "run", device="cpu",
                   settings={"training.max_steps": 2, "training.batch_size": 8, "selection.by": "none"})
    texts, folders = tiny_models.sentences(4), [str(tmp_path / name) for name in ("model", "run/best")]
    before, after = (stsbench.load_encoder(folder, pooler="cls").encode(texts) for folder in folders)
    assert before.shape == after.shape and np.abs(before - after).max() > 1e-6


def test_families_that_cannot_be_trained_are_refused_in_a_line(tmp_path):
    sizes = {"axial_pos_shape": [8, 8], "axial_pos_embds_dim": [16, 16], "attn_layers": ["local"]}
    canine = r"a CanineModel cannot read a text of three tokens \(RuntimeError: .*\): choose another backbone$"
    reformer = "the states of a ReformerModel have 64 numbers, and its hidden_size is 32: choose"
    for family, more, reason in (("Canine", {}, canine), ("Reformer", sizes, reformer)):
        for part in (model_of(family, **more), tiny_models.tokenizer("roberta")):
            part.save_pretrained(tmp_path / family)
        with pytest.raises(StsbenchError, match=reason):
            stsbench.train("simcse", backbone=tmp_path / family, data=make_text(tmp_path), output=tmp_path / "run")
