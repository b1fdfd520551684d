"""Two networks as graphs in normal form: their layers paired by what they compute of what, and where they differ."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, final

from torch import Tensor, fx, nn
from torch.nn.modules import module as hooks

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.equality.context.graph import OperatorGraph, Unexported, enclosing_module, graph_of, name_of, own_line
from conv2attn.equality.context.normal_form import NormalForm, Unnamed, normal_form
from conv2attn.equality.context.opaque import OPAQUE, Layer, readable_layers
from conv2attn.equality.context.terms import Term, Terms
from conv2attn.equality.outputs import other_kind, widest_gap
from conv2attn.equality.rows import LayerPair
from conv2attn.errors import Conv2AttnError
from conv2attn.models.conversion.replacement import hooked
from conv2attn.report import counted
from conv2attn.theorem import STOCK

LAYERS = (*STOCK, MultiHeadSelfAttention)
GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")


@final
@dataclass(eq=False)
class Matching:
    """The graphs of both networks, their normal forms, and the pairs of their layers.

    Args:
        bare: both are layers without hooks, so that nothing can stand between them; then there are no graphs.
        programs: which of the two is a program of torch.export, which refuses other sizes than it declares.
        trouble: why there are no normal forms; `unseen` where the first has no graph, so that names alone pair layers.
        pairs: in the order of the first's layers; those of functions whose weights are computed last.
        refused: by name why layers are not compared.
    """

    bare: bool = False
    programs: tuple[bool, bool] = (False, False)
    graphs: tuple[OperatorGraph, OperatorGraph] | None = None
    forms: tuple[NormalForm, NormalForm] | None = None
    trouble: str = ""
    unseen: bool = False
    pairs: list[LayerPair] = field(default_factory=list)
    refused: dict[str, Conv2AttnError] = field(default_factory=dict)
    terms: Terms = field(default_factory=Terms)

    @property
    def same(self) -> bool:
        """Whether both graphs are one, for every size for which the first's is what runs."""
        if self.bare:
            return True
        return self.forms is not None and self.forms[0].same_as(self.forms[1]) and not self.other_guards

    @property
    def written_alike(self) -> bool:
        """Whether both graphs are the same operators in the same order, so that their normal forms are no question."""
        if self.graphs is None or self.forms is None:
            return self.bare
        ours, theirs = (list(operators_as_called(*side)) for side in zip(self.graphs, self.forms, strict=True))
        return ours == theirs

    @property
    def guards(self) -> tuple[str, ...]:
        """The sizes of input for which both graphs hold; empty if they hold for every size."""
        return tuple(dict.fromkeys((*self.graphs[0].guards, *self.graphs[1].guards))) if self.graphs else ()

    @property
    def other_guards(self) -> bool:
        """Whether the code of one asks something of the sizes that the other's does not; a program declares its own."""
        if self.graphs is None or any(self.programs):
            return False
        return set(self.graphs[0].guards) != set(self.graphs[1].guards)


def match(original: nn.Module, network: nn.Module, images: Tensor) -> Matching:
    """Exports both networks, and pairs their layers: by what they read, then, of the rest, by their names."""
    programs = isinstance(original, fx.GraphModule), isinstance(network, fx.GraphModule)
    matching = Matching(is_bare(original) and is_bare(network), programs)
    if matching.bare:
        return by_names(matching, original, network, [readable_layers(each) for each in (original, network)])
    layers: list[Any] = []
    try:
        matching.graphs = graphs_of(original, network, images)
        layers = [(graph.compared, graph.refused) for graph in matching.graphs]
        pairing = Pairing(matching.terms, {layer.label: layer for layer in matching.graphs[1].layers})
        first = normal_form(matching.graphs[0], matching.terms, pairing.offer)
        matching.forms = first, normal_form(matching.graphs[1], matching.terms, pairing.choose)
        matching.pairs = list(pairing.chosen.values())
    except Unexported as error:
        matching.trouble, matching.unseen = str(error), error.first
    except Unnamed as error:
        matching.trouble = f"the graphs have no normal form: {error}"
    return by_names(matching, original, network, layers or [readable_layers(each) for each in (original, network)])


def is_bare(network: nn.Module) -> bool:
    """Whether a network is a layer that can be read, and hooks change nothing of what it is given or returns."""
    layers, _ = readable_layers(network) if isinstance(network, LAYERS) else ([], {})
    everywhere = any(getattr(hooks, name) for name in GLOBAL_HOOKS)
    return [layer.name for layer in layers] == [""] and not hooked(network) and not everywhere


