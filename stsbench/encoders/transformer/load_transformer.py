"""From `--model` to a transformer encoder: the embedded default, a folder or a Hub id, with its stored or given pooler."""

from __future__ import annotations

from stsbench.encoders.base import Encoder, EncoderSpec
from stsbench.encoders.forward.checkpoint import tokenizer_digest
from stsbench.encoders.forward.pooling import check_pooler
from stsbench.encoders.forward.text_cnn_files import stored_text_cnn
from stsbench.encoders.prompt.prompt import spec_options
from stsbench.encoders.transformer.exported import encoder_digest, read_exported
from stsbench.encoders.transformer.find import resolve
from stsbench.encoders.transformer.lazy import LazyEncoder, stated_limit
from stsbench.errors import EncoderError


def load_transformer(
    name: str,
    *,
    pooler: str | None,
    template: str | None,
    max_length: int | None,
    dtype: str,
    device: str | None,
    batch_tokens: int | None,
    offline: bool,
    full_stop: bool | None = None,
) -> Encoder:
    """The encoder called `name`: `minilm`, a transformers or sentence-transformers folder, or a Hub id.

    What a folder stores wins; `pooler` overrides it; neither is an EncoderError that lists the poolers. A template
    takes the place of a stored prompt, and of an exported model's own prompt (template, prefix and all) a pooler does, too:
    the encoder's notes say so. full_stop: whether one is put behind a text; None: as the folder stores it, else not.
    """
    from stsbench.encoders.transformer.sentence_transformer import SentenceTransformerEncoder, read_modules

    if pooler is not None:
        check_pooler(pooler, name)  # before anything is downloaded
    normalize, prefix, prompt = False, None, None
    notes: tuple[str, ...] = ()
    if name == "minilm":
        from stsbench.encoders.transformer.minilm import find_minilm

        folder, pooler, normalize = find_minilm(), pooler or "mean", True
    else:
        folder = resolve(name, offline)
        trained = read_exported(folder)
        if trained is not None:  # by stsbench: its poolers and its lengths, and never two descriptions of one model
            prompt = trained.prompt if pooler is None and template is None else None
            if trained.prompt is not None and pooler == "mask" and template is None:
                raise EncoderError(f"{name} stores a prompt: leave --pooler out to use it, or give a --template with it")
            if prompt is not None and full_stop is not None:
                prompt = {**prompt, "full_stop": full_stop}
            if trained.prompt is not None and prompt is None:
                given = "--template" if pooler is None else "--pooler"
                notes = (f"{given} sets the prompt that {name} was trained with aside: the model is tested without it",)
            pooler, max_length = pooler or trained.pooler, max_length or trained.max_length
        elif (folder / "modules.json").is_file():
            stored = read_modules(folder)
            prefix = stored.prefix if template is None else None
            if pooler is None and stored.pooler is None:
                if stray := "--template" if template is not None else "--full-stop" if full_stop else None:
                    raise EncoderError(f"{stray}: {name} runs its own modules; choose a --pooler with it")
                return SentenceTransformerEncoder(
                    folder, name=name, max_length=max_length, dtype=dtype, device=device, prefix=prefix
                )
            if stored.transformer is None:
                raise EncoderError(f"--pooler {pooler}: {name} has no transformers model to pool over")
            folder, pooler, normalize = stored.transformer, pooler or stored.pooler, stored.normalize
    pooler = check_pooler(pooler, name)
    if pooler == "mask" and template is None and prompt is None:
        raise EncoderError("--pooler mask needs a --template that holds [MASK]")
    if pooler == "text_cnn":
        stored_text_cnn(folder, name)
    source = folder

    def build() -> Encoder:
        from stsbench.encoders.prompt.prompt_file import read_prompt
        from stsbench.encoders.transformer.transformer import TransformerEncoder

        return TransformerEncoder(
            source, pooler=pooler, template=template, max_length=max_length, dtype=dtype, device=device,
            batch_tokens=batch_tokens, name=name, prefix=prefix, normalize=normalize,
            full_stop=bool(full_stop) and prompt is None,
            prompt=None if prompt is None else read_prompt(source, prompt), stored=prompt is not None,
        )

    limit = stated_limit(folder)
    if limit is not None and prompt is not None:
        limit -= prompt["shift"]
    if limit is None or (max_length is not None and max_length > limit):
        encoder = build()  # which also says what is wrong with the length
        encoder.notes = notes
        return encoder
    spec = EncoderSpec(
        name=name, kind="transformers", weights=encoder_digest(folder, pooler, prompt),
        tokenizer=tokenizer_digest(folder), pooler=pooler, template=template if prompt is None else prompt["template"],
        prefix=prefix or None, max_length=max_length or limit, dtype=dtype, normalize=normalize,
        options=spec_options(prompt, bool(full_stop)),
    )
    lazy = LazyEncoder(spec, build)
    lazy.notes = notes
    return lazy
