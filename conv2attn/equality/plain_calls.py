"""Decides whether two networks differ on the caller's inputs by more than rounding. Nothing else refutes a network.

Both are called as they are: dtype, mode and random numbers are the caller's. The effect of rounding is measured by up
to five shaken calls, in stochastic arithmetic. They scatter around the exact result e, and for networks of one formula

    |p - q| <= |p - e| + |q - e|

so the ratio of the difference to the measured rounding is at most about 2, even if a kernel sums badly, a step is near,
or numbers cancel. Among 180 kinds of equal pairs the largest ratio was 1.8. A small ratio proves nothing.

Example: an output that is 0.5 in one network and 0.7 in the other, and moves by 1e-7 in shaken calls, has ratio 2e6.
"""

import math
from dataclasses import dataclass
from functools import reduce
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.equality.distances import distance, place_of_largest, wide
from conv2attn.equality.output_parts import dense_parts
from conv2attn.equality.stochastic_arithmetic import shaken_call
from conv2attn.errors import UsageError
from conv2attn.networks.specimens import Inputs

SHAKES = 5
REFUTES = 100.0
"""The ratio from which networks differ: about 50 times the ratio of networks with one formula."""
SETTLED = 4.0
"""The ratio at which no further shaken call is made: more calls can only lower the ratio."""
FINEST = 2.0**-40
"""The unit assumed for float64: no wider format is available to check its operators."""


@final
@dataclass(frozen=True)
class Difference:
    """The outputs' largest difference in units of what rounding changes, at a place of one output tensor.

    Args:
        output: the path of the tensor, as in `Gap`.
        first, second: both numbers.
        rounding: the change that rounding explains there.
        count: how many numbers of that image differ by more than `REFUTES` roundings.
        trouble: the reason why rounding was not measured; then the difference is not judged.
    """

    ratio: float = 0.0
    output: str = ""
    place: tuple[int, ...] = ()
    first: float = 0.0
    second: float = 0.0
    rounding: float = 0.0
    count: int = 0
    trouble: str = ""

    @property
    def refutes(self) -> bool:
        """Whether the networks differ on these inputs."""
        return self.ratio > REFUTES

    @property
    def size(self) -> float:
        """|second - first|; infinite if one of them alone is not finite."""
        off = abs(self.second - self.first)
        return off if off < math.inf else math.inf


def differing_calls(networks: tuple[nn.Module, nn.Module], inputs: Inputs, outputs: tuple[Any, Any]) -> Difference:
    """The difference of the outputs of two plain calls, in units of the effect of rounding on these inputs.

    Args:
        inputs: inputs of both calls.
        outputs: outputs of both, whose tensors are compared by path. Equal ones need no shaken call.
    """
    ours, theirs = map(real_tensors, outputs)
    pairs = {path: (ours[path], theirs[path]) for path in ours if path in theirs}
    plain = {path: (p, q) for path, (p, q) in pairs.items() if p.shape == q.shape and p.numel()}
    if not any(bool(distance(*sides).any()) for sides in plain.values()):
        return Difference()
    shaken: tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]] = [], []
    difference = Difference(math.inf)
    for seed in range(1, SHAKES + 1):
        for which, network, outcomes in zip(("first", "second"), networks, shaken, strict=True):
            try:
                returned = shaken_call(network, inputs, seed)
            except UsageError as error:  # out of memory
                return Difference(trouble=f"the {which} network does not run in stochastic arithmetic: {error.found}")
            if returned.failure:
                words = f"the {which} network does not run in stochastic arithmetic: {returned.failure}"
                return Difference(trouble=words)
            outcomes.append(real_tensors(returned.output))
        ratios = (
            largest_ratio(path, sides, [each.get(path) for each in shaken[0]], [each.get(path) for each in shaken[1]])
            for path, sides in plain.items()
        )
        difference = max(ratios, key=lambda each: each.ratio)
        if difference.ratio <= SETTLED:  # more calls only lower the ratio
            break
    return difference


def real_tensors(output: Any) -> dict[str, Tensor]:
    """The dense tensors of an output by path; real and imaginary parts along one more axis."""
    tensors = {path: tensor.detach() for path, tensor in dense_parts(output)}
    return {path: torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for path, t in tensors.items()}


def largest_ratio(
    output: str, plain: tuple[Tensor, Tensor], first: list[Tensor | None], second: list[Tensor | None]
) -> Difference:
    """The largest difference of two tensors in units of rounding."""
    gap = distance(*plain)
    moved = [
        # A tensor that a shaken call did not return in this shape has no measured rounding.
        torch.full_like(gap, math.inf) if each is None or each.shape != side.shape else distance(side, each)
        for side, shaken in zip(plain, (first, second), strict=True)
        for each in shaken
    ]
    each_number = reduce(torch.maximum, [*moved, *map(last_place, plain)])
    # The smallest of the effects over its image and each other axis: one bad image or channel, or a mask of -1e9, must
    # not hide a difference elsewhere.
    axes = set(range(gap.dim()))
    groups = (
        [each_number.amax([*axes - {axis}], keepdim=True) for axis in axes] if len(axes) > 1 else [each_number.max()]
    )
    rounding = reduce(torch.minimum, groups).expand_as(gap)
    # Infinity over infinity proves nothing, and zero over zero is equal.
    ratio = torch.where(rounding == math.inf, 1.0, gap / rounding).masked_fill(gap == 0, 0.0)
    place = place_of_largest(ratio)
    first_number, second_number = (float(side[place]) for side in plain)
    image = ratio[place[0]] if ratio.dim() > 1 else ratio  # one image is reported, so its numbers are counted
    many = int((image > REFUTES).sum())
    return Difference(float(ratio[place]), output, place, first_number, second_number, float(rounding[place]), many)


def last_place(tensor: Tensor) -> Tensor:
    """The unit in the last place of each number; 0 for whole numbers."""
    eps = max(torch.finfo(tensor.dtype).eps, FINEST) if tensor.is_floating_point() else 0.0
    return torch.nan_to_num(wide(tensor), 0.0, 0.0, 0.0).abs() * eps
