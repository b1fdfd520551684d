"""The places in the input of the queries, keys and values of each attention, measured in runs.

With attention silenced, a token depends only on inputs that reach it without attention. The input gets a small noise n,
then the same noise times its row, and times its column: ramps. Let d and d' be the changes of a token under n and under
a ramp. Its centre is `r = <d', d> / |d|^2`, and its spread the root of `|d'|^2 / |d|^2 - r^2`. A token that depends on
one row has spread 0. No patch size, order, number of leading tokens, window or shift is assumed.
"""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from tempfile import SpooledTemporaryFile
from typing import final

import torch
from torch import Tensor

from conv2attn.networks.reading.attended import Silence
from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.replay_result import CHANNELS
from conv2attn.networks.reading.responses import EPSILON, FEW, WIDTH, Call, Key, Response, Runs

DRAWS = 8
"""Draws of noise that measure the centres of blurred tokens."""
NEARER = 0.5
"""A query is at a key if their distance is below this share of the distance to the next key."""
IN_MEMORY = 2**24
"""Bytes of queries, keys and values that are kept in memory while places are measured."""
NOTHING = "without attention, nothing here depends on the input"
AT_TIMES = (
    "some tokens respond to the input in some images only, as after a relu, so no response does not mean a class token"
)
BLURRED = "a token depends on several blocks of the input, and on no single cell of a feature map"
PLACES_DIFFER = "its tokens have other places in another image: pass one image at a time"


@final
@dataclass(frozen=True, eq=False)
class Places:
    """`at` (..., tokens, axes), each token's cell among `sides`, -1 for none; `why` is set if places are unknown.

    `centre` (..., tokens, axes) is in sides of the input, NaN for none; `axes` are those of the input. `exact` says
    that each token is one block of the input. If tokens are blurred, `error` is that of their centres, and `maps` are
    the shapes of the feature maps before them.
    """

    at: Tensor
    sides: tuple[int, ...] = ()
    why: str = ""
    centre: Tensor | None = None
    axes: tuple[int, ...] = ()
    exact: bool = False
    error: Tensor | None = None
    maps: tuple[tuple[int, ...], ...] = ()


