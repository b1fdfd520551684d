"""Two networks compared: their layers as values, what stands between them as code, as formulas, and by numbers."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import FunctionType
from typing import Any, Literal, final

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from conv2attn.equality.asked import inputs_in
from conv2attn.equality.calls import call, operators_called
from conv2attn.equality.certificate.results import (
    ROOT,
    WHOLE_NETWORK,
    Certificate,
    Counterexample,
    Finding,
    Identified,
    Outputs,
    Rounded,
    Row,
    State,
    holds,
    refuted,
    undecided,
    unsupported,
    unsupported_row,
)
from conv2attn.equality.fingerprint.embedded_ids import DESCRIBED, of_embeddings, of_numbers
from conv2attn.equality.fingerprint.field import Progress
from conv2attn.equality.fingerprint.one_formula import one_formula
from conv2attn.equality.fingerprint.state import alike, network_state
from conv2attn.equality.layers.layer_pairs import Pairs, conversions
from conv2attn.equality.output_parts import dense_parts
from conv2attn.equality.outputs import (
    Matching,
    Picked,
    compare_outputs,
    findings_returned,
    judge_outputs,
    match_outputs,
)
from conv2attn.equality.plain_calls import REFUTES, Difference, differing_calls
from conv2attn.equality.runs import Runs, run_both
from conv2attn.equality.twins.exchanged import has_attention, with_layers_of_the_first
from conv2attn.equality.twins.walked_modules import hooks_on_all_modules, is_layer, modules_outside_layers
from conv2attn.equality.worlds import PartingPlace, compare_sections
from conv2attn.networks.conversion.outcomes import SKIPPED, UNSUPPORTED
from conv2attn.networks.copies import copy_network, move_network
from conv2attn.networks.specimens import Specimen, arguments, map_tensors
from conv2attn.theory.bounds import WITHOUT_THEOREM
from conv2attn.torch_internals import tree_leaves
from conv2attn.verdicts import Strength, Verdict

ASSUMPTIONS = (
    "finite inputs (dense and sdpa spread a NaN to every output, separable too where its bands are no narrower than "
    "the image, conv and gather only where the convolution does)",
    "sums formed directly (no Winograd or FFT: measured on the shapes met), no overflow, sides below 2^24",
    "the network's own code does the same at every call, at sizes and in modes of gradients that were not run, and in "
    "a copy, which code that compares objects by identity may notice: it calls its layers and asks nothing else of "
    "them",
    "the classes of conv2attn and torch are as installed: only methods replaced on an instance are seen",
)
MOST_IMAGES = 2  # of a refuted call, that are followed as they are
MOST_SHOWN = 4  # layers, of which a counterexample is constructed


@final
class Comparison:
    """The parts of a certificate, each asked once; see `certify` for the question."""

    def __init__(
        self,
        original: nn.Module,
        network: nn.Module,
        specimen: Specimen,
        pairs: Pairs,
        labels: Tensor | None,
        input_range: float,
        modes: Sequence[str] = (),
        progress: Progress | None = None,
        match: Mapping[Any, Any] | None = None,
    ):
        self.networks, self.specimen, self.described = (original, network), specimen, specimen.described
        self.images, self.inputs, self.called_with = specimen.main, specimen.inputs, specimen.called_with
        self.labels, self.input_range, self.progress = labels, input_range, progress
        self.difference, self.refused = pairs.difference, pairs.refused
        self.enclosed = self.enclosed_now()  # before the first call, which may fill what is kept by shape
        runs: Runs = run_both(self.networks, pairs, self.inputs, self.described, modes)
        self.packed = runs.first, runs.second.output
        self.matching = Matching() if runs.second.failure else match_outputs(*self.packed, match)
        ours, theirs = (self.matching.of(output, side) for side, output in enumerate(self.packed))
        self.runs = dataclasses.replace(runs, first=ours, second=dataclasses.replace(runs.second, output=theirs))
        self.pairs = self.runs.pairs
        self.layers = [pair for pairs in self.pairs.values() for pair in pairs]

    def certificate(self) -> Certificate:
        """The certificate, but for its circumstances."""
        between = self.between()
        rows, shown = list(self.rows.values()), list[Counterexample]()
        if self.identified is not None and not all(row.verdict is Verdict.HOLDS for row in rows):
            rows = []  # the formulas say more than layers that are compared by their names
        elif self.rounded is not None:  # so do the sections: a folded convolution is no other layer with weights off
            rows = [rounded_row(row) for row in rows]
        else:  # only here is anything constructed, which takes longer than the sections of a folded network
            shown = [*self.constructed, *([self.shown] if self.shown else [])]
        return Certificate(
            tuple(rows),
            tuple(between),
            self.outputs,
            ASSUMPTIONS,
            counterexamples=tuple(shown),
            state=self.state,
            identified=self.identified,
            rounded=self.rounded,
            place=self.place,
            inputs=tuple(inputs_in(self.inputs)),
            limits=self.engines + self.called_with + self.matching.in_words,
        )

    shown: Counterexample | None = None
    identified: Identified | None = None
    rounded: Rounded | None = None
    place: PartingPlace | None = None

    def between(self) -> list[Finding]:
        """The findings on what stands between the layers, and on what is returned."""
        second, found = self.runs.second, list[Finding]()
        if second.failure:
            where = f", by an error of {second.fault}" if second.fault else " where the first network does"
            sentence = f"the second network does not run{where}: {second.failure}"
            judged = (undecided if second.fault else refuted)("outputs", "C2A407", sentence)
            return [*self.modes(), self.structure, judged]
        found.append(judge_outputs(self.runs.first, second.output, self.overflow))
        found += findings_returned(self.runs.first, second.output)
        # Two outputs in another order are no difference: what order alone paired may hold, and refutes nothing.
        if self.matching.by_order and (found[0].verdict is Verdict.REFUTED or self.apart.refutes):
            return [*self.modes(), self.unmatched, self.structure]
        if found[0].verdict is Verdict.REFUTED:
            told = found[0].sentence
            self.shown = Counterexample(WHOLE_NETWORK, self.images[0], part="outputs", told=told, index=0)
        if found[0].verdict is not Verdict.HOLDS:
            return [*self.modes(), self.structure, *found]
        same = self.structure.verdict is Verdict.HOLDS
        foreign = None if same else self.foreign
        if foreign is not None and not self.apart.refutes:
            return [*self.modes(), self.numbers, foreign, *found]
        if self.apart.refutes:  # no other finding may hold against it
            self.shown = self.image_apart
            # Where modes differ, the mode is the cause, and no place has to be looked for.
            parting = [] if self.modes() else [foreign or self.compared_sections()]
            return [*self.modes(), self.numbers, *parting, self.structure, *found]
        numbers = [self.numbers] if self.apart.trouble else []
        # Layers that hold, in the same code, decide alone: a formula takes hundreds of calls and says no more.
        if same and not self.left_undecided:
            return [self.structure, *numbers, *found]
        open_questions = list[Finding]()
        # A hook on all modules may change any result, and formulas and sections run modules of their own.
        for ask in () if hooks_on_all_modules() else (self.formula, self.compared_sections):
            finding = ask()
            if finding.verdict is Verdict.HOLDS:
                return [finding, *numbers, *found]
            open_questions.insert(0, finding)
        return [*self.modes(), self.numbers, *open_questions, self.structure, *found]

    @property
    def unmatched(self) -> Finding:
        """The finding on outputs that differ where nothing but their order says which tensors belong together."""
        sentence = "the tensors of the outputs differ in their order, and no name says which belong together"
        return undecided("outputs", "C2A407", f"{sentence}{self.matching.in_words}: name them with --match A=B")

    @cached_property
    def apart(self) -> Difference:
        """How far apart the outputs of both plain calls are, in units of rounding."""
        first, second = (Picked(network, self.matching, side) for side, network in enumerate(self.networks))
        return differing_calls((first, second), self.inputs, (self.runs.first, self.runs.second.output))

    @property
    def left_undecided(self) -> bool:
        """Whether layers paired by their names differ, in networks that were written apart: the formula then decides.

        Two networks may have their channels in another order, or their layers, and be equal.
        """
        apart = any(row.verdict is not Verdict.HOLDS for row in self.rows.values())
        return apart and not self.bare and not any(map(has_attention, self.networks))

    @property
    def foreign(self) -> Finding | None:
        """The finding on networks of which one is not computed by torch, as some ONNX models are.

        Their operators are not followed, so plain calls alone are compared.
        """
        modules = [each for network in self.networks for each in network.modules()]
        others = {name: each for each in modules if isinstance(name := getattr(each, "operators_of", None), str)}
        if not others:
            return None
        unread = "; ".join(filter(None, (getattr(each, "unread", "") for each in others.values())))
        why = f"the operators of one are {' and '.join(sorted(others))}'s{f' ({unread})' if unread else ''}"
        return undecided("numbers", "C2A410", f"{why}, so that both are compared by running them alone")

    def formula(self) -> Finding:
        """Whether both are one formula, for all inputs of this size.

        Where that is not known, the second is asked again with the first's layers, where these are the same maps and
        its code does not see them: it returns the same numbers in float64.
        """
        if self.runs.elsewhere:
            return undecided(
                "formula", "C2A409", f"they are compared as formulas without gradients: {self.runs.elsewhere}"
            )
        if not alike(self.enclosed, self.enclosed_now()):
            sentence = "what functions of a network enclose, or name, changed at its first call"
            return undecided("formula", "C2A409", f"as formulas they are not compared: {sentence}")
        numbers = self.images.is_floating_point()
        made = (of_numbers if numbers else of_embeddings)(self.picked, self.few_images)
        if isinstance(made, str):
            return undecided("formula", "C2A409", f"as formulas they are not compared: {made}")
        networks, one, sizes = made
        found = one_formula(networks, one, progress=self.progress)
        if not numbers:
            found = dataclasses.replace(found, mode=f"{found.mode}{DESCRIBED}")
        again = isinstance(self.inputs, Tensor) and numbers and not found.equal and self.same and self.difference
        if again and self.exchangeable(one):
            inner = "network." if networks[0] is not self.networks[0] else ""
            found = one_formula(networks, one, {inner + name for name in self.same}, self.progress)
        if found.equal and found.log2_chance is not None:
            self.identified = Identified(
                found.log2_chance,
                found.oracle_values,
                found.degree,
                found.height,
                found.primes,
                sizes,
                found.mode,
            )
            # That hashes are independent but for one pair of words is a premise of FINGERPRINT, and no theorem.
            return holds("formula", Strength.IDENTIFIED, licensed_by=("FINGERPRINT", WITHOUT_THEOREM))
        told = found.reason or "they are told apart, which refutes nothing"
        return undecided("formula", "C2A409", f"as formulas they are not known to be equal: {told}")

    def enclosed_now(self) -> list[Any]:
        """What the functions of both networks enclose and name at this moment; nothing where that cannot be read."""
        try:
            return [network_state(each, FunctionType) for each in self.networks]
        except Exception:  # compiled code, and objects that raise where they are asked
            return []

    def compared_sections(self) -> Finding:
        """Whether both agree section by section, within rounding; else the place where they part.

        Layers of a conversion that are refuted stay so: there a row says more than a sample.
        """
        if self.runs.elsewhere:
            return undecided("sections", "C2A411", f"sections are compared without gradients: {self.runs.elsewhere}")
        inputs = map_tensors(Tensor.cpu, self.few_images.inputs)
        args, kwargs = arguments(inputs)
        first, second = (move_network(copy_network(each), torch.device("cpu")) for each in self.picked)
        sections = compare_sections(first, second, args, kwargs, differ=self.apart.refutes)
        self.place = sections.place and replace(
            sections.place, first=without_wrapper(sections.place.first), second=without_wrapper(sections.place.second)
        )
        if sections.equal is None:
            return undecided("sections", "C2A411", f"section by section they are not compared: {sections.reason}")
        if not sections.equal:
            why = self.place.in_words() if self.place else sections.reason
            return undecided("sections", "C2A411", f"section by section they are not known to be equal: {why}")
        wrong = any(row.verdict is Verdict.REFUTED for row in self.converted_rows)
        if wrong or self.apart.refutes or self.apart.trouble:
            sentence = "section by section both agree within rounding, which decides nothing here"
            return undecided("sections", "C2A411", sentence)
        sizes = tuple(tuple(each.shape) for each in tree_leaves(inputs) if isinstance(each, Tensor))
        unit = round(math.log2(sections.unit))
        self.rounded = Rounded(sections.units, unit, sections.arguments, sizes, self.apart.ratio)
        return holds("sections", Strength.ROUNDED)

    @property
    def converted_rows(self) -> list[Row]:
        """The rows of a conversion; none of networks that were written apart."""
        return [*self.rows.values()] if any(map(has_attention, self.networks)) else []

    @property
    def picked(self) -> tuple[nn.Module, nn.Module]:
        """Both networks, which return the compared tensors alone where an output is no bare tensor."""
        if all(isinstance(each, Tensor) for each in self.packed):
            return self.networks
        if (matching := self.matching).pairs is None:
            paths = dict(dense_parts(self.packed[0]))
            matching = Matching(tuple((path, path) for path in paths))
        first, second = (Picked(network, matching, side) for side, network in enumerate(self.networks))
        return first, second

    @cached_property
    def few_images(self) -> Specimen:
        """The inputs with a batch of two, so that a formula that couples images is seen; as they are where this fails.

        With three where the code of a network does something else of two, as one that takes two for a pair does.
        Networks may take no two images, or have the batch in another place. Few images that refute are asked as they
        are: there the place where they part is wanted, and whether images are coupled is not.
        """
        if self.apart.refutes and len(self.images) <= MOST_IMAGES:
            return self.specimen
        two, three = (self.specimen.several_images(count) for count in (2, 3))
        of_two, of_three = ([operators_called(each, few.inputs) for each in self.networks] for few in (two, three))
        # A branch on a batch of two shows in which operators run, before any number is compared.
        if None not in of_three and of_two != of_three:
            return three
        if None not in of_two:
            return two
        one = self.inputs[:1] if isinstance(self.inputs, Tensor) else self.inputs
        return dataclasses.replace(self.specimen, inputs=one)

    def exchangeable(self, image: Tensor) -> bool:
        """Whether the second network returns the same numbers in float64 with the layers of the first."""
        # Moved before layers are exchanged: functions of the first are redirected to layers that stand beside it.
        first, second = (move_network(copy_network(each), torch.device("cpu"), double=True) for each in self.networks)
        swapped = with_layers_of_the_first((first, second), self.same)[1]
        results = [call(copy_network(each), image.cpu().double()) for each in (second, swapped)]
        if any(each.failure for each in results):
            return False
        apart = differing_calls((second, swapped), image.cpu().double(), (results[0].output, results[1].output))
        return not apart.refutes and not apart.trouble

    def modes(self) -> list[Finding]:
        """A finding if only one of the networks is in training mode."""
        first, second = map(training_mode, self.networks)
        if first == second or not self.difference:
            return []
        sentence = f"the first network is in {first} mode, and the second network in {second} mode"
        return [undecided("modes", "C2A405", sentence)]

    @cached_property
    def structure(self) -> Finding:
        """Whether both networks are the same code between the layers."""
        if difference := self.difference:
            return undecided("structure", "C2A405", f"between the layers they are not the same code: {difference}")
        if self.runs.seen:
            sentence = f"their code is the same, but sees what its layers are: {self.runs.seen}"
            return undecided("structure", "C2A405", sentence)
        return holds("structure")

    @property
    def same(self) -> set[str]:
        """The names of layers, and of owners of functions, that are the same maps."""
        return {name for name, pairs in self.pairs.items() if all(pair.same for pair in pairs)}

    @cached_property
    def bare(self) -> bool:
        """Whether both networks are layers with nothing around them."""
        return all(is_layer(network) for network in self.networks)

    @cached_property
    def compared(self) -> dict[str, Row]:
        """The rows of all pairs of layers, by name."""
        rows = dict[str, Row]()
        for pair in self.layers:
            label = pair.first.label
            again = sum(name.partition("#")[0] == label for name in rows)
            name = f"{label}#{again + 1}" if again else label
            rows[name] = replace(pair.row(), name=name)
        return rows

    @cached_property
    def rows(self) -> dict[str, Row]:
        """All rows, by name: of layers, then of what was not compared."""
        rows = dict(self.compared)
        for name, (signature, error) in self.refused.items():
            rows[name] = unsupported_row(name, signature, error)
        return rows | {row.name: row for row in rows_of_the_rest(self.networks[1], [*rows])}

    @property
    def numbers(self) -> Finding:
        """The finding on the outputs of both plain calls."""
        apart = self.apart
        if apart.trouble:  # a remark: nothing is known, and nothing is forbidden
            return holds("numbers", Strength.SAMPLED, "C2A410", f"what rounding explains is not known: {apart.trouble}")
        if not apart.ratio:
            return undecided("numbers", "C2A410", f"they return the same numbers on {self.described}")
        much = f"on {self.described} they differ by {apart.size:.2g} in {apart.output}"
        explained = f"rounding explains {apart.rounding:.2g} there"
        if not apart.refutes:
            return undecided("numbers", "C2A410", f"{much}, and {explained}: this shows nothing")
        sentence = f"{much}, {apart.ratio:.2g} times as much as rounding: {explained}"
        return Finding("numbers", Verdict.REFUTED, Strength.SAMPLED, "C2A410", sentence)

    @property
    def image_apart(self) -> Counterexample:
        """The image on which both plain calls differ most."""
        apart = self.apart
        index = apart.place[0] if len(apart.place) > 1 and apart.place[0] < len(self.images) else 0
        # The image is shown alone, so its place in the batch is the first.
        place = (0, *apart.place[1:]) if index else apart.place
        numbers = place, apart.first, apart.second, REFUTES * apart.rounding, None, apart.count
        return Counterexample(WHOLE_NETWORK, self.images[index], *numbers, "outputs", apart.output, index=index)

    @cached_property
    def constructed(self) -> list[Counterexample]:
        """An input for each of the first layers that are refuted."""
        wrong = [name for name, row in self.rows.items() if row.verdict is Verdict.REFUTED]
        pairs = {pair.first.label: pair for pair in self.layers}
        readable = [pairs[name] for name in wrong if name in pairs and pairs[name].readable]
        counterexamples = (pair.counterexample(self.input_range) for pair in readable[:MOST_SHOWN])
        return [each for each in counterexamples if each is not None and each.shows]

    @cached_property
    def outputs(self) -> Outputs | None:
        """The outputs of both, measured."""
        return compare_outputs(self.runs.first, self.runs.second.output, self.described, self.labels)

    @property
    def overflow(self) -> str:
        """The first layer in which the original overflows on the inputs met, and why; empty where it does not."""
        met = (pair for pair in self.layers if pair.measured.shapes and pair.readable)
        reasons = ((pair.first.label, pair.overflow(0)) for pair in met)
        return next((f"{name}: {why}" for name, why in reasons if why), "")

    @property
    def engines(self) -> str:
        """The sizes that the claim leaves out, since the engine of a compared layer may refuse them; or nothing."""
        limited: dict[str, list[str]] = {}
        for engine, name in filter(None, (pair.limits for pair in self.layers)):
            limited.setdefault(engine, []).append(name)
        where = {
            engine: f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}" for engine, names in limited.items()
        }
        return "".join(f", of sizes that the engine {engine} does not refuse in {at}" for engine, at in where.items())

    @property
    def state(self) -> State:
        """What the networks were in while they were compared."""
        weights = [each for network in self.networks for each in network.parameters()]
        dtypes = sorted({str(each.dtype).removeprefix("torch.") for each in weights})
        mode, device, size = training_mode(self.networks[0]), str(self.images.device), tuple(self.images.shape[1:])
        return State(mode, tuple(dtypes), device, (size,), self.runs.gradients, torch.get_num_threads())


def training_mode(network: nn.Module) -> Literal["evaluation", "training", "mixed"]:
    """The mode of the modules whose code reads `training`; of all modules where no code does."""
    modules = list(modules_outside_layers(network).values())
    modes = {module.training for module in filter(reads_training, modules)} or {module.training for module in modules}
    return "mixed" if len(modes) > 1 else "training" if True in modes else "evaluation"


def reads_training(module: nn.Module) -> bool:
    """Whether a method of the module names `training`: the mode of an identity, say, changes nothing."""
    own = (base for base in type(module).__mro__ if base not in nn.Module.__mro__)
    methods = (method for base in own for method in vars(base).values() if isinstance(method, FunctionType))
    return any("training" in method.__code__.co_names for method in methods)


def rounded_row(row: Row) -> Row:
    """The row of a layer in a network whose sections agree: layers of one name may differ, as in a fold."""
    if row.verdict in (Verdict.HOLDS, Verdict.UNSUPPORTED):
        return row
    return replace(row, findings=(holds("sections", Strength.ROUNDED),), max_error=None, bound=None)


def without_wrapper(place: str) -> str:
    """A place by the caller's names, without the module that picks tensors of the outputs."""
    return place.removeprefix("network.").removeprefix("network ")


def rows_of_the_rest(network: nn.Module, rows: Sequence[str]) -> Iterator[Row]:
    """A row for each convolution that the conversion left and that has none of these `rows`, with the reason."""
    for name, row in conversions(network).items():
        label = name or ROOT
        if any(is_of(label, other) for other in rows):
            continue
        if row.outcome == SKIPPED:
            yield Row(label, row.signature, (Finding("support", Verdict.HOLDS, sentence=row.reason),), skipped=True)
        elif row.outcome == UNSUPPORTED:
            code, _, why = row.reason.partition(" ") if row.reason.startswith("C2A") else ("", "", row.reason)
            yield Row(label, row.signature, (unsupported(code, why),))
        else:
            sentence = "the layer of the first network that it stands for cannot be seen"
            yield Row(label, row.signature, (undecided("geometry", "C2A406", sentence),))


def is_of(label: str, row: str) -> bool:
    """Whether a row is of the module with this label, or of a function that it calls, which may be numbered."""
    call = row.partition("#")[0]
    return label in (row, call, call.partition(":")[0])
