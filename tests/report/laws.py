"""Every report fits its terminal, says first what was decided, and says the same in every form."""

import ast
import csv
import io
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import ClassVar, final
from xml.etree import ElementTree

import pytest
from forks import check_rules, run_apart
from report.cases import REPORTS, report_of

import conv2attn
from conv2attn.report import (
    Document,
    Notes,
    Report,
    Table,
    Verbatim,
    document,
    show,
    to_html,
    to_latex,
    to_markdown,
    to_svg,
    to_text,
)
from conv2attn.verdicts import Verdict

GOLDEN = Path(__file__).parents[1] / "golden"
VOID = {"meta"}


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("name", [name for name in REPORTS if name != "span"])  # its distances are roundings
def test_a_report_is_its_golden_text(name, width):
    assert report_of(name).to_text(width) == (GOLDEN / f"{name}-{width}.txt").read_text()


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("name", REPORTS)
def test_no_line_is_longer_than_the_terminal_is_wide(name, width):
    words = [word for word in report_of(name).to_text().split() if len(word) > width - 2]
    lines = report_of(name).to_text(width).splitlines()
    assert [line for line in lines if len(line) > width and not any(word in line for word in words)] == []


WIDTHS = {40: {"layer", "heads", "rel"}, 80: {"rel", "dist", "replay", "kinds"}, 120: {"keys", "replay", "kinds"}}


@pytest.mark.parametrize("width", WIDTHS)
def test_a_narrow_report_on_heads_keeps_what_heads_do_and_whether_it_was_read_rightly(width):
    """Kinds are words, and replay says whether a layer was read at all; errors and reaches are for wide terminals."""
    shown = report_of("heads").to_text(width).splitlines()[2].split()
    assert set(shown) >= WIDTHS[width]
    if width == 80:
        assert not set(shown) & {"se", "R2", "cover"}


@pytest.mark.parametrize("name", REPORTS)
def test_columns_that_are_left_out_are_named(name):
    report = report_of(name)
    for width in (60, 80, 120):
        told = " ".join(report.to_text(width).split())
        for table in document(report).tables:
            shown = {column for line in report.to_text(width).splitlines() for column in line.split("  ")}
            for column in table.columns:
                assert column in {each.strip() for each in shown} or f"{column}" in told.partition("not shown")[2]


def test_a_table_that_is_too_wide_folds_and_loses_no_letter():
    wide = Table(("layer", "found", "reason"), (("attention", "q" * 60, "z" * 60),))
    text = to_text(Document((), (wide,)), 40)
    assert {"layer", "attention", "found", "reason"} <= {*text.split()}
    assert (text.count("q"), text.count("z")) == (60, 60)


@pytest.mark.parametrize("name", REPORTS)
def test_the_verdict_comes_first(name):
    report = report_of(name)
    if document(report).verdict is not None:
        assert report.to_text().startswith(report.verdict.value)
    assert repr(report) == f"<{type(report).__name__}: {report.summary}>"


class Tree(HTMLParser):
    """Fails where an element is closed that is not open; `left` are those that stay open."""

    def __init__(self):
        super().__init__()
        self.left, self.cells = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.left.append(tag)

    def handle_endtag(self, tag):
        assert self.left.pop() == tag

    def handle_data(self, data):
        if self.left and self.left[-1] == "td":
            self.cells.append(data)


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("name", REPORTS)
def test_every_form_has_every_cell(name, verbose):
    report = report_of(name)
    tree = Tree()
    tree.feed(report.to_html(verbose))
    assert tree.left == []
    cells = [show(cell) for table in document(report, verbose).tables for row in table.rows for cell in row]
    assert tree.cells == [cell for cell in cells if cell]
    markdown = report.to_markdown(verbose)
    assert all(cell.replace("|", "\\|") in markdown for cell in cells)
    assert report.to_latex(verbose).count(r"\\") >= sum(len(each.rows) for each in document(report, verbose).tables)


@pytest.mark.parametrize("name", REPORTS)
def test_numbers_stay_numbers(name):
    report = report_of(name)
    rows = list(csv.DictReader(io.StringIO(report.to_csv())))
    assert [list(row) for row in rows] == [list(record) for record in report.records()]
    for row, record in zip(rows, report.records(), strict=True):
        assert all(float(row[key]) == value for key, value in record.items() if isinstance(value, float | int))
    assert json.loads(report.to_json()) == json.loads(report.to_json())


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_without_a_table_has_its_sentences_as_csv(name):
    report, table = report_of(name), list(csv.reader(io.StringIO(report_of(name).to_csv())))
    assert [len(table) > 1, table[0] == ["sentence"]] == [True, not document(report, True).tables]


