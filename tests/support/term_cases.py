"""Every method's loss on a batch of a few texts: its options, pooler and texts, and the public loss that a term is."""

from __future__ import annotations

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
MANY = {"sentence": TEXTS}
TRIPLETS = {"anchor": TEXTS[:4], "positive": TEXTS[4:8], "negative": TEXTS[8:]}
TWO_TEXTS = {"anchor": TEXTS[:6], "positive": TEXTS[6:]}
PAIRS = {"sentence1": TEXTS[:4], "sentence2": TEXTS[4:8]}
NLI = {"premise": TEXTS[:4], "hypothesis": TEXTS[4:8]}
TEMPLATES = {"template": "the man : {} means [MASK] .", "second_template": "a man : {} eats [MASK] ."}
ONE_TEMPLATE = {**TEMPLATES, "second_template": None}
WARM = {"temperature": 0.3}  # at 0.05 the softmax of a few texts is all but one number
KL = {"objective": "similarities", "loss": "kl"}
WORDS = {"teachers": [{"model": "lexical:token-set"}]}
CLEAN = {"group_positive": "bce", "reduce": "row"}
FEW = {"augmentations": ["shuffle", "delete", "repeat"], **WARM}
MARGINS = {"alpha": 0.7, "beta": 0.7, "weight": 1.0}  # every sentence is outside of them
INFOCSE = {"frozen_layers": 1, "mlm_weight": 0.3, "mlm_probability": 0.4}
WHITENED = {"groups": 8, "eps": 0.1, **WARM}
SGOPT = {"projection_width": 8, "temperature": 0.1}
FEATURES = ("u", "v", "difference", "max_square")
JOINT = {"setting": "joint", "joint_views": ("shuffle", "token_cutoff"), "joint_rates": (None, 0.4), "features": FEATURES}


class LabelledRows(MemoryRows):
    def scores(self):
        return [float(row) for row in self.rows]

    def labels(self):
        return [row % 3 for row in self.rows]


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


def layers(method, batch):
    states = method.reference.states(batch.ids, batch.mask, method.layers)
    real = batch.mask.unsqueeze(2)
    return method.projector(torch.stack([(state * real).sum(1) / real.sum(1) for state in states], dim=1))


def token_features(method, batch):
    features = method.backbone.head.features(method.backbone(batch.ids, batch.mask)[0], batch.mask, zero_padding=True)
    return features.tokens, features.real, features.vectors


def tension(method, batch):
    n = len(batch)
    both = method.options.objective == "in-batch"
    rows = (slice(None), slice(None)) if both else (slice(n), slice(n, None))
    return [encoder.pooled(batch.ids[row], batch.mask[row])
            for encoder, row in zip((method.first, method.backbone), rows, strict=True)]


def whitened(method, batch):
    first, *others = method._compared(batch)
    return first, torch.cat(others)


