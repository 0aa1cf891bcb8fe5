"""Word vectors: CBOW and skip-gram (Mikolov et al. 2013, arXiv:1301.3781)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from regard.data import Roles
from regard.tasks import Card, LookRequest, Tables, Task

if TYPE_CHECKING:
    from regard.data.shards import Shard
    from regard.evaluation import Metric
    from regard.look.page import Page
    from regard.pipelines.word_vectors import WordVectors
    from regard.run import Run
    from regard.training.trainer import TrainingOutcome

WIDTH = 100  # of a vector, as in gensim; `regard lab dimensions` shows what more would give
WORDS_READ = 40_000_000  # in all epochs
MIN_EPOCHS, MAX_EPOCHS = 5, 50
MAX_VOCAB = 1 << 20  # words that a vocabulary may hold: model.min_count leaves rare ones out
MAX_STEP, MIN_STEP = 1 << 16, 1 << 11  # tokens of a step, for large files and for small ones
STEPS_PER_EPOCH = 20  # of a small file
# Skip-gram's rate is the authors'. CBOW's steps follow the exact gradient of a mean, and so must be
# larger; this was the best of 0.025, 0.075 and 0.15 on WikiText-2.
RATES = {"skipgram": 0.025, "cbow": 0.15}
CHARACTERS_PER_WORD = 6  # with the space after it


@dataclass(frozen=True, kw_only=True)
class WordVectorConfig:
    """Word vectors have no settings besides those of their model."""

    name: str = "vectors"


class WordVectorTask(Task):
    """Learn a vector for each word from the words around it."""

    name = model_task = "vectors"
    purpose = "word vectors"
    Config: ClassVar[type] = WordVectorConfig
    roles = Roles(input=True)
    card = Card(
        verbs=(
            "look {run}",
            "embed {run} FILE",
            "export {run} OUT.vec --to vec",
            "evaluate {run}",
            "verify {run}",
        ),
        metrics=("loss",),
    )
    compares = False
    lends_embeddings = True

    def defaults(self, tables: Tables) -> list[str]:
        from regard.data.sources import open_texts
        from regard.modalities.text import choose_tokenizer, inspect_text
        from regard.recipe import DataRecipe, check, modality_name

        data: DataRecipe = check("data", DataRecipe, tables["data"])
        source = open_texts(data, modality_name(tables["input"]))
        facts = inspect_text(source, data.input)
        total = facts.total if facts.complete else max(facts.total, source.size)
        table, model, train = tables["input"], tables["model"], tables["train"]
        tables["data"]["format"] = source.format
        why = choose_tokenizer(table, facts)
        if table["tokenizer"] == "nucleotides" and why != "as asked":
            table["tokenizer"], why = "kmers", "words of bases: four letters alone say little"
        if table["tokenizer"] == "words":
            table.setdefault("vocab_size", MAX_VOCAB)
        name = model.setdefault("name", "skipgram")
        per_word = CHARACTERS_PER_WORD if table["tokenizer"] in ("words", "bpe") else 1
        words = max(1, total // per_word)
        width = model.setdefault("d_model", 64 * model["size"] if "size" in model else WIDTH)
        train.setdefault("lr", RATES[name])
        train.setdefault("warmup", 0.0)
        train.setdefault("batch_tokens", min(MAX_STEP, max(MIN_STEP, words // STEPS_PER_EPOCH)))
        first = (
            f"data: {source.format} ({source.why}), about {total:,} characters → task vectors, "
            f"{table['tokenizer']} ({why})"
        )
        return [first, f"model: {name} of {width} numbers, {choose_epochs(model, train, words)}"]

    def evaluate(
        self, outcome: TrainingOutcome, model: Any, run: Run, split: str, part: Shard
    ) -> dict[str, Metric]:
        from regard.evaluation.word_similarity import word_losses

        return word_losses(model, part).metrics()

    def pipeline(self, run: Run, model: Any) -> WordVectors:
        from regard.pipelines import load_run_tokenizer
        from regard.pipelines.word_vectors import WordVectors

        return WordVectors(model, load_run_tokenizer(run, "tokenizer.json", model.vocab_size), run)

    def page(self, run: Run, request: LookRequest) -> Page:
        from regard.look.internals import quote, run_facts
        from regard.look.projection import word_vector_page

        vectors, text = self.pipeline(run, request.model(run)), request.text
        facts = run_facts(run, vectors.model, vectors.tokenizer)
        about = f"Words near {quote(text)}" if text else f"{len(vectors):,} words"
        return word_vector_page(vectors, text.split(), title=f"{about} in {run.name}", facts=facts)


def choose_epochs(model: Tables, train: Tables, words: int) -> str:
    """Fill in the number of epochs; return it in words."""
    if train.get("steps"):
        return f"{train['steps']:,} steps, as asked"
    if model.get("epochs"):
        return f"{model['epochs']:,} epochs, as asked"
    if train.get("minutes"):
        return f"{train['minutes']:g} minutes, as asked"
    model["epochs"] = min(MAX_EPOCHS, max(MIN_EPOCHS, round(WORDS_READ / words)))
    return f"{model['epochs']} epochs of about {words:,} words (model.epochs changes that)"
