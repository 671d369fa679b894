"""Placement on a machine with two NUMA nodes: a virtual one, whose kernel says where pages lie."""

import json
import re

import pytest

import virtual_machine

# The kernels are given: times that are measured on an emulated machine would choose others each time.
BENCH = ("pinion bench preset:tiny --json --rounds 1 --prompt-len 16 --output-len 2 --isa avx2 "
         "--gemm-kernel avx2 --kv-cache-space 16MiB")
# A file leaves 48 MiB of node 1, too little for a rank's cache of 160 MiB, also in 8 bits. Both nodes together have
# room for two of them, on whichever the system's own files lie.
FILL = """
free_kib=$(awk '/MemFree/ {print $4}' /sys/devices/system/node/node1/meminfo)
mkdir /tmp/full && mount -t tmpfs -o size=100%,mpol=bind:1 full /tmp/full &&
fallocate -l $((free_kib / 1024 - 48))m /tmp/full/file
"""
LARGE = f"{BENCH.replace('16MiB', '160MiB')} -tp 2"
# Shared memory may have huge pages, as private memory may: `auto` shares wherever that saves a copy.
SERVE = """
echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled
start() {
  pinion serve preset:tiny --port 8000 --isa avx2 --gemm-kernel avx2 --kv-cache-space 16MiB --share-weights auto \\
    "$@" > /tmp/log 2>&1 &
  until wget -q -O - http://127.0.0.1:8000/health 2> /dev/null; do
    kill -0 $! || { cat /tmp/log >&2; exit 1; }
    sleep 0.5
  done
}
info() { wget -q -O - http://127.0.0.1:8000/server_info || exit; }
answer() {
  wget -q -O - --header "Content-Type: application/json" --post-data '{"model": "preset:tiny",
    "prompt": ["a", "b", "c", "d"], "max_tokens": 8, "temperature": 0}' http://127.0.0.1:8000/v1/completions || exit
}
next() { echo; echo ====; }
maps() { grep memfd:weights /proc/[0-9]*/maps /proc/[0-9]*/numa_maps; }
wait_for_starts() { until [ $(grep -c "^[^ ]* I ready after" /tmp/log) = $1 ]; do sleep 0.5; done; }
"""
STOP = "kill $!; wait $!"
COMMANDS = {
    "10-topo": "pinion topo --json",
    "20-one-rank": BENCH,
    "21-two-ranks": f"{BENCH} -tp 2",
    "22-crossed": f"{BENCH} -tp 2 --threads-bind '2-3|0-1'",
    "23-across": f"{BENCH} -tp 2 --threads-bind '0,2|1,3'",
    "24-two-stages": f"{BENCH} -pp 2",
    "25-strict": f"{BENCH} -tp 2 --memory-policy strict",
    "26-interleaved": f"{BENCH} -tp 2 --memory-policy interleave",
    "30-taskset": f"taskset c {BENCH}",
    "31-cpuset": "echo +cpuset +cpu > /cgroup/cgroup.subtree_control; mkdir /cgroup/one; "
                 "echo 0-3 > /cgroup/one/cpuset.cpus; echo 1 > /cgroup/one/cpuset.mems; "
                 f"echo $$ > /cgroup/one/cgroup.procs; {BENCH}",
    "32-quota": "mkdir /cgroup/part; echo '250000 100000' > /cgroup/part/cpu.max; "
                f"echo $$ > /cgroup/part/cgroup.procs; {BENCH}",
    # One rank of node 0, whose memory the cpuset forbids.
    "33-forbidden": "mkdir /cgroup/two; echo 0-1 > /cgroup/two/cpuset.cpus; echo 1 > /cgroup/two/cpuset.mems; "
                    f"echo $$ > /cgroup/two/cgroup.procs; {BENCH} --memory-policy strict",
    "40-fill": FILL,
    "41-full": LARGE,
    "42-full-strict": f"{LARGE} --memory-policy strict",
    "43-full-preferred": f"{LARGE} --memory-policy preferred",
    "44-empty": "umount /tmp/full",
    # An engine on each node.
    "45-two-engines": f"{SERVE} start --data-parallel 2; info; next; answer; next; maps; {STOP}",
    # Two on each; then one of node 1 dies, and another takes its place.
    "46-four-engines": f"{SERVE} start --data-parallel 4; info; next; answer; next; maps; "
                       "one=$(grep -l 'memfd:weights.* N1=' /proc/[0-9]*/numa_maps | head -n 1); "
                       "kill -9 $(echo $one | cut -d / -f 3) || exit; "
                       f"wait_for_starts 5; next; answer; next; maps; {STOP}",
    "50-offline": "echo 0 > /sys/devices/system/cpu/cpu3/online; pinion topo --json",
    "51-offline-bound": f"{BENCH} -tp 2 --threads-bind '0-1|2-3'",
    "52-offline-ranks": f"{BENCH} -tp 2",
}


