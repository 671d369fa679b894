#!/usr/bin/python3
"""Uses a server as roughly as many clients do over a long time, and checks that nothing is lost or kept.

  tests/e2e/soak.py [--seconds 600] [--clients 64] [--idle 2000] [--kills 2] [--seed N] [--flags "..."] [MODEL]

Clients ask, read slowly, leave; idle connections lie about; the attacks of attacks.py run one after another; the
engine process is killed. Every request must be answered, or end with an error event. Before and after that, when
all clients are gone, both processes are counted: memory, descriptors, threads, KV blocks. The first count comes
after a quarter of the time, which includes a killed engine, and after each attack at least: by then every buffer has
had its largest size.
"""

import argparse
import asyncio
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import sys
import tempfile

import attacks
import raw_client
from attack_gaps import target_of
from own_server import TOP, Server
from process_tree import children_of, engine_of
from raw_client import Connection, exchange, get, post

SETTLE_S = 30        # for a server without clients to come to rest: it only bounds a failure
RSS_GROWTH = 1.02    # of either process
# The front end's malloc keeps up to so much free memory at the end of its heap (M_TRIM_THRESHOLD in server.cc), and
# pages in which something small still lives. Eight counts in a row, 8 s of use between them, differed by up to 3.3 MiB
# of 43 without a trend.
FRONT_SPREAD = 4 << 20
LEAVERS, LEAVERS_TOKENS = 32, 1500
WORKERS = 4  # each starts its templates' helper process when a chat first comes to it
FLAGS = ["--frontend-workers", WORKERS, "--kv-cache-space", "16MiB", "--served-model-name", "soaked", "--request-memory", "1GiB"]


# ---- What is counted --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ProcessCount:
    """The memory and the files of a process."""

    rss_bytes: int
    descriptors: int
    threads: int
    children: int

    @staticmethod
    def of(pid):
        folder = pathlib.Path(f"/proc/{pid}")
        fields = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        return ProcessCount(int(fields["VmRSS"].split()[0]) << 10, len(list((folder / "fd").iterdir())),
                            int(fields["Threads"]), len(children_of(pid)))


@dataclasses.dataclass(frozen=True)
class Census:
    """Both processes, and what the server says of itself, when no client is left."""

    front: ProcessCount
    engine: ProcessCount
    kept: dict  # by the name of a metric


# The value of each in a server at rest.
AT_REST = {"pinion:request_memory_bytes": 0, "vllm:num_requests_running": 0, "vllm:num_requests_waiting": 0,
           "pinion:pool_queued": 0, "blocks_used": 0, "pinion:connections": 1}  # the one that asks


def compare(before, after):
    """A sentence for everything that the second census has too much of."""
    found = []
    for process, spread in (("front", FRONT_SPREAD), ("engine", 0)):
        one, other = getattr(before, process), getattr(after, process)
        if other.rss_bytes > one.rss_bytes * RSS_GROWTH + spread:
            found.append(f"the {process} process grew from {one.rss_bytes} to {other.rss_bytes} bytes, by "
                         f"{other.rss_bytes / one.rss_bytes - 1:.1%}")
        for what in ("descriptors", "threads", "children"):
            if getattr(other, what) > getattr(one, what):
                found.append(f"the {process} process had {getattr(one, what)} {what}, now {getattr(other, what)}")
    return found + [f"{name} is {value}, want {AT_REST[name]}" for name, value in after.kept.items()
                    if value != AT_REST[name]]


def with_engine_of(after, before):
    """The census `before`, with the engine's memory of `after`; what else it counted still has to come back."""
    engine = dataclasses.replace(before.engine, rss_bytes=after.engine.rss_bytes)
    return dataclasses.replace(before, engine=engine)


# ---- Clients ----------------------------------------------------------------------------------------------


