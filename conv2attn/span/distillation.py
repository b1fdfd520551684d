"""Replaces attention heads by convolutions where that costs little, and measures the loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from statistics import median
from time import perf_counter
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import Patterns, Selection, call_network, check_network, first_weight
from conv2attn.choices import check_distilling
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.generators import devices_of, generators_kept
from conv2attn.layers.attention import DistilledAttention
from conv2attn.layers.attention.distilled import DistilledPlan
from conv2attn.networks.conversion.network import Network
from conv2attn.networks.copies import copy_network, evaluating
from conv2attn.networks.positions import Unread
from conv2attn.networks.reading import Perturbed
from conv2attn.networks.reading.records import Read, Reads
from conv2attn.networks.reading.replay_result import MOST_RESIDUAL
from conv2attn.networks.reading.sublayers import Sublayer, parts_of_matrices, sublayer_of
from conv2attn.span.attending import ask_attention
from conv2attn.span.distillation_report import Distillation, DistilledLayer
from conv2attn.span.graded_facts.forced_runs import ByImage, ForcedRuns, effect_of
from conv2attn.span.graded_facts.replacing import Replacing, batches_of, by_displacement, checked_labels, displacements
from conv2attn.span.reading import rows_of_read
from conv2attn.theory.basis import Sides

FEWEST_IMAGES = 6
"""Two images to measure mean attention, two to choose heads, and two held out: two are enough for a standard error."""
ROUNDS = 5
"""Timed runs of each of two networks, which alternate; the median is reported."""
KERNEL_PARTS = ("kernel", "scale", "from_leading", "by_leading")
SCORE_PARTS = ("query", "query_bias", "key", "key_bias")


@final
@dataclass(frozen=True, eq=False)
class KernelHead:
    """The parts of a head of `conv2attn.layers.attention.distilled`, and the map (queries, keys) that they define."""

    kernel: Tensor
    scale: Tensor
    from_leading: Tensor
    by_leading: Tensor
    map: Tensor


def kernel_head(mean: Tensor, sides: Sides, leading: int, size: int) -> KernelHead | str:
    """The convolution nearest to the mean attention of a head, (queries, keys); or the reason why there is none.

    A tap is the mean over all pairs of tokens with the tap's displacement, in a kernel of `size` tokens per side. Every
    query keeps the sum of its attention over the pixels. Leading tokens keep their mean attention, as queries and as
    keys.
    """
    code, grid = displacements(sides), mean[leading:, leading:]
    _, table = by_displacement(grid, code)
    # `box` has every displacement of the grid. A wider kernel is zero beyond them: on a grid of side 2, a kernel of
    # size 7 has taps at -1, 0 and 1, and zeros at -3, -2, 2 and 3.
    box = table.unflatten(0, tuple(2 * side - 1 for side in sides))
    reach = tuple(min(size // 2, side - 1) for side in sides)
    inside = tuple(slice(side - 1 - r, side + r) for side, r in zip(sides, reach, strict=True))
    kernel = torch.zeros([size] * len(sides), dtype=mean.dtype)
    kernel[tuple(slice(size // 2 - r, size // 2 + r + 1) for r in reach)] = box[inside]
    cut = torch.zeros_like(box)
    cut[inside] = box[inside]
    part = cut.flatten()[code]
    total = part.sum(-1)
    if bool(((part > 0) & (grid == 0)).any()):
        return "some queries never read a displacement that others read"
    if not bool((total > 0).all()):
        return "some queries read nothing within the kernel"
    # One factor per query restores the sum of its row, which the cut to the kernel and the border change.
    scale = grid.sum(-1) / total
    result = mean.clone()
    result[leading:, leading:] = part * scale[:, None]
    return KernelHead(kernel, scale, mean[leading:, :leading], mean[:leading], result.float())


@final
@dataclass(frozen=True, eq=False)
class Candidate:
    """A layer whose heads may become convolutions: its parts, its heads as convolutions, and the cost of each alone.

    `sublayer` is the module that is replaced, and `note` says why some heads cannot be.
    """

    name: str
    sides: Sides
    leading: int
    weights: tuple[Tensor, Tensor | None]
    sublayer: Sublayer
    heads: dict[int, KernelHead]
    costs: dict[int, float]
    note: str

    @property
    def groups(self) -> list[tuple[int, ...]]:
        """Heads that are replaced together: first all heads whose scores cannot be read, then every other head alone.

        Empty if a head whose scores cannot be read cannot be replaced either.
        """
        # A head that stays needs its scores in the new layer. So heads without readable scores are replaced all at once
        # or the layer stays, and no other head is replaced before them.
        unread = self.sublayer.unread
        if not set(unread) <= self.heads.keys():
            return []
        return [*([unread] if unread else []), *((head,) for head in self.heads if head not in unread)]


Group = tuple[Candidate, tuple[int, ...]]


def distil(
    network: Network,
    example_input: Any,
    *,
    max_loss: float,
    kernel_size: int = 7,
    heads: Mapping[str, Sequence[int]] | None = None,
    labels: Tensor | Sequence[int] | None = None,
    only: Patterns = (),
    skip: Patterns = (),
) -> Distillation[Network]:
    """A copy of a network in which heads are replaced by depthwise convolutions that cost at most `max_loss` together.

    One third of the images gives the kernel of a head: its mean attention by displacement, cut to a box. Another third
    chooses heads. Heads that cost at most `max_loss` alone are sorted by their costs, and bisection finds how many of
    them cost at most `max_loss` together. If the cost does not grow with the number of heads, more heads might fit. The
    last third measures the loss of the copy. A cost is the mean of `|y' - y| / |y|` over images plus two standard
    errors, where y is the first tensor of the output. With labels, it is the mean increase of the cross entropy plus
    two standard errors.

    A layer can be distilled if its module maps tokens (batch, tokens, channels) on one grid to tokens by
    `sum_h A_h x M_h^T + b`, and the attention of heads that stay is a softmax of inner products of affine maps of x.
    Other layers are kept. The copy takes images of the same size only.

    Args:
        example_input: a tensor of at least six images, or a loader of such batches.
        max_loss: the largest cost of all convolutions together, positive and finite.
        kernel_size: size of the kernels along every axis, odd.
        heads: the heads that may be replaced, by layer; all by default.
        labels: the class of each image.
        only, skip: glob patterns of the names of layers that may be distilled, and of layers to keep.
    Raises:
        UsageError: an argument has a wrong type (C2A006) or is out of range (C2A001), there are fewer than six images,
            or no layer or head has such a name (C2A006, C2A008).
        UnsupportedError: the copy differs from the network with the same convolutions in place of attention (C2A122).
    Examples:
        >>> import conv2attn, torch
        >>> class Attention(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.qkv = torch.nn.Linear(4, 12)
        ...
        ...     def forward(self, tokens):
        ...         query, key, value = self.qkv(tokens).unflatten(-1, (3, 2, 2)).permute(2, 0, 3, 1, 4)
        ...         return ((query @ key.mT).softmax(-1) @ value).transpose(1, 2).flatten(2)
        >>> class Network(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.patches, self.attention = torch.nn.Conv2d(1, 4, 2, 2), Attention()
        ...
        ...     def forward(self, image):
        ...         return self.attention(self.patches(image).flatten(2).mT).mean(1)
        >>> distillation = conv2attn.distil(Network(), torch.randn(6, 1, 6, 8), max_loss=10.0, kernel_size=3)
        >>> [len(layer.convolved) for layer in distillation.layers]
        [2]

    Source: the reverse of Cordonnier et al. 2020, Theorem 1. docs/heads.md describes tables in place of attention.
    """
    check_network(network)
    check_distilling(max_loss, kernel_size)
    images = torch.cat(batches_of(network, example_input))
    if len(images) < FEWEST_IMAGES:
        reason = f"distilling needs {FEWEST_IMAGES} images, a third of them held out; there are {len(images)}"
        raise UsageError("C2A006", reason, "Pass more images with --inputs.")
    with generators_kept(devices_of(network, images)):
        classes = checked_labels(labels, len(images))
        # Files are often sorted by class. So every third image is held out, and `Replacing` measures on every second of
        # the other images.
        held_out = torch.arange(len(images)) % 3 == 2
        chosen_by, held_classes = (None if classes is None else classes[part] for part in (~held_out, held_out))
        replacing = Replacing(network, images[~held_out], "position", heads, chosen_by)
        reads = ask_attention(network, images[~held_out], only=Selection.of(only, skip)).reads()
        replacing.check(reads)
        candidates = candidates_of(network, reads, replacing, images[~held_out], kernel_size)
        chosen = chosen_groups([each for each in candidates if isinstance(each, Candidate)], replacing.runs, max_loss)
        layers = tuple(row_of(each, chosen) for each in candidates)
        if not chosen:
            return Distillation(network, layers, kernel_size, max_loss, int(held_out.sum()))
        distilled = with_layers_distilled(network, chosen)
        effect = effect_of(changes_held_out(network, distilled, chosen, images[held_out], held_classes))
        seconds = median_times((network, distilled), images[held_out])
        return Distillation(distilled, layers, kernel_size, max_loss, int(held_out.sum()), effect, seconds)


def candidates_of(
    network: nn.Module, reads: Reads, replacing: Replacing, images: Tensor, kernel_size: int
) -> list[Candidate | DistilledLayer]:
    """Every layer, with the costs of replacing its heads or with the reason why it is kept."""
    candidates: list[Candidate | DistilledLayer] = []
    perturbed = Perturbed(network, images)
    for read in reads:
        candidate = candidate_of(read, reads, perturbed, replacing, kernel_size)
        if isinstance(candidate, Candidate):
            candidates.append(candidate)
            continue
        replacing.refuse(read.name, candidate)
        count = read.attention.shape[1] if isinstance(read.attention, Tensor) else 0
        candidates.append(DistilledLayer(read.name, count, (), (None,) * count, candidate))
    return candidates


def candidate_of(
    read: Read, reads: Reads, perturbed: Perturbed, replacing: Replacing, kernel_size: int
) -> Candidate | str:
    """A layer with the cost of each of its heads as a convolution, or the reason why it is kept."""
    rows = rows_of_read(read, None, None, reads.counts)
    if isinstance(rows, Unread):
        return rows.reason
    if read.weights is None:
        return read.notes[0]
    sides, leading = rows.grid.keys, rows.extra
    why, mean = replacing.mean_of(read, sides, leading)
    if mean is None:
        return why
    sublayer = sublayer_of(perturbed, read.name, read.weights[0], leading + prod(sides))
    if isinstance(sublayer, str):
        return sublayer
    wanted = range(len(mean)) if replacing.only is None else replacing.only.get(read.name, ())
    heads, costs, notes = dict[int, KernelHead](), dict[int, float](), [sublayer.why] if sublayer.why else []
    for head in sorted(set(wanted)):
        if not 0 <= head < len(mean):
            replacing.refuse(read.name, f"there is no head {head}: heads are numbered from 0 to {len(mean) - 1}")
        as_kernel = kernel_head(mean[head], sides, leading, kernel_size)
        if isinstance(as_kernel, str):
            notes.append(as_kernel)
            continue
        heads[head] = as_kernel
        costs[head] = cost(replacing.runs.changes({read.name: {head: as_kernel.map}}))
    note = "; ".join(dict.fromkeys(notes))
    return Candidate(read.name, sides, leading, read.weights, sublayer, heads, costs, note)


def cost(values: ByImage) -> float:
    """The mean over images plus two standard errors, of the increase of the cross entropy or of the output's change."""
    # The choice is made on a few images and judged on others. A mean without standard errors would often be too low.
    numbers = values.change if values.loss is None else values.loss
    return float(numbers.mean() + 2 * numbers.std() / len(numbers) ** 0.5)


def chosen_groups(candidates: Sequence[Candidate], runs: ForcedRuns, max_loss: float) -> list[Group]:
    """The cheapest groups of heads, which cost at most `max_loss` when they are replaced together."""
    alone: list[tuple[float, Group]] = []
    for candidate in candidates:
        least = 0.0
        for group in candidate.groups:
            one: Group = (candidate, group)
            own = candidate.costs[group[0]] if len(group) == 1 else cost(runs.changes(maps_of([one])))
            # A layer's heads without readable scores are replaced first, so every other head costs at least as much as
            # they do.
            least = max(least, own) if group == candidate.sublayer.unread else least
            alone.append((max(least, own), one))
    order = [group for least, group in sorted(alone, key=lambda pair: pair[0]) if least <= max_loss]
    # Every trial is a run on all images, so bisection is used. The cost need not grow with the number of groups, so
    # only a number of groups that was tried is accepted.
    fits, most = 0, len(order)
    while fits < most:
        middle = (fits + most + 1) // 2
        if cost(runs.changes(maps_of(order[:middle]))) <= max_loss:
            fits = middle
        else:
            most = middle - 1
    return order[:fits]


def maps_of(groups: Sequence[Group]) -> dict[str, dict[int, Tensor]]:
    """The maps of heads by layer."""
    maps: dict[str, dict[int, Tensor]] = {}
    for candidate, heads in groups:
        maps.setdefault(candidate.name, {}).update({head: candidate.heads[head].map for head in heads})
    return maps


def row_of(candidate: Candidate | DistilledLayer, chosen: Sequence[Group]) -> DistilledLayer:
    """The row of a layer in the result."""
    if isinstance(candidate, DistilledLayer):
        return candidate
    count = len(candidate.weights[0])
    convolved = tuple(sorted(maps_of(chosen).get(candidate.name, {})))
    costs = tuple(candidate.costs.get(head) for head in range(count))
    return DistilledLayer(candidate.name, count, convolved, costs, candidate.note)


def with_layers_distilled(network: Network, chosen: Sequence[Group]) -> Network:
    """A copy of the network with these heads as convolutions."""
    distilled: Network = copy_network(network).eval()
    for name, heads in maps_of(chosen).items():
        candidate = next(each for each, _ in chosen if each.name == name)
        path = candidate.sublayer.name
        like = first_weight(distilled.get_submodule(path))
        assert like is not None
        parent, _, child = path.rpartition(".")
        setattr(distilled.get_submodule(parent), child, distilled_layer(candidate, sorted(heads), like))
    return distilled


def distilled_layer(candidate: Candidate, convolved: Sequence[int], like: Tensor) -> DistilledAttention:
    """The layer with these heads as convolutions, in the dtype and on the device of `like`."""
    # Heads that attend come first, then the convolutions: each kind is one block of the values, and of the outputs.
    matrices, bias = candidate.weights
    attending = [head for head in range(len(matrices)) if head not in convolved]
    values, outputs = zip(*parts_of_matrices(matrices[[*attending, *convolved]]), strict=True)
    heads, scores = [candidate.heads[head] for head in convolved], candidate.sublayer.scores
    d_out, d_in = matrices.shape[1:]
    parts = {
        "value": torch.cat(values),
        "output": torch.cat(outputs, 1),
        "bias": torch.zeros(d_out) if bias is None else bias,
        **{name: torch.stack([getattr(head, name) for head in heads]) for name in KERNEL_PARTS},
    }
    d_key = 0
    for name in SCORE_PARTS:
        part = torch.empty(0, *([d_in] if name in ("query", "key") else []))
        if attending:
            assert scores is not None
            part, d_key = getattr(scores, name)[attending].flatten(0, 1), scores.query.shape[1]
        parts[name] = part
    sizes = (len(attending), len(convolved), d_in, d_key, len(values[0]), d_out)
    kernel_size = tuple(heads[0].kernel.shape)
    layer = DistilledAttention(
        DistilledPlan(candidate.sides, candidate.leading, *sizes, kernel_size, candidate.sublayer.returned)
    ).to(like)
    for name, part in parts.items():
        layer.get_parameter(name).data = part.to(like).contiguous()
    return layer.eval()


def changes_held_out(
    network: nn.Module, distilled: nn.Module, chosen: Sequence[Group], images: Tensor, labels: Tensor | None
) -> ByImage:
    """The change of the output on held-out images.

    Raises:
        UnsupportedError: `distilled` differs from the network with the same convolutions in place of attention
            (C2A122).
    """
    # The same outputs are computed in two ways: by the copy as it will be used, and by the network with its attention
    # replaced. If they differ, a weight or a table is wrong, which would otherwise pass as a loss of accuracy.
    runs = ForcedRuns(network, images, images, labels)
    forced = runs.outputs(maps_of(chosen)).flatten(1)
    outputs = ForcedRuns(distilled, images, images, None).plain
    apart = float(((outputs.flatten(1) - forced).norm(dim=-1) / forced.norm(dim=-1)).max())
    if not apart <= MOST_RESIDUAL:
        reason = f"the distilled network differs by {apart:.1e} from the network with the same maps as attention"
        raise UnsupportedError("C2A122", reason, "Leave layers out with --skip.")
    return runs.changed(outputs)


def median_times(networks: Sequence[nn.Module], images: Tensor) -> tuple[float, float]:
    """The median time of a run of each of two networks on these images, in seconds."""
    # The networks alternate, so a slow phase of the machine affects both. The first round fills caches and is not
    # timed.
    times: tuple[list[float], list[float]] = ([], [])
    for round_ in range(ROUNDS + 1):
        for network, taken in zip(networks, times, strict=True):
            start = perf_counter()
            with evaluating(network), torch.no_grad():
                call_network(network, images)
            if round_:
                taken.append(perf_counter() - start)
    return median(times[0]), median(times[1])
