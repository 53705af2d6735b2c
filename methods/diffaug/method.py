"""DiffAug (Wang and Lu 2022): views that differ by a prefix, which is tuned on NLI first, then with the model contrastively.

In stage 1 its authors watch two measures: how far the views diverge, and the size of the prefix relative to the text.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from stsbench.encoders.forward.batching import KeyValues
from stsbench.encoders.forward.model import position_limit
from stsbench.encoders.prompt.modules import Bottlenecks, MLPHead, attached
from stsbench.encoders.prompt.prompt import Prompt
from stsbench.encoders.prompt.template import TokenTemplate
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import Batch, Examples, Ragged, Term, Views
from stsbench.training.api.contrasting import contrast
from stsbench.training.api.labelled import NLIClassifier, nli_roles
from stsbench.training.api.method import Inference, Method, Needs
from stsbench.training.api.views import pairs_or_sentence, role_views
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.lora import add_lora, merged, using
from stsbench.training.modules.prompting import check_prompted, template_vectors
from stsbench.training.modules.soft_prompt import Prefix, SoftPrompt

from .options import DiffAugOptions


class DiffAug(Method):
    """Stage prefix: Eq. 4 with the model frozen. Stage joint: InfoNCE between the views, with or without Eq. 4 added."""

    Options = DiffAugOptions
    options: DiffAugOptions
    later_options = (
        "joint_trains", "view", "similarity", "temperature", "aux_weight", "denoise", "denoise_offset", "denoise_start"
    )

    def __init__(self, backbone: Backbone, options: DiffAugOptions) -> None:
        """Take a backbone with its `folder` and `name`. Raises StsbenchError, one line, if it does not fit the options."""
        super().__init__(backbone, options)
        check_backbone(options, backbone)
        std = getattr(backbone.model.config, "initializer_range", 0.02)
        self.template = TokenTemplate(backbone.tokenizer, options.template, "options.template")
        check_length(options, self.template, backbone)
        self.head = MLPHead(backbone.width, std)
        self.classifier = NLIClassifier(backbone.width, 2, std)
        self.modules_of_views = ViewModules(backbone, options)
        self.stage = type(options).stages[0]
        self.sample: list[Any] = []  # texts of the first stage on which delta and kappa are measured

    @classmethod
    def needs(cls, options: DiffAugOptions) -> Needs:
        """Return the needs: NLI triplets alone in stage prefix; in stage joint, sentences or pairs, and with
        options.aux_weight a batch of triplets beside each batch."""
        roles = partial(
            pairs_or_sentence, view=options.view, unsupervised="bert-base-semi", supervised="bert-base-sup"
        )
        return Needs(
            roles, dropout=options.view == "dropout" and options.views == "same",
            labelled={"prefix": "only", "joint": "with" if options.aux_weight > 0 else "none"},
            labelled_roles=partial(nli_roles, pairs=False),
        )

    def prepare(self, rows: Any) -> None:
        """Choose the texts for `diagnose`: equally spaced rows of the first stage."""
        count = min(self.options.diagnose, len(rows))
        chosen = rows.at(np.asarray(rows.rows)[np.linspace(0, len(rows) - 1, count).astype(np.int64)])
        self.sample = [np.asarray(ids) for ids in self.read(chosen, rows.roles[0])]

    def start_stage(self, stage: str) -> None:
        """Set the trained weights: in stage prefix modules and classifier, in joint those of joint_trains and the head."""
        self.stage, options = stage, self.options
        joint, trains = stage == "joint", options.joint_trains
        for name, weight in self.named_parameters():
            if is_module(name):
                wanted = not joint or trains != "model"
            elif name.startswith("backbone."):
                wanted = trains != "module" if joint else options.clip_frozen
            elif name.startswith("classifier."):
                wanted = not joint or options.aux_weight > 0  # DDP fails on trained weights without a gradient
            else:
                wanted = joint or options.clip_frozen
            weight.requires_grad_(wanted)

    def rates(self) -> dict[str, float]:
        """Return rate 0 in stage prefix with options.clip_frozen for frozen weights, whose gradients only enter the norm."""
        frozen = self.stage == "prefix" and self.options.clip_frozen
        return {"backbone.": 0.0, "head.": 0.0} if frozen else {}

    def read(self, rows: Examples, role: str) -> Ragged:
        """Return a role's texts inside the template."""
        if self.options.text == "pieces":
            return self.template.wrap(rows.ids(role))
        return self.template.wrap(self.template.pieces(rows.texts(role), self.backbone.max_length - 2))

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence twice, or a view for each role of the data, in their order."""
        return role_views(self, rows)

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return nli in stage prefix; contrastive, and nli with options.aux_weight, in stage joint."""
        if batch.labelled_only:
            return {"nli": self._nli(batch)}
        options, which = self.options, self._sets(batch)
        hidden = self._hidden(batch.ids, batch.mask, which)
        if options.denoise:
            hidden = hidden - self._template_alone(self.template.counts(batch.mask), which)
        queries, keys, *negatives = self.head(hidden).split(len(batch))
        terms = {
            "contrastive": contrast(
                queries, keys, negatives, batch.shares, self.gather_mode,
                temperature=options.temperature, similarity=options.similarity,
            )
        }
        if batch.labelled is not None:  # held-out rows come without labelled ones
            nli = self._nli(batch.labelled)
            terms["nli"] = Term(nli.value, nli.count, options.aux_weight)
        return terms

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return (n, d) mask vectors under the first view's module, through the head."""
        hidden = self._hidden(ids, mask, torch.zeros(len(ids), dtype=torch.long, device=ids.device))
        vectors: Tensor = self.head(hidden)
        return vectors

    def view_vectors(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return (n, d) mask vectors, each view under its own module, through the head."""
        rows = slice(2 * len(batch))
        hidden = self._hidden(batch.ids[rows], batch.mask[rows], self._sets(batch)[rows])
        first, second = self.head(hidden).split(len(batch))
        return first, second

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return nli, the number of labelled rows that accompany the batch."""
        return {} if batch.labelled is None else {"nli": len(batch.labelled)}

    def inference(self) -> Inference:
        """Return the encoder of the mask's vector under the modules of options.at_test, without denoising and head."""
        options, modules = self.options, self.modules_of_views
        prompt = Prompt(
            options.template, full_stop=options.full_stop, prefixes=modules.tested(),
            shift=modules.prefix.length if modules.prefix is not None else 0, bottlenecks=modules.combined(),
        )
        return Inference(modules.model(self.backbone), self.backbone.tokenizer, "mask", prompt=prompt)

    def notes(self) -> list[str]:
        """Return a line with the number of weights of the modules, in training and at test."""
        trained = sum(weight.numel() for name, weight in self.named_parameters() if is_module(name))
        prefix, model = self.modules_of_views.prefix, sum(weight.numel() for weight in self.backbone.model.parameters())
        if prefix is None:
            model -= trained * (self.options.module == "lora")  # LoRA's weights are among the backbone's
            return [f"{self.options.module}: {trained:,} weights beside the model's {model:,}"]
        share = f"{prefix.effective / model:.1%} of the model's {model:,}"
        return [f"prefix: {trained:,} weights in training, {prefix.effective:,} at test ({share})"]

    def diagnose(self) -> dict[str, float]:
        """Return, in stage prefix, delta (of raw and of unit vectors), delta by dropout alone, and kappa of prefixes."""
        if self.stage != "prefix" or not self.sample:
            return {}
        device = next(self.parameters()).device
        length = max(map(len, self.sample))
        ids = torch.full((len(self.sample), length), self.backbone.tokenizer.pad_token_id or 0, device=device)
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(self.sample):
            ids[row, : len(tokens)], mask[row, : len(tokens)] = torch.as_tensor(tokens, device=device), 1
        training = self.training
        self.eval()
        try:
            return self._measured(ids, mask)
        finally:
            self.train(training)

    def _measured(self, ids: Tensor, mask: Tensor) -> dict[str, float]:
        modules, n = self.modules_of_views, len(ids)
        which = torch.arange(2, device=ids.device).clamp(max=modules.sets - 1).repeat_interleave(n)
        twice, masks = ids.repeat(2, 1), mask.repeat(2, 1)
        first, second = self._hidden(twice, masks, which).split(n)
        names = ("delta", "delta_normalised", "delta_dropout", "delta_dropout_normalised")
        indices = self.template.mask_indices(mask)
        values = [*divergence(first, second), *by_dropout(self.backbone, ids, mask, indices)]
        measures = dict(zip(names, values, strict=True))
        if modules.prefix is not None:
            measures["kappa"] = convergence(self.backbone, modules, twice, masks, which)
        return measures

    def _sets(self, batch: Batch) -> Tensor:
        """Return (v * n,) the number of each row's set of modules, the first view's rows first."""
        numbers = [min(view, self.modules_of_views.sets - 1) for view in range(batch.views)]
        return torch.tensor(numbers, device=batch.ids.device).repeat_interleave(len(batch))

    def _hidden(self, ids: Tensor, mask: Tensor, which: Tensor) -> Tensor:
        """Return (n, d) last states at the template's mask, each row with its own set of modules."""
        return self.modules_of_views.at(self.backbone, ids, mask, self.template.mask_indices(mask), which)

    def _nli(self, batch: Batch) -> Term:
        """Return Eq. 4, the mean over two pairs of each triplet, entailment and contradiction."""
        return self.classifier.term(self.head(self._hidden(batch.ids, batch.mask, self._sets(batch))), batch)

    def _template_alone(self, counts: Tensor, which: Tensor) -> Tensor:
        """Return (n, d) the mask's vectors of the template alone, positioned as around a text of `counts` (n,) tokens, each
        with the set `which` (n,)."""
        options, modules, backbone = self.options, self.modules_of_views, self.backbone
        parts, rows = [], []
        for number in which.unique().tolist():
            chosen = (which == number).nonzero().squeeze(1)
            with modules.acting(backbone, number):
                parts.append(template_vectors(
                    backbone, self.template, counts[chosen] + options.denoise_offset, start=options.denoise_start,
                    prefix=modules.prefixed(number),
                ))
            rows.append(chosen)
        vectors = torch.cat(parts)
        return torch.empty_like(vectors).index_copy(0, torch.cat(rows), vectors)


def check_backbone(options: DiffAugOptions, backbone: Backbone) -> None:
    """Raise StsbenchError, one line, for another pooler than mask, and for options that the model does not support."""
    if backbone.pooler != "mask":
        raise StsbenchError(f"diffaug reads the template's mask: set backbone.pooler=mask, not {backbone.pooler}")
    check_prompted(backbone, options.denoise_start)


def check_length(options: DiffAugOptions, template: TokenTemplate, backbone: Backbone) -> None:
    """Raise StsbenchError where prefix, template and the longest sentence exceed the model's positions."""
    limit = position_limit(backbone.model, backbone.tokenizer)
    sets = 1 if options.views == "same" else 2
    prefix = sets * options.prefix_length if options.module == "prefix" else 0
    longest = backbone.max_length - 2 + template.length + prefix + options.denoise_offset
    if limit is not None and longest > limit:
        raise StsbenchError(
            f"backbone.max_length {backbone.max_length}, template and a prefix of {prefix} need {longest} positions, "
            f"and {backbone.name} has {limit}: lower backbone.max_length or options.prefix_length"
        )


class ViewModules(nn.Module):
    """The prefixes, adapters or LoRA weights of the views: set 0 for the first view, the last set for all others."""

    def __init__(self, backbone: Backbone, options: DiffAugOptions) -> None:
        super().__init__()
        self.options = options
        self.sets = 1 if options.views == "same" else 2
        config: Any = backbone.model.config
        std = getattr(config, "initializer_range", 0.02)
        self.prefix: PrefixEncoder | None = None
        self.bottlenecks: Bottlenecks | None = None
        if options.module == "prefix":
            length = self.sets * options.prefix_length
            rate = float(getattr(config, "hidden_dropout_prob", 0.1))
            self.prefix = PrefixEncoder(length, backbone.width, config.num_hidden_layers, rate, std)
        elif options.module == "adapter":
            self.bottlenecks = Bottlenecks(
                config, sets=self.sets, rank=options.rank, activation=options.adapter_activation
            )
        else:  # LoRA's weights are inside the backbone's linear layers
            add_lora(backbone.model, self.sets, options.rank, options.lora_scale)

    def at(self, backbone: Backbone, ids: Tensor, mask: Tensor, indices: Tensor, which: Tensor) -> Tensor:
        """Return (n, d) last states at the positions `indices` (n,), each row with its own set. ids, mask: (n, L); which:
        (n,) numbers of sets."""
        if self.prefix is not None:
            soft = SoftPrompt(prefix=self.prefix(self.visible(which)))
            return backbone.at(ids, mask, indices, soft)
        if backbone.chunk is not None:  # chunks are recomputed after the module is detached
            raise StsbenchError(
                f"training.chunk must be null with options.module {self.options.module}: only a prefix goes with it"
            )
        if self.bottlenecks is not None:
            with attached(backbone.model, self.bottlenecks, which):
                return backbone.at(ids, mask, indices)
        parts, rows = [], []
        for number in which.unique().tolist():  # peft applies one set at a time
            chosen = (which == number).nonzero().squeeze(1)
            with using(backbone.model, number):
                parts.append(backbone.at(ids[chosen], mask[chosen], indices[chosen]))
            rows.append(chosen)
        states = torch.cat(parts)
        return torch.empty_like(states).index_copy(0, torch.cat(rows), states)

    def acting(self, backbone: Backbone, number: int) -> AbstractContextManager[Any]:
        """Apply the set `number` inside the backbone within the context. Prefixes are passed instead (see `prefixed`)."""
        if self.bottlenecks is not None:
            return attached(backbone.model, self.bottlenecks, number)
        return nullcontext() if self.prefix is not None else using(backbone.model, number)

    def prefixed(self, number: int) -> Callable[[int], Prefix] | None:
        """Return a function from a number of rows to a prefix with the slots of set `number`; None without prefixes."""
        encoder = self.prefix
        if encoder is None:
            return None
        device = encoder.embedding.weight.device
        return lambda rows: encoder(self.visible(torch.full((rows,), number, device=device)))

    def visible(self, which: Tensor) -> Tensor:
        """Return (n, P) bool, true at the prefix slots of each row's set. which: (n,) numbers of sets."""
        length = self.options.prefix_length
        slots = torch.arange(self.sets * length, device=which.device) // length
        return slots == which.unsqueeze(1)

    def tested(self) -> tuple[KeyValues, ...]:
        """Return the prefixes for the test, by options.at_test; the vectors of several are averaged."""
        if self.prefix is None:
            return ()
        whole, length = self.prefix.plain(), self.options.prefix_length
        if self.options.at_test == "both":
            return (whole,)
        parts = [KeyValues(whole.keys[:, start : start + length], whole.values[:, start : start + length])
                 for start in (0, length)]
        return {"first": (parts[0],), "second": (parts[1],), "average": tuple(parts)}[self.options.at_test]

    def combined(self) -> Bottlenecks | None:
        """Return the adapter for the test, the sum of both sets or one of them; None without adapters."""
        if self.bottlenecks is None:
            return None
        at = {"first": 0, "second": 1}.get(self.options.at_test)
        return self.bottlenecks.summed() if at is None else self.bottlenecks.one(at)

    def model(self, backbone: Backbone) -> Any:
        """Return the transformers model for the test: with LoRA a copy into which both sets, or one of them, are
        merged."""
        if self.options.module != "lora":
            return backbone.model
        at: Any = {"first": 0, "second": 1}.get(self.options.at_test, "sum")
        return merged(backbone.model, at)


def is_module(name: str) -> bool:
    """Return whether the parameter called `name` belongs to the views' modules."""
    return name.startswith("modules_of_views.") or ("lora_" in name and ".set" in name)


class PrefixEncoder(nn.Module):
    """Embedding(P, d) -> Linear(d, d) -> tanh -> Linear(d, 2 * layers * d), split into a key and a value for each layer.

    Li and Liang (2021), Prefix-Tuning, section 4.3, as in DiffAug's code: layer m reads block 2m as keys and block 2m + 1 as
    values. Weights start from N(0, std^2), biases at 0.
    """

    def __init__(self, length: int, width: int, layers: int, dropout: float, std: float = 0.02) -> None:
        """length: P, the slots of all prefixes together; dropout: on keys and values, drawn for each row of a batch."""
        super().__init__()
        self.length, self.layers = length, layers
        self.embedding = nn.Embedding(length, width)
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, 2 * layers * width)
        self.dropout = nn.Dropout(dropout)
        for module in (self.embedding, self.inner, self.outer):
            nn.init.normal_(module.weight, std=std)
        nn.init.zeros_(self.inner.bias)
        nn.init.zeros_(self.outer.bias)

    @property
    def effective(self) -> int:
        """Return the number of values that a test needs: 2 * layers * P * d."""
        return self.length * int(self.outer.out_features)

    def slots(self) -> Tensor:
        """Return (2 * layers, P, d) alternating keys and values, without dropout."""
        blocks: Tensor = self.outer(torch.tanh(self.inner(self.embedding.weight))).unflatten(1, (2 * self.layers, -1))
        return blocks.transpose(0, 1)

    def forward(self, visible: Tensor) -> Prefix:
        """Return the prefix for n rows. visible: (n, P) bool, the slots that each row attends to."""
        slots = self.dropout(self.slots().unsqueeze(1).expand(-1, len(visible), -1, -1))
        return Prefix(slots[0::2], slots[1::2], visible)

    def plain(self) -> KeyValues:
        """Return all slots for the test: (layers, P, d) keys and values, without dropout and gradient."""
        slots = self.slots().detach()
        return KeyValues(slots[0::2].contiguous(), slots[1::2].contiguous())


