"""The options of `stsbench parity` and `stsbench.parity`, besides the two encoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from stsbench.encoders.options import EncoderOptions
from stsbench.errors import UsageError
from stsbench.options import SetOptions, option

_BOOLEANS = {"yes": True, "true": True, "no": False, "false": False}


@dataclass(frozen=True, kw_only=True)
class ParityOptions(SetOptions):
    """How two encoders are compared."""

    tolerance: str = option(
        "float32", "What still is equal: rounding as in float32 (directions and lengths within 1e-4), float16 (1e-2) or "
        "bfloat16 (8e-2).", choices=("float32", "float16", "bfloat16"),
    )
    why: bool = option(True, "Look for what B does otherwise.", flag="--why/--no-why")
    protocols: Sequence[str] | None = option(
        None, "Measure both, too: as `stsbench eval --protocol`, a file of one's own scored pairs included.",
        flag="--protocol",
    )
    tasks: Sequence[str] | None = option(None, "As `stsbench eval --tasks`.")
    margin: float = option(0.1, "Scores that differ by no more, in points, are as good as equal.")
    resamples: int = option(5000, "Bootstrap samples of the scores' difference.", least=40)


def encoder_options(model: str, settings: Mapping[str, Any]) -> EncoderOptions:
    """Return the options of one side, by their names in `load_encoder`; values may be text, such as yes or no. Raises
    UsageError for an unknown option or an unreadable value."""
    kinds = {entry.name: get_type_hints(EncoderOptions)[entry.name] for entry in fields(EncoderOptions)}
    kinds.pop("model")
    made = {}
    for name, value in settings.items():
        key = {"task": "route"}.get(name.replace("-", "_"), name.replace("-", "_"))
        if key not in kinds:
            from stsbench.registry import did_you_mean

            raise UsageError(f"{model}: there is no option {name}{did_you_mean(name, kinds)} (there are {', '.join(kinds)})")
        made[key] = _read(f"{model}: {name}={value}", value, kinds[key])
    return EncoderOptions(model=model, **made)


def _read(where: str, value: Any, kind: Any) -> Any:
    if not isinstance(value, str):
        return value
    if kind in (bool, bool | None):
        if value.lower() not in _BOOLEANS:
            raise UsageError(f"{where}: write yes or no")
        return _BOOLEANS[value.lower()]
    if kind == int | None:
        try:
            return int(value)
        except ValueError:
            raise UsageError(f"{where}: a whole number is wanted") from None
    return value
