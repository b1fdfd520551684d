"""The group that all commands are in, and what becomes of their errors."""

import sys
from typing import Any

import click

from conv2attn.errors import Conv2AttnError

INTERRUPTED = 130  # 128 and the number of the signal, as shells count


class Group(click.Group):
    """Turns the project's errors into one sentence on stderr and their exit code; a bug of ours is 70."""

    def invoke(self, context: click.Context) -> Any:
        """Runs the command."""
        try:
            return super().invoke(context)
        except Conv2AttnError as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(error.exit_code)
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except Exception as error:
            if context.params.get("debug"):
                raise
            click.echo(f"internal error: {type(error).__name__}: {error}; --debug shows where", err=True)
            sys.exit(70)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="conv2attn")
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
def main(debug: bool) -> None:
    """Turn convolutions into equal multi-head self-attention layers, and verify that they are equal.

    Exit codes: 0 holds; 1 refuted; 2 wrong usage or unreadable input; 3 undecided, unsupported or nothing checked;
    70 an internal error; 130 interrupted.
    """
