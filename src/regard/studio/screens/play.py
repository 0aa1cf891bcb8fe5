"""*Play*: what a model writes. Sampling with its distribution step by step, beam search as a tree
that grows, translations and captions from a beginning that the user types, masks, forecasts.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import UsageError, UserError
from regard.studio.screens import Screen, action, check_range, figure, register_screen

if TYPE_CHECKING:
    from regard.evaluation.translation import HeadAlignment
    from regard.pipelines.translator import Translator

LONGEST = 400  # new tokens
MOST_SAMPLES, MOST_BEAMS = 16, 12
DEEPEST = 60  # steps of a tree
MOST_CANDIDATES = 50  # for a mask
EXAMPLE = 60  # tokens of an example


@register_screen("play", title="Play")
class Play(Screen):
    """What the model of a run writes, from what the user types."""

    @action
    def describe(self, run: str) -> dict[str, Any]:
        """Return what can be played with a run, and what to begin with."""
        pipeline = self.opened.pipeline(run)
        return {
            "run": run,
            "activities": list(pipeline.activities),
            "example": self.opened.cached(
                ("example", self.opened.version(run)), lambda: example_of(pipeline)
            ),
            "vocabulary": int(getattr(pipeline.tokenizer, "vocab_size", 0)),
            "facts": pipeline.facts,
        }

    @action
    def sample(
        self,
        run: str,
        prompt: str = "",
        chosen: list[int] | None = None,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        length: int = 40,
        count: int = 4,
    ) -> dict[str, Any]:
        """Sample continuations; of the first one, each step before and after the filters. `chosen`
        are ids that the user put after the prompt.
        """
        from regard.decoding import Sample
        from regard.look.page.document import number
        from regard.look.sampling_steps import sampling_steps

        check_range("length", length, 1, LONGEST)
        check_range("count", count, 1, MOST_SAMPLES)
        generator, tokenizer = self._play(run, "sample"), self.opened.pipeline(run).tokenizer
        sample = Sample(temperature, top_k, top_p, seed)
        added = tokenizer.check_ids(chosen or [])
        ids = [*generator.prompt_ids(prompt), *added]
        sequences = generator.generate_ids([ids] * count, sample, max_new=length)
        first = sequences[0][0]
        steps = sampling_steps(generator, ids, first.ids, sample)
        return {
            "prompt": prompt + tokenizer.decode(added),
            "chosen": added,
            "samples": [
                {
                    "text": prompt + tokenizer.decode([*added, *one.ids]),
                    "tokens": [tokenizer.text(i) for i in one.ids],
                    "log_probs": [number(x) for x in one.log_probs],
                    "score": number(one.score),
                    "finished": one.finished,
                    "dead_end": one.dead_end,
                }
                for (one,) in sequences
            ],
            "steps": [asdict(step) for step in steps],
        }

    @action
    def beam(
        self,
        run: str,
        prompt: str = "",
        width: int = 4,
        length_penalty: float = 0.0,
        steps: int = 12,
    ) -> dict[str, Any]:
        """Search from a prompt: the tree of all candidates, and the best sequences."""
        from regard.decoding import Beam, Trace
        from regard.look.language_page import search_tree

        check_range("width", width, 1, MOST_BEAMS)
        check_range("steps", steps, 1, DEEPEST)
        generator, trace = self._play(run, "beam"), Trace()
        beam = Beam(width, length_penalty, width, trace)
        ids = generator.prompt_ids(prompt)
        (results,) = generator.generate_ids([ids], beam, max_new=steps)
        tree = search_tree(generator.tokenizer, ids, trace.trees[0], next(iter(results), None))
        decode = generator.tokenizer.decode
        return {
            "tree": figure(tree),
            "results": [result_of(prompt + decode(one.ids), one) for one in results],
        }

    @action
    def translate(
        self,
        run: str,
        source: str = "",
        record: int = -1,
        prefix: str = "",
        prefix_ids: list[int] | None = None,
        width: int = 5,
        length_penalty: float = 1.0,
    ) -> dict[str, Any]:
        """Translate a text, or caption a held-out record, from a beginning on: a text, or ids."""
        from regard.decoding import Beam
        from regard.look.guided_translation import encode_prefix, guide_translation
        from regard.look.language_page import search_tree

        check_range("width", width, 1, MOST_BEAMS)
        translator: Translator = self._play(run, "translate")
        tokenizer = translator.tokenizer
        read = self._source(run, source, record)
        if prefix_ids is None:
            prefix_ids = encode_prefix(translator, read, prefix)
        ids = tokenizer.check_ids(prefix_ids)
        beam = Beam(width, length_penalty, width)
        guided = guide_translation(translator, read, ids, beam)
        alignment = stored_alignment(translator)
        tree = search_tree(
            tokenizer, [tokenizer.start, *ids], guided.nodes, next(iter(guided.results), None)
        )
        target = guided.target
        return {
            "makes": translator.makes,
            "prefix": tokenizer.decode(ids),
            "prefix_ids": ids,
            "unknown": sum(i == tokenizer.unk for i in ids),
            "text": tokenizer.decode(target),
            "tokens": [tokenizer.text(i) for i in target],
            "ids": target,
            "alternatives": [[list(one) for one in row] for row in guided.alternatives()],
            "results": [
                result_of(tokenizer.decode([*ids, *one.ids]), one) for one in guided.results
            ],
            "tree": figure(tree),
            "figures": [figure(part) for part in guided.links(alignment)],
            "picture": self._picture(run, record),
        }

    @action
    def fill(self, run: str, text: str, candidates: int = 10) -> dict[str, Any]:
        """Return the most probable tokens for each mask of a text."""
        check_range("candidates", candidates, 1, MOST_CANDIDATES)
        masks = self._play(run, "fill").fill(text, num=candidates)
        return {"masks": [mask.to_json() for mask in masks]}

    @action
    def forecast(self, run: str, window: int = -1) -> dict[str, Any]:
        """Return the forecast of a held-out window, the last by default, with its fan."""
        from regard.look.forecast_page import answer_forecast, describe_window, fan_chart

        forecaster = self._play(run, "forecast")
        split, windows, _ = forecaster.windows()
        at = windows.records - 1 if window < 0 else window
        check_range("window", at, 0, windows.records - 1)
        forecast, history, truth = describe_window(forecaster, windows.take(np.array([at])))
        charts = [
            fan_chart(history[:, c], truth[:, c], forecast, c) for c in range(len(forecast.columns))
        ]
        return {
            "window": at,
            "windows": windows.records,
            "split": split,
            "answer": figure(answer_forecast(forecast, 0, truth[:, 0])),
            "charts": [figure(chart) for chart in charts],
        }

    def _play(self, run: str, activity: str) -> Any:
        """Return the pipeline of a run that can do this."""
        pipeline = self.opened.pipeline(run)
        if activity not in pipeline.activities:
            can = ", ".join(pipeline.activities) or "none of what this screen has"
            raise UsageError(f"{run} cannot {activity}; it can: {can}")
        return pipeline

    def _source(self, run: str, source: str, record: int) -> Any:
        """Return the ids of a source text or, from 0, of a held-out record."""
        translator: Any = self.opened.pipeline(run)
        if record >= 0:
            check_range("record", record, 0, translator.held_out()[1].records - 1)
            return translator.held_out_source(record)
        if not translator.source_tokenizer.reads_text:
            items = translator.source_tokenizer.words[1]
            raise UsageError(f"{run} reads {items}: choose a held-out record")
        ids = translator.source_tokenizer.encode(source)
        if not len(ids):
            raise UsageError("type a text to translate")
        return [int(i) for i in ids]

    def _picture(self, run: str, record: int) -> dict[str, Any] | None:
        """Return the source of a held-out record drawn beside its target, where it is no text."""
        from regard.look.page import Answer
        from regard.look.records import draw_picture

        translator: Any = self.opened.pipeline(run)
        tokenizer = translator.source_tokenizer
        if record < 0 or tokenizer.reads_text:
            return None
        shard = translator.held_out()[1]
        truth = translator.tokenizer.decode_record(shard.record(record))
        picture = draw_picture(tokenizer, np.asarray(shard.source.record(record)))
        name = f"{tokenizer.words[0]} {record + 1:,} of {shard.records:,}"
        return figure(Answer(headline=truth, label=f"{name}: the true text", picture=picture))


def example_of(pipeline: Any) -> dict[str, Any]:
    """Return what to begin with: the first half of a held-out record, a pair, or none."""
    try:
        if not hasattr(pipeline, "example"):
            shard = pipeline.held_out()[1]
            return {"prompt": "", "records": int(shard.records)}
        example = pipeline.example(EXAMPLE)
        records = int(pipeline.held_out()[1].records)
    except UserError:  # an imported model has no data
        return {"prompt": "", "records": 0}
    source = example[0] if isinstance(example, tuple) else example
    text = source if isinstance(source, str) else ""
    return {"prompt": text, "records": records}


def stored_alignment(translator: Translator) -> HeadAlignment | None:
    """Return which head aligns, if the run says so."""
    from regard.evaluation.translation import HeadAlignment

    stored = None if translator.run is None else translator.run.metadata.get("alignment")
    return None if stored is None else HeadAlignment.from_json(stored)


def result_of(text: str, one: Any) -> dict[str, Any]:
    """Return a sequence of a search."""
    from regard.look.page.document import number

    return {
        "text": text,
        "score": number(one.score),
        "log_prob": number(sum(one.log_probs)),
        "tokens": len(one.ids),
        "finished": one.finished,
    }
