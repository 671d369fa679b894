"""Machines that nobody here has: what is planned on them, what fits their nodes, and what a sweep would try.
Every rule is one of the machine's own shape, as imagined_machines.py states it."""

import collections
import json
import re

import pytest

import imagined_machines
from imagined_machines import GIB, Machine, Node, server

MACHINES = [
    server("two-sockets-snc3", 2, [[19], [19], [18]]),
    server("two-sockets-nps4", 2, [[8, 8, 8]] * 4),
    server("eight-sockets", 8, [[28]]),
    Machine("asymmetric", [[Node([16], 64)], [Node([8], 32)]]),
    server("far-memory", 2, [[14], [14]], far_gib=256),
    Machine("fast-memory", [[Node([14], 64, [16]) for _ in range(4)] for _ in range(2)]),
    Machine("large-and-small-cores", [[Node([24], 32)]], adjacent=True, small=16, kinds=("IntelAtom", "IntelCore")),
    Machine("small-cores-alone", [[Node([16], 32)]], threads=1, small=8, kinds=("IntelAtom", "IntelAtom")),
]


class Described:
    """A machine, its file, and what is where on it, by CPU."""

    def __init__(self, machine, folder):
        self.machine = machine
        self.path = imagined_machines.write(machine, folder)
        self.node, self.core, self.l3, self.socket = {}, {}, {}, {}
        for index, socket in enumerate(machine.sockets):
            for node in socket:
                for domain in node.cpus:
                    for core in domain:
                        for cpu in core:
                            self.node[cpu], self.socket[cpu] = node.id, index
                            self.core[cpu], self.l3[cpu] = core[0], domain[0][0]
        self.cores = sorted(set(self.core.values()))
        mixed = len(set(machine.kinds)) > 1
        self.large = self.cores[:len(self.cores) - machine.small] if mixed else self.cores

    def topo(self, pinion, *flags):
        done = pinion("topo", "--machine", str(self.path), "--json", *flags)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def kinds_of(self, cpus, place):
        return {place[cpu] for cpu in cpus}


@pytest.fixture(scope="module", params=MACHINES, ids=lambda machine: machine.name)
def described(request, tmp_path_factory):
    return Described(request.param, tmp_path_factory.mktemp("machines"))


def numbers(text):
    """[0, 2, 4, 5] of "0-4:2,5"."""
    found = []
    for part in text.split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        found += range(int(first), int(last or first) + 1, int(step or 1))
    return found


