"""Effect of a long prompt on streams beside it, from the JSON of `pinion load --detailed`."""

import dataclasses
import math

from peers.engines import Failed

TENTH = 1.1  # of the bound, for delays that no scheduler can foresee
AUTO = (8, 0.1, 0.5)  # Pinion's bound of a step: times of its decodes; at least and at most, in seconds
SHORT_MOST_S, LONG_MOST = 2.0, 1.25  # first token of a short prompt; the long one's time over its time alone


def percentile(values, share):
    """The smallest value that at least `share` of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def on_the_clock(run):
    """Every request's time of sending and those of its tokens, by the machine's clock."""
    start_s = run["pinion"]["start_monotonic_s"]
    return [(start_s + request["sent_s"], [start_s + at_s for at_s in request["token_s"]])
            for request in run["pinion"]["requests"]]


def first_token_s(run):
    """From sending to the first token, of each request."""
    return [tokens[0] - sent_s for sent_s, tokens in on_the_clock(run)]


def gaps(streams, begin_s, end_s, ended=False):
    """Gaps between neighbouring tokens that touch the time from begin_s to end_s; `ended`: that end in it."""
    return [later - earlier for _, tokens in streams for earlier, later in zip(tokens, tokens[1:])
            if later > begin_s and (later if ended else earlier) < end_s]


@dataclasses.dataclass(frozen=True)
class Beside:
    """One measurement: streams run, a long prompt arrives, short ones after it. Seconds."""

    before_p50: float
    before_p99: float
    during_p99: float
    during_worst: float
    short_ttft: float
    short_ttft_worst: float
    long: float
    long_alone: float

    @property
    def long_ratio(self):
        return self.long / self.long_alone

    def figures(self):
        return {**dataclasses.asdict(self), "long_ratio": self.long_ratio}


FIGURES = (*(field.name for field in dataclasses.fields(Beside)), "long_ratio")


def beside(streams, arrivals, alone, settle_s):
    """Of three runs of `pinion load`: the streams, which had settle_s before the first of `arrivals`, the long prompt,
    was sent; the arrivals, short prompts behind it; and the long prompt alone."""
    (sent_s, long_tokens), *_ = on_the_clock(arrivals)
    end_s, running = long_tokens[0], on_the_clock(streams)
    for _, tokens in running:
        if len(tokens) < 2 or tokens[0] > sent_s - settle_s:
            raise Failed(f"not all streams ran {settle_s:g} s before the long prompt; raise --settle")
        if tokens[-1] < end_s:
            raise Failed("a stream ended before the long prompt had its first token; give a smaller --long-prompt")
    last_s = max(sent for sent, _ in on_the_clock(arrivals))
    if last_s > end_s:
        raise Failed(f"the long prompt had its first token after {end_s - sent_s:.1f} s, before the last short one was "
                     f"sent; give a larger --long-prompt")
    before = gaps(running, sent_s - settle_s, sent_s, ended=True)
    during, ttft = gaps(running, sent_s, end_s), first_token_s(arrivals)[1:]
    return Beside(percentile(before, 0.5), percentile(before, 0.99), percentile(during, 0.99), max(during), ttft[0],
                  max(ttft), end_s - sent_s, first_token_s(alone)[0])


def auto_bound_s(before_p50):
    """The bound that `--max-step-ms` has by default, roughly: a gap of the streams alone is the time of their decodes."""
    times, least_s, most_s = AUTO
    return min(max(times * before_p50, least_s), most_s)


def promises(figures, bound_s):
    """(promise, limit, measured, kept) of each; `bound_s`: of a step."""
    rows = [("p99 gap, s", bound_s * TENTH, figures["during_p99"]),
            ("first token of a short prompt, s", SHORT_MOST_S, figures["short_ttft"]),
            ("long prompt over its time alone", LONG_MOST, figures["long_ratio"])]
    return [(name, limit, measured, measured <= limit) for name, limit, measured in rows]
