"""Pairs of measurements: the order of turns, and verdicts from their ratios."""

import math
import statistics

LEVEL = 0.95


def turns(pairs):
    """Order of measurements: each pair begins with the engine that the last one ended with.

    A machine that grows slower or faster steadily then favours each of the two equally often.
    """
    for pair in range(pairs):
        for engine in ("ours", "peer") if pair % 2 == 0 else ("peer", "ours"):
            yield pair, engine


def interval(values):
    """Bounds of the median that hold for any distribution, or None if there are too few values.

    The median lies below the k-th smallest value only if fewer than k of n values lie below the median,
    each with probability 1/2. The largest k that keeps both tails within 5 % gives the bounds; with
    5 values even the outermost ones miss too often, with 6 in 2/64 of all cases.
    """
    count, tail, k = len(values), 0.0, 0
    while 2 * (tail := tail + math.comb(count, k) / 2**count) <= 1 - LEVEL:
        k += 1
    ordered = sorted(values)
    return (ordered[k - 1], ordered[count - k]) if k else None


FEWEST = next(count for count in range(1, 100) if interval(range(count)))


def summary(ours, peer):
    """Figures of a row of the table; `ours` and `peer` have a value for each pair."""
    ratios = [a / b for a, b in zip(ours, peer, strict=True)]
    return {"ours": ours, "peer": peer, "ratios": ratios, "ours_median": statistics.median(ours),
            "peer_median": statistics.median(peer), "ratio_median": statistics.median(ratios),
            "interval_95": interval(ratios)}
