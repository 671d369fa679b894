"""A Slurm of this host alone, with several nodes of one CPU each, in a folder of its own."""

import os
import pathlib
import shutil
import socket
import subprocess
import time

import pytest

CONFIGURATION = """ClusterName=pinion
SlurmctldHost=localhost
SlurmUser=root
SlurmctldPort={control}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
KillWait=5
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Cluster:
    def __init__(self, folder, nodes):
        self.folder, self.nodes, self.daemons = pathlib.Path(folder), nodes, {}
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self):
        for name in ("state", "log"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        ports = free_ports(self.nodes + 1)
        lines = [f"NodeName=n{i} NodeHostname=localhost Port={ports[i + 1]} CPUs=1" for i in range(self.nodes)]
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(folder=self.folder, control=ports[0], nodes="\n".join(lines)))
        self.daemon("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket",
                    f"--pid-file={self.folder}/munge.pid", f"--log-file={self.folder}/log/munge",
                    f"--seed-file={self.folder}/munge.seed")
        self.wait_for(lambda: (self.folder / "munge.socket").exists(), "munged's socket")
        self.daemon("slurmctld", "-D")
        for i in range(self.nodes):
            self.start_node(i)
        self.wait_for(lambda: self.states().count("idle") == self.nodes, "idle nodes")

    def start_node(self, number):
        self.daemon("slurmd", "-D", "-N", f"n{number}")

    def daemon(self, program, *arguments):
        name = " ".join([program, *arguments[-1:]])
        log = open(self.folder / "log" / name.replace("/", "-").replace(" ", "-"), "a")
        self.daemons[name] = subprocess.Popen([program, *arguments], env=self.environment, stdout=log, stderr=log)

    def run(self, *command, **options):
        return subprocess.run([str(word) for word in command], env=self.environment, capture_output=True, text=True,
                              **options)

    def states(self):
        return self.run("sinfo", "--noheader", "--Node", "--format=%t").stdout.split()

    def wait_for(self, done, what, seconds=60):
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, f"no {what} after {seconds} s; logs are in {self.folder}/log"
            time.sleep(0.2)

    def stop(self):
        for daemon in reversed(list(self.daemons.values())):
            daemon.terminate()
        for daemon in self.daemons.values():
            try:
                daemon.wait(15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def needs_slurm():
    """Skips, with the reason, where a cluster cannot be started."""
    for program in ("munged", "slurmctld", "slurmd", "srun", "salloc", "scancel"):
        if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None:
            pytest.skip(f"{program} is not installed (Debian: slurm-wlm, munge)")
    if os.geteuid() != 0:
        pytest.skip("slurmctld and slurmd are started as root")
