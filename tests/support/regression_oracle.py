"""SentEval's relatedness head written the slow way, from its description: torch modules, autograd, torch.optim.Adam."""

import copy
import math
import warnings

import numpy as np
import torch
from scipy import stats


def naive_soft_labels(gold):
    """(n, 5) rows, class by class: the class at floor(y) + 1 gets the fraction, the class at floor(y) what is left."""
    table = np.zeros((len(gold), 5), dtype=np.float32)
    for row, y in zip(table, gold, strict=True):
        below = math.floor(y)
        for score in (1, 2, 3, 4, 5):
            if score == below + 1:
                row[score - 1] = y - below
            elif score == below:
                row[score - 1] = 1 - (y - below)
    return table


def naive_regression(train, train_gold, dev, dev_gold, test, *, seed=1111, rounds=21, epochs=50, batch=64, stop_at=4):
    """(test predictions, dev Spearman of each round, epochs run) on dense (n, 2d) features. Seeds the global generators."""
    np.random.seed(seed)
    torch.manual_seed(seed)
    head = torch.nn.Sequential(torch.nn.Linear(train.shape[1], 5), torch.nn.Softmax(dim=-1))
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3, weight_decay=0)
    loss = torch.nn.MSELoss()
    x, wanted = torch.tensor(train, dtype=torch.float32), torch.tensor(naive_soft_labels(train_gold))

    def scores(features):
        with torch.no_grad():
            return head(torch.tensor(features, dtype=torch.float32)).numpy() @ np.array([1, 2, 3, 4, 5])

    best, kept, misses, history = -1.0, None, 0, []
    for _ in range(rounds):
        for _ in range(epochs):
            order = torch.from_numpy(np.random.permutation(len(x)))
            for rows in order.split(batch):
                optimizer.zero_grad()
                loss(head(x[rows]), wanted[rows]).backward()
                optimizer.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stats.ConstantInputWarning)
            actual = stats.spearmanr(scores(dev), dev_gold).statistic
        history.append(0.0 if np.isnan(actual) else float(actual))
        if history[-1] > best:
            best, kept = history[-1], copy.deepcopy(head.state_dict())
        else:
            misses += 1
            if misses == stop_at:
                break
    head.load_state_dict(kept)
    return scores(test), np.array(history), epochs * len(history)