class Tally:
    """How requests ended."""

    def __init__(self):
        self.ends = collections.Counter()
        self.failures = []

    def fail(self, sentence):
        self.ends["failed"] += 1
        self.failures.append(sentence)

    def judge(self, what, answer):
        """Counts an answer that the client waited for."""
        text = answer.text[-200:].decode(errors="replace")
        if not answer.status:
            return self.fail(f"{what}: the connection was closed without an answer")
        if not answer.complete:
            return self.fail(f"{what}: the answer ends in the middle: ...{text}")
        if answer.status not in (200, 503):
            return self.fail(f"{what}: status {answer.status}: {text}")
        if answer.status == 200 and b"text/event-stream" in answer.text[:1000]:
            if b"data: [DONE]" not in answer.body[-60:]:
                return self.fail(f"{what}: the stream does not end with [DONE]: ...{text}")
            if b'data: {"error"' in answer.body:
                self.ends["error event"] += 1
                return None
        self.ends[answer.status] += 1
        return None


def some_request(target, rng):
    """(name, bytes, whether it streams): a request that a well-meaning client may send."""
    chat, stream = rng.random() < 0.4, rng.random() < 0.6
    words = "Once upon a time there was a fox. " * rng.randrange(1, 20)
    body = {"messages": [{"role": "user", "content": words}]} if chat else {"prompt": words}
    body |= {"model": target.model, "max_tokens": rng.choice([1, 8, 40, 200]), "stream": stream,
             "n": rng.choice([1, 1, 1, 3]), "temperature": rng.choice([0, 1]), "ignore_eos": rng.random() < 0.5}
    if rng.random() < 0.2:
        body |= {"logprobs": True, "top_logprobs": 3} if chat else {"logprobs": 3}
    if rng.random() < 0.2:
        body["stop"] = ["fox", "the end"]
    return "chat" if chat else "completion", post("/v1/chat/completions" if chat else "/v1/completions", body), stream


async def ask(target, rng, tally):
    name, data, _ = some_request(target, rng)
    tally.judge(name, await exchange(target, data))


async def ask_small(target, rng, tally):
    data = rng.choice([get("/metrics"), get("/health"), get("/server_info"), get("/v1/models"),
                       post("/tokenize", {"prompt": "a fox " * rng.randrange(1, 200)})])
    tally.judge("a small request", await exchange(target, data))


async def ask_and_leave(target, rng, tally):
    """At any point: while the request is sent, before the first event, after some."""
    _, data, _ = some_request(target, rng)
    async with Connection(target) as connection:
        if rng.random() < 0.2:
            await connection.send(data[:rng.randrange(len(data))])
        else:
            await connection.send(data)
            for _ in range(rng.choice([0, 0, 1, 5])):
                await connection.receive()
        if rng.random() < 0.5:
            connection.reset()
    tally.ends["left"] += 1


async def read_slowly(target, rng, tally):
    """Reads a little now and then; leaves, or loses patience and takes the rest."""
    _, data, _ = some_request(target, rng)
    async with Connection(target, receive_buffer=4096) as connection:
        await connection.send(data)
        for _ in range(rng.randrange(1, 20)):
            await connection.receive(64)
            await asyncio.sleep(0.05)
        if rng.random() < 0.5:
            async with asyncio.timeout(raw_client.PATIENCE_S):
                await connection.read_answer()
    tally.ends["read slowly"] += 1


