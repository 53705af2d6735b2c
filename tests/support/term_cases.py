"""Every method's loss on a batch of a few texts: its options, pooler and texts, and the public loss that a term is."""

import numpy as np
import tiny_models
import torch
from method_oracle import MemoryRows, make
from two_processes import shares_of

from stsbench import losses
from stsbench.methods.consert.method import SLOTS
from stsbench.training.recipes.methods import load_method
from stsbench.training.rows.batches import to_batch

CPU = torch.device("cpu")
TEXTS = tiny_models.sentences(12, longest=7, seed=3)
PLAIN = {"sentence": TEXTS[:6]}
TRIPLETS = {"anchor": TEXTS[:4], "positive": TEXTS[4:8], "negative": TEXTS[8:]}
TWO_TEXTS = {"anchor": TEXTS[:6], "positive": TEXTS[6:]}
PAIRS = {"sentence1": TEXTS[:4], "sentence2": TEXTS[4:8]}
NLI = {"premise": TEXTS[:4], "hypothesis": TEXTS[4:8]}
TEMPLATES = {"template": "the man : {} means [MASK] .", "second_template": "a man : {} eats [MASK] ."}
ONE_TEMPLATE = {**TEMPLATES, "second_template": None}
HARD = {"alpha": 2.0, "similarity": "dot"}
WARM = {"temperature": 0.3}  # at 0.05 the softmax of a few texts is all but one number
WORDS = {"teachers": [{"model": "lexical:token-set"}]}
CLEAN = {"group_positive": "bce", "reduce": "row"}
FEW = {"augmentations": ["shuffle", "delete", "repeat"], **WARM}
MARGINS = {"alpha": 0.6, "beta": 0.8, "weight": 0.7}  # every sentence is outside of them
INFOCSE = {"frozen_layers": 1, "mlm_weight": 0.3, "mlm_probability": 0.4}
WHITENED = {"groups": 8, "eps": 0.1, **WARM}
SGOPT = {"projection_width": 8, "temperature": 0.1}
FEATURES = ("u", "v", "difference", "max_square")
JOINT = {"setting": "joint", "joint_views": ("shuffle", "token_cutoff"), "joint_rates": (None, 0.4), "features": FEATURES}


def views(method, batch):
    return method.vectors(batch.ids, batch.mask).split(len(batch))


def contrasted(method, batch, stage):
    return [method._view(batch, slot, stage) for slot in SLOTS]


def peer_views(method, batch, head=None):
    return (head or method.head)(method.peer(batch.ids, batch.mask)).split(len(batch))


def frozen_pcl(method, batch):
    """Without the two terms of the peer's own, which would train nothing."""
    peer = [view.detach() for view in peer_views(method, batch)]
    return losses.pcl(views(method, batch), peer, **WARM) - losses.pcl(peer, **WARM)


def whitened(method, batch):
    first, *others = method._compared(batch)
    return first, torch.cat(others)


