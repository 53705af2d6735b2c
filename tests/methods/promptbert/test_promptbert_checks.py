"""What PromptBERT refuses, in one line each, what it says before a run, and the roles that contrastive methods share."""

import pytest
import tiny_models
from method_oracle import make
from promptbert_oracle import FIRST, SECOND, folders, promptbert
from training_runs import one_thread

from stsbench.config import validate
from stsbench.errors import StsbenchError
from stsbench.methods.promptbert.method import PromptBERT
from stsbench.methods.promptbert.options import PromptBERTOptions
from stsbench.training.api.views import pairs_or_sentence
from stsbench.training.recipes.method_plan import MethodPlan

__all__ = ["folders", "one_thread"]
NOT_DENOISED = {"denoise": False}


@pytest.mark.parametrize(("options", "message"), [
    ({"similarity": "dot", "temperature": 0.1}, r"options\.temperature 0\.1 has no effect with similarity dot"),
    ({"denoise_gradient": False, **NOT_DENOISED}, r"options\.denoise_gradient false .* with denoise false"),
    ({"denoise_second_shift": "first", **NOT_DENOISED}, r"options\.denoise_second_shift first .* denoise false"),
    ({"denoise_gradient": False, "test_denoise": True, **NOT_DENOISED}, r"options\.denoise_gradient false .* with denoise"),
    ({"denoise_positions": "empty", **NOT_DENOISED}, r"options\.denoise_positions empty .* without denoise or test_"),
    ({"denoise_start": "zero", **NOT_DENOISED}, r"options\.denoise_start zero .* without denoise or test_den"),
    ({"denoise_second_shift": "first", "denoise_positions": "empty"}, "with denoise_positions matched; leave it at own$"),
    ({"denoise_second_shift": "first", "second_template": None}, "without a second template; leave it at own$"),
    ({"denoise_second_shift": "first", "second_template": FIRST["bert"], "template": FIRST["bert"]}, "a second template; l"),
    ({"trained": "prompt", "head": "none"}, r"prompt and second_template This .* exclude .* second_template null"),
    ({"trained": "prompt", "second_template": None}, r"head mlp_train_only exclude .* transform_train_only or none"),
    ({"trained": "prompt", "second_template": None, "head": "mlp"}, r"options\.trained prompt and head mlp exclude"),
])
def test_options_at_odds(options, message):
    with pytest.raises(StsbenchError, match=message) as caught:
        validate(PromptBERTOptions, options, "recipe", "options.")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [
    {"test_denoise": True}, {"test_denoise": True, "head": "mlp"}, {"view": "given"},
    {"test_denoise": True, "denoise_positions": "empty", **NOT_DENOISED}, {"denoise_second_shift": "first"},
    {"second_template": FIRST["bert"], "template": FIRST["bert"]}, {"similarity": "dot"},
])
def test_options_that_go_together(folders, options):
    promptbert(folders["bert"], **options)


def test_positions_from_0_are_bert_s_own(folders):
    promptbert(folders["roberta"], denoise_start="zero")
    with pytest.raises(StsbenchError, match="zero has no effect: the positions of bert begin with 0"):
        promptbert(folders["bert"], denoise_start="zero")


@pytest.mark.parametrize("pooler", ["cls", "mean"])
def test_another_pooler(folders, pooler):
    with pytest.raises(StsbenchError, match=rf"^promptbert trains the pooler mask, not {pooler}: set backbone\.pooler"):
        make(PromptBERT, folders["bert"], pooler=pooler)


@pytest.mark.parametrize(("name", "template"), [
    ("template", "the {} means"), ("template", "the cat means [MASK]."), ("template", "[MASK] {} [MASK]"),
    ("second_template", "{} and {} mean [MASK]."),
])
def test_a_template_that_is_none(folders, name, template):
    with pytest.raises(StsbenchError, match=rf"^options\.{name}: .* exactly once") as caught:
        promptbert(folders["bert"], **{name: template})
    assert "\n" not in str(caught.value)


