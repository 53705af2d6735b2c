"""Which form of a protocol a record's settings are, in words: what differs from its default, its variant or its paper."""

from __future__ import annotations

import json
from typing import Any

from stsbench.evaluation.load import load_protocol
from stsbench.evaluation.plan import presets
from stsbench.evaluation.records import ProtocolIdentity


def changed_settings(protocol: ProtocolIdentity) -> str:
    """'similarity dot, ...': settings that are not the default of this form of the protocol, or of this paper's preset."""
    kind = load_protocol(protocol.name)
    # A user's file or folder is the name of its task, and leaving pairs out has a wording of its own.
    unsaid = kind.cosmetic | {kind.path_setting, "without_overlap"}

    def against(form: Any) -> dict[str, Any]:
        defaults = kind(form).settings
        # A key without a default is a change, whatever its value.
        return {key: value for key, value in protocol.settings.items()
                if key not in unsaid and (key not in defaults or value != defaults[key])}  # fmt: skip

    changes = min((against(form) for form in _forms(kind, protocol)), key=len)
    return ", ".join(f"{key} {value if isinstance(value, str) else json.dumps(value)}" for key, value in changes.items())


def _forms(kind: Any, protocol: ProtocolIdentity) -> list[Any]:
    """The settings of the forms that a record with this label may be of."""
    base, _, word = protocol.label.partition(":")
    if base != protocol.name and (paper := presets().get(protocol.label)):
        return [part.get("settings", {}) for part in paper["parts"] if part["protocol"] == protocol.name] or [{}]
    if word in kind.variants:
        return [kind.variants[word]]
    if kind.labels_variants and not word:
        return [{}]
    return [{}, *kind.variants.values()]  # `geometry:dev` is `geometry` in a record
