"""Options of PromptBERT (Jiang et al. 2022), including peculiarities of its released code. Imports no torch."""

from __future__ import annotations

from typing import Literal

from stsbench.options import Values, Where
from stsbench.settings import setting
from stsbench.training.api.options import Options

TRANSFORMS = ("transform", "transform_train_only")
_CODE = "kongds/Prompt-BERT@690ba6e"
_DENOISED = Where(lambda options: options.denoise or options.test_denoise, "denoise or test_denoise")
_TWO_TEMPLATES = Where(lambda options: options.second_template not in (None, options.template), "a second template")


class PromptBERTOptions(Options):
    """Defaults: unsupervised PromptBERT as published."""

    default_recipe = "unsup-promptbert-base"

    template: str = setting('This sentence of "{}" means [MASK].', "of the first view and of the test", f"{_CODE}: run.sh")
    second_template: str | None = setting(
        'This sentence : "{}" means [MASK].', "of the other views; null: the first's", f"{_CODE}: run.sh",
    )
    view: Literal["dropout", "given"] = setting("dropout", "the positive: the sentence again, or what the data give")
    similarity: Literal["cosine", "dot"] = setting("cosine", "of two vectors; dot: without temperature")
    temperature: float = setting(
        0.05, "divides the similarity", f"{_CODE}: run.sh", gt=0, goes_with={"similarity": "cosine"},
    )
    head: Literal["mlp_train_only", "mlp", "transform", "transform_train_only", "none"] = setting(
        "mlp_train_only", "on the mask's vector: a new tanh layer or the checkpoint's masked-LM transform, each dropped at "
        "test or kept; none", f"{_CODE}: --mlp_only_train; transform: --mask_embedding_sentence_org_mlp",
    )
    denoise: bool = setting(
        True, "subtract the vector that the template alone gives", f"{_CODE}: --mask_embedding_sentence_delta",
    )
    denoise_positions: Literal["matched", "empty"] = setting(
        "matched", "what follows the sentence stands as behind one, or not", "empty: the code's evaluation before 093e343",
        goes_with=_DENOISED,
    )
    denoise_start: Literal["own", "zero"] = setting(
        "own", "its first position: the model's, or 0 (released code)", f"zero: {_CODE}", goes_with=_DENOISED,
    )
    denoise_second_shift: Literal["own", "first"] = setting(
        "own", "where the second is split: its own place, or the first's", f"first: {_CODE}",
        goes_with=({"denoise": True}, {"denoise_positions": "matched"}, _TWO_TEMPLATES),
    )
    denoise_gradient: bool = setting(
        True, "false: none through the template's vector, nor the transform of it",
        f"false: {_CODE}, --mask_embedding_sentence_delta_freeze", goes_with={"denoise": True},
    )
    test_denoise: bool = setting(False, "subtract it at test, too", f"true: {_CODE}, supervised")
    text: Literal["pieces", "inside"] = setting(
        "pieces", "in training: tokenised alone (released code), or as inside", f"pieces: {_CODE}",
    )
    dev: Literal["released", "test"] = setting(
        "released", "released: tokenised alone, denoised, no full stop; test: as tested", f"released: {_CODE}",
    )
    full_stop: bool = setting(
        True, "at test: a full stop behind a text that ends in none of . ? \" '", f"{_CODE}: evaluation.py",
    )
    trained: Literal["all", "prompt", "prompt_rightmost"] = setting(
        "all", "prompt: only the template's word embeddings and the head (OptiPrompt); prompt_rightmost: the same, but each "
        "stands for its token's rightmost match in the whole text (released code: the opening quote is never one)",
        f"prompt_rightmost: {_CODE}",
        excludes={"second_template": Values(lambda template: template is not None, "a template"),
                  "head": ("mlp_train_only", "mlp")},
        why=f"OptiPrompt learns the words of one template, and has the checkpoint's own head or none: set second_template "
        f"null and head {', '.join(TRANSFORMS)} or none",
    )
