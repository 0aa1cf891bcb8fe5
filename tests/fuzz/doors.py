"""The doors by which bytes come in from outside: for each, sound files, ways to damage one, and the
commands that read it.
"""

import contextlib
import gzip
import io
import json
import os
import random
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mutations
import numpy as np
from cases import Action, call, command
from PIL import Image

import regard.cli
from regard.interop import motif_formats
from regard.planning import plan_recipe
from regard.run import Run
from regard.training import checkpoint

SMALL = ["--set=model.n_layers=1", "--set=model.d_model=8", "--set=train.steps=2"]
QUICK = [*SMALL, "--set=train.batch_tokens=64"]
Damage = Callable[[random.Random, bytes], bytes]
MEME = """MEME version 4

ALPHABET= ACGT

strands: + -

Background letter frequencies
A 0.25 C 0.25 G 0.25 T 0.25

MOTIF one other

letter-probability matrix: alength= 4 w= 2 nsites= 20 E= 0
 0.9 0.1 0 0
 0 0 1 0

URL http://example.org
"""


class Material:
    """Sound files and small runs in a folder, made when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def made(self, name: str, make: Callable[[Path], object]) -> Path:
        """The file or folder of this name."""
        path = self.folder / name
        if not path.exists():
            with contextlib.redirect_stdout(io.StringIO()):
                make(path)
        return path

    def trained(self, name: str, *arguments: object) -> Path:
        """A run."""

        def make(path: Path) -> None:
            given = [*arguments, "--out", path, "--quiet"]
            given += [] if "bigram" in arguments else QUICK
            found = regard.cli.run(["train", *map(str, given)])
            assert found == 0, (name, found)

        return self.made(name, make)

    @property
    def words(self) -> Path:
        """Words, a record each."""
        rng = random.Random(3)
        lines = ["".join(rng.choices("abcde", k=rng.randint(1, 8))) for _ in range(120)]
        return self.made("words.txt", lambda path: path.write_text("\n".join(lines) + "\n"))

    @property
    def table(self) -> Path:
        """Texts and classes."""
        rng = random.Random(4)
        rows = [f"{''.join(rng.choices('ACGT', k=9))},{rng.choice('ab')}" for _ in range(80)]
        text = "\n".join(["seq,kind", *rows]) + "\n"
        return self.made("table.csv", lambda path: path.write_text(text))

    @property
    def objects(self) -> Path:
        """The same as JSON lines."""
        rows = [row.split(",") for row in self.table.read_text().split()[1:]]
        lines = [json.dumps({"seq": a, "kind": b, "n": i}) for i, (a, b) in enumerate(rows)]
        return self.made("objects.jsonl", lambda path: path.write_text("\n".join(lines) + "\n"))

    @property
    def sequences(self) -> Path:
        """FASTA."""
        rows = self.table.read_text().split()[1:]
        text = "".join(f">r{i} kind={r[-1]}\n{r[:9]}\n" for i, r in enumerate(rows))
        return self.made("sequences.fa", lambda path: path.write_text(text))

    @property
    def packed(self) -> Path:
        """A zip archive of a table."""

        def make(path: Path) -> None:
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.write(self.table, "deep/table.csv")
                archive.write(self.words, "words.txt")

        return self.made("packed.zip", make)

    @property
    def pictures(self) -> Path:
        """A folder for each class, with a picture of each of several formats."""

        def make(folder: Path) -> None:
            rng = np.random.default_rng(0)
            for kind in "ab":
                (folder / kind).mkdir(parents=True)
                for i, end in enumerate(("png", "jpg", "gif", "bmp", "tif", "webp", "ppm", "png")):
                    pixels = rng.integers(0, 255, (9, 8, 3) if i % 2 else (9, 8), dtype=np.uint8)
                    Image.fromarray(pixels).save(folder / kind / f"{i}.{end}")

        return self.made("pictures", make)

    @property
    def picture_archive(self) -> Path:
        """The same, and texts, in a zip archive."""

        def make(path: Path) -> None:
            with zipfile.ZipFile(path, "w") as archive:
                for file in sorted(self.pictures.rglob("*.*")):
                    archive.write(file, str(file.relative_to(self.pictures)))

        return self.made("pictures.zip", make)

    @property
    def digits(self) -> Path:
        """IDX files of images and labels."""

        def make(folder: Path) -> None:
            folder.mkdir()
            pixels = np.random.default_rng(0).integers(0, 255, (40, 6, 6), dtype=np.uint8)
            labels = np.arange(40, dtype=np.uint8) % 2
            head = struct.pack(">BBBBIII", 0, 0, 8, 3, *pixels.shape)
            (folder / "t-images-idx3-ubyte").write_bytes(head + pixels.tobytes())
            head = struct.pack(">BBBBI", 0, 0, 8, 1, 40)
            (folder / "t-labels-idx1-ubyte").write_bytes(head + labels.tobytes())

        return self.made("digits", make)

    @property
    def arrays(self) -> Path:
        """NumPy files of images with labels, and of point clouds."""

        def make(folder: Path) -> None:
            folder.mkdir()
            rng = np.random.default_rng(0)
            images = rng.integers(0, 255, (30, 6, 6), dtype=np.uint8)
            np.savez(folder / "images.npz", images=images, labels=np.arange(30) % 2)
            np.savez_compressed(
                folder / "clouds.npz", points=rng.normal(size=(20, 5, 3)), y=np.arange(20) % 2
            )
            np.savez(
                folder / "joined.npz",
                points=rng.normal(size=(60, 3)),
                lengths=np.full(20, 3),
                features=rng.normal(size=(60, 2)),
                atoms=rng.integers(1, 9, 60),
                y=np.arange(20) % 2,
                kinds=rng.integers(0, 3, 60),
            )
            np.savez(folder / "floats.npz", images=rng.random((30, 6, 6)), labels=np.arange(30) % 2)
            np.save(folder / "x_train.npy", images)
            np.save(folder / "y_train.npy", np.arange(30) % 2)

        return self.made("arrays", make)

    @property
    def clouds(self) -> Path:
        """Point clouds: molecules and meshes."""

        def make(folder: Path) -> None:
            rng = np.random.default_rng(0)
            lines = []
            for i in range(20):
                lines += ["3", f"m{i} y={i / 7:.3f} kind={'ab'[i % 2]}"]
                lines += [f"{s} {' '.join(f'{x:.3f}' for x in rng.normal(size=3))}" for s in "COH"]
            folder.mkdir()
            (folder / "molecules.xyz").write_text("\n".join(lines) + "\n")
            for kind in "ab":
                (folder / "meshes" / kind).mkdir(parents=True)
                for i in range(3):
                    points = rng.normal(size=(4, 3)).astype("<f4")
                    stem = folder / "meshes" / kind / f"{kind}{i}"
                    written = "\n".join(" ".join(map(str, p)) for p in points.tolist())
                    faces = "3 0 1 2\n3 1 2 3\n"
                    stem.with_suffix(".off").write_text(f"OFF\n4 2 0\n{written}\n{faces}")
                    head = "ply\nformat {} 1.0\nelement vertex 4\n"
                    head += "".join(f"property float {axis}\n" for axis in "xyz")
                    head += "element face 2\nproperty list uchar int vertex_indices\nend_header\n"
                    text = head.format("ascii") + written + "\n" + faces
                    (stem.parent / f"{kind}{i}t.ply").write_text(text)
                    body = points.tobytes() + b"".join(
                        struct.pack("<Biii", 3, *face) for face in ((0, 1, 2), (1, 2, 3))
                    )
                    binary = head.format("binary_little_endian").encode() + body
                    (stem.parent / f"{kind}{i}b.ply").write_bytes(binary)

        return self.made("clouds", make)

    @property
    def vectors(self) -> Path:
        """Word vectors as text."""
        text = "4 3\n" + "".join(f"{word} 0.1 -0.25 {i}\n" for i, word in enumerate("abcd"))
        return self.made("words.vec", lambda path: path.write_text(text))

    @property
    def motifs(self) -> Path:
        """Motifs."""
        return self.made("motifs.meme", lambda path: path.write_text(MEME))

    @property
    def language_run(self) -> Path:
        """A run that predicts the next symbol."""
        return self.trained("language", self.words)

    @property
    def counting_run(self) -> Path:
        """One that counts."""
        return self.trained("counting", self.words, "--model", "bigram")

    @property
    def label_run(self) -> Path:
        """A run of classes."""
        return self.trained("labels", self.table, "--target", "kind", "--set=model.preset=bert")

    @property
    def pair_run(self) -> Path:
        """A translator."""

        def make(path: Path) -> None:
            words = self.words.read_text().split()
            path.write_text("a\tb\n" + "".join(f"{w}\t{w[::-1]}\n" for w in words))

        pairs = self.made("pairs.tsv", make)
        return self.trained("pairs", pairs, "--input", "a", "--target", "b", "--task", "target")

    @property
    def image_run(self) -> Path:
        """A run of images."""
        return self.trained("images", self.arrays / "images.npz", "--set=model.preset=vit")

    @property
    def cloud_run(self) -> Path:
        """A run of molecules."""
        return self.trained("cloud", self.clouds / "molecules.xyz", "--target", "y")

    def exported(self, name: str, run: Path) -> Path:
        """A Hugging Face folder of a run."""

        def make(path: Path) -> None:
            assert regard.cli.run(["export", str(run), str(path)]) == 0

        return self.made(name, make)

    @property
    def published(self) -> Path:
        """A language model."""
        return self.exported("published", self.language_run)

    @property
    def classifier(self) -> Path:
        """A classifier."""
        return self.exported("classifier", self.label_run)

    @property
    def vision(self) -> Path:
        """A classifier of images."""
        return self.exported("vision", self.image_run)

    @property
    def translator(self) -> Path:
        """A translator."""
        return self.exported("translator", self.pair_run)

    @property
    def vector_run(self) -> Path:
        """A run of word vectors."""

        def make(path: Path) -> None:
            assert regard.cli.run(["import", str(self.vectors), "--out", str(path)]) == 0

        return self.made("vector run", make)

    @property
    def rules(self) -> Path:
        """Forbidden transitions."""
        return self.made("rules.txt", lambda path: path.write_text("# none\na b\n<S>\tc\n* d\n"))

    @property
    def values(self) -> Path:
        """Targets of molecules, beside them."""
        text = "name y\n" + "".join(f"m{i} {i / 3:.3f}\n" for i in range(20))
        return self.made("values.txt", lambda path: path.write_text(text))

    @property
    def comparison(self) -> Path:
        """A finished comparison."""

        def make(path: Path) -> None:
            names = ["--models", "unigram,bigram", "--quiet", "--out", str(path)]
            assert regard.cli.run(["compare", str(self.words), *names]) == 0

        return self.made("comparison", make)


@dataclass(frozen=True)
class Door:
    """A file by which bytes come in."""

    name: str
    home: Callable[[Material], Path]  # the file, or the folder of it
    file: str  # in the folder; "*" for any of them; "" where the home is the file
    damage: Damage
    actions: Callable[[Material, Path, Path], list[Action]]  # of the damaged copy, and where to
    share: int = 10  # of all cases
    slow: bool = False  # left to `make fuzz`

    def case(self, material: Material, scratch: Path, rng: random.Random) -> Action:
        """Damage a copy in the scratch folder; what reads it."""
        copy = self.copied(material, scratch)
        names = [copy] if copy.is_file() else [p for p in copy.rglob(self.file) if p.is_file()]
        target = rng.choice(sorted(names))
        target.write_bytes(self.damage(rng, target.read_bytes()))
        return rng.choice(self.actions(material, copy, scratch / "out"))

    def copied(self, material: Material, scratch: Path) -> Path:
        """A copy of the sound files."""
        home = self.home(material)
        copy = scratch / home.name
        if home.is_dir():
            shutil.copytree(home, copy)
        else:
            shutil.copy(home, copy)
        return copy

    def sound(self, material: Material, scratch: Path) -> list[Action]:
        """What reads the files as they are."""
        return self.actions(material, self.copied(material, scratch), scratch / "out")


def planned(path: Path, *more: str) -> Action:
    """What training would choose for a file; nothing is trained."""
    return call(lambda: plan_recipe([path], assignments=list(more)))


def read_text(material: Material, path: Path, out: Path) -> list[Action]:
    """Commands that read records."""
    return [
        command("data", path),
        command("data", path, "--json"),
        command("score", material.counting_run, path),
        command("evaluate", material.counting_run, path),
        planned(path),
    ]


def read_labels(material: Material, path: Path, out: Path) -> list[Action]:
    """Commands that read labelled records."""
    columns = ["--input", "seq", "--target", "kind"]
    return [
        command("data", path, *columns),
        command("data", path, *columns, "--json"),
        command("data", path, "--target", "kind"),
        command("evaluate", material.label_run, path, *columns),
        command("predict", material.label_run, path),
        planned(path, "data.target='kind'", "data.input='seq'"),
    ]


def read_fasta(material: Material, path: Path, out: Path) -> list[Action]:
    """Commands that read FASTA."""
    return [
        command("data", path),
        command("data", path, "--target", "kind"),
        command("predict", material.label_run, path),
        planned(path),
    ]


def read_archive(material: Material, path: Path, out: Path) -> list[Action]:
    """Commands that read members of an archive."""
    return [
        command("data", path),
        command("data", f"{path}:words.txt"),
        command("data", f"{path}:deep/table.csv", "--target", "kind"),
        command("data", f"{path}:deep/tabel.csv"),
        planned(Path(f"{path}:words.txt")),
    ]


def read_images(material: Material, path: Path, out: Path) -> list[Action]:
    """Commands that read images."""
    some = sorted(path.rglob("*.*"))
    return [
        command("data", path),
        command("data", path, "--json"),
        command("predict", material.image_run, path),
        *(command("predict", material.image_run, one) for one in some[:1]),
        planned(path),
    ]


def read_image_archive(material: Material, path: Path, out: Path) -> list[Action]:
    """Commands that read an archive of class folders."""
    return [command("data", path), planned(path)]


def read_idx(material: Material, path: Path, out: Path) -> list[Action]:
    """Commands that read IDX files."""
    images = path / "t-images-idx3-ubyte"
    return [command("data", images), command("predict", material.image_run, images)]


def read_arrays(material: Material, path: Path, out: Path) -> list[Action]:
    """Commands that read NumPy files."""
    return [
        command("data", path / "images.npz"),
        command("data", path / "x_train.npy"),
        command("data", path / "clouds.npz"),
        command("data", path / "joined.npz", "--target", "y"),
        command("data", path / "joined.npz", "--target", "kinds"),
        command("data", path / "floats.npz"),
        command("predict", material.image_run, path / "images.npz"),
    ]


def read_clouds(material: Material, path: Path, out: Path) -> list[Action]:
    """Commands that read point clouds."""
    return [
        command("data", path / "molecules.xyz", "--target", "y"),
        command("data", path / "meshes"),
        command("predict", material.cloud_run, path / "molecules.xyz"),
        planned(path / "meshes"),
    ]


def read_language_run(material: Material, path: Path, out: Path) -> list[Action]:
    """Commands that open a run of a language model."""
    return [
        command("generate", path, "--num", 1, "--max-new", 3),
        command("score", path, material.words),
        command("evaluate", path),
        command("export", path, out),
        command("train", path, "--resume", "--quiet"),
    ]


def look_at(material: Material, path: Path, out: Path) -> list[Action]:
    """A page about a run."""
    return [command("look", path, "abc", "--out", out.with_suffix(".html"))]


def read_label_run(material: Material, path: Path, out: Path) -> list[Action]:
    """Commands that open a run of classes."""
    return [
        command("predict", path, material.words),
        command("embed", path, material.words),
        command("evaluate", path),
        command("export", path, out),
    ]


def read_pair_run(material: Material, path: Path, out: Path) -> list[Action]:
    """Commands that open a translator."""
    return [
        command("translate", path, material.words),
        command("score", path, material.folder / "pairs.tsv", "--input", "a", "--target", "b"),
    ]


def read_image_run(material: Material, path: Path, out: Path) -> list[Action]:
    """Commands that open a run of images."""
    return [command("predict", path, material.arrays / "images.npz"), command("evaluate", path)]


def read_cloud_run(material: Material, path: Path, out: Path) -> list[Action]:
    """Commands that open a run of point clouds."""
    return [command("predict", path, material.clouds / "molecules.xyz"), command("evaluate", path)]


def read_vectors(material: Material, path: Path, out: Path) -> list[Action]:
    """Commands that open word vectors."""
    return [command("embed", path, material.words), command("export", path, out, "--to", "vec")]


def compare_again(material: Material, path: Path, out: Path) -> list[Action]:
    """The same comparison once more: it reads what each run left."""
    names = ["--models", "unigram,bigram", "--quiet", "--out", path]
    return [command("compare", material.words, *names)]


def import_folder(material: Material, path: Path, out: Path) -> list[Action]:
    """Import what others have published."""
    return [command("import", path, "--out", out)]


def read_recipe(material: Material, path: Path, out: Path) -> list[Action]:
    """Read a recipe; nothing is trained."""
    return [planned(path / "recipe.toml")]


def read_motifs(material: Material, path: Path, out: Path) -> list[Action]:
    """Read motifs."""
    return [call(motif_formats.read_motifs, path)]


def packed_bytes(rng: random.Random, data: bytes) -> bytes:
    """Damage inside gzip data, or of it."""
    if rng.random() < 0.5:
        return gzip.compress(mutations.damaged_bytes(rng, data))
    return mutations.damaged_bytes(rng, gzip.compress(data))


def resealed(rng: random.Random, data: bytes) -> bytes:
    """A checkpoint whose state is damaged, and whose checksum is right all the same."""
    manifest = json.loads(data)
    state = mutations.damaged_json(rng, json.dumps(manifest["state"]).encode())
    try:
        manifest["state"] = json.loads(state)
        del manifest["seal"]
        return json.dumps(manifest | {"seal": checkpoint.seal(manifest)}).encode()
    except (ValueError, RecursionError):
        return state


def tensor_headers(rng: random.Random, data: bytes) -> bytes:
    """Safetensors whose header says something else; its length is right."""
    size = int.from_bytes(data[:8], "little")
    header = mutations.damaged_json(rng, data[8 : 8 + size])
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


def array_headers(rng: random.Random, data: bytes) -> bytes:
    """NumPy files with damage inside; the archive around them is right."""
    if not data.startswith(b"PK"):
        return mutations.damaged_bytes(rng, data)
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        hurt = rng.choice(old.namelist())
        for name in old.namelist():
            inside = old.read(name)
            new.writestr(name, mutations.damaged_bytes(rng, inside) if name == hurt else inside)
    return made.getvalue()


def picture_headers(rng: random.Random, data: bytes) -> bytes:
    """A PNG file that says to have any number of pixels, with the right checksum."""
    if not data.startswith(b"\x89PNG"):
        return mutations.lie(rng, data)
    sides = [rng.choice((0, 1, 9, 5000, 12_000, 30_000, 2**31 - 1)) for _ in range(2)]
    head = struct.pack(">II", *sides) + bytes(rng.choice((data[24:29], rng.randbytes(5))))
    chunk = b"IHDR" + head
    return data[:12] + chunk + struct.pack(">I", zlib.crc32(chunk)) + data[33:]


def bombs(rng: random.Random, data: bytes) -> bytes:
    """Archives that lie about what they hold, or hold a great deal."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        how = rng.randrange(4)
        if how == 0:
            for i in range(3000):
                archive.writestr(f"deep/{i}.csv", "")
        elif how == 1:
            archive.writestr("words.txt", b"a" * (20 << 20))
        elif how == 2:
            archive.writestr("../words.txt\x1b[2J\u202e", "a\nb\n")
        archive.writestr("deep/table.csv", rng.choice(("seq,kind\n", "a\n" * 99, "\0" * 9)))
    return made.getvalue() if rng.random() < 0.5 else mutations.lie(rng, made.getvalue())


