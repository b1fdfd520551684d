"""Interleaved timings: every round measures each function once, so that noise of the machine meets all alike."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True)
class Timing:
    """Milliseconds of one function over the rounds, and its ratio to the reference, taken round by round.

    `best` is the ratio of the smallest times, which a busy machine disturbs least.
    """

    median: float
    low: float
    high: float
    ratio: float
    best: float
    rounds: int


def interleave(
    functions: Mapping[str, Callable[[], Any]],
    seconds: float,
    rounds: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Times the functions in turn (A B C A B C ...) for about `seconds`, at least `rounds` rounds, after one warm-up.

    Where `seconds` is 0, a single round shows that they run.
    With `clock` time.process_time, other programs on the machine disturb less.

    Returns:
        Medians, and as the spread the smallest time and the third quartile; the first function is the reference.
    """
    for function in functions.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    until, done = time.perf_counter() + seconds, 0
    while done < (rounds if seconds else 1) or time.perf_counter() < until:
        for name, function in functions.items():
            start = clock()
            function()
            times[name].append(1e3 * (clock() - start))
        done += 1
    reference = next(iter(times.values()))
    return {name: summary(measured, reference) for name, measured in times.items()}


def summary(times: list[float], reference: list[float]) -> Timing:
    """Median, smallest and third quartile of `times`, and the median of their ratios to `reference`."""
    third_quartile = sorted(times)[(3 * len(times)) // 4]
    ratio = statistics.median(mine / theirs for mine, theirs in zip(times, reference, strict=True))
    best = min(times) / min(reference)
    return Timing(statistics.median(times), min(times), third_quartile, ratio, best, len(times))
