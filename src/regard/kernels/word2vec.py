"""The inner loops of word vectors, as machine code by numba (the extra `fast`).

A stretch of text is read word by word. What is frequent is left out at random, a window of random
width is taken around each word, and a few other words are drawn; then the window takes one step
down the exact gradient of its loss. All of a window's context words share the words drawn for it,
which are read once and not once for each of them (Ji et al. 2016, arXiv:1604.04661).

Arrays are (R, D) for R words. A function takes float64 as well as float32, of which a test makes
use; `fastmath` lets sums be reordered, by the compiler and so always alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

BORDER, ABSENT = -2, -1  # instead of the row of a word: a record ends here; the token is no word
GOLDEN = 0x9E3779B97F4A7C15  # steps of the seeds of SplitMix64 (Steele et al. 2014)
UNIT = 1.0 / (1 << 24)  # 24 random bits as a number below 1

jit = numba.njit(nogil=True, fastmath=True, cache=True, error_model="numpy")


class Weights(NamedTuple):
    """Both matrices (R, D), and which rows (R,) were changed."""

    inputs: Any
    outputs: Any
    changed_in: Any
    changed_out: Any


class Chances(NamedTuple):
    """What is drawn how often: the row of every token (V,), or BORDER or ABSENT; how likely a word
    is kept (R,); and the alias table (R,) and (R,) of the words drawn beside a right one (Walker
    1977, doi:10.1145/355744.355749).
    """

    rows: Any
    keep: Any
    share: Any
    alias: Any


class Scratch(NamedTuple):
    """Room: kept words of a stretch (N,), the vectors a window predicts from (2 · window, D) and
    their changes, scores (T, 2 · window) and targets (T,), and the random state (1,).
    """

    kept: Any
    hidden: Any
    back: Any
    scores: Any
    targets: Any
    random: Any


class Way(NamedTuple):
    """How it is read: words on either side, words drawn (0: all words are scored), and whether a
    window predicts from the mean of its words or from each of them.
    """

    window: int
    negatives: int
    mean: bool


@jit
def seeded(random, seed):
    """Begin a stream of random numbers: SplitMix64's finaliser."""
    x = np.uint64(seed) + np.uint64(GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    random[0] = x if x != np.uint64(0) else np.uint64(GOLDEN)


@jit
def drawn(random):
    """64 random bits: xorshift64* (Marsaglia 2003; Vigna 2016, arXiv:1402.6246)."""
    x = random[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    random[0] = x
    return x * np.uint64(0x2545F4914F6CDD1D)


@jit
def below(bits, count):
    """A whole number from 0 to count - 1, of the upper 32 bits."""
    return np.int64(((bits >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32))


@jit
def keep_words(ids, chances, scratch):
    """The words of a stretch that are read this time, BORDER between records; how many."""
    n = 0
    kept, random = scratch.kept, scratch.random
    for i in range(len(ids)):
        row = chances.rows[ids[i]]
        if row >= 0:
            if np.float64(drawn(random) >> np.uint64(40)) * UNIT < chances.keep[row]:
                kept[n] = row
                n += 1
        elif row == BORDER and n and kept[n - 1] != BORDER:
            kept[n] = BORDER
            n += 1
    return n


@jit
def draw_targets(centre, negatives, chances, scratch):
    """The centre and words drawn beside it, which are others; how many in all."""
    targets, count = scratch.targets, 1
    targets[0] = centre
    for _ in range(negatives):
        bits = drawn(scratch.random)
        row = below(bits, len(chances.alias))
        if np.float64(bits & np.uint64(0xFFFFFF)) * UNIT >= chances.share[row]:
            row = np.int64(chances.alias[row])
        if row != centre:
            targets[count] = row
            count += 1
    return count


@jit
def gather(inputs, kept, low, at, high, mean, hidden):
    """What a window predicts from: its words' vectors, or their mean; how many vectors."""
    if not mean:
        count = 0
        for j in range(low, high + 1):
            if j != at:
                x, h = inputs[kept[j]], hidden[count]
                for d in range(len(x)):
                    h[d] = x[d]
                count += 1
        return count
    total = hidden[0]
    for d in range(len(total)):
        total[d] = 0
    for j in range(low, high + 1):
        if j != at:
            x = inputs[kept[j]]
            for d in range(len(x)):
                total[d] += x[d]
    share = hidden.dtype.type(1.0 / (high - low))
    for d in range(len(total)):
        total[d] *= share
    return 1


@jit
def score(outputs, count, targets, n_targets, hidden, scores):
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
def logistic(scores, n_targets, count):
    """The loss of telling the right word, the first, from those drawn: Mikolov et al. 2013
    (arXiv:1310.4546), equation 4. Scores become its derivatives.

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
            wrong = (1 if z > 0 else small) / (1 + small)  # the probability of being wrong
            scores[t, c] = -wrong if t == 0 else wrong
        if t % 256 == 255:
            loss += np.log(product)
            product = 1.0
    return loss + np.log(product)


@jit
def softmax(scores, n_targets, count, right):
    """The cross-entropy of the right word among all words; scores become its derivatives."""
    loss = 0.0
    for c in range(count):
        top = scores[0, c]
        for t in range(1, n_targets):
            top = max(top, scores[t, c])
        loss += top - scores[right, c]
        total = 0.0
        for t in range(n_targets):
            scores[t, c] = np.exp(scores[t, c] - top)
            total += scores[t, c]
        loss += np.log(total)
        for t in range(n_targets):
            scores[t, c] /= total
        scores[right, c] -= 1
    return loss


@jit
def descend(weights, count, n_targets, scratch, rate):
    """Both sides take a step down the gradient at where both of them were: the outputs here, the
    vectors predicted from in `back`.
    """
    hidden, back, scores = scratch.hidden, scratch.back, scratch.scores
    size = hidden.shape[1]
    for c in range(count):
        change = back[c]
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
def spread(weights, kept, low, at, high, mean, back):
    """Hand the change of what was predicted from on to the context words; of a mean, each has its
    share (as İrsoy et al. 2021, arXiv:2012.15332, put right what the authors' program does).
    """
    c = 0
    share = back.dtype.type(1.0 / (high - low) if mean else 1.0)
    for j in range(low, high + 1):
        if j != at:
            row = kept[j]
            x, change = weights.inputs[row], back[c]
            weights.changed_in[row] = 1
            for d in range(len(x)):
                x[d] += share * change[d]
            if not mean:
                c += 1


@jit
def learn(weights, kept, low, at, high, n_targets, right, scratch, way, rate):
    """One window, kept[low] to kept[high] around kept[at]: its loss, and over how many predictions;
    with a rate above 0 the weights take a step.
    """
    count = gather(weights.inputs, kept, low, at, high, way.mean, scratch.hidden)
    score(weights.outputs, count, scratch.targets, n_targets, scratch.hidden, scratch.scores)
    if way.negatives:
        loss = logistic(scratch.scores, n_targets, count)
    else:
        loss = softmax(scratch.scores, n_targets, count, right)
    if rate > 0:
        descend(weights, count, n_targets, scratch, rate)
        spread(weights, kept, low, at, high, way.mean, scratch.back)
    return loss, count


@jit
def read(ids, weights, chances, scratch, way, rate, seed):
    """Learn from a stretch of tokens, or with rate 0 only measure it: the sum of the losses, and of
    how many predictions. The seed decides all that is random.
    """
    seeded(scratch.random, seed)
    kept, n = scratch.kept, keep_words(ids, chances, scratch)
    loss, predictions = 0.0, 0
    for at in range(n):
        if kept[at] == BORDER:
            continue
        reach = 1 + below(drawn(scratch.random), way.window)
        low = high = at
        while low > 0 and at - low < reach and kept[low - 1] != BORDER:
            low -= 1
        while high < n - 1 and high - at < reach and kept[high + 1] != BORDER:
            high += 1
        if low == high:
            continue
        n_targets = len(scratch.targets)
        if way.negatives:
            n_targets = draw_targets(kept[at], way.negatives, chances, scratch)
        found, count = learn(weights, kept, low, at, high, n_targets, kept[at], scratch, way, rate)
        loss += found
        predictions += count
    return loss, predictions


@jit
def merge(base, copies, changed, gain, first, last):
    """Bring rows `first` to `last` - 1 of a matrix (R, D) up to date with what its copies (P, R, D)
    have become, `changed` (P, R) telling where; every row takes the sum of their changes, times its
    `gain` (R,). The copies are then alike.
    """
    shares, size = copies.shape[0], copies.shape[2]
    for row in range(first, last):
        some = False
        for p in range(shares):
            some |= changed[p, row] != 0
            changed[p, row] = 0
        if not some:
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
