"""Tokens of DNA, RNA and proteins: bases, words of k bases, amino acids, BPE over amino acids.

Alphabets are known beforehand. Characters that are read as others (lower case, U in DNA) do not
come back from decoding.

Base codes and their complements are those of IUPAC (Cornish-Bowden 1985, Nucleic Acids Research 13,
3021). Text with U and without T is RNA: a later T is read as U. Any other text is DNA: U is read as
T. Amino acid codes are those of IUPAC-IUB (1984, European Journal of Biochemistry 138, 9) with U
(selenocysteine), O (pyrrolysine) and J (leucine or isoleucine).

Words of k bases stand side by side (stride k) as in the Nucleotide Transformer (Dalla-Torre et al.
2024, Nature Methods, doi:10.1038/s41592-024-02523-z): a run of A, C, G, T is cut into words from
its start; the remaining bases, fewer than k, and every ambiguity code or gap are single tokens. Or
they overlap (stride 1) as in DNABERT (Ji et al. 2021, doi:10.1093/bioinformatics/btab083): the
token of a base is the word that ends with it. DNABERT leaves out the first k − 1 positions of a
run; we give them the shorter words, so n bases are n tokens and every text comes back.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Literal, Self

import numpy as np

from regard.errors import UsageError, UserError
from regard.tokenizers.text import (
    PLAIN_MODEL,
    Characters,
    MergeTokenizer,
    check_spelling,
    learn_merges,
)
from regard.tokenizers.tokenizer import (
    FUSE,
    SPECIALS,
    WORD_LEVEL,
    Canonical,
    Document,
    Ids,
    NativeTokenizer,
    Tokenizer,
    check_each,
    check_size,
    layout,
    learned_tokens,
    remove_learned,
)

Case = Literal["fold", "keep"]


@dataclass(frozen=True)
class Alphabet:
    """`letters` are tokens; `reads` maps other characters to the letters they are read as."""

    letters: str
    reads: Mapping[str, str]

    @cached_property
    def _translation(self) -> dict[int, str]:
        return str.maketrans(dict(self.reads))

    @property
    def pattern(self) -> str:
        """The letters as a class of a regular expression."""
        return f"[{re.escape(self.letters)}]"

    @property
    def normalizer(self) -> Document | None:
        """`normalize` in terms of tokenizer.json."""
        steps = [
            {"type": "Replace", "pattern": {"String": old}, "content": new}
            for old, new in self.reads.items()
        ]
        return {"type": "Sequence", "normalizers": steps} if steps else None

    def normalize(self, text: str) -> str:
        """Return the text with every character as it is read."""
        return text.translate(self._translation)


def fold_case(letters: str, reads: Mapping[str, str] | None = None) -> Alphabet:
    """Return an alphabet that reads lower-case letters (soft-masked, in genomes) as upper-case."""
    reads = dict(reads or {})
    lower = {c.lower(): c for c in letters if c.isupper()}
    return Alphabet(letters, reads | lower | {c.lower(): new for c, new in reads.items()})


def keep_case(letters: str, reads: Mapping[str, str] | None = None) -> Alphabet:
    """Return an alphabet in which lower-case letters are letters of their own."""
    reads = dict(reads or {})
    lower = "".join(c.lower() for c in letters if c.isupper())
    return Alphabet(letters + lower, reads | {c.lower(): n.lower() for c, n in reads.items()})


class AlphabetTokenizer(NativeTokenizer):
    """A tokenizer of sequences over an `alphabet`; other characters become `<unk>`."""

    alphabet: Alphabet

    def normalize(self, text: str) -> str:
        return self.alphabet.normalize(text)

    def count_substitutions(self, texts: Sequence[str]) -> Counter[str]:
        joined = "".join(texts)
        counts = {f"{old} as {new}": joined.count(old) for old, new in self.alphabet.reads.items()}
        return Counter({name: n for name, n in counts.items() if n})

    def count_unknown(self, text: str) -> Counter[str]:
        return Counter(c for c in self.normalize(text) if c not in self.alphabet.letters)


class FixedTokenizer(AlphabetTokenizer):
    """A tokenizer whose vocabulary follows from the arguments of its constructor."""

    @classmethod
    @abstractmethod
    def variants(cls) -> Iterable[tuple[Any, ...]]:
        """Return the arguments of every possible tokenizer of this class."""

    @staticmethod
    @abstractmethod
    def build_layout(*variant: Any) -> Document:
        """Return the layout of the file of a variant."""

    @classmethod
    def recognises(cls, document: Document) -> bool:
        layout = remove_learned(document)
        return any(cls.build_layout(*variant) == layout for variant in cls.variants())

    @classmethod
    def from_document(cls, document: Document, name: str) -> Self:
        layout = remove_learned(document)
        tokenizer = cls(*next(v for v in cls.variants() if cls.build_layout(*v) == layout))
        try:
            tokens = learned_tokens(document)
        except UserError as error:
            raise UserError(f"{name}: damaged: {error}") from error
        if tuple(tokens) != tokenizer.tokens:
            raise UserError(
                f"{name}: damaged: model.vocab must hold the {len(tokenizer.tokens)} tokens of its "
                "alphabet, in their order"
            )
        return tokenizer


class Letters(FixedTokenizer, Characters):
    """One token per letter; training only chooses one of the class's alphabets."""

    options: ClassVar[Mapping[str, Any]] = {"case": "fold"}
    alphabets: tuple[Alphabet, ...]

    def __init__(self, alphabet: Alphabet) -> None:
        super().__init__(alphabet.letters)
        self.alphabet, self.layout = alphabet, self.build_layout(alphabet)
        old, new = (list(map(ord, c)) for c in (alphabet.reads, alphabet.reads.values()))
        self._table[old] = self._table[new]

    @classmethod
    def choose(cls, texts: Iterable[str], case: Case) -> Alphabet:
        """Return the alphabet for these texts."""
        return cls.alphabets[case == "keep"]

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0, *, case: Case = "fold") -> Self:
        """Choose the alphabet; `case` folds lower case into upper, or keeps it."""
        tokenizer = cls(cls.choose(texts, case))
        tokenizer.check_fixed_size(size)
        return tokenizer

    @classmethod
    def canonical(cls, *, case: Case = "fold", **options: Any) -> Canonical:
        alphabet = cls.alphabets[case == "keep"]
        return Canonical(alphabet.normalize, ("letter case",) if case == "fold" else ())

    @classmethod
    def variants(cls) -> Iterable[tuple[Alphabet]]:
        return [(alphabet,) for alphabet in cls.alphabets]

    @staticmethod
    def build_layout(*variant: Any) -> Document:
        (alphabet,) = variant
        return layout(WORD_LEVEL, rf"{alphabet.pattern}|[\s\S]", normalizer=alphabet.normalizer)


