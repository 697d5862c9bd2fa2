"""Runs all tests and counts them; scripts/test calls this once the packages are there.

A unit is one check, one meson test or one pytest test. What should yield units and yields none, a
failed build or a suite that is empty, counts as one failed unit: silence is not success.
"""

import argparse
import collections
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOGS = os.path.join(ROOT, "build-logs")
PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's pytest
AARCH64 = "build-aarch64"
TAIL_LINES = 60
BUILD_LIMIT_S = 1800
TEST_LIMIT_S = 3600  # of a whole stage; each C test has a time-out of its own
POLITE_S = 15  # what a child gets to end by itself before it is killed

# malloc may fail, as it may without a sanitizer: our tests ask for too much on purpose.
SANITIZER_ENV = {
    "ASAN_OPTIONS": "allocator_may_return_null=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "allocator_may_return_null=1:halt_on_error=1:second_deadlock_stack=1",
}

# outcome is "passed", "failed" or "skipped"; log, if any, is where more can be read
Unit = collections.namedtuple("Unit", "name outcome output log", defaults=("", ""))


class Interrupted(BaseException):
    """A signal asked us to stop."""

    def __init__(self, number):
        super().__init__(signal.Signals(number).name)
        self.number = number


def on_signal(number, _frame):
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)  # once is enough: cleaning up is short
    raise Interrupted(number)


def tail(text, lines=TAIL_LINES):
    """Returns the last lines of a text, indented."""
    kept = text.rstrip().splitlines()
    if len(kept) > lines:
        kept = [f"[{len(kept) - lines} lines before]"] + kept[-lines:]
    return "\n".join("    " + line for line in kept)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def stop(process, polite):
    """Ends a child: politely first, so that it ends its own children, then its whole group."""
    process.send_signal(polite)
    try:
        process.wait(POLITE_S)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def execute(command, log, limit, env=None, polite=signal.SIGTERM):
    """Runs a command with its output in the file log; returns its exit code, None on time-out."""
    with open(log, "ab") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches us alone, and we stop the child
        )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            stop(process, polite)
            out.write(f"stopped: still running after {limit} s\n".encode())
            return None
        except Interrupted:
            stop(process, polite)
            raise


def run_check(log, script, *args):
    code = execute([PYTHON, os.path.join("scripts", script), *args], log, 120)
    return [Unit(" ".join([script, *args]), "failed" if code != 0 else "passed", read(log))]


def suites_programs(folder, suites):
    """Returns the targets of the tests in these suites."""
    with open(os.path.join(ROOT, folder, "meson-info", "intro-tests.json"), encoding="utf-8") as f:
        tests = json.load(f)
    wanted = [t for t in tests if any(s.split(":")[-1] in suites for s in t["suite"])]
    return sorted({os.path.relpath(t["cmd"][0], os.path.join(ROOT, folder)) for t in wanted})


def run_build(log, folder, options, setup=("meson", "setup"), targets=(), suites=()):
    """Configures (afresh when the options are not those of last time) and compiles: all, or these
    targets and the tests of these suites."""
    path = os.path.join(ROOT, folder)
    stamp = os.path.join(path, "lockstep-options")
    wanted = " ".join([os.environ.get("CC", ""), *options])
    if not os.path.exists(stamp) or read(stamp) != wanted:
        shutil.rmtree(path, ignore_errors=True)
        code = execute([*setup, folder, *options], log, BUILD_LIMIT_S)
        if code != 0:
            return [Unit(" ".join([*setup, folder]), "failed", read(log), log)]
        with open(stamp, "w", encoding="utf-8") as f:
            f.write(wanted)
    if suites:
        targets = [*targets, *suites_programs(folder, suites)]
    code = execute(["ninja", "-C", folder, *targets], log, BUILD_LIMIT_S)
    return [] if code == 0 else [Unit(f"ninja -C {folder}", "failed", read(log), log)]


