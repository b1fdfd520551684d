"""Decides a stored certificate again, by other code than that which made it.

Of one that holds: its document follows from its findings, and both networks are one formula at a drawn size, whatever
way the certificate took. Bounds of layers that are not one-hot follow from no formula: there the certificate is derived
anew, and compared field by field. No bound may be below the one that the program of claim ROW proves. Of one that is
refuted the kept input is run again.
"""

import json
import math
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import msgspec
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from conv2attn.arguments import first_weight
from conv2attn.equality.asked import MOST_NUMBERS
from conv2attn.equality.calls import MODES, call_itself
from conv2attn.equality.circumstances import machine
from conv2attn.equality.comparison import ASSUMPTIONS, compared_state
from conv2attn.equality.exchanged import has_attention
from conv2attn.equality.fingerprint import Identification
from conv2attn.equality.one_formula import one_formula
from conv2attn.equality.outputs import judge_outputs
from conv2attn.equality.plain_calls import differing_calls
from conv2attn.equality.results import ROOT, SAME_FORMULA, Certificate, in_words
from conv2attn.equality.runs import changes_with_modes
from conv2attn.equality.stored_bounds import Objection, too_small
from conv2attn.equality.stored_certificates import CHARACTERS_SHOWN, compare_documents, rows_by_name
from conv2attn.layers.attention import set_engine
from conv2attn.networks.copies import copy_network
from conv2attn.report import Document, Notes, Report, document
from conv2attn.report.result import without_derived
from conv2attn.verdicts import Strength, Verdict

MOVED_FILES = "Go to its folder, or name both files: recheck FILE ORIGINAL CONVERTED."
AS_STORED = ("between", "circumstances", "identified", "outputs", "rows")
MOST_PIXELS = 32  # a side, of a drawn size
BITS_OF_CHANCE = 4  # by which secret primes that are drawn anew may change it


@final
@dataclass(frozen=True, repr=False)
class Recheck(Report):
    """The result for a stored certificate: `wrong` lists contradictions with it, `unknown` what was not decided.

    Both networks are one formula of images of these `sizes`, but for a chance of 2^`log2_chance` at each. `shown` says
    what the kept input of a refutation shows. `as_stored` names the parts of the document that were not derived again.
    """

    schema: ClassVar[str] = "conv2attn.recheck/5"
    certificate: str
    stored: str
    wrong: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    log2_chance: float | None = None
    sizes: tuple[tuple[int, ...], ...] = ()
    mode: str = ""
    as_stored: tuple[str, ...] = ()
    shown: str = ""

    @property
    def claim(self) -> str:
        """What was found out here, without the code that made the certificate; empty where nothing was."""
        if self.log2_chance is None:
            return self.shown
        each = " at each" if len(self.sizes) > 1 else ""
        sizes, chance = in_words(self.sizes), f"a chance of 2^{self.log2_chance:.0f}{each}"
        return f"{SAME_FORMULA} of {sizes}, {self.mode}, but for {chance}"

    @property
    def verdict(self) -> Verdict:
        """Refuted if anything is wrong, undecided if anything was not derived again, otherwise as stored."""
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
    found = [f"found here: {recheck.claim}"] if recheck.claim else []
    found += [f"as stored, not derived again: {', '.join(recheck.as_stored)}"] if recheck.as_stored else []
    return Document((verdict,), (Notes((*recheck.wrong, *recheck.unknown, *found, counts)),), recheck.verdict)