BASES = 4  # the unambiguous ones, which come first
AMBIGUOUS = "RYSWKMBDHVN"  # two, three or all four of the bases
GAP = "-"
DNA, RNA = "ACGT" + AMBIGUOUS + GAP, "ACGU" + AMBIGUOUS + GAP
OTHER_STRAND = "TGCA" + "YRSWMKVHDBN" + GAP  # what pairs with the letters of DNA, in their order
PAIRS = str.maketrans(f"{DNA}U{DNA.lower()}u", f"{OTHER_STRAND}A{OTHER_STRAND.lower()}a")


class Nucleotides(Letters):
    """One token per base: A, C, G, T or U, the ambiguity codes, the gap."""

    name = "nucleotides"
    modality = "biology"
    alphabets = (
        fold_case(DNA, {"U": "T"}),
        keep_case(DNA, {"U": "T"}),
        fold_case(RNA, {"T": "U"}),
        keep_case(RNA, {"T": "U"}),
    )

    def __init__(self, alphabet: Alphabet) -> None:
        super().__init__(alphabet)
        partners = alphabet.normalize(alphabet.letters.translate(PAIRS))
        self.complement: Ids = np.arange(self.vocab_size, dtype=self.dtype)  # (V,)
        self.complement[len(SPECIALS) :] = self._table[[ord(c) for c in partners]]

    @property
    def standard_symbols(self) -> list[str]:
        """The four bases."""
        return [base for base in "ACGTU" if base in self.alphabet.letters]

    @classmethod
    def choose(cls, texts: Iterable[str], case: Case) -> Alphabet:
        """Return an alphabet of RNA if there is a U and no T; reading stops at the first T."""
        uracil = False
        for text in texts:
            if "T" in text or "t" in text:
                uracil = False
                break
            uracil = uracil or "U" in text or "u" in text
        return cls.alphabets[2 * uracil + (case == "keep")]

    @classmethod
    def canonical(cls, *, case: Case = "fold", **options: Any) -> Canonical:
        form = super().canonical(case=case)
        return replace(form, ignores=(*form.ignores, "U or T"))

    def reverse_complement(self, ids: Sequence[int] | Ids) -> Ids:
        """Return the (T,) ids of the other strand, in its own direction; `<unk>` stays.

        `ids` are as `encode` gives them, without markers.
        """
        letters: Ids = self.complement[_check_unmarked(self, ids)][::-1]
        return letters


def other_strand(text: str) -> str:
    """Return the reverse complement of a sequence; what is no base stays as it is."""
    return text.translate(PAIRS)[::-1]


def either_strand(text: str) -> str:
    """Return a sequence or its reverse complement, whichever is first in alphabetical order."""
    return min(text, other_strand(text))


