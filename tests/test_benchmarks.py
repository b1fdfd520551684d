"""The benchmarks run and make well-formed tables; nothing is asserted about time."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import benchmarks.__main__ as everything
from benchmarks import certificates, content, engines, folds, spans, training
from benchmarks.processes import MIB, apart
from benchmarks.timing import interleave

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module", autouse=True)
def threads():
    """Gives back the number of threads that a benchmark sets."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_every_engine_has_its_price_and_what_to_take_instead(capsys, monkeypatch):
    monkeypatch.setattr(engines, "apart", lambda _, way, side: engines.memory(way, side))
    engines.main(quick=True)
    printed = capsys.readouterr().out
    assert len(tables_in(printed)) == 5
    for way in ("conv", "gather", "separable, one-hot", "alpha 46", "trained centres"):
        assert f"| {way} |" in printed
    for work in ("MobileNetV2", "ConvNeXt-Tiny", "a step: the paper's block at 16, with a 3x3 convolution"):
        assert f"| {work} | native |" in printed


def test_content_is_timed_beside_the_same_layer_without_positions(capsys):
    content.main(quick=True)
    (table,) = tables_in(capsys.readouterr().out)
    assert len(table.strip().splitlines()) == 2 + 2 * 5


def test_one_command_writes_pages_that_name_the_code_they_measured(tmp_path, monkeypatch):
    """A page whose program changes has another hash."""
    monkeypatch.setattr(everything, "output_of", lambda *_: "| a |\n| --- |\n")
    done = CliRunner().invoke(everything.main, ["spans", "--output", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0
    text = (tmp_path / "spans.md").read_text()
    assert text.startswith(f"# {everything.PAGES['spans']}\n")
    assert everything.code_hash("spans") in text
    assert everything.code_hash("spans") != everything.code_hash("graphs")
    assert str(ROOT) not in text + (tmp_path / "README.md").read_text()
    assert all((ROOT / "benchmarks" / f"{page}.py").exists() for page in everything.PAGES)


def test_functions_take_turns():
    calls: list[str] = []
    timings = interleave({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, seconds=1e-9, rounds=3)
    assert calls == ["a", "b"] * 4
    assert timings["a"].ratio == 1
    assert all(0 < timing.low <= timing.median <= timing.high for timing in timings.values())


def test_peak_is_at_least_the_attention_however_large_the_parent():
    ballast = b"x" * 400 * MIB
    measured = apart("engines", "dense", 28)
    assert measured["mebibytes"] >= 9 * 28**2 * 30**2 * 4 / MIB
    assert measured["mebibytes"] < len(ballast) / MIB


def test_spans_are_measured_one_by_one(capsys, monkeypatch):
    """The first as a process of its own would, the others by the function."""
    (kind, side), *others = spans.QUICK
    monkeypatch.setattr(sys, "argv", ["spans", kind, str(side)])
    runpy.run_path(spans.__file__, run_name="__main__")
    rows = [json.loads(capsys.readouterr().out), *(spans.measure(*case) for case in others)]
    head, _, *lines = [line for line in spans.table(rows).splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in (head, *lines)}) == 1
    assert [line.split("|")[1].strip() for line in lines] == ["soft", "hard", "stem", "facts of images, 1"]
    assert [line.split("|")[4].strip() for line in lines] == ["refuted", "holds", "holds", "-"]


@pytest.mark.parametrize("asked", ["small", f"{spans.CHECKED}small"])
def test_a_network_is_read_for_its_memory(asked):
    row = spans.measure_network(asked, 16, images=2)
    assert (row["network"], row["processor"] > 0) == (asked, True)
    assert len(tables_in(spans.table_of_networks([row]))) == 1
    assert {name.removeprefix(spans.CHECKED) for name, _ in spans.READ} < spans.NETWORKS.keys()


def test_the_parts_of_a_certificate_are_measured_apart():
    row = certificates.measure("small", 32, repeats=1)
    assert 0 < sum(row[part] for part in certificates.PARTS) <= row["whole"]
    assert min(row[part] for part in certificates.PARTS) > 0
    assert len(tables_in(certificates.table([row]))) == 1
    (answers,) = tables_in(certificates.measure_answers(32, repeats=1))
    verdicts = ["holds, proved", "holds, proved", "holds, identified", "refuted, sampled"]
    assert [verdict for verdict in verdicts if verdict in answers] == verdicts


def tables_in(text):
    """The tables of a page, each with as many columns in every line."""
    tables = re.findall(r"(?:^\|.*\|\n?)+", text, re.MULTILINE)
    for table in tables:
        assert len({line.count("|") for line in table.strip().splitlines()}) == 1
    return tables


def test_training_steps_are_measured(monkeypatch):
    asked = []

    def alone(_, *arguments):
        asked.append(arguments[1])
        done = CliRunner().invoke(training.main, list(map(str, arguments)), catch_exceptions=False)
        return json.loads(done.stdout)

    monkeypatch.setattr(training, "apart", alone)
    done = CliRunner().invoke(training.main, ["--quick"], catch_exceptions=False)
    assert len(tables_in(done.stdout)) == 3
    assert asked == ["quadratic", "generalised"]


def test_a_fold_is_the_network_without_its_norms():
    """Convolutions take them in; norms of tokens keep no scale."""
    first = folds.drawn("resnet18")
    second, images = folds.folded(first), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(second(images), first(images))
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in second.modules())
    norm, product = torch.nn.LayerNorm(3), torch.nn.Linear(3, 2)
    torch.nn.init.normal_(norm.bias)
    torch.nn.init.normal_(norm.weight)
    tokens = torch.randn(4, 3)
    before = product(norm(tokens))
    folds.move_norm(norm, product.weight, product.bias)
    torch.testing.assert_close(product(norm(tokens)), before)
    assert torch.equal(norm.weight, torch.ones(3))


def test_folds_are_shown_beside_what_is_wanted():
    row = {"forwards": 44.6, "gibibytes": 0.25, "units": 3.04, "whole": 200, "more": 0.5}
    text = folds.page([{"network": name, **row} for name in folds.WANTED])
    (table,) = tables_in(text)
    assert "| resnet18 | 45 | 45 | 0.25 | 0.3 | 3.0 |" in table
    assert "takes 200 forwards of resnet18 and 0.50 GiB" in text
