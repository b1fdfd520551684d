"""Both networks in float64 on the same images: a difference beyond rounding refutes, others decide nothing.

What rounding explains is a running error bound at these inputs, derived operator by operator, in which every weight,
constant, sum and product is rounded to the network's own format.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import call_network, first_weight, tensors_in
from conv2attn.equality.calls import seeded
from conv2attn.equality.exchanged import with_layers_of_the_first
from conv2attn.equality.failures import reason, without_memory
from conv2attn.equality.outputs import (
    compare_outputs,
    dense_parts,
    gaps_between,
    is_finite,
    most_different,
    wide,
    widest_gap,
)
from conv2attn.equality.results import WHOLE_NETWORK, Counterexample, Finding, Gap, refuted, undecided
from conv2attn.equality.running_error import Ball, NoRule, running
from conv2attn.equality.walked_modules import modules_outside_layers
from conv2attn.layers.attention.hardness import FORMAT_NAMES
from conv2attn.networks.copies import copy_network, move_network
from conv2attn.networks.specimens import Inputs
from conv2attn.theory.basis.numbers import widest
from conv2attn.theory.bounds.formats import format_of
from conv2attn.torch_internals import tree_map_only

IMAGES_TRIED = 4  # images, those first whose outputs differ most
SEEN = 2.0**-44  # of the largest output: below it a float64 difference may be rounding
MORE_THAN_ROUNDING = 10.0  # times the rounding that was measured, from which a difference is said to be more
SIZE_OF_ROUNDING = 2.0**6  # unit roundoffs of the largest output: a difference below it is called of that size


@final
@dataclass(frozen=True, eq=False)
class Numbers:
    """What both networks return in float64.

    Args:
        gap: the widest gap; None where they cannot be compared, for the reason in `trouble`.
        begins: the first module whose outputs differ.
        outputs: of both.
    """

    gap: Gap | None
    largest: float
    begins: str = ""
    trouble: str = ""
    outputs: tuple[Any, ...] = ()

    @property
    def apart(self) -> bool:
        """Whether a difference is seen."""
        return self.gap is None or not self.gap.difference <= SEEN * self.largest


def place_for_float64(device: torch.device) -> torch.device:
    """`device`, or the CPU where it has no float64, as MPS."""
    return device if widest(device, torch.float32) is torch.float64 else torch.device("cpu")


@final
class InFloat64:
    """Copies of two networks in float64; layers of the second that are the same maps are the first's.

    They run where the images are, or on the CPU where that device has no float64. With `itself` the second with these
    layers stands beside the second as it is.
    """

    def __init__(
        self, networks: tuple[nn.Module, nn.Module], same: Collection[str], images: Inputs, *, itself: bool = False
    ):
        place = place_for_float64(tensors_in(images)[0].device)
        self.images, self.dtype = tree_map_only(Tensor, lambda each: each.to(place), images), dtype_of(networks, images)
        self.first, self.second = (
            move_network(each, place, double=True) for each in with_layers_of_the_first(networks, same)
        )
        if itself:
            self.first = move_network(copy_network(networks[1]), place, double=True)

    def numbers(self) -> Numbers:
        """The outputs of both, and where a difference begins."""
        outputs, inner = list[Any](), list[dict[str, Tensor]]()
        for network in (self.first, self.second):
            inner.append({})
            hooks = [
                module.register_forward_hook(partial(note, inner[-1], name))
                for name, module in modules_outside_layers(network).items()
            ]
            try:
                with seeded(self.images), torch.no_grad():
                    outputs.append(call_network(network, tree_map_only(Tensor, as_double, self.images)))
            except Exception as error:  # the code of a network may raise anything
                if without_memory(error):
                    raise
                return Numbers(None, 0.0, trouble=f"float64 does not run: {reason(error)}")
            finally:
                for hook in hooks:
                    hook.remove()
        if not all(is_finite(each) for _, each in dense_parts(outputs[0])):
            return Numbers(None, 0.0, trouble="outputs are not finite")
        gap = widest_gap(outputs[0], outputs[1], 0.0)
        measured = compare_outputs(outputs[0], outputs[1], "", None)
        if gap is None or measured is None:
            return Numbers(None, 0.0, trouble="the outputs cannot be compared in float64")
        places = (name for name, mine in inner[0].items() if name and differs(mine, inner[1].get(name)))
        return Numbers(gap, measured.largest_output, next(places, ""), outputs=tuple(outputs))

    def counterexample(self, outputs: tuple[Any, Any]) -> Counterexample | str | None:
        """The image that shows most beyond what rounding explains, or why there is none."""
        u = float(format_of(FORMAT_NAMES[self.dtype]).unit_roundoff) if self.dtype in FORMAT_NAMES else 2.0**-53
        largest: Counterexample | None = None
        if not isinstance(self.images, Tensor) or not self.images.is_floating_point():
            return "no bound on rounding is known for inputs other than one tensor of numbers"
        for index in most_different(*outputs, len(self.images))[:IMAGES_TRIED]:
            image = self.images[index : index + 1]
            try:
                with seeded(image):
                    balls = [running(each, image.double(), u) for each in (self.first, self.second)]
            except NoRule as error:
                return f"no bound on rounding is known for {error}"
            except Exception as error:  # code that reads numbers, or that takes no single image
                if without_memory(error):
                    raise
                return f"no bound on rounding is known: {reason(error)}"
            shown = beyond(image, index, *balls)
            if shown is not None and shown.exceeds and (largest is None or shown.difference > largest.difference):
                largest = shown
        return largest


def first_of(images: Inputs, count: int) -> Inputs:
    """The first of a batch of images, or of named inputs."""
    few: Inputs = tree_map_only(Tensor, itemgetter(slice(count)), images)
    return few


def as_double(tensor: Tensor) -> Tensor:
    """Floating-point numbers in float64, on the CPU where their device has none; others as they are."""
    return tensor.to(place_for_float64(tensor.device)).double() if tensor.is_floating_point() else tensor


def dtype_of(networks: tuple[nn.Module, nn.Module], images: Inputs) -> torch.dtype:
    """The dtype of the floating-point numbers of images, else of the first weight."""
    like = first_weight(networks[0])
    numbers = [each.dtype for each in tensors_in(images) if each.is_floating_point()]
    return next(iter(numbers), torch.float32 if like is None else like.dtype)


def note(outputs: dict[str, Tensor], name: str, module: nn.Module, args: Any, output: Any) -> None:
    """Keeps the first output of a module that is a tensor."""
    if isinstance(output, Tensor):
        outputs.setdefault(name, output.detach())


def differs(first: Tensor, second: Tensor | None) -> bool:
    """Whether a difference of two tensors is seen."""
    if second is None or first.shape != second.shape or not first.numel():
        return second is not None and first.shape != second.shape
    return not bool((wide(first) - wide(second)).abs().amax() <= SEEN * wide(first).abs().amax())


def as_ball(tensor: Tensor) -> Ball:
    """A tensor of an output as a ball; one that depends on no input is exact."""
    return tensor if isinstance(tensor, Ball) else Ball(tensor.double(), torch.zeros_like(tensor.double()), 0.0)


def beyond(image: Tensor, index: int, first: Any, second: Any) -> Counterexample | None:
    """The place where two outputs differ most beyond the errors of both."""
    ours, theirs = (
        {where: as_ball(each) for where, each in dense_parts(side) if not each.is_complex()} for side in (first, second)
    )
    best: Counterexample | None = None
    for where in ours.keys() & theirs.keys():
        mine, other = ours[where], theirs[where]
        if mine.shape != other.shape or not mine.numel():
            continue
        allowed = mine.error + other.error
        excess = ((mine.value - other.value).abs() - allowed).nan_to_num(-torch.inf)
        place = tuple(int(i) for i in torch.unravel_index(excess.argmax(), excess.shape))
        numbers = mine.value[place].item(), other.value[place].item(), allowed[place].item()
        each = Counterexample(
            WHOLE_NETWORK, image[0], place, *numbers, None, int((excess > 0).sum()), "outputs", where, index=index
        )
        if best is None or excess[place].item() > best.difference - (best.allowed or 0.0):
            best = each
    return best


def measured_rounding(outputs: Any, numbers: Numbers, where: str) -> float:
    """The largest difference of one output between either network in its own dtype and in float64; 0 if unknown.

    A measurement at these inputs, and no bound on rounding at others.
    """
    sides = zip(tree_map_only(Tensor, as_double, outputs), numbers.outputs, strict=True)
    gaps = (each for side in sides for each in gaps_between(*side) if each.output == where)
    return max((each.difference for each in gaps if each.difference < math.inf), default=0.0)


def judge_numbers(
    networks: tuple[nn.Module, nn.Module], same: Collection[str], images: Inputs, described: str, outputs: Any
) -> tuple[Finding, Counterexample | None]:
    """The finding on the numbers of both networks, and the image that shows a difference.

    Args:
        same: the names of layers that are the same maps.
        outputs: what both return in their own dtype.
    """
    compared = InFloat64(networks, same, images)
    numbers, dtype = compared.numbers(), str(compared.dtype).removeprefix("torch.")
    if numbers.gap is None:
        return undecided("numbers", "C2A410", numbers.trouble), None
    if not numbers.gap.difference:
        return undecided("numbers", "C2A410", f"in float64 they return the same numbers on {described}"), None
    begins = f", first in {numbers.begins}" if numbers.begins else ""
    apart = f"on {described} they differ by {numbers.gap.difference:.2g} in {numbers.gap.output}{begins}"
    shown = compared.counterexample(outputs)
    if isinstance(shown, Counterexample):
        sentence = f"{apart}, and rounding to {dtype} explains at most {shown.allowed:.2g}"
        return refuted("numbers", "C2A410", sentence), shown
    small = numbers.gap.difference <= SIZE_OF_ROUNDING * torch.finfo(compared.dtype).eps * numbers.largest
    size = f", of the size of rounding weights to {dtype}" if small else ""
    why = f"; {shown}" if shown else f"; rounding to {dtype} may explain it"
    rounding = measured_rounding(outputs, numbers, numbers.gap.output)
    if not small and numbers.gap.difference > MORE_THAN_ROUNDING * rounding > 0:
        size = f", {numbers.gap.difference / rounding:.2g} times what rounding to {dtype} changes in either there"
        why = (
            f"; {shown}" if shown else "; the bound that is derived on rounding is larger yet, so this refutes nothing"
        )
    return undecided("numbers", "C2A410", f"not the same numbers: {apart}{size}{why}"), None
