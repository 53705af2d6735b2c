"""SentEval's torch probe and its three schemes written out plainly: one fit after another, autograd, torch.optim.

Slow on purpose. The tests and benchmarks/transfer.py hold the lockstep solver against it; it shares no code with it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold
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
    checks: list[float] = field(default_factory=list)  # accuracy on the watched rows, one a check
    steps: int = 0
    watched: list[int] = field(default_factory=list)  # positions drawn by the validation split

    def fit(self, x, y, watch=None):
        np.random.seed(self.seed)
        torch.manual_seed(self.seed)
        self.model = nn.Linear(x.shape[1], self.classes).to(self.dtype)
        if watch is None:
            drawn = np.random.permutation(len(x))
            size = int(self.validation * len(x))
            self.watched = drawn[:size].tolist()
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
            self.checks.append(accuracy)
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


def _best(scores):
    return max(range(len(scores)), key=lambda i: (scores[i], -i))


def _folds(y, k):
    return StratifiedKFold(n_splits=k, shuffle=True, random_state=1111).split(np.zeros(len(y)), y)


def inner_kfold(x, y, classes, regs, k, **settings):
    """(grid per outer fold, chosen per outer fold, tested rows, predictions, devacc, acc)."""
    grids, chosen, rows, predicted, tests = [], [], [], [], []
    for train, test in _folds(y, k):
        tx, ty = x[train], y[train]
        scores = []
        for reg in regs:
            found = []
            for fitted, held in _folds(ty, k):
                probe = Probe(classes, reg, **settings).fit(tx[fitted], ty[fitted], (tx[held], ty[held]))
                found.append(probe.accuracy(tx[held], ty[held]))
            scores.append(round(100 * np.mean(found), 2))
        grids.append(scores)
        chosen.append(_best(scores))
        last = Probe(classes, regs[chosen[-1]], **settings).fit(tx, ty)
        rows.extend(test.tolist())
        predicted.extend(last.predict(x[test]).tolist())
        tests.append(round(100 * last.accuracy(x[test], y[test]), 2))
    devacc = float(round(np.mean([max(scores) for scores in grids]), 2))
    return grids, chosen, rows, predicted, devacc, float(round(np.mean(tests), 2))


def kfold(x, y, test_x, test_y, classes, regs, k, **settings):
    """(grid, chosen, predictions on the test rows, devacc, acc)."""
    scores = []
    for reg in regs:
        found = []
        for fitted, held in _folds(y, k):
            probe = Probe(classes, reg, **settings).fit(x[fitted], y[fitted], (x[held], y[held]))
            found.append(probe.accuracy(x[held], y[held]))
        scores.append(round(100 * np.mean(found), 2))
    best = _best(scores)
    last = Probe(classes, regs[best], **settings).fit(x, y)
    return scores, best, last.predict(test_x).tolist(), max(scores), round(100 * last.accuracy(test_x, test_y), 2)


def split(train, dev, test, classes, regs, **settings):
    """(grid, chosen, predictions on the test rows, devacc, acc); each of train, dev, test is (x, y)."""
    scores = [round(100 * Probe(classes, reg, **settings).fit(*train, dev).accuracy(*dev), 2) for reg in regs]
    best = _best(scores)
    last = Probe(classes, regs[best], **settings).fit(*train, dev)
    return scores, best, last.predict(test[0]).tolist(), max(scores), round(100 * last.accuracy(*test), 2)