class Crowd:
    """Everything that uses the server at one time."""

    def __init__(self, server, target, tally, rng, clients, idle):
        self.server, self.target, self.tally, self.rng = server, target, tally, rng
        self.clients, self.idle = clients, idle
        self.attacks = {name: attack.against(target) for name, attack in attacks.ATTACKS.items()}
        self.stopping = False
        self.attacked = asyncio.Event()  # by each attack

    async def run(self, seconds, kills):
        """Returns when the last of them has ended; the first time, after each attack at the earliest."""
        self.stopping = False
        tasks = [asyncio.ensure_future(self._client(random.Random(self.rng.random()))) for _ in range(self.clients)]
        tasks += [asyncio.ensure_future(self._attack()), asyncio.ensure_future(self._lie_about())]
        for _ in range(kills):
            await asyncio.sleep(seconds / (kills + 1))
            await self._kill()
        await asyncio.sleep(seconds / (kills + 1))
        await self.attacked.wait()
        self.stopping = True
        await asyncio.gather(*tasks)

    async def _client(self, rng):
        while not self.stopping:
            act = rng.choices([ask, ask_small, ask_and_leave, read_slowly], [5, 2, 3, 1])[0]
            try:
                await act(self.target, rng, self.tally)
            except (OSError, TimeoutError) as error:
                self.tally.fail(f"{act.__name__}: {type(error).__name__} {error}")

    async def _attack(self):
        names = list(self.attacks)
        while not self.stopping:
            self.rng.shuffle(names)
            for name in names:
                if self.stopping:
                    return
                try:
                    answers = await self.attacks[name]()
                except (OSError, TimeoutError) as error:
                    self.tally.fail(f"{name}: {type(error).__name__} {error}")
                    continue
                # Beside everything else a full server may say so.
                answers = [answer for answer in answers if answer.status != 503]
                if failure := attacks.check(name, answers):
                    self.tally.fail(failure)
                self.tally.ends["attacks"] += 1
            self.attacked.set()

    async def _lie_about(self):
        connections = await attacks.open_many(self.target, self.idle)
        try:
            while not self.stopping:
                await asyncio.sleep(0.5)
                for i, connection in enumerate(connections):
                    if self._was_closed(connection):
                        connection.socket.close()
                        connections[i] = await Connection(self.target).__aenter__()
        finally:
            attacks.close_all(connections)

    @staticmethod
    def _was_closed(connection):
        try:
            return connection.socket.recv(1000) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def _kill(self):
        pid = engine_of(self.server)
        if pid is None:
            return self.tally.fail("no engine runs that could be killed")
        os.kill(pid, signal.SIGKILL)
        self.tally.ends["killed engines"] += 1
        if not await holds(lambda: self._has_another_engine(pid)):
            self.tally.fail("no other engine was ready after one was killed")
        return None

    async def _has_another_engine(self, pid):
        return engine_of(self.server) not in (None, pid) and (await exchange(self.target, get("/health"))).status == 200


async def holds(condition):
    """Whether the coroutine function's result comes to be true."""
    end = asyncio.get_running_loop().time() + SETTLE_S
    while asyncio.get_running_loop().time() < end:
        if await condition():
            return True
        await asyncio.sleep(0.1)
    return False


# ---- Rest -------------------------------------------------------------------------------------------------


async def info_of(target):
    return json.loads((await exchange(target, get("/server_info"))).body)


async def kept_by(target):
    """The numbers of AT_REST as they are."""
    found = {"blocks_used": (await info_of(target))["stats"]["blocks_used"]}
    for line in (await exchange(target, get("/metrics"))).body.decode().splitlines():
        name = line.partition("{")[0]
        if name in AT_REST:
            found[name] = float(line.rsplit(" ", 1)[1])
    return found


async def rest(target):
    """The numbers of AT_REST when they are right, or when they have not become so."""
    async def at_rest():
        return await kept_by(target) == AT_REST
    await holds(at_rest)
    return await kept_by(target)


async def leave_all_at_once(target, tally):
    """Clients that have just begun long streams leave; checks that the engine does not write on for them."""
    tokens = min(LEAVERS_TOKENS, target.max_model_len // 2)
    data = post("/v1/completions", {"prompt": "Once", "max_tokens": tokens, "ignore_eos": True, "stream": True})
    async with contextlib.AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(Connection(target)) for _ in range(LEAVERS)]
        await asyncio.gather(*(one.send(data) for one in connections))
        await asyncio.gather(*(one.receive() for one in connections))
    written = (await info_of(target))["stats"]["output_tokens"]
    await rest(target)
    written = (await info_of(target))["stats"]["output_tokens"] - written
    if written > LEAVERS * tokens // 2:
        tally.fail(f"the engine wrote {written} tokens for {LEAVERS} clients that had left; all that they had asked "
                   f"for were {LEAVERS * tokens}")


