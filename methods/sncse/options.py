"""Options of SNCSE (Wang et al. 2022), including those of its released code. Imports no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from stsbench.options import POSITIVE
from stsbench.settings import setting
from stsbench.training.api.options import Options

_SOFT = {"weight": POSITIVE}  # there are soft negatives


class SNCSEOptions(Options):
    """Defaults: as in the released code for BERT."""

    default_recipe = "bert-base"

    template: str = setting('This sentence : " {} " means [MASK] .', "of the first view and of the test", "released code")
    second_template: str | None = setting(
        'This sentence of " {} " means [MASK] .', "of the other views; null: the first's", "released code",
    )
    test_template: str | None = setting(
        None, "of the test, where it is another; null: the first's", "the released code has one for RoBERTa",
    )
    temperature: float = setting(0.05, "of the contrastive term", "released code", gt=0)
    head: Literal["mlp_train_only", "mlp", "none"] = setting(
        "mlp_train_only", "the MLP on the mask's vector: dropped at test, kept, none", "released code",
    )
    weight: float = setting(
        1e-3, "lambda, of the bidirectional margin loss; 0: no soft negatives", "released code; 5e-4 for RoBERTa", ge=0,
    )
    alpha: float = setting(
        0.1, "its margins: cos(sentence, negation) - cos(sentence, sentence) goes between -beta and -alpha", "released code",
        goes_with=_SOFT,
    )
    beta: float = setting(0.3, "its other margin, alpha or more", "released code", goes_with=_SOFT)
    negation: Literal["rule", "file", "verbs"] = setting(
        "rule", "where negations come from: the released rule on spaCy's parse, a file of pairs, a rule of verb lists "
        "without a parser", "rule: released code", goes_with=_SOFT,
    )
    negations: str | None = setting(
        None, "the file of negations, JSON lines [sentence, negation]", goes_with={"negation": "file"}, needed=True,
        why="a file of JSON lines [sentence, negation]",
    )
    lookup: Literal["after_full_stop", "line"] = setting(
        "after_full_stop", "what a negation is looked up by: the sentence behind which a full stop was put (such a sentence "
        'has none, and gets "Not " in front), or the line as it stands', "released code",
        goes_with=(_SOFT, {"full_stop": "punctuation32"}),
    )
    full_stop: Literal["punctuation32", "none"] = setting(
        "punctuation32", "put behind a sentence that ends with none of Python's 32 marks, in training and at test",
        "released code; the card has the rule",
    )
    max_length_counts: Literal["template", "sentence"] = setting(
        "template", "whether backbone.max_length counts the template's tokens", "released code",
    )
    train_tokens: Literal["test", "released"] = setting(
        "test", "whose tokens training has: those of the test, or, of tokenizers whose tokens hold the blank before them, "
        "the template's last blank by itself and a sentence without one", "released: the released code for RoBERTa",
    )

    @model_validator(mode="after")
    def _values_go_together(self) -> Self:
        if self.beta < self.alpha:
            raise ValueError(f"beta {self.beta:g} is below alpha {self.alpha:g}: the two pull against each other")
        if self.test_template == self.template:
            raise ValueError("test_template is template, and has no effect: leave it at null")
        return self
