"""Compares two networks: parameters of layers, code between them, formulas, and numbers of outputs."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from types import FunctionType
from typing import Any, Literal, final

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from conv2attn.equality.asked import Asked, inputs_in
from conv2attn.equality.calls import call, operators_called
from conv2attn.equality.certificate.results import (
    ROOT,
    Certificate,
    Counterexample,
    Finding,
    Gap,
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
from conv2attn.networks.copies import copy_network, in_training, move_network
from conv2attn.networks.specimens import Specimen, arguments, map_tensors
from conv2attn.theory.bounds import WITHOUT_THEOREM
from conv2attn.torch_internals import tree_leaves
from conv2attn.verdicts import Strength, Verdict

ASSUMPTIONS = (
    "finite inputs (dense and sdpa spread a NaN to every output, separable too where its bands are no narrower than "
    "the image, conv and gather only where the convolution does)",
    "sums formed directly (no Winograd or FFT: measured on the shapes that ran), no overflow, sides below 2^24",
    "the network's own code does the same at every call, at sizes and in modes of gradients that were not run, and in "
    "a copy, which code that compares objects by identity may notice: it calls its layers and reads nothing else of "
    "them",
    "the classes of conv2attn and torch are as installed: only methods replaced on an instance are detected",
)
MOST_IMAGES = 2  # a refuted call of at most this many images is traced with all of them


@final
class Comparison:
    """The parts of a certificate, each computed once; see `certify`."""

    def __init__(self, asked: Asked, specimen: Specimen, pairs: Pairs):
        self.asked, self.networks, self.specimen = asked, asked.networks, specimen
        self.images, self.inputs, self.described = specimen.main, specimen.inputs, specimen.described
        self.difference, self.refused = pairs.difference, pairs.refused
        self.enclosed = self.enclosed_now()  # before the first call, which may fill caches by shape
        runs: Runs = run_both(asked, specimen, pairs)
        self.packed = runs.first, runs.second.output
        self.matching = Matching() if runs.second.failure else match_outputs(*self.packed, asked.match)
        ours, theirs = (self.matching.of(output, side) for side, output in enumerate(self.packed))
        self.runs = dataclasses.replace(runs, first=ours, second=dataclasses.replace(runs.second, output=theirs))
        self.pairs = self.runs.pairs
        self.layers = [pair for pairs in self.pairs.values() for pair in pairs]

    def certificate(self) -> Certificate:
        """The certificate, to which `certify` adds its circumstances: time, machine and versions."""
        between = self.between()
        rows = list(self.rows.values())
        if self.identified is not None and not all(row.verdict is Verdict.HOLDS for row in rows):
            rows = []  # formulas are stronger than layers paired by name
        elif self.rounded is not None:  # sections too: a folded convolution differs, and is right
            rows = [rounded_row(row) for row in rows]
        return Certificate(
            tuple(rows),
            tuple(between),
            self.outputs,
            ASSUMPTIONS,
            counterexamples=(self.shown,) if self.shown else (),
            state=self.state,
            identified=self.identified,
            rounded=self.rounded,
            place=self.place,
            inputs=tuple(inputs_in(self.inputs)),
            limits=self.engines + self.specimen.called_with + self.matching.in_words,
        )

    shown: Counterexample | None = None
    identified: Identified | None = None
    rounded: Rounded | None = None
    place: PartingPlace | None = None

    def between(self) -> list[Finding]:
        """The findings on the code between the layers, and on the outputs."""
        second, output_findings = self.runs.second, list[Finding]()
        if second.failure:
            where = f", by an error of {second.fault}" if second.fault else " where the first network does"
            sentence = f"the second network does not run{where}: {second.failure}"
            judged = (undecided if second.fault else refuted)("outputs", "C2A407", sentence)
            return [*self.modes(), self.structure, judged]
        output_findings.append(judge_outputs(self.runs.first, second.output, self.overflow))
        output_findings += findings_returned(self.runs.first, second.output)
        # Outputs in another order are not a difference: tensors paired by order alone may hold, but cannot refute.
        if self.matching.by_order and (output_findings[0].verdict is Verdict.REFUTED or self.apart.refutes):
            return [*self.modes(), self.unmatched, self.structure]
        if output_findings[0].verdict is Verdict.REFUTED:
            self.shown = Counterexample(self.images[0], told=output_findings[0].sentence)
        if output_findings[0].verdict is not Verdict.HOLDS:
            return [*self.modes(), self.structure, *output_findings]
        same = self.structure.verdict is Verdict.HOLDS
        foreign = None if same else self.foreign
        if foreign is not None and not self.apart.refutes:
            return [*self.modes(), self.numbers, foreign, *output_findings]
        if self.apart.refutes:  # no other finding can outweigh it
            self.shown = self.image_apart
            # If modes differ, the mode is the cause, and no section is searched.
            parting = [] if self.modes() else [foreign or self.compared_sections()]
            return [*self.modes(), self.numbers, *parting, self.structure, *output_findings]
        numbers = [self.numbers] if self.apart.trouble else []
        # Layers that hold, in the same code, decide alone: comparing formulas takes hundreds of calls and adds nothing.
        if same and not self.left_undecided:
            return [self.structure, *numbers, *output_findings]
        open_questions = list[Finding]()
        # A hook on all modules may change any result, and formulas and sections run modules of their own.
        for ask in () if hooks_on_all_modules() else (self.formula, self.compared_sections):
            finding = ask()
            if finding.verdict is Verdict.HOLDS:
                return [finding, *numbers, *output_findings]
            open_questions.insert(0, finding)
        return [*self.modes(), self.numbers, *open_questions, self.structure, *output_findings]

    @property
    def unmatched(self) -> Finding:
        """The finding on outputs that differ, if their tensors were paired by order alone: pairs may be wrong."""
        sentence = "the tensors of the outputs differ in order, and no names pair them"
        return undecided("outputs", "C2A407", f"{sentence}{self.matching.in_words}: name them with --match A=B")

    @cached_property
    def apart(self) -> Difference:
        """The difference of the outputs of both plain calls, in units of rounding."""
        first, second = (Picked(network, self.matching, side) for side, network in enumerate(self.networks))
        return differing_calls((first, second), self.inputs, (self.runs.first, self.runs.second.output))

    @property
    def left_undecided(self) -> bool:
        """Whether layers paired by name differ in networks that were written separately: then the formula decides.

        Two equal networks may have channels or layers in different orders.
        """
        apart = any(row.verdict is not Verdict.HOLDS for row in self.rows.values())
        return apart and not self.converted and not all(map(is_layer, self.networks))

    @property
    def foreign(self) -> Finding | None:
        """The finding if one network is not computed by torch, as some ONNX models are.

        Its operators cannot be traced, so only plain calls are compared.
        """
        modules = [each for network in self.networks for each in network.modules()]
        others = {name: each for each in modules if isinstance(name := getattr(each, "operators_of", None), str)}
        if not others:
            return None
        unread = "; ".join(filter(None, (getattr(each, "unread", "") for each in others.values())))
        why = f"the operators of one are {' and '.join(sorted(others))}'s{f' ({unread})' if unread else ''}"
        return undecided("numbers", "C2A410", f"{why}, so both are compared only by running them")

    def formula(self) -> Finding:
        """Whether both are one formula, for all inputs of this size.

        If that is unknown, the second is compared again with layers of the first in it. These layers must be the same
        maps, and with them the second network must return the same numbers in float64.
        """
        if self.runs.elsewhere:
            return undecided("formula", "C2A409", f"formulas are compared without gradients: {self.runs.elsewhere}")
        if not alike(self.enclosed, self.enclosed_now()):
            sentence = "the first call of a network changed a variable that its functions enclose, or a global"
            return undecided("formula", "C2A409", f"formulas are not compared: {sentence}")
        numbers = self.images.is_floating_point()
        made = (of_numbers if numbers else of_embeddings)(self.picked, self.few_images)
        if isinstance(made, str):
            return undecided("formula", "C2A409", f"formulas are not compared: {made}")
        networks, one, sizes = made
        identification = one_formula(networks, one, progress=self.asked.progress)
        if not numbers:
            identification = dataclasses.replace(identification, mode=f"{identification.mode}{DESCRIBED}")
        again = (
            isinstance(self.inputs, Tensor) and numbers and not identification.equal and self.same and self.difference
        )
        if again and self.exchangeable(one):
            inner = "network." if networks[0] is not self.networks[0] else ""
            identification = one_formula(networks, one, {inner + name for name in self.same}, self.asked.progress)
        if identification.equal and identification.log2_chance is not None:
            self.identified = Identified(
                identification.log2_chance,
                identification.oracle_values,
                identification.degree,
                identification.height,
                identification.primes,
                sizes,
                identification.mode,
            )
            # The bound on the chance takes the hashes of all arguments as independent. FINGERPRINT proves it for hashes
            # of two arguments; that more of them are independent is no theorem.
            return holds("formula", Strength.IDENTIFIED, licensed_by=("FINGERPRINT", WITHOUT_THEOREM))
        told = identification.reason or "the formulas differ, which refutes nothing"
        return undecided("formula", "C2A409", f"their formulas are not known to be equal: {told}")

    def enclosed_now(self) -> list[Any]:
        """The values that functions of both networks enclose and name at this moment; empty if they cannot be read."""
        try:
            return [network_state(each, FunctionType) for each in self.networks]
        except Exception:  # compiled code, and objects whose attributes raise
            return []

    def compared_sections(self) -> Finding:
        """Whether both agree section by section, within rounding; otherwise the place where they differ.

        Refuted layers of a conversion stay refuted: a row says more than a sample.
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
            return undecided("sections", "C2A411", f"sections are not compared: {sections.reason}")
        if not sections.equal:
            why = self.place.in_words() if self.place else sections.reason
            return undecided("sections", "C2A411", f"their sections are not known to be equal: {why}")
        wrong = self.converted and any(row.verdict is Verdict.REFUTED for row in self.rows.values())
        if wrong or self.apart.refutes or self.apart.trouble:
            sentence = "all sections agree within rounding, which decides nothing here"
            return undecided("sections", "C2A411", sentence)
        sizes = tuple(tuple(each.shape) for each in tree_leaves(inputs) if isinstance(each, Tensor))
        unit = round(math.log2(sections.unit))
        self.rounded = Rounded(sections.units, unit, sections.arguments, sizes, self.apart.ratio)
        return holds("sections", Strength.ROUNDED)

    @property
    def converted(self) -> bool:
        """Whether one of the networks was converted; others were written apart."""
        return any(map(has_attention, self.networks))

    @property
    def picked(self) -> tuple[nn.Module, nn.Module]:
        """Both networks, wrapped to return only the compared tensors if an output is not a bare tensor."""
        if all(isinstance(each, Tensor) for each in self.packed):
            return self.networks
        if (matching := self.matching).pairs is None:
            paths = dict(dense_parts(self.packed[0]))
            matching = Matching(tuple((path, path) for path in paths))
        first, second = (Picked(network, matching, side) for side, network in enumerate(self.networks))
        return first, second

    @cached_property
    def few_images(self) -> Specimen:
        """The inputs with a batch of two, which shows formulas that couple images; unchanged if this fails.

        The batch has three images if the code behaves differently for two, as code for pairs does. Networks may not
        accept two images, or have the batch on another axis. If at most two given images refute, they are used as they
        are, since only the place of the difference is searched then.
        """
        if self.apart.refutes and len(self.images) <= MOST_IMAGES:
            return self.specimen
        two, three = (self.specimen.several_images(count) for count in (2, 3))
        of_two, of_three = ([operators_called(each, few.inputs) for each in self.networks] for few in (two, three))
        # A branch for a batch of two changes the sequence of operators, even before numbers are compared.
        if None not in of_three and of_two != of_three:
            return three
        if None not in of_two:
            return two
        one = self.inputs[:1] if isinstance(self.inputs, Tensor) else self.inputs
        return dataclasses.replace(self.specimen, inputs=one)

    def exchangeable(self, image: Tensor) -> bool:
        """Whether the second network returns the same numbers in float64 with the layers of the first."""
        # Moved first: later, functions of the first network refer to layers outside it, which would not move with it.
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
            sentence = f"their code is the same, but it inspects its layers: {self.runs.seen}"
            return undecided("structure", "C2A405", sentence)
        return holds("structure")

    @property
    def same(self) -> set[str]:
        """The names of layers, and of modules that call convolutions as functions, that are the same maps in both."""
        return {name for name, pairs in self.pairs.items() if all(pair.same for pair in pairs)}

    @cached_property
    def rows(self) -> dict[str, Row]:
        """All rows, by name: of pairs of layers, then of what was not compared."""
        rows = dict[str, Row]()
        for pair in self.layers:
            label = pair.first.label
            again = sum(name.partition("#")[0] == label for name in rows)
            name = f"{label}#{again + 1}" if again else label
            rows[name] = replace(pair.row(), name=name)
        for name, (signature, error) in self.refused.items():
            rows[name] = unsupported_row(name, signature, error)
        return rows | {row.name: row for row in rows_of_the_rest(self.networks[1], [*rows])}

    @property
    def numbers(self) -> Finding:
        """The finding on the outputs of both plain calls."""
        apart = self.apart
        if apart.trouble:  # a remark without influence on the verdict
            return holds("numbers", Strength.SAMPLED, "C2A410", f"the effect of rounding is unknown: {apart.trouble}")
        if not apart.ratio:
            return undecided("numbers", "C2A410", f"they return the same numbers on {self.described}")
        much = f"on {self.described} they differ by {apart.size:.2g} in {apart.output}"
        explained = f"rounding explains {apart.rounding:.2g} there"
        if not apart.refutes:
            return undecided("numbers", "C2A410", f"{much}, and {explained}: this proves nothing")
        sentence = f"{much}, {apart.ratio:.2g} times as much as rounding: {explained}"
        return Finding("numbers", Verdict.REFUTED, Strength.SAMPLED, "C2A410", sentence)

    @property
    def image_apart(self) -> Counterexample:
        """The image on which the plain calls differ most."""
        apart = self.apart
        index = apart.place[0] if len(apart.place) > 1 and apart.place[0] < len(self.images) else 0
        # The image is shown alone, so its index in the batch is 0.
        place = (0, *apart.place[1:]) if index else apart.place
        gap = Gap(apart.output, place, apart.first, apart.second, apart.count)
        return Counterexample(self.images[index], index, gap=gap, allowed=REFUTES * apart.rounding)

    @cached_property
    def outputs(self) -> Outputs | None:
        """Measurements of both outputs."""
        labels = self.asked.labels if self.specimen is self.asked.specimens[0] else None
        return compare_outputs(self.runs.first, self.runs.second.output, self.described, labels)

    @property
    def overflow(self) -> str:
        """The first layer in which the original overflows on the inputs that were run, and why; empty if none."""
        measured_pairs = (pair for pair in self.layers if pair.measured.shapes and pair.readable)
        reasons = ((pair.first.label, pair.overflow(0)) for pair in measured_pairs)
        return next((f"{name}: {why}" for name, why in reasons if why), "")

    @property
    def engines(self) -> str:
        """The sizes that the claim excludes, since the engine of a compared layer may refuse them; may be empty."""
        limited: dict[str, list[str]] = {}
        for engine, name in filter(None, (pair.limits for pair in self.layers)):
            limited.setdefault(engine, []).append(name)
        where = {
            engine: f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}" for engine, names in limited.items()
        }
        return "".join(f", of sizes that the engine {engine} does not refuse in {at}" for engine, at in where.items())

    @property
    def state(self) -> State:
        """The state of the networks during the comparison."""
        weights = [each for network in self.networks for each in network.parameters()]
        dtypes = sorted({str(each.dtype).removeprefix("torch.") for each in weights})
        mode, device, size = training_mode(self.networks[0]), str(self.images.device), tuple(self.images.shape[1:])
        return State(mode, tuple(dtypes), device, (size,), self.runs.gradients, torch.get_num_threads())


