"""Whoever refuses a call says what to do about it, in the words of the caller: every raise site is read."""

import ast
import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest
from commands import options_of

import conv2attn
from conv2attn import errors
from conv2attn.cli import advice, main
from conv2attn.errors import ARGUMENTS, OPTION, Conv2AttnError
from conv2attn.files import Reading
from conv2attn.lab.training import TrainingRecipe

HOME = Path(conv2attn.__file__).parent
REFUSALS = {name for name in vars(errors) if re.fullmatch(r"\w+(Error|Warning)", name)}
COMMANDS = main.commands
FUNCTIONS = [getattr(conv2attn, name) for name in conv2attn.__all__]
PARAMETERS = {name for each in FUNCTIONS for name in inspect.signature(each).parameters}
PARAMETERS |= {each.name for kind in (TrainingRecipe, Reading) for each in fields(kind)}


def sites():
    """Every place that makes an error or a warning of this project: its file and line, and its arguments."""
    for path in sorted([*HOME.rglob("*.py"), *(HOME.parent / "proofs").rglob("*.py")]):
        if not re.search(r"(Error|Warning)\(", text := path.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REFUSALS:
                yield f"{path.relative_to(HOME.parent)}:{node.lineno}", node.args


def words(node):
    """The words of a text, with a value in each place of one; None of what is no literal."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(part.value if isinstance(part, ast.Constant) else "value" for part in parts)
    return None


SITES = list(sites())
REMEDIES = {place: text for place, arguments in SITES if (text := words(arguments[-1])) is not None}


def test_there_are_sites_and_each_has_a_remedy_of_its_own():
    assert len(SITES) > 400
    assert len(REMEDIES) > 380
    assert not [place for place, arguments in SITES if len(arguments) != 3]


@pytest.mark.parametrize("place", REMEDIES)
def test_a_remedy_is_a_sentence_that_names_what_the_caller_can_pass(place):
    text = REMEDIES[place]
    assert re.match(r"[A-Z]|value|\S+ (to|needs)", text), text
    assert text.rstrip("'\"")[-1] in ".?" or text.endswith("value"), text
    if not place.startswith("conv2attn/cli/") and "conv2attn " not in text:
        named = {ARGUMENTS.get(each, each.replace("-", "_")) for each in OPTION.findall(text)}
        assert named <= PARAMETERS, named - PARAMETERS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_names_no_option_of_another_without_that_command(name):
    for text in REMEDIES.values():
        said = advice(Conv2AttnError("C2A006", "found", text), COMMANDS[name])
        if "conv2attn " in text:
            continue
        for option in OPTION.finditer(said):
            other = re.match(r" \(of conv2attn ([\w-]+)\)", said[option.end() :])
            assert option[0] in options_of(COMMANDS[other[1]] if other else COMMANDS[name]), said
