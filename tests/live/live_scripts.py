"""The scripts of live pages in Node, against which Python's models are compared."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess

import pytest

from regard.live.parts import live_part
from regard.live.quantize import pack_part
from regard.look.page.document import asset

LOOK = "regard.look.page"
SHARED = [(LOOK, "arrays.js"), (LOOK, "distribution.js")]
BASE = ["weights", "tensors", "session", "sampling", "characters"]
PRELUDE = (
    "const renderers = {}; const clamp = (x, low, high) => Math.min(high, Math.max(low, x));\n"
)
RUN = """
const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
const number = (x) => (Number.isFinite(x) ? x : String(x));
process.stdout.write(JSON.stringify((() => { BODY })()));
"""


def run_script(scripts, body, given):
    """Return what the JavaScript function `body` makes of `given`, with these scripts before it."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node: apt-get install nodejs")
    parts = [*SHARED, *(("regard.live", f"{name}.js") for name in BASE), *scripts]
    code = "\n".join(asset(name, package) for package, name in dict.fromkeys(parts))
    code = "'use strict';\n" + PRELUDE + code + RUN.replace("BODY", body)
    done = subprocess.run(
        [node, "-e", code], input=json.dumps(given), capture_output=True, text=True, check=False
    )
    assert not done.stderr, done.stderr
    return json.loads(done.stdout)


READ = """
const model = programs[given.program](given.config, openTensors(given.tensors));
const session = makeSession(model);
const row = (t) => Array.from(session.logits(t), number);
return given.texts.map(({ ids, edits }) => {
  session.edit(edits ?? []);
  const computed = session.read(ids);
  const count = model.causal ? ids.length : 1;
  return { logits: Array.from({ length: count }, (_, t) => row(t)), computed };
});
"""


def packed(model, bits=8):
    """Return a copy of a model with the page's weights, its part, and what the scripts need."""
    rounded = copy.deepcopy(model).eval()
    part = live_part(rounded)
    tensors = pack_part(part, bits)
    given = {"program": part.program, "config": part.config, "tensors": tensors}
    return rounded, part, given


def read_texts(part, given, texts, body=READ):
    """Return the logits of texts as the scripts compute them, as lists; infinities are strings."""
    return run_script(part.scripts, body, given | {"texts": texts})
