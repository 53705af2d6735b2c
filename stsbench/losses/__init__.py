"""Losses as functions of tensors: the loss of each method, by the method's name, and the parts of such losses.

    from stsbench import losses

    losses.simcse(anchors, positives, negatives, temperature=0.05).backward()

Vectors are (n, d), row by row; defaults are those of the papers. A method with the name of a function computes that
function. The names load on first use, and torch with them.
"""

from typing import TYPE_CHECKING

from stsbench.registry import lazy_names

if TYPE_CHECKING:  # editors and mypy cannot follow lazy names
    from stsbench.losses.contrastive import *  # noqa: F403
    from stsbench.losses.group import *  # noqa: F403
    from stsbench.losses.labelled import *  # noqa: F403
    from stsbench.losses.ranking import *  # noqa: F403
    from stsbench.losses.tokens import *  # noqa: F403
    from stsbench.losses.variants import *  # noqa: F403

NAMES = {  # module -> its public names
    "contrastive": (
        "info_nce", "nt_xent", "simcse", "promptbert", "diffaug", "diffcse", "sarcse", "infocse", "esimcse", "whitenedcse",
        "consert", "mirrorbert", "declutr", "ct_in_batch", "gor",
    ),
    "group": ("group_scores", "group_cross_entropy", "agreement", "pcl", "jensen_shannon", "isbert", "sgopt"),
    "labelled": (
        "sbert_nli", "sbert_regression", "ct", "cosent_of_similarities", "cosent", "pair_cosines", "pair_angles",
        "labelled_in_batch", "angle", "angle_triplets",
    ),
    "ranking": ("listnet", "listmle", "consistency", "rankcse", "distil", "triplet", "bidirectional_margin", "sncse"),
    "tokens": ("masked_lm", "corrective_lm", "replaced_tokens", "token_errors", "token_weights", "reconstruction"),
    "variants": ("GuideCosines", "GuideRule", "guided_info_nce", "guided_nt_xent", "multiple_negatives"),
}
__getattr__, __dir__, __all__ = lazy_names(__name__, NAMES)
