"""The commands on what is known: prove, explain."""

import sys

import click

from conv2attn.cli.code_examples import EXAMPLES
from conv2attn.cli.group import main
from conv2attn.cli.options import reporting
from conv2attn.cli.reports import Showing
from conv2attn.errors import RULES, UsageError


@main.command(example="conv2attn prove L1")
@click.argument("claims", nargs=-1, metavar="[CLAIM]...")
@click.option(
    "--formal", is_flag=True, help="Check the formal layer too, which takes coqc; exit 3 where it is missing."
)
@reporting
def prove(claims: tuple[str, ...], formal: bool, showing: Showing) -> None:
    """Decide the claims of proofs/ again, beside mutants.

    Without CLAIM all; each stands beside mutants that must be refuted. As latex and markdown, the report gives the
    proofs with their steps.
    """
    from proofs import report

    showing.check()
    result = report(claims, formal=formal)
    showing.finish(result)
    sys.exit(result.exit_code)


@main.command(example="conv2attn explain C2A403")
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Explain a CODE of a report or an error; list all without one."""
    if code is None:
        click.echo("\n".join(f"{key}  {RULES[key].title}" for key in sorted(RULES)))
        return
    if code.upper() not in RULES:
        raise UsageError("C2A001", f"{code} is not a code", "Call explain without a code for the list.")
    click.echo(explained(code.upper()))


def explained(code: str) -> str:
    """What the rule of a code asks, why, a call that breaks it, and what to do."""
    rule = RULES[code]
    example = f"\n\nExample:\n  {EXAMPLES[code]}" if code in EXAMPLES else ""
    return f"{code}: {rule.title}\n\n{rule.why}{example}\n\nWhat to do: {rule.remedy}"
