"""Graphs in normal form: a node is named by what it computes of what, so that order, dead code and names do not show.

What is returned and what is changed are compared, as terms of one table. A change in place is the value that it leaves
in what was changed; where something else shares that memory, the term says how.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import chain
from operator import getitem
from typing import Any, final

import sympy
import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from conv2attn.equality.context.graph import OperatorGraph, arguments_of, number_of, operator_schema, written_by
from conv2attn.equality.context.opaque import OPAQUE, Layer
from conv2attn.equality.context.rewrites import REWRITES
from conv2attn.equality.context.terms import SYMBOLIC_SIZES, Call, Term, Terms, Value, plain, replaced

CHECKS = ("aten::_assert_tensor_metadata", "aten::sym_constrain_range", "aten::sym_constrain_range_for_size")
STATISTICS = {
    "aten::batch_norm": ("running_mean", "running_var"),
    "aten::instance_norm": ("running_mean", "running_var"),
}
TURNING = (
    *("aten::as_strided_", "aten::squeeze_", "aten::swapaxes_", "aten::swapdims_"),
    *("aten::t_", "aten::transpose_", "aten::unsqueeze_"),
)
"""They change in place how a tensor reads its memory, and no number there."""
MOVING = ("aten::set_", "aten::resize_", "aten::resize_as_")
DROPOUT_RATES = ("p", "dropout", "dropout_p")
Naming = Callable[[int, Layer, Term], Term]


class Unnamed(Exception):
    """A graph has no normal form; the reason."""


@final
@dataclass(eq=False)
class NormalForm:
    """The terms of the nodes of a graph, of what it returns, and of what it changes or asserts."""

    terms: dict[fx.Node, Term]
    returned: tuple[Term, ...]
    updates: Counter[Term]
    spec: str

    def same_as(self, other: "NormalForm") -> bool:
        """Whether both return the same in the same structure, and change the same."""
        return (self.returned, self.updates, self.spec) == (other.returned, other.updates, other.spec)

    @cached_property
    def counting(self) -> set[Term]:
        """The terms that are returned or change something, and all that they read."""
        counting, stack = set[Term](), [*terms_in(self.returned), *self.updates]
        while stack:
            term = stack.pop()
            if term not in counting:
                counting.add(term)
                stack += terms_in(term.arguments)
        return counting

    @property
    def digest(self) -> str:
        """SHA-256 of all terms that count, each numbered by its place among them."""
        places: dict[Term, int] = {}
        hashed = sha256()

        def place(term: Term) -> int:
            stack = [term]
            while stack:
                top = stack[-1]
                if top in places:
                    stack.pop()
                    continue
                missing = [each for each in terms_in(top.arguments) if each not in places]
                stack += missing
                if not missing:
                    places[top] = len(places)
                    hashed.update(repr((top.operator, replaced(top.arguments, places))).encode())
                    stack.pop()
            return places[term]

        for term in terms_in(self.returned):
            place(term)
        ends = replaced(self.returned, places)
        changed = sorted((place(term), count) for term, count in self.updates.items())
        hashed.update(repr((ends, changed, self.spec)).encode())
        return hashed.hexdigest()


def terms_in(item: Any) -> Iterator[Term]:
    """The terms in the arguments of a term, from the first to the last."""
    if isinstance(item, Term):
        yield item
    elif isinstance(item, tuple):
        for each in item:
            yield from terms_in(each)


def normal_form(graph: OperatorGraph, terms: Terms, name: Naming) -> NormalForm:
    """The normal form of a graph, whose opaque nodes are named by `name` after the term of what they read.

    Raises:
        Unnamed: it changes tensors in a way that is not followed.
    """
    namer = Namer(graph, terms, name)
    for node in graph.module.graph.nodes:
        namer.visit(node)
    returned = tuple(namer.term_of(each) if isinstance(each, fx.Node) else plain(each) for each in graph.returned)
    modules = [layer.module for layer in graph.layers if layer.module]
    tensors = (each for module in modules for each in chain(module.parameters(), module.buffers()))
    weights = {each.untyped_storage().data_ptr() for each in tensors}
    for node, before in namer.given.items():
        if namer.terms[node] is not before:
            if namer.memory(node) in weights:
                raise Unnamed("the weight of a compared layer is changed by code between the layers")
            namer.updates[terms("becomes", before, namer.terms[node])] += 1
    return NormalForm(namer.named, returned, namer.updates, str(graph.spec))


@final
@dataclass(eq=False)
class Namer:
    """Names the nodes of one graph as they run.

    `terms` are those of values as they are now, `named` of each as it was computed, `given` of inputs and constants.
    """

    graph: OperatorGraph
    table: Terms
    name: Naming
    terms: dict[fx.Node, Any] = field(default_factory=dict)
    named: dict[fx.Node, Term] = field(default_factory=dict)
    given: dict[fx.Node, Term] = field(default_factory=dict)
    updates: Counter[Term] = field(default_factory=Counter)
    symbols: dict[Any, Any] = field(default_factory=dict)
    groups: dict[Any, list[fx.Node]] = field(default_factory=dict)
    storages: dict[Any, Any] = field(default_factory=dict)
    places: dict[fx.Node, Any] = field(default_factory=dict)
    texts: dict[Any, Any] = field(default_factory=dict)
    noise: Term | None = None

    def visit(self, node: fx.Node) -> None:
        """Names one node."""
        if node.op == "output":
            return
        if node.op == "placeholder":
            term = self.of_placeholder(node)
            if term is None:
                return
            self.given[node] = term
        elif node.op == "get_attr":
            term = self.of_block(node)
        elif isinstance(node.meta.get("val"), (*SYMBOLIC_SIZES, int, float)) and not node.meta.get("unbacked_bindings"):
            return
        else:
            term = self.of_operator(node)
        self.remember(node, term)

    def remember(self, node: fx.Node, term: Any) -> None:
        """Keeps the term of a node, and which others it shares memory with."""
        self.terms[node] = term
        if isinstance(term, Term):
            self.named[node] = term
        fake = node.meta.get("val")
        if isinstance(fake, Tensor) and fake.layout != torch.strided:
            raise Unnamed("a sparse tensor is computed")
        if isinstance(fake, Tensor):
            self.table.fits(term, fake)
            self.groups.setdefault(self.memory(node), []).append(node)

    def memory(self, node: fx.Node) -> Any:
        """An identity of the memory of a node: that of constants in fact, of others as their operators say."""
        storage = node.meta["val"].untyped_storage()._cdata
        if storage not in self.storages:
            self.storages[storage] = storage
            if node.name in self.graph.constants:
                self.storages[storage] = self.graph.constants[node.name][0].untyped_storage().data_ptr()
            elif returns_its_input(node):
                self.storages[storage] = self.memory(node.all_input_nodes[0])
        return self.storages[storage]

    def of_placeholder(self, node: fx.Node) -> Term | None:
        """The term of an input, or of a constant: dtype, shape and all bits."""
        fake = node.meta["val"]
        if node.name in self.graph.constants:
            if not node.users:
                return None
            return self.table.constant(self.graph.constants[node.name][0])
        for axis, side in enumerate(getattr(fake, "shape", ())):
            if isinstance(side, torch.SymInt) and isinstance(side.node.expr, sympy.Symbol):
                self.symbols[side.node.expr] = sympy.Symbol(f"side{axis}", integer=True)
        return self.table("input", str(fake.dtype), fake.ndim) if isinstance(fake, Tensor) else None

    def size(self, side: Any) -> Any:
        """A size as a number, or as a text in the sides of the images."""
        if not isinstance(side, SYMBOLIC_SIZES):
            return side
        expression = side.node.expr
        if expression not in self.texts:
            plain = expression.xreplace(self.symbols)
            self.texts[expression] = int(plain) if plain.is_Integer else ("size", str(plain))
        return self.texts[expression]

    def of_block(self, node: fx.Node) -> Term:
        """The term of a graph inside the graph: what it returns of its arguments.

        Raises:
            Unnamed: it holds a layer, or is none.
        """
        module = getattr(self.graph.module, str(node.target), None)
        if not isinstance(module, fx.GraphModule):
            raise Unnamed(f"{node.target} is no tensor that the export lifted out")
        if any(each.target is OPAQUE for each in module.graph.nodes):
            raise Unnamed("a layer is called inside a block of its own, such as one under autocast")
        inner = Namer(OperatorGraph(module, [], {}, {}, "", ()), self.table, self.name, symbols=dict(self.symbols))
        for number, each in enumerate(each for each in module.graph.nodes if each.op == "placeholder"):
            fake = each.meta["val"]
            kind = (str(fake.dtype), fake.ndim) if isinstance(fake, Tensor) else ()
            inner.remember(each, self.table("argument", number, *kind))
        for each in module.graph.nodes:
            if each.op != "placeholder":
                inner.visit(each)
        if inner.updates or inner.noise or any(inner.terms[each] is not inner.named[each] for each in inner.named):
            raise Unnamed("a block changes tensors in place, or draws random numbers")
        (output,) = (each for each in module.graph.nodes if each.op == "output")
        return self.table("block", *fx.map_arg(tuple(output.args[0]), inner.term_of))

    def term_of(self, node: fx.Node) -> Any:
        """The term of a node as it is now, or its size."""
        term = self.terms.get(node)
        value = node.meta.get("val")
        return self.size(value) if term is None else term

    def value_of(self, node: fx.Node) -> Any:
        """A node as the argument of a call: a value, a size, or the term of what is no tensor."""
        fake, term = node.meta.get("val"), self.term_of(node)
        if isinstance(fake, Tensor):
            return Value(term, fake, self.size)
        return self.size(fake) if isinstance(fake, SYMBOLIC_SIZES) else term

    def of_operator(self, node: fx.Node) -> Any:
        """The term of an operator, or one for each thing that it returns."""
        if node.target is OPAQUE:
            return self.of_layer(node)
        schema = operator_schema(node)
        if schema is None:
            inputs, named = tuple[Any, Any](fx.map_arg((node.args, node.kwargs), self.value_of))
            if node.target is getitem and isinstance(inputs[0], tuple):
                return inputs[0][inputs[1]]
            call = Call(self.table, str(node.target), {}, node.meta.get("val"), self.size)
            return call.term(call.name, *inputs, *named.values())
        if schema.name in CHECKS:
            return self.table("checked")
        if schema.name in MOVING:
            raise Unnamed(f"{schema.name} gives a tensor other memory")
        arguments, written = arguments_of(node, self.value_of), written_by(node)
        if arguments.get("training") or arguments.get("use_input_stats"):
            written += [name for name in STATISTICS.get(schema.name, ()) if arguments[name] is not None]
        form = functional(schema.name, arguments, written)
        functional_arguments = {key: item for key, item in arguments.items() if key != "out"}
        call = Call(self.table, form, functional_arguments, node.meta.get("val"), self.size)
        term = self.of_call(node, call)
        self.bind(node, term)
        if not schema.returns:
            self.updates[term] += 1
        if schema.name in TURNING:
            self.check_alone(node.all_input_nodes[0])
        elif written and schema.name != "aten::detach_":
            nodes = arguments_of(node, lambda each: each)
            self.change(term, tree_leaves([nodes[each] for each in written]), alone=form != schema.name)
            if schema.name in STATISTICS:
                return self.table("item", term, 0)
        return term

    def of_layer(self, node: fx.Node) -> Term:
        """The term of an opaque node: named by its layer, or by the geometry and the tensors of a function."""
        image, weight, bias, _, *sizes = tuple[Any, ...](node.args)
        layer, read = self.graph.layers[number_of(node)], self.term_of(image)
        output_sides = (
            tuple(map(self.size, fx.map_arg(sizes[4], lambda each: each.meta["val"]))) if sizes[4:] and sizes[4] else ()
        )
        if layer.basis is not None:
            return self.name(number_of(node), layer, self.table("reads", read, output_sides) if output_sides else read)
        assert layer.function is not None
        tensors = [each and self.term_of(each) for each in (weight, bias)]
        convolution = layer.convolution(*(each and each.meta["val"] for each in (weight, bias)))
        parts = convolution.stride, convolution.dilation, convolution.padding, convolution.groups
        return self.table("convolution", read, *tensors, repr(parts), layer.function.__name__)

    def of_call(self, node: fx.Node, call: Call) -> Any:
        """The term of a call, by its rule where there is one, unless that term stands for another kind of tensor."""
        named = "dropout" in call.name
        rates = [call[name] for name in DROPOUT_RATES if isinstance(call[name], float) and (named or name != "p")]
        tagged = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        trained = any(call[name] for name in ("train", "training"))
        if (tagged and call["train"] is not False and (any(rates) or not rates)) or (trained and any(rates)):
            self.noise = call.term("drawn", call.whole(), self.noise)
            return self.noise
        rule = REWRITES.get(call.name)
        term = rule(call) if rule is not None else None
        term = call.whole() if term is None or not self.table.fits(term, call.made) else term
        if self.table.fits(term, call.made):
            return term
        return self.table("of another kind", term, str(call.made.dtype), call.made.ndim)

    def bind(self, node: fx.Node, term: Any) -> None:
        """Names the sizes that only the values of an operator decide by its term."""
        for symbol, path in (node.meta.get("unbacked_bindings") or {}).items():
            number = term.number if isinstance(term, Term) else [each.number for each in term]
            self.symbols[symbol] = sympy.Symbol(f"found{number}{path}", integer=True)
            self.texts.clear()

    def change(self, term: Any, targets: list[fx.Node], *, alone: bool) -> None:
        """Gives all that shares memory with what an operator changes its new terms.

        Args:
            alone: whether the operator returns what it changes, as its form that changes nothing does.
        """
        for number, target in enumerate(targets):
            new = term if alone else self.table("changed", term, number)
            before, place = self.terms[target], self.place(target)
            for other in self.groups.get(self.memory(target), []):
                if self.place(other) == place:
                    self.terms[other] = new
                else:
                    self.terms[other] = self.table("after", self.terms[other], self.place(other), before, place, new)

    def check_alone(self, target: fx.Node) -> None:
        """Refuses to turn in place what may be another tensor as well: dropout returns its very input.

        Raises:
            Unnamed: another node is of the same numbers in the same order.
        """
        others = (each for each in self.groups.get(self.memory(target), []) if each is not target)
        if any(self.place(each) == self.place(target) for each in others):
            raise Unnamed("a tensor that has two names is turned in place")

    def place(self, node: fx.Node) -> Any:
        """The place of a tensor in its memory, and how its bits are read: shape, strides, first number and dtype."""
        if node not in self.places:
            fake = self.graph.constants[node.name][0] if node.name in self.graph.constants else node.meta["val"]
            parts = fake.shape, fake.stride(), (fake.storage_offset(),)
            kind = str(fake.dtype), fake.is_conj(), fake.is_neg()
            self.places[node] = (*(tuple(map(self.size, each)) for each in parts), kind)
        return self.places[node]


def functional(name: str, arguments: Mapping[str, Any], written: list[str]) -> str:
    """The name of the form of an operator that changes nothing in place, if it computes the same in the same dtype."""
    space, _, own = name.partition("::")
    plain = own.removesuffix("_")
    if not written or space != "aten" or not hasattr(torch.ops.aten, plain) or name in STATISTICS:
        return name
    target = arguments[written[0]]
    dtypes = {each.fake.dtype for each in arguments.values() if isinstance(each, Value) and each.rank}
    alike = len(written) == 1 and isinstance(target, Value) and dtypes == {target.fake.dtype} and target.floating
    return f"aten::{plain}" if alike and (plain != own or written == ["out"]) else name


def returns_its_input(node: fx.Node) -> bool:
    """Whether an operator is dropout that leaves nothing out: it returns its very input, which no schema says."""
    if "dropout" not in str(node.target) or operator_schema(node) is None:
        return False
    arguments = arguments_of(node, lambda each: each)
    return arguments.get("train") is False or arguments.get("p") == 0
