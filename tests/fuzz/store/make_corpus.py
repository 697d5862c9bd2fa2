#!/usr/bin/env python3
"""Writes the seed corpus of the store fuzzer: tests/fuzz/store/make_corpus.py [FOLDER].

The script language is explained in fuzz_store.c, the frames in src/store/protocol.h. The output
depends on nothing else; run it again after a change of the protocol.
"""

import os
import struct
import sys

GET, PUT, CAS, REMOVE, LEASE, KEEP, REVOKE, WATCH, WAIT = range(1, 10)
ANSWER, EVENT = 32, 33


def frame(op, key=b"", value=b"", id=1, status=0, version=0, number=0):
    body = struct.pack("<IBBHQQ", id, op, status, len(key), version, number) + key + value
    return struct.pack("<I", len(body)) + body


def client(session, *frames):
    """The frames come from one client, in one piece."""
    data = b"".join(frames)
    assert len(data) < 255
    return bytes([session, len(data)]) + data


def split(session, size, data):
    """The bytes come in pieces."""
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(bytes([session, len(p)]) + p for p in pieces)


def tick(tenths):
    return bytes([4 << 2, tenths])


def reopen(session):
    return bytes([5 << 2 | session])


def read(session):
    return bytes([6 << 2 | session])


def server(*frames):
    return bytes([7 << 2]) + b"".join(frames)


LEASED = client(0, frame(LEASE, number=500), frame(PUT, b"r/0", b"up", id=2, number=1))

CORPUS = {
    "empty": b"",
    "get-absent": client(0, frame(GET, b"k")),
    "put-get": client(0, frame(PUT, b"k", b"v"), frame(GET, b"k", id=2)) + read(0),
    "put-empty-value": client(0, frame(PUT, b"k")),
    "put-twice-remove": client(0, frame(PUT, b"k", b"1"), frame(PUT, b"k", b"22", id=2),
                               frame(REMOVE, b"k", id=3), frame(REMOVE, b"k", id=4)),
    "cas-absent": client(0, frame(CAS, b"k", b"1")) + client(1, frame(CAS, b"k", b"2")),
    "cas-chain": client(0, frame(CAS, b"k", b"1"), frame(CAS, b"k", b"2", version=1, id=2),
                        frame(CAS, b"k", b"3", version=1, id=3)),
    "lease-expires": LEASED + tick(4) + client(0, frame(KEEP, id=3, number=1)) + tick(4) + tick(9),
    "lease-revoked": LEASED + client(1, frame(REVOKE, number=1)) + client(0, frame(KEEP, number=1)),
    "lease-disowned": LEASED + client(1, frame(PUT, b"r/1", b"up", number=1)) + reopen(0),
    "lease-moved": LEASED + client(1, frame(LEASE, number=9000), frame(PUT, b"r/0", number=2))
    + reopen(0) + reopen(1),
    "lease-unknown": client(0, frame(PUT, b"k", number=77), frame(KEEP, number=1 << 63)),
    "watch": client(0, frame(PUT, b"a/1", b"x"), frame(PUT, b"b", b"y"))
    + client(1, frame(WATCH, b"a/")) + client(0, frame(PUT, b"a/2", b"z", id=3)) + read(1),
    "watch-overlap": client(1, frame(WATCH, b"a/b"), frame(WATCH, b"a", id=2), frame(WATCH, id=3))
    + client(0, frame(PUT, b"a/b/c", b"x")) + read(1),
    "wait-then-put": client(1, frame(WAIT, b"k", number=5000)) + client(0, frame(PUT, b"k", b"v"))
    + read(1),
    "wait-timeout": client(1, frame(WAIT, b"k", number=500)) + tick(6) + read(1),
    "wait-replaced": client(1, frame(WAIT, b"k", number=500), frame(WAIT, b"l", id=2, number=9))
    + client(0, frame(PUT, b"l", b"v")) + tick(9) + read(1),
    "wait-closed": client(1, frame(WAIT, b"k", number=500)) + reopen(1)
    + client(0, frame(PUT, b"k")),
    "pieces-of-1": split(0, 1, frame(PUT, b"k", b"v") + frame(GET, b"k", id=2)),
    "pieces-of-7": split(2, 7, frame(PUT, b"some/key", b"some value") + frame(WATCH, b"some")),
    "longest-key": client(0, frame(PUT, b"k" * 200, b"v")),
    "too-long": client(0, struct.pack("<I", 24 + 200 + (1 << 20) + 1)),
    "endless": client(0, b"\xff\xff\xff\xff"),
    "too-short": client(0, struct.pack("<I", 23) + b"\0" * 23),
    "bad-op": client(0, frame(ANSWER)) + client(1, frame(77, b"k")),
    "bad-key": client(0, frame(GET, b"a b")) + client(1, frame(GET, b"\0")),
    "bad-fields": client(0, frame(GET, b"k", version=1)) + client(1, frame(GET, b"k", b"value"))
    + client(2, frame(GET, b"k", status=3)) + client(3, frame(GET, b"k", id=0)),
    "four-clients": b"".join(client(s, frame(LEASE, number=900), frame(WATCH, b"r/", id=2),
                                    frame(PUT, b"r/%d" % s, b"here", id=3, number=s + 1))
                             for s in range(4)) + reopen(2) + tick(10) + read(0),
    "server-says": server(frame(ANSWER, value=b"v", version=3), frame(ANSWER, status=4, version=9),
                          frame(EVENT, b"k", b"v", id=0, version=5),
                          frame(EVENT, b"k", id=0, version=6, number=1)),
    "server-bad": server(frame(EVENT, b"k", b"v", id=0, version=5, number=1)),
    "to-the-end": bytes([0, 255]) + frame(PUT, b"k", b"v" * 300) + frame(GET, b"k"),
}


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
    folder = sys.argv[1] if len(sys.argv) > 1 else folder
    os.makedirs(folder, exist_ok=True)
    for name, data in CORPUS.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)
    print(f"{len(CORPUS)} files in {folder}")


if __name__ == "__main__":
    main()
