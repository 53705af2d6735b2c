"""Parts of tiny model folders: tokenizers, transformers of many families, sentence-transformers modules, adapters.

Everything is random, seeded, and written in milliseconds without a network. The kinds made of these parts are listed in
model_folder_kinds.py."""

import json

from families import family_model
from written_once import written_once

# Everyday words, in small letters: a text in capitals is read letter by letter, unless something lowers it.
WORDS = [
    "a", "an", "the", "is", "are", "of", "to", "in", "on", "at", "and", "with", "for", "his", "her", "its", "no", "not",
    "one", "two", "man", "woman", "boy", "girl", "child", "dog", "cat", "bird", "horse", "plays", "eats", "runs", "sleeps",
    "walks", "reads", "sings", "cuts", "guitar", "piano", "food", "bread", "apple", "fish", "park", "house", "road", "water",
    "garden", "small", "big", "red", "blue", "old", "young", "playing", "eating", "running", "said", "will", "new", ":", ".",
    ","]
PROMPT = "the man reads : "
WIDTH, LIMIT, POSITIONS = 16, 64, 72  # of vectors; tokens that most folders declare; positions that the models have

_OFFSET = ("<s>", "</s>", "<pad>")  # the special tokens of families that count positions from the padding's id on

TEXTS = [
    "a dog runs in the park .", "the young woman plays a guitar", "", "A BIG DOG SLEEPS", "cat",
    " ".join(["the old man eats bread and a small fish in the house"] * 8), "The Horse walks", "zebra quilt , no ?",
    "  two  dogs and\na line ", "[MASK] the dog [SEP] runs <mask> </s> in the park",
    "a na\u00efve caf\u00e9 in \u6771\u4eac"]


