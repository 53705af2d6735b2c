"""A method whose own parts are switched off is another method, to the last bit: loss and gradients, with dropout."""

from __future__ import annotations

import pytest
import torch
from method_oracle import MemoryRows, batch_of, make, total
from simcse_oracle import PLAIN, TRIPLETS

from stsbench.methods.cmlm.method import ConditionalMaskedLM
from stsbench.methods.diffcse.method import DiffCSE
from stsbench.methods.infocse.method import InfoCSE
from stsbench.methods.mlm.method import MaskedLM
from stsbench.methods.pcl.method import PCL
from stsbench.methods.promptbert.method import PromptBERT
from stsbench.methods.rankcse.method import RankCSE
from stsbench.methods.sarcse.method import SARCSE
from stsbench.methods.simcse.method import SimCSE
from stsbench.methods.sncse.method import SNCSE

NO_DECODER = {"beta": 0.0, "gamma": 0.0}
TEMPLATES = {"template": "the {} means [MASK] .", "second_template": "a {} means [MASK] ."}
WARM = {"temperature": 1.0}
CASES = {  # one method and its options, the other and its own, pooler, data
    "sarcse": (SARCSE, NO_DECODER, SimCSE, {"head": "none"}, "text_cnn", PLAIN),
    "sarcse, given": (SARCSE, {"view": "given", **NO_DECODER}, SimCSE, {"view": "given", "head": "none"}, "text_cnn",
                      TRIPLETS),
    "rankcse": (RankCSE, {"gamma": 0, "consistency": "none"}, SimCSE, {}, "cls", PLAIN),
    "pcl": (PCL, {"peer": None, "group_weight": 0.0, "augmentations": []}, SimCSE, {}, "cls", PLAIN),
    "diffcse": (DiffCSE, {"rtd_weight": 0.0, "projector": "tanh"}, SimCSE, {}, "cls", PLAIN),
    "infocse": (InfoCSE, {"mlm_weight": 0.0, **WARM}, DiffCSE, {"rtd_weight": 0.0, **WARM}, "cls", PLAIN),
    "infocse, tanh": (InfoCSE, {"mlm_weight": 0.0, "projector": "tanh", **WARM}, DiffCSE,
                      {"rtd_weight": 0.0, "projector": "tanh", **WARM}, "cls", PLAIN),
    "sncse": (SNCSE, {**TEMPLATES, "weight": 0, "full_stop": "none", "max_length_counts": "sentence"}, PromptBERT,
              {**TEMPLATES, "denoise": False, "text": "inside"}, "mask", PLAIN),
    "cmlm": (ConditionalMaskedLM, {"vectors": 0, "sentence": "same"}, MaskedLM, {}, "mean", PLAIN),
}


@pytest.mark.parametrize("case", CASES)
def test_without_its_own_parts_a_method_is_another(masked_lms, case):
    kind, options, other, others, pooler, data = CASES[case]
    found = []
    for one, chosen in ((kind, options), (other, others)):
        method = make(one, masked_lms["bert"], chosen, dropout=0.1, pooler=pooler)
        batch = batch_of(method, MemoryRows(masked_lms["bert"], data))
        torch.manual_seed(5)
        terms = method(batch)
        total(terms).backward()
        values = {name: (term.value.item(), term.weight, term.count) for name, term in terms.items()}
        gradients = {name.replace("projector.", "head."): weight.grad for name, weight in method.named_parameters()}
        found.append((values, method.metrics(), method.counts(batch), gradients))
    assert found[0][:3] == found[1][:3] and found[0][3].keys() == found[1][3].keys()
    assert len(found[0][3]) > 20
    for name, gradient in found[0][3].items():
        assert gradient is found[1][3][name] or torch.equal(gradient, found[1][3][name]), name
