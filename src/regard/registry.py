"""Names of tasks, modalities, models, tokenizers and augmentations, and where each is defined.

Built-in objects are listed here, one line each, and imported when they are first used. Other
packages register theirs through entry points of the same groups: an entry point names an object, or
a module whose import registers objects with the decorators below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, TypeVar

from regard.errors import UsageError, UserError, did_you_mean

T = TypeVar("T")


def resolve(target: Any) -> Any:
    """Return the object that a "module:attribute" names; anything else is returned as it is."""
    if not isinstance(target, str):
        return target
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


@cache
def load_plugins(group: str) -> Mapping[str, Any]:
    """Import the entry points of a group; return those that are objects, by name."""
    loaded = {}
    for point in entry_points(group=group):
        try:
            loaded[point.name] = point.load()
        except Exception as error:
            raise UserError(
                f"plugin {point.name!r} of {group} ({point.value}) cannot be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error
    return {name: it for name, it in loaded.items() if not isinstance(it, ModuleType)}


class Registry:
    """Objects by name."""

    def __init__(self, noun: str, group: str, builtin: Mapping[str, str]) -> None:
        self.noun, self.group = noun, group
        self._targets: dict[str, Any] = dict(builtin)

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers an object under a name."""

        def decorate(target: T) -> T:
            self._targets[name] = target
            return target

        return decorate

    def _load(self) -> dict[str, Any]:
        for name, target in load_plugins(self.group).items():
            self._targets.setdefault(name, target)
        return self._targets

    def __contains__(self, name: object) -> bool:
        return name in self._targets or name in self._load()

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            hint = did_you_mean(str(name), list(self))
            raise UsageError(f"unknown {self.noun} {name!r}; {hint}")
        return resolve(self._targets[name])

    def values(self) -> list[Any]:
        """Return all objects, imported, in the order of registration."""
        return [self[name] for name in self]


class ClassRegistry:
    """Functions by the class of their argument; a class without its own has that of its nearest
    base.
    """

    def __init__(self, group: str, builtin: Mapping[str, str]) -> None:
        self.group = group
        self._targets: dict[str, Any] = dict(builtin)

    def register(self, cls: type) -> Callable[[T], T]:
        """Return a decorator that registers a function for a class."""

        def decorate(target: T) -> T:
            self._targets[class_path(cls)] = target
            return target

        return decorate

    def find(self, cls: type) -> Any | None:
        """Return the function for a class, imported; None if there is none."""
        load_plugins(self.group)
        paths = (class_path(base) for base in cls.__mro__)
        return next((resolve(self._targets[p]) for p in paths if p in self._targets), None)


def class_path(cls: type) -> str:
    """Return the module and the name of a class as "module:name"."""
    return f"{cls.__module__}:{cls.__qualname__}"


