"""Where in the input the queries, keys and values of each attention lie, and of which image: asked of the run.

With attention silenced, a token carries only what reached it without attention. The input gets a small noise n, then
the same noise times its row, and times its column: ramps. With d and d' the responses of a token to both, its centre is
`r = <d', d> / |d|^2`, and its spread the root of `|d'|^2 / |d|^2 - r^2`. A token that depends on one row has spread 0.
Two images run together, and the noise times the number of its image tells of which image a token is. No patch size,
order, number of leading tokens, window or shift is assumed, nor an axis of images.
"""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from tempfile import SpooledTemporaryFile
from typing import final

import torch
from torch import Tensor

from conv2attn.networks.reading.attended import Silence
from conv2attn.networks.reading.lattice import apart, lattice, pooled
from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.responses import Call, Key, Response, Runs

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
LEAK = 1e-3
"""What is off the number of an image by less than this depends on that image alone: the response is linear to this."""
NONE, SEVERAL = -1, -2
"""In place of the number of an image: a row responds to none, or to both."""
NOTHING = "nothing of the input arrives here without attention"
BLURRED = "the centres of its tokens do not fall into separate rows and columns"
SEVERAL_IMAGES = "a row of its attention takes in several images"
PLACES_DIFFER = "its tokens lie elsewhere in another image: pass one image at a time"


@final
@dataclass(frozen=True, eq=False)
class Places:
    """`at` (..., tokens, axes), the cell among `sides` of each token, -1 where there is none; `why` none is known.

    `image` (...) is the image of each row. `centre` (..., tokens, axes) is in the sides of the input, NaN where there
    is none; `axes` are those of the input. `exact` says that each token is one block of the input. Where tokens are
    blurred, `error` is that of their centres, and `maps` are the shapes of the feature maps in front of them.
    """

    at: Tensor
    image: Tensor
    sides: tuple[int, ...] = ()
    why: str = ""
    centre: Tensor | None = None
    axes: tuple[int, ...] = ()
    exact: bool = False
    error: Tensor | None = None
    maps: tuple[tuple[int, ...], ...] = ()


