"""Words of k bases as tokens, side by side or overlapping.

Side by side (stride k), a run of A, C, G, T is cut into words from its start; what is left of it,
fewer than k bases, and every ambiguity code or gap is a token for itself, as in the Nucleotide
Transformer (Dalla-Torre et al. 2024, Nature Methods, doi:10.1038/s41592-024-02523-z). Overlapping
(stride 1), a base's token is the word that ends with it, as in DNABERT (Ji et al. 2021,
doi:10.1093/bioinformatics/btab083), from which we differ at the start of a run: DNABERT leaves out
the first k − 1 places, we give them the shorter words that there are. So n bases are n tokens, each
of which adds one base to the text, and every text comes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np

from regard.errors import UsageError
from regard.tokens.alphabet import Alphabet
from regard.tokens.canonical import Canonical
from regard.tokens.letters import fixed_size, same_tokens
from regard.tokens.nucleotides import BASES, Nucleotides, unmarked
from regard.tokens.tokenizer import (
    SPECIALS,
    Document,
    Ids,
    OwnTokenizer,
    filled,
    layout,
    learned_tokens,
    without_learned,
)

DEFAULT_K = 6  # of the Nucleotide Transformer and of DNABERT's best model
MOST_K = 8  # 65,536 words
ALPHABETS = (Nucleotides.alphabets[0], Nucleotides.alphabets[2])  # lower case is folded
FIRST, AFTER = len(SPECIALS), len(SPECIALS) + BASES  # ids of A and of what follows T


class Kmers(OwnTokenizer):
    """Words of `k` bases; single letters for whatever is in none."""

    kind: ClassVar[str] = "kmers"

    def __init__(self, letters: Nucleotides, k: int = DEFAULT_K, *, overlap: bool = False) -> None:
        """`letters` are the single ones, whose ids stay what they are; the words come after."""
        _check(k)
        self.letters, self.k, self.overlap = letters, k, overlap
        bases = letters.characters[:BASES]
        sizes = range(2, k + 1) if overlap else [k]
        words = ["".join(word) for j in sizes for word in product(bases, repeat=j)]
        self.words = (*letters.characters, *words)
        shown = [word[-1] if overlap else word for word in self.words]  # what a token adds
        super().__init__([b"", b"", b"", b"<unk>", *(word.encode() for word in shown)])
        self._first, at = {1: FIRST}, letters.vocab_size  # of the words of each length
        for j in sizes:
            self._first[j], at = at, at + BASES**j
        flipped = str.maketrans(dict(zip(bases, reversed(bases), strict=True)))
        ids = {word: id for id, word in enumerate(self.words, start=FIRST)}
        others = [ids[word.translate(flipped)[::-1]] for word in words]
        self._spelt = [[0], [1], [2], [3], *([ids[c] for c in added] for added in shown)]
        self.complement: Ids = np.concatenate([letters.complement, others]).astype(self.dtype)

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0, *, k: int = 0, stride: int = 0) -> Self:
        """Nothing is learned but whether it is RNA. Stride 1 overlaps; k, the default, does not."""
        k = k or DEFAULT_K
        _check(k)
        if stride not in (0, 1, k):
            raise UsageError(f"tokens.stride must be 1 or k = {k}, got {stride}")
        tokenizer = cls(Nucleotides.train(texts), k, overlap=stride == 1)
        fixed_size(cls.kind, size, tokenizer.vocab_size)
        return tokenizer

    @classmethod
    def canonical(cls, **options: Any) -> Canonical:
        """See Tokenizer."""
        return Nucleotides.canonical()

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        """See Tokenizer."""
        return self._join(*self.letters.encode_batch(texts))

    def _join(self, letters: Ids, lengths: Ids) -> tuple[Ids, Ids]:
        """From (n,) single letters of records of these (R,) lengths to words."""
        plain = (letters >= FIRST) & (letters < AFTER)
        begins = plain.copy()
        begins[1:] &= ~plain[:-1]
        starts = (np.cumsum(lengths) - lengths)[lengths > 0]
        begins[starts] = plain[starts]
        place = np.arange(len(letters), dtype=np.int32)
        since = place - np.maximum.accumulate(np.where(begins | ~plain, place, 0))  # in its run
        digits = letters.astype(np.int32) - FIRST
        if self.overlap:
            return self._ending_here(letters, plain, since, digits), lengths
        return self._side_by_side(letters, lengths, (plain, begins, since, digits))

    def _ending_here(self, letters: Ids, plain: Ids, since: Ids, digits: Ids) -> Ids:
        """The id of the longest word that ends at each place."""
        first = np.array([0, *(self._first[j] for j in range(1, self.k + 1))], np.int32)
        codes = digits.copy()
        for back in range(1, self.k):
            codes[back:] += np.where(since[back:] >= back, digits[:-back] << 2 * back, 0)
        words = first[np.minimum(since + 1, self.k)] + codes
        return np.where(plain, words, letters).astype(self.dtype)

    def _side_by_side(
        self, letters: Ids, lengths: Ids, runs: tuple[Ids, Ids, Ids, Ids]
    ) -> tuple[Ids, Ids]:
        """Words from the start of each run, then single letters."""
        plain, begins, since, digits = runs
        number = np.cumsum(begins, dtype=np.int32) - 1  # of the run that a plain letter is in
        room = np.bincount(number[plain], minlength=1) // self.k * self.k
        inside = plain & (since < room[np.where(plain, number, 0)])
        heads = np.flatnonzero(inside & (since % self.k == 0))
        codes = np.zeros(len(heads), np.int32)
        for j in range(self.k):
            codes = codes * BASES + digits[heads + j]
        ids = letters.astype(self.dtype)
        ids[heads] = self._first[self.k] + codes
        keep = ~inside
        keep[heads] = True
        totals = np.concatenate([[0], np.cumsum(keep)])
        return ids[keep], np.diff(totals[np.cumsum(lengths)], prepend=0)

    def reverse_complement(self, ids: Sequence[int] | Ids) -> Ids:
        """(T,) ids of the other strand, read in its own direction, as encoding it would give them.

        Where all tokens are whole words side by side, this is `complement[ids][::-1]`; else words
        begin elsewhere on the other strand. `ids` are without markers; `<unk>` stays.
        """
        words = [self._spelt[id] for id in unmarked(self, ids)]
        letters = np.array([letter for word in words for letter in word], self.letters.dtype)
        other: Ids = self.letters.complement[letters][::-1]
        return self._join(other, np.array([len(other)]))[0]

    def text(self, id: int) -> str:
        """See Tokenizer; a word is shown whole, also where it adds one letter."""
        (id,) = self.checked([id])
        return self.names.get(id) or self.words[id - FIRST]

    def spelt(self, text: str) -> str:
        """See Tokenizer: overlapping words are written apart, as the library cannot cut them."""
        if not self.overlap:
            return text
        return " ".join("?" if id == self.unk else self.text(id) for id in self.encode(text))

    def cut(self, text: str) -> int:
        """After the last word; where words overlap, anywhere, those behind it beginning short."""
        if self.overlap:
            return len(text)
        known = self.normal(text)
        run = len(known) - len(known.rstrip("".join(self.letters.characters[:BASES])))
        return len(text) - run % self.k

    def normal(self, text: str) -> str:
        """See Tokenizer."""
        return self.letters.normal(text)

    def changed(self, texts: Sequence[str]) -> Counter[str]:
        """See Tokenizer."""
        return self.letters.changed(texts)

    def unknown(self, text: str) -> Counter[str]:
        """See Tokenizer."""
        return self.letters.unknown(text)

    @classmethod
    def layouts(cls) -> list[Document]:
        """See OwnTokenizer."""
        return [_layout(*options) for options in _options()]

    def document(self) -> Document:
        """See Tokenizer."""
        return filled(_layout(self.letters.alphabet, self.k, self.overlap), self.words)

    @classmethod
    def from_document(cls, document: Document, name: str) -> Self:
        """See Tokenizer."""
        at = cls.layouts().index(without_learned(document))
        alphabet, k, overlap = list(_options())[at]
        tokenizer = cls(Nucleotides(alphabet), k, overlap=overlap)
        same_tokens(learned_tokens(document, name), tokenizer.words, name)
        return tokenizer


def _check(k: int) -> None:
    if not 2 <= k <= MOST_K:
        raise UsageError(f"tokens.k must be from 2 to {MOST_K}, got {k}")


def _options() -> Iterator[tuple[Alphabet, int, bool]]:
    yield from product(ALPHABETS, range(2, MOST_K + 1), (False, True))


def _layout(alphabet: Alphabet, k: int, overlap: bool) -> Document:
    base = f"[{alphabet.letters[:BASES]}]"
    model = {"type": "WordLevel", "unk_token": "<unk>"}
    if overlap:  # no pre-tokenizer of the library gives one letter to two tokens: see `spelt`
        last = {"Regex": f"^{base}{{1,{k - 1}}}(?={base}$)"}  # all but the last letter is dropped
        steps = [{"type": "Replace", "pattern": last, "content": ""}, {"type": "Fuse"}]
        decoder = {"type": "Sequence", "decoders": steps}
        return layout(model, {"type": "WhitespaceSplit"}, decoder)
    pieces = {"Regex": rf"{base}{{{k}}}|[\s\S]"}
    split = {"type": "Split", "pattern": pieces, "behavior": "Isolated", "invert": False}
    return layout(model, split, {"type": "Fuse"}, alphabet.normalizer)