def _check_unmarked(tokenizer: Tokenizer, ids: Sequence[int] | Ids) -> list[int]:
    """Return the ids, refusing markers, which would change ends."""
    numbers = tokenizer.check_ids(ids)
    if numbers and min(numbers) < tokenizer.unk:
        raise UserError(
            f"{SPECIALS[min(numbers)]} is on no strand: give the ids between the markers"
        )
    return numbers


DEFAULT_K = 6  # of the Nucleotide Transformer and of DNABERT's best model
MAX_K = 8  # 65,536 words
FIRST, AFTER = len(SPECIALS), len(SPECIALS) + BASES  # ids of A and of the letter after T


class Kmers(FixedTokenizer):
    """Words of `k` bases, and single letters for what is in no word."""

    name = "kmers"
    modality = "biology"
    options: ClassVar[Mapping[str, Any]] = {"k": 0, "stride": 0}

    def __init__(self, alphabet: Alphabet, k: int = DEFAULT_K, overlap: bool = False) -> None:
        """Single letters keep their ids in `Nucleotides`; the words come after."""
        self.letters = letters = Nucleotides(alphabet)
        self.alphabet, self.k, self.overlap = alphabet, k, overlap
        self.layout = self.build_layout(alphabet, k, overlap)
        bases = letters.tokens[:BASES]
        sizes = range(2, k + 1) if overlap else [k]
        words = ["".join(word) for j in sizes for word in product(bases, repeat=j)]
        tokens = (*letters.tokens, *words)
        added = [word[-1] if overlap else word for word in tokens]  # what a token adds to the text
        super().__init__(tokens, [text.encode() for text in added])
        self._first, id = {1: FIRST}, letters.vocab_size  # first id of the words of each length
        for j in sizes:
            self._first[j], id = id, id + BASES**j
        flipped = str.maketrans(dict(zip(bases, reversed(bases), strict=True)))
        ids = {word: id for id, word in enumerate(tokens, start=FIRST)}
        complements = [ids[word.translate(flipped)[::-1]] for word in words]
        self._letters_of = [[0], [1], [2], [3], *([ids[c] for c in text] for text in added)]
        self.complement: Ids = np.concatenate([letters.complement, complements]).astype(self.dtype)

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0, *, k: int = 0, stride: int = 0) -> Self:
        """Choose DNA or RNA. Words overlap with stride 1, and do not with stride k, the default."""
        k = k or DEFAULT_K
        if not 2 <= k <= MAX_K:
            raise UsageError(f"k must be from 2 to {MAX_K}, got {k}")
        if stride not in (0, 1, k):
            raise UsageError(f"stride must be 1 or k = {k}, got {stride}")
        tokenizer = cls(Nucleotides.choose(texts, "fold"), k, stride == 1)
        tokenizer.check_fixed_size(size)
        return tokenizer

    @property
    def standard_symbols(self) -> list[str]:
        """The four bases."""
        return self.letters.standard_symbols

    @classmethod
    def canonical(cls, **options: Any) -> Canonical:
        return Nucleotides.canonical()

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        return self._join(*self.letters.encode_batch(texts))

    def _join(self, letters: Ids, lengths: Ids) -> tuple[Ids, Ids]:
        """Return the words of (n,) single letters of records with these (R,) lengths."""
        plain = (letters >= FIRST) & (letters < AFTER)
        begins = plain.copy()
        begins[1:] &= ~plain[:-1]
        starts = (np.cumsum(lengths) - lengths)[lengths > 0]
        begins[starts] = plain[starts]
        position = np.arange(len(letters), dtype=np.int32)
        run_start = np.maximum.accumulate(np.where(begins | ~plain, position, 0))
        offset = position - run_start  # within the run
        digits = letters.astype(np.int32) - FIRST
        if self.overlap:
            return self._overlapping(letters, plain, offset, digits), lengths
        return self._side_by_side(letters, lengths, (plain, begins, offset, digits))

    def _overlapping(self, letters: Ids, plain: Ids, offset: Ids, digits: Ids) -> Ids:
        """Return the id of the longest word that ends at each position."""
        first = np.array([0, *(self._first[j] for j in range(1, self.k + 1))], np.int32)
        codes = digits.copy()
        for lag in range(1, self.k):
            codes[lag:] += np.where(offset[lag:] >= lag, digits[:-lag] << 2 * lag, 0)
        words = first[np.minimum(offset + 1, self.k)] + codes
        return np.where(plain, words, letters).astype(self.dtype)

    def _side_by_side(
        self, letters: Ids, lengths: Ids, runs: tuple[Ids, Ids, Ids, Ids]
    ) -> tuple[Ids, Ids]:
        """Return words from the start of each run, then single letters."""
        plain, begins, offset, digits = runs
        run = np.cumsum(begins, dtype=np.int32) - 1  # number of the run of a plain letter
        covered = np.bincount(run[plain], minlength=1) // self.k * self.k  # letters in words
        inside = plain & (offset < covered[np.where(plain, run, 0)])
        heads = np.flatnonzero(inside & (offset % self.k == 0))
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
        """Return the (T,) ids of the other strand, in its own direction, as encoding gives them.

        If all tokens are full words side by side, this is `complement[ids][::-1]`; else words begin
        elsewhere on the other strand. `ids` are without markers; `<unk>` stays.
        """
        words = [self._letters_of[id] for id in _check_unmarked(self, ids)]
        letters = np.array([letter for word in words for letter in word], self.letters.dtype)
        other: Ids = self.letters.complement[letters][::-1]
        return self._join(other, np.array([len(other)]))[0]

    def text(self, id: int) -> str:
        (id,) = self.check_ids([id])
        return self.names.get(id) or self.tokens[id - FIRST]  # complete, even if it adds one letter

    def spell_for_library(self, text: str) -> str:
        if not self.overlap:
            return text
        return " ".join("?" if id == self.unk else self.text(id) for id in self.encode(text))

    @property
    def export_warnings(self) -> list[str]:
        if not self.overlap:
            return []
        return [
            "words that overlap cannot be cut by the tokenizers library: give it the words, with "
            "spaces between, rather than the sequence"
        ]

    def cut(self, text: str) -> int:
        """Return the end of the last word; if words overlap, the end of the text."""
        if self.overlap:
            return len(text)
        normal = self.normalize(text)
        run = len(normal) - len(normal.rstrip("".join(self.letters.tokens[:BASES])))
        return len(text) - run % self.k

    @classmethod
    def variants(cls) -> Iterator[tuple[Alphabet, int, bool]]:
        folded = Nucleotides.alphabets[0], Nucleotides.alphabets[2]
        return product(folded, range(2, MAX_K + 1), (False, True))

    @staticmethod
    def build_layout(*variant: Any) -> Document:
        alphabet, k, overlap = variant
        base = f"[{alphabet.letters[:BASES]}]"
        if not overlap:
            pattern = rf"{base}{{{k}}}|[\s\S]"
            return layout(WORD_LEVEL, pattern, normalizer=alphabet.normalizer)
        # No pre-tokenizer of the library gives one letter to two tokens: see spell_for_library.
        # The decoder drops all but the last letter of a word.
        start = {"Regex": f"^{base}{{1,{k - 1}}}(?={base}$)"}
        steps = [{"type": "Replace", "pattern": start, "content": ""}, FUSE]
        decoder = {"type": "Sequence", "decoders": steps}
        return layout(WORD_LEVEL, pre_tokenizer={"type": "WhitespaceSplit"}, decoder=decoder)


