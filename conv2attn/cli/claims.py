"""The commands for lookups: prove, explain, inspect."""

import shutil
from pathlib import Path

import click

from conv2attn.cli.group import main
from conv2attn.cli.options import Read, Showing, reporting, sizing
from conv2attn.errors import ERROR_RULES, UsageError


@main.command(example="conv2attn prove L1")
@click.argument("claims", nargs=-1, metavar="[CLAIM]...")
@click.option("--formal", is_flag=True, help="Also check the Coq proofs; needs coqc, and exits with 3 without it.")
@reporting
def prove(claims: tuple[str, ...], formal: bool, showing: Showing) -> None:
    """Check the claims in proofs/ again, each together with false variants.

    Without CLAIM, all are checked. Every claim has false variants (mutants), which must be refuted. As latex or
    markdown, the report gives the steps of each proof.
    """
    from conv2attn import proofs

    showing.finish(proofs.report(claims, formal=formal))


@main.command(example="conv2attn explain --row layer1.0.conv1 certificate.json")
@click.argument("subject", required=False, metavar="[CODE|CLAIM|CERTIFICATE]")
@click.option("--row", help="A layer: its numbers in CERTIFICATE, their theorems and premises, down to the axioms.")
def explain(subject: str | None, row: str | None) -> None:
    """Explain a CODE, a CLAIM, or a row of a CERTIFICATE; without one, list all codes."""
    from conv2attn import proofs

    columns = shutil.get_terminal_size().columns
    if row is not None:
        from conv2attn.equality.certificate.stored_certificates import read_certificate

        if subject is None:
            raise UsageError("C2A004", "--row needs a certificate", "Name its file: explain --row LAYER CERTIFICATE.")
        click.echo(proofs.explain_row(read_certificate(subject), row, columns))
    elif subject is None:
        click.echo("\n".join(f"{key}  {ERROR_RULES[key].title}" for key in sorted(ERROR_RULES)))
    elif subject.upper() in ERROR_RULES:
        click.echo(explanation(subject.upper()))
    elif subject.casefold() in {name.casefold() for name in proofs.CLAIMS}:
        click.echo(proofs.explain(subject, columns))
    else:
        remedy = "Call explain alone for the list of codes, or name a row of a certificate: explain --row LAYER FILE."
        raise UsageError("C2A002", f"{subject!r} is not a code or claim", remedy)


def explanation(code: str) -> str:
    """The rule of a code: its title, its reason, a call that breaks it, and the remedy."""
    rule, columns = ERROR_RULES[code], shutil.get_terminal_size().columns
    why, remedy = (click.wrap_text(part, columns) for part in (rule.why, f"What to do: {rule.remedy}"))
    return f"{code}: {rule.title}\n\n{why}\n\nExample:\n  {rule.example}\n\n{remedy}"


@main.command("inspect", example="conv2attn inspect resnet18.pt")
@click.argument("file", type=Read())
@sizing
@reporting
def inspect_file(file: str, max_size: float, showing: Showing) -> None:
    """Describe FILE and its contents, without running anything.

    The report names the networks that fit the weights, and parts that are unsafe to load; with -v, each tensor.
    """
    from conv2attn.files import inspection_of
    from conv2attn.files.reading_options import Reading

    showing.finish(inspection_of(Path(file), Reading(max_size=max_size).options()["max_size"]))
