"""Decides whether a network commutes with shifts, flips or permutations of its input."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import check_network, tensors_in
from conv2attn.choices import only_one
from conv2attn.equality.asked import check_seed, random_specimen
from conv2attn.equality.calls import call
from conv2attn.equality.certificate.results import MOVED, Certificate
from conv2attn.equality.certify import certify
from conv2attn.errors import UsageError, whole_number
from conv2attn.networks.copies import copy_network, in_training

Kind = Literal["shift", "flip", "permute"]


@final
class Moved(nn.Module):
    """Moves the pixels of an image (batch, channels, *sides); tensors without sides stay unchanged.

    Args:
        kind: "shift" rolls by `amounts` pixels along each axis; "flip" mirrors the axes whose amount is not 0;
            "permute" orders the tokens by a fixed random permutation, drawn by the seed `amounts[0]`.
        sides: sides of the input to which the amounts refer: on smaller sides a shift is proportionally smaller.
    """

    def __init__(self, kind: Kind, amounts: Sequence[int], sides: Sequence[int]):
        super().__init__()
        self.kind, self.amounts, self.sides = kind, tuple(amounts), tuple(sides)
        drawn = torch.Generator().manual_seed(self.amounts[0] if kind == "permute" else 0)
        order = torch.randperm(math.prod(self.sides), generator=drawn, device="cpu")
        self.register_buffer("order", order if kind == "permute" else None, persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        """The image with its pixels moved."""
        here = tuple(image.shape[2:])
        if not here:
            return image
        axes = list(range(2, image.ndim))
        if self.kind == "shift":
            return image.roll(self.scaled(here), axes)
        if self.kind == "flip":
            return image.flip([axis for axis, amount in zip(axes, self.amounts, strict=True) if amount])
        if here != self.sides:
            reason = f"a permutation of {self.sides} pixels does not apply to an output {here}"
            raise UsageError("C2A007", reason, "Pass a network that keeps the sides of its input.")
        return image.flatten(2)[:, :, self.get_buffer("order")].reshape(image.shape)

    def scaled(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        """The shift on an output with these sides.

        Raises:
            UsageError: the shift is not an integer number of its pixels (C2A007).
        """
        if len(sides) != len(self.sides):
            return self.amounts
        shifts = [amount * side / whole for amount, side, whole in zip(self.amounts, sides, self.sides, strict=True)]
        if not all(each.is_integer() for each in shifts):
            reason = f"a shift by {self.amounts} of {self.sides} is {tuple(shifts)} pixels of an output {sides}"
            raise UsageError("C2A007", reason, "Shift by a multiple of its stride, or pad its convolutions.")
        return tuple(map(int, shifts))


def symmetric(
    network: nn.Module,
    *,
    shift: Sequence[int] | None = None,
    flip: Sequence[int] | bool | None = None,
    permute: int | None = None,
    input_size: Sequence[int] | None = None,
    circumstances: Iterable[tuple[str, str]] = (),
    **options: Any,
) -> Certificate:
    """Whether `network` commutes with a movement of its pixels: whether `f(T x)` is `T f(x)` for every image.

    Outputs without sides, such as logits, must not change. A shift is circular: with zero padding a convolution
    commutes with it only in the interior, and is refuted. The answer is that of `certify` for the two networks.

    Args:
        shift: pixels along each axis.
        flip: 1 for each axis that is mirrored, 0 for the others; True mirrors the last axis.
        permute: seed of a permutation of all pixels.
        input_size: (channels, *sides); that of the images, or the network's own, by default.
        circumstances, options: further arguments of `certify`.
    Raises:
        UsageError: not exactly one movement is passed, or several sizes (C2A004), the movement is not in whole numbers
            (C2A001, C2A006), has other axes than the input, or is not an integer number of pixels of an output
            (C2A007), or the size of an input is unknown (C2A005).
    Examples:
        >>> import torch
        >>> from conv2attn.equality import symmetric
        >>> circular = torch.nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular")
        >>> symmetric(circular, shift=(1, 0), input_size=(1, 6, 7)).verdict
        <Verdict.HOLDS: 'holds'>

    Source: Cordonnier et al. 2020, Sec. 2.1 and 2.3; claim EQV of proofs/.
    """
    check_network(network, "network")
    movements: dict[Kind, Any] = {"shift": shift, "flip": flip, "permute": permute}
    kind = only_one(movements)
    amounts = movements[kind]
    if kind == "permute":
        check_seed(amounts, kind)
    elif amounts is not True and (isinstance(amounts, str) or not isinstance(amounts, Iterable)):
        reason = f"{kind}={amounts!r} is not a sequence of whole numbers"
        raise UsageError("C2A006", reason, "Pass one for each axis of the image.")
    if options.get("also_sizes"):
        raise UsageError("C2A004", "several sizes were passed, but a movement has one", "Ask for one size a call.")
    images = options.get("images")
    if images is None:
        images = random_specimen(network, input_size).main
        options["input_size"] = images.shape[1:]
    sides = tuple(images.shape[2:])
    if kind == "permute":
        amounts = [amounts]
    elif amounts is True:
        amounts = [0] * (len(sides) - 1) + [1]
    else:
        amounts = [whole_number(amount, kind) for amount in amounts]
    if kind != "permute" and len(amounts) != len(sides):
        reason = f"{kind}={tuple(amounts)} is not a number for each of {len(sides)} axes"
        raise UsageError("C2A007", reason, "Pass one for each axis of the image.")
    moved = Moved(kind, amounts, sides)
    # Only a run shows the sides of the outputs, on which the movement may be undefined.
    for output in tensors_in(call(copy_network(network), images).output):
        moved(output)
    before, after = nn.Sequential(moved, network), nn.Sequential(network, moved)
    # `train` would also set the modes of the caller's modules.
    before.training = after.training = moved.training = in_training(network)
    words = " ".join(map(str, amounts))
    about = [(MOVED, f"moves the input ({kind} {words})"), ("the second", f"moves the output ({kind} {words})")]
    return certify(before, after, circumstances=[*circumstances, *about], **options)
