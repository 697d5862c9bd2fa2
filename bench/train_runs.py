"""The processes that train-peers measures: the peers', asleep unless asked, and Lockstep's own.

With one worker all are pinned to one core. With two, Lockstep and PyTorch are two processes, pinned
to a core each; TensorFlow and JAX are one process with two devices and both cores.
"""
import contextlib
import json
import os
import resource
import select
import subprocess
import threading
import time

from shared import (
    CORES, NotAvailable, busy_seconds, end_family, family_memory, family_seconds, isolated,
    last_words, torch_venv, venv)

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers_train")
CORE = CORES[-1]  # interrupts like the first
ALONE, ATTEMPTS = 0.95, 4  # the part of the time in which a process should have the core
START_SECONDS = 900  # torch.compile and XLA take their time
MEMORY_SECONDS, LOOK = 1.5, 0.05  # of training, while memory is looked at so often
THREADS = {x + "_NUM_THREADS": "1" for x in ("OMP", "MKL", "OPENBLAS")}
PACKAGES = {"tensorflow": ["tensorflow-cpu"], "jax": ["jax", "optax"]}


def peer_command(name, workers):
    """A peer's command before the model's arguments; installs on the first run."""
    if not name.startswith("torch"):
        python = os.path.join(venv(name, name, PACKAGES[name]), "bin/python")
        return [*pinned(workers), python, os.path.join(SCRIPTS, f"{name}_train.py")]
    bin, script = os.path.join(torch_venv(), "bin"), os.path.join(SCRIPTS, "torch_train.py")
    flags = ["--compile"] if name == "torch-compile" else []
    if workers == 1:
        return [*pinned(1), os.path.join(bin, "python"), script, *flags]
    return [*isolated(), os.path.join(bin, "torchrun"), "--standalone", "--nproc-per-node",
            str(workers), script, *flags]


def pinned(workers):
    return ["taskset", "-c", ",".join(map(str, [CORE] if workers == 1 else CORES[:workers]))]


def peer_environment(workers):
    env = {**os.environ, **THREADS, "TORCHINDUCTOR_COMPILE_THREADS": "1",
           "PYTHONDONTWRITEBYTECODE": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return {**env, "BENCH_CORES": ",".join(map(str, CORES[:workers]))}


class Answers:
    """The lines of a program's output that are JSON; libraries may print others."""

    def __init__(self, process, log):
        self.process, self.log, self.rest = process, log, b""

    def next(self, seconds):
        end = time.monotonic() + seconds
        while True:
            line, newline, rest = self.rest.partition(b"\n")
            if newline:
                self.rest = rest
                with contextlib.suppress(ValueError):
                    return json.loads(line)
                continue
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise NotAvailable(f"no answer in {seconds:.0f} s")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise NotAvailable("died: " + last_words(self.log))
            self.rest += more


class Peer:
    """One peer's process, or processes, for one model: asleep unless asked."""

    def __init__(self, name, model, batch, workers, work):
        self.log = os.path.join(work, f"{name}-{model}.log")
        self.workers = workers
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [*peer_command(name, workers), "--model", model, "--batch", str(batch),
                 "--workers", str(workers)], env=peer_environment(workers),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=work,
                start_new_session=True)
        self.answers = Answers(self.process, self.log)
        try:
            while "params" not in self.answers.next(START_SECONDS):
                pass
        except BaseException:
            self.stop(force=True)
            raise

    def ask(self, word, seconds):
        try:
            self.process.stdin.write(f"{word}\n".encode())
            self.process.stdin.flush()
        except OSError:
            raise NotAvailable("died: " + last_words(self.log)) from None
        return self.answers.next(300 + 10 * seconds)  # on a machine that does other things, too

    def measure(self, seconds):
        others = Others(lambda: family_seconds(self.process.pid))
        row = self.ask(seconds, seconds)
        return {**row, "core": others.left()} if self.workers > 1 else row

    def memory(self):
        with Memory(self.process.pid, LOOK) as memory:
            self.ask(MEMORY_SECONDS, MEMORY_SECONDS)
        return memory.most

    def stop(self, force=False):
        if not force:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self.process.stdin.close()
                self.process.wait(30)
        end_family(self.process)


class Ours:
    """Lockstep starts anew in each round: it needs milliseconds for that. batch: of a worker."""

    def __init__(self, build, model, batch, args, workers=1, shards=0):
        binding = ["-n", str(workers), "--bind", "core"] if workers > 1 else []
        cut = ["--shards", str(shards)] if shards else []
        self.workers = workers
        self.args = [*pinned(workers), lockstep(build), "bench", "train", model, "--batch",
                     str(batch * workers), *args, *binding, *cut, "--json", "--seconds"]

    def run(self, seconds, look=0):
        """look: seconds between two looks at its memory."""
        with subprocess.Popen([*self.args, str(seconds)], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                with Memory(process.pid, look) as memory:
                    out, err = process.communicate(timeout=120 + 10 * seconds)
            except subprocess.TimeoutExpired:
                raise NotAvailable("it did not end") from None
            finally:
                if process.poll() is None:
                    end_family(process)
        if process.returncode:
            raise NotAvailable((err.strip().splitlines() or ["failed"])[-1])
        return {**json.loads(out), "memory": memory.most}

    def measure(self, seconds):
        start, used, others = time.perf_counter(), children_time(), Others(children_time)
        row = self.run(seconds)
        core = (children_time() - used) / (time.perf_counter() - start)
        return {**row, "core": others.left() if self.workers > 1 else core}

    def memory(self):
        return self.run(MEMORY_SECONDS, LOOK)["memory"]

    def stop(self, force=False):
        pass


class Others:
    """How much of the cores others have used since: processes of several workers wait for each
    other, so that their own time does not tell."""

    def __init__(self, own):
        self.own, self.used, self.busy, self.start = own, own(), busy_seconds(), time.monotonic()

    def left(self):
        foreign = busy_seconds() - self.busy - (self.own() - self.used)
        return 1 - max(0, foreign) / (len(CORES) * (time.monotonic() - self.start))


class Memory:
    """The most MiB, proportional, that a process and its descendants have meanwhile: workers and
    launcher. Looking costs time: not while something is timed."""

    def __init__(self, pid, every):
        self.pid, self.every, self.most, self.over = pid, every, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.over.wait(self.every):
            self.most = max(self.most, family_memory(self.pid))

    def __enter__(self):
        if self.every:
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        if self.every:
            self.thread.join()


def lockstep(build):
    program = os.path.join(os.path.abspath(build), "lockstep")
    if not os.path.exists(program):
        raise NotAvailable(f"no {program}; build it with: meson compile -C {build}")
    return program


def children_time():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def undisturbed(measure):
    """The measurement again, a few times, while somebody else is on the core: who does not know of
    the lock."""
    rows = []
    while len(rows) < ATTEMPTS and (not rows or rows[-1]["core"] < ALONE):
        rows.append(measure())
    return max(rows, key=lambda row: row["core"])


def first_step(args, env=None):
    """Seconds from the start of a program to the first object that it prints: after a step."""
    begin = time.monotonic()
    process = subprocess.Popen(args, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        Answers(process, os.devnull).next(START_SECONDS)
        return time.monotonic() - begin
    finally:
        end_family(process)
