"""The effect of each attack on another client's stream and on /health: the table of `attacks.py --measure`."""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import raw_client
from attacks import ATTACKS, check
from raw_client import Connection, Target, exchange, get, post
from own_server import TOP, Server

HEALTH_EVERY_S, HEALTH_MOST_S = 0.05, 0.1
LEAST_S, UNDISTURBED_S, AFTER_S = 4.0, 15.0, 1.0  # of watching: an attack, nothing, and after an attack
INFO_EVERY_S = 0.1
TENTH = 1.1  # of the bound of a step, for what no scheduler can foresee


@dataclasses.dataclass
class Seen:
    """The observations of a watcher."""

    gaps_s: list = dataclasses.field(default_factory=list)
    health_s: list = dataclasses.field(default_factory=list)
    bounds_s: list = dataclasses.field(default_factory=list)  # of steps with prompts, by /server_info
    lags_s: list = dataclasses.field(default_factory=list)  # of the watcher itself: its gaps are not the server's
    answers: str = ""
    failure: str = ""


async def read_stream(target, seen, started):
    """Times the reads of a stream's events until it is cancelled."""
    async with Connection(target) as connection:
        await connection.send(post("/v1/completions", {
            "prompt": "Once upon a time", "max_tokens": target.max_model_len - 64, "ignore_eos": True,
            "stream": True}))
        reads, last = 0, None
        while part := await connection.receive():
            if b"data: {" not in part:
                continue
            now = time.monotonic()
            reads += 1
            if reads > 4:
                started.set()
                seen.gaps_s.append(now - last)
            last = now
        seen.failure = "the stream ended"
        started.set()


async def ask_health(target, seen):
    while True:
        start = time.monotonic()
        answer = await exchange(target, get("/health"))
        seen.health_s.append(time.monotonic() - start)
        if answer.status != 200:
            seen.failure = f"/health answered {answer.status}"
        asleep = time.monotonic()
        await asyncio.sleep(HEALTH_EVERY_S)
        seen.lags_s.append(time.monotonic() - asleep - HEALTH_EVERY_S)


async def ask_bound(target, seen):
    steps = None
    while True:
        answer = await exchange(target, get("/server_info"))
        stats = json.loads(answer.body or b"{}").get("stats", {})
        before, steps = steps, stats.get("bounded_steps")
        if before is not None and steps != before:
            seen.bounds_s.append(stats["bound_seconds"])
        await asyncio.sleep(INFO_EVERY_S)