def parse_meson(path):
    """Yields the units of one of meson's logs, a JSON object a line."""
    outcomes = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}
    for line in read(path).splitlines() if os.path.exists(path) else ():
        test = json.loads(line)
        result = test["result"]
        output = f"{test.get('stdout') or ''}\n{test.get('stderr') or ''}".strip()
        note = f"{result}, exit code {test['returncode']}, {test['duration']:.1f} s"
        log = path.removesuffix(".json") + ".txt"
        yield Unit(test["name"], outcomes.get(result, "failed"), f"{output}\n{note}", log)


def run_meson(log, folder, name, select=(), slower=1, before=()):
    """Runs the meson tests of a build folder; name is for their log."""
    results = os.path.join(ROOT, folder, "meson-logs", name + ".json")
    if os.path.exists(results):
        os.remove(results)
    command = [*before, "meson", "test", "-C", folder, "--no-rebuild", "--logbase", name]
    command += ["--timeout-multiplier", str(slower), *select]
    code = execute(command, log, TEST_LIMIT_S, SANITIZER_ENV)
    units = list(parse_meson(results))
    if not units:
        units.append(Unit(f"{name}: no tests were run", "failed", read(log), log))
    elif code != 0 and all(u.outcome != "failed" for u in units):
        units.append(Unit(f"meson test {name} ended with {code}", "failed", read(log), log))
    return units


def parse_junit(path, log):
    """Returns the units of a JUnit file; a test that fails twice (call, teardown) is one."""
    units = {}
    for case in ElementTree.parse(path).iter("testcase"):
        name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        bad = [c for c in case if c.tag in ("failure", "error")]
        outcome = "failed" if bad else "passed" if case.find("skipped") is None else "skipped"
        texts = [c.text or c.get("message", "") for c in bad]
        texts += [c.text or "" for c in case if c.tag in ("system-out", "system-err")]
        output = "\n".join(filter(str.strip, texts))
        if name in units and units[name].outcome == "failed":
            outcome, output = "failed", f"{units[name].output}\n{output}"
        units[name] = Unit(name, outcome, output, log)
    return list(units.values())


def run_pytest(log, expression, aarch64):
    """Runs the pytest tests; aarch64 says whether there is a build of it."""
    results = os.path.join(LOGS, "pytest.xml")
    if os.path.exists(results):
        os.remove(results)
    command = [PYTHON, "-m", "pytest", "tests", "-v", "--color=no", "-p", "no:cacheprovider"]
    command += [f"--junitxml={results}", "-o", "junit_logging=out-err"]
    command += ["-o", "junit_log_passing_tests=false", "-o", "faulthandler_timeout=300"]
    if expression:
        command += ["-k", expression]
    env = {"LOCKSTEP_BUILD": os.path.join(ROOT, "build-test"), "PYTHONDONTWRITEBYTECODE": "1"}
    env["LOCKSTEP_BUILD_AARCH64"] = os.path.join(ROOT, AARCH64) if aarch64 else ""
    # Only on SIGINT does pytest run the teardowns, which end the workers that a test started.
    code = execute(command, log, TEST_LIMIT_S, env, polite=signal.SIGINT)
    units = parse_junit(results, log) if os.path.exists(results) else []
    nothing_matched = code == 5 and expression
    if code != 0 and not nothing_matched and all(u.outcome != "failed" for u in units):
        units.append(Unit(f"pytest ended with {code}", "failed", read(log), log))
    return units


