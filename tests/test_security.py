"""Another user of the machine: cannot listen in, cannot take part, cannot disturb.

The attacker is uid nobody and knows everything but the run's key: the ports of the job, the
protocol, the process numbers. Needs root, to become nobody.
"""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import time

import pytest
from conftest import SLOWER, children, read_proc, wait_until
from trial import json_lines, program

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user"),
    pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv (util-linux)"),
]
NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--no-new-privs"]
PYTHON = ["/usr/bin/python3", "-c"]  # one that nobody may run, too

# What an attacker runs: attack KIND PORT..., says what it got as one line of JSON.
ATTACK = r"""
import json, os, random, socket, struct, sys, time

def connect(port, timeout=2):
    s = socket.create_connection(("127.0.0.1", port), timeout)
    s.settimeout(timeout)
    return s

def hello(purpose, rank=0, lane=0, size=2):
    identity = struct.pack("<4i", rank, lane, size, 0)
    return b"LSTP" + struct.pack("<HH", 1, purpose) + os.urandom(32) + identity

def rest(s):
    # All that still comes until the other side closes; None if it does not.
    got = b""
    try:
        while part := s.recv(65536):
            got += part
    except socket.timeout:
        return None
    except OSError:
        pass
    return got

def receive(s, count):
    got = b""
    while len(got) < count and (part := s.recv(count - len(got))):
        got += part
    return got

def garbage(port):
    answers = []
    for data in (b"GET / HTTP/1.1\r\n\r\n", bytes(1000), os.urandom(5000), b"\x16\x03\x01" * 99):
        s = connect(port)
        try:
            s.sendall(data)
        except OSError:
            pass
        answers.append(rest(s))
    return answers

def half(port):
    # A hello cut short, then silence (the others go on meanwhile) or the end.
    kept = []
    for cut in (1, 3, 8, 40, 55):
        s = connect(port)
        s.sendall(hello(1)[:cut])
        kept.append(s)
        t = connect(port)
        t.sendall(hello(1)[:cut])
        t.close()
    time.sleep(0.5)
    return len(kept)

def wrong_key(port):
    # Whole handshakes: a proof from nowhere, the server's own one sent back, one bit, none at all.
    answers = []
    for purpose in (1, 2):
        for proof in (lambda m: os.urandom(32), lambda m: m, lambda m: bytes(32)):
            s = connect(port)
            s.sendall(hello(purpose))
            try:
                answer = receive(s, 64)
                if len(answer) == 64:
                    # An operation of the store right behind it, for the case that it is let in.
                    s.sendall(proof(answer[32:]) + os.urandom(64))
            except OSError:
                answer = b""
            answers.append([len(answer), rest(s)])
    return answers

def idle(port, count=300, seconds=1.5):
    kept = []
    for _ in range(count):
        try:
            kept.append(connect(port))
        except OSError:
            break
    time.sleep(seconds)
    return len(kept)

def flood(port, seconds=1.5):
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        try:
            s = connect(port)
            s.sendall(hello(random.choice((1, 2)), rank=1))
            s.close()
            count += 1
        except OSError:
            pass
    return count

def swarm(_, seconds=60):
    # Flood every port of root's that listens, as soon as it does: hellos and silence, in turn.
    kept, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        with open("/proc/self/net/tcp") as f:
            rows = [line.split() for line in f.readlines()[1:]]
        for port in [int(r[1].split(":")[1], 16) for r in rows if r[3] == "0A" and r[7] == "0"]:
            for i in range(64):
                try:
                    kept.append(connect(port, 0.2))
                    if i % 2:
                        kept[-1].sendall(hello(2, rank=1, size=4))
                except OSError:
                    break
        del kept[:-900]
    return 0

if __name__ == "__main__":
    kind, ports = sys.argv[1], [int(p) for p in sys.argv[2:]]
    show = lambda x: x.hex() if isinstance(x, bytes) else x
    print(json.dumps([globals()[kind](p) for p in ports], default=show))
"""


def sockets_of(pid):
    """Returns the inodes of a process's sockets."""
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            continue
        if match:
            found.add(match[1])
    return found


