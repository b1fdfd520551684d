"""Where in the input the queries, keys and values of each attention lie, asked of the run.

With attention silenced, a token carries only what reached it without attention. The input gets a small noise n, then
the same noise times its row, and times its column: ramps. With d and d' the responses of a token to both, its centre is
`r = <d', d> / |d|^2`, and its spread the root of `|d'|^2 / |d|^2 - r^2`. A token that depends on one row has spread 0.
No patch size, order, number of leading tokens, window or shift is assumed.
"""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import IntEnum
from tempfile import SpooledTemporaryFile
from typing import final

import torch
from torch import Tensor

from conv2attn.networks.reading.attended import Silence
from conv2attn.networks.reading.lattice import apart, lattice, pooled
from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.responses import Key, Response, Runs, first_calls

EPSILON = 1e-5
"""Size of the noise: in float64, far above rounding, and so small that the response is linear."""
SILENT = 1e-13
"""A response counts as zero if its square is below this share of the largest."""
FLAT = 0.01
"""A spread below this share of a block is that of one block."""
OFF_BLOCK = 0.05
"""A centre at most this share of a block from the centre of a block is in it."""
CLEAR, NEARLY_CLEAR = 2.0, 1.5
"""How many times further apart centres are than they spread, where tokens differ in their place."""
NEARER = 0.5
"""A query stands at a key that is nearer than this share of the distance to the next one."""
IN_MEMORY = 2**24
"""Bytes of queries, keys and values that are kept in memory while places are asked."""
NOTHING = "nothing of the input arrives here without attention"
BLURRED = "the centres of its tokens do not fall into separate rows and columns"


class Kind(IntEnum):
    """What is known of the place of a token: none, one block of the input, a cell of a lattice, or nothing."""

    NONE = 0
    EXACT = 1
    LATTICE = 2
    UNKNOWN = 3


@final
@dataclass(frozen=True, eq=False)
class Places:
    """`kind` (..., tokens) and `at` (..., tokens, axes), the cell among `sides`, -1 where there is none; `why` not.

    `centre` (..., tokens, axes) is in the sides of the input, NaN where there is none; `axes` are those of the input.
    """

    kind: Tensor
    at: Tensor
    sides: tuple[int, ...] = ()
    why: str = ""
    centre: Tensor | None = None
    axes: tuple[int, ...] = ()