@pytest.fixture(scope="module")
def ran(binary, tmp_path_factory):
    return virtual_machine.run(binary, COMMANDS, tmp_path_factory.mktemp("machine"))


def plan(ran, name):
    """[(CPUs, nodes)] of the ranks."""
    status, output, errors = ran[name]
    assert status == 0, errors
    return [(rank["cpus"], rank["nodes"]) for rank in json.loads(output)["plan"]["ranks"]]


def placement(ran, name):
    """[(nodes of the weights, nodes of the KV cache)] of the ranks, as the kernel told Pinion (move_pages)."""
    return [rank[:2] for rank in memory_of_ranks(ran, name)]


def memory_of_ranks(ran, name):
    """[(nodes of the weights, of the KV cache, of the workspace)] of the ranks."""
    told = re.search(r"placement \(.*?\): (.*)", ran[name][2])[1]
    ranks = re.findall(r"rank \d: weights (.*?); KV (.*?); workspace (.*?)(?:;|$)", told)
    return [tuple(sorted(map(int, re.findall(r"on node (\d)", part))) for part in rank)
            for rank in ranks]


def test_both_nodes_are_seen(ran):
    topo = json.loads(ran["10-topo"][1])
    assert [node["cpus"] for node in topo["nodes"]] == [[0, 1], [2, 3]]
    mebibytes = [node["memory_bytes"] >> 20 for node in topo["nodes"]]
    assert all(virtual_machine.NODE_MIB * 0.8 < size <= virtual_machine.NODE_MIB
               for size in mebibytes)


def test_one_rank_spans_both_nodes_and_says_so(ran):
    assert plan(ran, "20-one-rank") == [([0, 1, 2, 3], [0, 1])]
    assert placement(ran, "20-one-rank")[0][0] == [0, 1]
    assert "spans nodes 0-1" in ran["20-one-rank"][2]


@pytest.mark.parametrize("name, ranks", [
    ("21-two-ranks", [([0, 1], [0]), ([2, 3], [1])]),
    ("22-crossed", [([2, 3], [1]), ([0, 1], [0])]),
    ("24-two-stages", [([0, 1], [0]), ([2, 3], [1])]),
    ("25-strict", [([0, 1], [0]), ([2, 3], [1])]),
])
def test_every_ranks_memory_lies_on_its_node(ran, name, ranks):
    assert plan(ran, name) == ranks
    assert memory_of_ranks(ran, name) == [(nodes, nodes, nodes) for _, nodes in ranks]


def test_a_list_across_nodes_is_obeyed_with_a_warning(ran):
    assert plan(ran, "23-across") == [([0, 2], [0, 1]), ([1, 3], [0, 1])]
    assert "the CPUs of rank 1 lie on nodes 0-1" in ran["23-across"][2]


def test_a_mask_of_one_nodes_cpus_keeps_memory_there(ran):
    assert plan(ran, "30-taskset") == [([2, 3], [1])]
    assert placement(ran, "30-taskset") == [([1], [1])]


def test_a_cpuset_without_the_memory_of_a_node_leaves_its_cpus_out(ran):
    assert plan(ran, "31-cpuset") == [([2, 3], [1])]
    assert placement(ran, "31-cpuset") == [([1], [1])]


def test_a_quota_bounds_the_threads(ran):
    (cpus, _), = plan(ran, "32-quota")
    assert len(cpus) == 2


def test_interleaved_memory_lies_on_both_nodes(ran):
    assert plan(ran, "26-interleaved") == [([0, 1], [0]), ([2, 3], [1])]
    # Of the cache, the warm-up touches only two huge pages, which may lie on one node.
    assert [weights for weights, _ in placement(ran, "26-interleaved")] == [[0, 1]] * 2
    assert "memory policy interleave" in ran["26-interleaved"][2]
    assert "not on the nodes that the plan gives it" not in ran["26-interleaved"][2]


