"""The figures of an accelerator are rehearsed on the imitated one, with what fails on a real one planted."""

import json
import sys
import zipfile

import pytest
import torch
from imitated_device import DEVICE, imitated
from torch import nn

from benchmarks import accelerator_answers, accelerator_times, gpu
from conv2attn.errors import UsageError
from conv2attn.layers.attention import ENGINES

TITLES = list(gpu.SECTIONS)
LAYER = ("8 channels", lambda: nn.Conv2d(8, 8, 3, padding=1, bias=False), (2, 8, 6, 7))


@pytest.fixture
def small(monkeypatch):
    """One layer and one format are timed."""
    monkeypatch.setattr(accelerator_times, "subjects", lambda quick: [LAYER])
    monkeypatch.setattr(accelerator_times, "TIMED", ("float32",))


def test_every_section_is_rehearsed_on_a_cpu_and_the_page_says_so(small):
    page = gpu.page(torch.device("cpu"), True)
    assert "Rehearsed on a CPU, so that no figure is one of a GPU" in page
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == TITLES
    assert "No row was measured" not in page
    assert "Not measured further" not in page
    failed = [line for line in page.splitlines() if "failed: " in line]
    assert all("FlexAttention does not support backward on CPU" in line for line in failed)
    assert torch.backends.cudnn.conv.fp32_precision != "ieee"


@pytest.mark.parametrize("float64", [True, False])
def test_every_engine_equals_the_convolution_on_the_imitated_device(float64):
    """Whole numbers, bit for bit; a dtype or an engine that is refused there is named."""
    with imitated(float64):
        rows = [*accelerator_answers.differences(DEVICE, quick=True)]
        assert {row[:2] for row in rows} == {(form, engine) for form in accelerator_times.FORMATS for engine in ENGINES}
        for form, engine, whole, other in rows:
            refused = form == "float64" and (engine == "sdpa" or not float64)
            assert whole.startswith("failed: ") if refused else whole == "0", (form, engine, whole)
            assert other.startswith("failed: ") if refused else float(other) < 1e-2
        host = {row[0]: row[1:] for row in accelerator_times.calls(DEVICE, quick=True)}
    assert all(float(cells[0]) > 0 and {*cells[1:]} == {accelerator_times.NOT_MEASURED} for cells in host.values())


def test_memory_that_is_full_costs_one_cell(small, monkeypatch):
    def full(_):
        raise torch.OutOfMemoryError("out of memory")

    plain = accelerator_times.ways("ResNet-18")
    monkeypatch.setattr(accelerator_times, "ways", lambda _: {"full": full, **plain})
    with imitated():
        rows = {row[2]: row[3:] for row in accelerator_times.times(DEVICE, quick=True)}
    assert rows.pop("full") == ("failed: out of memory", "-", "-")
    assert rows.keys() == plain.keys()
    assert all(float(cell) > 0 for cells in rows.values() for cell in cells)


def test_a_capture_that_fails_costs_one_cell_and_no_draw_on_the_device_follows(monkeypatch):
    def fails(*_):
        raise RuntimeError("operation failed due to a previous error during capture")

    draw = torch.randn

    def draw_on_the_cpu(*shape, **options):
        assert torch.device(options.get("device", "cpu")).type == "cpu"
        return draw(*shape, **options)

    monkeypatch.setattr(accelerator_times, "captured", fails)
    monkeypatch.setattr(torch, "randn", draw_on_the_cpu)
    monkeypatch.setattr(torch, "randn_like", fails)
    with imitated():
        rows = [*accelerator_times.calls(DEVICE, quick=True)]
    assert len(rows) > 5
    assert all(float(row[1]) > 0 and row[-1].startswith("failed: operation failed") for row in rows)


def test_a_kernel_that_is_missing_costs_its_engine(monkeypatch):
    set_engine = accelerator_answers.set_engine

    def without_gather(layer, engine):
        if engine == "gather":
            raise NotImplementedError("no kernel image is available for execution on the device")
        return set_engine(layer, engine)

    monkeypatch.setattr(accelerator_answers, "set_engine", without_gather)
    monkeypatch.setattr(accelerator_answers, "FORMATS", {"float32": (torch.float32, "ieee")})
    with imitated():
        rows = [*accelerator_answers.differences(DEVICE, quick=True)]
    assert [row[1] for row in rows if row[2].startswith("failed: no kernel image")] == ["gather"]
    assert [row[1] for row in rows if row[2] == "0"] == [each for each in ENGINES if each != "gather"]


def test_a_section_that_fails_keeps_the_rows_before_it_and_the_other_sections(monkeypatch):
    def breaks(device, quick):
        yield ("first row", "1")
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    sections = {title: (lambda device, quick: [("row", "2")], ("a", "b")) for title in TITLES}
    monkeypatch.setattr(gpu, "SECTIONS", sections | {TITLES[1]: (breaks, ("a", "b"))})
    page = gpu.page(torch.device("cpu"), True)
    assert page.count("| row | 2 |") == len(TITLES) - 1
    assert "| first row | 1 |" in page
    assert "Not measured further: RuntimeError: CUDA error: an illegal memory access" in page


def test_a_section_whose_process_ends_or_is_late_leaves_a_line(tmp_path):
    lines = tmp_path / "lines.jsonl"
    gpu.run_alone(TITLES[0], ["--device", "cuda:99"], 1.0, lines)
    gpu.run_alone(TITLES[1], ["--device", "cpu", "--quick"], 0.001, lines)
    told = [json.loads(line) for line in lines.read_text().splitlines()]
    assert told[0] == {"section": TITLES[0], "failed": "its process ended with exit code 1"}
    assert told[1] == {"section": TITLES[1], "failed": "0.001 minutes were over"}
    with pytest.raises(UsageError, match="C2A002 device 'cuda:99' is not available"):
        gpu.main(["--device", "cuda:99"])


def test_each_row_is_a_line_as_soon_as_it_is_measured(tmp_path, monkeypatch, capsys):
    lines = tmp_path / "lines.jsonl"

    def rows(device, quick):
        yield ("one", "1")
        assert json.loads(lines.read_text())["row"] == ["one", "1"]
        yield ("two", "2")

    monkeypatch.setattr(gpu, "SECTIONS", dict.fromkeys(TITLES, (rows, ("a", "b"))))
    gpu.main(["--device", "cpu", "--quick", "--lines", str(lines), "--section", TITLES[0]])
    assert [json.loads(line)["row"][0] for line in lines.read_text().splitlines()] == ["one", "two"]
    monkeypatch.setattr(gpu, "run_alone", lambda title, options, minutes, lines: gpu.append(lines, {"section": title}))
    gpu.main(["--device", "cpu", "--lines", str(lines)])
    assert len(lines.read_text().splitlines()) == len(TITLES)
    assert capsys.readouterr().out.count("No row was measured.") == len(TITLES)


def test_wheels_beside_the_checkout_are_unpacked_behind_what_is_installed(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", ["first"])
    (tmp_path / "wheels").mkdir()
    with zipfile.ZipFile(tmp_path / "wheels" / "made-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("made/__init__.py", "NUMBER = 5")
    gpu.unpack_wheels(tmp_path / "wheels", tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / "made" / "__init__.py").read_text() == "NUMBER = 5"
    assert sys.path == ["first", str(tmp_path / "unpacked")]
