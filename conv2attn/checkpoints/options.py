"""How the user says that files of weights are to be read: the same options for every command."""

from dataclasses import dataclass
from typing import Any, final

from torch import nn

from conv2attn.checkpoints.architectures import parse_arguments
from conv2attn.checkpoints.loading import load
from conv2attn.errors import UsageError

GIB = 1 << 30


@final
@dataclass(frozen=True)
class Reading:
    """What the user said of the files: an architecture, its arguments as JSON, and the largest size in GiB."""

    arch: str | None = None
    arch_args: str | None = None
    max_size: float = 8.0

    def options(self) -> dict[str, Any]:
        """The same as arguments of `load`.

        Raises:
            UsageError: one of them cannot be read (C2A001).
        """
        if not 0 < self.max_size < float("inf"):
            raise UsageError("C2A001", f"--max-size {self.max_size:g} is not a positive number of GiB")
        arguments = parse_arguments(self.arch_args)
        return {"arch": self.arch, "arch_args": arguments or None, "max_size": int(self.max_size * GIB)}

    def load(self, path: str) -> nn.Module:
        """The network in a file."""
        return load(path, **self.options())