# name, which begins with the method's -> options, pooler, texts; the term, None for the whole loss, and the public loss
CASES = {
    "simcse": (WARM, "cls", PLAIN, "contrastive", lambda m, b: losses.simcse(*m.view_vectors(b), **WARM)),
    "simcse, given": ({"view": "given", "alpha": 2.0}, "cls", {**TRIPLETS, "negative2": TEXTS[7:3:-1]}, "contrastive",
                      lambda m, b: losses.simcse(*views(m, b)[:2], torch.cat(views(m, b)[2:]), alpha=2.0)),
    "simcse, dot": ({"similarity": "dot", "head": "none"}, "max", PLAIN, "contrastive",
                    lambda m, b: losses.simcse(*m.view_vectors(b), similarity="dot")),
    "simcse, masked": ({"mlm_weight": 0.1, **WARM}, "cls", PLAIN),
    "esimcse": (WARM, "cls", PLAIN, "contrastive", lambda m, b: losses.esimcse(*m.view_vectors(b), **WARM)),
    "consert": ({"views": ("none", "shuffle"), "rates": (None, None), "nt_xent": "sum", "weigh_unsup": True, **WARM}, "mean",
                PLAIN, None, lambda m, b: 0.15 * losses.consert(*contrasted(m, b, "unsup"), nt_xent="sum", **WARM)),
    "consert, joint": (JOINT, "mean", NLI, None, lambda m, b: losses.sbert_nli(
        *views(m, b), b.labels, m.classifier.linear.weight, m.classifier.linear.bias, features=FEATURES)
        + 0.15 * sum(map(losses.consert, *(vectors.split(len(b)) for vectors in contrasted(m, b, "joint"))))),
    "mirror-bert": ({"span_chars": 3, "min_chars": 6}, "mean", PLAIN, "contrastive",
                    lambda m, b: losses.mirrorbert(*m.view_vectors(b))),
    "mirror-bert, drophead": ({"drophead": 0.3}, "cls", TWO_TEXTS),
    "promptbert": (TEMPLATES, "mask", PLAIN, "contrastive",
                   lambda m, b: losses.promptbert(*m._vectors(b.ids, b.mask, len(b)).split(len(b)))),
    "promptbert, transform": ({**TEMPLATES, "head": "transform", "denoise_second_shift": "first", **WARM}, "mask", PLAIN),
    "promptbert, words": ({**ONE_TEMPLATE, "head": "transform", "trained": "prompt"}, "mask", PLAIN),
    "promptbert, given": ({**ONE_TEMPLATE, "view": "given", "denoise_gradient": False}, "mask", TRIPLETS),
    "diffaug": ({"template": TEMPLATES["template"], "denoise": False, "prefix_length": 2}, "mask", PLAIN, "contrastive",
                lambda m, b: losses.diffaug(*m.view_vectors(b))),
    "diffcse": ({"rtd_weight": 0.0, **WARM}, "cls", PLAIN, "contrastive",
                lambda m, b: losses.diffcse(*m.view_vectors(b), **WARM)),
    "infocse": ({**INFOCSE, **WARM}, "cls", PLAIN, "contrastive",
                lambda m, b: losses.infocse(*m.view_vectors(b), **WARM)),
    "infocse, tanh": ({**INFOCSE, "projector": "tanh", **WARM}, "cls", PLAIN),
    "sarcse": ({"beta": 0.0, "gamma": 0.0}, "text_cnn", PLAIN, "contrastive", lambda m, b: losses.sarcse(*views(m, b))),
    "sarcse, rebuilt": ({"beta": 0.3, "gamma": 0.7, "self_adaptive": False}, "text_cnn", PLAIN),
    "sarcse, given": ({"unpool": "repeat+position", "transposed_fusion": "separate", "beta": 1.0, "self_adaptive": False,
                       "view": "given"}, "text_cnn", TRIPLETS),
    "ct": ({"k": 1, "reduction": "mean"}, "mean", PLAIN, "tension", lambda m, b: losses.ct(*tension(m, b), b.labels)),
    "ct, in batch": ({"objective": "in-batch", "scale": 2.0}, "mean", PLAIN, "in_batch",
                     lambda m, b: losses.ct_in_batch(*tension(m, b), scale=m.log_scale.exp())),
    "sbert, nli": ({"objective": "nli"}, "mean", NLI, "nli", lambda m, b: losses.sbert_nli(
        *views(m, b), b.labels, m.classifier.linear.weight, m.classifier.linear.bias)),
    "sbert, features": ({"objective": "nli", "features": ["product", "u"], "bias": False}, "max", NLI, "nli",
                        lambda m, b: losses.sbert_nli(*views(m, b), b.labels, m.classifier.linear.weight,
                                                      features=("product", "u"))),
    "sbert, rescaled": ({"objective": "sts", "similarity": "rescaled_cosine", "scale": [-1, 6]}, "cls", PAIRS, "sts",
                        lambda m, b: losses.sbert_regression(*views(m, b), b.scores, scale=(-1, 6),
                                                             similarity="rescaled_cosine")),
    "sbert, sts": ({"objective": "sts"}, "mean", PAIRS, "sts", lambda m, b: losses.sbert_regression(*views(m, b), b.scores)),
    "sbert, triplet": ({"objective": "triplet", "margin": 2.0}, "mean", TRIPLETS, "triplet",
                       lambda m, b: losses.triplet(*views(m, b), margin=2.0)),
    "cosent": ({"scale": 5.0}, "cls", PAIRS, "cosent", lambda m, b: losses.cosent(*views(m, b), b.scores, scale=5.0)),
    "angle, triplets": ({"format": "triplets", "cosine_weight": 0.5}, "cls", TRIPLETS, None,
                        lambda m, b: losses.angle_triplets(*views(m, b), cosine_weight=0.5)),
    "angle, positives": ({"format": "positives", "ibn_scale": 5.0}, "cls", TWO_TEXTS,
                         None, lambda m, b: losses.simcse(*views(m, b), temperature=0.2)),
    "angle, scores": ({"ibn_weight": 0.0, "angle_weight": 1.0}, "mean", PAIRS, "angle",
                      lambda m, b: losses.angle(*views(m, b), b.scores, ibn_weight=0.0, angle_weight=1.0)),
    "rankcse": ({**WORDS, "loss": "listnet"}, "cls", PLAIN, "ranking",
                lambda m, b: losses.rankcse(*m.view_vectors(b), b.by_row["teacher similarities"], loss="listnet")),
    "whitenedcse": ({"split": "per_view", **WHITENED}, "cls", PLAIN, "contrastive",
                    lambda m, b: losses.whitenedcse(*whitened(m, b), **WARM)),
    "whitenedcse, per third": ({"split": "per_third", **WHITENED}, "cls", PLAIN),
    "whitenedcse, no constant": ({"split": "per_view", "groups": 8, "detach_matrix": False, **WARM}, "cls", PLAIN),
    "whitenedcse, whole": ({"split": "whole", **WHITENED, "groups": 4, "reduce": "mean"}, "cls", PLAIN),
    "whitenedcse, repeated": ({"split": "per_third", "groups": 16, "repeat": {"rate": 0.6}}, "cls", PLAIN),
    "pcl": ({"peer": {"mask": True}}, "cls", PLAIN, None, lambda m, b: losses.pcl(views(m, b), peer_views(m, b))),
    "pcl, clean": ({**FEW, "peer": {"mask": True, "head": "own"}, **CLEAN}, "cls", PLAIN, None,
                   lambda m, b: losses.pcl(views(m, b), peer_views(m, b, m.peer_head), **CLEAN, **WARM)),
    "pcl, released": ({**FEW, "peer": {}}, "cls", PLAIN, None,
                      lambda m, b: losses.pcl(views(m, b), peer_views(m, b), **WARM)),
    "pcl, frozen": ({**FEW, "peer": {"frozen": True, "mask": True}}, "cls", PLAIN, None, frozen_pcl),
    "pcl, no head": ({**FEW, "peer": {"mask": True}, "head": "none", "augmentations": []}, "cls", PLAIN, None,
                     lambda m, b: losses.pcl(views(m, b), m.peer(b.ids, b.mask).split(len(b)), **WARM)),
    "pcl, no peer": ({**FEW, "peer": None}, "cls", PLAIN, None, lambda m, b: losses.pcl(views(m, b), **WARM)),
    "distil": ({"projection": "linear"}, "mean", PLAIN, "vectors",
               lambda m, b: losses.distil(m.linear(*views(m, b)), b.by_row["teacher vectors"])),
    "distil, rows": ({**WORDS, **KL}, "mean", PLAIN, "similarities",
                     lambda m, b: losses.distil(*views(m, b), b.by_row["teacher similarities"], **KL)),
    "sncse": ({**TEMPLATES, "negation": "verbs", "lookup": "line", **MARGINS}, "mask", PLAIN, None,
              lambda m, b: losses.sncse(*m._vectors(b.ids, b.mask, len(b)).split(len(b)), **MARGINS)),
    "sg-opt": ({**SGOPT, "regulariser_weight": 0.0}, "mean", PLAIN, "contrastive",
               lambda m, b: losses.sgopt(m.projector(*views(m, b)), layers(m, b), temperature=0.1)),
    **{f"sg-opt, {objective}{', trained' * (guide == 'trained')}": (
        {**SGOPT, "objective": objective, "guide": guide, "skip_negative": skip}, "cls", PLAIN)
       for objective, guide, skip in (("sg", "frozen", False), ("opt1", "frozen", False), ("opt2", "frozen", True),
                                      ("sg-opt", "trained", False), ("opt1", "trained", False))},
    "is-bert": ({}, "mean_cnn", PLAIN, None, lambda m, b: losses.isbert(*token_features(m, b))),
    "is-bert, states": ({"padding": "states"}, "mean_cnn", PLAIN),
    "mlm": ({"probability": 0.4}, "mean", PLAIN),
    "tsdae": ({}, "cls", PLAIN),
}
# Options that change what is computed where; they are compared on another device alone.
STILL = {"generator_mode": "eval", "temperature": 0.5}  # its dropout would be another draw there
ELSEWHERE = {
    "simcse, two encoders": ({"encoders": 2}, "cls"), "simcse, mlm": ({"view": "mlm", "rate": 0.3}, "cls"),
    "simcse, in place": ({"mlm_weight": 0.1, "mlm_in_place": True, "similarity": "dot"}, "cls"),
    "simcse, one mask": ({"fixed_dropout_mask": True}, "cls"),
    "simcse, embeddings": ({"head": "none"}, "first_last:embeddings"), "mlm, untied": ({"tied": False}, "cls"),
    "diffcse, edits": ({**STILL, "operators": ["insert", "delete", "replace"], "replace": "masked"}, "cls"),
    "diffcse, corrective": ({**STILL, "task": "corrective_lm", "condition": "raw"}, "cls"),
    "diffcse, positive": ({**STILL, "augmented_as": "positive", "rtd_weight": 0.0}, "cls"),
    "diffcse, tanh": ({**STILL, "rtd_mean": "attended_without_specials", "projector": "tanh", "detach": True}, "mean"),
    "sarcse, repeat": ({"transposed_fusion": "separate", "unpool": "repeat", "self_adaptive": False}, "text_cnn"),
    "promptbert, empty": ({**TEMPLATES, "denoise_positions": "empty", "head": "transform_train_only"}, "mask"),
    "promptbert, rightmost": ({**ONE_TEMPLATE, "denoise": False, "trained": "prompt_rightmost", "head": "none"}, "mask"),
    "consert, cut": ({"views": ["token_cutoff", "span"], "rates": [0.3, 0.3]}, "mean"),
    "consert, dropped": ({"views": ["dropout", "none"], "rates": [0.2, None]}, "mean"),
    "ct, anchor": ({"k": 2, "negatives": "anchor"}, "mean"),
    "ct, cosine": ({"objective": "in-batch", "similarity": "cosine"}, "mean"),
    "sg-opt, max": ({**SGOPT, "objective": "sg", "layer_pooling": "max"}, "cls"),
}


