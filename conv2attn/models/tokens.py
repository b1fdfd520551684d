"""The tokens of a layer: their grid, leading tokens that are not on it, and windows.

They are read from a run, never from the type of a network: pixels are the outputs of the patch embedding and of later
convolutions; ids of words and frames of sound are on one axis.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from conv2attn.arguments import argument
from conv2attn.basis import AttentionGrid, Sides, Sites

MOST_LEADING = 16
"""Class tokens and registers in front of the pixels, at most."""
MOST_HALVINGS = 5
"""How often tokens may have been merged two by two along each axis since the last convolution."""
CONVOLUTIONS: set[Any] = {torch.conv1d, torch.conv2d, torch.conv3d}
JOINS: set[Any] = {torch.cat, torch.concat, torch.concatenate}
CONVOLUTIONS |= {torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d}


@final
@dataclass(frozen=True, eq=False)
class Windows:
    """Where the tokens of each window stand in the grid of the image: `places` (windows, tokens), -1 for padding."""

    places: NDArray[np.int64]
    grid: AttentionGrid


@final
@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of a layer: `sides` of the grid, how many tokens are `leading` it, and its windows, if any.

    `how` describes where they were read.
    """

    sides: Sides
    leading: int = 0
    windows: Windows | None = None
    how: str = ""