TASKS = Registry(
    "task",
    "regard.tasks",
    {
        "next": "regard.tasks.language_modeling:LanguageModeling",
        "position-label": "regard.tasks.prediction:PositionLabelTask",
        "label": "regard.tasks.prediction:LabelTask",
        "labels": "regard.tasks.prediction:LabelsTask",
        "value": "regard.tasks.prediction:ValueTask",
        "target": "regard.tasks.seq2seq:Seq2Seq",
        "contrastive": "regard.tasks.contrastive:Contrastive",
        "masked": "regard.tasks.masked_lm:MaskedLanguageModeling",
        "vectors": "regard.tasks.word_vectors:WordVectorTask",
        "forecast": "regard.tasks.forecasting:Forecasting",
    },
)
TABLES = Registry(
    "table format",
    "regard.formats",
    {
        "csv": "regard.data.tables:Csv",
        "tsv": "regard.data.tables:Tsv",
        "jsonl": "regard.data.tables:JsonLines",
        "parquet": "regard.data.tables:Parquet",
    },
)
MODALITIES = Registry(
    "modality",
    "regard.modalities",
    {
        "point-clouds": "regard.modalities.point_clouds:PointClouds",
        "time-series": "regard.modalities.time_series:TimeSeries",
        "images": "regard.modalities.images:Images",
        "chemistry": "regard.modalities.chemistry:Chemistry",
        "biology": "regard.modalities.biology:Biology",
        "text": "regard.modalities.text:Text",
    },
)
TOKENIZERS = Registry(
    "tokenizer",
    "regard.tokenizers",
    {
        "characters": "regard.tokenizers.text:Characters",
        "bytes": "regard.tokenizers.text:Bytes",
        "words": "regard.tokenizers.text:Words",
        "bpe": "regard.tokenizers.text:BPE",
        "nucleotides": "regard.tokenizers.biology:Nucleotides",
        "kmers": "regard.tokenizers.biology:Kmers",
        "residues": "regard.tokenizers.biology:Residues",
        "protein-bpe": "regard.tokenizers.biology:ProteinBPE",
        "smiles": "regard.tokenizers.smiles:Smiles",
        "smiles-bpe": "regard.tokenizers.smiles:SmilesBPE",
        "patches": "regard.tokenizers.patches:Patches",
        "points": "regard.tokenizers.points:Points",
        "step-patches": "regard.tokenizers.step_patches:StepPatches",
        "steps": "regard.tokenizers.series:Steps",
    },
)
LOGGERS = Registry(
    "logger",
    "regard.loggers",
    {
        "csv": "regard.training.loggers:CsvLogger",
        "tensorboard": "regard.training.loggers:TensorBoardLogger",
        "wandb": "regard.training.loggers:WandbLogger",
        "mlflow": "regard.training.loggers:MlflowLogger",
    },
)
AUGMENTATIONS = Registry(
    "augmentation",
    "regard.augmentations",
    {
        "images": "regard.modalities.images:ImageAugment",
        "point-clouds": "regard.modalities.point_clouds:PointCloudAugment",
        "strands": "regard.modalities.biology:Strands",
        "spellings": "regard.modalities.chemistry:Spellings",
    },
)


LIVE = ClassRegistry(  # what becomes part of a live page
    "regard.live",
    {
        "regard.models.ngrams:TableModel": "regard.live.models:table_part",
        "regard.models.linear:NGramModel": "regard.live.models:linear_part",
        "regard.models.linear:NaiveBayes": "regard.live.models:naive_bayes_part",
        "regard.models.linear:PixelLogistic": "regard.live.models:pixels_part",
        "regard.models.recurrent:RecurrentModel": "regard.live.models:recurrent_part",
        "regard.models.decoder:Decoder": "regard.live.models:decoder_part",
        "regard.models.encoder:EncoderModel": "regard.live.models:encoder_part",
        "regard.models.vision:VisionTransformer": "regard.live.models:vision_part",
        "regard.tokenizers.text:Characters": "regard.live.inputs:characters_part",
        "regard.tokenizers.text:Bytes": "regard.live.inputs:bytes_part",
        "regard.tokenizers.text:Words": "regard.live.inputs:words_part",
        "regard.tokenizers.text:BPE": "regard.live.inputs:bpe_part",
        "regard.tokenizers.biology:Letters": "regard.live.inputs:letters_part",
        "regard.tokenizers.biology:Kmers": "regard.live.inputs:kmers_part",
        "regard.tokenizers.smiles:Smiles": "regard.live.inputs:smiles_part",
        "regard.tokenizers.patches:Patches": "regard.live.inputs:patches_part",
        "regard.pipelines.generator:Generator": "regard.live.screens:writing_part",
        "regard.pipelines.predictor:Predictor": "regard.live.screens:prediction_part",
    },
)


@dataclass(frozen=True)
class ModelEntry:
    """A model family: the tasks it is for, the kind of input it reads, and its class."""

    name: str
    tasks: tuple[str, ...]
    reads: str
    target: Any


