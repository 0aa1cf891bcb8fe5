"""The inner loops of word2vec, compiled by numba (the extra `fast`).

A span of text is read word by word: frequent words are subsampled, a window of random width is
taken around each word, and negative examples are drawn; then the window takes one step down the
exact gradient of its loss. All context words of a window share its negative examples, which are
read once instead of once per word (Ji et al. 2016, arXiv:1604.04661).

Arrays are (R, D) for R words. The functions take float64 as well as float32. `fastmath` lets the
compiler reorder sums, in the same way in every run. The twin is torch's autograd, in the tests.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

BORDER, ABSENT = -2, -1  # instead of the row of a word: a record ends here; the token is no word
GOLDEN = 0x9E3779B97F4A7C15  # increment of the seeds of SplitMix64 (Steele et al. 2014)
UNIT = 1.0 / (1 << 24)  # 24 random bits as a number below 1

jit = numba.njit(nogil=True, fastmath=True, cache=True, error_model="numpy")


class Weights(NamedTuple):
    """Both matrices (R, D), and which of their rows (R,) were changed."""

    inputs: Any
    outputs: Any
    changed_in: Any
    changed_out: Any


class SamplingTables(NamedTuple):
    """The row of every token (V,), or BORDER or ABSENT; the probability (R,) that subsampling keeps
    a word; and the alias table (R,), (R,) of negative examples (Walker 1977,
    doi:10.1145/355744.355749).
    """

    rows: Any
    keep: Any
    share: Any
    alias: Any


class Scratch(NamedTuple):
    """Buffers: the words of a span after subsampling (N,), the vectors a window predicts from
    (2 · window, D) and their changes, scores (T, 2 · window), targets (T,), random state (1,).
    """

    words: Any
    hidden: Any
    changes: Any
    scores: Any
    targets: Any
    random: Any


class WindowOptions(NamedTuple):
    """Words on either side, negative examples (0: all words are scored), and whether a window
    predicts from the mean of its words or from each of them.
    """

    window: int
    negatives: int
    mean: bool


@jit
def seed_random(random, seed):
    """Start a stream of random numbers: SplitMix64's finaliser."""
    x = np.uint64(seed) + np.uint64(GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    random[0] = x if x != np.uint64(0) else np.uint64(GOLDEN)


@jit
def random_bits(random):
    """64 random bits: xorshift64* (Marsaglia 2003; Vigna 2016, arXiv:1402.6246)."""
    x = random[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    random[0] = x
    return x * np.uint64(0x2545F4914F6CDD1D)


@jit
def random_below(bits, count):
    """An integer from 0 to count - 1, from the upper 32 bits."""
    return np.int64(((bits >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32))


@jit
def subsample(ids, tables, scratch):
    """Store the words of a span that are kept, with BORDER between records; return how many."""
    n = 0
    words, random = scratch.words, scratch.random
    for i in range(len(ids)):
        row = tables.rows[ids[i]]
        if row >= 0:
            if np.float64(random_bits(random) >> np.uint64(40)) * UNIT < tables.keep[row]:
                words[n] = row
                n += 1
        elif row == BORDER and n and words[n - 1] != BORDER:
            words[n] = BORDER
            n += 1
    return n


@jit
def draw_targets(center, negatives, tables, scratch):
    """Store the center word and negative examples that differ from it; return how many in all."""
    targets, count = scratch.targets, 1
    targets[0] = center
    for _ in range(negatives):
        bits = random_bits(scratch.random)
        row = random_below(bits, len(tables.alias))
        if np.float64(bits & np.uint64(0xFFFFFF)) * UNIT >= tables.share[row]:
            row = np.int64(tables.alias[row])
        if row != center:
            targets[count] = row
            count += 1
    return count


@jit
def gather_context(inputs, words, low, at, high, mean, hidden):
    """Store what a window predicts from: its words' vectors or their mean; return how many."""
    if not mean:
        count = 0
        for j in range(low, high + 1):
            if j != at:
                x, h = inputs[words[j]], hidden[count]
                for d in range(len(x)):
                    h[d] = x[d]
                count += 1
        return count
    total = hidden[0]
    for d in range(len(total)):
        total[d] = 0
    for j in range(low, high + 1):
        if j != at:
            x = inputs[words[j]]
            for d in range(len(x)):
                total[d] += x[d]
    share = hidden.dtype.type(1.0 / (high - low))
    for d in range(len(total)):
        total[d] *= share
    return 1


@jit
def score_targets(outputs, count, targets, n_targets, hidden, scores):
    """scores[t, c] = hidden[c] · outputs[targets[t]], two vectors at a time."""
    size = hidden.shape[1]
    for t in range(n_targets):
        y = outputs[targets[t]]
        for c in range(0, count - 1, 2):
            one, two = hidden[c], hidden[c + 1]
            a, b = hidden.dtype.type(0), hidden.dtype.type(0)
            for d in range(size):
                a += one[d] * y[d]
                b += two[d] * y[d]
            scores[t, c], scores[t, c + 1] = a, b
        if count % 2:
            last = hidden[count - 1]
            a = hidden.dtype.type(0)
            for d in range(size):
                a += last[d] * y[d]
            scores[t, count - 1] = a


@jit
def logistic_loss(scores, n_targets, count):
    """Return the loss of telling the center word, the first target, from negative examples (Mikolov
    et al. 2013, arXiv:1310.4546, equation 4); scores become its derivatives.

    log(1 + e^z) = max(z, 0) + log(1 + e^-|z|); the factors 1 + e^-|z| are at most 2, so that one
    logarithm of their product serves all, exactly.
    """
    loss, product = 0.0, 1.0
    for t in range(n_targets):
        for c in range(count):
            z = -scores[t, c] if t == 0 else scores[t, c]
            small = np.exp(-abs(z))
            product *= 1.0 + small
            loss += max(z, 0.0)
            error = (1 if z > 0 else small) / (1 + small)  # the probability of the other answer
            scores[t, c] = -error if t == 0 else error
        if t % 256 == 255:
            loss += np.log(product)
            product = 1.0
    return loss + np.log(product)


@jit
def softmax_loss(scores, n_targets, count, center):
    """Return the cross-entropy of the center word among all; scores become its derivatives."""
    loss = 0.0
    for c in range(count):
        top = scores[0, c]
        for t in range(1, n_targets):
            top = max(top, scores[t, c])
        loss += top - scores[center, c]
        total = 0.0
        for t in range(n_targets):
            scores[t, c] = np.exp(scores[t, c] - top)
            total += scores[t, c]
        loss += np.log(total)
        for t in range(n_targets):
            scores[t, c] /= total
        scores[center, c] -= 1
    return loss


@jit
def descend(weights, count, n_targets, scratch, rate):
    """Take a step down the gradient: in the outputs themselves, and for the vectors predicted from
    in `changes`; both gradients are taken before either moves.
    """
    hidden, changes, scores = scratch.hidden, scratch.changes, scratch.scores
    size = hidden.shape[1]
    for c in range(count):
        change = changes[c]
        for d in range(size):
            change[d] = 0
        for t in range(n_targets):
            y, g = weights.outputs[scratch.targets[t]], rate * scores[t, c]
            for d in range(size):
                change[d] -= g * y[d]
    for t in range(n_targets):
        row = scratch.targets[t]
        y = weights.outputs[row]
        weights.changed_out[row] = 1
        for c in range(count):
            h, g = hidden[c], rate * scores[t, c]
            for d in range(size):
                y[d] -= g * h[d]


@jit
def update_context(weights, words, low, at, high, mean, changes):
    """Add the changes to the context words; of a mean, each word gets its share (the correction of
    İrsoy et al. 2021, arXiv:2012.15332, to the authors' program).
    """
    c = 0
    share = changes.dtype.type(1.0 / (high - low) if mean else 1.0)
    for j in range(low, high + 1):
        if j != at:
            row = words[j]
            x, change = weights.inputs[row], changes[c]
            weights.changed_in[row] = 1
            for d in range(len(x)):
                x[d] += share * change[d]
            if not mean:
                c += 1


@jit
def train_window(weights, words, low, at, high, n_targets, center, scratch, options, rate):
    """Return the loss and the number of predictions of the window words[low] to words[high] around
    words[at]; with a rate above 0 the weights take a step.
    """
    count = gather_context(weights.inputs, words, low, at, high, options.mean, scratch.hidden)
    score_targets(
        weights.outputs, count, scratch.targets, n_targets, scratch.hidden, scratch.scores
    )
    if options.negatives:
        loss = logistic_loss(scratch.scores, n_targets, count)
    else:
        loss = softmax_loss(scratch.scores, n_targets, count, center)
    if rate > 0:
        descend(weights, count, n_targets, scratch, rate)
        update_context(weights, words, low, at, high, options.mean, scratch.changes)
    return loss, count


@jit
def train_tokens(ids, weights, tables, scratch, options, rate, seed):
    """Train on a span of tokens, or with rate 0 only measure it; return the sum of the losses and
    the number of predictions. The seed decides all that is random.
    """
    seed_random(scratch.random, seed)
    words, n = scratch.words, subsample(ids, tables, scratch)
    loss, predictions = 0.0, 0
    for at in range(n):
        if words[at] == BORDER:
            continue
        width = 1 + random_below(random_bits(scratch.random), options.window)
        low = high = at
        while low > 0 and at - low < width and words[low - 1] != BORDER:
            low -= 1
        while high < n - 1 and high - at < width and words[high + 1] != BORDER:
            high += 1
        if low == high:
            continue
        n_targets = len(scratch.targets)
        if options.negatives:
            n_targets = draw_targets(words[at], options.negatives, tables, scratch)
        window_loss, count = train_window(
            weights, words, low, at, high, n_targets, words[at], scratch, options, rate
        )
        loss += window_loss
        predictions += count
    return loss, predictions


@jit
def merge(base, copies, changed, gain, first, last):
    """Update rows `first` to `last` - 1 of a matrix (R, D) with the sum of the changes of its
    copies (P, R, D), times the `gain` (R,) of the row; all copies then equal the matrix.

    `changed` (P, R) marks the rows that differ, and is cleared.
    """
    shares, size = copies.shape[0], copies.shape[2]
    for row in range(first, last):
        any_changed = False
        for p in range(shares):
            any_changed |= changed[p, row] != 0
            changed[p, row] = 0
        if not any_changed:
            continue
        here, times = base[row], gain[row]
        for d in range(size):
            total = -shares * here[d]
            for p in range(shares):
                total += copies[p, row, d]
            here[d] += times * total
        for p in range(shares):
            for d in range(size):
                copies[p, row, d] = here[d]
