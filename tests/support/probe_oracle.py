"""SentEval's torch probe written out plainly: one fit after another, autograd, torch.optim.

Slow on purpose. The tests and benchmarks/transfer.py hold the lockstep solver against it; it shares no code with it."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass
class Probe:
    """One classifier: constructed, fitted and asked for classes as SentEval's `MLP` with nhid 0 is."""

    classes: int
    reg: float
    seed: int = 1111
    optimizer: str = "adam"
    batch: int = 64
    tenacity: int = 5
    epoch_size: int = 4
    max_epoch: int = 200
    validation: float = 0.05
    dtype: torch.dtype = torch.float64
    resets: bool = False  # what SentEval does not do: forget earlier failures after an improvement
    steps: int = 0

    def fit(self, x, y, watch=None):
        np.random.seed(self.seed)
        torch.manual_seed(self.seed)
        self.model = nn.Linear(x.shape[1], self.classes).to(self.dtype)
        if watch is None:
            drawn = np.random.permutation(len(x))
            size = int(self.validation * len(x))
            watch = x[drawn[:size]], y[drawn[:size]]
            x, y = x[drawn[size:]], y[drawn[size:]]
        x, y = torch.as_tensor(x).to(self.dtype), torch.as_tensor(y)
        if self.optimizer == "adam":
            stepper = torch.optim.Adam(self.model.parameters(), lr=1e-3, weight_decay=self.reg)
        else:
            stepper = torch.optim.RMSprop(self.model.parameters(), lr=1e-2, weight_decay=self.reg)
        loss_of = nn.CrossEntropyLoss()
        epoch, best, failures, best_state = 0, -1.0, 0, None
        while epoch <= self.max_epoch:
            for _ in range(self.epoch_size):
                order = torch.from_numpy(np.random.permutation(len(x)))
                for start in range(0, len(x), self.batch):
                    rows = order[start : start + self.batch]
                    loss = loss_of(self.model(x[rows]), y[rows])
                    stepper.zero_grad()
                    loss.backward()
                    stepper.step()
                    self.steps += 1
            epoch += self.epoch_size
            accuracy = float(np.mean(self.predict(watch[0]) == watch[1]))
            if accuracy > best:
                best, best_state = accuracy, {name: value.clone() for name, value in self.model.state_dict().items()}
                if self.resets:
                    failures = 0
                continue
            if failures >= self.tenacity:
                break
            failures += 1
        self.model.load_state_dict(best_state)
        return self

    def predict(self, x):
        with torch.no_grad():
            return self.model(torch.as_tensor(x).to(self.dtype)).argmax(1).numpy()

    def accuracy(self, x, y):
        return float(np.mean(self.predict(x) == y))