def places_by(perturbed: Perturbed, rule: Silence) -> dict[Call, dict[str, Places]]:
    """The places under a silencing rule; for blurred tokens also the centres in the input, from several draws."""
    shape = perturbed.shape
    assert shape is not None
    generator = torch.Generator().manual_seed(1)
    # All axes are tried, that of channels included: nothing marks it, and its ramp distinguishes no tokens.
    first_axis = 2 if perturbed.maps else 0
    axes = [axis for axis in range(first_axis, len(shape)) if axis != perturbed.batch and shape[axis] > 1]

    def ramp(axis: int, block: int = 1) -> Tensor:
        side = shape[axis]
        values = (torch.arange(side) // block + 0.5).double() * block / side
        return values.reshape([-1 if each == axis else 1 for each in range(len(shape))])

    of_one = [1 if axis == perturbed.batch else side for axis, side in enumerate(shape)]

    def drawn() -> Tensor:
        # The noise is the same in all images, so their centres differ only by their places.
        return torch.randn(of_one, generator=generator, device="cpu", dtype=torch.float64).expand(shape)

    responses = dict[Key, Response]()
    with SpooledTemporaryFile(IN_MEMORY) as file:
        runs = Runs(file, perturbed, rule)
        # With many channels one noise is enough. With few, runs on other images add channels.
        more = 0 if runs.narrowest >= FEW else max(1, math.ceil(WIDTH / runs.narrowest) - 1)
        runs.beside([perturbed.shuffled(generator) for _ in range(more)])
        noises = [drawn() * EPSILON for _ in range(1 + more)]
        runs.add(*noises)
        for axis in axes:
            runs.add(*(noise * ramp(axis) for noise in noises))
        for key, (own, change, *ramped) in runs.tokens(*range(runs.count)):
            responses[key] = Response.of(own, change, dict(zip(axes, ramped, strict=True)), shape, len(noises))
        for axis in axes:
            guesses = {key: blocks_of(each, axis, shape[axis]) for key, each in responses.items()}
            tried = {1}

            def fitting(key: Key, axis: int = axis) -> bool:
                return responses[key].fitting(axis) is not None

            while block := next_block(guesses, tried, fitting):
                runs.add(*(noise * ramp(axis, block) for noise in noises))
                for key, (change, other) in runs.tokens(1, runs.count - 1):
                    responses[key].fit(axis, block, change, other, shape[axis])
                tried.add(block)
    telling = telling_axes(responses, axes)
    by_call: dict[Call, dict[str, Places]] = {}
    for (call, role), response in responses.items():
        by_call.setdefault(call, {})[role] = placed_by(response, telling, shape)
    for roles in by_call.values():
        conclude(roles)
    blurred = {(call, role) for call, roles in by_call.items() for role, each in roles.items() if each.why == BLURRED}
    if blurred and not perturbed.maps:
        sums = {key: responses[key].moments(axes) for key in blurred}
        for _ in range(1, DRAWS):
            image = None
            if perturbed.base is not None:
                # After convolutions and norms, a token's response depends on the image. Other images of the same size
                # average that out; the ramps act on the same noise.
                image = drawn() * perturbed.base.std() + perturbed.base.mean()
            with SpooledTemporaryFile(IN_MEMORY) as file:
                again = Runs(file, perturbed, rule, image)
                again.beside([perturbed.shuffled(generator) for _ in range(more)])
                noises = [drawn() * EPSILON for _ in range(1 + more)]
                again.add(*noises)
                for axis in axes:
                    again.add(*(noise * ramp(axis) for noise in noises))
                for key, (own, change, *ramped) in again.tokens(*range(again.count)):
                    if key in blurred:
                        sums[key] += Response.of(own, change, dict(zip(axes, ramped, strict=True)), shape).moments(axes)
        for key in blurred:
            call, role = key
            mean, squares = sums[key].div(DRAWS).where(responses[key].live[..., None, None], torch.nan).unbind(-1)
            error = (squares - mean**2).clamp_min(0).div(DRAWS - 1).sqrt()
            maps = runs.maps[call]
            by_call[call][role] = replace(by_call[call][role], centre=mean, axes=tuple(axes), error=error, maps=maps)
    return by_call


def telling_axes(responses: Mapping[Key, Response], axes: Sequence[int]) -> list[int]:
    """The axes of the input along which tokens have places; if there are none, those along which channels of values
    do."""
    channels, tokens = list[Response](), list[Response]()
    for (_, role), each in responses.items():
        (channels if role == "channels" else tokens).append(each)
    of_channels = [axis for axis in axes if any(each.tells(axis) for each in channels)]
    # If windows are rows of the image, the tokens of one window differ along its columns alone, and all windows must be
    # taken together. Heads that are slices of the channels would look the same, so the axis along which channels of
    # values lie is excluded.
    wide = set(axes) - set(of_channels)
    return [axis for axis in axes if any(each.tells(axis, axis in wide) for each in tokens)] or of_channels


def blocks_of(response: Response, axis: int, side: int) -> list[int]:
    """The block sides that the spread of a tensor's tokens suggests, the likeliest first."""
    if not response.live.any():
        return []
    # A token that depends evenly on a block of b pixels of s has the spread sqrt((b^2 - 1) / 12) / s, which is solved
    # for b. Weights of a patch are not even, so this is a guess, and divisors of s near it are tried.
    spread = response.spreads[axis].double()[response.live]
    guess = math.sqrt(max(1 + 12 * side**2 * float((spread**2).median()), 1))
    blocks = [block for block in range(2, side) if side % block == 0 and 0.6 < block / guess < 1.7]
    return sorted(blocks, key=lambda block: abs(math.log(block / guess)))


def next_block(guesses: Mapping[Key, Sequence[int]], tried: Set[int], fitting: Callable[[Key], bool]) -> int:
    """The next side of blocks to test: a guess for a tensor whose tokens fit no side tested so far; 0 if there is none.

    Channels of values are tested only after their tokens fit no side.
    """
    for key, guess in sorted(guesses.items(), key=lambda item: item[0][1] == "channels"):
        tokens = (key[0], "value") if key[1] == "channels" else key
        if not (fitting(key) or fitting(tokens)):
            block = next((block for block in guess if block not in tried), 0)
            if block:
                return block
    return 0


def placed_by(response: Response, axes: list[int], shape: tuple[int, ...]) -> Places:
    """The places of one tensor: either each token is one block of the input, or all are blurred."""
    live = response.live
    nowhere = torch.full((*live.shape, max(len(axes), 1)), -1)
    if not live.any():
        return Places(nowhere, why=NOTHING)
    if response.at_times and not live.all():
        return Places(nowhere, why=AT_TIMES)
    fits = [each for axis in axes if (each := response.fitting(axis)) is not None]
    if not axes or len(fits) < len(axes):
        return Places(nowhere, why=BLURRED)
    at, sides = torch.stack([at for _, at in fits], -1).long(), tuple(count for count, _ in fits)
    # A coarser grid, with two tokens of a row in one cell, is rejected.
    code = torch.zeros_like(live).long()
    for axis, side in enumerate(sides):
        code = code * side + at[..., axis]
    code = torch.where(live, code, -1 - torch.arange(code.shape[-1])).sort(-1).values
    if bool((code.diff(dim=-1) == 0).any()):
        return Places(nowhere, why=BLURRED)
    centre = ((at + 0.5) / torch.tensor(sides)).double().where(live[..., None], torch.nan)
    return Places(torch.where(live[..., None], at, -1), sides, "", centre, tuple(axes), True)


def conclude(roles: dict[str, Places]) -> None:
    """Concludes from all roles: tokens that do not depend on the input are not pixels; channel attention has no
    places."""
    channels = roles.pop("channels", None)
    placed = [each for each in roles.values() if not each.why]
    for role, each in roles.items():
        if placed and each.why == NOTHING:
            roles[role] = Places(each.at)
    # Attention between channels: each channel of the values depends on one place, and each token of the values on many.
    if channels is None or channels.why or roles["value"].why != BLURRED:
        return
    # Centres of a few real channels may fall into rows and columns by chance; the tokens of an image fill the grid.
    grid = math.prod(channels.sides) == channels.at.shape[-2]
    if grid and bool((channels.at != channels.at[..., :1, :]).any()):
        for role, each in roles.items():
            roles[role] = Places(each.at, why=CHANNELS)


def standing(queries: Places, keys: Places) -> Tensor | None:
    """The key at which each query is, (..., queries); None if a query has no place or is between keys."""
    if queries.centre is None or keys.centre is None or queries.at.shape[:-2] != keys.at.shape[:-2]:
        return None
    if queries.why or keys.why or keys.at.shape[-2] < 2:
        return None
    # A query halfway between two keys is at neither, so one key must be clearly nearer.
    (first, second), at = (each.unbind(-1) for each in torch.cdist(queries.centre, keys.centre).topk(2, largest=False))
    return at[0] if bool((first < NEARER * second).all()) else None
