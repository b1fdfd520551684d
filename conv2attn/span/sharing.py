"""Layers shared out over the processes of torch.distributed.

Each process reads the whole input and sends what it has found. An error in one process is raised in all of them, so
that none waits for one that has given up.
"""

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, final

import torch
import torch.distributed as dist

from conv2attn.errors import Conv2AttnError, UsageError

TaskResult = TypeVar("TaskResult")
TIMEOUT = timedelta(minutes=30)
"""How long a process waits for one that neither answers nor ends; the parts that it waits for take about as long."""
BUG_EXIT_CODE = 70
"""Exit code of an internal error."""
STARTED_BY = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables of the environment that torchrun sets for its processes."""
RAISED_IN = "told to all processes by"
"""Begins the note on an error that all processes have received already."""


@final
@dataclass(frozen=True)
class Crew:
    """Processes that do one thing together; this one is `rank` of `size`."""

    rank: int = 0
    size: int = 1

    def together(self, task: Callable[[], TaskResult]) -> TaskResult:
        """The result that a task has in the first process; an error in any is raised in all."""
        results = self.each(lambda: (task(), None)[self.rank > 0])
        assert results[0] is not None
        return results[0]

    def each(self, task: Callable[[], TaskResult]) -> list[TaskResult]:
        """The results of a task in all processes, by rank, which may exchange more in it; an error is raised in all.

        Raises:
            UsageError: another process has ended (C2A011).
        """
        if self.size == 1:
            return [task()]
        own: tuple[Any, Exception | None]
        try:
            own = (task(), None)
        except Exception as error:
            if any(note.startswith(RAISED_IN) for note in getattr(error, "__notes__", ())):
                raise
            own = (None, sendable(error))
        everyone: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(everyone, own)
        except (RuntimeError, ValueError) as lost:
            remedy = "Read what that process said last, and start all of them again."
            gone = UsageError("C2A011", "another process has ended or does not answer", remedy)
            gone.add_note(f"{RAISED_IN} the connection")
            raise gone from lost
        for rank, (_, failure) in enumerate(everyone):
            if failure is not None:
                failure.add_note(f"{RAISED_IN} process {rank}")
                raise failure
        return [value for value, _ in everyone]


def sendable(error: Exception) -> Exception:
    """An error as it is, or its text where it does not survive the way to another process."""
    try:
        return error if type(pickle.loads(pickle.dumps(error))) is type(error) else RuntimeError(str(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")


def all_processes() -> Crew:
    """The processes of torch.distributed, or this one alone."""
    if not (dist.is_available() and dist.is_initialized()):
        return Crew()
    return Crew(dist.get_rank(), dist.get_world_size())


def shared_out(tasks: Sequence[Callable[[], TaskResult]]) -> list[TaskResult]:
    """The results of all tasks, in order, in every process: of n processes, process r does tasks r, r + n, r + 2n, ...

    The first task that is refused is refused in every process.
    """
    crew = all_processes()
    own = range(crew.rank, len(tasks), crew.size)
    parts = crew.each(lambda: {place: unless_refused(tasks[place]) for place in own})
    done = {place: result for part in parts for place, result in part.items()}
    for place in sorted(done):
        if isinstance(done[place], Conv2AttnError):
            raise done[place]
    return [done[place] for place in range(len(tasks))]


def unless_refused(task: Callable[[], Any]) -> Any:
    """The result of a task, or the error that refused it."""
    try:
        return task()
    except Conv2AttnError as refusal:
        return refusal


@contextmanager
def processes_of_torchrun() -> Iterator[Crew]:
    """The processes that torchrun started, joined until the end; this one alone where there are none.

    They speak over gloo, and over NCCL what is on a GPU. An error is the first one's to tell; the others end with its
    exit code.
    """
    started = all(name in os.environ for name in STARTED_BY) and int(os.environ["WORLD_SIZE"]) > 1
    if not started or dist.is_initialized():
        yield all_processes()
        return
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, timeout=TIMEOUT)
    crew = all_processes()
    try:
        yield crew
    except Exception as error:
        if crew.rank == 0:
            raise
        raise SystemExit(getattr(error, "exit_code", BUG_EXIT_CODE)) from None
    finally:
        dist.destroy_process_group()
