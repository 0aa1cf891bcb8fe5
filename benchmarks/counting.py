"""Models that count: how fast, and how good beside compressors and beside IRSTLM.

    python benchmarks/counting.py [--data DIR] [--rows speed,dna,bytes,words] [--json FILE]

speed   n-grams of tiny Shakespeare, repeated with a hundredth of its characters replaced at random,
        counted from a memory map: symbols per second, growth of time over doublings, peak memory of
        the process. Processor seconds stand beside: on a busy machine they are the measure.
dna     E. coli K-12 as running text, 90 / 5 / 5 %: bits per base of `map` of every order.
bytes   bible and world192, 90 / 5 / 5 %: bits per byte of the test part by `map` and `kneser-ney`,
        the order chosen on the validation part; beside them gzip, bzip2 and xz, which cannot be
        given the rest as context and so compress the whole file.
words   WikiText-2, order 5: perplexity of `kneser-ney`, and of IRSTLM (program `tlm`) where it is
        installed. IRSTLM refuses a vocabulary without rare words, so both are also given 4,000
        made-up words, each on a line of its own; it gives single words no discount but a share, as
        large as the vocabulary, to unknown ones (Witten & Bell 1991), so ours is measured that way
        too; `<unk>` is renamed, since IRSTLM takes it for no word.

With --quick everything is small, runs once, and is held to no bar.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import lzma
import math
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.shards import Shard
from regard.models.ngrams import (
    CHUNK,
    DirichletNGram,
    DirichletNGramConfig,
    KneserNey,
    KneserNeyConfig,
    count,
    read_chunks,
)

START, END, FIRST = 1, 2, 4  # ids of <S>, <E> and the first symbol
SPEED, GROWTH, MEMORY, BASES, AGREEMENT = 20e6, 1.05, 2 << 30, 1.96, 0.005  # the bars
UNKNOWN = "UNKNOWN"
IRSTLM = Path("/usr/lib/irstlm/bin")  # where Debian puts its programs


def shard(ids: np.ndarray, offsets: np.ndarray, vocab_size: int) -> Shard:
    """Ids with their markers, as a shard in memory."""
    many = len(offsets) - 1
    return Shard(
        path=Path("memory"), kind="text" if many == 1 else "records", ids=ids, offsets=offsets,
        vocab_size=vocab_size, records=many, tokens=len(ids), symbols=len(ids) - many, bytes=0,
    )  # fmt: skip


def stream(symbols: np.ndarray, vocab_size: int) -> Shard:
    """Running text."""
    ids = np.concatenate([[START], symbols, [END]]).astype(symbols.dtype)
    return shard(ids, np.array([0, len(ids)]), vocab_size)


def parts(data: bytes, keep: float) -> tuple[list[Shard], int]:
    """The first 90, then 5 and 5 % of some bytes as running text, and their vocabulary's size."""
    raw = np.frombuffer(data, np.uint8)[: int(len(data) * keep)]
    kinds, symbols = np.unique(raw, return_inverse=True)
    size = len(kinds) + FIRST
    cuts = [int(len(raw) * share) for share in (0.9, 0.95)]
    pieces_of = np.split((symbols + FIRST).astype(np.uint16), cuts)
    return [stream(piece, size) for piece in pieces_of], size


def bits(model: Any, on: Shard) -> float:
    """Bits per symbol of a shard, every symbol scored once."""
    total, many = 0.0, 0
    for ids, begins, skip in read_chunks(on, 64, CHUNK):
        tokens = torch.from_numpy(ids.astype(np.int64))
        first = torch.zeros_like(tokens)
        first[torch.from_numpy(begins)] = 1
        kept = (torch.arange(1, len(ids)) >= skip) & (first[1:] == 0)
        logs = model.score(tokens[None, :-1], tokens[None, 1:], first.cumsum(0)[None, :-1])[0]
        total -= float(logs[kept].double().sum())
        many += int(kept.sum())
    return total / many / math.log(2)


# --- speed ---------------------------------------------------------------------------------------


