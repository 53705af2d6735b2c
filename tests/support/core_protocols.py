"""The protocols that stand in protocols/: what else is registered, an extension or a plug-in, has tests of its own."""

from stsbench.evaluation.protocol import kinds


def core_protocols():
    return {name: kind for name, kind in kinds().items() if kind.__module__.startswith("stsbench.protocols.")}