@dataclass(frozen=True)
class Options:
    """Values of --set, and names of files: doors without a file of their own."""

    name: str
    share: int = 10
    slow: bool = False

    def case(self, material: Material, scratch: Path, rng: random.Random) -> Action:
        """What reads a strange value or name."""
        if self.name == "--set":
            keys = (
                "data.train",
                "data.split",
                "augment.views",
                "train.lr",
                "train.steps",
                "model.size",
            )
            keys += (
                "model.name",
                "model.preset",
                "task.name",
                "output.tokenizer",
                "input.tokenizer",
                "data.target",
                "a.b",
                "x",
            )
            keys += ("data.pattern", "data.labels", "data.valid", "task.forbid", "model.max_len")
            keys += (
                "model.d_model",
                "train.seed",
                "data.format",
                "data.encoding",
                "train.init_from",
            )
            value = rng.choice((*mutations.TOML, "", "x = 1", "1\ny = 2", "\x1b[2J", "\ud800"))
            text = f"{rng.choice(keys)}={value}"
            if rng.random() < 0.3:
                text = mutations.damaged_bytes(rng, text.encode(errors="replace"))[:9999].decode(
                    errors="surrogateescape"
                )
            if rng.random() < 0.5:
                return planned(material.words, text)
            return command("data", material.words, "--set", text)
        raw = rng.choice(
            (b"\xff\xfe", b"\x1b[2Jx", b"a\nb", "\u202e".encode(), b"x" * 200, b"\xc3")
        )
        name = os.fsdecode(raw + rng.choice((b".txt", b".csv", b".zip", b".fa", b"", b".zip:x")))
        path = scratch / name
        if rng.random() < 0.8:
            path.write_bytes(material.words.read_bytes())
        return rng.choice(
            [
                command("data", path),
                command("train", path, "--model", "bigram", "--out", scratch / "run", "--quiet"),
                command("evaluate", material.counting_run, path),
                command("generate", path),
                command("score", material.counting_run, path),
            ]
        )