def listening(pid):
    """Returns [(address, port)] on which a process listens, over IPv4 and IPv6."""
    mine, found = sockets_of(pid), []
    for table in ("tcp", "tcp6"):
        for line in read_proc(pid, f"net/{table}").decode().splitlines()[1:]:
            row = line.split()
            address, port = row[1].split(":")
            if row[3] == "0A" and row[9] in mine:
                octets = reversed(bytes.fromhex(address)) if table == "tcp" else [address]
                found.append((".".join(map(str, octets)), int(port, 16)))
    return found


class Job:
    """Two ranks over tcp that loop for some seconds, and what they have open."""

    def __init__(self, lockstep, starter, seconds, *options):
        self.starter = starter
        self.launcher = starter.start(
            lockstep, "run", "-n", 2, *options, "--", program("loop"), 1, seconds,
            env={"LOCKSTEP_TRANSPORT": "tcp"},
        )
        facts = [json.loads(self.launcher.stdout.readline()) for _ in range(2)]
        self.ranks = [fact["pid"] for fact in facts]
        self.pids = [self.launcher.pid, *self.ranks]
        self.ports = [port for pid in self.pids for _, port in listening(pid)]

    def must_end_well(self):
        """As if nobody had been there: status 0, right results, no word on standard error."""
        done = self.starter.finish(self.launcher)
        assert (done.returncode, done.stderr) == (0, ""), done
        rounds = [fact["rounds"] for fact in json_lines(done.stdout)]
        assert len(rounds) == 2 and rounds[0] == rounds[1] > 0
        return rounds[0]


@pytest.fixture
def attack(leftovers):
    """attack(kind, ports...) runs an attack as nobody, and returns what it got."""

    def start(kind, *ports, enter=()):
        return leftovers.start(*enter, *NOBODY, *PYTHON, ATTACK, kind, *ports)

    def run(kind, *ports):
        done = leftovers.finish(start(kind, *ports))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    run.start = start
    return run


