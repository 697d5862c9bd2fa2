"""What the benchmarks beside peers share: places, virtual environments, reasons, tables."""
import os
import shutil
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


def lines_of(path):
    try:
        with open(path, errors="replace") as file:
            return file.readlines()
    except OSError:
        return []


def last_words(log):
    """What a program that ended has to say for itself; nobody's address."""
    time.sleep(0.3)  # launchers pass on with some delay what ranks say
    lines = [x.strip() for x in lines_of(log) if x.strip(" -*=\n") and "://" not in x]
    wrong = [x for x in lines if "rror:" in x]
    return " … ".join(dict.fromkeys(lines[:1] + (wrong or lines)[-1:]))[:400] or "it said nothing"


def cpu_name():
    models = [x.split(":")[1].strip() for x in lines_of("/proc/cpuinfo") if "model name" in x]
    return models[0] if models else "an unnamed CPU"


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
