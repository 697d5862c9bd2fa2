"""What the tests that start processes share.

LOCKSTEP_BUILD names the build directory (default: build/ of the repository). Every process that a
test starts through `start` or `run` carries a marker in its environment, by which its descendants
are found again: the fixture `leftovers` fails a test that leaves a process or a shared file behind.
"""

import os
import pathlib
import signal
import socket
import subprocess
import time
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build")).resolve()
MARKER = "LOCKSTEP_TEST_MARKER"
TIMEOUT = 60  # of anything; a test that needs it all has found a hang

# A shell without job control starts what runs in the background with these ignored, and what is
# ignored stays so in all that we start.
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pids():
    """Returns the numbers of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read_proc(pid, name):
    """Returns /proc/PID/NAME as bytes, empty when the process is gone (or a zombie)."""
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def wait_until(condition, seconds=5, what="condition"):
    """Waits for condition() to become true, and returns what it returned."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.005)
    return result


def is_alive(pid):
    """Is this process there, and no zombie?"""
    state = read_proc(pid, "stat").rpartition(b")")[2].split()
    return bool(state) and state[0] not in (b"Z", b"X")


def children(pid):
    """Returns the children of a process."""
    return [int(p) for p in read_proc(pid, f"task/{pid}/children").split()]


def is_listening(host, port):
    """Does somebody accept connections there?"""
    with socket.socket() as s:
        s.settimeout(1)
        return s.connect_ex((host, port)) == 0


class Starter:
    """Starts commands that carry a marker, and finds them and their descendants again."""

    def __init__(self):
        self.marker = uuid.uuid4().hex
        self.started = []

    def environment(self, extra=None):
        """Ours, without what would change the commands or make Python write in pieces."""
        drop = ("LOCKSTEP_", "PYTHONUNBUFFERED")
        env = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
        env[MARKER] = self.marker
        env.update(extra or {})
        return env

    def start(self, *command, env=None, **options):
        """Starts a command with its output in pipes, in a session of its own."""
        options = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "start_new_session": True,
            **options,
        }
        process = subprocess.Popen(
            [str(word) for word in command], env=self.environment(env), **options
        )
        self.started.append(process)
        return process

    def run(self, *command, timeout=TIMEOUT, **options):
        """Runs a command to its end; returns it with .stdout, .stderr and .returncode."""
        return self.finish(self.start(*command, **options), timeout)

    def finish(self, process, timeout=TIMEOUT):
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def alive(self):
        """Returns {pid: command line} of all living processes with our marker."""
        mark = f"{MARKER}={self.marker}".encode()
        found = [p for p in pids() if mark in read_proc(p, "environ").split(b"\0") and is_alive(p)]
        return {p: read_proc(p, "cmdline").replace(b"\0", b" ").decode() for p in found}

    def kill_all(self):
        for pid in self.alive():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.started:
            try:
                process.communicate(timeout=5)
            except (subprocess.TimeoutExpired, ValueError):
                process.kill()


def shared_files():
    return {entry.name for entry in os.scandir("/dev/shm")}


def used_by_others(name, marked):
    """Does a process that is not ours have this file of /dev/shm open or mapped?"""
    path = f"/dev/shm/{name}"
    for pid in pids():
        if pid in marked:
            continue
        try:
            files = (os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))
            if path in files or path.encode() in read_proc(pid, "maps"):
                return True
        except OSError:
            continue
    return False


@pytest.fixture
def lockstep():
    """The path of the lockstep command."""
    path = BUILD / "lockstep"
    if not path.exists():
        pytest.fail(f"{path} does not exist: build it, or set LOCKSTEP_BUILD")
    return str(path)


@pytest.fixture
def leftovers():
    """Gives a Starter, and fails if anything of what it started is left after the test."""
    starter = Starter()
    files = shared_files()
    yield starter
    end = time.monotonic() + 3
    while (left := starter.alive()) and time.monotonic() < end:
        time.sleep(0.01)
    new = {f for f in shared_files() - files if not used_by_others(f, left)}
    starter.kill_all()
    assert not left, f"processes were left behind: {left}"
    assert not new, f"files were left in /dev/shm: {new}"
