"""Derives a stored certificate anew, compares the whole document, and compares the formulas at another, random size.

Nothing in the document is trusted except its circumstances (time, machine, versions).
"""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from conv2attn.arguments import first_weight
from conv2attn.equality.calls import call
from conv2attn.equality.certificate.results import ROOT, SAME_FORMULA, Certificate, in_words
from conv2attn.equality.certificate.stored_certificates import MACHINE, compare_documents
from conv2attn.equality.fingerprint import Identification
from conv2attn.equality.fingerprint.one_formula import one_formula
from conv2attn.equality.outputs import Picked, match_outputs
from conv2attn.equality.twins.exchanged import has_attention
from conv2attn.layers.attention import set_engine
from conv2attn.networks.copies import copy_network
from conv2attn.report import Document, Notes, Report, document
from conv2attn.verdicts import Strength, Verdict

MOVED_FILES = "Go to its folder, or name both files: recheck FILE ORIGINAL CONVERTED."
CIRCUMSTANCES = "circumstances"
MOST_PIXELS = 32  # a side, of a drawn size
FIRST_ARGUMENT = "argument 1"  # its name in `inputs_in`
BITS_OF_CHANCE = 4  # newly drawn primes may change the chance by this much


@final
@dataclass(frozen=True, repr=False)
class Recheck(Report):
    """The result for a stored certificate: `wrong` lists contradictions, `unknown` the undecided questions.

    Both networks are one formula of images of these `sizes`, with an error probability of 2^`log2_chance` for each.
    """

    schema: ClassVar[str] = "conv2attn.recheck/5"
    certificate: str
    stored: str
    wrong: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    log2_chance: float | None = None
    sizes: tuple[tuple[int, ...], ...] = ()
    mode: str = ""

    @property
    def claim(self) -> str:
        """The statement derived here; empty if there is none."""
        if self.log2_chance is None:
            return ""
        of_each = " at each" if len(self.sizes) > 1 else ""
        sizes, chance = in_words(self.sizes), f"a chance of 2^{self.log2_chance:.0f}{of_each}"
        return f"{SAME_FORMULA} of {sizes}, {self.mode}, but for {chance}"

    @property
    def verdict(self) -> Verdict:
        """Refuted if there is a contradiction, undecided if something was not derived again, otherwise as stored."""
        if self.wrong:
            return Verdict.REFUTED
        return Verdict.UNDECIDED if self.unknown else Verdict(self.stored)


@document.register
def _(recheck: Recheck, verbose: bool = False) -> Document:
    """The verdict, then the contradictions and the open questions."""
    first = f"; not derived again: {recheck.unknown[0]}" if recheck.unknown and not recheck.wrong else ""
    verdict = f"{recheck.verdict.value}: {recheck.certificate}{first}"
    counts = f"stored verdict: {recheck.stored}"
    if recheck.verdict is Verdict(recheck.stored) is Verdict.REFUTED and not recheck.wrong:
        counts += ", which is right"
    remarks = [f"found here: {recheck.claim}"] if recheck.claim else []
    remarks += [f"not derived again: {CIRCUMSTANCES}"]
    return Document((verdict,), (Notes((*recheck.wrong, *recheck.unknown, *remarks, counts)),), recheck.verdict)


def recheck_certificate(
    path: str,
    body: Mapping[str, Any],
    networks: tuple[nn.Module, nn.Module],
    derive: Callable[[], Certificate],
) -> Recheck:
    """The result for the certificate `body` in the file at `path`.

    Args:
        derive: derives the certificate of both networks anew.
    """
    anew = derive()
    fresh = with_stored_chance(anew, body).to_dict()
    own, circumstances = fresh[CIRCUMSTANCES], body.get(CIRCUMSTANCES)
    # Time, machine and versions may differ; a certificate without them is not whole.
    stored = {**body, CIRCUMSTANCES: own} if isinstance(circumstances, dict) else body
    here = isinstance(circumstances, dict) and all(
        circumstances.get(key) == fresh[CIRCUMSTANCES].get(key) for key in MACHINE
    )
    every = list(compare_documents(stored, fresh, here=here))
    identifications = identified_again(networks, anew) if anew and anew.rounded is None else []
    if difference := difference_of_formulas(identifications):
        every.append((f"that both are one formula: {difference}", False))
        identifications = []
    wrong, unknown = (tuple(sentence for sentence, sure in every if sure is which) for which in (True, False))
    # If the networks are refuted again, the measured numbers may differ, since another machine rounds otherwise.
    if anew.verdict.value == body["verdict"] == Verdict.REFUTED.value:
        unknown = ()
    if not identifications:
        return Recheck(path, body["verdict"], wrong, unknown)
    chance = max(each.log2_chance for each in identifications if each.log2_chance is not None)
    sizes = tuple(each.size for each in identifications)
    return Recheck(path, body["verdict"], wrong, unknown, chance, sizes, identifications[0].mode)


