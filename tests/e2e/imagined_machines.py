"""Machines that nobody here has, as the XML files that hwloc reads: several sockets, nodes and L3 domains,
nodes of memory alone, and cores of two kinds."""

import dataclasses
import itertools
import xml.etree.ElementTree as xml

GIB = 1 << 30


@dataclasses.dataclass
class Node:
    """A NUMA node: cores for each of its L3 domains, and memory; without cores it is memory alone."""
    l3: list = dataclasses.field(default_factory=list)
    gib: int = 64
    beside: list = dataclasses.field(default_factory=list)  # sizes of memory-only nodes at the same cores
    cpus: list = dataclasses.field(default_factory=list)
    id: int = -1


@dataclasses.dataclass
class Machine:
    name: str
    sockets: list  # of lists of nodes
    threads: int = 2  # of a core
    adjacent: bool = False  # siblings have neighbouring numbers, as on client CPUs, not those of a second round
    far_gib: int = 0  # of a memory-only node of every socket, at all its cores
    small: int = 0  # the last so many cores are of another kind, with one thread each
    kinds: tuple = ()  # core types, the small ones' first

    @property
    def nodes(self):
        return [node for socket in self.sockets for node in socket]


def server(name, sockets, domains, **more):
    """Equal sockets of one node for each list of cores by L3 domain."""
    return Machine(name, [[Node(list(l3)) for l3 in domains] for _ in range(sockets)], **more)


def bitmask(numbers):
    words = [0] * (max(numbers) // 32 + 1)
    for number in numbers:
        words[number // 32] |= 1 << number % 32
    return ",".join(f"0x{word:08x}" for word in reversed(words))


class _Writer:
    def __init__(self, machine):
        self.machine = machine
        self.serial = itertools.count(1)
        self.memory = []  # the nodes without cores, in the order of their numbers
        self.places = {}  # memory-only node: its locality's CPUs

    def _number(self):
        machine = self.machine
        cores = [(node, count) for node in machine.nodes for count in node.l3]
        total = sum(count for _, count in cores)
        core = itertools.count()
        following = itertools.count()
        for node, count in cores:
            domain = []
            for _ in range(count):
                index = next(core)
                threads = 1 if index >= total - machine.small else machine.threads
                if machine.adjacent:
                    domain.append([next(following) for _ in range(threads)])
                else:
                    domain.append([index + round * total for round in range(threads)])
            node.cpus.append(domain)
        for number, node in enumerate(machine.nodes):
            node.id = number

    def _cpus(self, nodes):
        return sorted(cpu for node in nodes for domain in node.cpus for core in domain for cpu in core)

    def _object(self, parent, what, cpus, nodes, **attributes):
        child = xml.SubElement(parent, "object", type=what)
        for name in "cpuset", "complete_cpuset":
            child.set(name, bitmask(cpus))
        for name in "nodeset", "complete_nodeset":
            child.set(name, bitmask(nodes))
        child.set("gp_index", str(next(self.serial)))
        for name, value in attributes.items():
            child.set(name, str(value))
        return child

    def _node(self, parent, number, cpus, gib):
        self._object(parent, "NUMANode", cpus, [number], os_index=number, local_memory=gib * GIB)

    def _memory_only(self, parent, cpus, gib, number):
        self.memory.append((number, gib))
        self._node(parent, number, cpus, gib)

    def tree(self):
        self._number()
        machine = self.machine
        far = itertools.count(len(machine.nodes))
        numbers = {}  # of the memory-only nodes, so that sets of nodes are known before they are written
        for index, socket in enumerate(machine.sockets):
            for node in socket:
                numbers[id(node)] = [next(far) for _ in node.beside]
            if machine.far_gib:
                numbers[index] = [next(far)]
        every = list(range(next(far)))
        top = xml.Element("topology", version="2.0")
        cpus = self._cpus(machine.nodes)
        whole = self._object(top, "Machine", cpus, every, os_index=0)
        whole.set("allowed_cpuset", bitmask(cpus))
        whole.set("allowed_nodeset", bitmask(every))
        core = itertools.count()
        for index, socket in enumerate(machine.sockets):
            of_socket = [n for node in socket for n in [node.id, *numbers[id(node)]]] + numbers.get(index, [])
            package = self._object(whole, "Package", self._cpus(socket), of_socket, os_index=index)
            if machine.far_gib:
                self._memory_only(package, self._cpus(socket), machine.far_gib, numbers[index][0])
            for node in socket:
                own = [node.id, *numbers[id(node)]]
                place = package if len(socket) == 1 else self._object(
                    package, "Group", self._cpus([node]), own, kind=1001, subkind=0)
                self._node(place, node.id, self._cpus([node]), node.gib)
                for number, gib in zip(numbers[id(node)], node.beside):
                    self._memory_only(place, self._cpus([node]), gib, number)
                sets = own + (numbers.get(index, []) if len(socket) == 1 else [])
                for domain in node.cpus:
                    inside = sorted(itertools.chain(*domain))
                    l3 = self._object(place, "L3Cache", inside, sets, cache_size=32 << 20, depth=3,
                                      cache_linesize=64, cache_associativity=16, cache_type=0)
                    for threads in domain:
                        one = self._object(l3, "Core", threads, sets, os_index=next(core))
                        for cpu in threads:
                            self._object(one, "PU", [cpu], sets, os_index=cpu)
        if machine.kinds:
            split = len(cpus) - machine.small
            for kind, (name, members) in enumerate(zip(machine.kinds, (cpus[split:], cpus[:split]))):
                entry = xml.SubElement(top, "cpukind", cpuset=bitmask(members), forced_efficiency=str(kind))
                xml.SubElement(entry, "info", name="CoreType", value=name)
        return top


def write(machine, folder):
    """The machine's file; numbers its CPUs and nodes."""
    writer = _Writer(machine)
    tree = writer.tree()
    path = folder / f"{machine.name}.xml"
    path.write_bytes(b'<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
                     + xml.tostring(tree))
    machine.memory_only = writer.memory
    return path
