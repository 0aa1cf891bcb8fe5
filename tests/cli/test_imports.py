"""Importing the package: quiet, and every module with the required packages alone."""

import subprocess
import sys

OPTIONAL = ("transformers", "matplotlib", "sacrebleu", "PIL", "rdkit", "playwright")

QUIET = """
import sys
import regard
assert "torch" not in sys.modules, "import regard alone is instant"
regard.load, regard.train, regard.plan, regard.Predictor
"""

BLOCKED = """
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OPTIONAL:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import regard
for module in pkgutil.walk_packages(regard.__path__, "regard."):
    if not module.name.endswith("__main__") and ".kernels." not in module.name:  # need Triton
        importlib.import_module(module.name)
"""

COUNT = "print(len(sys.modules), sorted(set(OPTIONAL) & set(sys.modules)))"


def run(script: str) -> subprocess.CompletedProcess[str]:
    whole = f"import sys\nOPTIONAL = {OPTIONAL!r}\n{script}\n{COUNT}"
    return subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, timeout=90)


def test_importing_regard_prints_nothing_and_pulls_in_nothing_optional():
    found = run(QUIET)
    assert found.returncode == 0, found.stderr
    assert (
        found.stderr == "" and found.stdout.endswith("[]\n") and len(found.stdout.splitlines()) == 1
    )


def test_every_module_imports_with_the_required_packages_alone():
    found = run(BLOCKED)
    assert found.returncode == 0, found.stderr
    assert found.stdout.endswith("[]\n") and len(found.stdout.splitlines()) == 1