# name, which begins with the method's -> options, pooler, texts; but for methods with an oracle of their own the term, None
# for the whole loss, and the public loss
CASES = {
    "simcse": (WARM, "cls", PLAIN, "contrastive", lambda m, b: losses.simcse(*m.view_vectors(b), **WARM)),
    "simcse, given": ({"view": "given", **HARD, "head": "none"}, "max", {**TRIPLETS, "negative2": TEXTS[7:3:-1]},
                      "contrastive", lambda m, b: losses.simcse(*views(m, b)[:2], torch.cat(views(m, b)[2:]), **HARD)),
    "simcse, masked": ({"mlm_weight": 0.1, **WARM}, "cls", PLAIN), "esimcse": (WARM, "cls", PLAIN),
    "consert": ({"views": ("none", "shuffle"), "rates": (None, None), "nt_xent": "sum", "weigh_unsup": True, **WARM}, "mean",
                PLAIN, None, lambda m, b: 0.15 * losses.consert(*contrasted(m, b, "unsup"), nt_xent="sum", **WARM)),
    "consert, joint": (JOINT, "mean", NLI, None, lambda m, b: losses.sbert_nli(
        *views(m, b), b.labels, m.classifier.linear.weight, m.classifier.linear.bias, features=FEATURES)
        + 0.15 * sum(map(losses.consert, *(vectors.split(len(b)) for vectors in contrasted(m, b, "joint"))))),
    "mirror-bert": ({"span_chars": 3, "min_chars": 6}, "mean", PLAIN),
    "mirror-bert, drophead": ({"drophead": 0.3}, "cls", TWO_TEXTS),
    "promptbert": (TEMPLATES, "mask", PLAIN),
    "promptbert, words": ({**ONE_TEMPLATE, "head": "transform", "trained": "prompt"}, "mask", PLAIN),
    "diffaug": ({"template": TEMPLATES["template"], "denoise": False, "prefix_length": 2}, "mask", PLAIN),
    "diffcse": ({"rtd_weight": 0.0, **WARM}, "cls", PLAIN),
    "infocse": ({**INFOCSE, **WARM}, "cls", PLAIN, "contrastive", lambda m, b: losses.infocse(*m.view_vectors(b), **WARM)),
    "infocse, no masks": ({"mlm_weight": 0.0, **WARM}, "cls", PLAIN, "contrastive",
                          lambda m, b: losses.infocse(*m.view_vectors(b), **WARM)),
    "sarcse": ({"beta": 0.3, "gamma": 0.7, "self_adaptive": False}, "text_cnn", PLAIN),
    "ct": ({"k": 1, "reduction": "mean"}, "mean", PLAIN),
    "ct, in batch": ({"objective": "in-batch", "scale": 2.0}, "mean", PLAIN),
    "sbert, nli": ({"objective": "nli", "features": ["product", "u"], "bias": False}, "max", NLI, "nli",
                   lambda m, b: losses.sbert_nli(*views(m, b), b.labels, m.classifier.linear.weight,
                                                 features=("product", "u"))),
    "sbert, sts": ({"objective": "sts", "similarity": "rescaled_cosine", "scale": [-1, 6]}, "mean", PAIRS, "sts",
                   lambda m, b: losses.sbert_regression(*views(m, b), b.scores, scale=(-1, 6),
                                                        similarity="rescaled_cosine")),
    "sbert, triplet": ({"objective": "triplet", "margin": 2.0}, "mean", TRIPLETS, "triplet",
                       lambda m, b: losses.triplet(*views(m, b), margin=2.0)),
    "cosent": ({"scale": 5.0}, "cls", PAIRS, "cosent", lambda m, b: losses.cosent(*views(m, b), b.scores, scale=5.0)),
    "angle, triplets": ({"format": "triplets", "cosine_weight": 0.5}, "cls", TRIPLETS, None,
                        lambda m, b: losses.angle_triplets(*views(m, b), cosine_weight=0.5)),
    "angle, positives": ({"format": "positives", "ibn_scale": 5.0}, "cls", TWO_TEXTS,
                         None, lambda m, b: losses.simcse(*views(m, b), temperature=0.2)),
    "angle, scores": ({"ibn_weight": 0.0, "angle_weight": 1.0}, "mean", PAIRS, "angle",
                      lambda m, b: losses.angle(*views(m, b), b.scores, ibn_weight=0.0, angle_weight=1.0)),
    "rankcse": ({**WORDS, "loss": "listnet"}, "cls", PLAIN),
    "rankcse, no teachers": ({"gamma": 0, "consistency": "none", **WARM}, "cls", PLAIN, None,
                             lambda m, b: losses.simcse(*m.view_vectors(b), **WARM)),
    "whitenedcse": ({"split": "per_view", **WHITENED}, "cls", PLAIN, "contrastive",
                    lambda m, b: losses.whitenedcse(*whitened(m, b), **WARM)),
    "whitenedcse, per third": ({"split": "per_third", **WHITENED}, "cls", PLAIN),
    "whitenedcse, whole": ({"split": "whole", **WHITENED, "groups": 4, "reduce": "mean", "shuffle": False}, "cls", PLAIN),
    "pcl": ({**FEW, "peer": {"mask": True, "head": "own"}, **CLEAN}, "cls", PLAIN, None,
            lambda m, b: losses.pcl(views(m, b), peer_views(m, b, m.peer_head), **CLEAN, **WARM)),
    "pcl, released": ({**FEW, "peer": {}}, "cls", PLAIN, None,
                      lambda m, b: losses.pcl(views(m, b), peer_views(m, b), **WARM)),
    "pcl, frozen": ({**FEW, "peer": {"frozen": True, "mask": True}}, "cls", PLAIN, None, frozen_pcl),
    "pcl, no peer": ({**FEW, "peer": None, "head": "none"}, "cls", PLAIN, None,
                     lambda m, b: losses.pcl(views(m, b), **WARM)),
    "pcl, no group": ({"peer": None, "group_weight": 0.0, "augmentations": [], **WARM}, "cls", PLAIN, None,
                      lambda m, b: losses.simcse(*m.view_vectors(b), **WARM)),
    "distil": ({"projection": "linear"}, "mean", PLAIN, "vectors",
               lambda m, b: losses.distil(m.linear(*views(m, b)), b.by_row["teacher vectors"])),
    "distil, rows": ({**WORDS, "objective": "similarities", "loss": "kl"}, "mean", PLAIN),
    "sncse": ({**TEMPLATES, "negation": "verbs", "lookup": "line", **MARGINS, **WARM}, "mask", PLAIN, None,
              lambda m, b: losses.sncse(*m._vectors(b.ids, b.mask, len(b)).split(len(b)), **MARGINS, **WARM)),
    "sg-opt": ({**SGOPT, "regulariser_weight": 0.0}, "mean", PLAIN),
    "sg-opt, opt2": ({**SGOPT, "objective": "opt2", "skip_negative": True}, "cls", PLAIN),
    "sg-opt, trained": ({**SGOPT, "guide": "trained"}, "cls", PLAIN),
    "is-bert": ({}, "mean_cnn", PLAIN), "is-bert, states": ({"padding": "states"}, "mean_cnn", PLAIN),
    "mlm": ({"probability": 0.4}, "mean", PLAIN), "tsdae": ({}, "cls", PLAIN),
}
# Options that change what is computed where; they are compared on another device alone.
STILL = {"generator_mode": "eval", "temperature": 0.5}  # its dropout would be another draw there
ELSEWHERE = {
    "simcse, two encoders": ({"encoders": 2}, "cls"), "simcse, mlm": ({"view": "mlm", "rate": 0.3}, "cls"),
    "simcse, in place": ({"mlm_weight": 0.1, "mlm_in_place": True, "similarity": "dot"}, "cls"),
    "diffcse, edits": ({**STILL, "operators": ["insert", "delete", "replace"], "replace": "masked"}, "cls"),
    "diffcse, corrective": ({**STILL, "task": "corrective_lm", "condition": "raw"}, "cls"),
    "sarcse, repeat": ({"transposed_fusion": "separate", "unpool": "repeat", "self_adaptive": False}, "text_cnn"),
    "consert, cut": ({"views": ["token_cutoff", "span"], "rates": [0.3, 0.3]}, "mean"),
    "consert, dropped": ({"views": ["dropout", "none"], "rates": [0.2, None]}, "mean"),
}


