"""What the benchmarks share: places, virtual environments, the lock, the machine, tables."""
import contextlib
import fcntl
import glob
import os
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLACE = os.path.expanduser(os.environ.get("LOCKSTEP_PEERS") or "~/.cache/lockstep/peers")
CORES = sorted(os.sched_getaffinity(0))


class NotAvailable(Exception):
    """Why something cannot be installed, built, started or measured."""


def command(args, what, seconds=1200):
    """The output of a command; the reason of its failure is the last line that names no address."""
    try:
        done = subprocess.run(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAvailable(f"{what}: {type(error).__name__}") from None
    if done.returncode:
        lines = [x.strip() for x in done.stdout.splitlines() if "://" not in x and x.strip()]
        raise NotAvailable(f"{what}: {lines[-1] if lines else 'failed'}")
    return done.stdout


def venv(name, title, packages, then=None):
    """A peer's own virtual environment, made on the first run; then(path) finishes it."""
    path = os.path.join(PLACE, name)
    done = os.path.join(path, "installed")
    if not os.path.exists(done):
        print(f"installing {title} into {path}", file=sys.stderr, flush=True)
        shutil.rmtree(path, ignore_errors=True)
        command([sys.executable, "-m", "venv", path], "venv")
        pip_install(path, packages)
        if then:
            then(path)
        open(done, "w").close()
    return path


def pip_install(path, args):
    command([os.path.join(path, "bin/pip"), "install", "-q", "--no-input", *args], "pip")


def torch_venv():
    """PyTorch, which brings Gloo."""
    def then(path):
        command([os.path.join(path, "bin/python"), "-c",
                 "import torch.distributed as d; assert d.is_gloo_available()"], "torch")

    return venv("gloo", "PyTorch", ["torch", "numpy"], then)


def isolated():
    """The prefix that gives TCP a loopback of its own with cubic: where the machine's default is
    bbr, loopback is slow for Gloo. Empty where we may not."""
    routes = [f"ip route replace local {net} dev lo table local src 127.0.0.1 congctl cubic"
              for net in ("127.0.0.0/8", "127.0.0.1")]
    setup = " && ".join(["ip link set lo up", *routes, 'exec "$@"'])
    prefix = ["unshare", "-n", "sh", "-c", setup, "sh"]
    try:
        command(prefix + ["true"], "unshare", 10)
    except NotAvailable:
        return []
    return prefix


class Lock:
    """A file's lock: shared while something is prepared, exclusive while it is timed. Where this
    script was itself started under flock, the lock that it inherited is used, and kept."""

    def __init__(self, path):
        self.inherited, path = None, os.path.realpath(path)
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}") == path:
                    self.inherited = int(name)
        if not self.inherited:
            try:
                self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            except PermissionError:  # somebody else's; a lock needs no right to write
                self.file = os.open(path, os.O_RDONLY)

    @contextlib.contextmanager
    def held(self, how):
        if self.inherited:
            if how == fcntl.LOCK_EX:
                fcntl.flock(self.inherited, how)
            yield
            return
        fcntl.flock(self.file, how)
        try:
            yield
        finally:
            fcntl.flock(self.file, fcntl.LOCK_UN)


def lines_of(path):
    try:
        with open(path, errors="replace") as file:
            return file.readlines()
    except OSError:
        return []


def busy_seconds(cores=CORES):
    """What these cores have worked since the machine was started, for whomever; steal counts."""
    ticks = 0
    for line in lines_of("/proc/stat"):
        name, *fields = line.split()
        if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in cores:
            user, nice, system, _, _, _, _, steal = map(int, fields[:8])
            ticks += user + nice + system + steal
    return ticks / os.sysconf("SC_CLK_TCK")


def family(pid):
    """The process and its descendants, those that are there."""
    found = [pid]
    for member in found:
        for task in glob.glob(f"/proc/{member}/task/*/children"):
            found += [int(word) for line in lines_of(task) for word in line.split()]
    return found


def family_seconds(pid):
    """The processor time of a process and its descendants, also of those that have ended."""
    ticks = 0
    for member in family(pid):
        for line in lines_of(f"/proc/{member}/stat"):
            ticks += sum(map(int, line.rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def family_memory(pid):
    """MiB of a process and its descendants: a page that several share is divided among them."""
    kib = [int(line.split()[1]) for member in family(pid)
           for line in lines_of(f"/proc/{member}/smaps_rollup") if line.startswith("Pss:")]
    return sum(kib) / 1024


def end_family(process):
    """Kills a child of ours and its descendants, whatever groups they have put themselves into."""
    for member in family(process.pid) if process.poll() is None else []:
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    process.wait()


def last_words(log):
    """What a program that ended has to say for itself; nobody's address."""
    time.sleep(0.3)  # launchers pass on with some delay what ranks say
    lines = [x.strip() for x in lines_of(log) if x.strip(" -*=\n") and "://" not in x]
    wrong = [x for x in lines if "rror:" in x]
    return " … ".join(dict.fromkeys(lines[:1] + (wrong or lines)[-1:]))[:400] or "it said nothing"


def cpu_name():
    models = [x.split(":")[1].strip() for x in lines_of("/proc/cpuinfo") if "model name" in x]
    return models[0] if models else "an unnamed CPU"


def number(value, digits=1):
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.{digits}f}"


def print_rows(rows, markdown):
    """The first row is the head, the first column text, all others numbers."""
    if markdown:
        for row in [rows[0], ["---"] + ["---:"] * (len(rows[0]) - 1), *rows[1:]]:
            print("| " + " | ".join(row) + " |")
    else:
        widths = [max(map(len, column)) for column in zip(*rows)]
        for row in rows:
            print(row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:]), sep="  ")
    print()


def print_missing(missing, markdown):
    for name, reason in missing.items():
        print(f"{'- ' if markdown else ''}{name}: not available: {reason}")