def test_a_template_too_long_for_the_model(tmp_path):
    folder = tiny_models.build(tmp_path / "bert", positions=20)
    needed = promptbert(folder, second_template=None).first.length + 10 - 2
    assert needed <= 20
    wordy = 'the man with the big red guitar "{}" means a small [MASK].'
    with pytest.raises(StsbenchError, match=r"^options\.second_template makes up to 2\d tokens of") as caught:
        promptbert(folder, second_template=wordy)
    said = str(caught.value)
    assert "\n" not in said and "bert has 20 positions: --set backbone.max_length=" in said
    longest = int(said.rsplit("=", 1)[1])
    words = promptbert(folder, second_template=None)
    assert longest - 2 + len(words.backbone.tokenizer(wordy.replace("{}", ""))["input_ids"]) == 20


def test_a_head_that_the_checkpoint_lacks(tmp_path):
    folder = tiny_models.build(tmp_path / "bert", pooler=False)
    for options in ({"head": "transform"}, {"head": "transform", "trained": "prompt"}):
        with pytest.raises(StsbenchError, match=r"stores no masked-LM head.*train mlm") as caught:
            promptbert(folder, **options)
        assert "\n" not in str(caught.value)


def test_a_template_without_words_teaches_nothing(folders):
    with pytest.raises(StsbenchError, match=r"learns the words of options\.template, and it has none"):
        promptbert(folders["bert"], trained="prompt", head="none", template="{}[MASK]")


def test_what_is_said_before_a_run(folders):
    """The dev score is of another encoder than the test."""
    said = promptbert(folders["bert"]).notes()
    assert len(said) == 1 and "\n" not in said[0]
    assert "tokenised alone, denoised, without a full stop" in said[0] and "not denoised, with it" in said[0]
    assert promptbert(folders["bert"], dev="test").notes() == []
    assert promptbert(folders["bert"]).inputs() == {}


def test_what_is_frozen(folders):
    method = promptbert(folders["bert"], trained="prompt", head="transform")
    trained = {name for name, weight in method.named_parameters() if weight.requires_grad}
    assert trained == {"words", *(f"head.{part}" for part in ("dense.weight", "dense.bias", "norm.weight", "norm.bias"))}
    assert "words" in method.state_dict() and method.backbone.training
    assert all(weight.requires_grad for weight in promptbert(folders["bert"], second_template=SECOND["bert"]).parameters())


# --- roles ---


def test_roles():
    plain, given = (MethodPlan(PromptBERT, PromptBERTOptions(view=view)) for view in ("dropout", "given"))
    assert plain.roles(("sentence", "label")) == ("sentence",)
    assert given.roles(("label", "negative", "positive", "anchor")) == ("anchor", "positive", "negative")


@pytest.mark.parametrize(("view", "given", "message"), [
    ("dropout", ("premise",), r"^some needs the column sentence, or anchor and positive \(the data give premise\)"),
    ("dropout", (), r"\(the data give no column\)"),
    ("dropout", ("sentence", "anchor"), "^the data give both sentence and anchor: name one or the other in data.columns$"),
    ("dropout", ("anchor", "positive"), r"^options\.view dropout makes .* anchor, positive: set options\.view given$"),
    ("given", ("sentence",), r"these give plain sentences: set options\.view dropout$"),
    ("given", ("anchor",), "^some needs the column positive beside anchor: name it in data.columns$"),
    ("given", ("positive",), "^some needs the column anchor beside positive"),
    ("given", ("anchor", "positive", "negative2"), "^data.columns names negative2 without negative"),
])
def test_data_that_do_not_go_together(view, given, message):
    with pytest.raises(StsbenchError, match=message) as caught:
        pairs_or_sentence(given, "some", view)
    assert "\n" not in str(caught.value)


def test_recipes_are_recommended_where_there_are_any():
    with pytest.raises(StsbenchError, match=r"sentences: take an unsupervised recipe, e\.g\. one, or set "):
        pairs_or_sentence(("sentence",), "some", "given", unsupervised="one", supervised="two")
    with pytest.raises(StsbenchError, match=r"positive: take a supervised recipe, e\.g\. two, or set "):
        pairs_or_sentence(("positive", "anchor"), "some", "crop", unsupervised="one", supervised="two")