class ModelRegistry:
    """Model families by name, task and kind of input: one name may stand for several classes."""

    group = "regard.models"

    def __init__(self, builtin: Sequence[tuple[str, str, str, str]]) -> None:
        self._entries = [
            ModelEntry(name, tuple(tasks.split()), reads, f"regard.models.{target}")
            for name, tasks, reads, target in builtin
        ]

    def register(
        self, name: str, *, tasks: Sequence[str], reads: Sequence[str] = ("tokens",)
    ) -> Callable[[T], T]:
        """Return a decorator that registers a model class."""

        def decorate(target: T) -> T:
            self._entries += [ModelEntry(name, tuple(tasks), kind, target) for kind in reads]
            return target

        return decorate

    @property
    def entries(self) -> list[ModelEntry]:
        """All families, those of other packages last."""
        load_plugins(self.group)
        return self._entries

    def names(self, task: str = "", reads: str = "") -> list[str]:
        """Return the families for a task and a kind of input ("": any), in registration order."""
        entries = self._for_task(task) if task else self.entries
        return list(dict.fromkeys(one.name for one in entries if not reads or reads == one.reads))

    def _for_task(self, task: str) -> list[ModelEntry]:
        """Return the families for a task, or for the task whose models it uses; its own first."""
        direct = [one for one in self.entries if task in one.tasks]
        shared = TASKS[task].model_task
        return direct + [one for one in self.entries if shared in one.tasks and one not in direct]

    def tasks(self, name: str) -> list[str]:
        """Return the tasks that a model of this name is registered for."""
        return list(dict.fromkeys(t for one in self.entries if one.name == name for t in one.tasks))

    def kinds(self, task: str) -> list[str]:
        """Return the kinds of input that some model reads for a task."""
        return list(dict.fromkeys(one.reads for one in self._for_task(task)))

    def get(self, name: str, task: str = "next", reads: str = "tokens") -> Any:
        """Return the class of that name for a task and a kind of input.

        Every family has `Config` and `PRESETS`.
        """
        for one in self._for_task(task):
            if one.name == name and one.reads == reads:
                return resolve(one.target)
        raise UsageError(f"model.name: {self._refusal(name, task, reads)}")

    def _refusal(self, name: str, task: str, reads: str) -> str:
        known = sorted(self.names(task, reads))
        if name not in self.names():
            return f"unknown model {name!r}; {did_you_mean(name, known)}"
        of = "" if reads == "tokens" else f" of {reads}"
        purpose = TASKS[task].purpose
        return f"{name} does not support {purpose}{of}; choose one of {', '.join(known)}"


