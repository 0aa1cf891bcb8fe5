"""Text: characters, bytes, words or subwords; also the base of biology and chemistry.

Which of these three a file holds is decided by the modality whose `recognize_cells` has the highest
score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from regard.data.column_kinds import (
    PROSE,
    ROWS,
    SHORT_TEXT,
    CellSample,
    ColumnKind,
    recognize,
    text_sample,
)
from regard.errors import UserError, did_you_mean
from regard.modalities import Modality, Tables
from regard.recipe import check_range
from regard.registry import MODALITIES, MODELS, TOKENIZERS

if TYPE_CHECKING:
    from regard.data import Roles
    from regard.data.sources import DataSource, ReadRequest
    from regard.data.targets import OutputKind
    from regard.data.text_files import FileSet
    from regard.recipe import DataRecipe
    from regard.tokenizers import Tokenizer
    from regard.tokenizers.tokenizer import Canonical

SAMPLE_CHARACTERS = 2_000_000  # that are inspected
WORDY = 0.08  # spaces per character from which a text has words
RUNNING_RECORD = 200  # characters of running text that count as a record
MAX_VOCAB = 1 << 20
MIN_SUBWORD_CHARACTERS = 300_000  # of pairs, both sides, from which subwords can be learned
CHARACTERS_PER_TOKEN = 400  # of pairs, both sides, for one token of the vocabulary
CHARACTERS_PER_WORD = 6  # of prose, with the space
CONTEXT, GPU_CONTEXT = 128, 512  # tokens of running text that a masked model reads at once
PAIR_SAMPLE = 4_000_000  # characters that are inspected, both sides


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """How text becomes ids."""

    name: str = "text"
    tokenizer: str = "auto"
    vocab_size: int = 0  # specials included; 0 = the tokenizer's default
    strict: bool = False  # stop at the first record with an unknown symbol

    borrows: ClassVar[tuple[str, ...]] = ()  # other modalities whose tokenizers may be used

    def __post_init__(self) -> None:
        check_range("vocab_size", self.vocab_size, MAX_VOCAB)
        if self.tokenizer in ("auto", "pretrained"):
            return
        modalities = (self.name, *self.borrows)
        names = [name for name in TOKENIZERS if TOKENIZERS[name].modality in modalities]
        if self.tokenizer not in names:
            raise ValueError(
                f"tokenizer {self.tokenizer!r} is not one of {self.name}; "
                f"{did_you_mean(self.tokenizer, ['auto', *names, 'pretrained'])}"
            )


@dataclass
class TextFacts:
    """Counts over the first records."""

    format: str = ""
    column: str = ""  # that texts were read from
    records: int = 0
    characters: Counter[str] = field(default_factory=Counter)
    others: int = 0  # characters of targets
    longest: int = 0
    words: int = 0  # in the record that has most
    complete: bool = True  # all records were counted
    first: list[str] = field(default_factory=list)  # their content decides the tokenizer

    @property
    def sample(self) -> CellSample:
        """The first records, to recognize their content."""
        return CellSample(cells=self.first, column=self.column, format=self.format)

    @property
    def total(self) -> int:
        """Return the number of characters."""
        return sum(self.characters.values())

    def estimated_records(self, source: FileSet) -> int:
        """Return how many records the files hold, about."""
        if self.complete:
            return self.records
        read = max(1, self.total + self.others)
        return max(self.records, round(source.size / read * self.records))


def inspect_records(source: FileSet, column: str = "") -> TextFacts:
    """Count over the first records; two texts of a record are counted as one."""
    facts = TextFacts(source.format, column)
    for chunk in source.records():
        pairs = zip(chunk.texts, chunk.sources or [""] * len(chunk.texts), strict=True)
        for text, second in pairs:
            both = text + (" " + second if second else "")
            facts.characters.update(both)
            facts.longest = max(facts.longest, len(both))
            facts.words = max(facts.words, both.count(" ") + 1)
        facts.records += len(chunk.texts)
        facts.others += sum(len(cell) for cells in chunk.targets for cell in cells)
        if len(facts.first) < ROWS:
            facts.first += [*chunk.texts[:ROWS], *chunk.sources[:ROWS]]
        if facts.total > SAMPLE_CHARACTERS:
            facts.complete = False
            break
    return facts


def inspect_text(source: FileSet, column: str = "") -> TextFacts:
    """Count over records or, of running text, over its beginning, as records of usual length."""
    if source.format != "text":
        return inspect_records(source, column)
    facts = TextFacts(source.format, column, first=list(text_sample(source).cells))
    for text in source.text():
        facts.characters.update(text)
        if facts.total > SAMPLE_CHARACTERS:
            facts.complete = False
            break
    facts.records = max(1, facts.total // RUNNING_RECORD)
    return facts


def choose_tokenizer(table: Tables, facts: TextFacts) -> str:
    """Fill in modality and tokenizer where they are open; return the reason."""
    if table.get("tokenizer", "auto") != "auto":
        return "as asked"
    kind = recognize(facts.sample)
    if "name" in table and table["name"] != kind.modality:
        cls = MODALITIES[table["name"]]
        recognized = cls.recognize_cells(facts.sample)
        table["tokenizer"] = recognized.tokenizer if recognized else cls.default_tokenizer
        return recognized.reason if recognized else "as asked"
    table["name"], table["tokenizer"] = kind.modality, kind.tokenizer
    return kind.reason


class Text(Modality):
    """Texts, one a record, or running text."""

    name = "text"
    kind = "tokens"
    words = ("text", "texts")
    reads_text = True
    default_tokenizer: ClassVar[str] = "characters"  # for texts that are none of this modality
    Config: ClassVar[type] = TextConfig

    @classmethod
    def recognize_cells(cls, sample: CellSample) -> ColumnKind | None:
        characters = Counter("".join(sample.cells))
        if characters[" "] > WORDY * max(1, characters.total()):
            return ColumnKind(
                name="text",
                reason="text of words",
                score=3,
                rank=PROSE,
                modality=cls.name,
                tokenizer="words",
            )
        return ColumnKind(
            name="short texts",
            reason=f"an alphabet of {len(characters)} characters",
            rank=SHORT_TEXT,
            modality=cls.name,
            tokenizer="characters",
        )

    def read(self, request: ReadRequest) -> FileSet:
        from regard.data.labelled import LabelledFiles
        from regard.data.text_files import Pairs, TextFiles

        files, columns = request.files, request.columns
        shared: dict[str, Any] = {"strict": request.strict, "encoding": request.encoding}
        if request.labelled:
            return LabelledFiles(files, columns, format=request.format, **shared)
        column = ",".join(columns.inputs)
        if request.paired:
            both = column, ",".join(columns.targets)
            return Pairs(files, format=request.format, columns=both, **shared)
        return TextFiles(files, format=request.format, column=column, **shared)

    def items(self, path: Path, encoder: Any, *, strict: bool = True) -> Iterator[tuple[str, Any]]:
        raise UserError(f"{path}: texts are read as records, not as items")

    def open_all(self, items: Iterable[Any], encoder: Any) -> list[Any]:
        return list(items)

    @property
    def options(self) -> dict[str, Any]:
        """The tokenizer's own options that differ from their defaults."""
        cls = TOKENIZERS[self.config.tokenizer]
        defaults = {f.name: f.default for f in fields(self.config)}
        given = {key: getattr(self.config, key) for key in cls.options if key in defaults}
        return {key: value for key, value in given.items() if value != defaults[key]}

    @property
    def training_limit(self) -> float:
        limit: float = TOKENIZERS[self.config.tokenizer].learns_from
        return limit

    def fit_encoder(self, items: Iterable[str]) -> Tokenizer:
        cls = TOKENIZERS[self.config.tokenizer]
        tokenizer: Tokenizer = cls.train(items, self.config.vocab_size, **self.options)
        return tokenizer

    def canonical(self, init_from: str = "") -> Canonical:
        from regard.tokenizers import TOKENIZER, Pretrained
        from regard.tokenizers.tokenizer import PLAIN
        from regard.tokenizers.tokenizer import Canonical as Form

        if self.config.tokenizer in TOKENIZERS:
            form: Canonical = TOKENIZERS[self.config.tokenizer].canonical(**self.options)
            return form
        path = Path(init_from) / TOKENIZER
        if self.config.tokenizer == "pretrained" and init_from and path.exists():
            normalize = Pretrained.from_file(path).apply_normalizer
            return Form(normalize, ("what its normalizer changes",))
        return PLAIN

    def defaults(self, tables: Tables, source: FileSet, kind: OutputKind) -> list[str]:
        from regard.training.defaults import fill_split

        facts = inspect_records(source, tables["data"].get("input", ""))
        count = facts.estimated_records(source)
        why = choose_tokenizer(tables["input"], facts)
        name = tables["input"]["tokenizer"]
        first = f"data: {source.format} ({source.why}), about {count:,} records → "
        first += f"task {tables['task']['name']}, {name} ({why})"
        fill_split(tables["data"], count)
        return [first, size_classifier(tables, facts, count)]

    def masked_defaults(self, tables: Tables, data: DataRecipe, roles: Roles) -> list[str]:
        from regard.data.sources import DataSource
        from regard.training.defaults import has_gpu

        source = DataSource(data, roles).train
        facts = inspect_text(source, data.input)
        count, running = facts.estimated_records(source), source.format == "text"
        tables["data"]["format"] = source.format
        why = choose_tokenizer(tables["input"], facts)
        amount = f"{facts.total:,} characters" if running else f"{count:,} records"
        first = (
            f"data: {source.format} ({source.why}), about {amount} → task masked, "
            f"{tables['input']['tokenizer']} ({why})"
        )
        if running:
            tables["model"].setdefault("max_len", GPU_CONTEXT if has_gpu() else CONTEXT)
        return [first, size_classifier(tables, facts, count)]

    def pair_defaults(self, tables: Tables, source: FileSet) -> list[str]:
        from regard.data.text_files import looks_paired

        facts, total = inspect_pairs(source)
        count = round(facts.records * total / max(1, facts.characters))
        chosen = choose_pair_tokenizer(tables, facts, total)
        why = looks_paired(source.files) or source.why
        task = tables["task"]["name"]
        first = f"data: pairs ({why}), about {count:,} of them, {total:,} characters → task {task},"
        return [f"{first} {chosen}", size_seq2seq(tables, facts, total)]

    def report(self, sources: DataSource, why: str) -> Any:
        from regard.data.report import report_text

        return report_text(sources, why)


