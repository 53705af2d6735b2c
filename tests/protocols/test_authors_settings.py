"""The defaults of protocols are those of the authors' code and papers, transcribed here: SentEval in the fork of SimCSE
(tools/validation.py, classifier.py, relatedness.py and its README), SimCSE and DiffCSE."""

import pytest

from stsbench.evaluation.protocol import load_protocol

L2 = [1e-5, 1e-4, 1e-3, 1e-2]
FOLDS = {"k": 10, "seed": 1111}
AUTHORS = {
    "transfer": {**FOLDS, "grid": L2, "grid_kfold": L2, "optimizer": "adam", "batch": 64, "tenacity": 5, "epoch_size": 4,
                 "max_epoch": 200, "validation": 0.05},
    # scikit-learn's C: 2^-2 to 2^3, and from 2^-1 to 2^5 where the folds are of the training split alone
    "transfer:sklearn": {**FOLDS, "grid": [2.0**i for i in range(-2, 4)], "grid_kfold": [2.0**i for i in range(-1, 6)]},
    "regression": {"seed": 1111, "learning_rate": 1e-3, "batch": 64, "round_epochs": 50, "tenacity": 3, "max_epoch": 1000,
                   "entailment_regs": L2, "entailment_optimizer": "adam", "entailment_batch": 64, "entailment_epoch_size": 4,
                   "entailment_tenacity": 5, "entailment_max_epoch": 200},
    "sts": {"similarity": "cosine", "aggregations": ["all", "mean", "wmean"], "metrics": ["spearman", "pearson"]},
    "geometry": {"split": "test", "alpha": 2.0, "t": 2.0, "positive_above": 4.0},
    "retrieval": {"ks": [1, 5, 10]},
}


@pytest.mark.parametrize("name", AUTHORS)
def test_a_protocol_s_defaults_are_its_authors(name):
    main, _, variant = name.partition(":")
    settings = load_protocol(main)({"classifier": variant} if variant else {}).settings
    assert {key: settings[key] for key in AUTHORS[name]} == AUTHORS[name]