def graphs_of(original: nn.Module, network: nn.Module, images: Tensor) -> tuple[OperatorGraph, OperatorGraph]:
    """The graphs of two networks for all sizes of input, or both for the size of `images` where one has no other.

    Raises:
        Unexported: one of the two has no graph.
    """

    def both(*, every_size: bool) -> tuple[OperatorGraph, OperatorGraph]:
        graphs = list[OperatorGraph]()
        for side, which in ((original, "first"), (network, "second")):
            try:
                graphs.append(graph_of(side, images, every_size=every_size))
            except Unexported as error:
                failure = Unexported(f"the {which} cannot be exported as a graph: {error}")
                failure.first = side is original
                raise failure from error
        return graphs[0], graphs[1]

    try:
        return both(every_size=True)
    except Unexported as error:
        try:
            return both(every_size=False)
        except Unexported:
            raise error from None


def operators_as_called(graph: OperatorGraph, form: NormalForm) -> Iterator[str]:
    """The operators of a graph as they are called: by their places, but constants, blocks and layers by terms."""
    names: dict[fx.Node, str] = {}
    places = itertools.count()
    for node in graph.module.graph.nodes:
        if node.op in ("placeholder", "get_attr") or node.target is OPAQUE:
            names[node] = repr(form.terms.get(node))
        else:
            names[node] = f"%{next(places)}"
            yield f"{node.target} {fx.map_arg((node.args, node.kwargs), names.__getitem__)!r}"


@final
@dataclass(eq=False)
class Pairing:
    """Names the opaque nodes of both graphs: those of the second by the layers of the first for which they stand.

    What reads the same but for the numbers of constants is paired too, so that the rest is compared all the same.
    """

    terms: Terms
    theirs: Mapping[str, Layer]
    offered: dict[Term, list[tuple[Term, Layer]]] = field(default_factory=dict)
    pairs: dict[tuple[int, int], LayerPair] = field(default_factory=dict)
    chosen: dict[tuple[int, int], LayerPair] = field(default_factory=dict)

    def offer(self, number: int, layer: Layer, read: Term) -> Term:
        """The term of a node of the first."""
        term = self.terms("layer", number, read)
        for key in (read, self.terms.skeleton(read)):
            self.offered.setdefault(key, []).append((term, layer))
        return term

    def choose(self, number: int, layer: Layer, read: Term) -> Term:
        """The term of a node of the second: of what reads the same an equal map, else its namesake, else any other."""
        options = self.offered.get(read) or self.offered.get(self.terms.skeleton(read), [])
        options = sorted(options, key=lambda option: option[1].label != layer.label)
        if not options:
            return self.terms("layer of the second", number, read)
        pairs = [self.pair(first, layer) for _, first in options]
        equal = (place for place, pair in enumerate(pairs) if len(options) > 1 and self.is_of(pair, layer))
        best = next(equal, None)
        if best is None:
            paired = {pair.first for pair in self.chosen.values() if pair.second is not layer}
            free = (place for place, (_, first) in enumerate(options) if first not in paired)
            best = 0 if options[0][1].label == layer.label else next(free, 0)
        self.chosen[id(pairs[best].first), id(layer)] = pairs[best]
        return self.terms("layer", options[best][0].arguments[0], read)

    def is_of(self, pair: LayerPair, layer: Layer) -> bool:
        """Whether a pair is one map, and no namesake of its first layer is that map."""
        namesake = self.theirs.get(pair.first.label)
        return pair.same and (namesake in (None, layer) or not self.pair(pair.first, namesake).same)

    def pair(self, first: Layer, second: Layer) -> LayerPair:
        """The pair of two layers, one for both."""
        return self.pairs.setdefault((id(first), id(second)), LayerPair(first, second))


def by_names(matching: Matching, original: nn.Module, network: nn.Module, sides: Sequence[Any]) -> Matching:
    """The matching with the layers that are left paired by their names, and attention with the function it stands for.

    A name whose module is a convolution or attention in both, but cannot be read in one, is `refused`.
    """
    (ours, refused), (theirs, unread) = sides
    named = {id(layer.module): layer for layer in theirs}
    modules = dict(network.named_modules(remove_duplicate=False))
    paired = {pair.first for pair in matching.pairs}, {pair.second for pair in matching.pairs}
    for layer in ours:
        other = named.get(id(modules.get(layer.name)))
        if layer.function is None and other is not None and layer not in paired[0] and other not in paired[1]:
            matching.pairs.append(LayerPair(layer, other))
    for layer in theirs:
        if layer.function is not None and layer.module is not None and layer not in {p.second for p in matching.pairs}:
            matching.pairs.append(LayerPair(replace(layer, module=None, basis=None), layer))
    for name, module in original.named_modules(remove_duplicate=False):
        other = modules.get(name)
        error = refused.get(name) or unread.get(name)
        kinds = isinstance(module, LAYERS) and isinstance(other, LAYERS)
        if error is not None and kinds and (name not in refused or isinstance(other, MultiHeadSelfAttention)):
            matching.refused[name] = error
    order = {layer: number for number, layer in enumerate(ours)}
    matching.pairs.sort(key=lambda pair: order.get(pair.first, len(order)))
    return matching


