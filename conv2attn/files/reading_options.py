"""Options for reading files of weights, shared by all commands."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import first_weight
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.files.architectures import parse_arguments
from conv2attn.files.call_inputs import read_call
from conv2attn.files.input_images import Preparation, read_images
from conv2attn.files.loading import load
from conv2attn.files.plans import NotBuiltError, full_name
from conv2attn.networks.provenance import Provenance, provenance_of, with_provenance
from conv2attn.networks.specimens import Arguments, takes_ids

GIB = 1 << 30


@final
@dataclass(frozen=True)
class Reading:
    """The options for files: architecture, its arguments as JSON, largest size in GiB, mean and deviation."""

    arch: str | None = None
    arch_args: str | None = None
    max_size: float = 8.0
    allow: tuple[str, ...] = ()
    mean: str | None = None
    std: str | None = None

    def options(self) -> dict[str, Any]:
        """These options as arguments of `load`.

        Raises:
            UsageError: an option cannot be parsed (C2A001, C2A006).
        """
        if not 0 < self.max_size < float("inf"):
            raise UsageError(
                "C2A001",
                f"--max-size {self.max_size:g} is not a positive number of GiB",
                "Pass a positive number, such as 8.",
            )
        if nameless := [name for name in self.allow if "." not in name]:
            raise UsageError("C2A006", f"--allow {nameless[0]} names no package", "Write package.Class.")
        Preparation.requested(*self.normalisation())
        arguments = parse_arguments(self.arch_args)
        size = int(self.max_size * GIB)
        return {"arch": self.arch, "arch_args": arguments or None, "max_size": size, "allow": self.allow}

    def normalisation(self) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
        """The user's mean and deviation of pixels.

        Raises:
            UsageError: an option is not a list of numbers (C2A006).
        """
        return parse_numbers(self.mean, "--mean"), parse_numbers(self.std, "--std")

    def load(self, path: str, original: nn.Module | None = None) -> nn.Module:
        """The network in a file, with the user's mean and deviation in its provenance.

        Args:
            original: a network whose code is used for a converted network of the same class, if no library builds it.
        """
        try:
            network = load(path, **self.options())
        except NotBuiltError as error:
            if original is None or self.arch is not None or error.kind != full_name(type(original)):
                raise
            network = load(path, model=original, **self.options())
            assumed = ("its code is that of the first network",)
            with_provenance(network, Provenance(path, "network of conv2attn", error.kind, assumed))
        source, (mean, std) = provenance_of(network), self.normalisation()
        return with_provenance(network, replace(source, mean=mean, std=std)) if source and mean and std else network

    def call(self, path: str, network: nn.Module, size: Sequence[int] | None) -> tuple[Arguments, str] | None:
        """The inputs of a call of `network` in a file, and a description; None for a file of images or of one tensor.

        Raises:
            CheckpointError, UsageError: see `read_call`; or an option is about images (C2A004).
        """
        call = read_call(path, network)
        on_images = {"--input-size": size, "--mean": self.mean, "--std": self.std}
        passed = [name for name, value in on_images.items() if value is not None]
        if call and passed:
            sentence = f"{passed[0]} is for images, but {path} has several inputs of a call"
            raise UsageError("C2A004", sentence, "Leave it out: such inputs are used unchanged.")
        return call

    def images(
        self, path: str, network: nn.Module, requested_size: Sequence[int] | None, default: Sequence[int] | None = None
    ) -> tuple[Tensor, str]:
        """The images in a file, in the dtype of `network`, and a description; pictures get the size `requested_size`.

        Without `requested_size`, pictures get the size `default`.

        Raises:
            CheckpointError: see `read_images`; or numbers are not finite (C2A303).
            UsageError: arrays, which are never resized, do not have the size `requested_size` (C2A007).
        """
        mean, std = self.normalisation()
        images, described = read_images(path, network, size=requested_size or default, mean=mean, std=std)
        if not bool(images.isfinite().all()):
            raise CheckpointError("C2A303", f"{path} holds numbers that are not finite", "Pass images.")
        if requested_size and tuple(images.shape[1:]) != tuple(requested_size):
            stored, wanted = ("x".join(map(str, sides)) for sides in (images.shape[1:], requested_size))
            reason = f"{path} holds numbers {stored}, which are not resized, but --input-size is {wanted}"
            raise UsageError("C2A007", reason, "Leave out --input-size, or pass pictures, which are resized.")
        if not images.is_floating_point() and images.ndim < 3 and takes_ids(network):
            return images, described
        like = first_weight(network)
        return images.to(torch.float32 if like is None else like.dtype), described


def parse_numbers(text: str | None, option: str) -> tuple[float, ...] | None:
    """The numbers in a comma-separated text.

    Raises:
        UsageError: a part is not a finite number (C2A006).
    """
    if text is None:
        return None
    try:
        values = tuple(float(each) for each in text.split(","))
    except ValueError:
        values = (float("nan"),)
    if not all(abs(each) < float("inf") for each in values):
        raise UsageError("C2A006", f"{option} {text} is not a list of numbers", "Write 0.485,0.456,0.406, say.")
    return values
