"""Tiny random models of many families, from their configs: no folder, no tokenizer."""


import torch

_WORDS, _PAD = 99, 1
_SHAPE = {"vocab_size": _WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
          "max_position_embeddings": 64, "pad_token_id": _PAD}
_DECODER = {**_SHAPE, "num_key_value_heads": 2, "head_dim": 8}
_DEBERTA = {**_SHAPE, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "share_att_key": True,
            "position_buckets": 8, "norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0}
_T5 = {"vocab_size": _WORDS, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
FAMILIES = {  # name -> class of transformers, its config
    "bert": ("Bert", _SHAPE), "camembert": ("Camembert", _SHAPE), "data2vec": ("Data2VecText", _SHAPE),
    "deberta-v2": ("DebertaV2", _DEBERTA), "deberta-v2 without shared keys": (
        "DebertaV2", {**_DEBERTA, "share_att_key": False, "position_buckets": -1, "max_relative_positions": 12}),
    "deberta-v2 with a convolution": ("DebertaV2", {**_DEBERTA, "conv_kernel_size": 3}),
    "ernie": ("Ernie", _SHAPE), "fnet": ("FNet", _SHAPE),
    "gpt_neox": ("GPTNeoX", _SHAPE), "jina_embeddings_v3": ("JinaEmbeddingsV3", _SHAPE), "mpnet": ("MPNet", _SHAPE),
    "nomic_bert": ("NomicBert", _SHAPE), "roberta": ("Roberta", _SHAPE), "xlm-roberta": ("XLMRoberta", _SHAPE),
    "eurobert": ("EuroBert", _DECODER), "gemma": ("Gemma", _DECODER), "granite": ("Granite", _DECODER),
    "llama": ("Llama", _DECODER), "olmo2": ("Olmo2", _DECODER), "qwen2": ("Qwen2", _DECODER), "qwen3": ("Qwen3", _DECODER),
    "smollm3": ("SmolLM3", _DECODER),
    "phi3": ("Phi3", {name: value for name, value in _DECODER.items() if name != "head_dim"}),
    "gemma2": ("Gemma2", {**_DECODER, "sliding_window": 6}), "mistral": ("Mistral", {**_DECODER, "sliding_window": 6}),
    "gemma3": ("Gemma3Text", {**_DECODER, "sliding_window": 6, "num_hidden_layers": 6}),
    "gemma3 bidirectional": ("Gemma3Text", {**_DECODER, "sliding_window": 6, "num_hidden_layers": 6,
                                            "use_bidirectional_attention": True}),
    "gpt_oss": ("GptOss", {**_DECODER, "sliding_window": 6, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "albert": ("Albert", {**_SHAPE, "embedding_size": 16}), "electra": ("Electra", {**_SHAPE, "embedding_size": 16}),
    "convbert": ("ConvBert", {**_SHAPE, "embedding_size": 32}),
    "big_bird": ("BigBird", {**_SHAPE, "block_size": 2, "num_random_blocks": 1}),
    "mobilebert": ("MobileBert", {**_SHAPE, "embedding_size": 8, "intra_bottleneck_size": 8}),
    "modernbert": ("ModernBert", {**_SHAPE, "num_hidden_layers": 3, "local_attention": 8, "global_attn_every_n_layers": 2}),
    "opt": ("OPT", {**_SHAPE, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    "distilbert": ("DistilBert", {"vocab_size": _WORDS, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48,
                                  "max_position_embeddings": 64, "pad_token_id": _PAD}),
    "gpt2": ("GPT2", {"vocab_size": _WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "mamba": ("Mamba", {"vocab_size": _WORDS, "hidden_size": 32, "num_hidden_layers": 2}),
    "t5": ("T5Encoder", _T5), "umt5": ("UMT5Encoder", _T5),
}


def family_model(name, **more):
    """A model of the family in eval mode, with weights that tell tokens and positions apart. more: of its config."""
    import transformers

    kind, settings = FAMILIES[name]
    torch.manual_seed(1)
    config = getattr(transformers, f"{kind.removesuffix('Encoder')}Config")(**{**settings, **more})
    model = getattr(transformers, f"{kind}Model")(config).eval().requires_grad_(False)
    for weight in model.parameters():
        weight += 0.1 * torch.randn_like(weight)
        if weight.dim() == 2:
            weight *= 3
    return model


def _texts():
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(5, _WORDS, (length,), generator=generator) for length in (30, 25, 17, 17, 5, 5, 5, 2)]


TEXTS = _texts()  # token ids, longest first; several of one length; longer than every window above