def as_nobody(code, *words):
    """Runs Python code as nobody and returns what it printed, as JSON."""
    done = subprocess.run(
        [*NOBODY, *PYTHON, code, *map(str, words)],
        capture_output=True, text=True, timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_attacker_is_nobody():
    assert as_nobody("import os; print([*os.getresuid(), *os.getresgid()])") == [65534] * 6
    assert as_nobody("import os; print(len(os.getgroups()))") in (0, 1)


# What can be reached


def test_only_the_launcher_listens_and_on_loopback_only(lockstep, leftovers):
    job = Job(lockstep, leftovers, 0.5)
    assert [address for address, _ in listening(job.launcher.pid)] == ["127.0.0.1"]
    for rank in job.ranks:
        assert listening(rank) == []
    job.must_end_well()


def test_listen_binds_the_address_given(lockstep, leftovers, tmp_path):
    options = ["--listen", "127.0.0.2:0", "--hosts", 1, "--key-file", tmp_path / "key"]
    job = Job(lockstep, leftovers, 0.5, *options)
    assert [address for address, _ in listening(job.launcher.pid)] == ["127.0.0.2"]
    for rank in job.ranks:
        assert listening(rank) == []
    leftovers.finish(job.launcher)


def test_shared_memory_needs_no_port_of_the_ranks(lockstep, leftovers):
    launcher = leftovers.start(lockstep, "run", "-n", 2, "--", program("loop"), 1, 0.3)
    for _ in range(2):
        assert listening(json.loads(launcher.stdout.readline())["pid"]) == []
    assert leftovers.finish(launcher).returncode == 0


# What can be done to it


def test_garbage(lockstep, leftovers, attack):
    """Nonsense is dropped without a word."""
    job = Job(lockstep, leftovers, 2)
    (answers,) = attack("garbage", *job.ports)
    assert answers == [""] * 4
    job.must_end_well()


def test_half_handshakes(lockstep, leftovers, attack):
    job = Job(lockstep, leftovers, 2)
    assert attack("half", *job.ports) == [5]
    job.must_end_well()


def test_wrong_key(lockstep, leftovers, attack):
    """The store proves itself, and hears no more from who cannot; not a byte is given away."""
    job = Job(lockstep, leftovers, 2)
    (answers,) = attack("wrong_key", *job.ports)
    assert answers[:3] == [[64, ""]] * 3  # who asks for the store: nonce and MAC, then the end
    assert answers[3:] == [[0, ""]] * 3  # who poses as a rank: nothing
    job.must_end_well()


def test_idle_connections(lockstep, leftovers, attack):
    job = Job(lockstep, leftovers, 3)
    assert attack("idle", *job.ports) == [300]
    job.must_end_well()


def test_flood_of_connections(lockstep, leftovers, attack):
    job = Job(lockstep, leftovers, 3)
    assert attack("flood", *job.ports)[0] > 100
    job.must_end_well()


def test_a_death_is_noticed_during_an_attack(lockstep, leftovers, attack):
    """A launcher that is kept busy still sees its ranks."""
    launcher = leftovers.start(
        lockstep, "run", "-n", 3, "--on-death", "leave", "--", program("loop"), 5
    )
    pids = {f["rank"]: f["pid"] for f in (json.loads(launcher.stdout.readline()) for _ in range(3))}
    attackers = [attack.start("flood", listening(launcher.pid)[0][1]) for _ in range(2)]
    time.sleep(0.5)
    killed = time.monotonic()
    os.kill(pids[1], signal.SIGKILL)
    done = leftovers.finish(launcher)
    failures = json_lines(done.stdout)
    assert [f["status"] for f in failures] == ["LS_ERR_PEER_DEAD"] * 2
    for failure in failures:
        assert "rank 1 died" in failure["text"]
        assert failure["at"] - killed < SLOWER
    for process in attackers:
        leftovers.finish(process)


def memory_files(pid):
    """Returns {name: path} of the memory files that a process has open."""
    files = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{fd}"
        try:
            found = re.match(r"/memfd:(\S+)", os.readlink(path))
        except OSError:
            continue
        if found:
            files[found[1]] = path
    return files


def test_memory_files_are_private(lockstep, leftovers, tmp_path):
    """Mode 0600: who is handed a descriptor to read from cannot make one to write with of it."""
    run = leftovers.start(lockstep, "run", "-n", 2, "--", program("loop"), 1, 1)
    ranks = [json.loads(run.stdout.readline())["pid"] for _ in range(2)]
    words = ["train", "mlp", "--steps", "100000", "-n", "2", "--out", tmp_path / "out", "--quiet"]
    train = leftovers.start(lockstep, *words)
    wanted = {"lockstep-segment", "lockstep-state", "lockstep-papers"}
    wait_until(lambda: set(memory_files(train.pid)) >= wanted, 20, "a run that keeps its state")
    for pid in (run.pid, *ranks, train.pid, *children(train.pid)):
        files = memory_files(pid)
        modes = {name: stat.S_IMODE(os.stat(path).st_mode) for name, path in files.items()}
        assert set(modes.values()) <= {0o600}, (pid, modes)
        assert "lockstep-segment" in files or pid not in (run.pid, *ranks), (pid, files)
    code = "import os, sys; os.open(f'/proc/self/fd/{sys.argv[1]}', os.O_RDWR)"
    fd = os.open(memory_files(ranks[0])["lockstep-segment"], os.O_RDONLY)
    opened = leftovers.run(*NOBODY, *PYTHON, code, fd, pass_fds=[fd])
    os.close(fd)
    assert "PermissionError" in opened.stderr, opened
    leftovers.finish(run)
    train.send_signal(signal.SIGTERM)
    leftovers.finish(train)


@pytest.fixture
def island():
    """A network namespace of its own, so that the swarm finds nobody else: words to enter it."""
    name = f"ls{os.getpid()}island"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield ["ip", "netns", "exec", name]
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_starting_under_attack(lockstep, leftovers, attack, island, transport):
    """Some sit on every port as soon as it opens; the ranks find each other all the same."""
    swarm = [attack.start("swarm", 1, enter=island) for _ in range(4)]
    time.sleep(0.3)
    try:
        for _ in range(6):  # ranks that come late leave the ports of the first ones open
            script = f"sleep 0.$LOCKSTEP_RANK; exec {program('once')}"
            done = leftovers.run(
                *island, lockstep, "run", "-n", 4, "--", "sh", "-c", script,
                env={"LOCKSTEP_TRANSPORT": transport, "LOCKSTEP_TIMEOUT": "20"},
            )
            assert (done.returncode, done.stderr) == (0, "")
        assert all(process.poll() is None for process in swarm)
    finally:
        for process in swarm:
            process.kill()
            process.communicate()


# What can be seen


def test_memory_and_descriptors(lockstep, leftovers):
    """The segment and the boot record are open files of ours, and closed to others."""
    code = """
import ctypes, json, os, sys
opened, read = [], []
libc = ctypes.CDLL(None, use_errno=True)
for pid in map(int, sys.argv[1:]):
    for name in ["mem", "maps", "environ", "auxv", "map_files", "cwd", "root", "fd"]:
        try:
            path = f"/proc/{pid}/{name}"
            os.listdir(path) if name in ("fd", "map_files") else open(path).read(1)
            opened.append(path)
        except OSError:
            pass
    for fd in range(200):
        for flags in (os.O_RDONLY, os.O_RDWR):
            try:
                os.close(os.open(f"/proc/{pid}/fd/{fd}", flags))
                opened.append(f"/proc/{pid}/fd/{fd}")
            except OSError:
                pass
    buffer = ctypes.create_string_buffer(8)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
    if libc.process_vm_readv(pid, vector, 1, vector, 1, 0) >= 0 or ctypes.get_errno() != 1:
        read.append([pid, ctypes.get_errno()])
    if libc.syscall(438, libc.syscall(434, pid, 0), 3, 0) >= 0:  # pidfd_getfd
        read.append([pid, "pidfd_getfd"])
    if libc.ptrace(16, pid, 0, 0) >= 0:  # PTRACE_ATTACH
        read.append([pid, "ptrace"])
    try:
        os.kill(pid, 0)
        read.append([pid, "kill"])
    except PermissionError:
        pass
print(json.dumps([opened, read]))
"""
    job = Job(lockstep, leftovers, 2)
    folder = f"/proc/{job.ranks[0]}/fd"
    names = {os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)}
    assert any("memfd:lockstep-segment" in name for name in names)
    assert not any("memfd:lockstep-boot" in name for name in names)  # read, and closed
    assert as_nobody(code, *job.pids, *children(job.launcher.pid)) == [[], []]
    assert not [f for f in os.listdir("/dev/shm") if "lockstep" in f]
    job.must_end_well()