class Difference(NamedTuple):
    """The first difference of two graphs in words, and the two nodes if both graphs have one there."""

    sentence: str
    nodes: tuple[fx.Node, fx.Node] | None = None


def first_difference(matching: Matching) -> Difference:
    """The first node of the second at which the graphs differ."""
    assert matching.graphs is not None
    assert matching.forms is not None
    ours, theirs = (list(own_nodes(matching, side)) for side in (0, 1))
    if matching.forms[0].same_as(matching.forms[1]):
        sizes = [", ".join(graph.guards) or "every size" for graph in matching.graphs]
        return Difference(f"the code of the second network is for {sizes[1]}, that of the first for {sizes[0]}")
    if not theirs and not ours:
        return Difference("in the second the structure of what is returned differs, or what is changed")
    if not theirs or not ours:
        node, which = (ours[0], "first") if ours else (theirs[0], "second")
        return Difference(f"{label_of(node)}{own_line(node)} is only in the {which} network")
    first, second = ours[0], theirs[0]
    label = f"in the second {label_of(second)}{own_line(second)}"
    if first.target is not second.target:
        return Difference(f"{label} stands in place of {label_of(first)}{own_line(first)}", (first, second))
    if moved := different_constants(matching, first, second):
        return Difference(f"{label} reads other numbers: {moved}", (first, second))
    return Difference(f"{label} has other arguments", (first, second))


def own_nodes(matching: Matching, side: int) -> Iterator[fx.Node]:
    """The nodes of a graph that count, whose term the other has not, and which read only what the other has too."""
    assert matching.graphs is not None
    assert matching.forms is not None
    form, other = matching.forms[side], matching.forms[1 - side]
    shared = set(other.terms.values())
    for node in matching.graphs[side].nodes:
        term = form.terms.get(node)
        if term in form.counting and term not in shared:
            before = (each for each in node.all_input_nodes if each.op != "placeholder" and each in form.terms)
            if all(form.terms[each] in shared for each in before):
                yield node


def label_of(node: fx.Node) -> str:
    """An operator for people: its name and the module that it runs in."""
    inside, name = enclosing_module(node), name_of(node.target).removeprefix("conv2attn::")
    return f"{name} in {inside}" if inside else name


def different_constants(matching: Matching, first: fx.Node, second: fx.Node) -> str:
    """The constants of two nodes that differ, in words; empty if only bits without value differ."""
    assert matching.graphs is not None
    ours, theirs = (
        [graph.constants[each.name] for each in node.all_input_nodes if each.name in graph.constants]
        for graph, node in zip(matching.graphs, (first, second), strict=True)
    )
    sentences = (worst_number(name, mine, other) for (mine, _), (other, name) in zip(ours, theirs, strict=False))
    return next(filter(None, sentences), "")


def only_constants_differ(matching: Matching) -> bool:
    """Whether both graphs are one but for the numbers of their constants."""
    assert matching.forms is not None

    def bare(form: NormalForm) -> Any:
        returned = [matching.terms.skeleton(each) if isinstance(each, Term) else each for each in form.returned]
        changed = Counter({matching.terms.skeleton(term): count for term, count in form.updates.items()})
        return returned, changed, form.spec

    return bare(matching.forms[0]) == bare(matching.forms[1]) and not matching.other_guards


def worst_number(name: str, ours: Tensor, theirs: Tensor) -> str:
    """The largest difference of two constants in words; empty if only signs of zeros or bits of NaN differ."""
    if kind := other_kind(ours, theirs):
        return f"{name} {kind}"
    gap = widest_gap(ours, theirs, 0.0)
    if gap is None or not gap.count:
        return ""
    many = counted(gap.count, "number")
    return f"{name} differs in {many}, the worst at {gap.place}: {gap.converted!r}, not {gap.original!r}"
