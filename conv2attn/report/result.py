"""Common behaviour of all results: they print as text, show as HTML, and convert."""

import json
import math
import shutil
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Mapping
from functools import singledispatch
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from conv2attn.extras import optional
from conv2attn.report import markup, text
from conv2attn.report.document_parts import Document, Table, for_python
from conv2attn.verdicts import Verdict

if TYPE_CHECKING:
    Number = float
else:
    Number = float | Literal["inf", "-inf", "nan"]  # numbers that JSON lacks are strings in a document


@singledispatch
def document(result: "Report", verbose: bool = False) -> Document:
    """The content of the report on a result, by a rule for its class; with all details if `verbose`."""
    raise NotImplementedError(f"document has no rule for {type(result).__name__}")


class Report(ABC):
    """A result: its fields are its plain data, and all renderings follow from its `document`."""

    @property
    @abstractmethod
    def schema(self) -> str:
        """Name and version of the JSON document."""

    def content(self) -> Any:
        """The fields: the JSON document without the schema, the verdict and the exit code."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the content without tensors, the schema, the verdict and the exit code; no NaN, no infinity."""
        content: dict[str, Any] = finite(plain(self.content()))
        return {**content, "schema": self.schema, "verdict": self.verdict.value, "exit_code": self.exit_code}

    @property
    def verdict(self) -> Verdict:
        """The verdict; *holds* for a result without a decision."""
        return Verdict.HOLDS

    @property
    def exit_code(self) -> int:
        """The exit code of the command that prints it: 0 holds, 1 refuted, 3 otherwise."""
        return self.verdict.exit_code

    @property
    def summary(self) -> str:
        """The first line of the report, which begins with the verdict.

        >>> import conv2attn, torch
        >>> conv = torch.nn.Conv2d(3, 4, 3)
        >>> conv2attn.certify(conv, conv2attn.convert(conv), input_size=(3, 9, 9)).summary
        'holds (proved); layers: 1 holds, 0 refuted, 0 undecided, 0 unsupported'
        """
        return document(self).answer[0]

    def to_text(self, width: int | None = None, verbose: bool = False, colour: bool = False) -> str:
        """The report for a terminal of `width` columns; without a width, as wide as needed."""
        return text.to_text(document(self, verbose), width, colour)

    def to_github(self, verbose: bool = False) -> str:
        """The report as text, and its verdict as an annotation of a run of GitHub Actions."""
        return text.to_github(document(self, verbose))

    def to_markdown(self, verbose: bool = False) -> str:
        """The report for a document."""
        return markup.to_markdown(document(self, verbose))

    def to_html(self, verbose: bool = False) -> str:
        """The report as a page that loads nothing."""
        return markup.to_page(document(self, verbose))

    def to_svg(self, verbose: bool = False) -> str:
        """A picture of the report on a terminal, in colour."""
        return text.to_svg(document(self, verbose))

    def to_latex(self, verbose: bool = False) -> str:
        """The tables for a paper; they need the package booktabs."""
        return markup.to_latex(document(self, verbose))

    def to_csv(self) -> str:
        """The main table for a spreadsheet, its numbers not rounded."""
        return markup.to_csv(self.records())

    def to_json(self) -> str:
        """The report for a program: sorted keys, no NaN."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, allow_nan=False) + "\n"

    def to_frame(self) -> Any:
        """The main table as a pandas.DataFrame.

        Raises:
            UsageError: pandas is not installed (C2A003).
        """
        return optional("pandas", "to_frame").DataFrame(self.records())

    def records(self) -> list[dict[str, Any]]:
        """The rows of the main table as dictionaries; for a report without a table, its sentences."""
        whole = document(self, verbose=True)
        sentences = Table(("sentence",), tuple((line,) for line in whole.sentences))
        return markup.records(whole.tables[0] if whole.tables else sentences)

    def __str__(self) -> str:
        return text.to_text(for_python(document(self)), shutil.get_terminal_size().columns).rstrip("\n")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary}>"

    def _repr_html_(self) -> str:
        return markup.to_html(for_python(document(self)))


def plain(item: Any) -> Any:
    """Plain data: for a structure, its fields and derived properties."""
    if isinstance(item, msgspec.Struct):
        derived = getattr(item, "derived", ())
        names = zip(item.__struct_encode_fields__ + derived, item.__struct_fields__ + derived, strict=True)
        return {key: plain(getattr(item, name)) for key, name in names}
    if isinstance(item, list | tuple):
        return [plain(each) for each in item]
    if isinstance(item, Mapping):
        return {key: plain(each) for key, each in item.items()}
    # NumPy's float64 is a float that msgspec refuses, so it becomes a float of Python.
    return float(item) if isinstance(item, float) else msgspec.to_builtins(item, enc_hook=left_out)


def left_out(item: Any) -> None:
    """Replaces tensors by None in a document."""


def finite(item: Any) -> Any:
    """Plain data in which infinities and NaN are strings, since JSON has no such numbers."""
    if isinstance(item, dict):
        return {key: finite(each) for key, each in item.items()}
    if isinstance(item, list | tuple):
        return [finite(each) for each in item]
    return str(item) if isinstance(item, float) and not math.isfinite(item) else item


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a result: its fields, and the properties named in `derived`, are the keys of its document."""

    derived: ClassVar[tuple[str, ...]] = ()


class ResultMeta(msgspec.StructMeta, ABCMeta):
    """The metaclass of a report that is a msgspec structure."""


class Result(msgspec.Struct, Report, metaclass=ResultMeta, frozen=True, forbid_unknown_fields=True):
    """A report whose fields, and the properties named in `derived`, are the keys of its document; without tensors."""

    derived: ClassVar[tuple[str, ...]] = ()
    __repr__ = Report.__repr__