def places_by(perturbed: Perturbed, draws: int, rule: Silence) -> dict[str, dict[str, Places]]:
    """The places, from so many draws of noise, under a rule of silence."""
    shape = perturbed.shape
    assert shape is not None
    generator = torch.Generator().manual_seed(1)
    # The axis of channels is among them: nothing says which it is, and its ramp tells no token from another.
    axes = [axis for axis in range(len(shape)) if axis != perturbed.batch and shape[axis] > 1]

    def ramp(axis: int, block: int) -> Tensor:
        side = shape[axis]
        values = (torch.arange(side) // block + 0.5).double() * block / side
        return values.reshape([-1 if each == axis else 1 for each in range(len(shape))])

    def drawn() -> Tensor:
        return torch.randn(shape, generator=generator, device="cpu", dtype=torch.float64)

    first, responses, sizes = drawn() * EPSILON, dict[Key, Response](), dict[Key, float]()
    for draw in range(draws)[::-1]:  # the image itself comes last, and is then asked for blocks
        noise = drawn() * EPSILON if draw else first
        image = None
        if draw and perturbed.base is not None:
            # Behind convolutions and norms what a token answers depends on the image. Other images of the same size of
            # numbers average that out; the ramps are those of the same noise.
            image = drawn() * perturbed.base.std() + perturbed.base.mean()
        with SpooledTemporaryFile(IN_MEMORY) as file:
            runs = Runs(file, perturbed, rule, image)
            for each in (noise, *(noise * ramp(axis, 1) for axis in axes)):
                runs.add(each)
            for key, (own, change, *ramped) in first_calls(runs, *range(runs.count)):
                response = responses.setdefault(key, Response(torch.zeros(change.shape[:-1], dtype=torch.float64)))
                response.squares = response.squares + (change * change).sum(-1)
                sizes[key] = float(own.pow(2).sum(-1).mean())
                for axis, other in zip(axes, ramped, strict=True):
                    response.add(axis, change, other)
                    if not draw:
                        response.fit(axis, 1, fits_blocks(change, other, 1, shape[axis]))
            if draw:
                continue
            live = {key: responding(each, sizes[key], draws) for key, each in responses.items()}
            told = {key: [clearness(each, axis, live[key]) for axis in axes] for key, each in responses.items()}
            of_tokens = [each for (name, role), each in told.items() if role != "channels" and live[name, role].any()]
            clearest = map(max, zip(*told.values(), strict=True))
            of_channels = [axis for axis, clear in zip(axes, clearest, strict=True) if clear > CLEAR]
            telling = telling_axes(axes, of_tokens) or of_channels
            for axis in telling:
                guesses = {key: blocks_of(each, axis, shape[axis], live[key]) for key, each in responses.items()}
                tried = {1}

                def fitting(key: Key, axis: int = axis, live: Mapping[Key, Tensor] = live) -> bool:
                    return responses[key].fitting(axis, live[key]) is not None

                while block := next_block(guesses, tried, fitting):
                    runs.add(first * ramp(axis, block))
                    for key, (change, other) in first_calls(runs, 1, runs.count - 1):
                        responses[key].fit(axis, block, fits_blocks(change, other, block, shape[axis]))
                    tried.add(block)
    found: dict[str, dict[str, Places]] = {}
    for (name, role), response in responses.items():
        found.setdefault(name, {})[role] = judged(response, telling, shape, live[name, role])
    for roles in found.values():
        conclude(roles)
    return found


def responding(response: Response, size: float, draws: int) -> Tensor:
    """Which tokens respond at all; `size` is the mean square of a token without noise."""
    # Rounding answers too: of tokens that nothing reaches, changes are some units of float64 of what they are.
    largest = max(float(response.squares.max()) if response.squares.numel() else 0.0, 1e-9 * EPSILON**2 * size)
    return response.squares > SILENT * draws * largest + 1e-300


def clearness(response: Response, axis: int, live: Tensor) -> float:
    """How much further apart the centres of tokens are along an axis than each spreads.

    All channels of an image reach each of its tokens, so that their axis is not clear. Two patches that share an axis
    are at 1.7, and more of them further.
    """
    if not live.any():
        return 0.0
    centre, count = response.centre(axis), live.sum(-1, keepdim=True).clamp_min(1)
    mean = torch.where(live, centre, 0).sum(-1, keepdim=True) / count
    apart_by = float((centre - mean)[live].pow(2).mean().sqrt())
    return apart_by / (float(response.spread(axis)[live].median()) + 1e-6)


def telling_axes(axes: Sequence[int], clear: Sequence[Sequence[float]]) -> list[int]:
    """The axes along which tokens differ in their place: clearly in one tensor, or less so in all of them.

    By chance an axis of few channels passes for two patches in some tensors.
    """
    ratios = zip(axes, map(sorted, zip(*clear, strict=True)), strict=False)
    return [axis for axis, each in ratios if each[-1] > CLEAR or each[0] > NEARLY_CLEAR]


def blocks_of(response: Response, axis: int, side: int, live: Tensor) -> list[int]:
    """The sides of blocks that the spread of a tensor's tokens suggests, the likeliest first."""
    if not live.any():
        return []
    # A token that depends evenly on a block of b pixels of s has the spread sqrt((b^2 - 1) / 12) / s, which is solved
    # for b. Weights of a patch are not even, so that this is a guess, and divisors of s near it are tried.
    spread = response.spread(axis)[live]
    guess = math.sqrt(max(1 + 12 * side**2 * float((spread**2).median()), 1))
    blocks = [block for block in range(2, side) if side % block == 0 and 0.6 < block / guess < 1.7]
    return sorted(blocks, key=lambda block: abs(math.log(block / guess)))


def next_block(guesses: Mapping[Key, Sequence[int]], tried: Set[int], fitting: Callable[[Key], bool]) -> int:
    """A block of a tensor whose tokens fit none of those that were tried; 0 where there is none.

    A block that all tokens of a tensor fit is theirs. Channels are asked for where the tokens of values fit none.
    """
    for key, guess in sorted(guesses.items(), key=lambda item: item[0][1] == "channels"):
        tokens = (key[0], "value") if key[1] == "channels" else key
        if not (fitting(key) or fitting(tokens)):
            block = next((block for block in guess if block not in tried), 0)
            if block:
                return block
    return 0


def fits_blocks(change: Tensor, ramped: Tensor, block: int, side: int) -> tuple[Tensor, Tensor]:
    """Which tokens depend on one block of this side, and on which."""
    squares = (change * change).sum(-1).clamp_min(1e-300)
    centre = (ramped * change).sum(-1) / squares
    spread = ((ramped * ramped).sum(-1) / squares - centre**2).clamp_min(0).sqrt()
    # The ramp is constant within a block, so that a token of one block has spread 0 up to rounding, whatever its
    # weights.
    at = centre * side / block - 0.5
    fits = (spread < FLAT * block / side) & ((at - at.round()).abs() < OFF_BLOCK)
    return fits & (change.shape[-1] > 1), at.round()


def judged(response: Response, axes: list[int], shape: tuple[int, ...], live: Tensor) -> Places:
    """The places of one tensor."""
    nowhere = torch.full((*live.shape, max(len(axes), 1)), -1)
    unknown = torch.where(live, int(Kind.UNKNOWN), int(Kind.NONE))
    if not live.any():
        return Places(torch.full(live.shape, int(Kind.UNKNOWN)), nowhere, why=NOTHING)
    if not axes:
        return Places(unknown, nowhere, why=BLURRED)
    chosen = [response.fitting(axis, live) for axis in axes]
    # Blocks come first: they are certain. Centres are cut into a lattice only where no size of blocks fits.
    exact = [each for each in chosen if each is not None]
    if len(exact) == len(axes):
        at = torch.stack([at for _, at in exact], -1).long()
        if apart(at, live):
            sides = tuple(shape[axis] // each[0] for axis, each in zip(axes, exact, strict=True))
            kind = torch.where(live, int(Kind.EXACT), int(Kind.NONE))
            middle = ((at + 0.5) / torch.tensor(sides)).double().where(live[..., None], torch.nan)
            return Places(kind, torch.where(live[..., None], at, -1), sides, "", middle, tuple(axes))
    centre = torch.stack([response.centre(axis) for axis in axes], -1)
    moments = torch.stack([response.along[axis] for axis in axes], -1)
    weight = response.squares[..., None].expand_as(moments)
    centre = pooled(moments, weight, centre, live).where(live[..., None], torch.nan)
    cells = lattice(centre, live)
    if cells is None:
        return Places(unknown, nowhere, why=BLURRED)
    return Places(torch.where(live, int(Kind.LATTICE), int(Kind.NONE)), *cells, "", centre, tuple(axes))


def conclude(roles: dict[str, Places]) -> None:
    """Tokens that do not depend on the input have no place, if others of the same attention have one; nor has attention
    between channels."""
    channels = roles.pop("channels", None)
    placed = [each for each in roles.values() if bool(((each.kind == Kind.EXACT) | (each.kind == Kind.LATTICE)).any())]
    for role, each in roles.items():
        if placed and each.why == NOTHING:
            roles[role] = Places(torch.full_like(each.kind, int(Kind.NONE)), each.at)
    # Attention between channels: each channel of the values depends on one place, and their tokens on many.
    if channels is None or channels.why or roles["value"].why != BLURRED:
        return
    # Centres of a few real channels may fall into rows and columns by chance; tokens of an image fill theirs.
    grid = math.prod(channels.sides) == channels.at.shape[-2]
    if grid and bool((channels.at != channels.at[..., :1, :]).any()):
        why = "it attends between channels, not between tokens"
        for role, each in roles.items():
            roles[role] = Places(torch.full_like(each.kind, int(Kind.UNKNOWN)), each.at, why=why)


def standing(queries: Places, keys: Places) -> Tensor | None:
    """The key at which each query stands, (..., queries); None where one has no place or stands between keys."""
    if queries.centre is None or keys.centre is None or queries.kind.shape[:-1] != keys.kind.shape[:-1]:
        return None
    if keys.kind.shape[-1] < 2:
        return None
    # Half way between two keys a query stands at neither: nearness has to be clear.
    (first, second), at = (each.unbind(-1) for each in torch.cdist(queries.centre, keys.centre).topk(2, largest=False))
    return at[0] if bool((first < NEARER * second).all()) else None