class Attacker:
    """A process of its own for an attack, so that its work delays no watcher."""

    @classmethod
    async def start(cls, name, target):
        """One that has built what it will send."""
        self = cls()
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, str(pathlib.Path(__file__)), "--attack", name, "--target",
            json.dumps(dataclasses.asdict(target)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
        await self.process.stdout.readline()
        return self

    async def attack(self):
        """Its answers."""
        self.process.stdin.write(b"go\n")
        return (await self.process.stdout.readline()).decode().strip()

    async def stop(self):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


async def watch(target, name=None):
    """The observations during an attack, or during none."""
    attacker = await Attacker.start(name, target) if name else None
    seen, started = Seen(), asyncio.Event()
    tasks = [asyncio.ensure_future(read_stream(target, seen, started))]
    try:
        async with asyncio.timeout(raw_client.PATIENCE_S):
            await started.wait()
        tasks += [asyncio.ensure_future(ask(target, seen)) for ask in (ask_health, ask_bound)]
        if attacker:
            seen.answers = await attacker.attack()
        await asyncio.sleep(AFTER_S if attacker else UNDISTURBED_S)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if attacker:
            await attacker.stop()
    return seen


def run_attack(name, target):
    """The process that attacks: again and again until there was time to see what that does."""
    raw_client.PATIENCE_S = 900  # a long prompt of a real model takes minutes on a slow machine
    with contextlib.suppress(OSError):
        os.nice(10)  # an attacker's own work happens on another machine
    raw_client.raise_descriptor_limit()
    attack = ATTACKS[name].against(target)
    print("ready", flush=True)
    sys.stdin.readline()
    start, answers = time.monotonic(), []
    while time.monotonic() - start < LEAST_S:
        answers += asyncio.run(attack())
    counts = {}
    for answer in answers:
        counts[answer.status] = counts.get(answer.status, 0) + 1
    print(check(name, answers) or ", ".join(f"{count} x {status}" for status, count in sorted(counts.items())),
          flush=True)


def milliseconds(seconds):
    return f"{1000 * seconds:.0f}"


def line(name, seen, undisturbed_s):
    """A row of the table, and whether the server kept its word."""
    gap, health = max(seen.gaps_s, default=float("inf")), max(seen.health_s, default=float("inf"))
    allowed = max(2 * undisturbed_s, TENTH * max(seen.bounds_s, default=0))
    well = gap <= allowed and health <= HEALTH_MOST_S and not seen.failure
    verdict = "kept" if well else f"MISSED {seen.failure}".strip()
    return (f"| {name} | {seen.answers or '-'} | {milliseconds(gap)} | {milliseconds(allowed)} | "
            f"{gap / undisturbed_s:.1f} | {milliseconds(health)} | {milliseconds(max(seen.lags_s))} | {verdict} |"), well


async def measure(target, names):
    """Prints the table; whether every row is well."""
    await watch_until_warm(target)
    calm = await watch(target)
    undisturbed_s = max(calm.gaps_s)
    print(f"undisturbed: median gap {milliseconds(statistics.median(calm.gaps_s))} ms, worst "
          f"{milliseconds(undisturbed_s)} ms; allowed are twice the worst, or the bound of steps that prefill and a "
          f"tenth, and {milliseconds(HEALTH_MOST_S)} ms for /health; load average {os.getloadavg()[0]:.1f}\n")
    print("| attack | answers | worst gap [ms] | allowed [ms] | of undisturbed | worst /health [ms] | watcher's lag [ms] | promise |")
    print("|---|---|---:|---:|---:|---:|---:|---|")
    row, well = line("none", calm, undisturbed_s)
    print(row, flush=True)
    for name in names:
        row, kept = line(name, await watch(target, name), undisturbed_s)
        print(row, flush=True)
        well = well and kept
    print(f"\nload average {os.getloadavg()[0]:.1f}")
    return well


async def watch_until_warm(target):
    """First requests start the templates' helpers, and show the engine how long its steps take."""
    for data in (post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}),
                 post("/v1/completions", {"prompt": "hi", "max_tokens": 8})):
        for answer in await asyncio.gather(*(exchange(target, data) for _ in range(4))):
            if answer.status != 200:
                raise SystemExit(f"the server answers {answer.status}: {answer.text.decode(errors='replace')}")


def target_of(server, max_connections=4096):
    """A Server as a Target."""
    model = json.loads(server.get("/v1/models"))["data"][0]
    return Target(server.port, model["id"], model["max_model_len"], max_connections)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="preset:qwen2.5-0.5b", metavar="MODEL")
    parser.add_argument("--measure", action="store_true", help="start a server and attack it")
    parser.add_argument("--stand-in", metavar="RATE", help="events a second of an engine that computes nothing")
    parser.add_argument("--only", metavar="NAME,...", help=", ".join(ATTACKS))
    parser.add_argument("--binary", type=pathlib.Path, default=TOP / "build/pinion")
    parser.add_argument("--flags", default="", help="further flags of `pinion serve`")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--target", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attack:
        run_attack(arguments.attack, Target(**json.loads(arguments.target)))
        return 0
    if not arguments.measure:
        parser.error("say --measure")
    names = arguments.only.split(",") if arguments.only else list(ATTACKS)
    if unknown := set(names) - set(ATTACKS):
        parser.error(f"no attack {', '.join(sorted(unknown))}; there are {', '.join(ATTACKS)}")
    raw_client.raise_descriptor_limit()
    flags = arguments.flags.split() + (["--stand-in", arguments.stand_in] if arguments.stand_in else [])
    with tempfile.TemporaryDirectory() as folder:
        server = Server(arguments.binary, pathlib.Path(folder) / "server.log", arguments.model, *flags)
        try:
            well = asyncio.run(measure(target_of(server), names))
        finally:
            server.stop()
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
