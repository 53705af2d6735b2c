"""No row, no token, no pair: every loss is 0 with a gradient, never NaN, as a process without any takes part in a sum."""

from __future__ import annotations

import pytest
import torch
from public_losses import OF_METHODS

from stsbench import losses
from stsbench.losses.contrastive import info_nce, nt_xent, simcse
from stsbench.losses.group import agreement, group_cross_entropy, group_scores
from stsbench.losses.labelled import cosent_of_similarities, labelled_in_batch, pair_angles, pair_cosines, sbert_regression
from stsbench.losses.mutual_information import jensen_shannon
from stsbench.losses.ranking import consistency, distil, listmle, listnet
from stsbench.losses.tokens import corrective_lm, masked_lm, reconstruction, replaced_tokens, token_errors

D, V = 4, 7
WEIGHT = torch.zeros(3, 3 * D)
NO_IDS, NO_NUMBERS, NO_TOKENS = torch.empty(0, dtype=torch.long), torch.empty(0), torch.empty(0, 1)
CASES = {
    "contrastive": [lambda x: info_nce(x, x), lambda x: info_nce(x, x, negatives=[x, x], alpha=2.0),
                    lambda x: info_nce(x, torch.ones(3, D), negatives=[torch.ones(3, D)], start=1),
                    lambda x: simcse(x, x, x, temperature=0.1, similarity="dot"),
                    lambda x: nt_xent(x, x),
                    lambda x: nt_xent(x, x, all_first=torch.ones(3, D), all_second=torch.ones(3, D), start=2)],
    "group": [lambda x: group_cross_entropy(x, 2), lambda x: group_cross_entropy(x, 2, "bce"), lambda x: agreement(x, x),
              lambda x: agreement(x, x, "row"), lambda x: group_scores(x, [x, x], torch.ones(3, D)).sum()],
    "labelled": [lambda x: cosent_of_similarities(pair_cosines(x, x), NO_NUMBERS),
                 lambda x: cosent_of_similarities(pair_angles(x, x), NO_NUMBERS),
                 lambda x: labelled_in_batch(x, x, NO_NUMBERS),
                 lambda x: labelled_in_batch(x, x, NO_NUMBERS, all_first=torch.ones(3, D), all_second=torch.ones(3, D)),
                 lambda x: sbert_regression(x, x, NO_NUMBERS, similarity="rescaled_cosine")],
    "mutual_information": [lambda x: sum(jensen_shannon(x, NO_IDS, x)),
                           lambda x: sum(jensen_shannon(x, NO_IDS, torch.ones(2, D)))],
    "ranking": [lambda x: distil(x, torch.empty(0, 0), objective="ranks", loss="listmle"),
                lambda x: distil(x, torch.empty(0, 0), objective="similarities", loss="kl"),
                lambda x: listnet(x, x.detach()), lambda x: listmle(x, x.detach()),
                lambda x: listmle(x, x.detach(), ranks="mean"),
                lambda x: consistency(x, x), lambda x: consistency(x, x, "entropy")],
    "tokens": [lambda x: masked_lm(x, NO_IDS), lambda x: sum(corrective_lm(x, x[:, 0], NO_IDS, NO_IDS)),
               lambda x: replaced_tokens(x[:, None, :2], NO_TOKENS.long(), NO_TOKENS.bool()),
               lambda x: reconstruction(token_errors(x[:, None], x[:, None]), NO_TOKENS, NO_TOKENS.bool())],
}
# public loss -> a call of it; of all others with two arguments
PUBLIC = {
    "sbert_nli": lambda loss, x: loss(x, x, NO_IDS, WEIGHT), "sbert_regression": lambda loss, x: loss(x, x, NO_NUMBERS),
    "triplet": lambda loss, x: loss(x, x, x), "ct": lambda loss, x: loss(x, x, NO_IDS),
    "sgopt": lambda loss, x: loss(x, x[:, None]), "isbert": lambda loss, x: loss(x[:, None], NO_TOKENS, x),
    "cosent": lambda loss, x: loss(x, x, NO_NUMBERS), "angle": lambda loss, x: loss(x, x, NO_NUMBERS, cosine_weight=1.0),
    "angle_triplets": lambda loss, x: loss(x, x, x, cosine_weight=1.0),
    "rankcse": lambda loss, x: loss(x, x, torch.empty(0, 0)), "sncse": lambda loss, x: loss(x, x, x),
    "pcl": lambda loss, x: loss([x, x, x], [x, x, x]), "distil": lambda loss, x: loss(x, x.detach()),
    "declutr": lambda loss, x: loss(x, x[:, None]),
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


@pytest.mark.parametrize("name", OF_METHODS)
def test_losses_of_methods(name):
    check(lambda x: PUBLIC.get(name, lambda loss, x: loss(x, x))(getattr(losses, name), x))


def test_every_public_loss_is_here():
    general = {word for cases in CASES.values() for case in cases for word in case.__code__.co_names}
    # guided: tests/losses/test_guided.py; no losses: weights, margins as a term
    assert {*losses.__all__} - general - {*OF_METHODS} == {
        "GuideCosines", "GuideRule", "guided_info_nce", "guided_nt_xent", "token_weights", "bidirectional_margin"
    }
