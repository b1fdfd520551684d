"""The paper's multi-head self-attention with relative positions, Eqs. (1) to (8), on grids of one to three axes."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter, index
from typing import Any, Self, get_args

import torch
from torch import Tensor, fx, nn

from conv2attn.arguments import check_choice
from conv2attn.choices import StrideBy
from conv2attn.errors import GeometryError, HeadSizeError, InputError, UsageError
from conv2attn.layers.attention.encoding import Encoding
from conv2attn.layers.attention.engines import ENGINES, EngineName, choose_engine, dense, explain_engines, recipe_for
from conv2attn.layers.attention.features import few_features
from conv2attn.layers.attention.recipe import (
    Decisions,
    OperatorFacts,
    Question,
    Recipe,
    keep_recent,
    score_dtype,
)
from conv2attn.layers.attention.storage import output_format, stored
from conv2attn.layers.attention.tracing import as_node, is_transient, refuse_script, unstacked
from conv2attn.theory.basis import (
    AttentionGrid,
    Basis,
    ContentSoftmax,
    Operator,
    Padding,
    Positions,
    Sides,
    Sites,
    Weights,
    as_basis,
    kernel_taps,
)
from conv2attn.theory.score_terms import POSITION_ONLY, ScoreTerms

DEFAULT_MEMORY_LIMIT = 512 * 2**20
REQUIRES_GRAD = attrgetter("requires_grad")
MATCH = "Pass image.to(next(layer.parameters()))."


class MultiHeadSelfAttention(nn.Module):
    """`MHSA(X) = sum_h softmax(A_h) X W_val^h W_out^h + b_out` on images (batch, d_in, *sides).

    `A_h = q.(W_key x_k) + q.(W_hat_key r_delta) + u.(W_key x_k) + v.(W_hat_key r_delta)` with `q = W_qry x_q`
    (Cordonnier et al. 2020, Eqs. 1-8), restricted to the `terms`. The encoding has the last term: v enters only through
    `W_hat_key^T v`. Keys are pixels of the padded image, queries are `sites` of it.

    A converted convolution keeps its `weight` instead of value and output: `W_val^h W_out^h` is tap h of it, with one
    factor the identity. It also keeps everything else of the convolution (`padding`, hooks, parametrisations).

    Args:
        d_in, d_out: channels.
        encoding: relative positions, which determine the number of heads and axes.
        d_head: width of a head, by default min(d_in, d_out).
        d_key: width of queries and keys if scores read content; at least `encoding.d_position`, the default. If both
            are equal, W_hat_key is the identity, and neither stored nor applied.
        terms: a `ScoreTerms`, or the names of its terms: "vr", "qr", "qk+qr". Without vr, heads have no v: the encoding
            only provides r_delta.
        affine: whether queries and keys are `W x + b`, as in the authors' code; Eq. (1) has no b.
        dropout: probability with which a weight of attention is 0 in training, the others growing by 1 / (1 - dropout).
        value, output: False for the identity, which is then neither stored nor applied.
        kernel_size: of the convolution whose `weight` holds the channel matrices, one head per tap, row-major; value,
            output and d_head are then absent.
        transposed: whether that weight is a transposed convolution's, (d_in, d_out / groups, *kernel_size).
        bias: whether there is a b_out.
        groups: diagonal blocks of value and output.
        padding, sites: geometry as for a convolution; by default none, with a query at every pixel.
        stride_by: "queries": queries only at the strided sites; "pooling": queries everywhere, then every stride-th
            output.
    Raises:
        HeadSizeError: a width, or the number of heads, does not fit (C2A105).
        UsageError: an unknown `stride_by`, engine or term (C2A002), or a `dropout` that is not a probability (C2A001).
    Examples:
        >>> import conv2attn, torch
        >>> encoding = conv2attn.layers.attention.Encoding.of("quadratic", [[0.0, -1.0], [0.0, 1.0]], alpha=2.0)
        >>> layer = conv2attn.MultiHeadSelfAttention(3, 4, encoding=encoding)
        >>> layer(torch.ones(1, 3, 5, 6)).shape
        torch.Size([1, 4, 5, 6])
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        encoding: Encoding,
        *,
        d_head: int | None = None,
        d_key: int | None = None,
        terms: ScoreTerms | str = POSITION_ONLY,
        affine: bool = False,
        dropout: float = 0.0,
        value: bool = True,
        output: bool = True,
        kernel_size: Sequence[int] | None = None,
        transposed: bool = False,
        bias: bool = True,
        groups: int = 1,
        padding: Padding | None = None,
        sites: Sites | None = None,
        stride_by: StrideBy = "queries",
        engine: EngineName = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_choice(stride_by, "stride_by", get_args(StrideBy))
        self.d_in, self.d_out, self.groups, self.stride_by = d_in, d_out, groups, stride_by
        self.d_head = min(d_in, d_out) if d_head is None else d_head
        self.d_key = encoding.d_position if d_key is None else d_key
        self.terms, self.dropout = ScoreTerms.of(terms), dropout
        self.kernel_size, self.transposed = None if kernel_size is None else tuple(kernel_size), transposed
        self.encoding, self.dimensions, self.heads = encoding, encoding.dimensions, encoding.heads
        if not 0 <= dropout < 1:
            raise UsageError(
                "C2A001", f"dropout={dropout!r} is not from 0 to below 1", "Pass a number within these limits."
            )
        self.check_widths(encoding.d_position if self.terms.qr else 1, value, output)
        if not self.terms.vr:
            encoding.drop_vectors()
        self.image_padding = padding or Padding.none(self.dimensions)
        self.sites = sites or Sites.everywhere(self.dimensions)
        self.engine, self.memory_limit, self.name = engine, DEFAULT_MEMORY_LIMIT, "attention"
        self._facts: dict[tuple[torch.dtype, torch.device], Decisions] = {}

        def weight(*shape: int, fan_in: int = 1) -> nn.Parameter:
            drawn = torch.empty(shape, device=device, dtype=dtype)
            return nn.Parameter(nn.init.uniform_(drawn, -(fan_in**-0.5), fan_in**-0.5) if drawn.numel() else drawn)

        h, g, inner = self.heads, groups, d_in // groups
        has, key_shape = self.terms, (h, self.d_key, d_in)
        # Queries of the width of r_delta are multiplied with it directly. Otherwise a matrix maps r_delta to their
        # width.
        projects = has.qr and self.d_key != encoding.d_position
        self.query = weight(*key_shape, fan_in=d_in) if has.has_query else None
        self.key = weight(*key_shape, fan_in=d_in) if has.has_key else None
        self.position_key = weight(h, self.d_key, encoding.d_position, fan_in=self.d_key) if projects else None
        self.content_bias = weight(h, self.d_key, fan_in=self.d_key) if has.uk else None
        self.query_bias = weight(h, self.d_key, fan_in=d_in) if affine and has.has_query else None
        self.key_bias = weight(h, self.d_key, fan_in=d_in) if affine and has.has_key else None
        self.weight = self.value = self.output = None
        if self.kernel_size is not None:
            channels = (d_in, d_out // g) if transposed else (d_out, inner)
            self.weight = weight(*channels, *self.kernel_size, fan_in=h * inner)
        else:
            self.value = weight(self.d_head, inner, h, fan_in=inner) if value else None
            self.output = weight(d_out, self.d_head // g, h, fan_in=h * self.d_head // g) if output else None
        self.bias = nn.Parameter(torch.zeros(d_out, device=device, dtype=dtype)) if bias else None

    def check_widths(self, d_position: int, value: bool, output: bool) -> None:
        """Raises HeadSizeError (C2A105) if the widths or identities do not fit together."""
        misfit, remedy, groups = "", "Leave the widths unset, or pass ones that fit.", self.groups
        for what, width in (("d_in", self.d_in), ("d_out", self.d_out), ("d_head", self.d_head)):
            if width < 1 or width % groups:
                misfit = misfit or f"{what}={width} is not a positive multiple of groups={groups}"
        if not misfit and self.d_key < d_position:
            misfit, remedy = f"d_key={self.d_key} is less than d_position={d_position}", "Raise d_key."
        elif not misfit and self.kernel_size is not None:
            if math.prod(self.kernel_size) != self.heads or self.d_head != min(self.d_in, self.d_out):
                misfit = f"heads={self.heads} of width {self.d_head} are not the taps of a kernel {self.kernel_size}"
        elif not misfit and not value and self.d_head != self.d_in:
            misfit = f"value is the identity, so d_head={self.d_head} must be d_in={self.d_in}"
        elif not misfit and not output and self.d_head != self.d_out:
            misfit = f"output is the identity, so d_head={self.d_head} must be d_out={self.d_out}"
        elif not misfit and not value and not output:
            misfit = "value and output are both the identity, so all heads would be equal"
        if misfit:
            raise HeadSizeError("C2A105", misfit, remedy)

    @property
    def engine(self) -> EngineName:
        """The order of evaluation.

        Raises:
            UsageError: there is no such engine (C2A002).
        """
        return self._engine

    @engine.setter
    def engine(self, name: EngineName) -> None:
        if name not in ENGINES:
            raise UsageError(
                "C2A002", f"engine {name!r} is not one of {', '.join(ENGINES)}", 'Pass one of these, or "auto".'
            )
        self._engine: EngineName = name

    @property
    def has_content(self) -> bool:
        """Whether the attention depends on the image."""
        return self.terms.read_content

    @property
    def has_silent_content(self) -> bool:
        """Whether the content terms add exactly 0 to every score of positions, because all keys are 0."""
        apart = self.terms.vr and not self.terms.qr and self.key_bias is None
        return apart and self.key is not None and not bool(self.key.any())

    @property
    def weights(self) -> Weights:
        """The channel matrices of the heads: views of `weight`, or of `value` and `output`, heads last.

        Only the weight of a transposed convolution is copied.
        """
        if (weight := parameter(self, "weight")) is not None:
            narrow = self.d_out < self.d_in
            if not torch.compiler.is_compiling():
                return Weights.of_kernel(weight, parameter(self, "bias"), self.groups, narrow, self.transposed)
            taps = kernel_taps(weight, self.groups, self.transposed)
            return Weights(taps if narrow else None, None if narrow else taps, self.bias, self.groups)
        value, output = (None if w is None else w.permute(2, 0, 1) for w in (self.value, self.output))
        return Weights(value, output, self.bias, self.groups)

    def hold(self, weights: Weights) -> Self:
        """Replaces the layer's parameters by copies of `weights`, stored plainly with the heads last."""
        self.weight = None
        for name, factor in (("value", weights.value), ("output", weights.output)):
            stored = None if factor is None else nn.Parameter(plain_copy(factor.permute(1, 2, 0)))
            setattr(self, name, stored)
        self.bias = None if weights.bias is None else nn.Parameter(plain_copy(weights.bias))
        return self

    @property
    def positions(self) -> Positions:
        """The heads as positions alone, over live parameters or new tensors of frozen numbers."""
        return self.encoding.operators(self.like)

    def operators(self) -> Operator:
        """The softmax operators of the heads, over live parameters or new tensors of frozen numbers."""
        return self.with_content(self.positions)

    def with_content(self, positions: Positions) -> Operator:
        """The operators of heads with these positions."""
        if not self.has_content:
            return positions
        biases = (self.content_bias, self.query_bias, self.key_bias)
        return ContentSoftmax(self.terms, positions, self.query, self.key, self.position_key, *biases)

    def basis(self, weights: Weights | None = None) -> Basis:
        """The layer as `sum_h P_h x M_h^T + b`, over its live parameters, or over other `weights`."""
        weights = weights or self.weights
        return self.basis_of(self.encoding.operators(weights.like), weights)

    def basis_of(self, positions: Positions, weights: Weights) -> Basis:
        """The layer with these positions and weights."""
        sites = self.sites if self.stride_by == "queries" else self.sites.without_stride()
        return Basis(self.with_content(positions), weights, self.image_padding, sites)

    def forward(
        self, input: Tensor, output_size: Sequence[int] | None = None, weights: Weights | None = None
    ) -> Tensor:
        """The layer's output, (batch, d_out, *queries), or (d_out, *queries) for an image without a batch.

        Args:
            input: the image, (batch, d_in, *sides), or (d_in, *sides); named as in torch.nn.Conv2d.
            output_size: for a layer made from a transposed convolution: the output sides, of which its stride leaves a
                choice.
            weights: channel matrices to use instead of the layer's own.
        Raises:
            InputError: no tensor is passed, or its axes or channels do not fit (C2A120).
            GeometryError: the grid is too small (C2A121).
            EngineError: the engine set is not exact for the present parameters (C2A201), or these were not read before
                tracing (C2A203).
        """
        # A proxy of torch.fx has no sizes to decide by, so the layer becomes one node of the graph.
        if isinstance(input, fx.Proxy):
            return as_node(self, input, *(() if output_size is None else (output_size,)))
        image, weights = self.batched(input), weights or self.weights
        encoding: Any = self._modules["encoding"]
        basis = self.basis_of(encoding.operators_of_call(weights.like, self.name), weights)
        if output_size is not None:
            sides = tuple(image.shape[2:])
            basis = replace(basis, padding=padding_for(basis.padding, self.sites, sides, output_size, self.name))
        dtype = autocast_dtype(image)
        result = self.evaluate(basis, image) if dtype is None else self.under_autocast(basis, image, dtype)
        # The convolution's stride as pooling: all queries were computed, and every `stride`-th one is kept.
        if self.stride_by == "pooling" and max(self.sites.stride) > 1:
            every: tuple[Any, ...] = (Ellipsis, *[slice(None, None, s) for s in self.sites.stride])
            result = stored(result[every], output_format(basis, image))
        return result if input is image else result.squeeze(0)

    def batched(self, input: Tensor) -> Tensor:
        """`input` with a batch axis.

        Raises:
            InputError: the input is not a tensor, or its axes or channels do not fit (C2A120).
        """
        if not isinstance(input, Tensor):
            raise InputError(
                "C2A120", f"{self.name}: {type(input).__name__} is not a tensor", "Pass torch.as_tensor(image)."
            )
        image = input if input.ndim == self.dimensions + 2 else input.unsqueeze(0)
        if image.ndim != self.dimensions + 2 or image.shape[1] != self.d_in:
            raise InputError(
                "C2A120",
                f"{self.name}: an image {tuple(input.shape)} is not (batch, {self.d_in}, {self.dimensions} sides)",
                "Pass (batch, channels, *sides), or (channels, *sides) for a single image.",
            )
        return image

    def under_autocast(self, basis: Basis, image: Tensor, dtype: torch.dtype) -> Tensor:
        """The output under autocast, as for the convolution: in its dtype, with scores and softmax in float32."""
        basis = replace(basis, weights=basis.weights.to(dtype))
        # Autocast inside the layer would cast scores to half precision too.
        with torch.autocast(image.device.type, enabled=False):
            return self.evaluate(basis, image.to(dtype))

    def evaluate(self, basis: Basis, image: Tensor) -> Tensor:
        """The output for an image with a batch, by the engine set."""
        weight = basis.weights.like
        if image.dtype != weight.dtype or image.device != weight.device:
            ours, theirs = (f"{each.dtype} on {each.device}" for each in (weight, image))
            raise InputError("C2A120", f"{self.name}: the image is {theirs}, and the weights are {ours}", MATCH)
        if torch.compiler.is_compiling():
            return recipe_for(self.engine, self.question(basis, image), image).run(basis, image)
        if image.is_cpu:
            basis = unstacked(basis, self.name)
        return self.recipe(basis, image).run(basis, image)

    def recipe(self, basis: Basis, image: Tensor) -> Recipe:
        """The recipe for images of this shape, cached while the facts are unchanged."""
        facts, transient, here = self.facts(image), is_transient(image), (image.dtype, image.device)
        decided = self._facts.get(here)
        # `facts` returns the same object until the numbers of the heads change, so identity decides whether recipes
        # hold.
        if decided is None or decided.facts is not facts:
            decided = Decisions(facts)
            if not transient:
                self._facts[here] = decided
        question = self.question(basis, image) if self.has_content else None
        key = (
            self.engine,
            image.shape,
            self.memory_limit,
            torch.is_grad_enabled(),
            any(map(REQUIRES_GRAD, basis.operators.values)),
            self.training and self.dropout,
            question is not None and question.few_features,
        )
        recipe = None if transient else decided.recipes.get(key)
        if recipe is None or not recipe.serves(basis):
            recipe = recipe_for(self.engine, question or self.question(basis, image), image)
        if not transient:
            keep_recent(decided.recipes, key, recipe)
        return recipe

    def facts(self, image: Tensor) -> OperatorFacts:
        """The facts derived from the numbers of the heads, including all that a graph of this engine needs."""
        encoding: Any = self._modules["encoding"]
        facts: OperatorFacts = encoding.facts(image, self.name, reads=not self.has_content)
        # A cached property, read now because a graph that is traced later cannot compute it.
        if self.engine == "sdpa" and not torch.compiler.is_compiling():
            _ = facts.longest_side
        return facts

    def question(self, basis: Basis, image: Tensor) -> Question:
        """The question to engines about an image with a batch."""
        traced = torch.compiler.is_compiling()
        facts = self.facts(image)
        trains = not self.encoding.is_frozen and bool(basis.operators.values)
        # A traced graph also serves the numbers of later training steps, so nothing may be concluded from the present
        # ones.
        free = trains and (traced or facts.values is None)
        dropped = self.dropout if self.training else 0.0
        few = self.has_content and few_features(basis.operators, basis.padding.pad(image), score_dtype(image.dtype))
        about = (image.shape, image.dtype, image.device, self.memory_limit, self.name, traced, free, dropped, few)
        return Question(basis, facts, *about)

    @property
    def like(self) -> Tensor:
        """A tensor of the dtype and device in which the layer computes."""
        tensors = chain(self.parameters(), self.buffers())
        return next((tensor for tensor in tensors if tensor.is_floating_point()), torch.empty(0))

    def prepare(self) -> Self:
        """Derives the facts that calls need, so that the layer can be compiled and exported without a prior call."""
        if not torch.compiler.is_compiling():
            self._facts = {}
            self.encoding.derived.clear()
            self.facts(self.like)
        return self

    __prepare_scriptable__ = refuse_script

    def __getstate__(self) -> dict[str, Any]:
        # Facts and recipes are large and hold for one device, so a copy derives its own.
        return {key: value for key, value in vars(self).items() if key != "_facts"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.prepare()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        # The tensors have another dtype or device now, for which other facts hold.
        return self.prepare()

    def attention(self, image: Tensor | None = None, *, sides: Sides | None = None) -> Tensor:
        """The attention probabilities, (batch, heads, queries, keys); batch is 1 if they do not depend on the image.

        Args:
            image: (batch, d_in, *sides), or (d_in, *sides).
            sides: the sides of an image instead of the image, if attention depends on positions alone.
        Raises:
            UsageError: neither or both are passed, or only sides for a layer that reads content (C2A004).
        """
        return torch.cat([piece for _, piece in self.attention_chunks(image, sides=sides)], 2)

    def attention_chunks(
        self, image: Tensor | None = None, *, sides: Sides | None = None
    ) -> Iterator[tuple[slice, Tensor]]:
        """The attention in chunks of queries: (indices of queries, (batch or 1, heads, queries, keys)).

        Raises:
            UsageError: as `attention`.
        """
        if (image is None) == (sides is None) or (image is None and self.has_content):
            raise UsageError(
                "C2A004",
                f"{self.name}: pass an image, or sides where attention is position-only",
                "Pass image=, or sides=(rows, columns).",
            )
        if image is None:
            image = self.like.new_zeros(1, self.d_in, *self.checked_sides(sides))
        image, basis = self.batched(image), self.basis()
        # Under autocast a call computes attention in the lower precision, and so does this method.
        image = image.to(autocast_dtype(image) or image.dtype)
        step = dense.queries_per_chunk(self.question(basis, image))
        yield from dense.attention_chunks(basis, basis.padding.pad(image), step)

    def term_scores(self, image: Tensor) -> dict[str, Tensor]:
        """The scores of each term, before the softmax of their sum: (batch or 1, heads, queries, keys) by its name.

        Terms include parts that depend on the query alone, which cancel in the softmax.
        """
        image, basis = self.batched(image), self.basis()
        padded, dtype = basis.padding.pad(image), score_dtype(image.dtype)
        grid = AttentionGrid(tuple(padded.shape[2:]), basis.sites, image.device)
        about = (grid, grid.every_query(), dtype, padded)
        if not self.has_content:
            return {"vr": basis.operators.scores(*about)}
        operators: Any = basis.operators
        return {name: replace(operators, terms=ScoreTerms.of(name)).scores(*about) for name in self.terms.names}

    def moved_centers(self, image: Tensor) -> Tensor | None:
        """The displacements of heads' centres by the content of each query, (batch, heads, queries, axes).

        None without a term q.r with quadratic r_delta; see `ContentSoftmax.moved_centers`.
        """
        operators: Any = self.operators()
        if not self.has_content:
            return None
        padded = self.image_padding.pad(self.batched(image))
        return operators.moved_centers(AttentionGrid(tuple(padded.shape[2:]), self.basis().sites, image.device), padded)

    def checked_sides(self, sides: Any) -> Sides:
        """`sides`, if it is one whole number per axis.

        Raises:
            UsageError: `sides` does not fit (C2A007).
        """
        try:
            checked = tuple(map(index, sides))
        except TypeError:
            checked = ()
        if len(checked) != self.dimensions or min(checked) < 1:
            axes = f"one positive whole number per axis ({self.dimensions})"
            raise UsageError(
                "C2A007", f"{self.name}: sides={sides!r} is not {axes}", "Pass one positive whole number for each axis."
            )
        return checked

    def which_engine(self, image: Tensor) -> str:
        """The engine that `auto` selects for `image`."""
        image = self.batched(image)
        return choose_engine(self.question(self.basis(), image))

    def why_engine(self, image: Tensor) -> dict[str, str]:
        """For each engine, cheapest first: "exact", or the reason why not for `image` and the present parameters."""
        return explain_engines(self.question(self.basis(), self.batched(image)))

    def extra_repr(self) -> str:
        """Channels, heads and non-default settings."""
        parts = [f"{self.d_in}, {self.d_out}, heads={self.heads}, d_head={self.d_head}"]
        if not (padding := self.image_padding).is_identity:
            parts.append(f"padding={padding.before}..{padding.after} {padding.mode}")
        if max(self.sites.stride) > 1:
            parts.append(f"stride={self.sites.stride} by {self.stride_by}")
        if self.groups > 1:
            parts.append(f"groups={self.groups}")
        identities = [f"{name}=identity" for name in ("value", "output") if getattr(self, name) is None]
        parts += identities if len(identities) == 1 else []
        parts += [f"terms={self.terms}"] if self.has_content else []
        parts += [f"dropout={self.dropout}"] if self.dropout else []
        return ", ".join([*parts, f"bias={self.bias is not None}", f"engine={self.engine}"])


def parameter(layer: nn.Module, name: str) -> Tensor | None:
    """The tensor with this name; looked up as `nn.Module` does, only faster."""
    tensor = layer._parameters.get(name)
    return getattr(layer, name) if tensor is None else tensor


def autocast_dtype(image: Tensor) -> torch.dtype | None:
    """The dtype to which autocast casts `image` now, or None, as for float64 and on the meta device."""
    device = image.device.type
    if device == "meta" or not torch.is_autocast_enabled(device) or image.dtype == torch.float64:
        return None
    return torch.get_autocast_dtype(device)


def padding_for(padding: Padding, sites: Sites, sides: Sides, output_size: Sequence[int], name: str) -> Padding:
    """The padding for which a transposed convolution's attention has `output_size`; the stride leaves a choice."""
    if len(output_size) not in (len(sides), len(sides) + 2):
        raise GeometryError(
            "C2A121",
            f"{name}: output_size {tuple(output_size)} does not have {len(sides)} sides",
            "Pass one number for each side.",
        )
    offered = [b - a for b, a in zip(padding.before, padding.after, strict=True)]
    smallest = sites.count(padding.extended(offered).sides(sides))
    extra = [want - least for want, least in zip(output_size[-len(sides) :], smallest, strict=True)]
    if not all(0 <= e < s for e, s in zip(extra, padding.spacing, strict=True)):
        largest = tuple(n + s - 1 for n, s in zip(smallest, padding.spacing, strict=True))
        raise GeometryError(
            "C2A121",
            f"{name}: output_size {tuple(output_size)} is not between {smallest} and {largest}",
            "Pass an output_size within these sizes.",
        )
    return padding.extended([o + e for o, e in zip(offered, extra, strict=True)])


def plain_copy(tensor: Tensor) -> Tensor:
    """A detached copy, stored row-major."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


@as_basis.register
def _(layer: MultiHeadSelfAttention) -> Basis:
    return layer.basis()
