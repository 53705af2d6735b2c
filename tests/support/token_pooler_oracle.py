"""The poolers that are learned, TextCNN and MeanCNN, in loops, one text at a time."""

import numpy as np

TEXT_CNN = {"kernels": (3, 4, 5), "channels": 9, "fusion_channels": 2, "fusion_width": 2}
MEAN_CNN = {"kernels": (1, 3, 5), "channels": 4, "activation": "relu"}
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
                for r in range(len(head.kernels)) for j in range(head.fusion_width)))
    return np.array(vector), np.array(maxima), np.array(places)


def local_vectors(head, states, count):
    """[token] -> its vector, the kernels side by side. states: (places, d), of which the first `count` are tokens; beyond
    all places the convolutions read zeros."""
    rows = []
    for t in range(count):
        row = []
        for conv in head.convs:
            weight, bias = conv.weight.tolist(), conv.bias.tolist()
            size = len(weight[0][0])
            for kernel, start in zip(weight, bias, strict=True):
                value = start
                for j in range(size):
                    place = t + j - size // 2
                    if 0 <= place < len(states):
                        value += sum(kernel[i][j] * states[place][i] for i in range(len(kernel)))
                row.append(max(value, 0.0) if head.activation == "relu" else value)
        rows.append(row)
    return rows


def mean(rows):
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]