def recheck_certificate(
    path: str,
    body: Mapping[str, Any],
    networks: tuple[nn.Module, nn.Module],
    derive: Callable[[], Certificate],
    kept: Tensor | None = None,
) -> Recheck:
    """The result for the certificate `body` in the file at `path`.

    Args:
        derive: what derives the certificate of both networks anew; called only where nothing else can decide.
        kept: the input that shows a refutation, if it was saved.
    """
    if body["verdict"] == Verdict.REFUTED.value and kept is not None and (shown := shown_again(networks, kept)):
        return Recheck(path, body["verdict"], (), shown=shown)
    told = ""
    if body["verdict"] == Verdict.HOLDS.value:
        stored = decoded(body)
        if isinstance(stored, str):
            return Recheck(path, body["verdict"], (stored,))
        if all(decided_by_formulas(row.name, row.strength) for row in stored.counted):
            every = list(objections(body, networks, stored))
            found = [] if any(each.sure for each in every) else identified_again(networks, stored)
            told = told_apart(found)
            if found and stored.identified is not None and found[0].mode != stored.identified.mode:
                every.append(Objection(f"identified.mode is {found[0].mode!r} when derived anew", sure=True))
            if not told:
                return result(path, body, every, found, tuple(name for name in AS_STORED if body[name]))
    anew = derive()
    fresh, circumstances = with_stored_chance(anew, body).to_dict(), body.get("circumstances")
    if isinstance(circumstances, dict) and "repeat" in circumstances:  # which names the file of a saved input
        fresh["circumstances"]["repeat"] = circumstances["repeat"]
    every = list(compare_documents(body, fresh))
    here = not any(each.sentence.startswith("circumstances") for each in every)
    every += bounds_too_small(body, networks, anew, here)
    found = identified_again(networks, anew) if anew and not told else []
    if told := told or told_apart(found):
        every.append(Objection(f"that both are one formula: {told}", sure=False))
    return result(path, body, every, [] if told else found)


def told_apart(found: Sequence[Identification]) -> str:
    """Why both networks are not known to be one formula at all sizes; empty where they are."""
    return next((each.reason or "they are told apart" for each in found if not each.equal), "")


def objections(
    body: Mapping[str, Any], networks: tuple[nn.Module, nn.Module], stored: Certificate
) -> Iterator[Objection]:
    """The objections to a document that does not follow from its findings, or is of networks in another state."""
    own = first_weight(networks[0])
    own = torch.empty(0, device="cpu") if own is None else own
    tried = tuple(mode for mode in MODES if mode == "no gradients" or mode in stored.state.gradients)
    state, here = compared_state(networks, str(own.device), stored.state.sizes, tried), machine(networks[0], own)
    same = here.items() <= stored.circumstances.items()
    yield from compare_documents(body, replace(stored, state=state, assumptions=ASSUMPTIONS).to_dict())
    yield from bounds_too_small(body, networks, stored, same)
    for size in stored.state.sizes if stored.identified is not None and len(tried) > 1 else ():
        if found := changes_with_modes(networks, torch.rand(1, *size, device="cpu").to(own), tried[1:]):
            yield Objection(f"state.gradients: {found}", sure=True)
    if stored.identified is not None:
        run, identified = set(stored.state.sizes), {size[1:] for size in stored.identified.sizes}
        for size in identified - run:
            yield Objection(f"identified.sizes names {in_words([size])}, which state.sizes does not", sure=True)
        for size in run - identified:
            yield Objection(f"that both return the same bits at {in_words([size])}", sure=False)


def shown_again(networks: tuple[nn.Module, nn.Module], images: Tensor) -> str:
    """What an input shows of two networks that are not the same; empty if nothing.

    Raises:
        UsageError: there is not enough memory (C2A202).
    """
    ours, theirs = (call_itself(network, images) for network in networks)
    if isinstance(ours, str) or isinstance(theirs, str) or ours.failure or theirs.fault:
        return ""
    if theirs.failure:
        return f"on the kept input the second network does not run, where the first network does: {theirs.failure}"
    kinds = judge_outputs(ours.output, theirs.output, "")
    if kinds.verdict is Verdict.REFUTED:
        return f"on the kept input {kinds.sentence}"
    apart = differing_calls(networks, images, (ours.output, theirs.output))
    if not apart.refutes:
        return ""
    return f"on the kept input they differ by {apart.size:.2g}, and rounding explains {apart.rounding:.2g} there"


