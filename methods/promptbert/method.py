"""PromptBERT (Jiang et al. 2022): a sentence's vector is the state at [MASK] of 'This sentence of "X" means [MASK].'."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stsbench.encoders.prompt.modules import MLPHead
from stsbench.encoders.prompt.prompt import Prompt
from stsbench.encoders.prompt.template import TokenTemplate
from stsbench.errors import StsbenchError
from stsbench.training.api.batch import Batch, Examples, Ragged, Term, Views
from stsbench.training.api.contrasting import contrast
from stsbench.training.api.method import Inference, Method, Needs
from stsbench.training.api.views import pairs_or_sentence
from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.prompting import check_length, check_prompted, load_transform, template_vectors
from stsbench.training.modules.soft_prompt import SoftPrompt

from .options import TRANSFORMS, PromptBERTOptions


class PromptBERT(Method):
    """Contrast of a sentence in two templates (or of pairs), denoised by the template's own vector; and OptiPrompt."""

    trained_pooler = "mask"
    Options = PromptBERTOptions
    options: PromptBERTOptions

    def __init__(self, backbone: Backbone, options: PromptBERTOptions) -> None:
        """Take a backbone with the pooler mask, its `folder` and `name`.

        Raises StsbenchError, one line, for another pooler, a template that is too long for the model or lacks one place for
        the sentence and one mask, and a head that the checkpoint lacks.
        """
        super().__init__(backbone, options)
        if options.denoise or options.test_denoise or options.trained != "all":
            check_prompted(backbone, options.denoise_start)
        self.first = _template(backbone, options, options.template, "options.template")
        self.second = self.first
        if options.second_template not in (None, options.template):
            self.second = _template(backbone, options, options.second_template, "options.second_template")
        self.head = _head(backbone, options)
        self.words: nn.Parameter | None = None
        if options.trained != "all":
            self.words = _words(backbone, options, self.first)
            backbone.requires_grad_(False)  # its dropout stays on, as the views differ by it alone

    @classmethod
    def needs(cls, options: PromptBERTOptions) -> Needs:
        """Return the needs: sentences, or pairs and hard negatives; dropout where both views have the same template."""
        roles = partial(
            pairs_or_sentence, view=options.view, unsupervised="unsup-promptbert-base", supervised="sup-promptbert-base"
        )
        return Needs(roles, dropout=options.view == "dropout" and options.second_template in (None, options.template))

    def views(self, rows: Examples, rng: np.random.Generator) -> Views:
        """Return the sentence in both templates; or a view for each role, the anchor in the first template and all others
        in the second."""
        anchor, *others = rows.roles
        first = self.read(rows, anchor)
        if others:
            return Views([first, *(self._read(rows, role, self.second) for role in others)])
        return Views([first, first if self.second is self.first else self._read(rows, anchor, self.second)])

    def forward(self, batch: Batch) -> dict[str, Term]:
        """Return contrastive: SimCSE's Eq. 4 (plain sentences) or 5 (pairs, hard negatives) on denoised [MASK] vectors."""
        n, options = len(batch), self.options
        queries, keys, *negatives = self._vectors(batch.ids, batch.mask, n).split(n)
        return {
            "contrastive": contrast(
                queries, keys, negatives, batch.shares, self.gather_mode,
                temperature=options.temperature, similarity=options.similarity,
            )
        }

    def read(self, rows: Examples, role: str) -> Ragged:
        """Return the texts inside the first template."""
        return self._read(rows, role, self.first)

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return (n, d) vectors as in the loss, denoised and with the head applied. ids, mask: (n, L), texts of `read`."""
        return self._vectors(ids, mask, len(ids))

    def inference(self) -> Inference:
        """Return the encoder for the test: the first template, options.full_stop, denoised only with test_denoise."""
        return self._inference(Prompt(
            self.options.template, full_stop=self.options.full_stop, text="inside", denoise=self.options.test_denoise,
            **self._shared_parts(),
        ))

    def dev_inference(self) -> Inference:
        """Return the encoder by which checkpoints are selected. With options.dev released it differs from the tested one.

        The authors' code scores development sentences as in training: tokenised alone and not cut, inserted into the first
        template, denoised, without a full stop added. Its dev score therefore does not predict the test score.
        """
        if self.options.dev == "test":
            return self.inference()
        return self._inference(Prompt(
            self.options.template, text="pieces", pieces=None, denoise=self.options.denoise, **self._shared_parts(),
        ))

    def notes(self) -> list[str]:
        """Return a line on how the encoder of the dev score differs from the tested one, if it does."""
        if self.options.dev == "test":
            return []
        return [
            "options.dev released: dev scores are of sentences tokenised alone, "
            f"{'denoised' if self.options.denoise else 'not denoised'}, without a full stop added; the encoder tested reads "
            f"them inside the template, {'denoised' if self.options.test_denoise else 'not denoised'}, "
            f"{'with' if self.options.full_stop else 'without'} it"
        ]

    def _read(self, rows: Examples, role: str, template: TokenTemplate) -> Ragged:
        if self.options.text == "pieces":
            return template.wrap(rows.ids(role))
        pieces = template.pieces(rows.texts(role), self.backbone.max_length - 2)  # max_length counts only these in the code
        return template.wrap(pieces)

    def _vectors(self, ids: Tensor, mask: Tensor, first: int) -> Tensor:
        """Return (rows, d) vectors of all views. `first` rows are in the first template, the others in the second.

        Denoising comes before the head, but the masked-LM transform is applied to both vectors before their difference.
        """
        parts = [(self.first, mask)]
        if self.second is not self.first and first < len(mask):
            parts = [(self.first, mask[:first]), (self.second, mask[first:])]
        indices = torch.cat([template.mask_indices(rows) for template, rows in parts])
        soft = None if self.words is None else SoftPrompt(rows=self.first.words(ids, mask), vectors=self.words)
        states = self.backbone.at(ids, mask, indices, soft)
        head: Callable[[Tensor], Tensor] = self.head or nn.Identity()
        if not self.options.denoise:
            return head(states)
        alone = torch.cat([self._alone(template, rows) for template, rows in parts])
        if self.options.head not in TRANSFORMS:
            return head(states - alone)
        alone = head(alone)
        # as in the released code, detaching includes the head
        return head(states) - (alone if self.options.denoise_gradient else alone.detach())

    def _alone(self, template: TokenTemplate, mask: Tensor) -> Tensor:
        """Return (rows, d) vectors of the template without a sentence, positioned as around each row's text."""
        options = self.options
        at_its_place = template is self.first or options.denoise_second_shift == "own"
        return template_vectors(
            self.backbone, template, template.counts(mask), positions=options.denoise_positions,
            start=options.denoise_start, split=None if at_its_place else len(self.first.before),
            gradient=options.denoise_gradient, vectors=self.words,
        )

    def _shared_parts(self) -> dict[str, Any]:
        """Return the arguments of `Prompt` that the tested encoder and that of the dev score have in common."""
        kept = self.options.head in ("mlp", "transform")
        return {
            "positions": self.options.denoise_positions, "start": self.options.denoise_start,
            "head": self.head if kept else None, "each": self.options.head == "transform",
            "words": None if self.words is None else self.words.detach(), "word_places": self.first.word_places,
        }

    def _inference(self, prompt: Prompt) -> Inference:
        return Inference(self.backbone.model, self.backbone.tokenizer, "mask", prompt=prompt)


def _template(backbone: Backbone, options: PromptBERTOptions, template: str, name: str) -> TokenTemplate:
    rightmost = options.trained == "prompt_rightmost"
    parsed = TokenTemplate(backbone.tokenizer, template, name, "rightmost" if rightmost else "own")
    check_length(parsed, name, backbone)
    return parsed


def _head(backbone: Backbone, options: PromptBERTOptions) -> nn.Module | None:
    if options.head == "none":
        return None
    if options.head in TRANSFORMS:
        return load_transform(backbone.folder, backbone.model, backbone.name)
    return MLPHead(backbone.width, getattr(backbone.model.config, "initializer_range", 0.02))


def _words(backbone: Backbone, options: PromptBERTOptions, template: TokenTemplate) -> nn.Parameter:
    """Return the (m, d) parameter of OptiPrompt, which starts from the word embeddings of the template's m tokens. Raises
    StsbenchError for a template without words."""
    if not len(template.word_ids):
        raise StsbenchError(
            f"options.trained {options.trained} learns the words of options.template, and it has none beside the mask"
        )
    table = backbone.model.get_input_embeddings().weight
    return nn.Parameter(table[torch.as_tensor(template.word_ids, device=table.device)].detach().clone())
