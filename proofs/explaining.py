"""From a printed number back to the axioms: the claims that a row of a certificate names, and what they rest on."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

from conv2attn.errors import UsageError

from .claim import Claim
from .deciding import load
from .formal.answers import ALLOWED
from .formal.theorems import formal_claims

NO_THEOREM = "steps without a theorem"
NUMBERS = {
    "bound": "the layer and the convolution, as computed, are no further apart on inputs within +-{input_range:.3g}",
    "leak": "no head gives more of its attention to other keys than its target",
    "max_error": "measured on sampled images",
}


def explained_claim(name: str, names: Iterable[str], width: int = 80) -> str:
    """What a claim says, what must hold for it, what checks it, and what it rests on.

    Raises:
        UsageError: no claim has this name (C2A002).
    """
    claim = load(name, names)
    return "\n".join([f"{claim.name}: {claim.title}", "", *said(claim, width), *axioms(width), *commands([claim.name])])


def explained_row(document: Mapping[str, Any], row: str, names: Iterable[str], width: int = 80) -> str:
    """One row of a certificate: each number with the claims that it names, then these claims down to the axioms.

    Args:
        document: a certificate, as JSON holds it.
    Raises:
        UsageError: it has no such row (C2A004), or names a claim that is not there (C2A002).
    """
    try:
        rows = {each["name"]: each for each in document["rows"]}
        if row not in rows:
            listed = ", ".join(map(repr, [*rows][:9])) or "none"
            raise UsageError("C2A004", f"the certificate has no row {row!r}", f"Its rows are {listed}.")
        return "\n".join(lines_of_row(rows[row], document["assumptions"], tuple(names), width))
    except UsageError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        reason = f"the certificate has not what one of this version has ({type(error).__name__}: {error})"
        raise UsageError("C2A303", reason, "Write it again: conv2attn verify A B --report FILE.") from error


def lines_of_row(each: Mapping[str, Any], assumptions: Iterable[str], names: Iterable[str], width: int) -> list[str]:
    """The lines on one row of a certificate."""
    licences = each["licensed_by"]
    parts = [(part["part"], part["licensed_by"]) for part in each["findings"] if part["licensed_by"]]
    lines = [f"{each['name']}: {each['convolution']}, {each['verdict']} ({each['strength']})", ""]
    for number, words in NUMBERS.items():
        if each[number] is not None:
            claims = f" Rests on {', '.join(licences[number])}." if licences.get(number) else ""
            told = f"{number} {each[number]:.3g}: {words.format_map(each)}.{claims}"
            lines.append(fill(told, width, subsequent_indent="  "))
    lines += [f"{part}: rests on {', '.join(claims)}" for part, claims in parts]
    if licences["missing"]:
        lines += [fill(f"Premises that do not hold here: {'; '.join(licences['missing'])}.", width)]
        lines += [fill(f"What they would show is among the {NO_THEOREM}, checked by tests alone.", width)]
    named = dict.fromkeys([*licences["leak"], *licences["bound"], *(name for _, claims in parts for name in claims)])
    rests = [load(name, names) for name in named if name != NO_THEOREM]
    for claim in rests:
        lines += ["", f"{claim.name}: {claim.title}", *said(claim, width)]
    assumed = [fill(each, width, initial_indent="  ", subsequent_indent="  ") for each in assumptions]
    lines += ["", "Assumed:", *assumed]
    return [*lines, *axioms(width), *commands([claim.name for claim in rests])]


def said(claim: Claim, width: int) -> Iterator[str]:
    """The words of a claim, its conditions and its theorems in Coq, indented."""

    def indented(text: str) -> str:
        return fill(text, width, initial_indent="  ", subsequent_indent="    ")

    yield indented(claim.words)
    yield from (indented(f"Premise: {each}") for each in claim.conditions)
    sections = {each.name: each for each in formal_claims(Path(__file__).parent / "formal")}
    theorems = [each.name for each in sections[claim.name].theorems] if claim.name in sections else []
    yield indented(f"In Coq: {claim.formal}" + (f" ({', '.join(theorems)})" if theorems else ""))
    yield indented(f"Source: {claim.source}. Not shown: {claim.not_shown}")


def axioms(width: int) -> list[str]:
    """The axioms that the theorems rest on at most."""
    listed = ", ".join(sorted(ALLOWED))
    return ["", fill(f"In Coq all rests on at most {len(ALLOWED)} axioms, those of its real numbers: {listed}.", width)]


def commands(claims: list[str]) -> list[str]:
    """What checks the claims here."""
    return [f"Check it: conv2attn prove {' '.join(claims)} --formal"] if claims else []
