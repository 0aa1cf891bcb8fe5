"""Greedy decoding of a tiny character model, batch 1: ours against Hugging Face `generate` on the
same weights.

The peer runs its default dynamic cache, which is its fastest on a CPU at this size; both run in
this process, in turns, with the same number of threads; the ratio is of medians. Tokens must be
equal.

    python benchmarks/tiny_decode.py [--new 256] [--runs 7] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

from regard.decode import Greedy, generate
from regard.interop import export_hf
from regard.models.decoder import Decoder, modern
from regard.run import weights, write_config, write_tensors
from regard.tokens import Characters


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--new", type=int, default=256)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    from dataclasses import replace

    from transformers import Qwen3ForCausalLM

    torch.manual_seed(0)
    tokenizer = Characters([chr(i) for i in range(32, 97)])
    model = Decoder(tokenizer.vocab_size, replace(modern(4, 128), max_len=512)).eval()
    with tempfile.TemporaryDirectory() as folder:
        run, out = Path(folder) / "run", Path(folder) / "hf"
        run.mkdir()
        write_config(run, "transformer", model)
        write_tensors(run / "model.safetensors", weights(model))
        tokenizer.save(run / "tokenizer.json")
        export_hf(run, out)
        peer = Qwen3ForCausalLM.from_pretrained(out).eval()
    prompt = [1, *range(10, 26)]

    def ours() -> list[int]:
        return generate(
            model, [prompt], Greedy(log_probs=False), max_new=args.new, end=2, banned=[2]
        )[0][0].ids

    def theirs() -> list[int]:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            out = peer.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=args.new,
                do_sample=False,
                suppress_tokens=[2],
                pad_token_id=0,
            )
        return out[0, len(prompt) :].tolist()

    equal = ours() == theirs()
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(args.runs):
        for name, function in (("ours", ours), ("theirs", theirs)):
            start = time.perf_counter()
            function()
            times[name].append(args.new / (time.perf_counter() - start))
    rate = {name: statistics.median(values) for name, values in times.items()}
    result = {
        "tokens_per_second": {name: round(value, 1) for name, value in rate.items()},
        "ratio": round(rate["ours"] / rate["theirs"], 2),
        "same_tokens": equal,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    for name in ("ours", "theirs"):
        print(f"{name:6} {rate[name]:8.0f} tokens/s")
    print(f"ratio  {result['ratio']:8.2f}")
    print(f"same greedy tokens: {equal}")
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
