"""One word for one thing: no function or class of a room has a name that two other rooms use for something else."""

import re
from collections import defaultdict
from pathlib import Path

import conv2attn

PACKAGE = Path(conv2attn.__file__).parent
MOST_FILES = 2
"""A command has the name of the function that it calls."""
ENGINES = "layers/attention/engines/"
ASKED_OF_ENGINES = {"decide", "run"}
"""What each engine answers by a function of its own, as each family of operators answers by methods."""


def crowded_names(package: Path) -> dict[str, list[str]]:
    """Functions and classes of modules that stand in more than `MOST_FILES` files, with these files."""
    places = defaultdict(set)
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).as_posix()
        for name in re.findall(r"(?m)^(?:class|def|async def) _*(\w*[^\W_])", path.read_text()):
            if not (place.startswith(ENGINES) and name in ASKED_OF_ENGINES):
                places[name].add(place)
    return {name: sorted(found) for name, found in places.items() if len(found) > MOST_FILES}


def test_a_name_stands_in_two_files_at_most():
    assert crowded_names(PACKAGE) == {}, "rename what one file or another means by it, with a word of the field"


def test_a_third_use_of_a_name_is_found(tmp_path):
    planted = {
        "span/grids.py": "def state_of(grid): ...",
        "equality/state.py": "class state_of: ...",
        "networks/copies.py": "async def state_of(network): ...",
        "layers/attention/engines/conv.py": "def decide(): ...\ndef fits(): ...",
        "layers/attention/engines/dense.py": "def decide(): ...\ndef fits(): ...",
        "layers/attention/engines/sdpa.py": "def decide(): ...\ndef _(): ...",
        "verdicts.py": "def decide(): ...\ndef fits(): ...",
        "errors.py": "def decide(): ...",
    }
    for name, source in planted.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    assert crowded_names(tmp_path) == {
        "fits": ["layers/attention/engines/conv.py", "layers/attention/engines/dense.py", "verdicts.py"],
        "state_of": ["equality/state.py", "networks/copies.py", "span/grids.py"],
    }
    (tmp_path / "names.py").write_text("def decide(): ...")
    assert "decide" in crowded_names(tmp_path)
