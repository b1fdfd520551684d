"""Which rows of attention are of which image, and whether its tokens lie alike in all images and calls.

No order of axes is assumed. Two images run together: noise in one of them alone moves its own rows. With attention
silenced, a noise and its ramps then tell the centre of each token of both images, as in `places`. Where these differ
by more than half a step, the second image is asked alone, as the first was.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from tempfile import SpooledTemporaryFile
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.places import EPSILON, IN_MEMORY, SILENT, Kind, Places
from conv2attn.networks.reading.responses import ROLES, Stored
from conv2attn.networks.reading.rounds import places as places_of
from conv2attn.networks.reading.watch import Attended, Rule, Running, Silence, Watch

Shape = tuple[int, ...]
Ramp = tuple[int, int]
"""An axis of the input, and the number of blocks within which the ramp is constant: 0 for one pixel each."""
HeadAxis = tuple[int, int]
"""The axis of heads among those in front of the queries and keys of one image, and the number of heads."""
Answer = tuple[str, int, str]
"""The name of an attention, the number of a call of it in a run, and a role: one of `ROLES`, or its weights."""
SEVERAL_IMAGES = "a row of its attention takes in several images"
NO_IMAGE = "the order of images in the rows of its attention is not known: pass one image at a time"
PLACES_DIFFER = "its tokens lie elsewhere in another image: pass one image at a time"
CALLS_DIFFER = "its module is called several times in a run, on tokens that lie elsewhere: use one module for each call"
WEIGHTS = "weights"


@final
@dataclass(frozen=True)
class ImageRows:
    """Where images stand in what is in front of queries and keys: (outer, images, inner) along one `axis` of it.

    `lead` is its shape for one image.
    """

    lead: Shape
    axis: int = 0
    inner: int = 1

    def split(self, tensor: Tensor) -> Tensor:
        """A tensor (*lead of all images, ...) as (images, *lead, ...)."""
        inside = self.lead[self.axis]
        apart = tensor.unflatten(self.axis, (inside // self.inner, -1, self.inner))
        return apart.movedim(self.axis + 1, 0).flatten(self.axis + 1, self.axis + 2)

    def in_front(self, tensor: Tensor) -> Tensor:
        """The same with one axis of images, and of what shares it with them, in front of the other axes."""
        return self.split(tensor).movedim(self.axis + 1, 1).flatten(0, 1)

    @property
    def plain(self) -> bool:
        """Whether images are in front already."""
        return self.axis == 0 and self.inner == self.lead[0]


@final
@dataclass(frozen=True, eq=False)
class Centres:
    """Sums of the responses of the tokens of a call: `squares` (..., tokens), and those times each `Ramp`, in float32.

    `lead` is what is in front of the queries and keys of its attention.
    """

    lead: Shape
    squares: Tensor
    along: dict[Ramp, Tensor]

    def numbers(self, place: Places) -> list[Tensor]:
        """Which tokens respond, and their centres in the sides of the input along the axes of a place."""
        live = self.squares > SILENT * float(self.squares.max())
        centres = (self.along[each] / self.squares.clamp_min(1e-37) for each in ramps_of(place))
        return [live.double(), *(torch.where(live, each, 0) for each in centres)]


def ramps_of(place: Places) -> list[Ramp]:
    """The ramps that tell the cells of a place: constant within the blocks of tokens that are one block each."""
    exact = bool(((place.kind == Kind.EXACT) | (place.kind == Kind.NONE)).all())
    return [(axis, side if exact else 0) for axis, side in zip(place.axes, place.sides, strict=False)]


def rows_of_images(
    alone: Perturbed, inputs: Any, places: Mapping[str, Mapping[str, Places]]
) -> tuple[dict[str, ImageRows], dict[str, str]]:
    """The rows of each attention, and the reasons why places of one image are not those of all images and calls.

    Args:
        alone, inputs: one image, perturbed for `places`; and inputs with others.
    """
    pair = alone.others_of(inputs, 0, 2)
    leads, calls = dict[str, Shape](), Counter[str]()

    def see(attended: Attended, _: Running) -> None:
        calls[attended.name] += 1
        leads.setdefault(attended.name, tuple(attended.attention.shape[:-2]))

    alone.run(Watch(alone.network, see))
    rows = {name: ImageRows(lead, 0, lead[0]) for name, lead in leads.items() if lead}
    rows, reasons = (rows, dict[str, str]()) if pair is None else asked(pair, leads)
    if pair is None and max(calls.values(), default=1) == 1:
        return rows, reasons
    ramps = {each for roles in places.values() for place in roles.values() for each in ramps_of(place)}
    one, two = centres_of(alone, ramps), {} if pair is None else centres_of(pair, ramps)
    second: Mapping[str, Mapping[str, Places]] | None = None
    for name, role, place in ((name, role, place) for name, each in places.items() for role, place in each.items()):
        first, more = (
            [each for (key, _, part), each in found.items() if (key, part) == (name, role)] for found in (one, two)
        )
        if name not in rows or name in reasons or not place.axes or not first:
            continue
        if differing(first, first[0], place, rows[name]):
            reasons[name] = CALLS_DIFFER
        elif differing(more, first[0], place, rows[name]):
            # Centres of blurred tokens depend on the image a little: those of another image are asked as of the first.
            other = alone.others_of(inputs, 1, 2)
            second = second if second is not None else {} if other is None else places_of(other)
            theirs = second.get(name, {}).get(role)
            # Where blur hides the cells of another image, its centres must be those of the first on average.
            hidden = theirs is None or not theirs.sides
            if differing(more, first[0], place, rows[name], mean=True) if hidden else not same_cells(place, theirs):
                reasons[name] = PLACES_DIFFER
    return rows, reasons


def same_cells(one: Places, other: Places | None) -> bool:
    """Whether tokens lie in the same cells."""
    if other is None or one.sides != other.sides or one.kind.shape != other.kind.shape:
        return False
    return bool((one.kind == other.kind).all() and (one.at == other.at).all())


def asked(pair: Perturbed, leads: Mapping[str, Shape]) -> tuple[dict[str, ImageRows], dict[str, str]]:
    """The rows of each attention, or why they are not known, from noise in each of two images alone."""
    rows, reasons = dict[str, ImageRows](), dict[str, str]()
    missing = {name for name, lead in leads.items() if lead}
    inputs = [pair, *pair.others()]
    moved: dict[str, dict[int, Tensor]] = {}
    for each in inputs:
        if each.shape is None or each.shape[each.batch] != 2:
            continue
        moved = {name: calls for name, calls in answering(each).items() if name in missing}
        for name, calls in moved.items():
            if not any(bool(call.any()) for call in calls.values()) and each is not inputs[-1]:
                continue
            missing.discard(name)
            found = of_calls(list(calls.values()), leads[name])
            if isinstance(found, str):
                reasons[name] = found
            else:
                rows[name] = found
        if not missing:
            break
    return rows, reasons | dict.fromkeys(missing, NO_IMAGE)


def of_calls(calls: list[Tensor], lead: Shape) -> ImageRows | str:
    """The rows of all calls, each (2, *lead of two images): which rows answer noise in each image."""
    if any(bool(call.all(0).any()) for call in calls):
        return SEVERAL_IMAGES
    if all(call.shape[1:] == lead for call in calls):  # one image a call: calls are joined in their order
        images = [tuple(call.flatten(1).any(1).tolist()) for call in calls]
        one, two, half = (True, False), (False, True), len(calls) // 2
        in_order = images in ([one] * half + [two] * half, [one, two] * half)
        return ImageRows(lead, 0, lead[0]) if in_order else NO_IMAGE
    found = [of_one(call, lead) for call in calls]
    return found[0] if found[0] is not None and all(each == found[0] for each in found) else NO_IMAGE


def of_one(answers: Tensor, lead: Shape) -> ImageRows | None:
    """The axis, and the rows of an image inside of it, that fit the rows which answer noise in each image."""
    shape = tuple(answers.shape[1:])
    doubled = [axis for axis, (two, one) in enumerate(zip(shape, lead, strict=False)) if two == 2 * one]
    if len(shape) != len(lead) or prod(shape) != 2 * prod(lead) or len(doubled) != 1:
        return None
    (axis,) = doubled
    for inner in range(lead[axis], 0, -1):
        if lead[axis] % inner:
            continue
        second = torch.arange(shape[axis]) // inner % 2
        wrong = answers.movedim(axis + 1, 1).reshape(2, shape[axis], -1).any(2)
        if not bool((wrong[0] & (second == 1)).any() or (wrong[1] & (second == 0)).any()):
            return ImageRows(lead, axis, inner)
    return None


def answering(pair: Perturbed) -> dict[str, dict[int, Tensor]]:
    """For each attention and call, which rows of its own run answer noise in each of two images: (2, *lead)."""
    generator = torch.Generator().manual_seed(2)
    assert pair.shape is not None
    noise = torch.randn(pair.shape, generator=generator, device="cpu", dtype=torch.float64) * EPSILON
    found = defaultdict[str, dict[int, Tensor]](dict)
    with SpooledTemporaryFile(IN_MEMORY) as file:
        stored = Stored(file)

        def keep(answer: Answer, tensor: Tensor, _: Shape) -> None:
            stored.put("base", (f"{answer[0]} {answer[1]}", answer[2]), tensor)

        each_call(pair, lambda _, own: own, keep)
        squares = dict[Answer, list[Tensor]]()
        leads = dict[tuple[str, int], Shape]()
        for image in (0, 1):
            alone = torch.zeros_like(noise)
            part = noise.narrow(pair.batch, image, 1)
            alone.narrow(pair.batch, image, 1).copy_(part)

            def respond(answer: Answer, tensor: Tensor, lead: Shape) -> None:
                change = tensor - stored.get("base", (f"{answer[0]} {answer[1]}", answer[2]))
                leads[answer[:2]] = lead
                squares.setdefault(answer, []).append((change * change).sum((-1, -2)))

            each_call(pair, lambda _, own: own, respond, alone)
    # Axes that an answer lacks could be those of images or of heads: where others have all, it is not asked.
    by_axes = sorted(squares.items(), key=lambda item: item[1][0].ndim != len(leads[item[0][:2]]))
    for (name, call, _), each in by_axes:
        lead = leads[name, call]
        if each[0].ndim != len(lead) and call in found[name] and bool(found[name][call].any()):
            continue
        of_rows = as_rows(torch.stack(each) if len(each) == 2 else torch.zeros(0), lead)
        if of_rows is not None:
            live = of_rows > SILENT * float(of_rows.max())
            found[name][call] = found[name].get(call, torch.zeros_like(live)) | live
    return found


def as_rows(tensor: Tensor, lead: Shape) -> Tensor | None:
    """A tensor (..., *lead of a query, key or value) with the axes of the attention; None where these do not fit."""
    front, own = tensor.shape[:1], tuple(tensor.shape[1:])
    if prod(own) == prod(lead):
        return tensor.reshape(*front, *lead)
    try:
        return tensor.reshape(*front, *[1] * (len(lead) - len(own)), *own).expand(*front, *lead)
    except RuntimeError:
        return None


def each_call(
    perturbed: Perturbed, rule: Rule, use: Callable[[Answer, Tensor, Shape], None], noise: Tensor | None = None
) -> None:
    """Passes on the queries, keys, values and weights of each call of each attention, with the axes in front."""
    calls = Counter[str]()

    def see(attended: Attended, _: Running) -> None:
        name, lead = attended.name, tuple(attended.attention.shape[:-2])
        weights = attended.attention.detach().double()
        keys = torch.arange(1.0, weights.shape[-1] + 1, dtype=torch.float64, device=weights.device).sqrt()
        use((name, calls[name], WEIGHTS), (weights @ keys)[..., None], lead)
        for role in ROLES:
            tensor = getattr(attended, role)
            if tensor is not None and tensor.is_floating_point():
                use((name, calls[name], role), tensor.double(), lead)
        calls[name] += 1

    perturbed.run(Watch(perturbed.network, see, rule), noise)


def centres_of(together: Perturbed, ramps: set[Ramp]) -> dict[Answer, Centres]:
    """The centres of the tokens of each call, with attention silenced."""
    shape = together.shape
    if shape is None or not ramps:
        return {}
    # All images have the same noise, so that their centres differ by their places alone.
    generator, of_one = torch.Generator().manual_seed(3), list(shape)
    of_one[together.batch] = 1
    noise = torch.randn(of_one, generator=generator, device="cpu", dtype=torch.float64).expand(shape) * EPSILON
    found = dict[Answer, Centres]()
    with SpooledTemporaryFile(IN_MEMORY) as file:
        stored = Stored(file)

        def keep(answer: Answer, tensor: Tensor, _: Shape) -> None:
            stored.put("base", (f"{answer[0]} {answer[1]}", answer[2]), tensor)

        def move(answer: Answer, tensor: Tensor, lead: Shape) -> None:
            key = (f"{answer[0]} {answer[1]}", answer[2])
            change = tensor - stored.get("base", key)
            stored.put("moved", key, change)
            found[answer] = Centres(lead, (change * change).sum(-1).float(), {})

        each_call(together, Silence(), keep)
        each_call(together, Silence(), move, noise)
        for asked_ramp in sorted(ramps):
            axis, blocks = asked_ramp
            count = blocks or shape[axis]
            ramp = (torch.arange(shape[axis]) * count // shape[axis] + 0.5).double() / count
            ramp = ramp.reshape([-1 if each == axis else 1 for each in range(len(shape))])

            def along(answer: Answer, tensor: Tensor, _: Shape, key: Ramp = asked_ramp) -> None:
                of_call = (f"{answer[0]} {answer[1]}", answer[2])
                change = tensor - stored.get("base", of_call)
                found[answer].along[key] = (change * stored.get("moved", of_call)).sum(-1).float()

            each_call(together, Silence(), along, noise * ramp)
    return found


def differing(parts: Sequence[Centres], first: Centres, place: Places, rows: ImageRows, mean: bool = False) -> bool:
    """Whether the tokens of some images or calls do not lie where those of the first do; each, or their mean.

    The noise of all is the same. Tokens of two cells are at least a step apart, so that half a step tells them.
    """
    steps = [1.0, *(1 / side for side in place.sides)]
    wanted = [of_images(each, first.lead, rows) for each in first.numbers(place)]
    for centres in parts:
        for each, one, step in zip(centres.numbers(place), wanted, steps, strict=True):
            here = of_images(each, centres.lead, rows)
            if here is None or one is None or here.shape[1:] != one.shape[1:]:
                return True
            apart = (here - one).abs()
            if bool(((apart.mean(-1) if mean else apart) >= step / 2).any()):
                return True
    return False


def of_images(tensor: Tensor, lead: Shape, rows: ImageRows) -> Tensor | None:
    """Numbers (..., tokens) of a call as (images, *lead, tokens); None where the axes do not fit."""
    front = as_rows(tensor.movedim(-1, 0), lead)
    if front is None:
        return None
    each = front.movedim(0, -1)
    return each[None] if lead == rows.lead else rows.split(each)


def by_head(attention: Tensor, axis: int, heads: int) -> Tensor:
    """Attention (images, *lead, queries, keys) as (images and windows, heads, queries, keys)."""
    tokens = attention.shape[-2:]
    if attention.ndim == 4:  # heads share the axis with windows
        attention = attention.unflatten(1, (-1, heads) if axis == 1 else (heads, -1))
    return attention.movedim(1 + axis, -3).reshape(-1, heads, *tokens)


def axis_of_heads(places: Mapping[str, Places], lead: Shape) -> HeadAxis | None:
    """The axis of the rows of one image that lie at the same tokens, which are heads; None where the places tell none.

    Rows that lie at tokens of their own are windows.
    """
    place = places.get("key") or places.get("value")
    if place is None or place.centre is None or not lead:
        return None
    at = as_rows(place.at.flatten(-2).movedim(-1, 0), lead)
    if at is None:
        return None
    if len(lead) == 1:
        for heads in (each for each in range(lead[0], 0, -1) if lead[0] % each == 0):
            for axis, shape in ((1, (-1, heads)), (0, (heads, -1))):
                if constant(at.unflatten(1, shape), 1 + axis):
                    return axis, heads
    wide = [axis for axis, count in enumerate(lead) if count > 1 and constant(at, 1 + axis)]
    return (wide[0], lead[wide[0]]) if len(wide) == 1 else None


def constant(tensor: Tensor, axis: int) -> bool:
    """Whether numbers do not change along an axis."""
    return bool((tensor == tensor.narrow(axis, 0, 1)).all())
