"""What check-layers and check-style share: finding C sources, looking past comments and strings."""

import os
import re

C_SUFFIXES = (".c", ".h", ".inc", ".cc", ".cpp", ".hpp", ".cu", ".cuh", ".cl")

# One token at a time, so that a quote inside a comment, or the reverse, is not taken for itself.
_TOKEN = re.compile(
    r"//(?:\\\n|[^\n])*"  # line comment, also when continued
    r"|/\*.*?(?:\*/|\Z)"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
_INK = re.compile(r"[^\n]")


def blank(text, strings=True):
    """Returns text with comments, and unless told otherwise strings, turned into spaces.

    Lines and columns stay where they were.
    """

    def repl(match):
        token = match.group()
        return _INK.sub(" ", token) if token[0] == "/" or strings else token

    return _TOKEN.sub(repl, text)


def read(path):
    """Returns the text of a file; bytes that are not UTF-8 come as U+FFFD."""
    with open(path, encoding="utf-8", errors="replace", newline="") as f:
        return f.read()


def walk(root, *tops):
    """Yields the C sources below the folders tops of root, relative to root, in sorted order."""
    for top in tops:
        for folder, subfolders, files in os.walk(os.path.join(root, top)):
            subfolders.sort()
            for name in sorted(files):
                if name.endswith(C_SUFFIXES) and not name.startswith("."):
                    yield os.path.relpath(os.path.join(folder, name), root)


def plant(root, files):
    """Writes files, a dict of relative path to text, below root (for the self-tests).

    A lone surrogate such as U+DCE9 is written as the byte that it stands for, E9.
    """
    for path, text in files.items():
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8", errors="surrogateescape", newline="") as f:
            f.write(text)
