"""On which devices an encoder runs: one process for each."""

from __future__ import annotations

from stsbench.errors import EncoderError

ALL = "all"


def chosen_devices(devices: str | None, processes: int | None, device: str | None) -> list[str | None]:
    """A device for each process, None for the default one; [] where this process alone is to encode.

    devices: names between commas, or "all" for every CUDA device; processes: so many, on the CUDA devices in turn, else on
    `device` (by default the CPU, whose cores they share). EncoderError: no such devices.
    """
    if devices is None and processes is None:
        return []
    if devices is not None:
        names = _cuda() if devices.strip() == ALL else [name.strip() for name in devices.split(",") if name.strip()]
        if not names:
            raise EncoderError(f"--devices {devices!r}: " + ("there is no CUDA device" if devices.strip() == ALL else
                                                              "it names no device"))
        return list(names)
    assert processes is not None
    if processes == 1:
        return []
    names = _cuda() if device is None else []
    return [names[i % len(names)] if names else device for i in range(processes)]


def _cuda() -> list[str]:
    import torch

    return [f"cuda:{i}" for i in range(torch.cuda.device_count())]
