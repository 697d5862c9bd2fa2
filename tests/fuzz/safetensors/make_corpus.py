#!/usr/bin/env python3
"""Writes the seed corpus of fuzz_safetensors: small files, good and bad, one each."""
import json
import pathlib
import struct

SIZES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2,
         "U16": 2, "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1}


def pack(header, data=b""):
    """A file of this header, a text or something to be written as JSON, and data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype, shape, begin):
    count = 1
    for d in shape:
        count *= d
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + count * SIZES[dtype]]}


def one(dtype="F32", shape=(2, 3), **changes):
    entry = tensor(dtype, list(shape), 0)
    size = entry["data_offsets"][1]
    entry.update(changes)
    return pack({"w": entry}, bytes(range(size % 251)) + bytes(size - size % 251))


ALL, END = {}, 0
for NAME in SIZES:
    ALL[NAME.lower()] = tensor(NAME, [3], END)
    END = ALL[NAME.lower()]["data_offsets"][1]

SEEDS = {
    "empty": b"",
    "length-only": bytes(8),
    "no-tensors": pack({}),
    "metadata": pack({"__metadata__": {"format": "pt", "a": ""}}),
    "metadata-bad": pack({"__metadata__": {"format": 1}}),
    "one": one(),
    "scalar": one(shape=()),
    "nothing-in-it": one(shape=(0, 5)),
    "all-types": pack(ALL, bytes(i % 256 for i in range(END))),
    "unpadded": struct.pack("<Q", 2) + b"{}",
    "out-of-order": pack({"b": tensor("U8", [3], 2), "a": tensor("U8", [2], 0)}, b"aabbb"),
    "escapes": pack({"\u00e9\n\"\\": tensor("U8", [1], 0)}, b"x"),
    "overlap": pack({"a": tensor("U8", [4], 0), "b": tensor("U8", [4], 2)}, bytes(6)),
    "hole": pack({"a": tensor("U8", [4], 0), "b": tensor("U8", [4], 5)}, bytes(9)),
    "beyond": one(data_offsets=[0, 1 << 40]),
    "backwards": one(data_offsets=[24, 0]),
    "negative": one(data_offsets=[-24, 0]),
    "product-overflow": one(shape=(0,)).replace(b"[0]", b"[%d,%d]" % (1 << 32, 1 << 32)),
    "huge-number": one(shape=(7,)).replace(b"[7]", b"[99999999999999999999]"),
    "float-shape": one(shape=(7,)).replace(b"[7]", b"[7.0]"),
    "dtype-unknown": one(dtype="F32").replace(b"F32", b"F33"),
    "duplicate": pack(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                      b'"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', b"xy"),
    "deep": pack(b"[" * 3000 + b"]" * 3000),
    "deep-shape": one().replace(b"[2, 3]", b"[[2],3]"),
    "huge-length": b"\xff" * 8 + b"{}",
    "trailing": one() + b"more",
    "gpt": pack({"h.0.attn.c_attn.weight": tensor("F16", [4, 12], 0),
                 "h.0.attn.bias": tensor("U8", [1, 1, 2, 2], 96),
                 "wte.weight": tensor("BF16", [5, 4], 100)}, bytes(140)),
}

if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent / "corpus"
    folder.mkdir(exist_ok=True)
    for name, data in SEEDS.items():
        (folder / name).write_bytes(data)
    print(f"{len(SEEDS)} files in {folder}")
