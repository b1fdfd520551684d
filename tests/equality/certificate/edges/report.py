"""The layout of a report, each of its forms once, as golden texts."""

from pathlib import Path

import pytest
import torch

from conv2attn.equality import Certificate, Finding, Gap, Identified, Outputs, Row, holds, refuted, undecided
from conv2attn.equality import Counterexample as Witness
from conv2attn.verdicts import Strength, Verdict

GOLDEN = Path(__file__).parents[3] / "golden"
SQUARE = Row(
    *("square", "Conv2d 4->8 k3"),
    findings=(holds("geometry"), holds("weights"), holds("leak", Strength.BOUNDED)),
    grid=(14, 11),
    heads=9,
    alpha=60.0,
    max_error=1e-7,
    bound=2e-5,
)
WRONG = Row("wrong", "Conv1d 2->2 k3", (holds("geometry"), refuted("weights", "C2A402", "one weight off")))
LEFT = Row("left", "Conv3d 1->1 k1", (holds("geometry"),), skipped=True)
SAME = holds("structure")
ASSUMED = ("finite inputs (dense spreads a NaN)", "sums formed directly, no overflow")
OUTPUTS = Outputs("2 images", 2, 0.5, 3.0, 2, (1, 0), 2)
CERTIFICATES = {
    "refuted": Certificate(
        (SQUARE, WRONG, LEFT),
        (SAME,),
        Outputs("2 images", 2, 0.5, 3.0),
        ASSUMED,
        circumstances={"command": "conv2attn verify a b"},
        counterexamples=(Witness(torch.full((2, 3), 2.0), gap=Gap("output", (1, 4), 1.0, 1.5, 0), allowed=0.25),),
    ),
    "holds": Certificate((SQUARE,), (SAME,), OUTPUTS, ASSUMED, circumstances={"read as": "read as resnet18"}),
    "undecided": Certificate((SQUARE,), (undecided("structure", "C2A405", "norm.eps: 2e-05, not 1e-05"),)),
    "numbers": Certificate(
        (),
        (undecided("numbers", "C2A410", "not the same numbers: on 2 images they differ by 0.5"),),
        Outputs("2 images", 2, 0.5, 3.0, gaps=(Gap("output['a']", (1, 2), 3.0, 2.5, 4), Gap("b", (), 1.0, 1.0, 0))),
    ),
    "identified": Certificate(
        (),
        (Finding("formula", Verdict.HOLDS, Strength.IDENTIFIED),),
        Outputs("2 images", 2, 0.5, 3.0),
        ASSUMED,
        identified=Identified(-54.2, 1000, 2, 76, 4, ((3, 9, 8),), "without gradients, in evaluation mode"),
    ),
    "parted": Certificate(
        (),
        (
            undecided("structure", "C2A405", "not the same code: norm is in one only"),
            Finding("numbers", Verdict.REFUTED, Strength.SAMPLED, "C2A410", "on 2 images they differ by 0.5"),
        ),
        Outputs("2 images", 2, 0.5, 3.0, gaps=(Gap("output", (1, 2), 3.0, 2.5, 4),)),
        ASSUMED,
    ),
    "nothing": Certificate((LEFT,), (SAME,)),
}
FORMS = {
    "40.txt": lambda certificate: certificate.to_text(40),
    "80.txt": lambda certificate: certificate.to_text(80),
    "120.txt": lambda certificate: certificate.to_text(120),
    "verbose.txt": lambda certificate: certificate.to_text(verbose=True),
    "md": Certificate.to_markdown,
    "html": lambda certificate: certificate._repr_html_() + "\n",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CERTIFICATES)
def test_a_report_is_its_golden_text(name, form):
    written = FORMS[form](CERTIFICATES[name])
    assert written == (GOLDEN / f"certificate-{name}.{form}").read_text()


MANY = Certificate(tuple(SQUARE for _ in range(60)), (SAME,), OUTPUTS, ASSUMED)


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("name", [*CERTIFICATES, "many"])
def test_a_first_screen_fits_the_terminal_and_stays_one_screen(name, width):
    lines = CERTIFICATES.get(name, MANY).to_text(width).splitlines()
    assert len(lines) <= 24 + 16 * (width == 40)
    assert [line for line in lines if len(line) > width and " " in line.strip()] == []


def test_what_holds_is_one_line_of_the_widest_layer_and_all_layers_with_v():
    assert MANY.to_text().count("square") == 1
    assert MANY.to_text(verbose=True).count("square") == 60
    refuted = Certificate((*MANY.rows, *[WRONG] * 7), (SAME,), OUTPUTS, ASSUMED).to_text()
    assert "2 more rows with -v" in refuted
    assert refuted.count("Conv1d 2->2 k3") == 5


def test_a_certificate_is_true_only_where_it_holds_and_prints_as_its_text(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert [name for name, each in CERTIFICATES.items() if each] == ["holds", "identified"]
    for each in CERTIFICATES.values():
        printed, text = (" ".join(words.split()) for words in (str(each), each.to_text(80)))
        assert "(in full with -v)" not in printed
        assert "--wide" not in printed
        assert printed.replace("to_text(verbose=True)", "-v").replace("to_text() has them", "--wide") == text