def divergence(first: Tensor, second: Tensor) -> tuple[float, float]:
    """Return the mean over n texts of ||f(x) - f(x+)||_2 (not squared), for raw and for unit vectors. first, second: (n, d).

    Wang and Lu (2022), DiffAug, section 5.2: representation divergence.
    """
    raw = (first - second).norm(dim=1).mean()
    normalised = (functional.normalize(first, dim=1) - functional.normalize(second, dim=1)).norm(dim=1).mean()
    return float(raw), float(normalised)


def convergence(backbone: Backbone, modules: ViewModules, ids: Tensor, mask: Tensor, which: Tensor) -> float:
    """Return kappa = 1 / 2M sum over M layers, keys and values of (mean row norm of the text - mean row norm of the prefix).

    Rows are (d,), all heads concatenated. The text's rows are of all real tokens of ids (n, L), each text with the prefix of
    its set `which` (n,). kappa may be negative. Wang and Lu (2022), DiffAug, section 5.2: weight convergence.
    """
    assert modules.prefix is not None
    layers = backbone.model.encoder.layer
    visible = modules.visible(which)
    prefix = modules.prefix(visible)
    states = backbone(ids, mask, tuple(range(len(layers))), SoftPrompt(prefix=prefix))
    real, total = mask.bool(), 0.0
    for number, (layer, state) in enumerate(zip(layers, states, strict=True)):
        attention = layer.attention.self
        for linear, slots in ((attention.key, prefix.keys), (attention.value, prefix.values)):
            of_text = linear(state[real]).norm(dim=1).mean()
            total += float(of_text - slots[number][visible].norm(dim=1).mean())
    return total / (2 * len(layers))


def by_dropout(backbone: Backbone, ids: Tensor, mask: Tensor, indices: Tensor) -> tuple[float, float]:
    """Return `divergence` of two passes that differ by dropout alone, without prefix, for reference. Modes are restored."""
    training = backbone.training
    backbone.train()
    try:
        first, second = backbone.at(ids.repeat(2, 1), mask.repeat(2, 1), indices.repeat(2)).split(len(ids))
        return divergence(first, second)
    finally:
        backbone.train(training)
