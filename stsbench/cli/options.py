"""The options of every command that encodes texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

_ENCODER = (
    click.option("--model", required=True, help="Hub id, model folder, minilm, lexical:token-set, lexical:tfidf, "
                 "vectors:FILE.npz|DIR, words:GLOVE.txt, python:module:callable, a run of `stsbench train`, or "
                 "KIND:ARGUMENT of a plug-in."),
    click.option("--pooler", help="cls, cls+dense, mean, first_last:embeddings, first_last:layer1, last2, max, mask, "
                 "text_cnn, mean_cnn, last, weighted_mean. Default: what the model folder stores."),
    click.option("--template", help="Text around each sentence, {} where it goes; [MASK] for the mask pooler."),
    click.option("--full-stop/--no-full-stop", default=None, help="Put a full stop behind a text that ends in none of "
                 ". ? \" ' (PromptBERT's evaluation). Default: what the model folder stores, else not."),
    click.option("--max-length", type=click.IntRange(min=1), help="Token limit; default: what the model folder stores, "
                 "else its positions."),
    click.option("--normalize/--no-normalize", default=None, help="Vectors of length 1, or as long as they come. "
                 "Default: what the model folder stores."),
    click.option("--truncate-dim", type=click.IntRange(min=1), help="Keep the first N numbers of each vector."),
    click.option("--prompt", help="Text before every text; '' for none. Default: the prompt that the model folder names."),
    click.option("--prompt-name", help="One of the prompts that the model folder stores, e.g. query."),
    click.option("--revision", help="Branch, tag or commit of a Hub id."),
    click.option("--trust-remote-code", is_flag=True, help="Run Python code that lies in the model folder. Read it first."),
    click.option("--device", help="cpu, cuda, cuda:1, mps. Default: cuda where there is one, else cpu."),
    click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True),
    click.option("--batch-tokens", type=click.IntRange(min=1), help="Tokens a batch."),
    click.option("--offline", is_flag=True, help="Never touch the network."),
)
_CACHE = (
    click.option("--cache", "cache_dir", type=click.Path(path_type=Path), help="Embedding cache folder."),
    click.option("--cache-limit", type=float, default=20.0, show_default=True, help="Embedding cache limit, GB."),
    click.option("--no-cache", is_flag=True, help="Neither read nor write cached embeddings."),
)
_PROCESSES = (
    click.option("--devices", metavar="cuda:0,cuda:1|all", help="Encode in one process for each of these devices."),
    click.option("--processes", type=click.IntRange(min=1), help="Encode in so many processes: the CUDA devices in turn, or "
                 "shares of the CPU's cores."),
)


def encoder_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add which encoder, how it computes and where its vectors are kept."""
    return _with(_ENCODER + _CACHE, command)


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add which encoder and how it computes, of a command that keeps its vectors itself."""
    return _with(_ENCODER, command)


def process_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add in how many processes an encoder computes."""
    return _with(_PROCESSES, command)


def _with(options: Sequence[Callable[..., Any]], command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command