def characters(path: Path, size: int) -> tuple[np.ndarray, int]:
    """So many ids of tiny Shakespeare over and over, a hundredth of them replaced at random."""
    kinds, symbols = np.unique(np.frombuffer(path.read_bytes(), np.uint8), return_inverse=True)
    ids = np.resize((symbols + FIRST).astype(np.uint8), size)
    source, vocab_size = np.random.default_rng(0), len(kinds) + FIRST
    ids[source.integers(0, size, size // 100)] = source.integers(FIRST, vocab_size, size // 100)
    ids[0], ids[-1] = START, END
    return ids, vocab_size


def count_once(file: str, size: int, vocab_size: int, order: int) -> None:
    """In a process of its own: count, and print what it took."""
    ids = np.memmap(file, np.uint8, mode="r")
    for warm in (ids[:100_000], ids[:size]):  # compiling is not counting
        wall, processor = time.perf_counter(), time.process_time()
        table = count(shard(warm, np.array([0, len(warm)]), vocab_size), order)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    found = {"symbols": size, "seconds": wall, "processor_seconds": processor}
    print(json.dumps(found | {"peak_bytes": memory, "ngrams": len(table.codes)}))


def speed(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Counting, over doublings of the data."""
    largest = 2_000_000 if args.quick else 100_000_000
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ids.bin"
        ids, vocab_size = characters(args.data / "tinyshakespeare" / "input.txt", largest)
        ids.tofile(file)
        for order in (2, 5):
            runs = []
            for size in (largest // 8, largest // 4, largest // 2, largest):
                words = [str(file), str(size), str(vocab_size), str(order)]
                command = [sys.executable, __file__, "--once", *words]
                tries = [
                    json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
                    for _ in range(1 if args.quick else 3)
                ]
                runs.append(min(tries, key=lambda run: run["seconds"]))
            logs = [np.log([run[key] for run in runs]) for key in ("symbols", "processor_seconds")]
            last, growth = runs[-1], float(np.polyfit(*logs, 1)[0])
            rows.append(
                {
                    "row": f"counting, order {order}", "runs": runs, "exponent": growth,
                    "symbols_per_second": largest / last["seconds"],
                    "symbols_per_processor_second": largest / last["processor_seconds"],
                    "peak_bytes": last["peak_bytes"],
                    "holds": largest >= SPEED * last["seconds"] and growth <= GROWTH
                    and last["peak_bytes"] <= MEMORY,
                }
            )  # fmt: skip
            print(
                f"counting, order {order}: {largest / last['seconds'] / 1e6:6.1f} M symbols/s "
                f"({largest / last['processor_seconds'] / 1e6:.1f} M per processor second), time "
                f"grows as n^{growth:.2f}, {last['ngrams']:,} n-grams, "
                f"{last['peak_bytes'] / 2**20:,.0f} MB"
            )
    return rows


# --- quality -------------------------------------------------------------------------------------


def orders_of_map(train: Shard, valid: Shard, test: Shard, longest: int) -> dict[str, Any]:
    """Bits per symbol of `map` of every order, and which is best on the validation part."""
    model = DirichletNGram(train.vocab_size, DirichletNGramConfig(order=longest))
    began = time.perf_counter()
    model.fit(train, None, print)
    seconds = time.perf_counter() - began
    on_valid, on_test = (
        [-figure / math.log(2) for figure in model.held_out(part)] for part in (valid, test)
    )
    best = int(np.argmin(on_valid))
    return {
        "valid": on_valid, "test": on_test, "best_order": best + 1, "best_test": on_test[best],
        "alphas": model.alphas.tolist(), "fit_seconds": seconds, "ngrams": len(model.codes),
    }  # fmt: skip


def dna(args: argparse.Namespace) -> list[dict[str, Any]]:
    """E. coli, order by order."""
    path = args.data / "dna" / "ecoli_k12" / "GCF_000005845.2_ASM584v2_genomic.fna.gz"
    genome = b"".join(gzip.decompress(path.read_bytes()).split(b"\n")[1:])
    (train, valid, test), _ = parts(genome, 0.05 if args.quick else 1.0)
    found = orders_of_map(train, valid, test, 8 if args.quick else 16)
    for order, values in enumerate(zip(found["valid"], found["test"], strict=True), start=1):
        print(f"dna, map of order {order:2}: {values[0]:.4f} valid, {values[1]:.4f} test")
    print(f"dna: order {found['best_order']} is best, {found['best_test']:.4f} bits per base")
    return [{"row": "dna", **found, "holds": bool(found["best_test"] <= BASES)}]


def compressed(data: bytes) -> dict[str, float]:
    """Bits per byte of the whole file by compressors at their hardest."""
    sizes = {
        "gzip -9": len(gzip.compress(data, 9)),
        "bzip2 -9": len(bz2.compress(data, 9)),
        "xz -9": len(lzma.compress(data, preset=9)),
    }
    return {name: 8 * size / len(data) for name, size in sizes.items()}


def text_bytes(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Bytes of two texts."""
    rows = []
    for name in ("bible", "world192"):
        path = args.data / "compression_corpus" / f"{name}.txt.gz"
        data = gzip.decompress(path.read_bytes())
        (train, valid, test), size = parts(data, 0.05 if args.quick else 1.0)
        found = orders_of_map(train, valid, test, 4 if args.quick else 12)
        by_order = {}
        for order in (3, 4) if args.quick else range(5, 13):
            model = KneserNey(size, KneserNeyConfig(order=order))
            model.fit(train, None, print)
            by_order[order] = bits(model, valid), bits(model, test)
        best = min(by_order, key=lambda order: by_order[order][0])
        beside = compressed(data)
        row = {"row": name, "map": found, "kneser_ney": by_order, "best_order": best}
        rows.append(row | {"kneser_ney_test": by_order[best][1], "whole_file": beside})
        others = ", ".join(f"{who} {value:.3f}" for who, value in beside.items())
        print(
            f"{name}: map of order {found['best_order']} {found['best_test']:.3f}, kneser-ney of "
            f"order {best} {by_order[best][1]:.3f} bits per byte (test); whole file: {others}"
        )
    return rows


# --- words ---------------------------------------------------------------------------------------


class LikeIRSTLM(KneserNey):
    """With IRSTLM's probabilities of single words: no discounts, and unknown words counted as often
    as there are words, `<s>` once.
    """

    def single(self, counts: torch.Tensor, taken: torch.Tensor, first: torch.Tensor) -> Any:
        """See KneserNey."""
        words = int((counts > 0).sum()) + 1  # and <s>
        return counts / (counts.sum() + words + 1)


def lines_of(path: Path, keep: float) -> list[list[str]]:
    """The words of each line."""
    lines = gzip.decompress(path.read_bytes()).decode().split("\n")[:-1]
    lines = lines[: int(len(lines) * keep)]
    return [line.replace("<unk>", UNKNOWN).split() for line in lines]


def records(lines: list[list[str]], ids: dict[str, int]) -> Shard:
    """Lines as records of word ids."""
    flat = [x for line in lines for x in (START, *(ids[w] for w in line), END)]
    offsets = np.cumsum([0, *(len(line) + 2 for line in lines)])
    return shard(np.array(flat, np.uint32), offsets, len(ids) + FIRST)


def irstlm(train: list[list[str]], test: list[list[str]], order: int) -> float | None:
    """The perplexity IRSTLM's improved Kneser–Ney prints; None where it is not installed."""
    program = shutil.which("tlm") or (str(IRSTLM / "tlm") if (IRSTLM / "tlm").exists() else None)
    if program is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in (("train", train), ("test", test)):
            text = "".join(f"<s> {' '.join(line)} </s>\n" for line in lines)
            (Path(folder) / name).write_text(text, encoding="utf-8")
        options = ["-tr=train", "-te=test", f"-n={order}", "-lm=ikn", "-ps=no"]
        done = subprocess.run([program, *options], cwd=folder, capture_output=True, text=True)
    found = re.search(r"PP=([0-9.]+)", done.stdout)
    return float(found[1]) if found else None


def words(args: argparse.Namespace) -> list[dict[str, Any]]:
    """WikiText-2, order 5."""
    folder, keep, order = args.data / "wikitext2", 0.05 if args.quick else 1.0, 5
    train, test = (lines_of(folder / f"{side}.txt.gz", keep) for side in ("train", "test"))
    known = {word for line in train for word in line}
    test = [[word if word in known else UNKNOWN for word in line] for line in test]
    more = [*train, *([f"madeup{i}"] for i in range(4000))]
    row: dict[str, Any] = {"row": "words", "order": order, "irstlm": irstlm(more, test, order)}
    for name, lines, family in (
        ("kneser_ney", train, KneserNey),
        ("kneser_ney_made_up", more, KneserNey),
        ("kneser_ney_like_irstlm", more, LikeIRSTLM),
    ):
        vocabulary = sorted({word for line in lines for word in line})
        ids = {word: i for i, word in enumerate(vocabulary, start=FIRST)}
        model = family(len(ids) + FIRST, KneserNeyConfig(order=order))
        began = time.perf_counter()
        model.fit(records(lines, ids), None, print)
        row[f"{name}_fit_seconds"] = time.perf_counter() - began
        row[name] = 2 ** bits(model, records(test, ids))
    if row["irstlm"]:
        row["difference"] = abs(row["kneser_ney_like_irstlm"] / row["irstlm"] - 1)
        row["holds"] = row["difference"] <= AGREEMENT
    peer = f"{row['irstlm']:.3f}" if row["irstlm"] else "not installed, or it refused the data"
    print(
        f"words, order {order}: perplexity {row['kneser_ney']:.2f}; with made-up words "
        f"{row['kneser_ney_made_up']:.2f}, and with IRSTLM's single words "
        f"{row['kneser_ney_like_irstlm']:.3f}; IRSTLM: {peer}"
    )
    return [row]


ROWS = {"speed": speed, "dna": dna, "bytes": text_bytes, "words": words}


def main() -> None:
    """Measure the chosen parts and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--once", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        file, *numbers = args.once
        count_once(file, *map(int, numbers))
        return
    rows = [row for name in args.rows.split(",") for row in ROWS[name](args)]
    facts = {"threads": torch.get_num_threads(), "cores": os.cpu_count(), "rows": rows}
    for row in rows:
        if row.get("holds") is False and not args.quick:
            print(f"BROKEN: {row['row']}")
    if args.json:
        args.json.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
