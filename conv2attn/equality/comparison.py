"""Two networks run beside each other: plain calls of both, and walks through their graphs."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from conv2attn.equality.context.bound import BoundWalk, Carried, LayerRule
from conv2attn.equality.context.graph import OperatorGraph
from conv2attn.equality.context.opaque import Layer
from conv2attn.equality.context.walk import Recorder, Walk, blame, call, own, reason, softened_output, without_memory
from conv2attn.equality.matching import is_bare, match
from conv2attn.errors import UsageError

FEW = 2  # images, as many as batch normalisation in training mode needs
SMALL = 64  # pixels along an axis


class Comparison:
    """The layers of two networks, paired and measured, and what both networks return of some images.

    Attributes:
        first, second: what they return, the second with its heads as softmaxes; `failure` says why the second returns
            nothing, and `fault` whose error that is.
        matching: their graphs and the pairs of their layers.
        bound: on the difference of the outputs for all inputs within `reach`, or None and where it stops.
        strange: why a graph is not what a plain call computes; empty where both are.
    """

    def __init__(self, original: nn.Module, network: nn.Module, images: Tensor, described: str, reach: float):
        self.networks, self.images, self.reach = (original, network), images, reach
        self.bound: tuple[float | None, str] = None, "graphs that are not known to be equal"
        self.second: Any = None
        self.failure = self.fault = self.strange = ""
        plain = Recorder(), Recorder()
        try:
            self.first = call(original, images, plain[0])
        except Exception as error:  # a network's own code may raise anything
            if without_memory(error):
                raise
            raise UsageError(
                "C2A009",
                f"the original does not run on {described}: {reason(error)}",
                "Pass images that the network takes: their size with --input-size, or --inputs.",
            ) from error
        if not (is_bare(original) and is_bare(network)):
            self.second = self.run(lambda: call(network, images, plain[1]))
        self.matching = match(original, network, images)
        if self.matching.bare:
            self.run_bare()
        elif self.matching.graphs is not None:
            returned, sides = (self.first, self.second), (0,) if self.failure else (0, 1)
            self.strange = next(filter(None, (self.beside(side, plain[side], returned[side]) for side in sides)), "")

    def run(self, function: Callable[[], Any]) -> Any:
        """The outputs of the second network; None where it does not run.

        Raises:
            UsageError: there is not enough memory (C2A202).
        """
        try:
            return function()
        except Exception as error:
            if without_memory(error):
                sentence = "the second needs more memory than there is"
                raise UsageError("C2A202", sentence, "Pass smaller images.") from error
            self.failure, self.fault = f"{type(error).__name__}: {reason(error)}", blame(error)
            return None

    def run_bare(self) -> None:
        """Runs two layers with nothing around them."""
        (pair,) = self.matching.pairs
        self.second = pair.measure(self.first, lambda: softened_output(pair.second, self.images), self.images)
        if pair.failure is not None:
            self.failure, self.fault = f"{type(pair.failure).__name__}: {reason(pair.failure)}", blame(pair.failure)

    def bounded(self, walk: BoundWalk, recorder: Recorder) -> Any:
        """The outputs of the first by a walk that carries the bound on the difference of the outputs."""
        returned = walk.on(self.images, recorder)
        self.bound = (None, walk.stopped) if walk.stopped else (walk.bound, "")
        return returned

    def rule_of(self, layer: Layer) -> LayerRule | None:
        """The rule by which a layer of the first carries a bound on: the worst of the pairs that it is in."""
        pairs = [pair for pair in self.matching.pairs if pair.first is layer]
        rules = [pair.rule() for pair in pairs if pair.measured.shapes and pair.placed]
        if not rules or len(rules) < len(pairs):
            return None

        def rule(read: Carried) -> Carried:
            passed = [each(read) for each in rules]
            return Carried(max(each.size for each in passed), max(each.error for each in passed))

        return rule

    def compute_first(self, layer: Layer, image: Tensor, *rest: Any) -> Tensor:
        """A layer of the first; those of the second that stand for it are measured beside it."""
        output = own(layer, image, *rest)
        with _disable_current_modes():
            for pair in self.matching.pairs:
                if pair.first is layer:
                    pair.measure(output, partial(softened_output, pair.second, image, *rest), image)
        return output

    def compute_second(self, layer: Layer, image: Tensor, *rest: Any) -> Tensor:
        """A layer of the second with heads as softmaxes, beside the function that it stands for."""
        with _disable_current_modes():
            _ = layer.softened  # made once, by operators that are none of the network's
        output = softened_output(layer, image, *rest)
        with _disable_current_modes():
            for pair in self.matching.pairs:
                if pair.second is layer and pair.apart:
                    pair.tensors = pair.second.tensors or rest[:2]
                    pair.measure(own(pair.first, image, *rest), partial(Tensor.clone, output), image)
        return output

    def beside(self, side: int, plain: Recorder, returned: Any) -> str:
        """The reason why a plain call of a network is not its graph, by the operators and the outputs of both.

        The second walks with its heads as softmaxes, and returns other bits then; the bits are compared, and gradients
        switched on, on a part of the images where the graph is for every size.
        """
        assert self.matching.graphs is not None
        graph, which, walked = self.matching.graphs[side], ("first", "second")[side], Recorder()
        compute = (self.compute_first, self.compute_second)[side]
        try:
            if side == 0 and self.matching.same:
                theirs = self.bounded(BoundWalk(graph, compute, self.rule_of, self.reach), walked)
            else:
                theirs = Walk(graph, compute).on(self.images, walked)
        except Exception as error:
            if without_memory(error):
                raise
            return f"the graph of the {which} does not run: {reason(error)}"
        if plain.operators != walked.operators:
            return f"the {which} computes {first_other(plain.operators, walked.operators)}"
        if side == 1:
            self.second = theirs
        elif not same_bits(returned, theirs):
            return f"the {which} returns other numbers than its graph"
        return next(filter(None, (self.on_few(side, which, gradients=each) for each in (False, True))), "")

    def on_few(self, side: int, which: str, *, gradients: bool) -> str:
        """The reason why a plain call on a few images, of other sizes if the graph is for every size, is not the graph.

        With gradients it is a second call, since code may count calls or keep what the first one met.
        """
        assert self.matching.graphs is not None
        graph, network, compared = self.matching.graphs[side], self.networks[side], False
        if side == 0 and not gradients:
            return ""  # which was compared on all images
        for images in few_images(self.images, graph):
            own_size = images.shape[2:] == self.images.shape[2:]
            if own_size and compared:
                continue
            mode = "" if own_size else f"for {'x'.join(map(str, images.shape[1:]))}, "
            mode += "at a second call, with gradients, " if gradients else ""
            plain, walked = Recorder(), Recorder()
            try:
                returned = call(network, images, plain, gradients=gradients, calls=1 + gradients)
            except Exception as error:  # images of another size may be refused
                if own_size:
                    return f"{mode}the {which} does not run: {reason(error)}"
                continue
            try:
                theirs = Walk(graph, own).on(images, walked, gradients=gradients)
            except Exception as error:
                return f"{mode}the graph of the {which} does not run: {reason(error)}"
            if plain.operators != walked.operators:
                return f"{mode}the {which} computes {first_other(plain.operators, walked.operators)}"
            if not same_bits(returned, theirs):
                return f"{mode}the {which} returns other numbers than its graph"
            compared = True
        return ""


def few_images(images: Tensor, graph: OperatorGraph) -> Iterator[Tensor]:
    """A few images; before them, if a graph is for every size, small ones of another size, and of one pixel."""
    few = images[:FEW]
    if not graph.guards and not graph.fixed:
        small, pixel = (few[(slice(None), slice(None), *[slice(size)] * (few.ndim - 2))] for size in (SMALL, 1))
        yield from (larger(small), pixel)
    yield few


def larger(image: Tensor) -> Tensor:
    """An image one pixel larger along each axis: a window may leave out the last pixel of some sides."""
    for axis in range(2, image.ndim):
        image = torch.cat([image, image.narrow(axis, 0, 1)], axis)
    return image


def first_other(plain: list[str], walked: list[str]) -> str:
    """The first operator of a plain call that is not that of the graph, in words."""
    names = [[each.partition(" ")[0].removeprefix("aten.") for each in side] for side in (plain, walked)]
    pairs = zip(plain, walked, strict=False)
    place = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(plain), len(walked)))
    ours, theirs = (side[place] if place < len(side) else "nothing more" for side in names)
    same = f"{ours} of other arguments" if ours == theirs else f"{ours}, and its graph {theirs}"
    return f"{same} as operator {place + 1}: its code sees whether it is exported"


def same_bits(first: Any, second: Any) -> bool:
    """Whether two outputs hold the same tensors, bit for bit: NaN and the sign of zero included."""
    ours, theirs = ([each for each in tree_leaves(side) if isinstance(each, Tensor)] for side in (first, second))
    return len(ours) == len(theirs) and all(map(same_tensor, ours, theirs))


def same_tensor(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same shape, dtype and bits; those that are not dense are not compared."""
    if a.shape != b.shape or a.dtype != b.dtype or a.layout != b.layout:
        return False
    if a.layout != torch.strided or a.is_quantized or a.is_nested:
        return True
    a, b = (each.detach().cpu().reshape(-1).clone(memory_format=torch.contiguous_format) for each in (a, b))
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))
