"""meson install: what it puts where, and that programs are built and started with nothing else."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import BUILD, ROOT, SANITIZED, SLOWER, TIMEOUT

MATH = "-lm"  # of the examples, not of the library
INSTRUMENTED = "-fsanitize=address" if SANITIZED else ""  # as a library so built asks for


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The root of a tree that meson install has filled."""
    if not (BUILD / "lockstep").exists():
        pytest.fail(f"{BUILD}/lockstep does not exist: build it, or set LOCKSTEP_BUILD")
    root = tmp_path_factory.mktemp("installed")
    command = ["meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", root]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT * SLOWER)
    assert done.returncode == 0, done.stdout + done.stderr
    return root


def only(root, pattern):
    found = list(root.rglob(pattern))
    assert len(found) == 1, f"{pattern}: {found}"
    return found[0]


@pytest.fixture
def user(installed):
    """The environment of a user who has set the usual variables for that tree."""
    libraries = only(installed, "liblockstep.so").parent
    return {
        "PATH": f"{only(installed, 'bin')}:{os.environ['PATH']}",
        "PKG_CONFIG_PATH": str(only(installed, "lockstep.pc").parent),
        "PKG_CONFIG_SYSROOT_DIR": str(installed),
        "LD_LIBRARY_PATH": str(libraries),
    }


def shell(leftovers, user, folder, line):
    done = leftovers.run("sh", "-ec", line, env=user, cwd=folder)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_what_is_installed(installed):
    """The public headers, the library, its .pc, the command and its page; nothing else."""
    version = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text())[1]
    names = {str(path.relative_to(installed)) for path in installed.rglob("*") if not path.is_dir()}
    prefix = only(installed, "bin").relative_to(installed).parent
    library = only(installed, "liblockstep.so").relative_to(installed).parent
    headers = {path.name for path in (ROOT / "include" / "lockstep").glob("*.h")}
    assert {"lockstep.h", "graph.h", "coll.h"} <= headers
    expected = {prefix / "include" / "lockstep" / name for name in headers}
    expected |= {library / f"liblockstep.so{tail}" for tail in ("", ".0", f".{version}")}
    expected |= {
        library / "pkgconfig" / "lockstep.pc",
        prefix / "bin" / "lockstep",
        prefix / "share" / "man" / "man1" / "lockstep.1",
    }
    assert names == {str(path) for path in expected}


def test_nothing_hidden_is_exported(installed):
    """The library offers what the headers declare."""
    done = subprocess.run(
        ["nm", "-D", "--defined-only", only(installed, "liblockstep.so")],
        capture_output=True, text=True, check=True,
    )
    exported = {line.split()[-1].split("@")[0] for line in done.stdout.splitlines()}
    text = "\n".join(path.read_text() for path in only(installed, "lockstep.h").parent.glob("*.h"))
    declared = set(re.findall(r"\b(ls_\w+)\(", text))
    assert exported and exported <= declared, sorted(exported - declared)


def test_the_programs_of_the_readme(installed, user, leftovers, tmp_path):
    """The C program of README.md, by the commands that stand below it."""
    readme = (ROOT / "README.md").read_text()
    program = re.search(r"```c\n(.*?)```", readme, re.S)[1]
    build, run = re.search(r"```\n(cc .*)\n(lockstep run .*)\n```", readme).groups()
    (tmp_path / "program.c").write_text(program)
    shell(leftovers, user, tmp_path, f"{build} -Wall -Wextra -Werror {INSTRUMENTED}")
    linked = shell(leftovers, user, tmp_path, "ldd program")
    assert str(only(installed, "liblockstep.so.0").parent) in linked
    assert shell(leftovers, user, tmp_path, "command -v lockstep").startswith(str(installed))
    shell(leftovers, user, tmp_path, re.sub(r"-n \d+", "-n 2", run))


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.c*")), ids=lambda p: p.name)
def test_examples(user, leftovers, tmp_path, path):
    """Each compiles without a warning, and runs on two ranks (train and custom_layer: alone)."""
    compiler = "c++ -std=c++17" if path.suffix == ".cpp" else "cc"
    if not shutil.which(compiler.split()[0]):
        pytest.skip(f"no {compiler}")
    flags = "$(pkg-config --cflags --libs lockstep)"
    shell(leftovers, user, tmp_path,
          f"{compiler} -O2 -Wall -Wextra -Werror {INSTRUMENTED} {path} {flags} {MATH} -o program")
    alone = path.name in ("train.c", "custom_layer.c")
    shell(leftovers, user, tmp_path, "./program" if alone else "lockstep run -n 2 -- ./program")


def test_version(installed, user, leftovers, tmp_path):
    """pkg-config, the command and the headers say the same."""
    version = shell(leftovers, user, tmp_path, "pkg-config --modversion lockstep").strip()
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert version in shell(leftovers, user, tmp_path, "lockstep version")
    header = pathlib.Path(only(installed, "version.h")).read_text()
    assert version == ".".join(
        re.search(rf"LS_VERSION_{part}\s+(\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH"))
