"""Tiny random causal models with byte-level tokenizers, in folders, and transformers' own pass over one text of theirs."""


import torch
import transformers as hf
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from written_once import written_once

LAYERS = 4
TEXTS = ["A small cat sleeps on the warm stone.", 'He said "no" and left', "Who plays the guitar?", "Rain", "",
         "The woman in the red coat reads a long letter from her brother, who lives by the sea, and smiles."]
ENDS = {"none": "$A", "bos": "<s> $A", "eos": "$A </s>", "both": "<s> $A </s>"}  # what a tokenizer puts around a text

SPREAD = {  # of their layers, some on the disk
    "llama": {"embed_tokens": "cpu", "layers.0": "cpu", "layers.1": "disk", "layers.2": "cpu", "layers.3": "disk",
              "norm": "cpu", "rotary_emb": "cpu"},
    "opt": {"decoder.embed_tokens": "cpu", "decoder.embed_positions": "cpu", "decoder.final_layer_norm": "cpu",
            "decoder.layers.0": "disk", "decoder.layers.1": "disk", "decoder.layers.2": "cpu", "decoder.layers.3": "disk"},
}


def tokenizer(ends="bos", padding_side="right"):
    """BPE, trained on a few sentences: over bytes, or, for the ends "pieces", over characters with a blank before a text, as
    Llama 2 has it."""
    pieces = ends == "pieces"
    ends = "bos" if pieces else ends
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    if pieces:
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        backend.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    else:
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=[AddedToken(token, special=True) for token in special],
        initial_alphabet=list("?[]<>\n'") if pieces else pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    backend.train_from_iterator([*TEXTS, 'This sentence : "A cat." means in one word:"'] * 3, trainer)
    backend.post_processor = processors.TemplateProcessing(single=ENDS[ends], special_tokens=[("<s>", 1), ("</s>", 2)])
    return hf.PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
                                   unk_token="<unk>", padding_side=padding_side, model_max_length=1024)


@written_once
def decoder_folder(folder, family="llama", ends="bos", padding_side="right", **more):
    """A random model whose states tell tokens, positions and layers apart. more: of its config."""
    words = tokenizer(ends, padding_side)
    shape = {"vocab_size": len(words), "hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
             "max_position_embeddings": 1024, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **more}
    torch.manual_seed(5)
    if family == "llama":
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**shape, intermediate_size=48, num_key_value_heads=2))
    else:
        model = hf.OPTForCausalLM(hf.OPTConfig(**{"word_embed_proj_dim": 32, **shape}, ffn_dim=48, dropout=0.0))
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


class Naive:
    """transformers' own CausalLM, one text at a time, without a mask or padding."""

    def __init__(self, folder):
        self.model = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = hf.AutoTokenizer.from_pretrained(folder)

    def ids(self, text):
        """With the first special token where the tokenizer adds one, and without the last."""
        ids = list(self.tokenizer(text)["input_ids"])
        return ids[:-1] if ids and ids[-1] == self.tokenizer.eos_token_id else ids

    def pieces(self, text):
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def states(self, ids, layer=-1, **inputs):
        with torch.no_grad():
            given = inputs or {"input_ids": torch.tensor([ids])}
            return self.model(**given, output_hidden_states=True).hidden_states[layer][0]