def difference_of_formulas(identifications: Sequence[Identification]) -> str:
    """The reason why both networks are not known to be one formula at all sizes; empty if they are."""
    return next((each.reason or "the formulas differ" for each in identifications if not each.equal), "")


def with_stored_chance(anew: Certificate, body: Mapping[str, Any]) -> Certificate:
    """The certificate with the stored error probability, if newly drawn primes explain the difference."""
    stored = body.get("identified")
    chance = stored.get("log2_chance") if isinstance(stored, dict) else None
    if anew.identified is None or not isinstance(chance, float):
        return anew
    if not abs(chance - anew.identified.log2_chance) <= BITS_OF_CHANCE:
        return anew
    return replace(anew, identified=replace(anew.identified, log2_chance=chance))


def identified_again(networks: tuple[nn.Module, nn.Module], anew: Certificate) -> list[Identification]:
    """Whether both are one formula at random sizes of at most 32 pixels a side, or at the certificate's sizes.

    At a random size, converted layers use the engine `dense`, so their one-hot rows are checked too. Layers with a
    bounded leak, and functions, are taken from the first network in both runs; their bounds and maps are derived
    separately. A random size is drawn only for networks of one image; for others, the formula derived anew is compared
    alone.
    """
    numbers = all(each.dtype.startswith(("float", "bfloat")) for each in anew.inputs)
    if not numbers or {each.name for each in anew.inputs} != {FIRST_ARGUMENT}:
        formulas = [anew.identified] if anew.identified else []
        return [
            Identification(True, size, log2_chance=f.log2_chance, mode=f.mode) for f in formulas for size in f.sizes
        ]
    apart = [row.name for row in anew.rows if row.strength is Strength.BOUNDED or ":" in row.name]
    names = {name.partition(":")[0].removeprefix(ROOT) for name in apart}
    return [identified_at(size, networks, names) for size in anew.state.sizes]


def identified_at(
    size: tuple[int, ...], networks: tuple[nn.Module, nn.Module], names: Collection[str]
) -> Identification:
    """Whether both are one formula at a random size up to this one, or at this size."""
    first, second = networks
    own = first_weight(first)
    like = torch.empty(0, device="cpu") if own is None else own.detach()
    # A random size detects code that was written for the certificate's size only; a network may refuse it.
    drawn = (size[0], *(min(side, MOST_PIXELS) - secrets.randbelow(4) for side in size[1:]))
    for each in (drawn, size) if min(drawn) > 0 else (size,):
        images = torch.rand(1, *each, device="cpu").to(like)
        shown = set_engine(copy_network(second), "dense") if each is drawn and has_attention(second) else second
        formula = one_formula(*tensors_alone((first, shown), images, names))
        if formula.equal is not None:
            break
    return formula


def tensors_alone(
    networks: tuple[nn.Module, nn.Module], images: Tensor, names: Collection[str]
) -> tuple[tuple[nn.Module, nn.Module], Tensor, Collection[str]]:
    """The arguments of `one_formula`: only the tensors of outputs are compared, however they are packed."""
    matching = match_outputs(*(call(copy_network(each), images).output for each in networks))
    if matching.pairs is None:
        return networks, images, names
    first, second = (Picked(network, matching, side) for side, network in enumerate(networks))
    return (first, second), images, {f"network.{name}".removesuffix(".") for name in names}
