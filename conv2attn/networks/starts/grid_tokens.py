"""Where the tokens of a transformer lie: leading tokens, then a grid row by row, the same in every run."""

import math
from collections import Counter
from dataclasses import replace

import torch
from torch import Tensor

from conv2attn.arguments import Selection
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.networks.reading.phase import literally, read_network
from conv2attn.networks.starts.parts import StartLayer
from conv2attn.networks.starts.trace import Trace, Trial
from conv2attn.torch_internals import tree_map_only

MOST_LEADING = 16
"""Class tokens and registers in front of the pixels, at most."""
OTHER_DRAW = 2**31 - 1
"""The seed of a second run, in which tokens that are dropped at random are others."""


def check_same_tokens(trial: Trial, trace: Trace) -> None:
    """Raises: UnsupportedError: two runs on one input have other tokens, so that no table tells where they are."""
    second = trial.trace(OTHER_DRAW).tokens
    pairs = [(tokens, second[name]) for name, tokens in trace.tokens.items() if name in second]
    if not all(a.shape == b.shape and torch.allclose(a, b, 1e-3, 1e-4) for a, b in pairs):
        reason = f"{type(trial.network).__name__} drops or shuffles tokens at random, as masked autoencoders do"
        remedy = "Keep all of them (mask_ratio=0), and pass an example_input that fixes their order: ViTMAE's noise."
        raise UnsupportedError("C2A604", reason, remedy)


def check_grid_tokens(trial: Trial, trace: Trace, count: int) -> None:
    """Raises: UnsupportedError: one of the last `count` tokens is not on the grid: other images leave it as it is."""
    generator = torch.Generator().manual_seed(1)  # not that of `start_inputs`

    def with_noise(tensor: Tensor) -> Tensor:
        noise = torch.randn(tensor.shape, generator=generator)
        return tensor + noise.to(tensor) if tensor.is_floating_point() and tensor.ndim > 2 else tensor

    name = next(iter(trial.layers))
    other = replace(trial, inputs=tree_map_only(Tensor, with_noise, trial.inputs)).trace().tokens[name]
    changed = (trace.tokens[name] != other).any(2).any(0)
    if changed.any() and not changed[-count:].all():
        reason = f"{name}: {int((~changed[-count:]).sum())} of its last {count} tokens do not depend on the images"
        raise UnsupportedError("C2A604", reason, "Take a network whose last tokens are its grid, row by row.")


def layers_on_table(trial: Trial, trace: Trace) -> tuple[dict[str, StartLayer], tuple[str, ...]]:
    """The layers whose tokens have the most common shape, and a sentence for each other layer.

    Raises:
        UnsupportedError: there is none (C2A604).
    """
    layers = trial.layers
    shapes = {
        name: tuple(tokens.shape[1:])
        for name, tokens in trace.tokens.items()
        if tokens.ndim == 3 and tokens.shape[2] == layers[name].query.shape[1]
    }
    if not shapes:
        reason = f"no layer of {type(trial.network).__name__} attends among (images, tokens, width)"
        remedy = "Name the parts with parts=Parts(...), or pass an example_input of that form."
        raise UnsupportedError("C2A604", reason, remedy)
    usual, _ = Counter(shapes.values()).most_common(1)[0]
    notes = []
    for name in sorted(name for name in layers if shapes.get(name) != usual):
        shape = "x".join(map(str, trace.tokens[name].shape[1:])) if name in trace.tokens else ""
        notes.append(f"{name} is left alone: " + (f"it asks from {shape} numbers" if shape else "it did not run"))
    return {name: layer for name, layer in layers.items() if shapes.get(name) == usual}, tuple(notes)


def token_sides(trial: Trial, rows: int, tokens: int, sides_argument: tuple[int, ...] | None) -> tuple[int, ...]:
    """The sides of the grid of the first layer's tokens: `sides_argument`, or read from a run.

    Raises:
        UsageError: nothing tells them, or the rows of the table or the tokens are not a grid and leading ones (C2A503).
        UnsupportedError: the run shows that the tokens are not leading tokens and a grid (C2A604).
    """
    sides = sides_argument or ()
    if sides_argument is None:
        layer = next(iter(trial.layers))
        (read,) = read_network(trial.network, trial.inputs, Selection((literally(layer),)))
        if read.tokens is None:
            raise UnsupportedError("C2A604", f"{layer}: {read.unread or read.unplaced}", "Take another network.")
        sides = read.tokens.sides
    if not sides or not all(0 <= count - math.prod(sides) <= MOST_LEADING for count in (rows, tokens)):
        grid = "x".join(map(str, sides)) or "no"
        reason = f"{rows} positions, {tokens} tokens, and {grid} tokens on a grid"
        raise UsageError("C2A503", reason, "Name it: parts=Parts(sides=...).")
    return tuple(sides)