def method_and_batch(folder, case, split=None, rank=0, device=CPU, changes=None):
    """In float64, at its last stage. split: the rows of each process, None where there is one; changes: of the options."""
    options, pooler, texts, *_ = CASES[case] if case in CASES else (*ELSEWHERE[case], PLAIN)
    options = {**options, **(changes or {})}
    if case == "distil":
        options = {**options, "teachers": [{"model": str(folder), "settings": {"pooler": "cls"}}]}
    method = make(load_method(case.partition(",")[0]), folder, options, pooler=pooler)
    labelled, generator = texts is NLI, np.random.default_rng(0)
    rows = MemoryRows(folder, texts, values=[number % 3 if labelled else float(number) for number in range(6)])
    if labelled:
        torch.manual_seed(1)
        method.classifier.set_shape(method.backbone.vector_width, 3)
        method.double()
    method.start_stage(method.stages_for(method.options)[-1])
    read = method.labelled_views(rows, generator) if labelled else method.views(rows, generator)
    batch = to_batch(read, shares_of(len(read.tokens[0]), split, rank), method.backbone.tokenizer.pad_token_id, device)
    batch.labelled_only = labelled
    return method.to(device), batch


def split_of(case):
    """An uneven one: an even one would hide a mean of means."""
    count = len(next(iter(CASES[case][2].values())))
    return count - count // 3, count // 3


def numbers(terms):
    return {name: term.value.item() for name, term in terms.items()}
