"""Writes the slowest tests of a run with --durations into CONTRIBUTING.md: pytest --durations=20 | .ci/slowest.py."""

import re
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
FIRST, LAST = "<!-- slowest -->\n", "<!-- /slowest -->"
DURATION = re.compile(r"^([\d.]+)s (?:call|setup) +(\S+?)::(\S.*)$")
SUMMARY = re.compile(r"(\d+ passed.*) in ([\d.]+)s")


def table(output: str) -> str:
    """The rows of the durations that pytest printed, after the line that sums up the run."""
    lines = output.splitlines()
    slowest = [found.groups() for line in lines if (found := DURATION.match(line))]
    runs = [found.groups() for line in lines if (found := SUMMARY.search(line))]
    if not slowest or not runs:
        raise SystemExit("no durations of a whole run on standard input: pytest -n 2 --durations=20 | .ci/slowest.py")
    count, seconds = runs[-1]
    rows = [f"| {float(took):.0f} | `{test}` in `{file}` |" for took, file, test in slowest]
    run = f"{count}, {float(seconds) / 60:.1f} minutes."
    return "\n".join([run, "", "| seconds | test |", "| ---: | --- |", *rows])


def main() -> None:
    before, _, rest = PAGE.read_text().partition(FIRST)
    PAGE.write_text(f"{before}{FIRST}{table(sys.stdin.read())}\n{LAST}{rest.partition(LAST)[2]}")


if __name__ == "__main__":
    main()
