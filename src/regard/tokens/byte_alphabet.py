"""The 256 printable characters that stand for bytes in byte-level vocabularies.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2, run BPE
over bytes. Their vocabulary files show a byte as the Latin-1 character of that number where it is
visible, and the others, in order, as the characters from U+0100 on; every byte-level tokenizer.json
since does the same.
"""

from __future__ import annotations

VISIBLE = frozenset([*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)])


def _alphabet() -> tuple[str, ...]:
    hidden = [byte for byte in range(256) if byte not in VISIBLE]
    return tuple(chr(b) if b in VISIBLE else chr(0x100 + hidden.index(b)) for b in range(256))


ALPHABET = _alphabet()  # ALPHABET[byte] is the character that stands for it
BYTE_OF = {character: byte for byte, character in enumerate(ALPHABET)}


def token_bytes(token: str) -> bytes | None:
    """The bytes a byte-level token stands for; None when a character of it stands for no byte."""
    try:
        return bytes([BYTE_OF[character] for character in token])
    except KeyError:
        return None
