"""The commands on what is known: prove, explain."""

import sys

import click

from conv2attn.cli.group import main
from conv2attn.cli.options import FORMATS
from conv2attn.cli.reports import emit
from conv2attn.errors import RULES, UsageError


@main.command()
@click.argument("claims", nargs=-1, metavar="[CLAIM]...")
@click.option(
    "--formal", is_flag=True, help="Check the formal layer too, which takes coqc; exit 3 where it is missing."
)
@click.option(
    "--format",
    "form",
    type=click.Choice([*FORMATS.choices, "latex"]),
    default="text",
    show_default=True,
    help="Form of the report; latex and markdown give the proofs with their steps.",
)
@click.option("--output", type=click.Path(), help="Write the report to a file instead of stdout.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def prove(claims: tuple[str, ...], formal: bool, form: str, output: str | None, force: bool) -> None:
    """Decide the claims of proofs/ again, each beside a mutant that must be refuted; all without CLAIM."""
    from proofs import report

    result = report(claims, formal=formal)
    emit(getattr(result, f"to_{form}")(), output, force)
    sys.exit(result.exit_code)


@main.command()
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Explain what the rule CODE asks, why, and what to do; without CODE, list all."""
    if code is None:
        click.echo("\n".join(f"{key}  {rule.title}" for key, rule in RULES.items()))
        return
    if code.upper() not in RULES:
        raise UsageError("C2A001", f"{code} is not a code", "Call explain without a code for the list.")
    rule = RULES[code.upper()]
    click.echo(f"{code.upper()}: {rule.title}\n\n{rule.why}\n\nWhat to do: {rule.remedy}")