class Sources:
    """The operations of a run that may define a grid, in their order: convolutions and look-ups of ids.

    `joins` has the lengths of the parts of each sequence that was joined.
    """

    def __init__(self, inputs: Any):
        values = list(
            inputs.values() if isinstance(inputs, dict) else inputs if isinstance(inputs, tuple) else [inputs]
        )
        tensors = [each for each in values if isinstance(each, Tensor)]
        self.sides: list[tuple[Sides, str]] = []
        self.joins: set[tuple[int, ...]] = set()
        self.images = next((len(each) for each in tensors if each.ndim), None)
        self.image_sides: Sides | None = next(
            (tuple(each.shape[2:]) for each in tensors if each.ndim == 4 and each.is_floating_point()), None
        )

    def record(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Keeps the sides of the result of a torch function whose outputs can be tokens, and the parts of joins."""
        if func in JOINS and isinstance(result, Tensor) and result.ndim == 3:
            axis = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis", 0))
            if axis not in (-1, 2):  # channels
                self.joins.add(tuple(part.shape[axis] for part in argument(args, kwargs, 0, "tensors")))
        if func in CONVOLUTIONS and isinstance(result, Tensor):
            axes = argument(args, kwargs, 1, "weight").ndim - 2
            self.sides.append((tuple(result.shape[-axes:]), "a convolution"))
        elif func is F.embedding and (looked_up := argument(args, kwargs, 0, "input")).ndim in (1, 2):
            ids = looked_up[0] if looked_up.ndim == 2 else looked_up
            if len(ids) > 1 and not bool((ids.diff() == 1).all()):
                self.sides.append(((len(ids),), "ids"))

    def tokens(self, queries: int, keys: int, before: int) -> Tokens | str | None:
        """The tokens of attention that ran after `before` sources; a reason if it has none; None if no source fits."""
        tokens = self.fitting_tokens(queries, keys, before)
        if not isinstance(tokens, Tokens) or not tokens.leading:
            return tokens
        for parts in self.joins:
            if sum(parts) == keys and keys - parts[-1] > tokens.leading:
                grid = "x".join(map(str, tokens.sides))
                return f"other tokens stand behind its grid of {grid}, and only those in front of a grid are covered"
        return tokens

    def fitting_tokens(self, queries: int, keys: int, before: int) -> Tokens | str | None:
        """The tokens as `tokens` has them, if all tokens that are not on the grid are leading."""
        candidates = list(dict.fromkeys(reversed(self.sides[:before])))
        if queries != keys:
            lines = [{sides for sides, _ in candidates if sides == (count,)} for count in (queries, keys)]
            if all(lines):
                return f"{queries} queries attend to {keys} keys of another line"
        for leading in range(min(MOST_LEADING, queries - 1, keys - 1) + 1):
            for sides, how in candidates:
                if math.prod(sides) in (queries - leading, keys - leading):
                    return Tokens(sides, leading, how=how)
        for leading in (0, 1):
            for sides, how in candidates:
                for halving in range(1, MOST_HALVINGS if len(sides) > 1 else 1):
                    merged = tuple(-(-side // 2**halving) for side in sides)
                    if math.prod(merged) in (queries - leading, keys - leading) and math.prod(merged) > 1:
                        return Tokens(merged, leading, how=f"{how}, merged")
        return self.squares(queries, keys)

    def squares(self, queries: int, keys: int) -> Tokens | None:
        """The tokens where squares of the image are tokens, behind as few others as fit."""
        if self.image_sides is None or queries != keys:
            return None
        rows, columns = self.image_sides
        for leading in range(min(MOST_LEADING, keys - 1) + 1):
            for side in range(1, min(rows, columns) + 1):
                sides = (rows // side, columns // side)
                if rows % side == columns % side == 0 and math.prod(sides) == keys - leading:
                    return Tokens(sides, leading, how="squares of the image")
        return None


def windows_of(
    parts: int, layer_input: Tensor | None, candidates: Sequence[Tensor], sources: Sources
) -> Windows | None:
    """The places of windows in the image, by comparing the layer's input tokens with those of the whole image.

    Args:
        parts: how many windows one image is cut into.
        layer_input: the input of the layer's weights, (parts, tokens, channels).
        candidates: tensors that may be the image before it was cut, (1, *sides, channels) or (1, channels, *sides).
        sources: for the sides, where a candidate is a sequence.
    """
    if layer_input is None or layer_input.ndim < 3 or len(layer_input) != parts:
        return None
    cut = layer_input.detach().reshape(parts, -1, layer_input.shape[-1])
    for candidate in candidates:
        for tokens, sides in token_candidates(candidate.detach(), cut.shape[-1], sources):
            places = {row.tobytes(): place for place, row in enumerate(tokens.cpu().numpy())}
            if len(places) < len(tokens):
                continue
            rows = cut.reshape(-1, cut.shape[-1])
            constant = (rows == rows[:, :1]).all(-1) & (rows[:, 0] == 0)
            indices = [
                -1 if none else places.get(row.tobytes(), -2)
                for row, none in zip(rows.cpu().numpy(), constant, strict=True)
            ]
            if -2 not in indices and sorted(x for x in indices if x >= 0) == list(range(len(tokens))):
                grid = AttentionGrid(sides, Sites.everywhere(len(sides)))
                return Windows(np.array(indices).reshape(parts, -1), grid)
    return None


def token_candidates(image: Tensor, channels: int, sources: Sources) -> list[tuple[Tensor, Sides]]:
    """A tensor of one image as tokens (tokens, channels) with the sides of their grid, in each way that fits."""
    candidates: list[tuple[Tensor, Sides]] = []
    if len(image) != 1:
        return candidates
    if image.ndim == 4 and image.shape[-1] == channels:
        candidates.append((image.reshape(-1, channels), tuple(image.shape[1:3])))
    if image.ndim == 4 and image.shape[1] == channels:
        candidates.append((image[0].flatten(1).T, tuple(image.shape[2:])))
    if image.ndim == 3 and image.shape[-1] == channels:
        tokens = sources.tokens(image.shape[1], image.shape[1], len(sources.sides))
        if isinstance(tokens, Tokens) and not tokens.leading and len(tokens.sides) == 2:
            candidates.append((image[0], tokens.sides))
    return [(tokens.contiguous(), sides) for tokens, sides in candidates]


def windows_note(sides: Sequence[int] | None = None, placed: bool = False) -> str:
    """The note on a layer that attends in windows, with their sides if they are known."""
    of_sides = "" if sides is None else f" of {'x'.join(map(str, sides))}"
    where = (
        "measured where its windows stand in the image; check-span judges one window"
        if placed
        else ("judged inside one, and at its borders, beyond which no head reads")
    )
    return f"in windows{of_sides}: {where}"
