"""Names of model families by task, and where they live; imported when first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from regard.errors import UsageError, did_you_mean

FAMILIES = {
    "uniform": "regard.models.counts:Uniform",
    "unigram": "regard.models.counts:Unigram",
    "bigram": "regard.models.counts:Bigram",
    "map": "regard.models.dirichlet_ngram:DirichletNGram",
    "kneser-ney": "regard.models.kneser_ney:KneserNey",
    "hmm": "regard.models.hidden_markov:HiddenMarkov",
    "mlp": "regard.models.mlp:MLP",
    "cnn": "regard.models.convolution:CNN",
    "rnn": "regard.models.recurrent:RNNModel",
    "gru": "regard.models.recurrent:GRUModel",
    "lstm": "regard.models.recurrent:LSTMModel",
    "hyena": "regard.models.hyena:HyenaModel",
    "transformer": "regard.models.decoder:Decoder",
}
TRANSLATORS = {
    "ibm1": "regard.models.ibm_model1:IBM1Translator",
    "rnn": "regard.models.recurrent:RecurrentSeq2Seq",
    "rnn-attention": "regard.models.recurrent:AttentiveSeq2Seq",
    "transformer": "regard.models.encoder_decoder:EncoderDecoder",
}
ASSESSORS = {
    "cnn": "regard.models.sequence_classifiers:ConvolutionalClassifier",
    "lstm": "regard.models.sequence_classifiers:RecurrentClassifier",
    "hyena": "regard.models.hyena:HyenaClassifier",
    "transformer": "regard.models.encoder:EncoderModel",
}
MAJORITY = {"majority": "regard.models.class_counts:Majority"}
CLASSIFIERS = {
    "naive-bayes": "regard.models.linear:NaiveBayes",
    "nb-svm": "regard.models.linear:NbSvm",
    "pwm": "regard.models.class_counts:PWMClassifier",
    "markov": "regard.models.class_counts:ClassMarkov",
}
LINEAR = {
    "logistic": "regard.models.linear:Logistic",
    "svm": "regard.models.linear:LinearSvm",
}
ANSWERED = ("label", "labels", "value")  # of a record as a whole
TASKS = {
    "next": FAMILIES,
    "target": TRANSLATORS,
    "label": MAJORITY | CLASSIFIERS | LINEAR | ASSESSORS,
    "labels": MAJORITY | LINEAR | ASSESSORS,
    "value": MAJORITY | {"logistic": "regard.models.linear:Ridge"} | ASSESSORS,
    "position-label": MAJORITY | {"logistic": "regard.models.linear:WindowLogistic"} | ASSESSORS,
    "masked": {"transformer": "regard.models.encoder:MaskedLM"},
    "vectors": {
        "cbow": "regard.models.word2vec:CBOW",
        "skipgram": "regard.models.word2vec:SkipGram",
    },
}
IMAGES = {
    "majority": "regard.models.class_counts:Majority",
    "logistic": "regard.models.linear_features:PixelLogistic",
    "cnn": "regard.models.vision:ConvNet",
    "transformer": "regard.models.vision:VisionTransformer",
}
CAPTIONERS = {
    "nearest": "regard.models.nearest_caption:NearestCaptioner",
    "transformer": "regard.models.encoder_decoder:Captioner",
}
CLOUDS = {
    "majority": "regard.models.class_counts:Majority",
    "logistic": "regard.models.linear_features:PointCloudLogistic",
    "transformer": "regard.models.point_transformer:PointTransformer",
}
COULOMB = {"coulomb": "regard.models.coulomb:Coulomb"}
# Of tokens that are numbers, by their kind: which families read them for which task.
NUMBERS: dict[str, dict[str, dict[str, str]]] = {
    "patches": dict.fromkeys(ANSWERED, IMAGES) | {"target": CAPTIONERS},
    "points": {
        "label": CLOUDS,
        "labels": CLOUDS,
        "value": CLOUDS | COULOMB,
        "position-label": {name: CLOUDS[name] for name in ("majority", "transformer")},
    },
}
OTHER_NAMES = {"vit": "transformer"}  # of tokens that are numbers
IN_WORDS = {  # what a model of each task does
    "next": "language modelling",
    "target": "translation",
    "label": "classification",
    "labels": "several labels at once",
    "value": "regression",
    "position-label": "a label for each position",
    "masked": "masked language modelling",
    "vectors": "word vectors",
}


def task_named(name: str) -> str:
    """The task that a model of this name is for, where it is for no other; else nothing."""
    return "vectors" if name in TASKS["vectors"] else ""


def families(task: str = "next", tokens: str = "") -> dict[str, str]:
    """The families of a task that read this kind of tokens, by name."""
    return NUMBERS.get(tokens, {}).get(task) or TASKS[task]


def family(name: str, task: str = "next", tokens: str = "") -> Any:
    """The class of that name for a task and a kind of tokens; every family has Config and PRESETS,
    and is a LanguageModel or, for the task `target`, a Translator, or for those of labels and
    values an Assessor, or for `vectors` WordVectors.
    """
    known = families(task, tokens)
    if tokens in NUMBERS:
        name = OTHER_NAMES.get(name, name)
    if name not in known:
        raise UsageError(f"model.name: {refused(name, task, tokens)}")
    module, _, attribute = known[name].partition(":")
    return getattr(import_module(module), attribute)


def refused(name: str, task: str, tokens: str) -> str:
    """Why a model cannot be taken: other tasks or data have it, or nobody knows the name."""
    known = sorted(families(task, tokens))
    others = {one for some in NUMBERS.values() for every in some.values() for one in every}
    if name not in others and all(name not in some for some in TASKS.values()):
        return f"unknown model {name!r}; {did_you_mean(name, known)}"
    of = f" of {tokens}" if tokens in NUMBERS else ""
    return f"{name} does not support {IN_WORDS[task]}{of}; choose one of {', '.join(known)}"
