"""One process, or those that torchrun started: its rank, and sums over all."""

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import torch
import torch.distributed as dist

from conv2attn.errors import UsageError, first_line


@final
@dataclass(frozen=True)
class Worker:
    """Process `rank` of `size`, which computes on `device`."""

    rank: int
    size: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this process writes files and reports."""
        return self.rank == 0

    def total(self, numbers: Sequence[float]) -> list[float]:
        """The sums of these numbers over all processes."""
        if self.size == 1:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return sums.tolist()

    def wait(self) -> None:
        """Waits for all processes."""
        self.total([0.0])

    def share(self, indices: torch.Tensor) -> torch.Tensor:
        """This process's part of a batch: an equal run of it."""
        return indices.tensor_split(self.size)[self.rank]


@contextmanager
def worker_group(device: str) -> Iterator[Worker]:
    """This process among those that torchrun started, or alone.

    Under torchrun the processes exchange gradients by NCCL on GPUs, one each, and by gloo on CPUs. Nothing that holds
    the group, as DistributedDataParallel does, may outlive it: torch then waits for a thread that waits for the
    interpreter, for ever or until one of them is ended.

    Raises:
        UsageError: the device is not here (C2A002).
    """
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        sentence = first_line(error)
        raise UsageError("C2A002", f"device {device!r} is not here ({sentence})", "Name another --device.") from error
    if torch.device(device).type == "meta":
        raise UsageError("C2A002", "device 'meta' computes nothing", "Name another --device.")
    if "TORCHELASTIC_RUN_ID" not in os.environ and "WORLD_SIZE" not in os.environ:
        yield Worker(0, 1, torch.device(device))
        return
    kind = torch.device(device).type
    worker_device = torch.device(kind, int(os.environ.get("LOCAL_RANK", 0))) if kind == "cuda" else torch.device(kind)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    try:
        yield Worker(dist.get_rank(), dist.get_world_size(), worker_device)
    finally:
        gc.collect()  # DistributedDataParallel refers to itself
        dist.destroy_process_group()
