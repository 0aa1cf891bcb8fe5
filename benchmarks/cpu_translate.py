"""Translation on a CPU: ours against Hugging Face and CTranslate2 on the same weights.

    decode   the base encoder–decoder of 2017 (512 wide, 6 + 6 layers, FFN 2048, 8 heads) with a
             vocabulary of 8,000 and random weights: beam 4, 16 sources of 32 tokens, 32 new tokens
    train    a tiny translator (128 wide, 4 + 4 layers, FFN 256, 4 heads) on Multi30k with byte
             pairs, vocabulary 8,000, 4,096 target tokens a step, dropout and label smoothing 0.1

`vaswani` is MarianMTModel, `modern` PegasusForConditionalGeneration, which CTranslate2 runs too, in
fp32 and in int8. Nobody may end before the 32nd token, so that all do the same work; how many of
the translations equal ours is reported. Rates count the tokens of the best translations.

The row of training is described in `cpu_translate_train.py`.

All run in this process, in turns, with the same number of threads. Rates are medians over rounds, a
ratio is the median of the rounds' own ratios.

    python benchmarks/cpu_translate.py [--rows decode,train] [--runs 7] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from cpu_train import Step, alternate
from cpu_translate_train import (
    CT2,
    CT28,
    HF,
    OURS,
    OURS8,
    TRAIN,
    Case,
    export,
    quick,
    summary,
    train,
)

from regard.decoding import Beam
from regard.decoding.engine import TranslationSession, translate
from regard.layers.int8 import to_int8
from regard.models.encoder_decoder import EncoderDecoder, modern, vaswani
from regard.tokenizers import Characters
from regard.tokenizers.tokenizer import SPECIALS

# And times how much random weights speak, and look, more decidedly: as they are, they say one token
# over and over; much more, and rounding alone changes what they say.
PRESETS = {"vaswani": (vaswani, 4.0, 4.0), "modern": (modern, 6.0, 8.0)}
NOT_TEXT = 0x10000  # code points from here stand for tokens that nobody reads
BEAMS = 4
PAD, START, END, _ = range(len(SPECIALS))
Ids = list[list[int]]

DECODE = Case(n_layers=6, d_model=512, d_ff=2048, n_heads=8, vocabulary=8000, rows=16, length=32)


def make(preset: str, case: Case) -> EncoderDecoder:
    """A model whose translations differ from source to source, though its weights are random."""
    torch.manual_seed(0)
    build, loud, sharp = PRESETS[preset]
    heads = {"n_heads": case.n_heads, "n_kv_heads": case.n_heads}
    config = replace(
        build(case.n_layers, case.d_model),
        **heads,
        d_head=case.d_model // case.n_heads,
        d_ff=case.d_ff,
        max_len=256,
    )
    model = EncoderDecoder(case.vocabulary, config).eval()
    with torch.no_grad():
        for name, tensor in model.decoder.named_parameters():
            if name.endswith(("out.weight", "down.weight")):
                tensor.mul_(loud)
            elif name.endswith(("cross.q.weight", "qkv.weight")):
                tensor.mul_(sharp)
    return model


def ours(model: EncoderDecoder, sources: Ids, new: int) -> Callable[[], Ids]:
    """A call that translates with regard, in the memory of the call before."""
    session = TranslationSession(model)

    def call() -> Ids:
        found = translate(
            model,
            sources,
            Beam(BEAMS, 1.0),
            start=START,
            end=END,
            banned=range(len(SPECIALS)),
            max_new=new,
            batch_size=len(sources) * BEAMS,
            session=session,
        )
        return [several[0].ids for several in found]

    return call


def by_hugging_face(peer: Any, sources: Ids, new: int) -> Callable[[], Ids]:
    """The same with `generate`."""
    ids = torch.tensor(sources)

    def call() -> Ids:
        with torch.inference_mode():
            found = peer.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                num_beams=BEAMS,
                length_penalty=1.0,
                min_new_tokens=new,
                max_new_tokens=new,
                suppress_tokens=list(range(len(SPECIALS))),
            )
        return found[:, 1:].tolist()

    return call


def by_ctranslate2(folder: Path, kind: str, sources: Ids, new: int) -> Callable[[], Ids]:
    """The same with CTranslate2, which speaks of tokens by their names."""
    from ctranslate2 import Translator

    count = torch.get_num_threads()
    engine = Translator(str(folder), device="cpu", compute_type=kind, intra_threads=count)
    rows = [[name_of(i) for i in row] for row in sources]

    def call() -> Ids:
        found = engine.translate_batch(
            rows,
            beam_size=BEAMS,
            length_penalty=1,
            min_decoding_length=new,
            max_decoding_length=new,
            suppress_sequences=[[name] for name in SPECIALS],
        )
        return [[ord(t) - NOT_TEXT + len(SPECIALS) for t in one.hypotheses[0]] for one in found]

    return call


def name_of(i: int) -> str:
    """A token of the vocabulary that nobody reads."""
    return SPECIALS[i] if i < len(SPECIALS) else chr(NOT_TEXT + i - len(SPECIALS))


def decode(preset: str, case: Case, folder: Path, rounds: int) -> dict[str, Any]:
    """The rows of one preset."""
    model, new = make(preset, case), case.length
    draws = torch.randint(
        len(SPECIALS),
        case.vocabulary,
        (case.rows, case.length - 1),
        generator=torch.Generator().manual_seed(1),
    )
    sources = [[*row, END] for row in draws.tolist()]
    names = [name_of(i) for i in range(len(SPECIALS), case.vocabulary)]
    peer, exported = export(model, Characters(names), folder)
    small = make(preset, case)
    to_int8(small)
    calls = {
        OURS: ours(model, sources, new),
        HF: by_hugging_face(peer.eval(), sources, new),
        OURS8: ours(small, sources, new),
    }
    if preset == "modern":
        from ctranslate2.converters import TransformersConverter

        TransformersConverter(str(exported)).convert(str(folder / "ct2"))
        calls[CT2] = by_ctranslate2(folder / "ct2", "float32", sources, new)
        calls[CT28] = by_ctranslate2(folder / "ct2", "int8", sources, new)
    found = {name: call() for name, call in calls.items()}
    for name, rows in found.items():
        assert {len(row) for row in rows} == {new}, f"{name} did other work"
    same = {
        name: sum(a == b for a, b in zip(found[OURS], rows, strict=True))
        for name, rows in found.items()
    }
    seconds = alternate({name: as_step(call) for name, call in calls.items()}, rounds, 1)
    return {
        "row": f"decode, {preset}",
        "different_translations": len({tuple(row) for row in found[OURS]}),
        "same_as_ours": same,
        **summary(seconds, {name: [case.rows * new] * rounds for name in calls}),
    }


def as_step(call: Callable[[], object]) -> Step:
    """A call that does the same whatever its number."""
    return lambda n: call()


def lines(row: dict[str, Any]) -> list[str]:
    """A row as printed."""
    found = []
    for name, rate in row["tokens_per_second"].items():
        against = [
            f"{one['value']:.2f} ({one['middle_half'][0]:.2f} – {one['middle_half'][1]:.2f}) × "
            + key.split(" / ")[1]
            for key, one in row["ratios"].items()
            if key.split(" / ")[0] == name
        ]
        same = row.get("same_as_ours", {}).get(name)
        shared = "" if same is None else f"{same:>5}"
        found.append(f"{row['row']:<17} {name:<18}{rate:>10,.1f}{shared:>6}  {', '.join(against)}")
    return found


def main() -> int:
    """Compare, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="decode,train")
    parser.add_argument("--runs", type=int, default=7, help="rounds in which everyone is timed")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("../shared/data"),
        help="holds multi30k/train.en.gz and .de.gz; without them the pairs are made up",
    )
    parser.add_argument("--quick", action="store_true", help="seconds, and figures of no meaning")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    wanted = args.rows.split(",")
    rounds = 1 if args.quick else args.runs
    if rounds < 1 or not set(wanted) <= {"decode", "train"}:
        parser.error("--runs must be at least 1, --rows some of decode,train")
    facts = {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "rounds": rounds,
    }
    print(f"{facts['threads']} threads, torch {facts['torch']}, {rounds} rounds")
    print(f"{'':<17} {'':<18}{'tokens/s':>10}{'same':>6}  ratio (middle half)")
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for preset in PRESETS if "decode" in wanted else ():
            rows.append(
                decode(preset, quick(DECODE) if args.quick else DECODE, folder / preset, rounds)
            )
            print("\n".join(lines(rows[-1])), flush=True)
        if "train" in wanted:
            count = 400 if args.quick else 29_000
            rows.append(
                train(
                    quick(TRAIN) if args.quick else TRAIN,
                    args.data,
                    folder / "train",
                    rounds,
                    count,
                )
            )
            print("\n".join(lines(rows[-1])), flush=True)
    if args.json:
        args.json.write_text(json.dumps({**facts, "rows": rows}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
