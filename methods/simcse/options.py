"""SimCSE's choices (Gao, Yao and Chen 2021), each ablation of the paper one of them. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stsbench.training.api.options import Options, Queue, Repetition


class SimCSEOptions(Options):
    """Defaults: unsupervised SimCSE as published."""

    default_recipe = "unsup-bert-base"

    similarity: Literal["cosine", "dot"] = "cosine"  # dot: without temperature ("N/A" in Table D.1)
    temperature: float = Field(default=0.05, gt=0)
    head: Literal["mlp_train_only", "mlp", "none"] = "mlp_train_only"  # Table 6: dropped at test, kept, no MLP
    alpha: float = Field(default=1.0, gt=0)  # Eq. 8: weight of an anchor's own hard negative; its logit gets ln(alpha)
    mlm_weight: float = Field(default=0.0, ge=0)  # lambda of the auxiliary masked-LM loss (Table D.2); 0: none
    mlm_probability: float = Field(default=0.15, gt=0, lt=1)
    mlm_in_place: bool = False  # the released code until a0867f4: the contrastive pass, too, saw the masked input
    encoders: Literal[1, 2] = 1  # 2: two encoders that start alike (Table 2); the first is tested
    fixed_dropout_mask: bool = False  # Table 3, "Fixed 0.1": both views are one vector
    # what the positive is: "given" by the data (pairs, triplets), else made of a plain sentence; Tables 1 and 2
    view: Literal[
        "dropout", "given", "crop", "delete_words", "delete_one_word", "synonym", "mlm", "next", "next3"
    ] = "dropout"
    rate: float | None = Field(default=None, gt=0, lt=1)  # share of words of crop, delete_words, mlm
    augment_both: bool = False  # the augmentation on both views; by default on the positive only
    thesaurus: str | None = None  # view synonym: a file, word TAB synonym TAB synonym ... a line
    replacer: str | None = None  # view mlm: the masked LM that fills in; null: the backbone's own
    # ESimCSE: sub-words or words repeated in every view but the first, with the views dropout and given; null: none
    repeat: Repetition | None = None
    queue: Queue | None = None  # ESimCSE: vectors of earlier batches as further negatives; null: none
