"""SNCSE's choices (Wang et al. 2022), and what its released code does. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options


class SNCSEOptions(Options):
    """Defaults: what the released code does for BERT."""

    default_recipe = "bert-base"

    template: str = 'This sentence : " {} " means [MASK] .'  # of the first view and of the test
    second_template: str | None = 'This sentence of " {} " means [MASK] .'  # of the other views; null: the first's
    test_template: str | None = None  # of the test, where it is another (released code, RoBERTa); null: the first's
    temperature: float = Field(default=0.05, gt=0)
    head: Literal["mlp_train_only", "mlp", "none"] = "mlp_train_only"  # on the mask's vector: dropped at test, kept, none
    weight: float = Field(default=1e-3, ge=0)  # lambda, of the bidirectional margin loss; 0: no soft negatives
    alpha: float = 0.1  # its margins: cos(sentence, negation) - cos(sentence, sentence) goes between -beta and -alpha
    beta: float = 0.3
    # where negations come from: the released rule on spaCy's parse, a file of pairs, a rule of verb lists without a parser
    negation: Literal["rule", "file", "verbs"] = "rule"
    negations: str | None = None  # negation file: JSON lines [sentence, negation]
    # what a negation is looked up by: the sentence behind which a full stop was put (released code: such a sentence has
    # none, and gets "Not " in front), or the line as it stands
    lookup: Literal["after_full_stop", "line"] = "after_full_stop"
    full_stop: Literal["punctuation32", "none"] = "punctuation32"  # in training and at test; card.md has the rule
    max_length_counts: Literal["template", "sentence"] = "template"  # whether it counts the template's tokens
    # whose tokens training has: those of the test, or, of tokenizers whose tokens hold the blank before them, the template's
    # last blank by itself and a sentence without one (released code, RoBERTa)
    train_tokens: Literal["test", "released"] = "test"