def method_and_batch(folder, case, split=None, rank=0, device=CPU):
    """In float64, at its last stage. split: the rows of each process, None where there is one."""
    options, pooler, texts, *_ = CASES[case] if case in CASES else (*ELSEWHERE[case], MANY)
    if case == "distil":
        options = {**options, "teachers": [{"model": str(folder), "settings": {"pooler": "cls"}}]}
    method = make(load_method(case.partition(",")[0]), folder, options, pooler=pooler)
    rows, generator = LabelledRows(folder, texts), np.random.default_rng(0)
    if labelled := texts is NLI:
        torch.manual_seed(1)
        method.classifier.set_shape(method.backbone.vector_width, 3)
        method.double()
    method.start_stage(method.stages_for(method.options)[-1])
    read = method.labelled_views(rows, generator) if labelled else method.views(rows, generator)
    pad = method.backbone.tokenizer.pad_token_id
    batch = to_batch(read, shares_of(len(read.tokens[0]), split, rank), pad, device)
    batch.labelled_only = labelled
    return method.to(device), batch


def split_of(case):
    """An uneven one: an even one would hide a mean of means."""
    count = len(next(iter(CASES[case][2].values())))
    return count - count // 3, count // 3


def numbers(terms):
    return {name: term.value.item() for name, term in terms.items()}
