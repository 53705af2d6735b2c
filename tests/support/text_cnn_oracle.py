"""The TextCNN in loops, one text at a time."""

from __future__ import annotations

import numpy as np

SMALL = {"kernels": (3, 4, 5), "channels": 9, "fusion_channels": 2, "fusion_width": 2}
ACTIVATIONS = {"relu": lambda x: max(x, 0.0), "tanh": np.tanh, "none": lambda x: x}


def by_loops(head, text):
    """One text's vector, pooled maxima and their windows. text: (tokens, d) numpy, special tokens included."""
    tokens = text[1:-1]
    maxima, places = [], []
    for conv, kernel in zip(head.convs, head.kernels, strict=True):
        weight, bias = conv.weight.detach().numpy(), conv.bias.detach().numpy()
        windows = max(1, len(tokens) - kernel + 1)
        row, places_of_row = [], []
        for channel in range(head.channels):
            values = []
            for t in range(windows):
                value = bias[channel]
                for j in range(kernel):
                    if t + j < len(tokens):
                        value += sum(weight[channel, i, j] * tokens[t + j, i] for i in range(head.width))
                values.append(value)
            row.append(max(ACTIVATIONS[head.activation](value) for value in values))
            places_of_row.append(int(np.argmax(values)))
        maxima.append(row)
        places.append(places_of_row)
    weight, bias = head.fusion.weight.detach().numpy(), head.fusion.bias.detach().numpy()
    vector = []
    for out in range(head.fusion_channels):
        for start in range(head.channels - head.fusion_width + 1):
            vector.append(bias[out] + sum(
                weight[out, 0, r, j] * maxima[r][start + j]
                for r in range(len(head.kernels)) for j in range(head.fusion_width)
            ))
    return np.array(vector), np.array(maxima), np.array(places)
