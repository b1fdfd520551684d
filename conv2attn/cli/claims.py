"""The commands on what is known: prove, explain."""

import shutil
import sys

import click

from conv2attn.cli.code_examples import EXAMPLES
from conv2attn.cli.group import main
from conv2attn.cli.options import reporting
from conv2attn.cli.reports import Showing
from conv2attn.errors import RULES, UsageError


@main.command(example="conv2attn prove L1")
@click.argument("claims", nargs=-1, metavar="[CLAIM]...")
@click.option("--formal", is_flag=True, help="Also check the Coq proofs; needs coqc, and exits with 3 without it.")
@reporting
def prove(claims: tuple[str, ...], formal: bool, showing: Showing) -> None:
    """Check the claims in proofs/ again, each beside false variants.

    Without CLAIM, all are checked. Every claim has false variants (mutants), which must be refuted. As latex or
    markdown, the report gives the steps of each proof.
    """
    from conv2attn import proofs

    result = proofs.report(claims, formal=formal)
    showing.finish(result)
    sys.exit(result.exit_code)


@main.command(example="conv2attn explain C2A403")
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Explain the CODE of an error or a report; without one, list all."""
    if code is None:
        click.echo("\n".join(f"{key}  {RULES[key].title}" for key in sorted(RULES)))
        return
    if code.upper() not in RULES:
        raise UsageError("C2A002", f"{code} is not a code", "Call explain without a code for the list.")
    click.echo(explained(code.upper()))


def explained(code: str) -> str:
    """The rule of a code: its title, its reason, a call that breaks it, and the remedy."""
    rule, columns = RULES[code], shutil.get_terminal_size().columns
    why, remedy = (click.wrap_text(part, columns) for part in (rule.why, f"What to do: {rule.remedy}"))
    return f"{code}: {rule.title}\n\n{why}\n\nExample:\n  {EXAMPLES[code]}\n\n{remedy}"