def places_by(perturbed: Perturbed, draws: int, rule: Silence) -> dict[Call, dict[str, Places]]:
    """The places, from so many draws of noise, under a rule of silence."""
    shape = perturbed.shape
    assert shape is not None
    generator = torch.Generator().manual_seed(1)
    # The axis of channels is among them: nothing says which it is, and its ramp tells no token from another.
    first_axis = 2 if perturbed.maps else 0
    axes = [axis for axis in range(first_axis, len(shape)) if axis != perturbed.batch and shape[axis] > 1]

    def ramp(axis: int, block: int) -> Tensor:
        side = shape[axis]
        values = (torch.arange(side) // block + 0.5).double() * block / side
        return values.reshape([-1 if each == axis else 1 for each in range(len(shape))])

    of_one = [1 if axis == perturbed.batch else side for axis, side in enumerate(shape)]

    def drawn() -> Tensor:
        # The same in all images, so that their centres differ by their places alone.
        return torch.randn(of_one, generator=generator, device="cpu", dtype=torch.float64).expand(shape)

    first, responses, sizes = drawn() * EPSILON, dict[Key, Response](), dict[Key, float]()
    units = dict[Key, float]()
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
            if not draw and perturbed.images > 1:  # images are an axis like others
                runs.add(first * ramp(perturbed.batch, 1))
            for key, tensors in runs.tokens(*range(runs.count)):
                # Small weights in many layers leave numbers whose squares float32 does not hold.
                unit = units.setdefault(key, float(tensors[1].abs().max()) or 1.0)
                own, change, *ramped = (each.div_(unit) for each in tensors)
                response = responses.setdefault(key, Response(torch.zeros(change.shape[:-1])))
                response.squares = response.squares + (change * change).sum(-1).float()
                if len(ramped) > len(axes):
                    numbers = image_of(*response_sums(change, ramped.pop()), perturbed.images)
                    response.images = numbers.to(torch.int16)
                sizes[key] = float(own.pow(2).sum(-1).mean())
                for axis, other in zip(axes, ramped, strict=True):
                    response.add(axis, change, other, draws > 1)
                    if not draw:
                        response.fit(axis, 1, fits_blocks(change, other, 1, shape[axis]))
            if draw:
                continue
            live = {key: responding(each, sizes[key], draws) for key, each in responses.items()}
            for key, response in responses.items():
                response.keep_fitting(live[key])
            told = {key: [clearness(each, axis, live[key]) for axis in axes] for key, each in responses.items()}
            of_channels = [
                axis for at, axis in enumerate(axes) if max((each[at] for each in told.values()), default=0.0) > CLEAR
            ]
            # Windows may be rows of the image, whose tokens lie apart along its columns alone: all rows together tell
            # more. So would heads that are slices of the channels, but for an axis that channels of values lie along.
            channels = [[each[at] for (_, role), each in told.items() if role == "channels"] for at in range(len(axes))]
            wide = [max(each, default=0.0) < NEARLY_CLEAR for each in channels]
            of_tokens = [
                [clearness(each, axis, live[key], *own) for axis, *own in zip(axes, wide, strict=True)]
                for key, each in responses.items()
                if key[1] != "channels" and live[key].any()
            ]
            telling = telling_axes(axes, of_tokens) or of_channels
            for axis in telling:
                guesses = {key: blocks_of(each, axis, shape[axis], live[key]) for key, each in responses.items()}
                tried = {1}

                def fitting(key: Key, axis: int = axis, live: Mapping[Key, Tensor] = live) -> bool:
                    return responses[key].fitting(axis, live[key]) is not None

                while block := next_block(guesses, tried, fitting):
                    runs.add(first * ramp(axis, block))
                    for key, (change, other) in runs.tokens(1, runs.count - 1):
                        responses[key].fit(axis, block, fits_blocks(change, other, block, shape[axis]))
                        responses[key].keep_fitting(live[key])
                    tried.add(block)
    found: dict[Call, dict[str, Places]] = {}
    for (call, role), response in responses.items():
        place = of_images(response, telling, shape, live[call, role])
        if place.why == BLURRED and draws > 1:
            place = blurred(place, response, live[call, role], draws, runs.maps[call])
        found.setdefault(call, {})[role] = place
    for roles in found.values():
        conclude(roles)
    return found


def blurred(place: Places, response: Response, live: Tensor, draws: int, maps: tuple[tuple[int, ...], ...]) -> Places:
    """The place with the centres of its tokens along all axes, their errors, and the feature maps in front of them."""
    sums = torch.stack(list(response.of_draws.values()), -2).div(draws).where(live[..., None, None], torch.nan)
    mean, squares = sums.unbind(-1)
    error = (squares - mean**2).clamp_min(0).div(draws - 1).sqrt()
    return replace(place, centre=mean, axes=tuple(response.of_draws), error=error, maps=maps)


def responding(response: Response, size: float, draws: int) -> Tensor:
    """Which tokens respond at all; `size` is the mean square of a token without noise."""
    # Rounding answers too: of tokens that nothing reaches, changes are some units of float64 of what they are.
    largest = max(float(response.squares.max()) if response.squares.numel() else 0.0, 1e-9 * EPSILON**2 * size)
    return response.squares > SILENT * draws * largest


def clearness(response: Response, axis: int, live: Tensor, wide: bool = False) -> float:
    """How much further apart the centres of tokens of a row, or of all where `wide`, are than each spreads.

    All channels of an image reach each of its tokens, so that their axis is not clear. Two patches that share an axis
    are at 1.7, and more of them further.
    """
    if not live.any():
        return 0.0
    centre, count = response.centre(axis), live.sum(-1, keepdim=True).clamp_min(1)
    mean = torch.where(live, centre, 0).sum(-1, keepdim=True) / count
    mean = centre[live].mean() if wide else mean
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
    return fits & (change.shape[-1] > 1), at.round().to(torch.int16 if side // block < 2**15 else torch.int32)


def of_images(response: Response, axes: list[int], shape: tuple[int, ...], live: Tensor) -> Places:
    """The places of one tensor, whose rows are of one image each."""
    image = of_rows(torch.zeros_like(live).long() if response.images is None else response.images, live)
    nowhere = torch.full((*live.shape, max(len(axes), 1)), -1)
    if bool((image == SEVERAL).any()):
        return Places(nowhere, image, why=SEVERAL_IMAGES)
    if not live.any() or not axes:
        return Places(nowhere, image, why=BLURRED if live.any() else NOTHING)
    # Rows of one image stand along one axis of the tensor, whose other axes are heads, windows and so on. Where they do
    # not, all axes are one.
    varying = [axis for axis in range(image.ndim) if bool((image != image.narrow(axis, 0, 1)).any())]
    flat = len(varying) > 1
    axis, lead = (0 if flat else max(varying, default=0)), (image.numel(),) if flat else tuple(image.shape)
    if not lead:
        axis, lead = 0, (1,)
    line = image.reshape(lead).movedim(axis, 0).reshape(lead[axis], -1).amax(1)
    of_each = list[tuple[Tensor, Response, tuple[int, ...], Tensor, Tensor]]()
    for number in sorted(set(line[line >= 0].tolist())):
        rows = (line == number).nonzero().flatten()
        part = response.rows(lead, axis, rows)
        own, sides, centre, _ = judged(part, axes, shape, live.reshape(*lead, -1).index_select(axis, rows))
        of_each.append((rows, part, sides, own, centre))
    # All images answer the same noise, so that one whose centres fall into a lattice speaks for those with the same.
    told = next((each for each in of_each if each[2]), None)
    if told is None:
        return Places(nowhere, image, why=BLURRED if of_each else NOTHING)
    _, first, sides, cells, middle = told
    at = nowhere.reshape(*lead, *nowhere.shape[-2:])
    centres = torch.full(at.shape, torch.nan, dtype=torch.float64)
    for rows, part, own_sides, own, centre in of_each:
        if not (first.exact and part.exact and own_sides == sides):
            # Centres of blurred tokens depend a little on what an image shows. Tokens of two cells are at least a step
            # apart, so that half a step tells them.
            apart_by = (middle - centre).abs() if middle.shape == centre.shape else None
            lost = apart_by is not None and bool((apart_by.isnan() != middle.isnan()).any())
            if apart_by is None or lost or bool((apart_by >= 0.5 / torch.tensor(sides)).any()):
                return Places(nowhere, image, why=PLACES_DIFFER)
            own = cells
        at.index_copy_(axis, rows, own)
        centres.index_copy_(axis, rows, centre)
    return Places(at.reshape(nowhere.shape), image, sides, "", centres.reshape(nowhere.shape), tuple(axes), first.exact)


def response_sums(change: Tensor, ramped: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`|d|^2`, `<d', d>` and `|d'|^2` of responses (..., width)."""
    return (change * change).sum(-1), (ramped * change).sum(-1), (ramped * ramped).sum(-1)


def image_of(squares: Tensor, along: Tensor, ramped: Tensor, count: int) -> Tensor:
    """The one of so many images on which something depends, or SEVERAL, by responses to noise and to its ramp."""
    centre = along / squares.clamp_min(1e-300)
    spread = (ramped / squares.clamp_min(1e-300) - centre**2).clamp_min(0).sqrt()
    at = centre * count - 0.5
    return torch.where((spread * count < LEAK) & ((at - at.round()).abs() < LEAK), at.round().long(), SEVERAL)


def of_rows(images: Tensor, live: Tensor) -> Tensor:
    """The image of each row (...): that of all its tokens that respond, NONE or SEVERAL."""
    most = torch.where(live, images.long(), NONE).amax(-1)
    alike = (images == most[..., None]) | ~live
    return torch.where(alike.all(-1), most, SEVERAL)


def judged(
    response: Response, axes: list[int], shape: tuple[int, ...], live: Tensor
) -> tuple[Tensor, tuple[int, ...], Tensor, str]:
    """The cells of the tokens of one image, the sides of their grid, their centres, and why none are known."""
    nowhere = torch.full((*live.shape, len(axes)), -1)
    chosen = [response.fitting(axis, live) for axis in axes]
    # Blocks come first: they are certain. Centres are cut into a lattice only where no size of blocks fits.
    exact = [each for each in chosen if each is not None]
    if len(exact) == len(axes):
        at = torch.stack([at for _, at in exact], -1).long()
        if apart(at, live):
            sides = tuple(shape[axis] // each[0] for axis, each in zip(axes, exact, strict=True))
            middle = ((at + 0.5) / torch.tensor(sides)).double().where(live[..., None], torch.nan)
            response.exact = True
            return torch.where(live[..., None], at, -1), sides, middle, ""
    centre = torch.stack([response.centre(axis) for axis in axes], -1)
    moments = torch.stack([response.along[axis] for axis in axes], -1).double()
    weight = response.squares.double()[..., None].expand_as(moments)
    centre = pooled(moments, weight, centre, live).where(live[..., None], torch.nan)
    cells = lattice(centre, live)
    return (nowhere, (), centre, BLURRED) if cells is None else (*cells, centre, "")


def conclude(roles: dict[str, Places]) -> None:
    """Tokens that do not depend on the input have no place, if others of the same attention have one; nor has attention
    between channels."""
    channels = roles.pop("channels", None)
    placed = [each for each in roles.values() if not each.why]
    for role, each in roles.items():
        if placed and each.why == NOTHING:
            roles[role] = Places(each.at, each.image)
    # Attention between channels: each channel of the values depends on one place, and their tokens on many.
    if channels is None or channels.why or roles["value"].why != BLURRED:
        return
    # Centres of a few real channels may fall into rows and columns by chance; tokens of an image fill theirs.
    grid = math.prod(channels.sides) == channels.at.shape[-2]
    if grid and bool((channels.at != channels.at[..., :1, :]).any()):
        why = "it attends between channels, not between tokens"
        for role, each in roles.items():
            roles[role] = Places(each.at, each.image, why=why)


def standing(queries: Places, keys: Places) -> Tensor | None:
    """The key at which each query stands, (..., queries); None where one has no place or stands between keys."""
    if queries.centre is None or keys.centre is None or queries.at.shape[:-2] != keys.at.shape[:-2]:
        return None
    if queries.why or keys.why or keys.at.shape[-2] < 2:
        return None
    # Half way between two keys a query stands at neither: nearness has to be clear.
    (first, second), at = (each.unbind(-1) for each in torch.cdist(queries.centre, keys.centre).topk(2, largest=False))
    return at[0] if bool((first < NEARER * second).all()) else None
