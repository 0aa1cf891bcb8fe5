"""The Neural Network Zoo of deck 001 (asimovinstitute.org/neural-network-zoo) and what runs here.

Each network of the chart is a row of `regard compare` or `regard train --model`, or it is left out
with a reason: the zoo holds much that is no model of sequences with a likelihood or a label.
`ZOO` is the table that the companion to the lectures prints.
"""

from __future__ import annotations

from typing import NamedTuple


class ZooEntry(NamedTuple):
    """A network of the chart: the names of rows, and what differs or why it is left out."""

    name: str
    rows: tuple[str, ...]  # names of `--model`; none: left out
    note: str


ZOO = (
    ZooEntry("Perceptron (P)", ("logistic", "svm"), "one linear layer, fitted by a solver"),
    ZooEntry("Feed Forward (FF)", ("mlp",), "one hidden layer over the last symbols"),
    ZooEntry("Radial Basis Network (RBF)", (), "as a kernel: `regard lab kernels`, Gaussian row"),
    ZooEntry("Deep Feed Forward (DFF)", ("mlp",), "model.n_layers above 1"),
    ZooEntry(
        "Recurrent Neural Network (RNN)", ("rnn",), "tanh cells; a translator has a bottleneck"
    ),
    ZooEntry("Long/Short Term Memory (LSTM)", ("lstm",), "gates that forget, store and output"),
    ZooEntry("Gated Recurrent Unit (GRU)", ("gru",), "two gates"),
    ZooEntry("Auto Encoder (AE)", (), "no row: its loss is no likelihood of a sequence"),
    ZooEntry("Variational AE (VAE)", (), "no row; the course's variational part is EM here: hmm"),
    ZooEntry("Denoising AE (DAE)", ("transformer",), "--task masked: fills in what was masked"),
    ZooEntry("Sparse AE (SAE)", (), "no row, as AE"),
    ZooEntry(
        "Markov Chain (MC)", ("bigram", "map", "kneser-ney", "markov", "hmm"), "order 1 and up"
    ),
    ZooEntry(
        "Hopfield Network (HN)",
        (),
        "its update is attention over stored patterns (Ramsauer et al. 2020, arXiv:2008.02217): "
        "`regard lab lookup`",
    ),
    ZooEntry("Boltzmann Machine (BM)", (), "no model of sequences; needs MCMC to train"),
    ZooEntry("Restricted BM (RBM)", (), "as BM"),
    ZooEntry("Deep Belief Network (DBN)", (), "as BM"),
    ZooEntry("Deep Convolutional Network (DCN)", ("cnn",), "texts, series and images"),
    ZooEntry("Deconvolutional Network (DN)", (), "makes images; nothing here does"),
    ZooEntry("Deep Convolutional Inverse Graphics Network (DCIGN)", (), "as DN"),
    ZooEntry("Generative Adversarial Network (GAN)", (), "has no likelihood to compare rows by"),
    ZooEntry("Liquid State Machine (LSM)", (), "spiking; no gradient"),
    ZooEntry(
        "Extreme Learning Machine (ELM)", ("rocket",), "random features and a linear model: series"
    ),
    ZooEntry("Echo State Network (ESN)", (), "a random recurrence; `rocket` is the nearest row"),
    ZooEntry("Deep Residual Network (DRN)", ("cnn", "transformer"), "cnn of images; each block"),
    ZooEntry("Kohonen Network (KN)", (), "clusters: the maps of `regard look` draw these"),
    ZooEntry("Support Vector Machine (SVM)", ("svm", "nb-svm"), "linear, over n-grams"),
    ZooEntry("Neural Turing Machine (NTM)", (), "its addressing is attention: `transformer`"),
    ZooEntry("Attention Network (AN)", ("rnn-attention", "transformer"), "Bahdanau, and all later"),
)
