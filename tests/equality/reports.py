"""Parts of certificates that many tests look at."""

from conv2attn.verdicts import Strength, Verdict

PROVED = (Verdict.HOLDS, Strength.PROVED)


def outcome(report):
    return report.verdict, report.strength


def rows(report, verdict=None):
    return [row.name for row in report.rows if verdict is None or row.verdict is verdict]


def decisive(row):
    """The first finding of a row that has its verdict."""
    return next(finding for finding in row.findings if finding.verdict is row.verdict)


def at_most_rounded(report):
    """Whether a report claims no more than that sections agree within rounding."""
    return report.verdict is not Verdict.HOLDS or report.strength is Strength.ROUNDED
