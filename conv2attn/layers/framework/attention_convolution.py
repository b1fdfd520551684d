"""Convolutions whose basis is given with each input, or computed from it (Andreoli 2019, Eqs. 8 to 13)."""

import math
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from conv2attn.errors import UsageError
from conv2attn.layers.framework.mechanisms import Mechanism, as_parameter
from conv2attn.layers.framework.pairs import AllPairs, Edges
from conv2attn.theory.basis import Basis, Combination, Pattern, Weights, basis_of, evaluate, terms


@final
class BasisConvolution(nn.Module):
    """`y = sum_k P_k x M_k^T + b` with trained `M_k`; the `P_k` are an argument of each call.

    The same parameters run on every graph, grid and sequence with this number of terms.

    Args:
        d_in, d_out: channels.
        terms: number of `P_k`.
        mixtures: H of a separable convolution, whose `M_k = sum_h coefficients[h, k] taps[h]` (Eq. 9); None for free
            `M_k`.
        rank: `M_k` is a product through this many channels (Eq. 13); None for no constraint.
        groups: diagonal blocks of each `M_k`, as in torch.nn.Conv2d.
    Raises:
        UsageError: groups that do not divide the channels or the rank (C2A007).
    Source: Andreoli 2019, Eqs. (8), (9), (13).
    Examples:
        >>> import conv2attn, torch
        >>> from conv2attn.theory.basis import Shift
        >>> layer = conv2attn.BasisConvolution(d_in=3, d_out=4, terms=2)
        >>> left_and_right = Shift(((0, -1), (0, 1)))
        >>> layer(torch.ones(1, 3, 5, 6), left_and_right).shape
        torch.Size([1, 4, 5, 6])
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        terms: int,
        *,
        mixtures: int | None = None,
        rank: int | None = None,
        groups: int = 1,
        bias: bool = True,
    ):
        super().__init__()
        if min(d_in, d_out, terms, mixtures or 0, rank or 0) < 0 or groups < 1:
            raise UsageError(
                "C2A001",
                f"sizes {d_in}, {d_out}, {terms}, {mixtures}, {rank}, {groups} are too small",
                "Pass positive whole numbers.",
            )
        if d_in % groups or d_out % groups or (rank or 0) % groups:
            raise UsageError(
                "C2A007",
                f"groups={groups} does not divide all of d_in={d_in}, d_out={d_out}, rank={rank}",
                "Pass groups that divide all three.",
            )
        self.terms, self.groups = terms, groups
        matrices = terms if mixtures is None else mixtures
        self.coefficients = None if mixtures is None else uniform((mixtures, terms), terms)
        self.value = None if rank is None else uniform((matrices, rank, d_in // groups), d_in // groups)
        self.output = uniform((matrices, d_out, (d_in if rank is None else rank) // groups), matrices * d_in // groups)
        self.bias = nn.Parameter(torch.zeros(d_out)) if bias else None

    def basis(self, structure: Any, dimensions: int = 1) -> Basis:
        """The layer on one structure: a family of operators on grids of this many dimensions.

        Raises:
            UsageError: the structure has another number of terms (C2A122).
        """
        if terms(structure) != self.terms:
            raise UsageError(
                "C2A122",
                f"a structure of {terms(structure)} terms for a layer of {self.terms}",
                "Pass a structure of that many terms.",
            )
        family = structure if self.coefficients is None else Combination(self.coefficients, structure)
        return basis_of(family, Weights(self.value, self.output, self.bias, self.groups), dimensions)

    def forward(self, image: Tensor, structure: Any) -> Tensor:
        """`image` (batch, d_in, *sides) mixed by `structure`: (batch, d_out, *queries)."""
        return evaluate(self.basis(structure, image.ndim - 2), image)


def uniform(shape: tuple[int, ...], fan: int) -> nn.Parameter:
    """A uniform parameter with variance 1 / (3 fan), as in the initialisation of torch.nn.Linear and convolutions."""
    bound = 1 / math.sqrt(max(fan, 1))
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


Join = Literal["sum", "mean", "concatenation"]


@final
class AttentionConvolution(nn.Module):
    """`y = sum_k a_k(x, z) x M_k^T + b` with a mechanism a; self-attention if z is x.

    `M_k = output_k value_k` (Eq. 13). Further heads may have a fixed basis that is an argument (Sec. 3.3, end).

    Args:
        mechanism: computes the weights of all heads; its last step is usually a softmax.
        value: (heads, d_head, d_in).
        output: (heads, d_out, d_head), or None for the identity: the heads are added up.
        bias: (d_out), or None.
        join: how heads without `output` are joined: their sum, their mean, or their concatenation, d_out = heads *
            d_head.
        of_values: the mechanism reads `value x` of its own head, as in graph attention networks, instead of x.
        given: the heads whose basis is an argument of each call.
    Examples:
        >>> import conv2attn, torch
        >>> attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        >>> layer = conv2attn.from_torch(attention)
        >>> type(layer).__name__
        'AttentionConvolution'
    """

    def __init__(
        self,
        mechanism: Mechanism,
        value: Tensor,
        output: Tensor | None = None,
        bias: Tensor | None = None,
        *,
        join: Join = "sum",
        of_values: bool = False,
        given: BasisConvolution | None = None,
    ):
        super().__init__()
        if join not in ("sum", "mean", "concatenation") or (output is not None and join != "sum"):
            raise UsageError(
                "C2A002",
                f"join={join!r} is not sum, mean or concatenation, or not sum with an output",
                "Pass join='sum', 'mean' or 'concatenation'; with an output, 'sum'.",
            )
        self.mechanism, self.value, self.output = mechanism, nn.Parameter(value), as_parameter(output)
        self.bias, self.join, self.of_values, self.given = as_parameter(bias), join, of_values, given

    def weights(self, image: Tensor, other: Tensor | None = None, mask: Tensor | Pattern | None = None) -> Tensor:
        """The `a_k`: (batch, heads, queries, keys), or (batch, heads, pairs) under a `Pattern`."""
        return self.attend(image, other, mask)[0]

    def basis(self, image: Tensor, other: Tensor | None = None, mask: Tensor | Pattern | None = None) -> Basis:
        """The layer on one image, without the `given` heads; with its attention fixed, the layer is linear."""
        if len(image) != 1:
            raise UsageError(
                "C2A120",
                f"the basis depends on the image, and there are {len(image)}",
                "Pass one image, or one basis for all.",
            )
        weights, _, pairs = self.attend(image, other, mask)
        heads, size = self.value.shape[:2]
        output: Tensor | None = self.output
        if self.join == "concatenation":
            # A concatenation is a sum of heads, each of which writes channels of its own.
            output = torch.eye(heads * size).to(self.value).unflatten(1, (heads, size)).movedim(1, 0)
        elif self.join == "mean":
            output = (torch.eye(size).to(self.value) / heads).expand(heads, -1, -1)
        return basis_of(pairs.operator(weights[0]), Weights(self.value, output, self.bias), image.ndim - 2)

    def forward(
        self,
        image: Tensor,
        other: Tensor | None = None,
        mask: Tensor | Pattern | None = None,
        structure: Any = None,
    ) -> Tensor:
        """`image` (batch, d_in, *sides) read by queries from `other`, by default from itself: (batch, d_out, *queries).

        Args:
            mask: in the log domain, -inf where a query must not read a key, broadcast to (batch, heads, queries, keys);
                or a pattern of the only pairs, in which case no tensor of the size queries x keys is formed.
            structure: the operators of the given heads.
        """
        weights, values, pairs = self.attend(image, other, mask)
        heads = pairs.mix(weights, values)
        if self.join == "concatenation":
            tokens = heads.movedim(1, 2).flatten(2)
        elif self.output is None:
            tokens = heads.mean(1) if self.join == "mean" else heads.sum(1)
        else:
            tokens = torch.einsum("bhqd,hod->bqo", heads, self.output)
        if self.bias is not None:
            tokens = tokens + self.bias
        result = tokens.mT.unflatten(2, pairs.queries)
        return result if self.given is None else result + self.given(image, structure)

    def attend(
        self, image: Tensor, other: Tensor | None, mask: Tensor | Pattern | None
    ) -> tuple[Tensor, Tensor, AllPairs | Edges]:
        """The weights, the values (batch, heads, keys, d_head), and the pairs that are scored."""
        if image.shape[1] != self.value.shape[2]:
            raise UsageError(
                "C2A120",
                f"an image of {image.shape[1]} channels for heads that read {self.value.shape[2]}",
                "Pass an image with that many channels.",
            )
        reader = image if other is None else other
        sides, queries = tuple(image.shape[2:]), tuple(reader.shape[2:])
        if isinstance(mask, Pattern) and mask.shape != (math.prod(queries), math.prod(sides)):
            raise UsageError(
                "C2A122",
                f"a mask of {mask.shape} tokens for queries {queries} and keys {sides}",
                "Pass a mask with one row for each query and one column for each key.",
            )
        # A mask that broadcasts in another way than was meant gives wrong attention without an error.
        if isinstance(mask, Tensor):
            require_scores(mask, (len(reader), len(self.value), math.prod(queries), math.prod(sides)))
        pairs = Edges(mask, queries) if isinstance(mask, Pattern) else AllPairs(sides, queries, mask)
        keys, readers = image.flatten(2).mT[:, None], reader.flatten(2).mT[:, None]
        values = torch.einsum("bkc,hdc->bkhd", keys[:, 0], self.value).movedim(2, 1)
        if self.of_values:
            keys, readers = values, values if other is None else readers @ self.value.mT
        return pairs.open(self.mechanism(keys, readers, pairs)), values, pairs


def require_scores(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Refuses a boolean mask, whose meaning differs between libraries, and one that does not broadcast to `shape`.

    Raises:
        UsageError: the mask cannot be added to scores (C2A122).
    """
    fits = mask.ndim <= len(shape) and all(m in (1, s) for m, s in zip(mask.shape[::-1], shape[::-1], strict=False))
    if not mask.is_floating_point() or not fits:
        tensor = f"{mask.dtype} {tuple(mask.shape)}"
        raise UsageError(
            "C2A122",
            f"a mask is added to scores {shape}, with -inf at unread keys, but this is {tensor}",
            "Pass a mask that broadcasts to the scores.",
        )
