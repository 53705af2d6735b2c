"""Options for encoding in several processes, each on a device of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stsbench.errors import EncoderError
from stsbench.options import OptionGroup, option

if TYPE_CHECKING:
    from stsbench.encoders.base import Encoder
    from stsbench.encoders.options import EncoderOptions
    from stsbench.extensions.devices.parallel import Workers
    from stsbench.extensions.devices.remote import RayWorkers

ALL = "all"


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(OptionGroup):
    """The options --devices, --processes and --ray; the methods override those of the core's ProcessOptions."""

    devices: str | None = option(
        None, "Encode in one process for each of these devices.", metavar="cuda:0,cuda:1|all",
        excludes=("processes", "device"), why="--devices names one device a process", advanced=True,
    )
    processes: int | None = option(
        None, "Encode in so many processes: the CUDA devices in turn, or shares of the CPU's cores.", least=1, advanced=True,
    )
    ray: str | None = option(
        None, "Encode in tasks of a Ray cluster, or of a Ray on this machine: so many --processes, by default all that it "
        "has room for.", metavar="ADDRESS|local", excludes=("devices",), why="Ray chooses the devices", advanced=True,
    )

    @contextmanager
    def runner(self, encoder: Encoder, options: EncoderOptions) -> Iterator[Workers | RayWorkers | None]:
        """Yield a pool of processes, local or of Ray, None where this process is to compute; they end with the block.

        options: those with which `load_encoder` made the encoder. Raises EncoderError as `chosen_devices`, and for an
        encoder that other processes cannot load by name or cannot verify; StsbenchError as `Cluster`.
        """
        from stsbench.extensions.devices.parallel import Workers
        from stsbench.extensions.devices.remote import RayWorkers

        names = [] if self.ray else chosen_devices(self.devices, self.processes, options.device)
        if not names and not self.ray:
            yield None
            return
        if not options.model:
            raise EncoderError("devices and processes need a model that each process can load by its name, a string")
        workers = (RayWorkers(self.ray, self.processes, options, encoder) if self.ray
                   else Workers(options.model, options, names, encoder))
        try:
            yield workers
        finally:
            workers.close()

    @contextmanager
    def computed(self, encoder: Encoder, options: EncoderOptions) -> Iterator[Encoder]:
        """Yield `encoder`, wrapped to be computed by the processes of `runner` if there are any."""
        from stsbench.extensions.devices.parallel import ParallelEncoder

        with self.runner(encoder, options) as workers:
            yield encoder if workers is None else ParallelEncoder(encoder, workers)

    @classmethod
    def of_torchrun(cls, count: int, words: Sequence[str]) -> dict[str, Any]:
        """Return the options for `count` processes started by torchrun; {} if the command's words have --devices."""
        return {} if any(word.split("=")[0] == "--devices" for word in words) else {"processes": count}


def chosen_devices(devices: str | None, processes: int | None, device: str | None) -> list[str | None]:
    """Return a device for each process, None for the default one; [] where this process alone is to encode.

    devices: comma-separated names, or "all" for every CUDA device; processes: number of processes, on the CUDA devices in
    turn, else on `device` (by default the CPU, whose cores they share). Raises EncoderError without a device.
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