WHOLE = "label labels value"  # one prediction for a record
ALL = f"{WHOLE} position-label"
CLASSES = "label labels position-label"
# name, tasks, kind of input, class. The order is that of rows in a comparison.
MODELS = ModelRegistry(
    [
        ("uniform", "next", "tokens", "ngrams:Uniform"),
        ("unigram", "next", "tokens", "ngrams:Unigram"),
        ("bigram", "next", "tokens", "ngrams:Bigram"),
        ("map", "next", "tokens", "ngrams:DirichletNGram"),
        ("kneser-ney", "next", "tokens", "ngrams:KneserNey"),
        ("hmm", "next", "tokens", "hidden_markov:HiddenMarkov"),
        ("mlp", "next", "tokens", "mlp:MLP"),
        ("cnn", "next", "tokens", "convolution:CNN"),
        ("rnn", "next", "tokens", "recurrent:RNNModel"),
        ("gru", "next", "tokens", "recurrent:GRUModel"),
        ("lstm", "next", "tokens", "recurrent:LSTMModel"),
        ("hyena", "next", "tokens", "hyena:HyenaModel"),
        ("transformer", "next", "tokens", "decoder:Decoder"),
        ("ibm1", "target", "tokens", "ibm_model1:IBM1Translator"),
        ("rnn", "target", "tokens", "recurrent:RecurrentSeq2Seq"),
        ("rnn-attention", "target", "tokens", "recurrent:AttentiveSeq2Seq"),
        ("transformer", "target", "tokens", "encoder_decoder:EncoderDecoder"),
        ("chance", "contrastive", "tokens", "contrastive:Chance"),
        ("cca", "contrastive", "tokens", "contrastive:TokenCorrelation"),
        ("transformer", "contrastive", "tokens", "contrastive:DualEncoder"),
        ("majority", CLASSES, "tokens", "class_counts:Majority"),
        ("mean", "value", "tokens", "class_counts:Majority"),
        ("naive-bayes", "label", "tokens", "linear:NaiveBayes"),
        ("nb-svm", "label", "tokens", "linear:NbSvm"),
        ("logistic", "label labels", "tokens", "linear:Logistic"),
        ("ridge", "value", "tokens", "linear:Ridge"),
        ("logistic", "position-label", "tokens", "linear:WindowLogistic"),
        ("svm", "label labels", "tokens", "linear:LinearSvm"),
        ("pwm", "label", "tokens", "class_counts:PWMClassifier"),
        ("markov", "label", "tokens", "class_counts:ClassMarkov"),
        ("cnn", ALL, "tokens", "convolution:ConvolutionalClassifier"),
        ("lstm", ALL, "tokens", "recurrent:RecurrentClassifier"),
        ("hyena", ALL, "tokens", "hyena:HyenaClassifier"),
        ("transformer", ALL, "tokens", "encoder:EncoderModel"),
        ("transformer", "masked", "tokens", "encoder:MaskedLM"),
        ("cbow", "vectors", "tokens", "word2vec:CBOW"),
        ("skipgram", "vectors", "tokens", "word2vec:SkipGram"),
        ("majority", "label labels", "patches", "class_counts:Majority"),
        ("mean", "value", "patches", "class_counts:Majority"),
        ("logistic", "label labels", "patches", "linear:PixelLogistic"),
        ("ridge", "value", "patches", "linear:PixelLogistic"),
        ("cnn", WHOLE, "patches", "vision:ConvNet"),
        ("transformer", WHOLE, "patches", "vision:VisionTransformer"),
        ("nearest", "target", "patches", "nearest_caption:NearestCaptioner"),
        ("transformer", "target", "patches", "encoder_decoder:Captioner"),
        ("chance", "contrastive", "patches", "contrastive:Chance"),
        ("cca", "contrastive", "patches", "contrastive:ColorCorrelation"),
        ("transformer", "contrastive", "patches", "contrastive:ImageTextEncoder"),
        ("majority", CLASSES, "points", "class_counts:Majority"),
        ("mean", "value", "points", "class_counts:Majority"),
        ("logistic", "label labels", "points", "linear:PointCloudLogistic"),
        ("ridge", "value", "points", "linear:PointCloudLogistic"),
        ("coulomb", "value", "points", "coulomb:Coulomb"),
        ("transformer", ALL, "points", "point_transformer:PointTransformer"),
        ("majority", CLASSES, "series", "class_counts:Majority"),
        ("mean", "value", "series", "class_counts:Majority"),
        ("logistic", "label labels", "series", "series_features:SeriesLogistic"),
        ("ridge", "value", "series", "series_features:SeriesLogistic"),
        ("logistic", "position-label", "series", "series_features:StepLogistic"),
        ("rocket", WHOLE, "series", "series_features:Rocket"),
        ("cnn", ALL, "series", "series_classifiers:SeriesConvolution"),
        ("lstm", ALL, "series", "series_classifiers:SeriesRecurrent"),
        ("transformer", ALL, "series", "series_classifiers:SeriesTransformer"),
        ("transformer", "masked", "series", "series_classifiers:MaskedSeries"),
        ("naive", "forecast", "series", "classical_forecasters:Naive"),
        ("seasonal-naive", "forecast", "series", "classical_forecasters:SeasonalNaive"),
        ("drift", "forecast", "series", "classical_forecasters:Drift"),
        ("ets", "forecast", "series", "classical_forecasters:ExponentialSmoothing"),
        ("ridge", "forecast", "series", "classical_forecasters:RidgeLags"),
        ("boosting", "forecast", "series", "classical_forecasters:Boosting"),
        ("dlinear", "forecast", "series", "forecaster:DLinear"),
        ("nlinear", "forecast", "series", "forecaster:NLinear"),
        ("lstm", "forecast", "series", "patch_forecaster:RecurrentForecaster"),
        ("cnn", "forecast", "series", "patch_forecaster:ConvolutionalForecaster"),
        ("hyena", "forecast", "series", "patch_forecaster:HyenaForecaster"),
        ("decoder", "forecast", "series", "patch_forecaster:DecoderForecaster"),
        ("transformer", "forecast", "series", "patch_forecaster:PatchForecaster"),
    ]
)
register_model = MODELS.register
register_task = TASKS.register
register_modality = MODALITIES.register
register_tokenizer = TOKENIZERS.register
register_table = TABLES.register
register_augmentation = AUGMENTATIONS.register
register_logger = LOGGERS.register
register_live = LIVE.register
