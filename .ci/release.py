"""Write the version of a release everywhere, or say what a person must still do to publish it.

.ci/release.py VERSION writes it; .ci/release.py VERSION --remaining commits, tags, and says the rest.
"""

import re
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = ("conv2attn/__init__.py", "CITATION.cff", "CHANGELOG.md", ".ci/conda/meta.yaml")


def released(version: str, day: str, texts: dict[str, str]) -> dict[str, str]:
    """The files with the version of a release, and the day of it, in place of the one in development.

    Raises:
        SystemExit: the version is not three numbers, or one of the files has no place for it.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        sys.exit(f"{version} is not three numbers with points between them")
    package, citation, changelog, recipe = FILES
    rules = [
        (package, r'__version__ = "[^"]+"', f'__version__ = "{version}"'),
        (citation, r"(?m)^version: .*(\ndate-released: .*)?$", f"version: {version}\ndate-released: {day}"),
        (changelog, r"(?m)^## Unreleased\n", f"## Unreleased\n\n## {version} - {day}\n"),
        (recipe, r'set version = "[^"]+"', f'set version = "{version}"'),
    ]
    written = dict(texts)
    for name, pattern, text in rules:
        written[name], count = re.subn(pattern, text, written[name])
        if count != 1:
            sys.exit(f"{name} has {count} places for the version, not one")
    return written


def remaining(version: str, urls: dict[str, str]) -> list[str]:
    """What a person must still do, in order, in one screen."""
    address = [] if "Repository" in urls else ["fill in Repository under [project.urls] of pyproject.toml"]
    contact = ["fill in the address in SECURITY.md"] if "to be filled in" in (ROOT / "SECURITY.md").read_text() else []
    return [
        *address,
        *contact,
        "on pypi.org, once: name this repository and the workflow release.yml as trusted publisher of conv2attn",
        "on the host of the repository, once: let pages be deployed by workflows, and make the environment pypi",
        f"git push origin main v{version}; the workflow release.yml then builds, checks and publishes",
        "pipx run conv2attn demo, on a machine without this repository: it ends with holds (proved)",
        f"put the sha256 of conv2attn-{version}.tar.gz into .ci/conda/meta.yaml, and propose it to conda-forge",
        "set __version__ in conv2attn/__init__.py to the next version with .dev0 behind it",
    ]


def main(version: str, *options: str) -> None:
    """Writes the version, or commits, tags and says what remains."""
    if "--remaining" in options:
        for command in (["add", *FILES], ["commit", "-qm", f"Release {version}"], ["tag", f"v{version}"]):
            subprocess.run(["git", *command], cwd=ROOT, check=True)
        urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
        print(*(f"{number}. {each}" for number, each in enumerate(remaining(version, urls), 1)), sep="\n")
        return
    if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, check=True).stdout:
        sys.exit("the working tree has changes: commit them first")
    written = released(version, f"{datetime.now(UTC):%Y-%m-%d}", {name: (ROOT / name).read_text() for name in FILES})
    for name, text in written.items():
        (ROOT / name).write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
