"""Parts of certificates that many tests look at, and what is saved of one."""

from msgspec.structs import asdict

from conv2attn.equality import replay_counterexamples
from conv2attn.verdicts import Strength, Verdict

PROVED = (Verdict.HOLDS, Strength.PROVED)


def outcome(report):
    return report.verdict, report.strength


def rows(report, verdict=None):
    return [row.name for row in report.rows if verdict is None or row.verdict is verdict]


def kept(report):
    """What `verify --save-witness` writes."""
    return {"witnesses": [asdict(witness) for witness in report.counterexamples]}


def replayed(report, original, converted, **asked):
    return replay_counterexamples(kept(report), "shown.pt", original, converted, **asked)
