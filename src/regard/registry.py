"""Names of model families and where they live; a family is imported when first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from regard.errors import UsageError, did_you_mean

FAMILIES = {
    "uniform": "regard.models.counts:Uniform",
    "unigram": "regard.models.counts:Unigram",
    "bigram": "regard.models.counts:Bigram",
    "map": "regard.models.bayes:MapModel",
    "kneser-ney": "regard.models.kneser_ney:KneserNey",
    "hmm": "regard.models.hidden_markov:HiddenMarkov",
    "mlp": "regard.models.mlp:MLP",
    "cnn": "regard.models.convolution:CNN",
    "rnn": "regard.models.recurrent:RNNModel",
    "gru": "regard.models.recurrent:GRUModel",
    "lstm": "regard.models.recurrent:LSTMModel",
    "transformer": "regard.models.decoder:Decoder",
}


def family(name: str) -> Any:
    """The class of that name; every family has Config, PRESETS and the LanguageModel interface."""
    if name not in FAMILIES:
        raise UsageError(
            f"model.name: unknown model {name!r}; {did_you_mean(name, list(FAMILIES))}"
        )
    module, _, attribute = FAMILIES[name].partition(":")
    return getattr(import_module(module), attribute)
