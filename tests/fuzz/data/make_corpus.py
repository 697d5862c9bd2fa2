#!/usr/bin/env python3
"""Writes the seed corpus of fuzz_data: small files of each kind, good and bad."""
import gzip
import pathlib
import struct

IDX, PACKED, TOKENS, WIDE, TEXT, CRITEO, CIFAR = (bytes([k]) for k in range(7))


def images(count=3, height=2, width=3, magic=0x803):
    head = struct.pack(">IIII", magic, count, height, width)
    return head + bytes(i % 256 for i in range(count * height * width))


def llmc(magic, version, count, width, tokens=40):
    head = struct.pack("<III", magic, version, count).ljust(1024, b"\0")
    return head + b"".join((i * 7 % 300).to_bytes(width, "little") for i in range(tokens))


def line(i, end="\n", numbers=13, categories=26):
    cells = [str(i % 2)] + [str(i * k - 2) if (i + k) % 4 else "" for k in range(numbers)]
    cells += [f"{i * 7919 + k:x}" if (i + k) % 5 else "" for k in range(categories)]
    return "\t".join(cells).encode() + end.encode()


def lines(count, **how):
    return b"".join(line(i, **how) for i in range(count))


SEEDS = {
    "empty": b"",
    "kind-only": IDX,
    "idx": IDX + images(),
    "idx-many": IDX + images(200, 1, 1),
    "idx-magic": IDX + images(magic=0x801),
    "idx-claims": IDX + images()[:4] + b"\xff\xff\xff\xff" + images()[8:],
    "idx-flat": IDX + images(height=0),
    "idx-cut": IDX + images()[:-1],
    "gz": PACKED + gzip.compress(images(), mtime=0),
    "gz-cut": PACKED + gzip.compress(images(), mtime=0)[:-5],
    "gz-plain": PACKED + images(),
    "gz-claims": PACKED + gzip.compress(images()[:7] + b"\xff" + images()[8:], mtime=0),
    "tokens": TOKENS + bytes(i % 2 * (i // 2 % 2) for i in range(120)),
    "tokens-odd": TOKENS + bytes(61),
    "tokens-large": TOKENS + b"\xff" * 80,
    "tokens-few": TOKENS + bytes(4),
    "llmc": TOKENS + llmc(20240520, 1, 40, 2),
    "llmc-wide": TOKENS + llmc(20240801, 7, 40, 4),
    "llmc-version": TOKENS + llmc(20240520, 7, 40, 2),
    "llmc-claims": TOKENS + llmc(20240520, 1, 0xFFFFFFFF, 2),
    "llmc-cut": TOKENS + llmc(20240520, 1, 40, 2)[:900],
    "llmc-eval": TOKENS + llmc(20240522, 1, 40, 2),
    "wide": WIDE + b"".join(struct.pack("<I", i) for i in range(50)),
    "wide-large": WIDE + b"\xff" * 160,
    "text": TEXT + b"to be, or not to be, that is the question\n" * 4,
    "text-utf8": TEXT + "naïve café – 20 € 😀\n".encode() * 120,
    "text-latin": TEXT + b"na\xefve",
    "text-zero": TEXT + b"abc\0def",
    "criteo": CRITEO + lines(40),
    "criteo-crlf": CRITEO + lines(5, end="\r\n"),
    "criteo-39": CRITEO + lines(5, categories=25),
    "criteo-41": CRITEO + lines(5, categories=27),
    "criteo-blank": CRITEO + lines(3) + b"\n" + lines(3),
    "criteo-one": CRITEO + lines(1),
    "criteo-no-end": CRITEO + lines(4)[:-1],
    "cifar": CIFAR + b"".join(bytes([i]) + bytes(range(256)) * 12 for i in range(3)),
    "cifar-label": CIFAR + b"".join(bytes([i + 9]) + bytes(3072) for i in range(3)),
    "cifar-cut": CIFAR + bytes(3072),
}

folder = pathlib.Path(__file__).parent / "corpus"
folder.mkdir(exist_ok=True)
for name, data in SEEDS.items():
    (folder / name).write_bytes(data)
print(f"{len(SEEDS)} files in {folder}")
