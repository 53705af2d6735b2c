"""InfoCSE once more, from its description alone: one sentence at a time, attention by hand, no padding."""

from __future__ import annotations

import math

import torch
from method_oracle import batch_of, make
from torch.nn.functional import gelu, layer_norm
from transformers import AutoModelForMaskedLM

from stsbench.methods.infocse.method import InfoCSE

TEXTS = [
    "the man runs .", "a blue dog eats a fish in the park .", "cat", "two women play the guitar near a river .",
    "the dog is in the park .", "a child eats .", "the woman sings a song .", "birds fly .",
]
# At temperature 0.05 normalised views without dropout leave a loss of 1e-9, which any loop would agree with.
SMALL = {"frozen_layers": 1, "head_layers": 2, "mlm_weight": 0.3, "mlm_probability": 0.4, "temperature": 1.0}


def infocse(folder, *, dropout=0.0, pooler="cls", seed=1, **options):
    return make(InfoCSE, folder, {**SMALL, **options}, dropout=dropout, pooler=pooler, seed=seed)


class Naive:
    """The model of `method` in copies of its own: encoder, projector, frozen layers, head and masked-LM head."""

    def __init__(self, folder, method):
        self.options, config = method.options, method.backbone.model.config
        self.heads, self.epsilon = config.num_attention_heads, config.layer_norm_eps

        def loaded():
            return AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).double().eval()

        self.whole, self.frozen = loaded(), loaded()
        prefix = self.whole.base_model_prefix
        self.encoder, self.below = getattr(self.whole, prefix), getattr(self.frozen, prefix)
        self.lm_head = {name: weight.detach().clone().requires_grad_() for name, weight in _lm_head(loaded()).items()}
        self.layers = {name: weight.detach().clone().requires_grad_()
                       for name, weight in method.auxiliary.head.named_parameters()} if method.auxiliary else {}
        self.projector = {name: weight.detach().clone().requires_grad_()
                          for name, weight in method.projector.named_parameters()}

    def project(self, vectors):
        """Rows -> rows."""
        weights = self.projector
        if self.options.projector == "tanh":
            return [torch.tanh(weights["dense.weight"] @ x + weights["dense.bias"]) for x in vectors]
        inner = _standardised([weights["inner.weight"] @ x for x in vectors])
        inner = [(x * weights["inner_norm.weight"] + weights["inner_norm.bias"]).clamp(min=0) for x in inner]
        return _standardised([weights["outer.weight"] @ x for x in inner])

    def terms(self, first, second, masked, labels):
        """(L_cl, L_mlm) of the sentences' token ids in two views, and of the masked copies of all of them in that order."""
        plain = [*first, *second]
        states = [self.encoder(input_ids=ids[None]).last_hidden_state[0] for ids in plain]
        z, n, losses = self.project([state[0] for state in states]), len(first), []
        for i in range(n):
            scores = [z[i] @ other / (z[i].norm() * other.norm()) / self.options.temperature for other in z[n:]]
            losses.append(-torch.log(torch.exp(scores[i]) / sum(torch.exp(score) for score in scores)))
        contrastive = sum(losses) / n
        errors = []
        for state, ids, wanted in zip(states, masked, labels, strict=True):
            with torch.no_grad():
                output = self.below(input_ids=ids[None], output_hidden_states=True)
                below = output.hidden_states[self.options.frozen_layers][0]
            hidden = [state[0], *below[1:]]
            for number in range(self.options.head_layers):
                hidden = self._layer(number, hidden)
            for position, token in enumerate(wanted.tolist()):
                if token != -100:
                    errors.append(-torch.log_softmax(self._logits(hidden[position]), 0)[token])
        return contrastive, sum(errors) / len(errors)

    def _layer(self, number, hidden):
        """A Transformer layer with its norms behind the sums, on a list of vectors."""
        def linear(name, x):
            return self.layers[f"{number}.{name}.weight"] @ x + self.layers[f"{number}.{name}.bias"]

        def norm(name, x):
            weights = self.layers[f"{number}.{name}.weight"], self.layers[f"{number}.{name}.bias"]
            return layer_norm(x, x.shape, *weights, eps=self.epsilon)

        kinds = ("query", "key", "value")
        queries, keys, values = (
            [linear(f"attention.self.{kind}", x).view(self.heads, -1) for x in hidden] for kind in kinds)
        out = []
        for x, query in zip(hidden, queries, strict=True):
            parts = []
            for head in range(self.heads):
                scores = torch.stack([query[head] @ key[head] / math.sqrt(len(query[head])) for key in keys]).softmax(0)
                parts.append(sum(score * value[head] for score, value in zip(scores, values, strict=True)))
            attended = norm("attention.output.LayerNorm", linear("attention.output.dense", torch.cat(parts)) + x)
            inner = gelu(linear("intermediate.dense", attended))
            out.append(norm("output.LayerNorm", linear("output.dense", inner) + attended))
        return out

    def _logits(self, x):
        dense, bias, scale, shift, words, word_bias = self.lm_head.values()
        x = layer_norm(gelu(dense @ x + bias), x.shape, scale, shift, eps=self.epsilon)
        return words @ x + word_bias

    def weights(self):
        """Their names in `InfoCSE` -> weights."""
        named = {f"backbone.model.{name}": weight for name, weight in self.encoder.named_parameters()}
        named |= {f"projector.{name}": weight for name, weight in self.projector.items()}
        named |= {f"auxiliary.lm_head.parts.{name}": weight for name, weight in self.lm_head.items()}
        return named | {f"auxiliary.head.{name}": weight for name, weight in self.layers.items()}


def _lm_head(whole):
    """dense, its bias, LayerNorm's two, the output layer's two, of BERT's or RoBERTa's masked-LM head."""
    if whole.base_model_prefix == "bert":
        prefix, names = "cls.predictions", ("transform.dense.weight", "transform.dense.bias", "transform.LayerNorm.weight",
                                            "transform.LayerNorm.bias", "decoder.weight", "bias")
    else:
        prefix, names = "lm_head", ("dense.weight", "dense.bias", "layer_norm.weight", "layer_norm.bias", "decoder.weight",
                                    "bias")
    return {f"{prefix}.{name}": getattr(whole.get_submodule(f"{prefix}.{name}".rpartition(".")[0]), name.split(".")[-1])
            for name in names}


def _standardised(rows):
    """Rows less their mean over the root of their variance, number by number, with BatchNorm's epsilon."""
    mean = sum(rows) / len(rows)
    variance = sum((x - mean) ** 2 for x in rows) / len(rows)
    return [(x - mean) / (variance + 1e-5).sqrt() for x in rows]


def unpadded(method, rows, seed=0, more_padding=0):
    """The batch, and the rows of its tokens, masked tokens and labels as one sentence has them."""
    batch = batch_of(method, rows, seed, more_padding)
    lengths = batch.mask.sum(1).tolist()
    cut = [[row[:length] for row, length in zip(part, lengths, strict=True)]
           for part in (batch.ids, batch.extra["mlm_ids"], batch.extra["mlm_labels"])]
    return batch, cut
