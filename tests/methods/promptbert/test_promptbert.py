"""PromptBERT's loss and gradients against its description, a text and a position at a time, for BERT and a tokenizer that
knows blanks; and the prompts that are tested."""

import pytest
import torch
from method_oracle import LIMIT, MemoryRows, _tokenizer, batch_of, make, total
from tiny_models import sentences
from torch.nn import functional
from transformers import AutoModelForMaskedLM

from stsbench import losses
from stsbench.methods.promptbert.method import PromptBERT

FIRST = {"bert": 'the man with "{}" means [MASK].', "roberta": "the man : ' {} ' means [MASK]."}
SECOND = {"bert": 'a red cat : big "{}" means [MASK].', "roberta": "a red cat plays : ' {} ' means [MASK]."}
MASK_FIRST = {"template": "the [MASK] means : {} ."}
# no token, one, as many tokens as fit, more than fit, the mask token
LONG = "the big cat plays a red guitar in the blue park with food ."
TEXTS = ["", "cat", "a dog", *sentences(14, longest=7, seed=5), LONG, "the {mask} runs : {mask} means {mask}"]
DATA = {
    "plain": {"sentence": [18, 1, 17, 5]},
    "empty, too": {"sentence": [18, 1, 17, 5, 0]},  # which less its template is nothing, and its cosine rounding
    "triplets": {"anchor": [3, 17, 1], "positive": [7, 6, 18], "negative": [10, 1, 17]},
    "quadruples": {role: [row, 17, 18] for row, role in enumerate(("anchor", "positive", "negative", "negative2"), 3)}}
RIGHTMOST = {"trained": "prompt_rightmost", "head": "none"}
RELEASED = {"trained": "prompt_rightmost", "head": "transform_train_only", "denoise": False}


def promptbert(folder, **options):
    """The method in float64 and train mode, with templates of that family; one of them where words are learned."""
    second = None if options.get("trained", "all") != "all" else SECOND[folder.name]
    return make(PromptBERT, folder, {"template": FIRST[folder.name], "second_template": second, **options}, pooler="mask")


