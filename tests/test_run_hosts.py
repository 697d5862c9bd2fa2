"""lockstep run over several hosts: on loopback, and in network namespaces joined by a bridge."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest
from conftest import BUILD, SLOWER, is_listening, wait_until
from trial import program

SLEEP = ["sleep", "1000"]
WHO = ["sh", "-c", "echo $LOCKSTEP_RANK/$LOCKSTEP_SIZE/$LOCKSTEP_LOCAL_RANK"]

# Prints rank, host table, store and bind address from the boot record.
BOOT = """
import os, struct
data = os.pread(int(os.environ["LOCKSTEP_BOOT_FD"]), 1000, 0)
magic, version, rank, size, host, hosts = struct.unpack_from("<IIiiii", data)
table = struct.unpack_from("<64i", data, 24)[:hosts]
text = [data[at : at + 80].partition(b"\\0")[0].decode() for at in (284, 364)]
os.write(1, f"{rank} {size} {host} {list(table)} {text[0]} {text[1]}\\n".encode())
"""


class Hosts:
    """A listener and those who join it; each may live in a network namespace."""

    def __init__(self, lockstep, starter, directory):
        self.lockstep = lockstep
        self.starter = starter
        self.key = directory / "key"
        self.address = None

    def start(self, namespace, *words, **options):
        enter = ["ip", "netns", "exec", namespace] if namespace else []
        return self.starter.start(*enter, self.lockstep, "run", *words, **options)

    def listen(self, n, hosts, *words, at="127.0.0.1:0", namespace=None, options=(), **popen):
        process = self.start(
            namespace, "-n", n, "--listen", at, "--hosts", hosts, "--key-file", self.key,
            *options, "--", *words, **popen,
        )
        for line in process.stderr:
            if match := re.search(r"listening on (\S+)$", line):
                self.address = match[1]
                return process
        pytest.fail(f"the listener did not start: {process.wait()}")

    def join(self, n, *words, namespace=None, key=None, options=(), **popen):
        return self.start(
            namespace, "-n", n, "--join", self.address, "--key-file", key or self.key, *options,
            "--", *words, **popen,
        )

    def finish(self, process, timeout=30):
        """Runs it to its end; takes off what everyone says who joins."""
        done = self.starter.finish(process, timeout)
        done.stderr = re.sub(r"lockstep: joined as host .*\n", "", done.stderr)
        return done

    def port(self):
        return int(self.address.rpartition(":")[2])


@pytest.fixture
def hosts(lockstep, leftovers, tmp_path):
    made = Hosts(lockstep, leftovers, tmp_path)
    yield made
    if made.address and made.address.startswith("127."):
        for process in leftovers.started:
            process.poll() is None and process.kill()
            process.wait()
        assert not is_listening("127.0.0.1", made.port()), "the port is still open"


def count_running(leftovers, words, count):
    line = " ".join(words) + " "
    wait_until(
        lambda: len([c for c in leftovers.alive().values() if c == line]) == count,
        what=f"{count} x {line}",
    )


# The meeting


@pytest.mark.parametrize("sizes", [[1], [1, 1], [3, 2], [2, 1, 4]])
def test_ranks_are_counted_host_by_host(hosts, sizes):
    processes = [hosts.listen(sizes[0], len(sizes), *WHO)]
    for n in sizes[1:]:
        processes.append(hosts.join(n, *WHO, options=["--wait", "10"]))
        time.sleep(0.4)  # arrival decides the numbers
    first = 0
    for n, process in zip(sizes, processes):
        done = hosts.finish(process)
        assert done.returncode == 0
        want = {f"{first + i}/{sum(sizes)}/{i}" for i in range(n)}
        assert set(done.stdout.splitlines()) == want
        first += n
    assert stat.S_IMODE(hosts.key.stat().st_mode) == 0o600


def test_boot_records_name_all_hosts(hosts):
    listener = hosts.listen(1, 2, sys.executable, "-c", BOOT)
    joiner = hosts.join(2, sys.executable, "-c", BOOT)
    common = f"[1, 2] {hosts.address} 127.0.0.1"
    assert hosts.finish(listener).stdout == f"0 3 0 {common}\n"
    lines = sorted(hosts.finish(joiner).stdout.splitlines())
    assert lines == [f"1 3 1 {common}", f"2 3 1 {common}"]


def test_ipv6(hosts):
    listener = hosts.listen(1, 2, sys.executable, "-c", BOOT, at="[::1]:0")
    joiner = hosts.join(1, sys.executable, "-c", BOOT)
    assert hosts.address.startswith("[::1]:")
    assert hosts.finish(listener).stdout == f"0 2 0 [1, 1] {hosts.address} ::1\n"
    assert hosts.finish(joiner).stdout == f"1 2 1 [1, 1] {hosts.address} ::1\n"


def test_joiner_may_come_first(hosts, lockstep, leftovers):
    """A listener is waited for, and so is the port."""
    hosts.finish(hosts.listen(1, 1, "true"))  # makes a key
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        hosts.address = f"127.0.0.1:{s.getsockname()[1]}"
    joiner = hosts.join(1, *WHO)
    time.sleep(0.5)
    listener = hosts.listen(1, 2, *WHO, at=hosts.address)
    assert hosts.finish(listener).stdout == "0/2/0\n"
    assert hosts.finish(joiner).stdout == "1/2/0\n"


def test_key_from_standard_input(hosts):
    listener = hosts.listen(1, 2, *WHO)
    with hosts.key.open() as secret:
        joiner = hosts.join(1, *WHO, key="-", stdin=secret)
    assert hosts.finish(joiner).stdout == "1/2/0\n"
    assert hosts.finish(listener).returncode == 0


def test_no_listener(hosts):
    hosts.finish(hosts.listen(1, 1, "true"))
    begin = time.monotonic()
    done = hosts.finish(hosts.join(1, "true", options=["--wait", "1"]))
    assert done.returncode == 1
    assert f"nobody listens on {hosts.address}" in done.stderr
    assert time.monotonic() - begin < 3 * SLOWER


def test_no_such_host(hosts):
    hosts.finish(hosts.listen(1, 1, "true"))
    hosts.address = "no-such-host.invalid:4000"
    done = hosts.finish(hosts.join(1, "true", options=["--wait", "3"]))
    assert done.returncode == 1
    assert "no-such-host.invalid" in done.stderr


@pytest.mark.parametrize("at", ["0.0.0.0:0", "[::]:0"])
def test_listening_everywhere_is_refused(hosts, at):
    """The ranks need one address to tell the others."""
    process = hosts.start(
        None, "-n", "1", "--listen", at, "--hosts", "2", "--key-file", hosts.key, "true"
    )
    done = hosts.finish(process)
    assert done.returncode == 1
    assert "name the address" in done.stderr


def test_port_in_use(hosts):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        at = f"127.0.0.1:{port}"
        process = hosts.start(
            None, "-n", "1", "--listen", at, "--hosts", "2", "--key-file", hosts.key, "true"
        )
        done = hosts.finish(process)
    assert done.returncode == 1
    assert f"port {port} of 127.0.0.1: Address already in use" in done.stderr


def test_wrong_key(hosts, tmp_path):
    listener = hosts.listen(1, 2, *WHO)
    other = tmp_path / "other"
    other.write_text("0123456789abcdef" * 4 + "\n")
    other.chmod(0o600)
    begin = time.monotonic()
    done = hosts.finish(hosts.join(1, *WHO, key=other))
    assert done.returncode == 1
    assert "key" in done.stderr
    assert done.stdout == ""
    assert time.monotonic() - begin < 3 * SLOWER
    joiner = hosts.join(1, *WHO)  # the right one is still welcome
    assert hosts.finish(joiner).stdout == "1/2/0\n"
    assert hosts.finish(listener).returncode == 0


def test_missing_and_readable_key(hosts, tmp_path):
    hosts.address = "127.0.0.1:1"
    done = hosts.finish(hosts.join(1, "true", key=tmp_path / "none"))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert str(tmp_path / "none") in done.stderr
    loose = tmp_path / "loose"
    loose.write_text("0123456789abcdef" * 4 + "\n")
    loose.chmod(0o644)
    done = hosts.finish(hosts.join(1, "true", key=loose))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert str(loose) in done.stderr


def test_too_many_hosts(hosts):
    """One too many before the start, one after it."""
    listener = hosts.listen(1, 2, *SLEEP)
    joiner = hosts.join(1, *SLEEP)
    count_running(hosts.starter, SLEEP, 2)
    done = hosts.finish(hosts.join(1, *SLEEP))
    assert done.returncode == 1
    assert "all 2 hosts of the run have come already" in done.stderr
    listener.send_signal(signal.SIGTERM)
    hosts.finish(listener)
    hosts.finish(joiner)


def test_too_many_ranks(hosts):
    listener = hosts.listen(200, 2, "true")
    joiner = hosts.join(100, "true")
    for process in (listener, joiner):
        done = hosts.finish(process)
        assert done.returncode == 1
        assert "300 ranks on 2 hosts, at most 256 are possible" in done.stderr


def test_deadline_names_how_many_came(hosts):
    begin = time.monotonic()
    listener = hosts.listen(1, 4, "true", options=["--wait", "3"])
    joiner = hosts.join(1, "true")
    done = hosts.finish(listener)
    assert done.returncode == 1
    assert "waiting at" in done.stderr
    assert "1 of 3 other hosts came within 3 s" in done.stderr
    assert 2.5 < time.monotonic() - begin < 6 * SLOWER
    done = hosts.finish(joiner)
    assert done.returncode == 1
    assert "1 of 3 other hosts came within 3 s" in done.stderr


def test_place_of_a_joiner_that_gives_up(hosts):
    """Killed while it waits, it leaves its number to the next."""
    listener = hosts.listen(1, 3, *WHO)
    first = hosts.join(5, *WHO)
    time.sleep(0.5)
    first.kill()
    first.wait()
    second = hosts.join(1, *WHO)
    time.sleep(0.3)
    third = hosts.join(1, *WHO)
    assert hosts.finish(listener).stdout == "0/3/0\n"
    assert hosts.finish(second).stdout == "1/3/0\n"
    assert hosts.finish(third).stdout == "2/3/0\n"


def test_interrupted_while_waiting(hosts):
    listener = hosts.listen(1, 3, "true")
    joiner = hosts.join(1, "true")
    time.sleep(0.5)
    listener.send_signal(signal.SIGINT)
    assert hosts.finish(listener).returncode == -signal.SIGINT
    done = hosts.finish(joiner)
    assert done.returncode == 1
    assert "the listener ended before the start" in done.stderr


# Failures


def test_listener_returns_the_first_failure(hosts):
    listener = hosts.listen(1, 3, "sh", "-c", "sleep 0.5; exit 0")
    good = hosts.join(1, "sh", "-c", "exit 0")
    time.sleep(0.2)
    bad = hosts.join(2, "sh", "-c", "[ $LOCKSTEP_RANK = 3 ] && exit 7; sleep 0.3; exit 8")
    assert hosts.finish(bad).returncode == 7
    assert hosts.finish(good).returncode == 0
    done = hosts.finish(listener)
    assert done.returncode == 7
    assert "rank 3 (host 2): exited with status 7" in done.stderr


def test_hosts_with_different_transports(hosts, lockstep):
    """Their ranks would wait for each other for ever."""
    words = [lockstep, "bench", "allreduce", "--sizes", "8"]
    listener = hosts.listen(2, 2, *words)
    joiner = hosts.join(2, *words, env={**os.environ, "LOCKSTEP_TRANSPORT": "tcp"})
    done = [hosts.finish(process) for process in (listener, joiner)]
    assert all(one.returncode != 0 for one in done), done
    text = "".join(one.stderr for one in done)
    assert "LOCKSTEP_TRANSPORT: it is " in text and "set it to the same on all hosts" in text


def test_killed_rank_ends_the_other_hosts(hosts, leftovers):
    listener = hosts.listen(2, 2, *SLEEP)
    joiner = hosts.join(1, "sh", "-c", "sleep 0.3; kill -9 $$")
    begin = time.monotonic()
    assert hosts.finish(joiner).returncode == 137
    done = hosts.finish(listener)
    assert done.returncode == 137
    assert done.stderr == "lockstep: rank 2 (host 1): killed by signal 9 (SIGKILL)\n"
    assert time.monotonic() - begin < 4 * SLOWER


@pytest.mark.parametrize("stopped", [0, 1])
def test_stopped_rank_of_another_host(hosts, stopped):
    """The failure of the one host's rank is the end of the other's, which would never end."""
    env = {"LOCKSTEP_TIMEOUT": "1"}
    words = [program("act"), stopped, "stop"]
    launchers = [hosts.listen(1, 2, *words, env=env), hosts.join(1, *words, env=env)]
    begin = time.monotonic()
    done = [hosts.finish(launcher) for launcher in launchers]
    assert time.monotonic() - begin < 10 * SLOWER
    other = 1 - stopped
    failed = f"lockstep: rank {other} (host {other}): exited with status 3 after ls_finalize\n"
    ended = f"lockstep: ending rank {stopped}: still running 5 s after the first failure\n"
    assert done[stopped].stderr == failed + ended
    assert done[other].stderr.endswith(failed)
    assert done[0].returncode == done[other].returncode == 3


def test_on_death_leave(hosts):
    stay = ["sh", "-c", "sleep 2; echo went on"]
    listener = hosts.listen(1, 2, *stay, options=["--on-death", "leave"])
    joiner = hosts.join(
        2, "sh", "-c", "[ $LOCKSTEP_RANK = 2 ] && exit 3; sleep 2; echo went on",
        options=["--on-death", "leave"],
    )
    done = hosts.finish(joiner)
    assert (done.returncode, done.stdout) == (3, "went on\n")
    done = hosts.finish(listener)
    assert (done.returncode, done.stdout) == (3, "went on\n")


def test_deaths_reach_the_segments_of_other_hosts(hosts):
    """A rank asleep on its doorbell wakes up to the death of a rank elsewhere, and its cause."""
    role = BUILD / "tests" / "launch" / "test_launch"
    if not role.exists():
        pytest.skip("the unit tests are not built")
    words = ["bash", "-c", f"exec 200>&1; exec {role} dies kill"]
    listener = hosts.listen(1, 3, *words)
    other = hosts.join(2, *words)  # with rank 1
    time.sleep(0.2)
    third = hosts.join(1, *words)
    begin = time.monotonic()
    cause = "killed by signal 9 (SIGKILL)"
    assert hosts.finish(listener).stdout == f"0 {cause}\n"
    assert hosts.finish(other).stdout == f"2 {cause}\n"
    assert hosts.finish(third).stdout == f"3 {cause}\n"
    assert time.monotonic() - begin < 0.9 * SLOWER  # told, not ended


def test_program_that_cannot_be_executed(hosts):
    listener = hosts.listen(1, 2, *SLEEP)
    joiner = hosts.join(2, "no-such-program")
    done = hosts.finish(joiner)
    assert done.returncode == 127
    assert done.stderr == "lockstep: cannot run 'no-such-program': No such file or directory\n"
    done = hosts.finish(listener)
    assert done.returncode == 127
    assert "cannot run 'no-such-program'" in done.stderr


def test_joiner_that_cannot_start_its_ranks(hosts):
    listener = hosts.listen(1, 2, *SLEEP)
    joiner = hosts.join(1, *SLEEP, env={"LOCKSTEP_HEAP": "rubbish"})
    assert hosts.finish(joiner).returncode == 1
    done = hosts.finish(listener)
    assert done.returncode == 1
    assert "rank 1 (host 1): not started: LOCKSTEP_HEAP" in done.stderr


def test_killed_joiner(hosts, leftovers):
    listener = hosts.listen(1, 3, *SLEEP)
    victim = hosts.join(2, *SLEEP)
    time.sleep(0.2)
    other = hosts.join(1, *SLEEP)
    count_running(leftovers, SLEEP, 4)
    begin = time.monotonic()
    victim.kill()
    done = hosts.finish(listener)
    assert done.returncode == 1
    assert done.stderr == "lockstep: rank 1 (host 1): lost with its launcher on host 1\n"
    assert time.monotonic() - begin < 3 * SLOWER
    done = hosts.finish(other)
    assert done.returncode == 143
    assert done.stderr == "lockstep: rank 1 (host 1): lost with its launcher on host 1\n"


def test_killed_listener(hosts, leftovers):
    listener = hosts.listen(1, 2, *SLEEP)
    joiner = hosts.join(2, *SLEEP)
    count_running(leftovers, SLEEP, 3)
    begin = time.monotonic()
    listener.kill()
    done = hosts.finish(joiner)
    assert done.returncode == 1
    assert f"lost the launcher of the run's first host, on {hosts.address}" in done.stderr
    assert done.stderr.count("\n") == 1
    assert time.monotonic() - begin < 3 * SLOWER


def test_interrupted_listener_ends_all(hosts, leftovers):
    listener = hosts.listen(1, 2, *SLEEP)
    joiner = hosts.join(1, *SLEEP)
    count_running(leftovers, SLEEP, 2)
    listener.send_signal(signal.SIGINT)
    assert hosts.finish(listener).returncode == 130
    assert hosts.finish(joiner).returncode == 143


def test_listener_waits_for_the_others(hosts):
    """Its own ranks have ended, those of the joiner have not; until it is interrupted."""
    listener = hosts.listen(1, 2, "true")
    joiner = hosts.join(1, "sh", "-c", "sleep 1; exit 4")
    assert hosts.finish(joiner).returncode == 4
    assert hosts.finish(listener).returncode == 4

    listener = hosts.listen(1, 2, "true")
    joiner = hosts.join(1, *SLEEP)
    count_running(hosts.starter, SLEEP, 1)
    time.sleep(0.3)
    listener.send_signal(signal.SIGINT)
    assert hosts.finish(listener).returncode == 130
    assert hosts.finish(joiner).returncode == 1


# Hosts of their own


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


@pytest.fixture
def network():
    """Three network namespaces on one bridge, with the addresses 10.77.0.1 to 10.77.0.3."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    names = [f"ls{os.getpid()}h{i}" for i in range(3)]
    switch = f"ls{os.getpid()}sw"
    try:
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for i, name in enumerate(names):
            ip("netns", "add", name)
            ends = ["eth0", "netns", name, "type", "veth", "peer", f"p{i}", "netns", switch]
            ip("link", "add", *ends)
            ip("-n", switch, "link", "set", f"p{i}", "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names, switch
    finally:
        for name in [*names, switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def start_three(hosts, names, *words):
    listener = hosts.listen(1, 3, *words, at="10.77.0.1:0", namespace=names[0])
    second = hosts.join(2, *words, namespace=names[1])
    time.sleep(0.3)
    return listener, second, hosts.join(1, *words, namespace=names[2])


def test_namespaces(hosts, network):
    names, _ = network
    processes = start_three(hosts, names, sys.executable, "-c", BOOT)
    lines = []
    for process in processes:
        done = hosts.finish(process)
        assert done.returncode == 0
        lines += done.stdout.splitlines()
    assert sorted(lines) == [
        f"{rank} 4 {host} [1, 2, 1] {hosts.address} 10.77.0.{host + 1}"
        for rank, host in enumerate([0, 1, 1, 2])
    ]


def test_namespaces_and_a_killed_joiner(hosts, network, leftovers):
    names, _ = network
    listener, victim, other = start_three(hosts, names, *SLEEP)
    count_running(leftovers, SLEEP, 4)
    victim.kill()
    assert hosts.finish(listener).returncode == 1
    assert hosts.finish(other).returncode == 143


def test_namespaces_and_a_cut_cable(hosts, network, leftovers):
    """No connection is closed; the lease runs out, on both sides."""
    names, switch = network
    listener, victim, other = start_three(hosts, names, *SLEEP)
    count_running(leftovers, SLEEP, 4)
    begin = time.monotonic()
    ip("-n", switch, "link", "set", "p1", "down")
    done = hosts.finish(listener)
    assert done.returncode == 1
    assert "rank 1 (host 1): lost with its launcher on host 1" in done.stderr
    assert hosts.finish(other).returncode == 143
    done = hosts.finish(victim)
    assert done.returncode == 1
    assert "lost the launcher of the run's first host" in done.stderr
    assert time.monotonic() - begin < 20 * SLOWER


@pytest.fixture
def two_links():
    """Two network namespaces with two cables between them: right0 leads to left0, right1 to left1.

    The addresses are 10.78.0.1 and 10.78.0.2 at the ends of the first, 10.79.0.1 and 10.79.0.2 of
    the second.
    """
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    names = [f"ls{os.getpid()}{side}" for side in ("left", "right")]
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for i in range(2):
            ends = ["netns", names[0], "type", "veth", "peer", f"right{i}", "netns", names[1]]
            ip("link", "add", f"left{i}", *ends)
            for side, name in enumerate(names):
                device = f"{('left', 'right')[side]}{i}"
                ip("-n", name, "addr", "add", f"10.7{8 + i}.0.{side + 1}/24", "dev", device)
                ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@pytest.mark.parametrize("link", [0, 1])
def test_the_route_decides_on_the_interface(hosts, lockstep, two_links, link):
    """And it is said which: by who joins, with -v by the ranks, and in the head of a benchmark."""
    left, right = two_links
    if link == 1:  # to an address of the first link, but by the second
        ip("-n", right, "route", "add", "10.78.0.1/32", "via", "10.79.0.1")
    words = [lockstep, "bench", "allreduce", "--sizes", "1k", "--iters", "2"]
    options = ["--verbose"]
    listener = hosts.listen(1, 2, *words, at="10.78.0.1:0", namespace=left, options=options)
    joiner = hosts.join(2, *words, namespace=right, options=["-v"])
    heard, joined = hosts.finish(listener), hosts.starter.finish(joiner)
    assert (heard.returncode, joined.returncode) == (0, 0), (heard, joined)
    here, there = f"10.7{8 + link}.0.2", "10.78.0.1"
    lines = joined.stderr.splitlines()
    assert f"lockstep: joined as host 1 of 2, from {here} (right{link})" in lines
    for rank in (1, 2):
        told = f"lockstep[{rank}]: tcp with rank 0: from {here}, interface right{link}, to {there}:"
        assert [line for line in lines if line.startswith(told)], lines
    told = rf"lockstep\[0\]: tcp with ranks 1 to 2: from {there}, interface left{link}, to {here}:"
    assert re.search(told, heard.stderr), heard.stderr
    assert re.search(rf"^# transport  shm\+tcp by left{link}, ", heard.stdout, re.MULTILINE), heard


def congestion_control(namespace):
    """(within, between) hosts: the names of what the connections there have."""
    words = ["ip", "netns", "exec", namespace, "ss", "-tinH", "-O", "state", "established"]
    within, between = set(), set()
    told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    for line in told.splitlines():
        here, there = re.findall(r"([0-9.]+):\d+", line)[:2]
        (within if here == there else between).update(re.findall(r"\b(reno|cubic|bbr)\b", line))
    return within, between


def test_congestion_control(hosts, leftovers, two_links):
    """Between hosts that of the system, or of the route; within a host one that does not pace."""
    left, right = two_links
    route = ["ip", "-n", right, "route", "add", "10.78.0.1/32", "dev", "right0", "congctl", "cubic"]
    if subprocess.run(route, capture_output=True).returncode != 0:
        pytest.skip("this kernel has no cubic")
    words = ["ip", "netns", "exec", left, "sysctl", "-n", "net.ipv4.tcp_congestion_control"]
    usual = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    loop, options = program("loop"), ["--transport", "tcp"]
    listener = hosts.listen(1, 2, loop, at="10.78.0.1:0", namespace=left, options=options)
    joiner = hosts.join(2, loop, namespace=right, options=options)
    wait_until(
        lambda: congestion_control(right) == ({"reno"}, {"cubic"})
        and congestion_control(left)[1] == {usual},
        what=f"reno within, cubic by the route, {usual} back",
    )
    listener.terminate()
    assert hosts.finish(listener).returncode == hosts.finish(joiner).returncode == 0


def test_quiet_unless_asked(hosts):
    """Without -v there is one line on each host, and none of the ranks."""
    listener = hosts.listen(1, 2, program("once"))
    joined = hosts.starter.finish(hosts.join(1, program("once")))
    assert joined.stderr == "lockstep: joined as host 1 of 2, from 127.0.0.1 (lo)\n"
    assert hosts.finish(listener).stderr == ""
