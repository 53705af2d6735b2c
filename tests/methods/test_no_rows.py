"""No row, no token, no pair: every loss is 0 with a gradient, never NaN, as a process without any takes part in a sum."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import torch
from test_door import FOLDERS

from stsbench import methods
from stsbench.training import losses
from stsbench.training.losses.contrastive import info_nce, row_contrast
from stsbench.training.losses.corrective_lm import corrective_loss
from stsbench.training.losses.cosine_regression import cosine_regression
from stsbench.training.losses.graded_pairs import cosent, labelled_in_batch, pair_angles, pair_cosines
from stsbench.training.losses.group import agreement, group_cross_entropy, group_scores
from stsbench.training.losses.masked_lm import masked_lm
from stsbench.training.losses.mutual_information import jensen_shannon
from stsbench.training.losses.nli import nli_cross_entropy
from stsbench.training.losses.nt_xent import nt_xent
from stsbench.training.losses.ranking import consistency, listmle, listnet
from stsbench.training.losses.reconstruction import reconstruction_loss, token_errors
from stsbench.training.losses.replaced_tokens import replaced_token_loss
from stsbench.training.losses.triplet import triplet

D, V = 4, 7
WEIGHT = torch.zeros(3, 3 * D)
NO_IDS, NO_NUMBERS, NO_TOKENS = torch.empty(0, dtype=torch.long), torch.empty(0), torch.empty(0, 1)
CASES = {
    "contrastive": [lambda x: info_nce(x, x), lambda x: info_nce(x, x, negatives=[x, x], alpha=2.0),
                    lambda x: info_nce(x, torch.ones(3, D), negatives=[torch.ones(3, D)], start=1),
                    lambda x: row_contrast(x, x, x, temperature=0.1, similarity="dot")],
    "corrective_lm": [lambda x: sum(corrective_loss(x, x[:, 0], NO_IDS, NO_IDS))],
    "cosine_regression": [lambda x: cosine_regression(x, x, NO_NUMBERS),
                          lambda x: cosine_regression(x, x, NO_NUMBERS, "rescaled_cosine")],
    "group": [lambda x: group_cross_entropy(x, 2), lambda x: group_cross_entropy(x, 2, "bce"), lambda x: agreement(x, x),
              lambda x: agreement(x, x, "row"), lambda x: group_scores(x, [x, x], torch.ones(3, D)).sum()],
    "graded_pairs": [lambda x: cosent(pair_cosines(x, x), NO_NUMBERS), lambda x: cosent(pair_angles(x, x), NO_NUMBERS),
                     lambda x: labelled_in_batch(x, x, NO_NUMBERS),
                     lambda x: labelled_in_batch(x, x, NO_NUMBERS, all_first=torch.ones(3, D), all_second=torch.ones(3, D))],
    "masked_lm": [lambda x: masked_lm(x, NO_IDS)],
    "mutual_information": [lambda x: sum(jensen_shannon(x, NO_IDS, x)),
                           lambda x: sum(jensen_shannon(x, NO_IDS, torch.ones(2, D)))],
    "nli": [lambda x: nli_cross_entropy(x, x, WEIGHT, labels=NO_IDS)],
    "nt_xent": [lambda x: nt_xent(x, x),
                lambda x: nt_xent(x, x, all_first=torch.ones(3, D), all_second=torch.ones(3, D), start=2)],
    "ranking": [lambda x: listnet(x, x.detach()), lambda x: listmle(x, x.detach()),
                lambda x: listmle(x, x.detach(), ranks="mean"),
                lambda x: consistency(x, x), lambda x: consistency(x, x, "entropy")],
    "reconstruction": [lambda x: reconstruction_loss(token_errors(x[:, None], x[:, None]), NO_TOKENS, NO_TOKENS.bool())],
    "replaced_tokens": [lambda x: replaced_token_loss(x[:, None, :2], NO_TOKENS.long(), NO_TOKENS.bool())],
    "triplet": [lambda x: triplet(x, x, x)],
}
NO_LOSS = {"rows", "pair_features", "guided"}  # guided: tests/training/losses/test_guided.py
OF_METHODS = {
    "sbert.loss": lambda loss, x: loss(x, x, NO_IDS, WEIGHT),
    "sbert.regression_loss": lambda loss, x: loss(x, x, NO_NUMBERS),
    "sbert.triplet_loss": lambda loss, x: loss(x, x, x),
    "ct.loss": lambda loss, x: loss(x, x, NO_IDS),
    "sgopt.loss": lambda loss, x: loss(x, x[:, None]),
    "isbert.loss": lambda loss, x: loss(x[:, None], NO_TOKENS, x),
    "cosent.loss": lambda loss, x: loss(x, x, NO_NUMBERS),
    "angle.loss": lambda loss, x: loss(x, x, NO_NUMBERS, cosine_weight=1.0),
    "angle.triplet_loss": lambda loss, x: loss(x, x, x, cosine_weight=1.0),
    "rankcse.loss": lambda loss, x: loss(x, x, torch.empty(0, 0)),
    "sncse.loss": lambda loss, x: loss(x, x, x),
    "pcl.loss": lambda loss, x: loss([x, x, x], [x, x, x]),
    "distil.loss": lambda loss, x: (loss(x, x.detach()) + loss(x, torch.empty(0, 0), objective="ranks", loss="listmle")
                                    + loss(x, torch.empty(0, 0), objective="similarities", loss="kl")),
    "declutr.contrastive_loss": lambda loss, x: loss(x, x[:, None]),
}


def check(loss):
    x = torch.empty(0, D, requires_grad=True)
    value = loss(x)
    assert value.shape == () and value.item() == 0.0
    value.backward()
    assert x.grad is not None and x.grad.shape == (0, D)


@pytest.mark.parametrize("module", CASES)
def test_losses(module):
    for loss in CASES[module]:
        check(loss)


def test_all_of_them_are_here():
    assert {*CASES, *NO_LOSS} == {path.stem for path in Path(losses.__file__).parent.glob("[a-z]*.py")}


@pytest.mark.parametrize("folder", FOLDERS)
def test_losses_of_methods(folder):
    module = getattr(methods, folder)
    for name in import_module(f"stsbench.methods.{folder}").__all__:
        call = OF_METHODS.get(f"{folder}.{name}", lambda loss, x: loss(x, x))
        check(partial(call, getattr(module, name)))
