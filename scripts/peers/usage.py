"""How much of the machine other processes used."""

import dataclasses
import os
import resource
import time


@dataclasses.dataclass(frozen=True)
class Usage:
    """Seconds since some start: by the clock, of all CPUs together, and of this process with its ended children."""

    wall_s: float
    busy_s: float
    own_s: float

    @staticmethod
    def now(stat="/proc/stat"):
        with open(stat, encoding="ascii") as file:
            user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
        own_s = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        ticks = user + nice + system + irq + softirq + steal
        return Usage(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), own_s)

    def others_share(self, since, cpus):
        """Of `cpus` CPUs, from 0 to 1."""
        others_s = self.busy_s - since.busy_s - (self.own_s - since.own_s)
        return max(0.0, others_s / (self.wall_s - since.wall_s) / cpus)
