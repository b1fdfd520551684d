"""Common behaviour of all results: they print as text, show as HTML, and convert."""

import json
import shutil
from abc import ABC, abstractmethod
from typing import Any

from conv2attn.errors import UsageError
from conv2attn.report import markup, text
from conv2attn.report.document_parts import Document
from conv2attn.verdicts import Strength, Verdict


class Report(ABC):
    """A result that gives its content as a `Document` and as plain data; all renderings follow from these two."""

    @abstractmethod
    def document(self, verbose: bool = False) -> Document:
        """The content of the report; with all details where `verbose`."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain data, as JSON takes it, with verdicts as they are: no NaN, no infinity."""

    @property
    def verdict(self) -> Verdict:
        """The verdict; a result that decides nothing holds."""
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
        return self.document().answer[0]

    def to_text(self, width: int | None = None, verbose: bool = False, colour: bool = False) -> str:
        """The report for a terminal of `width` columns; as wide as it needs without one."""
        return text.to_text(self.document(verbose), width, colour)

    def to_markdown(self, verbose: bool = False) -> str:
        """The report for a document."""
        return markup.to_markdown(self.document(verbose))

    def to_html(self, verbose: bool = False) -> str:
        """The report as a page that loads nothing."""
        return markup.to_page(self.document(verbose))

    def to_svg(self, verbose: bool = False) -> str:
        """A picture of the report on a terminal, in colour."""
        return text.to_svg(self.document(verbose))

    def to_latex(self, verbose: bool = False) -> str:
        """The tables for a paper; they need the package booktabs."""
        return markup.to_latex(self.document(verbose))

    def to_csv(self) -> str:
        """The main table for a spreadsheet, its numbers not rounded."""
        return markup.to_csv(self.records())

    def to_json(self) -> str:
        """The report for a program: sorted keys, no NaN."""
        return json.dumps(self.to_dict(), default=by_value, indent=2, sort_keys=True, allow_nan=False) + "\n"

    def to_frame(self) -> Any:
        """The main table as a pandas.DataFrame.

        Raises:
            UsageError: pandas is not installed (C2A003).
        """
        try:
            import pandas
        except ImportError as error:
            raise UsageError(
                "C2A003", "to_frame needs pandas, which is not installed", "Install it: pip install pandas."
            ) from error
        return pandas.DataFrame(self.records())

    def records(self) -> list[dict[str, Any]]:
        """The rows of the main table as dictionaries."""
        return [record for table in self.document(verbose=True).tables[:1] for record in markup.records(table)]

    def __str__(self) -> str:
        return self.to_text(shutil.get_terminal_size().columns).rstrip("\n")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary}>"

    def _repr_html_(self) -> str:
        return markup.to_html(self.document())


def by_value(item: object) -> str:
    """A verdict or a strength as JSON takes it.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(item, Verdict | Strength):
        return item.value
    raise TypeError(f"{item!r} has no place in a report")
