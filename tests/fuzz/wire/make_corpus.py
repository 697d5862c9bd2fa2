#!/usr/bin/env python3
"""Writes the seed corpus of fuzz_wire: streams of messages, one file each."""
import pathlib
import struct
import zlib

DATA, REF, ACK, ABORT, STATUS, GOODBYE = range(1, 7)


def message(
    kind, comm=1, tag=0, seq=0, payload=b"", call=(0,) * 6, flags=0, check=0, part=0, whole=0
):
    """A header as src/transport/wire.h describes it, with its payload."""
    head = struct.pack("<IBBBBII", 0x314D534C, kind, flags, part, 0, comm, tag)
    head += struct.pack("<QQBBBBiQIQ", seq, len(payload), *call, check, whole)
    return head + struct.pack("<I", zlib.crc32(head)) + payload


def checked(**how):
    return message(DATA, flags=1, check=zlib.crc32(how["payload"]), **how)


def part(number, whole=16, size=8, seq=2):
    return message(DATA, seq=seq, part=number, whole=whole, payload=bytes([number]) * size)


SEEDS = {
    "empty": b"",
    "matched": message(DATA, seq=1, payload=bytes(8)) + message(DATA, seq=2, payload=bytes(16)),
    "kept": message(DATA, seq=9, payload=b"x" * 300) + message(DATA, comm=7, payload=b"y"),
    "refused": message(DATA, seq=13, payload=b"z" * 5000),
    "differs": message(DATA, seq=1, payload=bytes(9)),
    "checked": checked(seq=1, payload=b"12345678") + checked(seq=5, payload=b"abc"),
    "reference": message(REF, seq=1, payload=struct.pack("<QQ", 0, 8)),
    "outside": message(REF, seq=1, payload=struct.pack("<QQ", 1 << 40, 8)),
    "acknowledged": message(ACK, seq=1),
    "abort": message(ABORT, payload=b"-21 allreduce: rank 1 is missing"),
    "status": message(STATUS, seq=4, payload=b"?") + message(STATUS, seq=5),
    "goodbye": message(GOODBYE),
    "cut": message(DATA, seq=2, payload=bytes(16))[:70],
    "huge": message(DATA, seq=2)[:24] + b"\xff" * 40,
    "parts": part(0) + part(1),
    "parts-turned": part(1) + part(0),
    "parts-differ": part(0, 17) + part(1, 17, 9),
    "parts-unasked": part(0, seq=1) + part(1, seq=7),
    "parts-beyond": part(15) + part(3, 99, 0),
    "parts-wrong": part(1, 8),
    "many": b"".join(
        message(DATA, seq=i % 4, tag=i % 2, payload=bytes(8 * (i % 4))) for i in range(99)
    ),
}
# How a stream is used: see the head of fuzz_wire.c. Raw, put right, and everything at once.
MODES = {"": 0, "-right": 3, "-deaf": 4 | 8 | 3, "-forgotten": 16 | 3, "-late": 32 | 3}
LANES = 64

if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent / "corpus"
    folder.mkdir(exist_ok=True)
    for name, data in SEEDS.items():
        for suffix, mode in MODES.items():
            (folder / (name + suffix)).write_bytes(bytes([mode]) + data)
            (folder / (name + suffix + "-lanes")).write_bytes(bytes([mode | LANES]) + data)
