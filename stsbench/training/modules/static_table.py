"""Training of static models: a table of token vectors, read and written in the format of model2vec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.modeling_outputs import BaseModelOutput

from stsbench.encoders.forward.checkpoint import loading
from stsbench.encoders.model_folder import check_tokenizer
from stsbench.encoders.transformer.declared import TABLE
from stsbench.encoders.transformer.sentence_transformer import table_rows

# model2vec adds no special tokens, and would count padding tokens in the mean
_PLAIN = {"post_processor": None, "truncation": None, "padding": None}


class TableConfig(PretrainedConfig):
    """Configuration of a table: vocab_size, hidden_size, and no layers."""

    model_type = TABLE
    num_hidden_layers = 0


class StaticTable(PreTrainedModel):
    """A (V, d) table of token vectors as a transformers model whose hidden states are the tokens' vectors."""

    config_class = TableConfig

    def __init__(self, config: TableConfig) -> None:
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the table, as transformers' models return their embeddings."""
        return self.embeddings

    def forward(self, input_ids: Tensor, **_: Any) -> BaseModelOutput:
        """Return the vectors, (n, L, d), of tokens (n, L), as the only hidden state."""
        states = self.embeddings(input_ids)
        return BaseModelOutput(last_hidden_state=states, hidden_states=(states,))


def load_table(folder: Path, name: str) -> tuple[StaticTable, PreTrainedTokenizerFast]:
    """Return the table in a folder of model2vec or of a StaticEmbedding, and its tokenizer, without special tokens.

    Raises EncoderError, one line, for broken files.
    """
    check_tokenizer(folder / "tokenizer.json")
    with loading(folder, f"{name} as a table of tokens' vectors"):
        rows = table_rows(folder)
        model = StaticTable(TableConfig(vocab_size=len(rows), hidden_size=rows.shape[1]))
        model.embeddings.weight.data = rows
        plain = json.loads((folder / "tokenizer.json").read_text("utf-8")) | _PLAIN
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(plain)))
    return model, tokenizer


def write_table(model: StaticTable, tokenizer: Any, folder: Path, normalize: bool) -> None:
    """Write config.json, model.safetensors and tokenizer.json into `folder`, as model2vec stores a model."""
    from safetensors.torch import save_file

    config = {
        "model_type": TABLE, "architectures": ["StaticModel"], "normalize": normalize, "embedding_dtype": "float32",
        "hidden_dim": model.config.hidden_size,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    save_file({"embeddings": model.embeddings.weight.detach().float().contiguous()}, folder / "model.safetensors")
    plain = json.loads(tokenizer.backend_tokenizer.to_str()) | _PLAIN  # a method may have switched truncation on
    (folder / "tokenizer.json").write_text(json.dumps(plain, ensure_ascii=False) + "\n", "utf-8")
