"""PromptBERT's choices (Jiang et al. 2022), its released code's oddities among them. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options


class PromptBERTOptions(Options):
    """Defaults: unsupervised PromptBERT as published."""

    default_recipe = "unsup-promptbert-base"

    template: str = 'This sentence of "{}" means [MASK].'  # of the first view and of the test
    second_template: str | None = 'This sentence : "{}" means [MASK].'  # of the other views; null: the first's
    view: Literal["dropout", "given"] = "dropout"  # the positive: the sentence again, or what the data give
    similarity: Literal["cosine", "dot"] = "cosine"
    temperature: float = Field(default=0.05, gt=0)
    # on the mask's vector: a new tanh layer or the checkpoint's masked-LM transform, each dropped at test or kept; none
    head: Literal["mlp_train_only", "mlp", "transform", "transform_train_only", "none"] = "mlp_train_only"
    denoise: bool = True  # subtract the vector that the template alone gives
    denoise_positions: Literal["matched", "empty"] = "matched"  # what follows the sentence stands as behind one, or not
    denoise_start: Literal["own", "zero"] = "own"  # its first position: the model's, or 0 (released code)
    denoise_second_shift: Literal["own", "first"] = "own"  # where the second is split: its own place, or the first's
    denoise_gradient: bool = True  # false: none through the template's vector, nor the transform of it
    test_denoise: bool = False  # subtract it at test, too
    text: Literal["pieces", "inside"] = "pieces"  # in training: tokenised alone (released code), or as inside
    dev: Literal["released", "test"] = "released"  # released: tokenised alone, denoised, no full stop; test: as tested
    full_stop: bool = True  # at test: a full stop behind a text that ends in none of . ? " '
    # prompt: only the template's word embeddings and the head (OptiPrompt); prompt_rightmost: the same, but each stands for
    # its token's rightmost match in the whole text (released code: the opening quote is never one)
    trained: Literal["all", "prompt", "prompt_rightmost"] = "all"