def size_classifier(tables: Tables, facts: TextFacts, records: int) -> str:
    """Fill in depth, width, context and dropout; return the line that says so."""
    from regard.training.defaults import (
        SEQUENCE_CLASSIFIERS,
        default_network,
        default_shape,
        fill_shape,
        fill_steps,
        hardware,
    )

    model, tokenizer = tables["model"], tables["input"]["tokenizer"]
    name = default_network(SEQUENCE_CLASSIFIERS, tables)
    config = MODELS.get(name, tables["task"]["name"]).Config.__dataclass_fields__
    if "max_len" not in model:
        # punctuation is a word too
        longest = 2 * facts.words if tokenizer == "words" else facts.longest
        model["max_len"] = max(16, min(1024, -(-(longest + 3) // 16) * 16))
    if "d_model" not in config:
        return f"model: {name}: fitted in one go, context {model['max_len']}"
    mean = facts.total / max(1, facts.records)
    tokens = records * (mean / CHARACTERS_PER_WORD if tokenizer == "words" else mean)
    shape = default_shape(SEQUENCE_CLASSIFIERS, records, tokens, tables)
    given = fill_shape(model, config, shape)
    fill_steps(tables)
    size = f"{shape.n_layers} × {shape.d_model}, for {records:,} records and {hardware()}"
    return f"model: {name} {'as asked' if given else size}, context {model['max_len']}"


class PairFacts(NamedTuple):
    """Counts over the first pairs."""

    records: int
    characters: int
    spaces: int
    longest: int  # characters of a side


def inspect_pairs(source: FileSet) -> tuple[PairFacts, int]:
    """Count over the first pairs; also return how many characters there are in all, about."""
    records = characters = spaces = longest = 0
    complete = True
    for chunk in source.records():
        for texts in (chunk.texts, chunk.sources):
            characters += sum(map(len, texts))
            spaces += sum(text.count(" ") for text in texts)
            longest = max(longest, max(map(len, texts)))
        records += len(chunk)
        if characters > PAIR_SAMPLE:
            complete = False
            break
    total = characters
    if not complete:
        expansion = 3 if ".gz" in source.files[0].suffixes else 1
        total = max(total, round(source.size * expansion / 1.05))
    return PairFacts(records, characters, spaces, longest), total


def choose_pair_tokenizer(tables: Tables, facts: PairFacts, total: int) -> str:
    """Fill in the tokenizers of both sides where they are open; return what and why."""
    source, target = tables["input"], tables["output"]
    why = "as asked"
    if target.get("tokenizer", "auto") == "auto":
        target["tokenizer"] = source.get("tokenizer", "auto")
    if target["tokenizer"] == "auto":
        wordy = facts.spaces > WORDY * facts.characters
        subwords = total >= MIN_SUBWORD_CHARACTERS and (wordy or facts.longest > 200)
        target["tokenizer"] = "bpe" if subwords else "characters"
        why = "sentences of words" if subwords else "short, or few"
    if target["tokenizer"] == "bpe" and not target.get("vocab_size"):
        target["vocab_size"] = max(512, min(32_000, total // CHARACTERS_PER_TOKEN // 8 * 8))
    if source.get("tokenizer", "auto") == "auto":
        source["tokenizer"] = target["tokenizer"]
    if source["tokenizer"] == target["tokenizer"]:
        source.setdefault("vocab_size", target.get("vocab_size", 0))
    of = f" of {target['vocab_size']:,}" if target.get("vocab_size") else ""
    shared = tables["task"].get("shared_vocab", True)
    return f"{target['tokenizer']}{of} for {'both sides' if shared else 'each side'} ({why})"


def size_seq2seq(tables: Tables, facts: PairFacts, total: int) -> str:
    """Fill in depth, width, context and dropout; return the line that says so."""
    from regard.training.defaults import (
        TRANSLATORS,
        default_network,
        default_shape,
        fill_shape,
        fill_steps,
        hardware,
    )

    model, tokenizer = tables["model"], tables["output"]["tokenizer"]
    name = default_network(TRANSLATORS, tables)
    config = MODELS.get(name, tables["task"]["name"]).Config.__dataclass_fields__
    if "max_len" in config and "max_len" not in model:
        longest = facts.longest + 1 if tokenizer == "characters" else facts.longest // 2
        model["max_len"] = max(64, min(512, -(-longest // 16) * 16))
    if "d_model" not in config:
        return f"model: {name}: counts; nothing to size"
    tokens = total / (CHARACTERS_PER_WORD if tokenizer in ("words", "bpe") else 1)  # of both sides
    shape = default_shape(TRANSLATORS, total, tokens, tables)
    given = fill_shape(model, config, shape)
    fill_steps(tables)
    size = f"{shape.n_layers} + {shape.n_layers} × {shape.d_model}, sized for {total:,} characters"
    size = "as asked" if given else f"{size} and {hardware()}"
    return f"model: {name} {size}, context {model['max_len']}"
