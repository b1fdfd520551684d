"""Runs all tests on two workers and writes the slowest 20 into CONTRIBUTING.md."""

import re
import subprocess
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
        raise SystemExit("pytest printed no durations of a run")
    count, seconds = runs[-1]
    rows = [f"| {float(took):.0f} | `{test}` in `{file}` |" for took, file, test in slowest]
    run = f"{count}, {float(seconds) / 60:.1f} minutes."
    return "\n".join([run, "", "| seconds | test |", "| ---: | --- |", *rows])


def run_of_all_tests() -> str:
    """What pytest printed, which is shown as it comes."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "--durations=20"]
    lines = []
    with subprocess.Popen(command, cwd=PAGE.parent, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return "".join(lines)


def main() -> None:
    output = run_of_all_tests()
    before, _, rest = PAGE.read_text().partition(FIRST)
    PAGE.write_text(f"{before}{FIRST}{table(output)}\n{LAST}{rest.partition(LAST)[2]}")


if __name__ == "__main__":
    main()