M = Material
JSON, TOML, BYTES = mutations.damaged_json, mutations.damaged_toml, mutations.damaged_bytes
DOORS: list[Door | Options] = [
    Door("regard.json", lambda m: m.language_run, "regard.json", JSON, read_language_run),
    Door("regard.json, labels", lambda m: m.label_run, "regard.json", JSON, read_label_run, 20),
    Door("regard.json, pairs", lambda m: m.pair_run, "regard.json", JSON, read_pair_run),
    Door("regard.json, look", lambda m: m.counting_run, "regard.json", JSON, look_at, 2),
    Door("regard.json, compared", lambda m: m.comparison, "regard.json", JSON, compare_again, 2,
         True),
    Door("metrics.jsonl", lambda m: m.language_run, "metrics.jsonl", mutations.damaged_lines,
         lambda m, path, out: [call(lambda: list(Run(path).validations()))]),
    Door("metrics, compared", lambda m: m.comparison, "metrics.jsonl", mutations.damaged_lines,
         compare_again, 2, True),
    Door("memory.json", lambda m: m.comparison, "memory.json", JSON, compare_again, 1, True),
    Door("recipe.toml", lambda m: m.label_run, "recipe.toml", TOML, read_recipe, 20),
    Door("config.json", lambda m: m.language_run, "config.json", JSON, read_language_run),
    Door("config.json, labels", lambda m: m.label_run, "config.json", JSON, read_label_run),
    Door("config.json, pairs", lambda m: m.pair_run, "config.json", JSON, read_pair_run),
    Door("tokenizer.json", lambda m: m.language_run, "tokenizer.json", JSON, read_language_run),
    Door("preprocessor, images", lambda m: m.image_run, "preprocessor_config.json", JSON,
         read_image_run),
    Door("preprocessor, points", lambda m: m.cloud_run, "preprocessor_config.json", JSON,
         read_cloud_run),
    Door("manifest.json", lambda m: m.label_run, "manifest.json", JSON, read_label_run),
    Door("shards", lambda m: m.label_run, "t*.json", JSON, read_label_run, 5),
    Door("shard bytes", lambda m: m.label_run, "*.bin", BYTES, read_label_run, 5),
    Door("checkpoint.json", lambda m: m.language_run, "checkpoint.json", JSON,
         lambda m, path, out: [command("train", path, "--resume", "--quiet")], 3),
    Door("model.safetensors", lambda m: m.label_run, "model.safetensors", BYTES, read_label_run),
    Door("kept answers", lambda m: m.label_run, "predictions.safetensors", BYTES,
         lambda m, path, out: [call(kept_answers, path)], 5),
    Door("kept translations", lambda m: m.pair_run, "translations.json", JSON,
         lambda m, path, out: [call(kept_translations, path)], 5),
    Door("published config", lambda m: m.published, "config.json", JSON, import_folder),
    Door("published tokenizer", lambda m: m.published, "tokenizer*.json", JSON, import_folder),
    Door("published tensors", lambda m: m.published, "*.safetensors", BYTES, import_folder),
    Door("zip", lambda m: m.packed, "", BYTES, read_archive, 20),
    Door("zip bombs", lambda m: m.packed, "", bombs, read_archive, 2),
    Door("image archives", lambda m: m.picture_archive, "", BYTES, read_image_archive, 10),
    Door("images", lambda m: m.pictures, "*.*", BYTES, read_images, 20),
    Door("idx", lambda m: m.digits, "*", BYTES, read_idx, 20),
    Door("arrays", lambda m: m.arrays, "*", BYTES, read_arrays, 15),
    Door("point clouds", lambda m: m.clouds, "*.*", BYTES, read_clouds, 15),
    Door("jsonl", lambda m: m.objects, "", mutations.damaged_lines, read_labels, 15),
    Door("csv", lambda m: m.table, "", BYTES, read_labels, 15),
    Door("text", lambda m: m.words, "", BYTES, read_text),
    Door("gzip", lambda m: m.words, "", packed_bytes, read_text),
    Door("fasta", lambda m: m.sequences, "", BYTES, read_fasta),
    Door("vec", lambda m: m.vectors, "", BYTES, import_folder, 15),
    Door("meme", lambda m: m.motifs, "", BYTES, read_motifs, 15),
    Door("checkpoint state", lambda m: m.language_run, "checkpoint.json", resealed,
         lambda m, path, out: [command("train", path, "--resume", "--quiet")], 3),
    Door("look, labels", lambda m: m.label_run, "regard.json", JSON, look_at, 1, True),
    Door("look, pairs", lambda m: m.pair_run, "regard.json", JSON, look_at, 1, True),
    Door("look, config", lambda m: m.label_run, "config.json", JSON, look_at, 1, True),
    Door("verify", lambda m: m.label_run, "*.json", JSON,
         lambda m, path, out: [command("verify", path)], 1, True),
    Door("tensor headers", lambda m: m.language_run, "model.safetensors", tensor_headers,
         read_language_run),
    Door("answer headers", lambda m: m.label_run, "predictions.safetensors", tensor_headers,
         lambda m, path, out: [call(kept_answers, path)], 5),
    Door("array headers", lambda m: m.arrays, "*", array_headers, read_arrays, 15),
    Door("picture headers", lambda m: m.pictures, "*.*", picture_headers, read_images, 5),
    Door("classifier", lambda m: m.classifier, "*.json", JSON, import_folder, 5),
    Door("vision", lambda m: m.vision, "*.json", JSON, import_folder, 5),
    Door("translator", lambda m: m.translator, "*.json", JSON, import_folder, 5),
    Door("vector run", lambda m: m.vector_run, "*.json", JSON, read_vectors, 5),
    Door("rules", lambda m: m.rules, "", BYTES, lambda m, path, out: [
         command("generate", m.language_run, "--max-new", 3, "--forbid", path)], 5),
    Door("values", lambda m: m.values, "", BYTES, lambda m, path, out: [
         command("data", m.clouds / "molecules.xyz", "--target", path)], 5),
    Options("--set", 20),
    Options("file names", 5),
]  # fmt: skip


def kept_answers(path: Path) -> object:
    """What a run answered, and how good that is."""
    from regard.evaluation.predictions import load_predictions as kept

    found = kept(path)
    return found.estimates, found.unknown


def kept_translations(path: Path) -> object:
    """What a run translated."""
    from regard.evaluation.translation import load_translations as kept

    return kept(path)