def training_mode(network: nn.Module) -> Literal["evaluation", "training", "mixed"]:
    """The mode of the modules whose code reads `training`; of all modules if none reads it."""
    modules = list(modules_outside_layers(network).values())
    modes = {*map(in_training, filter(reads_training, modules))} or {*map(in_training, modules)}
    return "mixed" if len(modes) > 1 else "training" if True in modes else "evaluation"


def reads_training(module: nn.Module) -> bool:
    """Whether a method of the module names `training`; the mode of an identity, for example, has no effect."""
    own = (base for base in type(module).__mro__ if base not in nn.Module.__mro__)
    methods = (method for base in own for method in vars(base).values() if isinstance(method, FunctionType))
    return any("training" in method.__code__.co_names for method in methods)


def rounded_row(row: Row) -> Row:
    """The row of a layer if the sections of both networks agree: the layer itself may differ, for example by a fold."""
    if row.verdict in (Verdict.HOLDS, Verdict.UNSUPPORTED):
        return row
    return replace(row, findings=(holds("sections", Strength.ROUNDED),), max_error=None, bound=None)


def without_wrapper(place: str) -> str:
    """A place in the caller's names, without the wrapper that selects output tensors."""
    return place.removeprefix("network.").removeprefix("network ")


def rows_of_the_rest(network: nn.Module, rows: Sequence[str]) -> Iterator[Row]:
    """A row, with the reason, for each convolution that the conversion kept and that has none of these `rows`."""
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
            sentence = "the layer of the first network that it replaces cannot be observed"
            yield Row(label, row.signature, (undecided("geometry", "C2A406", sentence),))


def is_of(label: str, row: str) -> bool:
    """Whether a row is of the module with this label, or of a function that it calls, possibly numbered."""
    call = row.partition("#")[0]
    return label in (row, call, call.partition(":")[0])
