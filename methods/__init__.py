"""Training methods, one folder each. The options of every method are a class here, under the method's name in its paper:

    stsbench.methods.SimCSE(temperature=0.07)

These names load on first use and without torch. The methods' losses are in stsbench.losses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors and mypy, which do not know __getattr__; the same names as below
    from .angle.options import AnglEOptions as AnglE
    from .cmlm.options import ConditionalMaskedLMOptions as ConditionalMaskedLM
    from .consert.options import ConSERTOptions as ConSERT
    from .cosent.options import CoSENTOptions as CoSENT
    from .ct.options import ContrastiveTensionOptions as ContrastiveTension
    from .declutr.options import DeCLUTROptions as DeCLUTR
    from .diffaug.options import DiffAugOptions as DiffAug
    from .diffcse.options import DiffCSEOptions as DiffCSE
    from .distil.options import DistilOptions as Distil
    from .esimcse.options import ESimCSEOptions as ESimCSE
    from .infocse.options import InfoCSEOptions as InfoCSE
    from .isbert.options import ISBERTOptions as ISBERT  # noqa: N814
    from .mirrorbert.options import MirrorBERTOptions as MirrorBERT
    from .mlm.options import MaskedLMOptions as MaskedLM
    from .pcl.options import PCLOptions as PCL  # noqa: N814
    from .promptbert.options import PromptBERTOptions as PromptBERT
    from .rankcse.options import RankCSEOptions as RankCSE
    from .sarcse.options import SARCSEOptions as SARCSE  # noqa: N814
    from .sbert.options import SBERTOptions as SBERT  # noqa: N814
    from .sgopt.options import SGOPTOptions as SGOPT  # noqa: N814
    from .simcse.options import SimCSEOptions as SimCSE
    from .sncse.options import SNCSEOptions as SNCSE  # noqa: N814
    from .tsdae.options import TSDAEOptions as TSDAE  # noqa: N814
    from .whitenedcse.options import WhitenedCSEOptions as WhitenedCSE

_FOLDERS = {"ConditionalMaskedLM": "cmlm", "ContrastiveTension": "ct", "MaskedLM": "mlm"}  # others: the name in lower case

__all__ = [
    "ISBERT", "PCL", "SARCSE", "SBERT", "SGOPT", "SNCSE", "TSDAE", "AnglE", "CoSENT", "ConSERT", "ConditionalMaskedLM",
    "ContrastiveTension", "DeCLUTR", "DiffAug", "DiffCSE", "Distil", "ESimCSE", "InfoCSE", "MaskedLM", "MirrorBERT",
    "PromptBERT", "RankCSE", "SimCSE", "WhitenedCSE",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        folder = _FOLDERS.get(name, name.lower())
        return getattr(import_module(f"{__name__}.{folder}.options"), f"{name}Options")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
