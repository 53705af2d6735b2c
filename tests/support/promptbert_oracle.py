"""PromptBERT once more from its description: a text and a position at a time, loops in float64."""

from __future__ import annotations

import math
from functools import cache

import tiny_models
import torch
from info_nce_oracle import naive_info_nce
from method_oracle import LIMIT, make
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModel,
    BertConfig,
    BertForMaskedLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)

from stsbench.methods.promptbert.method import PromptBERT

FIRST = {"bert": 'the man with "{}" means [MASK].', "roberta": "the man : ' {} ' means [MASK]."}
SECOND = {"bert": 'a red cat : big "{}" means [MASK].', "roberta": "a red cat plays : ' {} ' means [MASK]."}
MASK_FIRST = "the [MASK] means : {} ."
MASK = {"bert": "[MASK]", "roberta": "<mask>"}
# no token, one, the mask token, as many tokens as fit, more than fit
LONG = "the big cat plays a red guitar in the blue park with food ."
TEXTS = ["", "cat", "a dog", *tiny_models.sentences(14, longest=7, seed=5), LONG, "the {mask} runs : {mask} means {mask}"]
PLAIN = [3, 2, 18, 1, 17, 5]
TRIPLETS = {"anchor": [3, 17, 4, 1, 2], "positive": [7, 6, 18, 8, 9], "negative": [10, 1, 12, 17, 13]}
_TRANSFORM = {
    "bert": [f"cls.predictions.transform.{part}" for part in
             ("dense.weight", "dense.bias", "LayerNorm.weight", "LayerNorm.bias")],
    "roberta": [f"lm_head.{part}" for part in ("dense.weight", "dense.bias", "layer_norm.weight", "layer_norm.bias")],
}


def texts_of(family, rows):
    return [TEXTS[row].replace("{mask}", MASK[family]) for row in rows]


def plain(family, *more):
    return {"sentence": texts_of(family, [*PLAIN, *more])}


def triplets(family):
    return {role: texts_of(family, rows) for role, rows in TRIPLETS.items()}


def spaced_tokenizer():
    """Words that know the space before them, as RoBERTa's do, and a mask token that swallows it."""
    special = ["<s>", "<pad>", "</s>", "<mask>", "[UNK]"]
    words = [*tiny_models.WORDS, "'", *(chr(i) for i in range(97, 123))]
    vocab = {token: i for i, token in enumerate(dict.fromkeys([*special, *words, *("Ġ" + word for word in words)]))}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, cls_token="<s>", sep_token="</s>", pad_token="<pad>", unk_token="[UNK]",
        mask_token=AddedToken("<mask>", lstrip=True, special=True),
    )


def build(folder, family):
    """A random masked LM of a family, with weights that tell texts apart."""
    torch.manual_seed(13)
    tok = tiny_models.tokenizer("bert") if family == "bert" else spaced_tokenizer()
    shape = {**tiny_models.SHAPE, "num_hidden_layers": 2, "vocab_size": len(tok), "pad_token_id": tok.pad_token_id,
             "initializer_range": 0.3}
    if family == "bert":
        model = BertForMaskedLM(BertConfig(**shape, max_position_embeddings=64))
    else:
        model = RobertaForMaskedLM(RobertaConfig(**shape, max_position_embeddings=66, type_vocab_size=1))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 1:
                weight += 0.2 * torch.randn(len(weight))  # LayerNorm's weights, too
            assert name
    model.save_pretrained(folder)
    tok.save_pretrained(folder)
    return folder


def promptbert(folder, family=None, *, dropout=0.0, engine="auto", **options):
    """The method in float64 and train mode, with templates of that family; one of them where words are learned."""
    family = family or folder.name
    second = None if options.get("trained", "all") != "all" else SECOND[family]
    chosen = {"template": FIRST[family], "second_template": second, **options}
    method = make(PromptBERT, folder, chosen, dropout=dropout, pooler="mask")
    method.backbone.engine = engine
    return method


@cache
def _tokenizer(folder):
    return PreTrainedTokenizerFast.from_pretrained(folder)