def test_a_policy_over_a_forbidden_node_is_refused_by_the_kernel_and_the_run_goes_on(ran):
    status, _, errors = ran["33-forbidden"]
    assert status == 0, errors
    assert "--memory-policy strict is not in force" in errors and "memory policy local" in errors, errors
    assert placement(ran, "33-forbidden")[0][0] == [1]


def test_preferred_memory_may_spill_over(ran):
    status, _, errors = ran["43-full-preferred"]
    assert status == 0, errors
    assert "memory policy preferred" in errors


@pytest.mark.parametrize("name", ["41-full", "42-full-strict"])
def test_a_full_node_is_named_before_anything_is_loaded(ran, name):
    assert ran["40-fill"][0] == 0, ran["40-fill"][2]
    status, _, errors = ran[name]
    assert status != 0
    assert "or --memory-policy preferred" in errors, errors
    assert "rank 1 needs" in errors and "on NUMA node 1, which has" in errors, errors
    assert "use --kv-cache-space" in errors and "load and pack" not in errors, errors


def test_an_offline_cpu_is_neither_planned_nor_taken(ran):
    assert [node["cpus"] for node in json.loads(ran["50-offline"][1])["nodes"]] == [[0, 1], [2]]
    status, _, errors = ran["51-offline-bound"]
    assert status != 0 and "cpu 3 of rank 1 does not exist or is offline" in errors, errors
    assert plan(ran, "52-offline-ranks") == [([0, 1], [0]), ([2], [1])]


def parts(ran, name):
    """[/server_info, answers, how processes map shared weights, ...]"""
    status, output, errors = ran[name]
    assert status == 0, errors
    return [part.strip() for part in output.split("====")]


def copies(maps):
    """[{process: nodes of the pages that it maps}] of each file of shared weights."""
    files, nodes = {}, {}
    for process, inode in re.findall(r"^/proc/(\d+)/maps:.* (\d+) +/memfd:weights", maps, re.M):
        files.setdefault(inode, set()).add(process)
    for process, pages in re.findall(r"^/proc/(\d+)/numa_maps:(.*)", maps, re.M):
        nodes.setdefault(process, set()).update(map(int, re.findall(r" N(\d)=", pages)))
    return sorted(({process: sorted(nodes[process]) for process in sharing} for sharing in files.values()),
                  key=lambda copy: sorted(copy.values()))


def texts(answer):
    return [choice["text"] for choice in json.loads(answer)["choices"]]


def nodes_of_weights(replica):
    return [part["node"] for part in replica["placement"][0]["weights"]]


def test_engines_on_two_nodes_have_a_copy_of_the_weights_each(ran):
    info, _, maps = parts(ran, "45-two-engines")
    replicas = json.loads(info)["replicas"]
    assert [replica["plan"]["ranks"][0]["nodes"] for replica in replicas] == [[0], [1]]
    assert [nodes_of_weights(replica) for replica in replicas] == [[0], [1]]
    assert [replica["shared_weights"] for replica in replicas] == [None, None]
    assert copies(maps) == []


def test_engines_on_one_node_share_the_copy_that_lies_there(ran):
    info, answer, maps, *_ = parts(ran, "46-four-engines")
    replicas = json.loads(info)["replicas"]
    assert [nodes_of_weights(replica) for replica in replicas] == [[0], [0], [1], [1]]
    assert [replica["shared_weights"]["copy"] for replica in replicas] == [0, 0, 1, 1]
    assert [sum(replica["shared_weights"]["packed_here"] for replica in replicas[i:i + 2]) for i in (0, 2)] == [1, 1]
    assert [sorted(copy.values()) for copy in copies(maps)] == [[[0], [0]], [[1], [1]]]
    assert texts(answer) == texts(parts(ran, "45-two-engines")[1])


def test_an_engine_in_place_of_a_killed_one_maps_the_copy_of_its_node(ran):
    _, answer, before, answer_after, after = parts(ran, "46-four-engines")
    before, after = copies(before), copies(after)
    assert [sorted(copy.values()) for copy in after] == [[[0], [0]], [[1], [1]]]
    assert after[0].keys() == before[0].keys() and len(after[1].keys() - before[1].keys()) == 1
    assert texts(answer_after) == texts(answer)
