"""Stage first trains a head over the frozen encoder, stage second both: dropout, a buffer, numbers of its own."""

import torch
from torch import nn
from torch.nn import functional

from stsbench.training.api.batch import Term, Views
from stsbench.training.api.method import Inference, Method
from toy_stages.options import ToyOptions


class Toy(Method):
    name = "toy"
    Options = ToyOptions

    def __init__(self, backbone, options):
        super().__init__(backbone, options)
        self.head = nn.Sequential(nn.Linear(backbone.width, options.hidden), nn.Dropout(0.2))
        self.register_buffer("learnt", torch.zeros(1))
        self.stage = ""

    def prepare(self, rows):
        self.learnt.fill_(len(rows) / 100)

    def start_stage(self, stage):
        self.stage = stage
        for weight in self.backbone.parameters():
            weight.requires_grad_(stage == "second")

    def views(self, rows, rng):
        ids = rows.ids("sentence")
        return Views([ids, ids])

    def forward(self, batch):
        first, second = functional.normalize(self.head(self.backbone.pooled(batch.ids, batch.mask)), dim=1).split(len(batch))
        scores = first @ second.T / self.options.temperature * (1 + self.learnt)
        return {self.stage: Term(functional.cross_entropy(scores, torch.arange(len(first))), len(first))}

    def inference(self):
        return Inference(self.backbone.model, self.backbone.tokenizer, self.backbone.pooler)

    def diagnose(self):
        """Draws and changes modes, as a method may."""
        self.train()
        noise = float(torch.rand(()))
        self.eval()
        assert not torch.is_grad_enabled()
        if self.stage != "first":
            return {}
        return {"delta": float(self.head[0].weight.norm()), "kappa": noise, "broken": float("nan")}