async def use_everything(server, target):
    """Has every worker start its helper and every KV block written to, and the front end return what it can."""
    chat = post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1})
    for _ in range(500):
        if len(children_of(server.process.pid)) > WORKERS:  # and the engine
            break
        await asyncio.gather(*(exchange(target, chat) for _ in range(8 * WORKERS)))
    tokens = (await info_of(target))["kv_cache"]["tokens"]
    length = target.max_model_len - 8
    for start in range(0, 2 * tokens, length):
        ids = [16 + (start + i) % 480 for i in range(length)]
        random.Random(start).shuffle(ids)  # no prompt is another's prefix
        await exchange(target, post("/v1/completions", {"prompt": ids, "max_tokens": 1}))
    for _ in range(2):  # a worker trims after a large body: the second finds all of the first's memory free
        await exchange(target, post("/tokenize", {"prompt": "a fox " * 100_000}))


async def take_census(server, target, tally):
    await leave_all_at_once(target, tally)
    await use_everything(server, target)
    kept = await rest(target)
    fronts = []
    for _ in range(10):  # the connections of our own questions are closing
        await asyncio.sleep(0.1)
        fronts.append(ProcessCount.of(server.process.pid))
    return Census(min(fronts, key=lambda count: count.descriptors), ProcessCount.of(engine_of(server)), kept)


@dataclasses.dataclass
class Outcome:
    """The findings of a soak."""

    before: Census
    after: Census
    tally: Tally

    @property
    def failures(self):
        return self.tally.failures + compare(self.before, self.after)

    def report(self):
        lines = [f"{name}: {count}" for name, count in sorted(self.tally.ends.items(), key=str)]
        for process in ("front", "engine"):
            one, other = getattr(self.before, process), getattr(self.after, process)
            lines.append(f"{process}: {one.rss_bytes >> 10} -> {other.rss_bytes >> 10} KiB "
                         f"({other.rss_bytes / one.rss_bytes - 1:+.2%}), descriptors {one.descriptors} -> "
                         f"{other.descriptors}, threads {one.threads} -> {other.threads}, children {one.children} -> "
                         f"{other.children}")
        lines.append(f"kept: {self.after.kept}")
        return "\n".join(lines + [f"FAILED: {sentence}" for sentence in self.failures[:20]])


async def soak(server, seconds, clients=64, idle=2000, kills=2, seed=1):
    """Warms the server up, soaks it, and returns what was found."""
    raw_client.raise_descriptor_limit()
    target, tally, rng = target_of(server), Tally(), random.Random(seed)
    # So that there is time for each.
    attacks.HOLD_S, attacks.FILL_S = (min(each, seconds / 15) for each in (attacks.HOLD_S, attacks.FILL_S))
    warm_s = seconds / 4
    crowd = Crowd(server, target, tally, rng, clients, idle)
    await crowd.run(warm_s, min(kills, 1))
    before = await take_census(server, target, tally)
    await crowd.run(seconds - warm_s, kills)
    after = await take_census(server, target, tally)
    # Memory that is kept is there, and more of it, after further use; memory that malloc has spread is not. A killed engine's
    # successor has other pages than the one before it (eight of them at rest: 59.8 to 62.9 MB): this one has to grow again.
    for _ in range(2):
        if not compare(before, after):
            break
        if kills:
            before = with_engine_of(after, before)
        await crowd.run(seconds - warm_s, 0)
        after = await take_census(server, target, tally)
    if server.process.poll() is not None:
        tally.fail("the server has ended")
    return Outcome(before, after, tally)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model", nargs="?", default=TOP / "tests/data/models/tiny-trained", metavar="MODEL")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--idle", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flags", default="", help="further flags of `pinion serve`")
    parser.add_argument("--binary", type=pathlib.Path, default=TOP / "build/pinion")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "server.log"
        server = Server(arguments.binary, log, arguments.model, *FLAGS, *arguments.flags.split())
        try:
            outcome = asyncio.run(soak(server, arguments.seconds, arguments.clients, arguments.idle, arguments.kills,
                                       arguments.seed))
        except BaseException:
            print(log.read_text()[-3000:], file=sys.stderr)
            raise
        finally:
            server.stop()
    print(outcome.report())
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
