"""Observes every attention in a run of a network, with its queries, keys and values, and replaces it on request.

Attention is the operand that multiplies the values. The result of a softmax carries a trail, and so does everything
computed from it: views, masks, top-k, mixed heads. Where such a tensor is multiplied by a tensor that was not computed
from it, the latter is taken as the values. Neither modules nor shapes decide.
"""

import inspect
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from conv2attn.generators import devices_of, generators_kept
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.networks.copies import evaluating
from conv2attn.networks.fused import sdpa_by_formula, watched_flex
from conv2attn.networks.reading.attended import Attended, Opened, Rule, Running, Scores, Silence, innermost, is_turned
from conv2attn.networks.reading.decisions import Decisions
from conv2attn.networks.reading.double_precision import in_double
from conv2attn.networks.reading.trails import (
    MOST_PRODUCTS,
    MatrixProduct,
    Trail,
    as_matrix_product,
    join,
    shares,
    tag,
    tensors_in,
    trail_of,
    weights_are_right,
)
from conv2attn.torch_internals import DisableTorchFunction, TorchDispatchMode

SOFTMAXES = {torch.softmax, F.softmax, Tensor.softmax, torch.special.softmax}
REDUCTIONS = {"sum", "mean", "max", "amax", "min", "amin", "prod", "norm", "std", "var", "logsumexp", "cumsum"}
WRITERS = {"scatter", "scatter_", "scatter_add", "scatter_add_", "__setitem__", "index_put_", "index_copy_"}
"""Functions that write their arguments into a larger tensor."""
GROWTH = 2.5
"""A result larger than this many times its arguments is not attention any more, but weights times channels.
"""
Marked = Callable[[int, Tensor], Tensor]
"""Replaces a product of a run, given its number in the run and the product."""
Softmaxed = Callable[[int, Tensor, Tensor], Tensor]
"""Replaces a softmax of a run, given its number in the run, its scores and the softmax."""
MAPS = ("conv", "pool", "interpolate")
"""Words in the names of functions that return feature maps."""
LOCK = threading.RLock()
SEED = 0
"""Networks that draw random numbers draw the same ones in every run, except in the run that tests whether they do."""