PLANTED = Document(
    ("refuted: <b> & 50%_$",),
    (Table(("a|b", "c"), (("<i>", Verdict.REFUTED), ("x_y", 1.5))), Notes(("<u>",)), Verbatim(("$ a\\b",))),
    Verdict.REFUTED,
)


def test_nothing_in_a_cell_is_markup():
    assert "<b>" not in to_html(PLANTED).replace("<p><b>", "")
    assert "<i>" not in to_html(PLANTED)
    assert "a\\|b" in to_markdown(PLANTED)
    assert r"x\_y & 1.5 \\" in to_latex(PLANTED)
    assert "[bold]" in to_text(Document(("[bold]",)))


@pytest.mark.parametrize("name", [*REPORTS, "planted"])
def test_a_picture_shows_the_answer_and_loads_nothing(name):
    content = PLANTED if name == "planted" else document(report_of(name))
    picture = to_svg(content)
    words = "".join(ElementTree.fromstring(picture).itertext()).replace("\xa0", " ")
    assert content.answer[0][:60].split()[0] in words
    assert not re.search(r"url\((?!#)|@import|href|src=", picture)


def test_colour_is_only_where_it_is_asked_for():
    assert "\x1b" not in to_text(PLANTED, 80)
    coloured = to_text(PLANTED, 80, colour=True)
    assert coloured.count("\x1b[1;31mrefuted\x1b[0m") == 2


def test_spare_columns_go_in_their_order():
    table = Table(("name", "wide", "narrow", "last"), (("x" * 20, "y" * 30, "z" * 10, "w"),), ("narrow", "wide"))

    def shown(width: int) -> list[str]:
        return to_text(Document(("answer",), (table,)), width).splitlines()[2].split()

    assert shown(80) == ["name", "wide", "narrow", "last"]
    assert shown(60) == ["name", "wide", "last"]
    assert shown(45) == ["name", "narrow", "last"]
    assert shown(30) == ["name", "last"]


@final
@dataclass(frozen=True, repr=False)
class Toy(Report):
    """A result with one number."""

    schema: ClassVar[str] = "toy/1"
    number: int


@document.register
def _(toy: Toy, verbose: bool = False) -> Document:
    """The number."""
    return Document((f"holds: {toy.number}",), verdict=Verdict.HOLDS)


def test_a_result_is_rendered_by_the_rule_for_its_class():
    assert str(Toy(3)) == "holds: 3"
    assert Toy(3).to_dict() == {"number": 3, "schema": "toy/1", "verdict": "holds", "exit_code": 0}


def test_a_result_without_a_rule_or_a_schema_is_none():
    with pytest.raises(TypeError, match="abstract"):
        Report()
    with pytest.raises(NotImplementedError, match="no rule for ABCMeta"):
        document(Toy)


PACKAGE = Path(conv2attn.__file__).parent
RESULTS = [
    (".".join(["conv2attn", *file.relative_to(PACKAGE).with_suffix("").parts]), node.name)
    for file in sorted(PACKAGE.rglob("*.py"))
    for node in ast.parse(file.read_text()).body
    if isinstance(node, ast.ClassDef) and {"Report", "Result"} & {ast.unparse(base) for base in node.bases}
]


def test_every_result_has_its_rule_where_its_module_alone_is_imported():
    by_module = {"conv2attn.report": ["Report"]}
    for module, name in RESULTS:
        if module != "conv2attn.report.result":
            by_module.setdefault(module, []).append(name)
    assert len(by_module) >= 10
    lacking = [module for module, names in by_module.items() if run_apart(check_rules, module, names)]
    assert lacking == ["conv2attn.report"]


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [60, 80, 200])
def test_what_python_prints_has_no_option_of_the_command_line(name, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    report = report_of(name)
    options = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
    asked = " ".join(report.to_text(width).split()).partition("to repeat it:")[0]
    for printed in (str(report), report._repr_html_()):
        assert options.findall(re.sub(r"<[^>]*>", " ", printed)) == [], printed
    assert ("--wide" in asked) == ("to_text() has them" in " ".join(str(report).split()))
