"""Saved inputs that showed a difference, shown again: both layers are run on them once more."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from conv2attn.attention.hardness import FORMAT_NAMES
from conv2attn.equality.bases import comparable_basis
from conv2attn.equality.certify import certify, not_negative
from conv2attn.equality.context.opaque import LOCK, Layer
from conv2attn.equality.context.walk import own, reason
from conv2attn.equality.counterexamples import compared_at
from conv2attn.equality.matching import match
from conv2attn.equality.outputs import is_dense
from conv2attn.equality.results import ROOT, WHOLE_NETWORK, Counterexample
from conv2attn.equality.rows import LayerPair
from conv2attn.errors import CheckpointError, Conv2AttnError, UsageError
from conv2attn.models.provenance import input_size_of
from conv2attn.report import Document, Notes, Report, counted, document
from conv2attn.verdicts import Verdict, worst_verdict

WITNESS_REMEDY = "Write one: conv2attn verify A B --save-witness FILE."


@final
@dataclass(frozen=True)
class Shown:
    """The result for one saved input: refuted if it still shows a difference, else undecided; with a sentence."""

    layer: str
    verdict: Verdict
    sentence: str


@final
@dataclass(frozen=True, repr=False)
class Replay(Report):
    """The results for the inputs in a file; if none shows a difference, nothing follows for other inputs."""

    schema: ClassVar[str] = "conv2attn.replay/1"
    file: str
    shown: tuple[Shown, ...]

    @property
    def verdict(self) -> Verdict:
        """Refuted if any input shows a difference, never more than undecided otherwise."""
        return worst_verdict(each.verdict for each in self.shown)


@document.register
def _(replay: Replay, verbose: bool = False) -> Document:
    """The verdict, then a sentence for each saved input."""
    still = sum(each.verdict is Verdict.REFUTED for each in replay.shown)
    rest = "" if still else " (and nothing is known of other inputs)"
    answer = f"{replay.verdict.value}: {still} of {len(replay.shown)} saved inputs show a difference{rest}"
    notes = Notes(tuple(f"{each.layer}: {each.sentence}" for each in replay.shown))
    return Document((answer,), (notes,), replay.verdict)


def replay_counterexamples(
    content: Mapping[Any, Any], file: str, original: nn.Module, network: nn.Module, tolerance: float | None = None
) -> Replay:
    """Runs the layers or networks that the saved inputs are for on them, the second's heads evaluated as softmaxes.

    Args:
        content: what `verify --save-witness` wrote into `file`.
        tolerance: what the numbers of whole networks may differ by, or where the networks are single layers, of these;
            an input of a layer between others then shows nothing. Without it, they differ by what rounding allows.
    Raises:
        CheckpointError: it holds no such inputs (C2A303).
        UsageError: they are not for these networks (C2A008), or the tolerance is no number of at least 0 (C2A001).
        UnsupportedError: a layer is no convolution.
    """
    tolerance = tolerance if tolerance is None else not_negative(tolerance, "tolerance")
    saved = content.get("witnesses")
    if not isinstance(saved, Sequence) or not saved or not all(map(is_saved, saved)):
        raise CheckpointError("C2A303", f"{file} holds no saved witnesses", WITNESS_REMEDY)
    with LOCK:
        results = tuple(
            (show_network if each.get("part") else show_layer)(each, file, original, network, tolerance)
            for each in saved
        )
    return Replay(file, results)


def is_saved(entry: object) -> bool:
    """Whether an entry of the file names a layer, a finite image (channels, *sides) and a place in the output.

    One of whole networks names in their place what it shows: a part of the certificate.
    """
    if not isinstance(entry, Mapping) or not isinstance(entry.get("layer"), str):
        return False
    image, place, part = entry.get("image"), entry.get("place"), entry.get("part", "")
    if not isinstance(image, Tensor) or not is_dense(image) or image.dtype not in FORMAT_NAMES:
        return False
    if not bool(image.isfinite().all()):
        return False
    if part != "":
        return part in ("outputs", "tolerance")
    return isinstance(place, tuple) and len(place) == image.ndim and all(type(i) is int and i >= 0 for i in place)


def show_layer(
    entry: Mapping[str, Any], file: str, original: nn.Module, network: nn.Module, tolerance: float | None
) -> Shown:
    """The result for one saved input of a layer."""
    name, image, place = entry["layer"], entry["image"], entry["place"]
    pair = pair_of(name, original, network, image)
    if pair is None:
        raise UsageError(
            "C2A008",
            f"{file} is of a layer {name}, which these networks have not",
            "Pass the two networks that verify compared then.",
        )
    weight = pair.bases.original.weights.stored
    if weight.dtype != image.dtype:
        remedy = f"Pass --dtype {FORMAT_NAMES[image.dtype]}, in which it was found."
        raise UsageError("C2A006", f"{file} holds {image.dtype}, and {name} is {weight.dtype}", remedy)
    image = image.to(weight.device)
    try:
        with torch.no_grad():
            fits = all(i < side for i, side in zip(place, own(pair.first, image[None]).shape[1:], strict=True))
    except (Conv2AttnError, RuntimeError, ValueError) as error:
        sentence = f"{name} of the original does not run on the input in {file}: {reason(error)}"
        raise UsageError("C2A009", sentence, "Pass the two networks that verify compared then.") from error
    if not fits:
        raise CheckpointError("C2A303", f"{file} is of output {place}, which {name} has not", WITNESS_REMEDY)
    allowed = tolerance if name == ROOT else None
    try:
        counterexample = compared_at((pair.first, pair.second), pair.bases, image, place, allowed)
    except (Conv2AttnError, RuntimeError, IndexError) as error:
        return Shown(name, Verdict.REFUTED, f"the second does not run on it: {reason(error)}")
    if counterexample is None:
        return Shown(name, Verdict.REFUTED, "the outputs are of other shapes")
    sentence = sentence_on(counterexample, allowed is None)
    if not counterexample.shows:
        return Shown(name, Verdict.UNDECIDED, sentence)
    if tolerance != allowed:
        return Shown(name, Verdict.UNDECIDED, f"{sentence}; this is one layer, and the tolerance is on the outputs")
    return Shown(name, Verdict.REFUTED, sentence)


def pair_of(name: str, original: nn.Module, network: nn.Module, image: Tensor) -> LayerPair | None:
    """The layers of this name, read off the networks as they are, or as they are called."""
    if ":" not in name:
        path = "" if name == ROOT else name
        modules = (dict(side.named_modules(remove_duplicate=False)).get(path) for side in (original, network))
        layers = [Layer(name, module, comparable_basis(module)) for module in modules if module is not None]
        return LayerPair(layers[0], layers[1]) if len(layers) == 2 else None
    size = input_size_of(original)
    matching = match(original, network, image[None] if size is None else image.new_zeros(1, *size))
    return next((pair for pair in matching.pairs if pair.first.label == name and pair.first.tensors), None)


def show_network(
    entry: Mapping[str, Any], file: str, original: nn.Module, network: nn.Module, tolerance: float | None
) -> Shown:
    """The result for one saved image of the whole networks: the judgement of their certificate on that image."""
    name, part, image = entry["layer"], entry["part"], entry["image"]
    if name != WHOLE_NETWORK:
        raise UsageError(
            "C2A008",
            f"{file} is of a part {name}, which these networks have not",
            "Pass the two networks that verify compared then.",
        )
    image = image.to(next((each.device for each in original.parameters()), image.device))[None]
    tolerance, description = tolerance if part == "tolerance" else None, f"the input in {file}"
    certificate = certify(original, network, images=image, described=description, tolerance=tolerance)
    counterexample = next((each for each in certificate.counterexamples if each.layer == WHOLE_NETWORK), None)
    if counterexample is None:
        beyond = "" if tolerance is None else " beyond the tolerance"
        untold = part == "tolerance" and tolerance is None
        sentence = "it is of a tolerance, and none is given" if untold else f"this input shows no difference{beyond}"
        return Shown(f"{name} {part}", Verdict.UNDECIDED, sentence)
    sentence = counterexample.fact if counterexample.told else sentence_on(counterexample, part != "tolerance")
    return Shown(f"{name} {part}", Verdict.REFUTED, sentence)


def sentence_on(example: Counterexample, by_rounding: bool) -> str:
    """The numbers beside what is allowed, and what follows."""
    if not math.isfinite(example.original):
        return f"{example.where}: the original is not finite there, so this input shows nothing"
    if not example.difference and not example.exact:
        return f"{example.where} is {example.original:.9g} in both: this input shows no difference"
    who = "rounding" if by_rounding else "the tolerance"
    limit = f"what {who} allows is not known" if example.allowed is None else f"{who} allows {example.allowed:.3g}"
    pair = f"{example.converted:.9g}, not {example.original:.9g}"
    many = f" ({counted(example.count, 'number')} off)" if example.count else ""
    numbers = f"{example.where} is {pair}: off by {example.difference:.3g}, {limit}{many}"
    if example.exceeds:
        return numbers
    if example.exact:
        return f"{numbers}; in exact arithmetic it is off by {example.exact:.3g}, and should not be"
    return f"{numbers}: this input shows nothing"