def decoded(body: Mapping[str, Any]) -> Certificate | str:
    """The certificate that a document is of, or why it is of none that holds."""
    try:
        certificate = msgspec.convert(without_derived(Certificate, dict(body)), Certificate)
    except (msgspec.ValidationError, TypeError, UnicodeError) as error:
        return f"it is no document of a certificate: {json.dumps(str(error)[:CHARACTERS_SHOWN])[1:-1]}"
    sizes = certificate.state.sizes
    if not sizes or not all(size and min(size) > 0 and math.prod(size) <= MOST_NUMBERS for size in sizes):
        return f"it names no size of images with at most {MOST_NUMBERS} numbers"
    return certificate


def decided_by_formulas(name: str, strength: Strength | None) -> bool:
    """Whether a fingerprint decides about a layer: not where a bound decides, and not of a function with any weight."""
    return strength is not Strength.BOUNDED and ":" not in name


def bounds_too_small(
    body: Mapping[str, Any], networks: tuple[nn.Module, nn.Module], certificate: Certificate, here: bool
) -> Iterator[Objection]:
    """The objections to stored bounds that are below proved ones.

    Args:
        here: whether they were derived on a machine like this one, whose arithmetic a bound must count.
    """
    stored_rows = rows_by_name(body)
    for row in (each for each in certificate.rows if not each.skipped):
        layers = [dict(side.named_modules()).get("" if row.name == ROOT else row.name) for side in networks]
        if layers[0] is not None and layers[1] is not None:
            for each in too_small(stored_rows.get(row.name, {}), layers[0], layers[1], sure=here):
                yield Objection(f"{row.name}: {each.sentence}", each.sure)


def result(
    path: str,
    body: Mapping[str, Any],
    every: list[Objection],
    found: Sequence[Identification],
    as_stored: tuple[str, ...] = (),
) -> Recheck:
    """The result that follows from all objections, and from what formulas say."""
    wrong, unknown = (tuple(each.sentence for each in every if each.sure is sure) for sure in (True, False))
    if not found:
        return Recheck(path, body["verdict"], wrong, unknown)
    chance = max(each.log2_chance for each in found if each.log2_chance is not None)
    sizes = tuple(each.size for each in found)
    return Recheck(path, body["verdict"], wrong, unknown, chance, sizes, found[0].mode, as_stored)


def with_stored_chance(anew: Certificate, body: Mapping[str, Any]) -> Certificate:
    """The certificate with the chance of the stored one, where secret primes drawn anew explain the difference."""
    known = body.get("identified")
    chance = known.get("log2_chance") if isinstance(known, dict) else None
    if anew.identified is None or not isinstance(chance, float):
        return anew
    if not abs(chance - anew.identified.log2_chance) <= BITS_OF_CHANCE:
        return anew
    return replace(anew, identified=replace(anew.identified, log2_chance=chance))


def identified_again(networks: tuple[nn.Module, nn.Module], anew: Certificate) -> list[Identification]:
    """Whether both are one formula at drawn sizes of at most 32 pixels a side, or at the sizes of the certificate.

    At a drawn size converted layers are evaluated by the engine `dense`, so that their one-hot rows are checked too.
    Layers whose leak is bounded, and functions, whose bounds and maps are derived anew, are the first's in both.
    """
    apart = {row.name for row in anew.rows if not decided_by_formulas(row.name, row.strength)}
    names = {name.partition(":")[0].removeprefix(ROOT) for name in apart}
    return [identified_at(size, networks, names) for size in anew.state.sizes]


def identified_at(
    size: tuple[int, ...], networks: tuple[nn.Module, nn.Module], names: Collection[str]
) -> Identification:
    """Whether both are one formula at a drawn size no larger than this one, or at this one."""
    first, second = networks
    own = first_weight(first)
    drawn = (size[0], *(min(side, MOST_PIXELS) - secrets.randbelow(4) for side in size[1:]))
    for each in (drawn, size):
        if min(each) < 1:
            continue
        images = torch.rand(1, *each, device="cpu").to(torch.empty(0, device="cpu") if own is None else own.detach())
        shown = set_engine(copy_network(second), "dense") if each is drawn and has_attention(second) else second
        found = one_formula((first, shown), images, names)
        if found.equal is not None:
            return found
    images = torch.rand(1, *size, device="cpu").to(torch.empty(0, device="cpu") if own is None else own.detach())
    return one_formula(networks, images, names)