def tokenizer(family="bert", *, ends=True, limit=None, blanks=False, kinds=False, **sides):
    """A WordPiece tokenizer that tells capitals from small letters.
    family: decides the special tokens, of "llama" and "gpt2" EOS is the padding, too; ends=False: without an EOS behind
    the text. limit: model_max_length;
    blanks: byte by byte, so that every blank counts, as in RoBERTa's; kinds: token_type_ids of 1 inside. sides: padding_side
    and truncation_side."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    first, last, pad = {
        "roberta": _OFFSET, "xlm-roberta": _OFFSET, "t5": (None, "</s>", "<pad>"), "qwen3": (None, "<|end|>", "<|pad|>"),
        "llama": ("<s>", "</s>", "</s>"), "gpt2": (None, "<|end|>", "<|end|>")}.get(family, ("[CLS]", "[SEP]", "[PAD]"))
    letters = [chr(i) for start in (65, 97) for i in range(start, start + 26)]
    unknown, mask = "[UNK]", "<mask>" if first == "<s>" else "[MASK]"
    special = [first, pad, last, unknown, mask] if first == "<s>" else [pad, first, last, unknown, mask]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet()) if blanks else letters
    pieces = [token for token in special if token] + WORDS + letters + [f"##{letter}" for letter in letters]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(pieces))}
    backend = Tokenizer(models.BPE(vocabulary, []) if blanks else models.WordPiece(vocabulary, unk_token=unknown))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if blanks else pre_tokenizers.BertPreTokenizer()
    around = [token for token in (first, last) if token]
    backend.post_processor = processors.TemplateProcessing(
        single=" ".join(token for token in (first, "$A:1" if kinds else "$A", last if ends else None) if token),
        special_tokens=[(token, vocabulary[token]) for token in around])
    named = {"cls_token": first, "bos_token": first} if first else {}
    if kinds:
        named["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token=unknown, pad_token=pad, mask_token=mask, eos_token=last, sep_token=last,
        **named, **({} if limit is None else {"model_max_length": limit}), **sides)


_TOKENS = {"t5-whole": "t5", "longt5": "t5", "qwen3-lm": "qwen3"}


def _family(family, tok, settings):
    """A model of `family` in memory, weights as its class initialises them."""
    import transformers as hf

    ids = {"bos_token_id": tok.bos_token_id, "eos_token_id": tok.eos_token_id}
    plain = {"vocab_size": len(tok), "pad_token_id": tok.pad_token_id, "max_position_embeddings": POSITIONS,
             "initializer_range": 0.3}
    shape = {**plain, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    roberta = {**shape, **ids, "max_position_embeddings": POSITIONS + 2, "type_vocab_size": 1}
    t5 = {"vocab_size": len(tok), "d_model": WIDTH, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2,
          "pad_token_id": tok.pad_token_id, "eos_token_id": tok.eos_token_id, "decoder_start_token_id": tok.pad_token_id}
    qwen3 = {**shape, **ids, "num_key_value_heads": 1, "head_dim": 8, "bos_token_id": None, "max_position_embeddings": 64}
    modernbert = {**shape, **ids, "local_attention": 8, "global_attn_every_n_layers": 2, "cls_token_id": tok.cls_token_id,
                  "sep_token_id": tok.sep_token_id}
    distilbert = {**plain, "dim": WIDTH, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
    kinds = {  # the config of transformers, its model, settings
        "bert": ("Bert", "BertModel", shape), "bert-lm": ("Bert", "BertForMaskedLM", shape),
        "bert-classifier": ("Bert", "BertForSequenceClassification", {**shape, "num_labels": 1}),
        "fnet": ("FNet", "FNetModel", shape), "roberta": ("Roberta", "RobertaModel", roberta),
        "xlm-roberta": ("XLMRoberta", "XLMRobertaModel", roberta), "t5": ("T5", "T5EncoderModel", t5),
        "t5-whole": ("T5", "T5Model", t5), "longt5": ("LongT5", "LongT5EncoderModel", t5),
        "distilbert": ("DistilBert", "DistilBertModel", distilbert), "qwen3": ("Qwen3", "Qwen3Model", qwen3),
        "qwen3-lm": ("Qwen3", "Qwen3ForCausalLM", qwen3), "modernbert": ("ModernBert", "ModernBertModel", modernbert)}
    if family not in kinds:
        counted = {"max_position_embeddings": POSITIONS + 2} if family == "data2vec" else {}  # from the padding's id on
        return family_model(family, vocab_size=len(tok), pad_token_id=tok.pad_token_id, **ids, **counted, **settings)
    config, model, own = kinds[family]
    return getattr(hf, model)(getattr(hf, f"{config}Config")(**{**own, **settings}))


@written_once
def transformer(folder, family="bert", *, seed=7, tok=None, save=None, dtype=None, **settings):
    """Write a random model of `family` and its tokenizer. settings: of its config; save: of save_pretrained."""
    import torch

    tok = tok or tokenizer(_TOKENS.get(family, family))
    torch.manual_seed(seed)
    model = _family(family, tok, settings)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):  # zero at first, which would hide a forgotten one
                weight.normal_(0, 0.2)
            elif "embeddings" in name and weight.dim() == 2 and len(weight) == len(tok):
                weight.normal_(0, 0.5)  # the padding token's, too: what leaks from it is seen
    (model if dtype is None else model.to(getattr(torch, dtype))).save_pretrained(folder, **(save or {}))
    tok.save_pretrained(folder)
    return folder


def declare(folder, *modules, limit=LIMIT, settings=None, stored=None, first="",
            transformer_file="sentence_bert_config.json"):
    """Write modules.json and what it names around the transformers model that lies in `folder`/`first`.
    modules: those that follow it, each a Module of sentence-transformers, which is saved as its author would, or (type,
    config.json). first=None: there is no transformers model. limit: max_seq_length, None for none declared. settings: of
    config_sentence_transformers.json; stored: further keys of sentence_bert_config.json."""
    entries = []
    if first is not None:
        write(folder / first / transformer_file, {**({} if limit is None else {"max_seq_length": limit}), **(stored or {})})
        entries.append({"path": first, "type": "sentence_transformers.models.Transformer"})
    for module in modules:
        name = module[0].rpartition(".")[2] if isinstance(module, tuple) else type(module).__name__
        home = folder / f"{len(entries)}_{name}"
        home.mkdir(parents=True, exist_ok=True)
        if isinstance(module, tuple):
            kind, config = module
            write(home / "config.json", config)
        else:
            kind = f"{type(module).__module__}.{type(module).__name__}"
            module.save(str(home))
        entries.append({"path": home.name, "type": kind})
    write(folder / "modules.json", [{"idx": i, "name": str(i), **entry} for i, entry in enumerate(entries)])
    if settings is not None:
        write(folder / "config_sentence_transformers.json", settings)
    return folder


def pooling(*modes, width=WIDTH, **more):
    """A Pooling module of `modes`, as version 6 stores it."""
    mode = modes[0] if len(modes) == 1 else list(modes)
    return "sentence_transformers.models.Pooling", {"embedding_dimension": width, "pooling_mode": mode, **more}


def dense(width=10, given=WIDTH, **more):
    """A Dense module (given -> width), tanh included unless `more` says otherwise."""
    import torch
    from sentence_transformers.sentence_transformer.modules import Dense

    torch.manual_seed(given * 100 + width)
    return Dense(given, width, **more)


def normalize():
    return "sentence_transformers.models.Normalize", {}


def adapter(folder, base, *, named=None, seed=3, strength=0.5):
    """Write a LoRA adapter for the model in `base` into `folder`. named: base_model_name_or_path, by default `base`."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModel

    model = get_peft_model(AutoModel.from_pretrained(base), LoraConfig(r=2, lora_alpha=4, target_modules=["query", "value"]))
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.normal_(0, strength)
    model.save_pretrained(folder)
    change(folder / "adapter_config.json", base_model_name_or_path=str(base) if named is None else named)
    (folder / "README.md").unlink(missing_ok=True)
    return folder


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1), "utf-8")


def read(path):
    return json.loads(path.read_text("utf-8"))


def change(path, **values):
    """Set keys of a JSON file, which may not be there yet; None takes one out."""
    stored = read(path) if path.is_file() else {}
    write(path, {key: value for key, value in {**stored, **values}.items() if value is not None})


def weights(path, edit):
    """Replace the tensors of a safetensors file by what `edit` makes of them (or changes in place)."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    made = edit(tensors)
    save_file(tensors if made is None else made, path, metadata={"format": "pt"})


def nudge(path, key="", by=0.5):
    """Move every weight whose name contains `key`; one number of each in another direction, or a mean would hide it."""

    def moved(tensors):
        for name, tensor in tensors.items():
            if key in name and tensor.is_floating_point():
                tensor += by
                tensor.view(-1)[0] -= 3 * by

    weights(path, moved)
