"""What the tests that start processes share.

LOCKSTEP_BUILD names the build directory (default: build/ of the repository). Every process that a
test starts through `start` or `run` carries a marker in its environment, by which its descendants
are found again: the fixture `leftovers` fails a test that leaves a process or a shared file behind.

The build may have the address and undefined behaviour sanitizers in it. Then whatever they report,
in any process, fails the test in which it came; and limits, which tests state for a plain build,
are longer, by the factor SLOWER: wait_until and finish see to that by themselves.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build")).resolve()
MARKER = "LOCKSTEP_TEST_MARKER"
TIMEOUT = 60  # of anything; a test that needs it all has found a hang
LOCKSTEP = BUILD / "lockstep"
SANITIZED = LOCKSTEP.exists() and b"__asan_init" in LOCKSTEP.read_bytes()
SLOWER = 4 if SANITIZED else 1  # what a limit is to be multiplied by

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


def pytest_configure(config):
    """Has sanitizers write to files: standard error is for the tests to read, and may be closed.

    What is undefined must be a trap (-fsanitize-undefined-trap-on-error, as scripts/test builds),
    of which the address sanitizer reports the line: beside it GCC's other one knows no files.
    """
    config.addinivalue_line("markers", "alone: needs the machine for itself, to assert times")
    if not SANITIZED:
        return
    config.reports = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-reports-"))
    options = {
        "log_path": f"{config.reports}/report",
        "handle_sigill": 1,
        "detect_leaks": 1,
        "detect_stack_use_after_return": 1,
        # malloc may fail, as it may without a sanitizer: tests ask for too much on purpose.
        "allocator_may_return_null": 1,
    }
    os.environ["ASAN_OPTIONS"] = ":".join(f"{name}={value}" for name, value in options.items())
    os.environ["UBSAN_OPTIONS"] = "halt_on_error=1"


def pytest_unconfigure(config):
    if SANITIZED:
        shutil.rmtree(config.reports)


@pytest.fixture(autouse=True)
def reports(pytestconfig):
    """Fails a test in one of whose processes a sanitizer has found something."""
    yield
    if not SANITIZED:
        return
    found = sorted(pytestconfig.reports.iterdir())
    text = "\n".join(path.read_text(errors="replace") for path in found)
    for path in found:
        path.unlink()
    assert not found, text


def wait_until(condition, seconds=5, what="condition"):
    """Waits for condition() to become true, and returns what it returned."""
    seconds *= SLOWER
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
        out, err = process.communicate(timeout=timeout * SLOWER)
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
    """Those in /dev/shm, without what C tests have there, which may run at the same time."""
    names = (entry.name for entry in os.scandir("/dev/shm"))
    return {name for name in names if not name.startswith(("test-", "fuzz-"))}


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
    if not LOCKSTEP.exists():
        pytest.fail(f"{LOCKSTEP} does not exist: build it, or set LOCKSTEP_BUILD")
    return str(LOCKSTEP)


@pytest.fixture
def leftovers():
    """Gives a Starter, and fails if anything of what it started is left after the test."""
    starter = Starter()
    files = shared_files()
    yield starter
    end = time.monotonic() + 3 * SLOWER
    while (left := starter.alive()) and time.monotonic() < end:
        time.sleep(0.01)
    new = {f for f in shared_files() - files if not used_by_others(f, left)}
    starter.kill_all()
    assert not left, f"processes were left behind: {left}"
    assert not new, f"files were left in /dev/shm: {new}"
