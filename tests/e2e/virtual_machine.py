"""A virtual machine with two NUMA nodes of two CPUs, which runs commands of the binary and ends.

QEMU emulates it (TCG), with Debian's kernel and nothing else: what the commands need is in the
initial file system."""

import base64
import fcntl
import io
import pathlib
import shutil
import subprocess
import tarfile

import pytest

from own_server import TOP

KERNEL = "linux-image-cloud-amd64"
FOLDER = TOP / "build" / "virtual-machine"
NODE_MIB = 768

# Every command has a file with its output, its errors and its exit status; all of them leave
# through the second serial line.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin HOME=/tmp OMP_WAIT_POLICY=passive PINION_CEILINGS=0
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup /cgroup
for module in $(ls /modules); do insmod /modules/$module; done
hostname host1
ip link set lo up
mkdir /tmp/out
for command in /commands/*; do
  name=${command##*/}
  echo "$(cut -d ' ' -f 1 /proc/uptime) s: $name" > /dev/console
  timeout 200 sh $command > /tmp/out/$name.out 2> /tmp/out/$name.err
  echo $? > /tmp/out/$name.rc
done
tar -c -C /tmp/out . | base64 > /dev/ttyS1
sync
poweroff -f
"""


def kernel():
    """A kernel of Debian's for virtual machines, beside its modules; skips if apt has none."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # files of tests run side by side
        if not list(FOLDER.glob("boot/vmlinuz-*")):
            fetch_kernel()
    return sorted(FOLDER.glob("boot/vmlinuz-*"))[-1]


def fetch_kernel():
    depends = subprocess.run(["apt-cache", "depends", KERNEL], capture_output=True, text=True)
    names = [line.split()[-1] for line in depends.stdout.splitlines() if "Depends:" in line]
    if not names:
        pytest.skip(f"apt does not know {KERNEL}, the kernel of the virtual machine")
    got = subprocess.run(["apt-get", "download", names[0]], cwd=FOLDER, capture_output=True,
                         text=True)
    if got.returncode != 0:
        pytest.skip(f"{names[0]}, the kernel of the virtual machine, cannot be fetched: "
                    f"{got.stderr.strip()}")
    package = next(FOLDER.glob("*.deb"))
    subprocess.run(["dpkg-deb", "-x", package, FOLDER], check=True)
    package.unlink()


def archive(files):
    """An initial file system (cpio, "newc") of {path: (mode, content)}."""
    out = io.BytesIO()

    def add(number, name, mode, content, device=(0, 0)):
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name) + 1, 0)
        head = "070701" + "".join(f"{field:08X}" for field in fields) + name + "\0"
        for part in head.encode(), content:
            out.write(part)
            out.write(b"\0" * (-len(part) % 4))

    folders = {str(parent) for path in files for parent in pathlib.PurePath(path).parents} - {"."}
    folders |= {"proc", "sys", "dev", "tmp", "run", "cgroup", "modules"}
    entries = [(name, 0o40755, b"", (0, 0)) for name in sorted(folders)]
    entries += [(name, 0o100000 | mode, content, (0, 0)) for name, (mode, content) in files.items()]
    entries += [("dev/console", 0o20600, b"", (5, 1)), ("TRAILER!!!", 0, b"", (0, 0))]
    for number, entry in enumerate(entries, 1):
        add(number, *entry)
    return out.getvalue()


def libraries_of(path):
    """The libraries that a program or a library loads."""
    listed = subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout
    return {word for word in listed.split() if word.startswith("/")}


def same_places(paths):
    """Files of this machine, for the same places of the virtual one."""
    return {str(path).lstrip("/"): (0o755, pathlib.Path(path).read_bytes()) for path in paths}


def programs(*names):
    """Files of these programs, as /usr/bin/NAME, and their libraries; skips if this machine lacks one. The
    virtual machine's shell has an `ip` of its own, and takes another only if a command says /usr/bin/ip."""
    files = {}
    for name in names:
        path = shutil.which(name)
        if not path:
            pytest.skip(f"{name} is missing (scripts/setup installs it)")
        files |= same_places(libraries_of(path))
        files[f"usr/bin/{name}"] = 0o755, pathlib.Path(path).read_bytes()
    return files


def modules(*names):
    """Files of these modules of the kernel, which the virtual machine loads as it starts; skips if the
    kernel lacks one."""
    version = kernel().name.removeprefix("vmlinuz-")
    files = {}
    for name in names:
        found = list((FOLDER / "lib/modules" / version).rglob(f"{name}.ko"))
        if not found:
            pytest.skip(f"the virtual machine's kernel {version} has no module {name}")
        files[f"modules/{name}.ko"] = 0o644, found[0].read_bytes()
    return files


def file_system(binary, commands, more, folder):
    slim = folder / "pinion"
    subprocess.run(["strip", "-o", slim, binary], check=True)
    files = {**more, **same_places(libraries_of(binary))}
    files["bin/busybox"] = 0o755, pathlib.Path(shutil.which("busybox")).read_bytes()
    files["bin/pinion"] = 0o755, slim.read_bytes()
    files["init"] = 0o755, INIT.encode()
    for name, command in commands.items():
        files[f"commands/{name}"] = 0o644, f"{command}\n".encode()
    path = folder / "files"
    path.write_bytes(archive(files))
    return path


def results_of(out, commands):
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(out.read_bytes()))) as results:
        def read(name, kind):
            return results.extractfile(f"./{name}.{kind}").read().decode()
        return {name: (int(read(name, "rc")), read(name, "out"), read(name, "err"))
                for name in commands}


def run(binary, commands, folder, more=None, timeout=280):
    """{name: (exit status, output, errors)} of shell commands, in the order of their names, on a machine
    that has `more` files: {path: (mode, content)}. One thread emulates all CPUs: with a thread for each,
    a CPU may hang in code that the kernel has just patched. The timeout is shorter than pytest's, which
    would not show the console."""
    for program in "qemu-system-x86_64", "busybox":
        if not shutil.which(program):
            pytest.skip(f"{program} is missing (scripts/setup installs it)")
    image = kernel()
    out, nodes, console = folder / "out", [], folder / "console"
    console.touch()
    for node in 0, 1:
        nodes += ["-object", f"memory-backend-ram,id=memory{node},size={NODE_MIB}M", "-numa",
                  f"node,nodeid={node},cpus={2 * node}-{2 * node + 1},memdev=memory{node}"]
    emulator = [
        "qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=single", "-cpu", "max",
        "-smp", "4,sockets=2,cores=2,threads=1", "-m", f"{2 * NODE_MIB}M", *nodes,
        "-kernel", image, "-initrd", file_system(binary, commands, more or {}, folder),
        "-append", "console=ttyS0 panic=-1", "-nographic", "-no-reboot", "-net", "none",
        "-monitor", "none", "-serial", f"file:{console}", "-serial", f"file:{out}"]
    try:
        subprocess.run(emulator, stdin=subprocess.DEVNULL, timeout=timeout, check=True)
        return results_of(out, commands)
    except (subprocess.SubprocessError, OSError, ValueError, KeyError, tarfile.TarError) as error:
        last = console.read_text(errors="replace")[-3000:]
        pytest.fail(f"{error!r}; the machine's console ended with:\n{last}")
