"""Alphabets of biological sequences: their letters in the order of their ids, and what is read as
which.

A letter read as another (lower case, U in DNA) does not come back when decoded: `normal` is what
does.

One token per letter of an alphabet that is known beforehand: bases, residues.

One token per base: A, C, G, T or U, the ambiguity codes, the gap.

Codes and their complements are those of IUPAC (Cornish-Bowden 1985, Nucleic Acids Research 13,
3021). Text with U and without T is RNA: U is kept, and a later T read as U. Any other is DNA: U is
read as T.

Words of k bases as tokens, side by side or overlapping.

Side by side (stride k), a run of A, C, G, T is cut into words from its start; what is left of it,
fewer than k bases, and every ambiguity code or gap is a token for itself, as in the Nucleotide
Transformer (Dalla-Torre et al. 2024, Nature Methods, doi:10.1038/s41592-024-02523-z). Overlapping
(stride 1), a base's token is the word that ends with it, as in DNABERT (Ji et al. 2021,
doi:10.1093/bioinformatics/btab083), from which we differ at the start of a run: DNABERT leaves out
the first k − 1 places, we give them the shorter words that there are. So n bases are n tokens, each
of which adds one base to the text, and every text comes back.

One token per amino acid: twenty, the rarer and ambiguous ones, the stop, gaps.

One-letter codes are those of IUPAC-IUB (1984, European Journal of Biochemistry 138, 9) with U
(selenocysteine), O (pyrrolysine) and J (leucine or isoleucine).

Byte-pair encoding over amino acids: frequent runs of residues, motifs, become tokens.

The learner is that of bpe.py; a sequence has no words, so pairs are merged along all of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Literal, Self

import numpy as np

from regard.errors import UsageError, UserError
from regard.tokenizers.bpe import Merges, learn
from regard.tokenizers.characters import BYTE_LEVEL_MODEL, Characters
from regard.tokenizers.tokenizer import (
    SPECIALS,
    Canonical,
    Document,
    Ids,
    OwnTokenizer,
    Tokenizer,
    check_size,
    check_unicode,
    filled,
    layout,
    learned_tokens,
    without_learned,
)


@dataclass(frozen=True)
class Alphabet:
    """`letters` have ids of their own; `reads` says of other characters as which they are read."""

    letters: str
    reads: Mapping[str, str]

    @cached_property
    def _translation(self) -> dict[int, str]:
        return str.maketrans(dict(self.reads))

    @cached_property
    def members(self) -> str:
        """The letters as a class of a regular expression."""
        return f"[{re.escape(self.letters)}]"

    @property
    def normalizer(self) -> Document | None:
        """`normal` as tokenizer.json says it."""
        steps = [
            {"type": "Replace", "pattern": {"String": old}, "content": new}
            for old, new in self.reads.items()
        ]
        return {"type": "Sequence", "normalizers": steps} if steps else None

    def normal(self, text: str) -> str:
        """The text with every character as it is read."""
        return text.translate(self._translation)

    def changed(self, texts: Sequence[str]) -> Counter[str]:
        """How often each character occurs that is read as another."""
        whole = "".join(texts)
        found = {f"{old} as {new}": whole.count(old) for old, new in self.reads.items()}
        return Counter({name: n for name, n in found.items() if n})


def fold_case(letters: str, reads: Mapping[str, str] | None = None) -> Alphabet:
    """Upper-case letters, as which lower-case ones (soft-masked, in genomes) are read too."""
    reads = dict(reads or {})
    lower = {c.lower(): c for c in letters if c.isupper()}
    return Alphabet(letters, reads | lower | {c.lower(): new for c, new in reads.items()})


def keep_case(letters: str, reads: Mapping[str, str] | None = None) -> Alphabet:
    """Upper-case letters, and lower-case ones as letters of their own."""
    reads = dict(reads or {})
    lower = "".join(c.lower() for c in letters if c.isupper())
    return Alphabet(letters + lower, reads | {c.lower(): n.lower() for c, n in reads.items()})


Case = Literal["fold", "keep"]


class Letters(Characters):
    """The letters of an alphabet; any other character becomes `<unk>`. Nothing is learned but
    which of the kind's alphabets it is.
    """

    alphabets: ClassVar[tuple[Alphabet, ...]]  # a file is recognised by which of them it has

    def __init__(self, alphabet: Alphabet) -> None:
        super().__init__(alphabet.letters)
        self.alphabet = alphabet
        old, new = ([ord(c) for c in side] for side in (alphabet.reads, alphabet.reads.values()))
        self._table[old] = self._table[new]

    @classmethod
    def choose(cls, texts: Iterable[str], case: Case) -> Alphabet:
        """The alphabet for these texts."""
        return cls.alphabets[0 if case == "fold" else 1]

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0, *, case: Case = "fold") -> Self:
        """Choose the alphabet. `case` folds lower case into upper, or keeps it apart."""
        tokenizer = cls(cls.choose(texts, case))
        fixed_size(cls.kind, size, tokenizer.vocab_size)
        return tokenizer

    @classmethod
    def canonical(cls, *, case: Case = "fold", **options: Any) -> Canonical:
        """See Tokenizer."""
        alphabet = cls.alphabets[0 if case == "fold" else 1]
        return Canonical(alphabet.normal, ("letter case",) if case == "fold" else ())

    def normal(self, text: str) -> str:
        """See Tokenizer."""
        return self.alphabet.normal(text)

    def changed(self, texts: Sequence[str]) -> Counter[str]:
        """See Tokenizer."""
        return self.alphabet.changed(texts)

    @classmethod
    def layouts(cls) -> list[Document]:
        """See OwnTokenizer."""
        return [_layout(alphabet) for alphabet in cls.alphabets]

    def document(self) -> Document:
        """See Tokenizer."""
        return filled(_layout(self.alphabet), self.characters)

    @classmethod
    def from_document(cls, document: Document, name: str) -> Self:
        """See Tokenizer."""
        tokenizer = cls(cls.alphabets[cls.layouts().index(without_learned(document))])
        same_tokens(learned_tokens(document, name), tokenizer.characters, name)
        return tokenizer


def _layout(alphabet: Alphabet) -> Document:
    return layout(
        model={"type": "WordLevel", "unk_token": "<unk>"},
        normalizer=alphabet.normalizer,
        pre_tokenizer={
            "type": "Split",
            "pattern": {"Regex": rf"{alphabet.members}|[\s\S]"},
            "behavior": "Isolated",
            "invert": False,
        },
        decoder={"type": "Fuse"},
    )


def fixed_size(kind: str, size: int, whole: int) -> None:
    """Refuse another size than that of a vocabulary which is what it is."""
    if size not in (0, whole):
        raise UsageError(
            f"tokens.size must be {whole} for these {kind}, or 0 for the default; got {size}"
        )


def same_tokens(found: Sequence[str], expected: Sequence[str], name: str) -> None:
    """Refuse a file whose vocabulary is not the one that its layout implies."""
    if list(found) != list(expected):
        raise UserError(
            f"{name}: damaged: model.vocab must hold the {len(expected)} tokens of its alphabet, "
            "in their order"
        )


BASES = 4  # that are certain; they come first
AMBIGUOUS = "RYSWKMBDHVN"  # two, three or all four of the bases
GAP = "-"
DNA, RNA = "ACGT" + AMBIGUOUS + GAP, "ACGU" + AMBIGUOUS + GAP
OTHER_STRAND = "TGCA" + "YRSWMKVHDBN" + GAP  # what pairs with the letters of DNA, in their order
PAIRS = str.maketrans(f"{DNA}U{DNA.lower()}u", f"{OTHER_STRAND}A{OTHER_STRAND.lower()}a")


class Nucleotides(Letters):
    """Bases of one strand, and the way to the other."""

    kind: ClassVar[str] = "nucleotides"
    alphabets: ClassVar[tuple[Alphabet, ...]] = (
        fold_case(DNA, {"U": "T"}),
        keep_case(DNA, {"U": "T"}),
        fold_case(RNA, {"T": "U"}),
        keep_case(RNA, {"T": "U"}),
    )

    def __init__(self, alphabet: Alphabet) -> None:
        super().__init__(alphabet)
        partners = alphabet.normal(alphabet.letters.translate(PAIRS))
        self.complement: Ids = np.arange(self.vocab_size, dtype=self.dtype)  # (V,)
        self.complement[len(SPECIALS) :] = self._table[[ord(c) for c in partners]]

    @classmethod
    def choose(cls, texts: Iterable[str], case: Case) -> Alphabet:
        """RNA if there is a U and no T; reading stops at the first T."""
        uracil = False
        for text in texts:
            if "T" in text or "t" in text:
                uracil = False
                break
            uracil = uracil or "U" in text or "u" in text
        return cls.alphabets[2 * uracil + (case == "keep")]

    @classmethod
    def canonical(cls, *, case: Case = "fold", **options: Any) -> Canonical:
        """See Tokenizer; both of the alphabets read U and T as one letter."""
        found = super().canonical(case=case)
        return replace(found, ignores=(*found.ignores, "U or T"))

    def reverse_complement(self, ids: Sequence[int] | Ids) -> Ids:
        """(T,) ids of the other strand, read in its own direction; `<unk>` stays what it is.

        `ids` are as `encode` gives them, without markers.
        """
        letters: Ids = self.complement[unmarked(self, ids)][::-1]
        return letters


def other_strand(text: str) -> str:
    """The reverse complement of a sequence; what is no base stays as it is."""
    return text.translate(PAIRS)[::-1]


def either_strand(text: str) -> str:
    """The strand of a sequence and its reverse complement that comes first by the alphabet."""
    return min(text, other_strand(text))


def unmarked(tokenizer: Tokenizer, ids: Sequence[int] | Ids) -> list[int]:
    """The ids, once it is certain that no marker is among them: it would change ends."""
    found = tokenizer.checked(ids)
    if found and min(found) < tokenizer.unk:
        raise UserError(f"{SPECIALS[min(found)]} is on no strand: give the ids between the markers")
    return found


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
        return [_kmer_layout(*options) for options in _options()]

    def document(self) -> Document:
        """See Tokenizer."""
        return filled(_kmer_layout(self.letters.alphabet, self.k, self.overlap), self.words)

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


def _kmer_layout(alphabet: Alphabet, k: int, overlap: bool) -> Document:
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


STANDARD = "ACDEFGHIKLMNPQRSTVWY"
AMINO_ACIDS = STANDARD + "XBZJUO" + "*" + "-."  # X is any; * ends a chain; two signs for a gap


class Residues(Letters):
    """Amino acids."""

    kind: ClassVar[str] = "residues"
    alphabets: ClassVar[tuple[Alphabet, ...]] = (fold_case(AMINO_ACIDS), keep_case(AMINO_ACIDS))


DEFAULT_SIZE = 1024
PLAIN_MODEL: Document = {**BYTE_LEVEL_MODEL, "unk_token": "<unk>"}  # letters stand for themselves
ALPHABET = Residues.alphabets[0]
OTHERS = f"[^{ALPHABET.members[1:]}"


class ProteinBPE(Merges):
    """Runs of residues; lower case is folded, what is no residue becomes `<unk>`."""

    kind: ClassVar[str] = "motifs"
    layout: ClassVar[Document] = layout(
        model=PLAIN_MODEL,
        normalizer=ALPHABET.normalizer,
        pre_tokenizer={
            "type": "Split",
            "pattern": {"Regex": OTHERS},
            "behavior": "Isolated",
            "invert": False,
        },
        decoder={"type": "Fuse"},
    )

    @classmethod
    def of(cls, tokens: Sequence[str], merges: Sequence[Sequence[str]]) -> Self:
        """See Merges."""
        check_spelling(tokens, AMINO_ACIDS)
        return cls(tokens, merges, [token.encode() for token in tokens])

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """Merge until the vocabulary is full or no pair occurs twice; see Tokenizer."""
        check_size(cls.kind, size, len(SPECIALS) + len(AMINO_ACIDS))
        return cls.of(*learn(_known(texts), cls.layout, size or DEFAULT_SIZE, AMINO_ACIDS))

    @classmethod
    def canonical(cls, **options: Any) -> Canonical:
        """See Tokenizer."""
        return Residues.canonical()

    def normal(self, text: str) -> str:
        """See Tokenizer."""
        return ALPHABET.normal(text)

    def changed(self, texts: Sequence[str]) -> Counter[str]:
        """See Tokenizer."""
        return ALPHABET.changed(texts)

    def unknown(self, text: str) -> Counter[str]:
        """See Tokenizer."""
        return Counter(c for c in self.normal(text) if c not in AMINO_ACIDS)


def check_spelling(tokens: Sequence[str], letters: Sequence[str]) -> None:
    """Refuse a vocabulary that lacks a letter, or has a token with another one."""
    for token in tokens:
        if not token or not set(token) <= set(letters):
            raise UserError(f"{token!r} in model.vocab is not spelt in {''.join(letters)}")
    if absent := [letter for letter in letters if letter not in set(tokens)]:
        raise UserError(f"model.vocab lacks {' '.join(absent)}")


def _known(texts: Iterable[str]) -> Iterator[str]:
    """The texts, cut where something unknown is, which no vocabulary shall hold."""
    known = set(AMINO_ACIDS)
    for number, text in enumerate(texts):
        check_unicode([text], number)
        read = ALPHABET.normal(text)
        gaps = {ord(c): " " for c in set(read) - known}
        yield from read.translate(gaps).split()