class Oracle:
    """The same weights, and what the method makes of texts with them. All weights may have gradients."""

    def __init__(self, method):
        self.options, self.tokenizer = method.options, _tokenizer(method.backbone.folder)
        whole = AutoModelForMaskedLM.from_pretrained(method.backbone.folder, dtype=torch.float32).double().eval()
        self.model, self.head_weights, self.words = whole.base_model, [], None
        if self.options.head.startswith("mlp"):
            self.head_weights = [weight.detach().double().requires_grad_() for weight in method.head.dense.parameters()]
        elif self.options.head != "none":
            parts = whole.cls.predictions.transform if hasattr(whole, "cls") else whole.lm_head
            norm = parts.LayerNorm if hasattr(whole, "cls") else parts.layer_norm
            self.head_weights = [*parts.dense.parameters(), *norm.parameters()]
        self.written = [self.options.template, self.options.second_template or self.options.template]
        self.templates = [self.template(text) for text in self.written]
        if self.options.trained != "all":
            self.model.requires_grad_(False)
            self.words = method.words.detach().double().requires_grad_()

    def start_of_words(self):
        """The embeddings of the first template's tokens, which what is learned starts from."""
        before, after = self.templates[0]
        ids = [token for token in (*before[1:], *after[:-1]) if token != self.tokenizer.mask_token_id]
        return self.model.get_input_embeddings().weight[ids]

    def spell(self, text):
        """Token ids without special ones around them."""
        return self.tokenizer(text, add_special_tokens=False, truncation=False, padding=False)["input_ids"]

    def template(self, text):
        """Section 3: ([CLS] bs, es [SEP])."""
        before, after = text.replace("[MASK]", self.tokenizer.mask_token).split("{}")
        return [self.tokenizer.cls_token_id, *self.spell(before.strip())], [*self.spell(after), self.tokenizer.sep_token_id]

    def inside(self, text, template):
        """The tokens of a text as they come out of the filled template."""
        before, after = template.replace("[MASK]", self.tokenizer.mask_token).split("{}")
        whole = self.spell(before + text + after)
        return whole[len(self.spell(before.strip())) : len(whole) - len(self.spell(after))]

    def state(self, template, tokens, positions):
        """(d,) the last state at the template's mask; learned words stand where section 11 says that the authors' code puts
        them: each at its place, or rightmost."""
        (before, after), mask = template, self.tokenizer.mask_token_id
        ids, behind = [*before, *tokens, *after], len(before) + len(tokens)
        rows = list(self.model.get_input_embeddings()(torch.tensor(ids)))
        places = [place for place in [*range(1, len(before)), *range(behind, len(ids) - 1)] if ids[place] != mask]
        for row, place in enumerate(places if self.words is not None else ()):
            if self.options.trained == "prompt_rightmost":
                place = len(ids) - 1 - ids[::-1].index(ids[place])
            rows[place] = self.words[row]
        ones = torch.ones(1, len(ids), dtype=torch.long)
        states = self.model(inputs_embeds=torch.stack(rows)[None], position_ids=torch.tensor([positions]),
                            attention_mask=ones, token_type_ids=0 * ones).last_hidden_state[0]
        return states[before.index(mask) if mask in before else behind + after.index(mask)]

    def own_start(self):
        return 0 if self.model.config.model_type == "bert" else self.tokenizer.pad_token_id + 1

    def h(self, tokens, template):
        """Section 1: the state at the mask."""
        length = len(template[0]) + len(tokens) + len(template[1])
        return self.state(template, tokens, list(range(self.own_start(), self.own_start() + length)))

    def delta(self, k, template, split=None):
        """Section 4: row k of the table."""
        split, k = split or len(template[0]), 0 if self.options.denoise_positions == "empty" else k
        start = 0 if self.options.denoise_start == "zero" else self.own_start()
        count = len(template[0]) + len(template[1])
        return self.state(template, [], [start + place + (k if place >= split else 0) for place in range(count)])

    def head(self, x):
        """tanh(W x + b), or the masked LM's transform: dense, GELU, LayerNorm; without a head x itself."""
        if not self.head_weights:
            return x
        weight, bias, *norm = self.head_weights
        if not norm:
            return torch.tanh(weight @ x + bias)
        return functional.layer_norm(functional.gelu(weight @ x + bias), x.shape, *norm, self.model.config.layer_norm_eps)

    def z(self, text, which):
        """What the loss compares: of a text in template 0 or 1."""
        options, template = self.options, self.templates[which]
        tokens = (self.spell(text) if options.text == "pieces" else self.inside(text, self.written[which]))[: LIMIT - 2]
        actual = self.h(tokens, template)
        if not options.denoise:
            return self.head(actual)
        split = len(self.templates[0][0]) if options.denoise_second_shift == "first" else None
        with torch.set_grad_enabled(options.denoise_gradient):
            delta = self.delta(len(tokens), template, split)
            if "transform" not in options.head:
                delta = delta if options.denoise_gradient else delta.detach()
            else:  # in the released code it is made inside what has no gradient
                delta = self.head(delta)
        return self.head(actual) - delta if "transform" in options.head else self.head(actual - delta)

    def loss(self, data):
        """Section 6."""
        columns = list(data.values()) * (2 if len(data) == 1 else 1)
        queries, keys, *negatives = [torch.stack([self.z(text, min(number, 1)) for text in texts])
                                     for number, texts in enumerate(columns)]
        how = {"similarity": self.options.similarity, "temperature": self.options.temperature}
        return losses.promptbert(queries, keys, torch.cat(negatives) if negatives else None, **how)


def alternating(cases):
    """(family, case): the cases in turn."""
    return [(("bert", "roberta")[number % 2], *case) for number, case in enumerate(cases)]