def test_the_key_is_nowhere(lockstep, leftovers, tmp_path):
    """Not in arguments nor environments, nor in any new file that others can read."""
    begin = time.time()
    key = tmp_path / "key"
    options = ["--listen", "127.0.0.1:0", "--hosts", 1, "--key-file", key]
    job = Job(lockstep, leftovers, 2, *options)
    secret = key.read_text().strip()
    shapes = [secret.encode(), secret.upper().encode(), bytes.fromhex(secret)]
    assert key.stat().st_mode & 0o777 == 0o600
    for pid in [*job.pids, *children(job.launcher.pid)]:
        for name in ("environ", "cmdline", "comm", "status"):
            text = read_proc(pid, name)
            assert not any(shape in text for shape in shapes), f"/proc/{pid}/{name}"

    for root in ("/tmp", "/var/tmp", "/dev/shm", "/run", os.getcwd()):
        for path in new_files(root, begin - 1):
            if path != str(key) and os.stat(path).st_mode & 0o044:
                with open(path, "rb") as f:
                    text = f.read(1 << 20)
                assert not any(shape in text for shape in shapes), path
    code = f"import json, os\nprint(json.dumps(os.access({str(key)!r}, os.R_OK)))"
    assert as_nobody(code) is False
    leftovers.finish(job.launcher)


def new_files(root, since):
    """Yields the regular files below root that were written since then."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            try:
                if os.path.isfile(path) and os.stat(path).st_mtime >= since:
                    yield path
            except OSError:
                continue


def test_descriptors_are_not_handed_on(lockstep, leftovers):
    """What a rank starts by itself gets neither the boot record nor the segment nor a socket."""
    job = Job(lockstep, leftovers, 1)
    for rank in job.ranks:
        for fd in map(int, os.listdir(f"/proc/{rank}/fd")):
            flags = re.search(rb"flags:\s*([0-7]+)", read_proc(rank, f"fdinfo/{fd}"))
            assert fd <= 2 or int(flags[1], 8) & os.O_CLOEXEC, os.readlink(f"/proc/{rank}/fd/{fd}")
    job.must_end_well()
