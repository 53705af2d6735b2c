"""Base class of models that score pairs, loaded and run by sentence-transformers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stsbench.encoders.base import Encoded, Encoder, EncoderOptions, EncoderSpec, Progress
from stsbench.encoders.forward.identity import Opened, folder_digest, walk
from stsbench.encoders.model_folder import check_module, check_settings, check_tokenizer
from stsbench.encoders.options import CHANGING, spelled
from stsbench.encoders.traits import ROLES
from stsbench.encoders.transformer.declared import BY_ROLE
from stsbench.encoders.transformer.find import resolve
from stsbench.errors import EncoderError

if TYPE_CHECKING:
    from pathlib import Path

    import torch

_HONOURED = ("max_length", "dtype", "revision", "trust_remote_code")


class PairModel(Encoder):
    """A folder or Hub id whose model scores pairs. Subclasses define how it is opened and described in records."""

    kind: str
    cacheable = False

    def __init__(self, argument: str, options: EncoderOptions) -> None:
        """Raise EncoderError, one line: no such folder, another kind of model, or an option that it does not honour."""
        self.name = options.model or f"{self.kind}:{argument}"
        for option in (*CHANGING, "attention", "batch_tokens"):
            if option not in _HONOURED and getattr(options, option) != getattr(EncoderOptions, option):
                raise EncoderError(f"{spelled(option)} does not apply to {self.name}: sentence-transformers runs it as it "
                                   "is")
        folder = resolve(argument, options.offline, options.revision, options.trust_remote_code)
        check_settings(folder)
        for path in walk(folder):
            if path.name.endswith("config.json"):
                check_module(path, options.trust_remote_code)
            elif path.name == "tokenizer.json":
                check_tokenizer(path)
        weights, self._opened = folder_digest(folder), Opened([folder], native=options.trust_remote_code)
        self.model = self._watched(lambda: self._load(folder, options))
        self.spec = EncoderSpec(
            self.name, self.kind, self._opened.digest(self.name, weights), dtype=options.dtype, options=self.described(),
            max_length=min(filter(None, map(self.limit, ROLES)), default=None),
        )

    @classmethod
    def load(cls, argument: str, options: EncoderOptions) -> Encoder:
        """Return the model of a folder or a Hub id."""
        return cls(argument, options)

    @abstractmethod
    def open(self, folder: Path, how: dict[str, Any]) -> Any:
        """Return the library's model of a folder, opened with these arguments. Raises EncoderError for another kind."""

    def limit(self, role: str) -> int | None:
        """Return the most tokens that are read of a text in a role, or of both texts together; None for no limit."""
        length: int | None = self.model.max_seq_length
        return length

    def check_stored(self, kind: Any, folder: Path, trusted: bool, unread: str = " ") -> None:
        """Raise EncoderError where a folder lacks a weight of transformers' model of this `kind`, which would be random.
        unread: how the names of those begin that no score depends on."""
        _, info = kind.from_pretrained(
            folder, device_map="meta", output_loading_info=True, local_files_only=True, trust_remote_code=trusted,
        )
        if missing := sorted(key for key in info["missing_keys"] if not key.startswith(unread)):
            raise EncoderError(f"{self.name} stores no {missing[0]}: its scores would be random")

    def described(self) -> dict[str, Any]:
        """Return facts on the scoring for records."""
        return {}

    def run(self, texts: Sequence[str], progress: Progress | None = None) -> Encoded:
        """Raise EncoderError, as the model has no vectors of single texts."""
        raise EncoderError(f"{self.name} gives no vector of a text: it scores pairs (--similarity "
                           f"{' or '.join(self.text_similarities)})")

    @property
    def device(self) -> torch.device:
        """Return the model's."""
        device: torch.device = self.model.device
        return device

    def _load(self, folder: Path, options: EncoderOptions) -> Any:
        from stsbench.encoders.forward.checkpoint import check_code, loading, quiet
        from stsbench.encoders.transformer.parts import choose_device

        try:
            import sentence_transformers  # noqa: F401 - its absence is said before torch is loaded
            import torch
        except ImportError:
            raise EncoderError(f"{self.name} needs sentence-transformers: pip install 'stsbench[st]'") from None
        check_code(folder, self.name, options.trust_remote_code)
        device = options.device and str(choose_device(options.device))
        how = {"model_kwargs": {"dtype": getattr(torch, options.dtype)}, "device": device, "local_files_only": True,
               "trust_remote_code": options.trust_remote_code}
        with loading(folder, self.name), quiet():
            model = self.open(folder, how)
        if options.max_length is not None:
            if stated := [name for name in BY_ROLE if getattr(model[0], name, None)]:
                raise EncoderError(f"--max-length does not apply to {self.name}, whose folder states {' and '.join(stated)}")
            model.max_seq_length = options.max_length
        return model.eval()

    def _watched(self, work: Any) -> Any:
        """Return the result of `work`. Raises EncoderError if the folder's files have changed since it was loaded."""
        with self._opened:
            made = work()
        self._opened.check(self.name)
        return made
