"""Small BERTs and RoBERTas, and their states by the equations of diffaug_oracle.py, one text at a time."""

import numpy as np
import torch
from diffaug_oracle import Change, encode
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

from stsbench.training.modules.backbone import Backbone
from stsbench.training.modules.soft_prompt import Prefix, SoftPrompt

HEADS, WIDTH, LAYERS, VOCAB, POSITIONS = 3, 12, 2, 30, 24
ENGINES = ["packed", "sdpa", "eager"]
PAD = {"bert": 0, "roberta": 1}
LENGTHS = (5, 9, 2, 9, 7, 1)


def small_model(family: str, attention: str = "sdpa", dropout: float = 0.0):
    """A random model in float64, whose padding token is 0 (BERT) or 1 (RoBERTa), with room for POSITIONS tokens."""
    torch.manual_seed(5)
    shape = {
        "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 20,
        "vocab_size": VOCAB, "initializer_range": 0.4, "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout, "attn_implementation": attention,
    }
    if family == "bert":
        model = BertModel(BertConfig(**shape, max_position_embeddings=POSITIONS, pad_token_id=0), add_pooling_layer=False)
    else:
        config = RobertaConfig(**shape, max_position_embeddings=POSITIONS + 2, pad_token_id=1, type_vocab_size=1)
        model = RobertaModel(config, add_pooling_layer=False)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.add_(torch.randn_like(weight) * (0.2 if name.endswith("bias") or "LayerNorm" in name else 0))
    return model.double()


def weights_of(model) -> dict[str, np.ndarray]:
    return {name: weight.detach().double().numpy().copy() for name, weight in model.state_dict().items()}


def own_positions(family: str, tokens: list[int], shift: int = 0) -> list[int]:
    """As the two papers' code counts: BERT from 0, RoBERTa from behind its padding token 1, which itself counts nothing."""
    if family == "bert":
        return [shift + place for place in range(len(tokens))]
    found, count = [], 0
    for token in tokens:
        count += token != 1
        found.append(1 if token == 1 else 1 + shift + count)
    return found


def naive_states(weights, tokens, positions, words=None, prefix=None, eps=1e-12, embedded=None) -> list[np.ndarray]:
    """[0 embeddings, 1, ... layers] -> (tokens, d) states of one text.
    words: place -> (d,) in the place of the word embedding; prefix: [layer] -> list of (key, value), each (d,), that every
    token looks at, too; embedded: [token] -> (d,) in the place of state 0, whatever positions and words are."""

    slots = [[torch.tensor(np.reshape([pair[side] for pair in layer], (-1, WIDTH))) for layer in prefix or ()]
             for side in (0, 1)]
    replaced = {place: torch.as_tensor(word) for place, word in (words or {}).items()}
    states = encode({name: torch.tensor(weight) for name, weight in weights.items()}, tokens, positions, Change(*slots),
                    every=True, heads=HEADS, epsilon=eps, words=replaced,
                    embedded=None if embedded is None else torch.tensor(np.array(embedded)))
    return [state.numpy() for state in states]


def small_backbone(family, engine, dropout=0.0) -> Backbone:
    model = small_model(family, "eager" if engine == "eager" else "sdpa", dropout).train()
    return Backbone(model, None, engine="packed" if engine == "packed" else "padded")


def batch(family, lengths=LENGTHS, seed=1):
    """Random tokens, the padding token among them inside a text."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCAB, (len(lengths), max(lengths)), generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)).long()
    ids[0, -1 if lengths[0] == max(lengths) else 1] = PAD[family]
    return torch.where(mask == 1, ids, PAD[family]), mask


def visible_slots(rows, slots, seen, seed=0):
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(rows, slots, generator=generator).argsort(1)
    return order < seen


def random_prefix(rows, slots, visible, seed=2):
    generator = torch.Generator().manual_seed(seed)
    keys, values = (
        torch.randn(LAYERS, rows, slots, WIDTH, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    return Prefix(keys.requires_grad_(), values.requires_grad_(), visible)


def random_soft(ids, parts, seen=3, slots=6, seed=3) -> SoftPrompt:
    generator = torch.Generator().manual_seed(seed)
    positions = torch.randint(2, POSITIONS, ids.shape, generator=generator) if "positions" in parts else None
    rows = torch.randint(-1, 4, ids.shape, generator=generator) if "words" in parts else None
    vectors = torch.randn(4, WIDTH, generator=generator, dtype=torch.float64).requires_grad_() if "words" in parts else None
    prefix = random_prefix(len(ids), slots, visible_slots(len(ids), slots, seen)) if "prefix" in parts else None
    return SoftPrompt(positions, rows, vectors, prefix)
