"""Options of SimCSE (Gao, Yao and Chen 2021), including the paper's ablations. Imports no torch."""

from __future__ import annotations

from typing import Literal

from stsbench.options import GIVEN, POSITIVE, Where
from stsbench.settings import setting
from stsbench.training.api.options import CleanUp, Options, Queue, Repetition, full_stop_setting, template_setting

NEXT = {"next": 1, "next3": 3}  # view -> how many following sentences may be the positive
_RATED = ("crop", "delete_words", "mlm")
_PLAIN = Where(lambda options: options.view in ("dropout", "given") and not options.fixed_dropout_mask,
               "view dropout or given, and two masks")
View = Literal["dropout", "given", "crop", "delete_words", "delete_one_word", "synonym", "mlm", "next", "next3"]


class SimCSEOptions(Options):
    """Defaults: unsupervised SimCSE as published."""

    default_recipe = "unsup-bert-base"

    similarity: Literal["cosine", "dot"] = setting("cosine", "dot: without temperature", 'Table D.1, "N/A"')
    temperature: float = setting(0.05, "divides the similarity", "Table D.1", gt=0)
    head: Literal["mlp_train_only", "mlp", "none"] = setting(
        "mlp_train_only", "the MLP over the pooler cls: dropped at test, kept, or none", "Table 6",
    )
    alpha: float = setting(1.0, "weight of an anchor's own hard negative; its logit gets ln(alpha)", "Eq. 8", gt=0)
    mlm_weight: float = setting(
        0.0, "lambda of the auxiliary masked-LM loss; 0: none", "Table D.2", ge=0, excludes={"view": "mlm", "encoders": 2},
        why="which words it reads, or which encoder it trains, is not published",
    )
    mlm_probability: float = setting(0.15, "share of the tokens that it masks", "", gt=0, lt=1)
    mlm_in_place: bool = setting(
        False, "the contrastive pass, too, sees the masked input", "the released code until a0867f4",
        goes_with={"mlm_weight": POSITIVE},
    )
    encoders: Literal[1, 2] = setting(1, "2: two encoders that start alike; the first is tested", "Table 2")
    fixed_dropout_mask: bool = setting(
        False, "both views are one vector", 'Table 3, "Fixed 0.1"', goes_with={"view": "dropout", "encoders": 1},
    )
    view: View = setting(
        "dropout", "what the positive is: given by the data (pairs, triplets), else made of a plain sentence",
        "Tables 1 and 2",
    )
    rate: float | None = setting(None, "share of the words", "Table 1", gt=0, lt=1, goes_with={"view": _RATED}, needed=True)
    augment_both: bool = setting(
        False, "the augmentation on both views; by default on the positive only",
        goes_with={"view": (*_RATED, "delete_one_word", "synonym")},
    )
    thesaurus: str | None = setting(
        None, "a file, word TAB synonym TAB synonym ... a line", goes_with={"view": "synonym"}, needed=True,
    )
    replacer: str | None = setting(
        None, "the masked LM that fills in; null: the backbone's own", goes_with={"view": "mlm"},
    )
    repeat: Repetition | None = setting(
        None, "sub-words or words repeated in every view but the first; null: none", "ESimCSE (Wu et al. 2022)",
        goes_with=_PLAIN,
    )
    template: str | None = template_setting(goes_with=Where(
        lambda options: options.view in ("dropout", "given") and options.repeat is None and not options.mlm_weight
        and options.head == "none", "view dropout or given, without head, repeat and mlm_weight",
    ))
    full_stop: CleanUp = full_stop_setting()
    mean_over: Literal["text", "row"] = setting(
        "text", "of the pooler mean; row: in training over all of a padded row, whose padding stands before the text",
        "LLM2Vec's released code", goes_with={"head": "none", "encoders": 1, "template": None}, excludes=("queue",),
        why="a queue holds means over texts",
    )
    positive_word: str | None = setting(
        None, "words of the template behind the text, whose last token's state is the positive, by the same pass; null: a "
        "second pass", "CSE-SFP (Zhang et al. 2025)", goes_with={"template": GIVEN, "view": "dropout", "encoders": 1},
        excludes=("queue", "fixed_dropout_mask"), why="the positive is no second vector of the same kind",
    )
    queue: Queue | None = setting(
        None, "vectors of earlier batches as further negatives; null: none", "ESimCSE (Wu et al. 2022)",
        excludes={"encoders": 2}, why="which of them it follows is not published",
    )
