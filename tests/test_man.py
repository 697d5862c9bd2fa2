"""The manual page: it has every command, option and variable, no others, and is sound."""

import json
import re
import shutil
import subprocess

import pytest
from conftest import ROOT

PAGE = ROOT / "docs" / "man" / "lockstep.1"
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*|-[a-z])(?![\w-])")


def plain(text):
    """Without the marks of troff."""
    text = re.sub(r"\\f(\[\w*\]|.)", "", text.replace("\\-", "-").replace("\\ ", " "))
    return text.replace('"', "")


def subsections(text):
    """{"train": its text, "bench train": …} of the section COMMANDS."""
    commands = re.search(r"^\.SH COMMANDS\n(.*?)^\.SH", text, re.M | re.S)[1]
    parts = re.split(r"^\.SS lockstep (.*)\n", commands, flags=re.M)[1:]
    names = (re.match(r"[a-z ]*[a-z]", plain(title))[0] for title in parts[::2])
    return dict(zip(names, parts[1::2]))


def page_options(text):
    """The options that a subsection lists: those in the tags of its paragraphs."""
    lines = text.splitlines()
    tags = (plain(lines[i + 1]) for i in range(len(lines) - 1) if lines[i] == ".TP")
    return {option for tag in tags for option in OPTION.findall(tag)}


def help_options(text):
    """The options that a help text lists: those of the lines that begin with one, remarks aside."""
    text = re.sub(r"\([^()]*\)", "", text)
    lines = (line for line in text.splitlines() if re.match(r" +(-\w, )?--", line))
    return {option for line in lines for option in OPTION.findall(line)}


@pytest.fixture
def help_of(lockstep, leftovers):
    def run(*words):
        done = leftovers.run(lockstep, *words, "--help")
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def listed(help_of):
    table = help_of().partition("commands:\n")[2]
    return re.findall(r"^  (\w+) ", table, re.M)


def test_commands(help_of):
    """Those that help lists, and the two faces of bench and chaos."""
    commands = listed(help_of)
    assert {"train", "run", "bench", "info"} <= set(commands)
    found = set(subsections(PAGE.read_text()))
    assert {name.split()[0] for name in found} == set(commands)


@pytest.mark.parametrize(
    "command",
    ["train", "status", "eval", "generate", "predict", "hash", "run", "chaos", "bench",
     "bench train", "info"],
)
def test_options(help_of, command):
    """In the subsection of a command: the options that its help lists, and no others."""
    parts = subsections(PAGE.read_text())
    name = {"chaos": "chaos train"}.get(command, command)
    expected = help_options(help_of(*command.split()))
    assert expected
    assert page_options(parts[name]) == expected


def test_every_command_is_looked_at(help_of):
    """A new command needs its options checked above; these have none of their own."""
    mark = test_options.pytestmark[0].args[1]
    assert {c.split()[0] for c in mark} | {"join", "help", "version"} == set(listed(help_of))
    assert help_of("join") == help_of("train")


def test_environment(lockstep, leftovers):
    """The variables that the library reads, and those that ranks find."""
    done = leftovers.run(lockstep, "info", "--json")
    variables = {entry["name"] for entry in json.loads(done.stdout)["environment"]}
    assert "LOCKSTEP_ISA" in variables
    section = re.search(r"^\.SH ENVIRONMENT\n(.*?)^\.SH", PAGE.read_text(), re.M | re.S)[1]
    ranks = {"LOCKSTEP_RANK", "LOCKSTEP_SIZE", "LOCKSTEP_LOCAL_RANK"}
    assert set(re.findall(r"LOCKSTEP_\w+", section)) == variables | ranks


def test_no_warnings():
    """groff has nothing to say, and the page comes out whole."""
    if not shutil.which("groff"):
        pytest.skip("no groff")
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-P-cbou", PAGE], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    for title in ("NAME", "SYNOPSIS", "COMMANDS", "ENVIRONMENT", "FILES", "EXIT STATUS"):
        assert title in done.stdout