class Oracle:
    """The same weights, and what the method makes of texts with them. All weights may have gradients."""

    def __init__(self, folder, family, method):
        self.family, self.options, self.folder = family, method.options, folder
        self.vocab = _tokenizer(folder).get_vocab()
        self.model = AutoModel.from_pretrained(folder, dtype=torch.float32, add_pooling_layer=False).double().eval()
        self.model.config._attn_implementation = "eager"
        stored = load_file(folder / "model.safetensors")
        self.transform = [stored[name].double().requires_grad_(True) for name in _TRANSFORM[family]]
        self.mlp = None
        if self.options.head in ("mlp", "mlp_train_only"):
            self.mlp = [weight.detach().clone().requires_grad_(True) for weight in method.head.dense.parameters()]
        self.words = None
        self.first = self.template(self.options.template)
        self.second = self.template(self.options.second_template or self.options.template)
        if self.options.trained != "all":
            self.model.requires_grad_(False)
            rows = [token for token in [*self.first[0][1:], *self.first[1][:-1]] if token != self.mask]
            table = self.model.embeddings.word_embeddings.weight
            self.words = torch.stack([table[row].detach().clone() for row in rows]).requires_grad_(True)

    @property
    def mask(self):
        return self.vocab[MASK[self.family]]

    def spell(self, text):
        """Token ids without special ones around them."""
        return _tokenizer(self.folder)(text, add_special_tokens=False, truncation=False, padding=False)["input_ids"]

    def template(self, text):
        """Section 3: ([CLS] bs, es [SEP])."""
        before, after = text.replace("[MASK]", MASK[self.family]).split("{}")
        starts, stops = ("[CLS]", "[SEP]") if self.family == "bert" else ("<s>", "</s>")
        return [self.vocab[starts], *self.spell(before.strip())], [*self.spell(after), self.vocab[stops]]

    def sentence(self, text, template):
        """The tokens of X: alone, or as they come out of the filled template; 8 at most in training."""
        if self.options.text == "pieces":
            return self.spell(text)[: LIMIT - 2]
        return self.inside(text, template)[: LIMIT - 2]

    def inside(self, text, template):
        before, after = template.replace("[MASK]", MASK[self.family]).split("{}")
        whole = self.spell(before + text + after)
        return whole[len(self.spell(before.strip())) : len(whole) - len(self.spell(after))]

    def state(self, ids, positions, place, columns=()):
        """(d,) the last state at `place`. columns: (place, row of the learned words)."""
        rows = list(self.model.embeddings.word_embeddings(torch.tensor(ids)))
        for column, row in columns:
            rows[column] = self.words[row]
        ones = torch.ones(1, len(ids), dtype=torch.long)
        found = self.model(
            inputs_embeds=torch.stack(rows).unsqueeze(0), position_ids=torch.tensor([positions]), attention_mask=ones,
            token_type_ids=0 * ones,
        )
        return found.last_hidden_state[0, place]

    def mask_place(self, template, count):
        before, after = template
        return before.index(self.mask) if self.mask in before else len(before) + count + after.index(self.mask)

    def columns(self, template, tokens):
        """Where the learned words stand around a sentence; section 11 says where the authors' code puts them."""
        if self.words is None:
            return []
        before, after = template
        count = len(tokens)
        if self.options.trained == "prompt_rightmost":
            ids = [*before, *tokens, *after]
            learned = [token for token in [*before[1:], *after[:-1]] if token != self.mask]
            last = {token: place for place, token in enumerate(ids)}
            return [(last[token], row) for row, token in enumerate(learned)]
        ordinary = [place for place in range(1, len(before)) if before[place] != self.mask]
        ordinary += [len(before) + count + place for place in range(len(after) - 1) if after[place] != self.mask]
        return [(place, row) for row, place in enumerate(ordinary)]

    def own_start(self):
        return 0 if self.family == "bert" else self.vocab["<pad>"] + 1

    def h(self, tokens, template):
        """Section 1: the state at the mask."""
        ids = [*template[0], *tokens, *template[1]]
        start = self.own_start()
        positions = list(range(start, start + len(ids)))
        return self.state(ids, positions, self.mask_place(template, len(tokens)), self.columns(template, tokens))

    def delta(self, k, template, split=None):
        """Section 4: row k of the table."""
        ids = [*template[0], *template[1]]
        P, k = len(template[0]) if split is None else split, 0 if self.options.denoise_positions == "empty" else k
        start = 0 if self.options.denoise_start == "zero" else self.own_start()
        positions = [start + place + (k if place >= P else 0) for place in range(len(ids))]
        return self.state(ids, positions, self.mask_place(template, 0), self.columns(template, []))

    def m(self, x):
        """The masked LM's transform: dense, GELU, LayerNorm."""
        W, b, gain, shift = self.transform
        y = W @ x + b
        y = y * 0.5 * (1 + torch.erf(y / math.sqrt(2)))
        mean = y.mean()
        return (y - mean) / torch.sqrt(((y - mean) ** 2).mean() + self.model.config.layer_norm_eps) * gain + shift

    def z(self, text, which):
        """What the loss compares: of a text in template 0 or 1."""
        options = self.options
        template, written = [(self.first, options.template),
                             (self.second, options.second_template or options.template)][which]
        tokens = self.sentence(text, written)
        found = self.h(tokens, template)
        if options.denoise:
            split = len(self.first[0]) if options.denoise_second_shift == "first" else None
            delta = self.delta(len(tokens), template, split)
            delta = delta if options.denoise_gradient else delta.detach()
            if options.head in ("transform", "transform_train_only"):
                delta = self.m(delta)  # in the released code it is made inside what has no gradient
                return self.m(found) - (delta if options.denoise_gradient else delta.detach())
            found = found - delta
        if options.head in ("transform", "transform_train_only"):
            return self.m(found)
        return found if self.mlp is None else torch.tanh(self.mlp[0] @ found + self.mlp[1])

    def loss(self, data):
        """Section 6, anchor by anchor."""
        roles = ["sentence", "sentence"] if "sentence" in data else list(data)
        views = [[self.z(text, min(number, 1)) for text in data[role]] for number, role in enumerate(roles)]
        queries, keys, *negatives = views
        options = {"similarity": self.options.similarity, "temperature": self.options.temperature, "negatives": negatives}
        return naive_info_nce(queries, keys, **options).mean()

    def tested(self, text, *, dev=False):
        """Section 7: the vector that is tested; or what the authors' training scores development data by."""
        options, template = self.options, self.first
        if dev:
            tokens = self.spell(text)
        else:
            if options.full_stop and text and text[-1] not in ".?\"'":
                text += "."
            tokens = self.inside(text, options.template)
        found = self.h(tokens, template)
        delta = self.delta(len(tokens), template) if (options.denoise if dev else options.test_denoise) else None
        if options.head == "transform":
            return self.m(found) if delta is None else self.m(found) - self.m(delta)
        found = found if delta is None else found - delta
        return torch.tanh(self.mlp[0] @ found + self.mlp[1]) if options.head == "mlp" else found