class Session:
    """Runs stages one after the other, says how each went, and keeps the count."""

    def __init__(self):
        self.count = collections.Counter()
        self.stages = 0

    def stage(self, name, function, *args):
        """Runs function(log, *args); returns whether all of its units passed."""
        self.stages += 1
        log = os.path.join(LOGS, f"{self.stages:02d}-{re.sub('[^a-z-]+', '-', name.lower())}.log")
        open(log, "w", encoding="utf-8").close()
        print(f"{name:<28}", end="", flush=True)
        start = time.monotonic()
        units = function(log, *args)
        seconds = time.monotonic() - start

        count = collections.Counter(unit.outcome for unit in units)
        self.count += count
        words = [f"{count['passed']} ok" if units else "done"]
        if count["failed"]:
            words.append(f"{count['failed']} FAILED")
        if count["skipped"]:
            words.append(f"{count['skipped']} skipped")
        print(f"{', '.join(words):<28}{seconds:7.1f} s", flush=True)
        for unit in units:
            if unit.outcome == "failed":
                more = f" (more in {os.path.relpath(unit.log, ROOT)})" if unit.log else ""
                print(f"--- FAILED: {unit.name}{more}\n{tail(unit.output)}", flush=True)
        return not count["failed"]


def run_aarch64(session, options):
    """What computes, built for aarch64 and run under emulation; returns whether it was built."""
    setup, suites = ["scripts/cross-aarch64"], ["device", "graph", "nn", "optim"]
    targets = ["lockstep", "tests/programs/libemulated.so"]
    if not session.stage(AARCH64, run_build, AARCH64, options, setup, targets, suites):
        return False
    # The long one compares whole models with numbers of PyTorch; tests/test_aarch64.py compares
    # them with this machine, to the bit.
    select = [word for suite in suites for word in ("--suite", suite)] + ["--no-suite", "long"]
    session.stage("unit tests, aarch64", run_meson, AARCH64, "aarch64", select, 8)
    return True


def run_all(session, args):
    for script in ("check-layers", "check-style"):
        session.stage(script, run_check, script)
        session.stage(script + " selftest", run_check, script, "--selftest")

    debug = ["--buildtype=debugoptimized", "-Dtests=enabled"]
    built = session.stage("build-test", run_build, "build-test", [*debug, "-Dwerror=true"])
    if built:
        session.stage("unit tests", run_meson, "build-test", "unit", ["--no-suite", "fuzz"])

    if not args.quick:
        asan = [*debug, "-Db_sanitize=address,undefined", "-Db_lundef=false"]
        if session.stage("build-asan", run_build, "build-asan", asan):
            session.stage("unit tests, ASan+UBSan", run_meson, "build-asan", "asan", (), 4)
        tsan = [*debug, "-Db_sanitize=thread", "-Db_lundef=false"]
        if session.stage("build-tsan", run_build, "build-tsan", tsan):
            # TSan of GCC 12 cannot live with the address randomisation of newer kernels.
            fixed = ["setarch", "-R"]
            if subprocess.run([*fixed, "true"], capture_output=True, check=False).returncode:
                fixed = []
            select = ["--suite", "threads"]
            session.stage("threads, TSan", run_meson, "build-tsan", "tsan", select, 8, fixed)

    crosses = not args.quick and os.uname().machine == "x86_64"
    aarch64 = crosses and run_aarch64(session, [*debug, "-Dwerror=true"])
    if built:
        session.stage("pytest", run_pytest, args.k, aarch64)
        session.stage("fuzz corpora", run_meson, "build-test", "fuzz", ["--suite", "fuzz"])
    else:
        print("not run, for want of build-test/: unit tests, pytest, fuzz corpora")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("-k")
    args = parser.parse_args()

    os.makedirs(LOGS, exist_ok=True)
    session, code = Session(), 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    try:
        with open(os.path.join(LOGS, "lock"), "w", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("waiting for another scripts/test in this folder", flush=True)
                fcntl.flock(lock, fcntl.LOCK_EX)
            run_all(session, args)
    except Interrupted as interrupted:
        code = 128 + interrupted.number
        print(f"\ninterrupted by {interrupted}")

    passed, failed = session.count["passed"], session.count["failed"]
    if failed or not passed:
        code = code or 1
    print(f"{passed} passed, {failed} failed", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