STANDARD = "ACDEFGHIKLMNPQRSTVWY"
AMINO_ACIDS = STANDARD + "XBZJUO" + "*" + "-."  # X is any; * ends a chain; two signs for a gap


class Residues(Letters):
    """One token per amino acid: twenty, the rarer and ambiguous ones, the stop, gaps."""

    name = "residues"
    modality = "biology"
    alphabets = (fold_case(AMINO_ACIDS), keep_case(AMINO_ACIDS))

    @property
    def standard_symbols(self) -> list[str]:
        """The twenty amino acids."""
        return list(STANDARD)


class ProteinBPE(AlphabetTokenizer, MergeTokenizer):
    """Byte-pair encoding over amino acids: frequent runs of residues become tokens.

    A sequence has no words, so pairs are merged along all of it. Lower case is folded.
    """

    name = "protein-bpe"
    modality = "biology"
    default_size = 1024
    alphabet = Residues.alphabets[0]
    layout = layout(PLAIN_MODEL, f"[^{alphabet.pattern[1:]}", normalizer=alphabet.normalizer)

    @classmethod
    def from_merges(cls, tokens: Sequence[str], merges: Sequence[Sequence[str]]) -> Self:
        check_spelling(tokens, AMINO_ACIDS)
        return cls(tokens, merges)

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """Merge until the vocabulary is full or no pair occurs twice."""
        check_size(cls.name, size, len(SPECIALS) + len(AMINO_ACIDS))
        size = size or cls.default_size
        return cls.from_merges(*learn_merges(_known_runs(texts), cls.layout, size, AMINO_ACIDS))

    @property
    def standard_symbols(self) -> list[str]:
        """The twenty amino acids."""
        return list(STANDARD)

    @classmethod
    def canonical(cls, **options: Any) -> Canonical:
        return Residues.canonical()


def _known_runs(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts, cut at unknown characters, which must not enter a vocabulary."""
    for text in check_each(texts):
        normal = ProteinBPE.alphabet.normalize(text)
        unknown = {ord(c): " " for c in set(normal) - set(AMINO_ACIDS)}
        yield from normal.translate(unknown).split()