@pytest.mark.parametrize(("family", "kind", "options"), [
    *alternating([
        ("plain", {"text": "inside", "temperature": 0.5, "denoise_gradient": False}), ("quadruples", {}),
        ("plain", {"denoise_positions": "empty", "head": "transform"}), ("empty, too", RELEASED),
        ("plain", {**MASK_FIRST, "denoise_second_shift": "first", "head": "mlp"}),
        ("empty, too", {"second_template": None, "similarity": "dot", "denoise": False, "head": "transform"}),
        ("plain", {"trained": "prompt", "head": "transform"}), ("plain", RIGHTMOST),
        ("triplets", {"head": "transform", "denoise_gradient": False}),
        ("plain", {**MASK_FIRST, "trained": "prompt", "head": "none"})]),
    ("roberta", "plain", {"denoise_start": "zero", "denoise_second_shift": "first"})], ids=str)
def test_loss_and_gradients(masked_lms, family, kind, options):
    """To 1e-6 of their size (what is 0 by mathematics, to rounding)."""
    folder = masked_lms[family]
    method = promptbert(folder, view="dropout" if "sentence" in DATA[kind] else "given", **options)
    method.backbone.engine = ("auto", "packed", "padded")[len(str(options)) % 3]
    oracle, mask = Oracle(method), _tokenizer(folder).mask_token
    data = {role: [TEXTS[row].replace("{mask}", mask) for row in rows] for role, rows in DATA[kind].items()}
    actual = method(batch_of(method, MemoryRows(folder, data), more_padding=len(str(options)) % 3))
    assert list(actual) == ["contrastive"] and actual["contrastive"].weight == 1
    assert actual["contrastive"].count == len(next(iter(data.values())))
    assert oracle.words is None or torch.equal(oracle.words, oracle.start_of_words())
    expected = oracle.loss(data)
    assert total(actual).item() == pytest.approx(expected.item(), rel=1e-6)
    total(actual).backward()
    expected.backward()
    ours = {name: weight.grad for name, weight in method.named_parameters()}
    theirs = {f"backbone.model.{name}": weight.grad for name, weight in oracle.model.named_parameters()}
    names = [name for name in ours if name.startswith("head.")]
    theirs |= dict(zip(names, (weight.grad for weight in oracle.head_weights), strict=True))
    theirs |= {} if oracle.words is None else {"words": oracle.words.grad}
    largest = max(float(gradient.abs().max()) for gradient in theirs.values() if gradient is not None)
    assert largest > 1e-4 and ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        if gradient is None or ours[name] is None:  # no gradient, or one of zeros: a row that nothing looks up
            assert all(one is None or not one.any() for one in (gradient, ours[name])), name
        else:
            assert (ours[name] - gradient).abs().max() < 1e-6 * gradient.abs().max() + 1e-12 * largest, name


@pytest.mark.parametrize(("family", "options"), alternating([(options,) for options in (
    {"head": "mlp", "full_stop": False, "test_denoise": True}, {"head": "transform", "denoise_start": "zero"},
    {"test_denoise": True, "denoise_positions": "empty"}, {**RIGHTMOST, "test_denoise": True}, RELEASED,
    {"trained": "prompt", "head": "none", "text": "inside", "dev": "test", "test_denoise": True})]), ids=str)
def test_the_encoders_tested_and_selected_by_are_the_prompts_of_the_options(masked_lms, family, options):
    """What a prompt makes of texts, one at a time: tests/encoders/prompt/test_prompt_encoder.py."""
    method = promptbert(masked_lms[family], **options)
    chosen = method.options
    kept = {"mlp": "dense", "transform": "transform"}.get(chosen.head)
    both = {"template": FIRST[family], "positions": chosen.denoise_positions, "start": chosen.denoise_start, "head": kept,
            "each": chosen.head == "transform", "words": None if method.words is None else len(method.words)}
    tested = {**both, "text": "inside", "denoise": chosen.test_denoise, "full_stop": chosen.full_stop}
    released = {**both, "text": "pieces", "pieces": None, "denoise": chosen.denoise, "full_stop": False}
    for made, expected in ((method.inference(), tested), (method.dev_inference(), released)):
        settings = made.prompt.settings()
        expected = tested if chosen.dev == "test" else expected
        assert made.pooler == "mask" and settings.items() >= expected.items()
        assert (settings.get("word_places") == "rightmost") == (chosen.trained == "prompt_rightmost")
        assert made.prompt.head is (method.head if kept else None)
        assert method.words is None or torch.equal(made.prompt.words, method.words)