def test_every_cpu_and_every_byte_is_seen(described, pinion):
    machine, seen = described.machine, described.topo(pinion)
    nodes = {node["id"]: node for node in seen["nodes"]}
    own = {node.id: (sorted(cpu for cpu in described.node if described.node[cpu] == node.id), node.gib)
           for node in machine.nodes}
    alone = {number: ([], gib) for number, gib in machine.memory_only}
    assert {number: (node["cpus"], node["memory_bytes"] // GIB) for number, node in nodes.items()} == own | alone
    kinds = [(kind["name"], len(kind["cpus"])) for kind in seen["cpu_kinds"]]
    assert kinds == ([("efficiency", 16), ("performance", 16)] if described.large != described.cores else
                     [("efficiency", 8)] * 2 if machine.kinds else [])


def test_ranks_have_cores_of_their_own_in_one_place(described, pinion):
    machine = described.machine
    sockets, nodes = len(machine.sockets), len(machine.nodes)
    domains = sum(len(node.l3) for node in machine.nodes)
    for ranks in sorted({1, sockets, nodes, domains, 2 * domains}):
        flags = "-tp", str(ranks), "--frontend"
        plan = described.topo(pinion, *flags)["plan"]
        assert plan == described.topo(pinion, *flags)["plan"], "the same request has the same plan"
        cpus = [rank["cpus"] for rank in plan["ranks"]]
        assert len(cpus) == ranks and all(cpus)
        used = [cpu for of_rank in cpus for cpu in of_rank] + plan["frontend_cpus"]
        cores = [described.core[cpu] for cpu in used]
        assert len(set(cores)) == len(cores), "every core has one thread"
        assert described.kinds_of(sum(cpus, []), described.core) <= set(described.large)
        for rank in plan["ranks"]:
            assert rank["nodes"] == sorted(described.kinds_of(rank["cpus"], described.node))
            assert set(rank["nodes"]) <= {node.id for node in machine.nodes}, "a node of memory alone has no rank"
            if ranks >= nodes:
                assert len(rank["nodes"]) == 1
            if ranks >= domains:
                assert len(described.kinds_of(rank["cpus"], described.l3)) == 1
            if ranks >= sockets:
                assert len(described.kinds_of(rank["cpus"], described.socket)) == 1
        if ranks == nodes:
            assert [rank["nodes"] for rank in plan["ranks"]] == [[node.id] for node in machine.nodes]
        idle = set(described.large) - set(cores)
        assert not idle or any("idle" in warning for warning in plan["warnings"]), idle


def test_an_engine_for_every_node_has_a_node_of_its_own(described, pinion):
    nodes = described.machine.nodes
    placement = described.topo(pinion, "--data-parallel-size", str(len(nodes)))["placement"]
    assert [(place["engine"], place["rank"], place["stage"], place["nodes"]) for place in placement] == [
        (engine, 0, 0, [node.id]) for engine, node in enumerate(nodes)]


def test_the_front_end_takes_a_small_core_if_there_is_one(described, pinion):
    plan = described.topo(pinion, "--frontend")["plan"]
    cpu, = plan["frontend_cpus"]
    small = set(described.cores) - set(described.large)
    assert (described.core[cpu] in small) == bool(small)
    computing = {described.core[cpu] for rank in plan["ranks"] for cpu in rank["cpus"]}
    assert len(computing) == len(described.large) - (0 if small else 1)


def test_a_rank_fits_its_own_node_alone(described, pinion):
    """The cache is all that counts of the smallest of models."""
    machine = described.machine
    ranks = len(machine.nodes)
    least = min(node.gib for node in machine.nodes)
    smallest = [node.id for node in machine.nodes if node.gib == least]

    def refusal(gib):
        return described.topo(pinion, "preset:tiny", "-tp", str(ranks), "--kv-cache-space", str(gib))["model"]["refusal"]

    assert not refusal(least - 1)
    said = refusal(least + 1)
    everything = sum(node.gib for node in machine.nodes) + sum(gib for _, gib in machine.memory_only)
    if ranks * (least + 1) > everything and "of memory is free" in said:
        return
    # Free memory on larger nodes, or on those of memory alone, does not help.
    named = re.search(r"rank (\d+) needs .* on NUMA node (\d+), which has (\d+)\.0 GiB free", said)
    rank, node, free = map(int, named.groups())
    assert rank == node and node in smallest and free == least


def test_a_rank_across_nodes_has_memory_on_each_by_its_threads(pinion, tmp_path):
    described = Described(Machine("uneven", [[Node([16], 64)], [Node([8], 32)]]), tmp_path)
    for gib, fits in (90, True), (97, False):  # 60 and 30 GiB; 32.3 GiB on node 1
        refusal = described.topo(pinion, "preset:tiny", "--kv-cache-space", gib)["model"]["refusal"]
        assert (not refusal) == fits, refusal


def test_the_way_out_of_a_full_node_is_a_rank_for_every_node_with_cpus(pinion, tmp_path):
    described = Described(server("far", 2, [[14], [14]], far_gib=256), tmp_path)
    refusal = described.topo(pinion, "preset:tiny", "-tp", 2, "--kv-cache-space", 129)["model"]["refusal"]
    assert "rank 0 needs 64.5 GiB on NUMA node 0" in refusal, refusal
    assert "use -tp 4," in refusal, refusal
    assert not described.topo(pinion, "preset:tiny", "-tp", 4, "--kv-cache-space", 63)["model"]["refusal"]


def test_a_sweep_tries_bindings_that_fit_the_machine(described, pinion):
    machine = described.machine

    def plan():
        done = pinion("sweep", "preset:tiny", "--plan", "--json", "--machine", str(described.path))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    told = plan()
    assert told == plan()
    assert not [one["name"] for one in told["candidates"] if one.get("excluded")]
    axes = told["axes"]
    bindings = axes["threads_bind"]
    assert bindings[:3] == ["auto", "all", "nobind"] and len(bindings) > 3
    assert axes["reserved_cpus"] == [None, 0, 1, 2]
    counts = {1, len(machine.sockets), len(machine.nodes)}
    if len(counts) > 1:
        assert set(axes["tensor_parallel"]) == set(axes["replicas"]) == counts
    for lists in bindings[3:]:
        ranks = [numbers(part) for part in lists.split("|")]
        used = collections.Counter(cpu for cpus in ranks for cpu in cpus)
        assert set(used) <= set(described.node) and max(used.values()) == 1
        if len(ranks) > 1:
            assert all(len(described.kinds_of(cpus, described.node)) == 1 for cpus in ranks)
    if len(set(machine.kinds)) > 1:
        small = sorted(set(described.cores) - set(described.large))
        alone = [numbers(lists) for lists in bindings[3:]]
        assert small in alone and described.cores in alone, "each kind, and all"
