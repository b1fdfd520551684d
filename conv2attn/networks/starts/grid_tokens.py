"""Where the tokens of a transformer lie: leading tokens, then a grid row by row."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from conv2attn.arguments import Selection
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.networks.reading.phase import literally, read_network
from conv2attn.networks.starts.parts import StartLayer
from conv2attn.networks.starts.trial import Trial
from conv2attn.torch_internals import tree_map_only

MOST_LEADING = 16
"""Class tokens and registers in front of the pixels, at most."""


def check_grid_tokens(trial: Trial, tokens: Tensor, count: int) -> None:
    """Checks that the last `count` tokens of the first layer are on the grid, so that they depend on the images.

    Raises:
        UnsupportedError: one does not (C2A604).
    """
    generator = torch.Generator().manual_seed(1)  # not that of `start_inputs`

    def with_noise(tensor: Tensor) -> Tensor:
        noise = torch.randn(tensor.shape, generator=generator, device="cpu")
        return tensor + noise.to(tensor) if tensor.is_floating_point() and tensor.ndim > 2 else tensor

    name = next(iter(trial.layers))
    other = replace(trial, inputs=tree_map_only(Tensor, with_noise, trial.inputs)).tokens()[name]
    changed = (tokens != other).any(2).any(0)
    if changed.any() and not changed[-count:].all():
        reason = f"{name}: {int((~changed[-count:]).sum())} of its last {count} tokens do not depend on the images"
        raise UnsupportedError("C2A604", reason, "Take a network whose last tokens are its grid, row by row.")


def layers_on_table(trial: Trial, tokens: Mapping[str, Tensor]) -> tuple[dict[str, StartLayer], tuple[str, ...]]:
    """The layers whose tokens have the most common shape, and a sentence for each other layer.

    Raises:
        UnsupportedError: there is none (C2A604).
    """
    layers = trial.layers
    shapes = {
        name: tuple(each.shape[1:])
        for name, each in tokens.items()
        if each.ndim == 3 and each.shape[2] == layers[name].query.shape[1]
    }
    if not shapes:
        reason = f"no layer of {type(trial.network).__name__} attends among (images, tokens, width)"
        remedy = "Name the parts with parts=Parts(...), or pass an example_input of that form."
        raise UnsupportedError("C2A604", reason, remedy)
    usual, _ = Counter(shapes.values()).most_common(1)[0]
    notes = []
    for name in sorted(name for name in layers if shapes.get(name) != usual):
        shape = "x".join(map(str, tokens[name].shape[1:])) if name in tokens else ""
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