class Watch(TorchFunctionMode):
    """While active, passes every attention of the network to `see`, and replaces it by `rule`.

    The rule `Silence` sets everything multiplied by attention to zero.
    """

    def __init__(
        self,
        network: nn.Module,
        see: Callable[[Attended, Running], None] | None = None,
        rule: Rule | None = None,
        blind: Callable[[str], bool] = lambda name: False,
        marked: Marked | None = None,
        softmaxed: Softmaxed | None = None,
        gates: bool = False,
        decisions: Decisions | None = None,
        injected: dict[int, Tensor | None] | None = None,
    ):
        """Takes the options; `blind` selects layers of this project whose attention is neither passed on nor replaced.

        `marked` replaces products that may be scores, given their number in the run; `softmaxed` replaces softmaxes,
        given their number and scores. With `gates`, a softmax is also observed if neither its scores nor its later use
        are products, unless it is square. `decisions` are those of another run. `injected` replaces
        feature maps, by their numbers in the run; maps that are None there are stored instead.
        """
        super().__init__()
        # Names are taken once: some networks build modules while they run, which then have no name and are not watched.
        self.names = {module: name or "(root)" for name, module in network.named_modules()}
        self.own = {each for each in self.names if isinstance(each, MultiHeadSelfAttention)}
        self.network, self.see, self.rule, self.blind = network, see, rule, blind
        self.silent, self.gates = isinstance(rule, Silence), gates
        self.running: list[Running] = []
        self.marked, self.softmaxed, self.run_itself = marked, softmaxed, object()
        self.seeing, self.unseen = False, Counter[nn.Module]()
        self.opened, self.scores = dict[int, Opened](), dict[int, Scores]()
        self.numbers, self.calls, self.decisions = 0, Counter[str](), decisions
        self.injected, self.maps = injected or {}, list[tuple[int, ...]]()

    @property
    def changes(self) -> bool:
        """Whether a run under this watch computes other numbers than the network."""
        return self.rule is not None or self.marked is not None or self.softmaxed is not None

    def run(self, call: Callable[[], Any], seed: int = SEED) -> Any:
        """The result of a call of the network, in evaluation mode, without gradients and with a seed of its own.

        Hooks observe the calls of all threads, so threads wait for each other here.
        """
        with LOCK, generators_kept(devices_of(self.network), seed=seed):
            handles = []
            for module in self.names:
                if isinstance(module, torch.jit.ScriptModule):
                    continue
                # Our hook comes first, so that hooks of the caller, which may compute, run inside their module.
                handles.append(module.register_forward_pre_hook(self.started, prepend=True, with_kwargs=True))
                handles.append(module.register_forward_hook(self.ended, always_call=True))
            try:
                with (
                    evaluating(self.network),
                    self,
                    watched_flex(self.network),
                    in_double(self.network),
                    torch.no_grad(),
                ):
                    return call()
            finally:
                for handle in handles:
                    handle.remove()

    def started(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A hook that records that a module runs; layers of this project compute their attention here."""
        first = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), None)
        self.running.append(Running(module, 0, first))
        if module in self.own and self.see is not None and first is not None:
            assert isinstance(module, MultiHeadSelfAttention)
            if not (module.has_content or self.blind(self.names[module])):
                return
            images = len(first) if first.ndim > module.dimensions + 1 else 1
            # What is computed for the observer holds no decisions of the network: runs without one do not make them.
            decisions, self.decisions = self.decisions, None
            attention = module.attention(first).expand(images, -1, -1, -1)
            with DisableTorchFunction():
                self.see(self.numbered(Attended(self.names[module], attention)), self.running[-1])
            self.decisions = decisions

    def ended(self, module: nn.Module, _: Any, output: Any) -> Any:
        """A hook for the end of a module: reports weights that it does not return, as they meet no value later.

        Layers of this project are silenced.
        """
        trails = (trail_of(each, self.run_itself) for each in tensors_in((output,)))
        leaving = frozenset[int]().union(*(each.softmaxes for each in trails if each is not None))
        running, last = self.running[-1], len(self.running) == 1
        for number, opened in list(self.opened.items()):
            # Weights may multiply their values in the module around: those that leave this module as its output still
            # wait.
            if running in opened.running and (last or number not in leaving):
                del self.opened[number]
                # A softmax without products in its scores that multiplies no values is a gate over experts or classes,
                # unless it has as many queries as keys.
                square = opened.weights.shape[-1] == opened.weights.shape[-2]
                if opened.weights.ndim > 2 and (opened.products or square or self.gates):
                    self.without_values(opened)
        forced = self.forced(module, output) if isinstance(module, MultiHeadSelfAttention) else None
        self.running.pop()
        if not any(running in opened.running for opened in self.opened.values()):
            running.first = None
        return forced

    def without_values(self, opened: Opened) -> None:
        """Passes on weights that multiplied no values."""
        # A hook runs while the watch is active, unlike the code of a function of torch. What `see` and `rule` compute
        # here would count as the network's own products and decisions, and later runs would repeat it.
        with DisableTorchFunction():
            weights = opened.weights.mT if opened.columns else opened.weights
            place = innermost(opened.running)
            attended = self.attended(weights, place, **self.operands(weights, opened))
            if self.see is not None:
                attended.columns, attended.multiplies = opened.columns, False
                self.see(attended, place)

    def forced(self, layer: MultiHeadSelfAttention, output: Tensor) -> Tensor | None:
        """The output of a layer of this project under the rule, if its attention is observed; otherwise None."""
        image, name = self.running[-1].first, self.names[layer]
        if self.silent:
            return torch.zeros_like(output)
        if self.rule is None or image is None or not self.blind(name):
            return None
        image = image if image.ndim > layer.dimensions + 1 else image[None]
        own = layer.attention(image).expand(len(image), -1, -1, -1)
        attention = self.rule(name, own)
        if attention is own:
            return None
        weights, tokens = layer.weights, layer.basis().padding.pad(image).flatten(2).mT
        mixed = torch.einsum("bhqc,hoc->boq", attention.to(tokens) @ tokens[:, None], weights.dense().to(tokens))
        mixed = mixed if weights.bias is None else mixed + weights.bias[:, None]
        return mixed.reshape(output.shape)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`; attention is observed and replaced on the way."""
        operator = hasattr(func, "overloads") or hasattr(func, "overloadpacket")
        before, self.seeing = self.seeing, self.seeing or not operator
        try:
            return self.computed(func, args, kwargs or {})
        finally:
            self.seeing = before

    def computed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of a function of torch."""
        if func is F.scaled_dot_product_attention:
            return self.fused(args, kwargs)
        if func is F.multi_head_attention_forward:
            return self.multi_head(args, kwargs)
        factors = as_matrix_product(func, args, kwargs)
        result = func(*args, **kwargs)
        if self.decisions is not None:
            result = self.decisions.decided(func, result, args, kwargs)
        if factors is not None:
            return self.multiplied(factors, result)
        if func is F.unfold:  # its columns are the cells of a map
            result = self.mapped(result.unflatten(-1, sides_of_patches(*args, **kwargs))).flatten(2)
        elif isinstance(result, Tensor) and any(word in func.__name__ for word in MAPS):
            result = self.mapped(result)
        below = [each for each in tensors_in((args, kwargs)) if trail_of(each, self.run_itself) is not None]
        if func in SOFTMAXES and isinstance(result, Tensor) and result.ndim > 1:
            scores = args[0] if args else kwargs["input"]
            return self.softened(scores, result, kwargs.get("dim", args[1] if len(args) > 1 else None), below)
        if below:
            self.pass_on(func.__name__, args, result, below)
        return result

    def mapped(self, result: Tensor) -> Tensor:
        """A feature map, or its replacement in this run."""
        number = len(self.maps)
        self.maps.append(tuple(result.shape))
        if number not in self.injected:
            return result
        if (injected := self.injected[number]) is not None:
            return injected.to(result)
        self.injected[number] = result.clone()
        return result

    def pass_on(self, name: str, args: Any, result: Any, below: Sequence[Tensor]) -> None:
        """Gives a result the trail of the arguments, unless it is much larger than they are or a sum over rows."""
        trail = self.joined(below)
        # A result far larger than its arguments is not attention of the same queries and keys, but weights times
        # channels, for example. A writer is exempt: it puts a few weights into a large tensor of zeros.
        most = GROWTH * sum(each.numel() for each in below)
        for made in tensors_in((result,)):
            whole = name not in REDUCTIONS or (made.ndim > 1 and made.shape[-2:] == below[0].shape[-2:])
            if made.is_floating_point() and whole and (made.numel() <= most or name in WRITERS):
                tag(made, trail)
        if name in WRITERS and args and isinstance(args[0], Tensor):
            tag(args[0], trail)

    def joined(self, tensors: Sequence[Tensor]) -> Trail:
        """The joint trail of several tensors."""
        trails = [trail_of(each, self.run_itself) for each in tensors]
        return join([each for each in trails if each is not None], self.run_itself)

    def attended(self, attention: Tensor, place: Running, **operands: Any) -> Attended:
        """A new attention of a module that is no layer of this project: these have a hook of their own."""
        place.times += 1
        name = self.names[place.module] + (f"#{place.times}" if place.times > 1 else "")
        numbered_attention = self.numbered(Attended(name, attention, **operands))
        if isinstance(self.rule, Silence):
            numbered_attention.attention = self.rule(name, attention, numbered_attention.number).to(attention)
        elif self.rule is not None:
            numbered_attention.attention = self.rule(name, attention).to(attention)
        return numbered_attention

    def numbered(self, attended: Attended) -> Attended:
        """The attention with the number of its call, and the feature maps before it."""
        attended.maps = tuple(self.maps)
        attended.number = self.calls[attended.name]
        self.calls[attended.name] += 1
        return attended

    def fused(self, args: Any, kwargs: Any) -> Tensor:
        """Fused attention by its formula, whose steps are observed; the fused result itself if nothing is replaced."""
        with self:
            output = sdpa_by_formula(*args, **kwargs)
        unchanged = not self.changes
        return F.scaled_dot_product_attention(*args, **kwargs) if unchanged else output

    def multi_head(self, args: Any, kwargs: Any) -> Any:
        """torch's multi-head attention by its own code, with observed steps; its own result if nothing is replaced."""
        bound = inspect.signature(F.multi_head_attention_forward).bind(*args, **kwargs)
        bound.apply_defaults()
        named = bound.arguments
        # Its code would detect the active mode, and hand the whole call to this mode again.
        module: Any = F
        asks, module.has_torch_function = module.has_torch_function, lambda *_: False
        try:
            with self:
                output, weights = F.multi_head_attention_forward(**(named | {"need_weights": True}))
        finally:
            module.has_torch_function = asks
        if not self.changes:
            return F.multi_head_attention_forward(**named)
        return output, weights if named["need_weights"] else None

    def softened(self, scores: Tensor, result: Tensor, axis: Any, below: Sequence[Tensor]) -> Tensor:
        """A softmax over keys, which waits for its values: over the last axis, or over the columns of square matrices.

        A softmax of a single matrix counts if it is square; one over columns of other shapes counts if its scores are
        products.
        """
        axis = axis - result.ndim if isinstance(axis, int) and axis >= 0 else axis
        under = self.joined(below)
        square, matrix = result.shape[-1] == result.shape[-2], result.ndim == 2
        if any(each.module in self.own for each in self.running) or not self.running:
            return result
        # A softmax over anything else (classes, experts, gates) is not attention. One over columns is attention only if
        # queries may be there: in a square, or over products of queries and keys.
        if not (axis == -1 and (square or not matrix)) and not (
            axis == -2 and not matrix and (square or under.products)
        ):
            return torch.zeros_like(result) if self.silent and not matrix else result
        # A softmax without products in its scores may never multiply values, so it is silenced here. Other softmaxes
        # are silenced in that product alone, since later steps may divide the weights by their sum.
        result = torch.zeros_like(result) if self.silent and not under.products else result
        self.numbers += 1
        if self.softmaxed is not None:
            result = self.softmaxed(self.numbers, scores, result).to(result)
        self.opened[self.numbers] = Opened(result, tuple(self.running), axis == -2, under.products)
        tag(result, Trail(self.run_itself, frozenset({self.numbers}), under.products, under.every))
        return result

    def multiplied(self, factors: MatrixProduct, result: Tensor) -> Tensor:
        """A product: of attention with its values, or one that may be the scores of an attention."""
        left, right = factors.left, factors.right
        first, second = (trail_of(each, self.run_itself) for each in (factors.first, factors.second))
        # A single matrix times a batch has no images, so it is a layer (one that mixes heads, or a projection).
        axes = factors.first.ndim, factors.second.ndim
        one_for_all = min(axes) == 2 < max(axes)  # a layer such as one that mixes heads
        right_one = weights_are_right(first, second, left, right)
        if right_one is not None and not any(each.module in self.own for each in self.running):
            attention, value = (right.mT, left.mT) if right_one else (left, right)
            trail = second if right_one else first
            assert trail is not None
            # Without a softmax, only rows of shares (sum 1, or less beside a sink) count: otherwise any product of
            # activations would be attention.
            if not one_for_all and (trail.softmaxes or shares(attention)):
                return self.weighed(attention, value, trail, right_one, factors, result)
            if not trail.softmaxes and not one_for_all and self.operands(attention, products=trail.products):
                self.unseen[innermost(self.running).module] += 1
        whole = self.joined((factors.first, factors.second))
        # A product of attention with a tensor that is not computed from it is a step after that attention, and no
        # score of another.
        mixed = any(each is not None and each.softmaxes for each in (first, second)) and (
            first is None or second is None or first.softmaxes != second.softmaxes
        )
        if mixed:
            tag(result, whole)
            return result
        self.numbers += 1
        if self.marked is not None:
            result = factors.back(self.marked(self.numbers, factors.canonical(result)).to(result))
        self.scores[self.numbers] = Scores(left, right.mT, tuple(factors.canonical(result).shape))
        # Queries and keys are kept alive here. Those of the last products are enough, since scores come soon before
        # their softmax.
        while len(self.scores) > MOST_PRODUCTS:
            del self.scores[next(iter(self.scores))]
        products = (whole.products if one_for_all else frozenset()) | {self.numbers}
        own = Trail(self.run_itself, frozenset(), products, whole.every)
        added = None if factors.added is None else trail_of(factors.added, self.run_itself)
        tag(result, own if added is None else join([own, added], self.run_itself))
        return result

    def weighed(
        self, attention: Tensor, value: Tensor, trail: Trail, turned: bool, factors: MatrixProduct, result: Tensor
    ) -> Tensor:
        """The product of attention with its values, or, under a rule, of the replaced attention."""
        opened = [self.opened[number] for number in sorted(trail.every & self.opened.keys())]
        for number in trail.every:
            self.opened.pop(number, None)
        running = opened[0].running if opened else ()
        place = innermost([each for each in self.running if not opened or any(each is other for other in running)])
        matrix = attention.ndim == 2
        operands = self.operands(attention, opened[0] if opened else None, trail.products)
        # Products of earlier attention are released; those of this one stay, since its weights may multiply values
        # again.
        kept = trail.products or frozenset({self.numbers})
        self.scores = {number: each for number, each in self.scores.items() if number >= min(kept)}
        attended = self.attended(attention[None, None] if matrix else attention, place, value=value, **operands)
        if self.see is not None:
            attended.softmaxes = trail.softmaxes
            self.see(attended, place)
        if self.rule is None:
            return result
        if self.silent and not bool(attended.attention.any()):
            return torch.zeros_like(result)
        made = (attended.attention[0, 0] if matrix else attended.attention).to(value) @ value
        return factors.back(made.mT if turned else made)

    def operands(
        self, attention: Tensor, opened: Opened | None = None, products: frozenset[int] = frozenset()
    ) -> dict[str, Any]:
        """The queries and keys of attention: those of the last score product with as many axes.

        A product of queries with a table has fewer axes, or one axis for several.
        """
        products = products or (opened.products if opened is not None else frozenset())
        turned = opened is not None and opened.columns != is_turned(attention, opened)
        fitting, scores = [], dict[int, bool]()
        for number in sorted(products & self.scores.keys()):
            each = self.scores[number]
            # If the numbers of queries and keys differ, they show which factor is the queries; otherwise the scores are
            # tested later.
            for way in (not turned, turned):
                query, key = (each.key, each.query) if way else (each.query, each.key)
                if (query.shape[-2], key.shape[-2]) == attention.shape[-2:]:
                    fits, scores[number] = (query, key), way
            if number in scores:
                fitting.append(((fits[1].ndim, fits[1].shape[:-2].numel(), number), *fits))
        if not fitting:
            return {}
        _, query, key = max(fitting, key=lambda each: each[0])
        return {"query": query, "key": key, "scores": scores, "turned": turned}


def sides_of_patches(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> list[int]:
    """The numbers of patches that F.unfold cuts along each axis."""
    pairs = ((each, each) if isinstance(each, int) else each for each in (kernel_size, dilation, padding, stride))
    by_axis = zip(input.shape[-2:], *pairs, strict=True)
    return [(side + 2 * pad - spread * (size - 1) - 1) // step + 1 for side, size, spread, pad, step in by_axis]


class Operators(TorchDispatchMode):
    """Counts, by module, each softmax that a watch cannot observe: in scripted code, or called as an operator."""

    def __init__(self, watch: Watch):
        super().__init__()
        self.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes an operator."""
        name = func.overloadpacket.__name__
        softmax = name in ("_softmax", "_safe_softmax") or "scaled_dot_product" in name
        if softmax and self.watch.running and not self.watch.seeing:
            self.watch.unseen[innermost(self.watch.running).module] += 1
        return func(*args, **(kwargs or {}))
