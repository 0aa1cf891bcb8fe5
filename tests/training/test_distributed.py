"""Two processes learn what one learns: the same gradients, weights and metrics, and they resume; a
killed process ends the job, and a signal saves it.
"""

import json
import math
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest
import torch

import regard.cli
from regard.api import train_recipe
from regard.data.corpus import prepare, reopen
from regard.errors import UserError
from regard.evaluation.language_modeling import Stopped
from regard.planning import plan_recipe
from regard.recipe import build, read
from regard.run import weights
from regard.storage import digest, read_tensors, write_tensors
from regard.training import checkpoint, loop
from regard.training.distributed import ALONE, PeerRefused, ProcessGroup, joined, place
from regard.training.objectives import NextTokenObjective
from regard.training.progress import Interrupt, Reporter
from regard.training.step import choose_device, idle
from regard.training.trainer import Session, Trainer

SMALL = ["model.n_layers=2", "model.d_model=16", "model.max_len=12", "model.dropout=0"]
SMALL += ["train.batch_tokens=200", "train.micro_tokens=48", "train.steps=20", "train.device=cpu"]
CASES = {
    "muon": ["train.precision=fp64"],
    "adamw": ["train.precision=fp64", "train.optimizer=adamw", "train.lr=0.003"],
    "few": ["train.precision=fp64", "train.batch_tokens=4"],  # one item a step: one has nothing
    "tied": ["train.precision=fp64", "model.preset=gpt2"],
    "fp32": ["train.precision=fp32"],
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As the processes of a group have; sums then do not depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def as_process(rank: int, size: int, port: int, said: Path, work, arguments) -> None:
    """Do `work` as one process of a group, as torchrun would start it."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    torch.set_num_threads(1)
    output = os.open(said / f"rank-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        work(*arguments)
    except Exception:
        traceback.print_exc()
        sys.exit(99)


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """Run work(*arguments) in so many processes at once: exit codes, and what each one printed.

    They are forked from a server that has imported torch once.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["regard.api", "regard.cli", "torch.nn.parallel.distributed"])

    def run(size: int, work, *arguments) -> tuple[list[int], list[str]]:
        said = tmp_path_factory.mktemp("said")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        processes = [
            context.Process(target=as_process, args=(rank, size, port, said, work, arguments))
            for rank in range(size)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
            if process.exitcode is None:
                process.kill()
        texts = [(said / f"rank-{rank}.txt").read_text() for rank in range(size)]
        return [process.exitcode for process in processes], texts

    return run


def trainer_of(words, run, world, *assignments):
    recipe, _ = plan_recipe([words], assignments=[*SMALL, *assignments])
    session = Session(run, False, Reporter(quiet=True), 0.0, world)
    return session.trainer(recipe, reopen(run), None)


def cost(trainer) -> float:
    """Nats per symbol of the first step's batches, all of them, in the model's own precision."""
    batches = trainer.loader.step(0)
    objective = NextTokenObjective(trainer.model)
    with torch.no_grad():
        nats = [float(objective(b.ids, b.targets, b.segments)[1]) for b in batches]
    return sum(nats) / sum(b.symbols for b in batches)


def learn(world, words, run, results):
    """Every case: the first gradient, twenty steps, the loss; are all processes' bits equal?"""
    results.mkdir(exist_ok=True)
    for name, options in CASES.items():
        trainer = trainer_of(words, run, world, *options)
        symbols = [batch.symbols for batch in trainer.batches(0)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("regard.training.trainer.BATCH_TOKENS", 16)  # several for each process
            found = {"valid": trainer.validate(), "symbols": world.exchange(symbols)}
        found["before"] = cost(trainer)
        trainer.gradient(0)
        gradients = {n: p.grad.clone() for n, p in trainer.model.named_parameters()}
        trainer.model.zero_grad(set_to_none=True)
        found["logged"] = [trainer.take_step(step)[0] for step in range(20)]
        found["loss"] = cost(trainer)
        state = {**weights(trainer.model), **trainer.optimizer.tensors()}
        found["digests"] = world.exchange(digest(state))
        if world.first:
            last = {f"last.{key}": x.clone() for key, x in weights(trainer.model).items()}
            write_tensors(results / f"{name}.safetensors", gradients | last)
            (results / f"{name}.json").write_text(json.dumps(found))


def stop(world, words, run):
    """One process is asked to stop while all measure: all do, after the same batch."""
    with pytest.raises(Stopped):
        trainer_of(words, run, world).validate(lambda: world.agree(world.rank))


def poison(world, words, run):
    """Something that is not finite arises in the second process alone: none makes the update."""
    trainer = trainer_of(words, run, world)
    before = digest(weights(trainer.model))
    if world.rank == 1:
        hook = trainer.model.register_forward_hook(lambda *a: a[2] * math.nan)
    for step in (0, 1):
        with pytest.raises(UserError) as error:
            trainer.take_step(step)
        assert digest(weights(trainer.model)) == before
        trainer.model.zero_grad(set_to_none=True)
        records = ", ".join(map(str, trainer.loader.records_of(step, 1, 2)[:5]))
        named = "(loss nan)" if step == 0 else "the gradient of head.weight is not finite"
        assert f"step {step}" in str(error.value) and named in str(error.value)
        assert (records in str(error.value)) == (step == 0)  # else any process may have caused it
        if world.rank == 1 and step == 0:
            hook.remove()
            trainer.model.head.weight.register_hook(lambda gradient: gradient + math.inf)


def refuse(world):
    """A refusal of one process is that of all, and the first says it."""

    def work():
        if world.rank == 1:
            raise UserError("no such disk")
        return world.rank

    with pytest.raises(UserError) as error:
        world.together(work)
    said = "process 1 of 2: no such disk" if world.first else "no such disk"
    assert str(error.value) == said and isinstance(error.value, PeerRefused) != world.first
    assert world.together(lambda: world.rank) == world.rank


def numbers(words, run, results):
    with joined() as world:
        learn(world, words, run, results)
        stop(world, words, run)
        poison(world, words, run)
        refuse(world)


@pytest.fixture(scope="module")
def learned(group, words, tmp_path_factory):
    """What one process and two make of every case."""
    folder = tmp_path_factory.mktemp("learned")
    run = folder / "run"
    run.mkdir()
    recipe, _ = plan_recipe([words], assignments=SMALL)
    prepare(recipe, run, print)
    codes, said = group(2, numbers, words, run, folder / "two")
    assert codes == [0, 0], "\n".join(said)
    learn(ALONE, words, run, folder / "one")
    return folder


def both(learned, name):
    files = [learned / count / f"{name}.json" for count in ("one", "two")]
    one, two = (json.loads(file.read_text()) for file in files)
    gradients = (read_tensors(file.with_suffix(".safetensors")) for file in files)
    return one, two, *gradients


@pytest.mark.parametrize("name", CASES)
def test_two_processes_have_the_gradient_and_the_loss_of_one(learned, name):
    one, two, mine, theirs = both(learned, name)
    gradients = [n for n in mine if not n.startswith("last.")]
    largest = max(float(mine[n].abs().max()) for n in gradients)
    apart = max(float((mine[n] - theirs[n]).abs().max()) for n in gradients) / largest
    moved = max(float((mine[n] - theirs[n]).abs().max()) for n in mine if n not in gradients)
    loss = abs(one["loss"] - two["loss"])
    print(f"{name}: gradients differ by {apart:.1e} of the largest; after 20 steps ", end="")
    print(f"weights by {moved:.1e} and the loss by {loss:.1e}")
    exact = name != "fp32"
    assert apart <= (1e-12 if exact else 1e-5), f"gradients differ by {apart:.1e} of the largest"
    assert loss <= (1e-8 if exact else 1e-3), f"the loss after 20 steps differs by {loss:.1e}"
    # what is logged is summed in fp32
    assert one["logged"] == pytest.approx(two["logged"], rel=1e-6 if exact else 1e-3)
    assert one["loss"] < one["before"]  # it has learned something
    whole, shares = one["symbols"][0], two["symbols"]
    assert sum(whole) == sum(map(sum, shares))
    if name == "few":
        assert shares == [whole, [0]]
    else:
        assert len({len(parts) for parts in shares}) == 2  # not even as many micro-batches


@pytest.mark.parametrize("name", CASES)
def test_the_processes_stay_equal_to_the_bit(learned, name):
    _, two, *_ = both(learned, name)
    assert len(two["digests"]) == 2 and len(set(two["digests"])) == 1


@pytest.mark.parametrize("name", CASES)
def test_validation_does_not_depend_on_the_number_of_processes(learned, name):
    one, two, *_ = both(learned, name)
    assert one["valid"] == two["valid"]


def interrupt_at(step, rank=0):
    """Return a report of the trainer that interrupts the process of a rank after a step."""
    report = Trainer.report

    def interrupted(trainer, *arguments):
        report(trainer, *arguments)
        if trainer.world.rank == rank and trainer.progress.step == step:
            for _ in range(min(2, trainer.world.size)):  # a launcher passes on what came already
                os.kill(os.getpid(), signal.SIGINT)

    return interrupted


def stopped(recipe, folder, world=None):
    """Train; the second process is interrupted in step 5."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "report", interrupt_at(5, rank=1))
        result = train_recipe(recipe, folder, world=world)
    assert (result.outcome, result.signal, result.steps) == ("interrupted", signal.SIGINT, 5)


def in_four(recipe, folder):
    """Four finish what two began; and a run of their own, straight and stopped."""
    with joined() as world:
        assert train_recipe(recipe, folder / "in-four", resume=True, world=world).outcome == "done"
        train_recipe(recipe, folder / "calm-four", world=world)
        stopped(recipe, folder / "stopped-four", world)
        train_recipe(recipe, folder / "stopped-four", resume=True, world=world)


@pytest.mark.slow
def test_a_run_of_two_processes_goes_on_in_one_and_in_four(group, words, tmp_path):
    options = ["train.precision=fp64", "train.steps=12", "train.eval_every=4"]
    recipe, _ = plan_recipe([words], assignments=[*SMALL, *options])
    train_recipe(recipe, tmp_path / "calm")
    codes, said = group(2, stopped, recipe, tmp_path / "in-one")
    assert codes == [0, 0], "\n".join(said)
    _, state = checkpoint.newest(tmp_path / "in-one", pytest.fail)
    assert state["step"] == 5 and set(state) == set(vars(loop.LoopState()))
    shutil.copytree(tmp_path / "in-one", tmp_path / "in-four")
    train_recipe(recipe, tmp_path / "in-one", resume=True)
    codes, said = group(4, in_four, recipe, tmp_path)
    assert codes == [0] * 4, "\n".join(said)
    calm, *others = (
        checkpoint.newest(tmp_path / name, pytest.fail) for name in ("calm", "in-one", "in-four")
    )
    for tensors, state in others:
        assert (state["step"], state["symbols_read"]) == (12, calm[1]["symbols_read"])
        for kind in ("model", "optimizer"):
            assert tensors[kind].keys() == calm[0][kind].keys()
            for name, tensor in tensors[kind].items():
                torch.testing.assert_close(tensor, calm[0][kind][name], rtol=1e-9, atol=1e-11)
    lines = [(tmp_path / n / "metrics.jsonl").read_text().count("\n") for n in ("calm", "in-four")]
    assert lines[0] == lines[1]
    for name in ("model", "optimizer"):  # with as many processes as before, bit for bit
        file = f"checkpoints/step-000012/{name}.safetensors"
        one, other = (tmp_path / f"{n}-four" / file for n in ("calm", "stopped"))
        assert one.read_bytes() == other.read_bytes()


def test_a_refusal_is_said_once_and_ends_all(group, tmp_path):
    missing, run = str(tmp_path / "missing.txt"), tmp_path / "run"
    codes, said = group(2, regard.cli.main, ["train", missing, "--out", str(run)])
    assert codes == [1, 1]
    errors = [[line for line in text.splitlines() if line.startswith("error:")] for text in said]
    assert len(errors[0]) == 1 and errors[0][0].startswith(f"error: {missing}")
    assert not errors[1]  # where PyTorch may say that it lost the connection
    assert not run.exists()


def test_a_counting_model_is_counted_once_by_the_first(group, words, tmp_path):
    command = ["train", str(words), "--model", "bigram", "--device", "cpu"]
    codes, said = group(2, regard.cli.main, [*command, "--out", str(tmp_path / "two")])
    assert codes == [0, 0] and "bits per symbol" in said[0] and said[1] == ""
    assert regard.cli.run([*command, "--out", str(tmp_path / "one"), "--quiet"]) == 0
    one, two = ((tmp_path / n / "model.safetensors").read_bytes() for n in ("one", "two"))
    assert one == two


def test_minutes_become_the_same_number_of_steps_everywhere(group, words, tmp_path):
    options = [f"--set={o}" for o in SMALL if "steps" not in o]
    command = ["train", str(words), *options, "--minutes", "0.05", "--out", str(tmp_path / "run")]
    codes, said = group(2, regard.cli.main, [*command, "--json", "--quiet"])
    assert codes == [0, 0] and said[1] == "", "\n".join(said)
    facts = json.loads((tmp_path / "run" / "regard.json").read_text())
    assert facts["processes"] == 2
    assert f"\nsteps = {facts['steps']}\n" in (tmp_path / "run" / "recipe.toml").read_text()
    assert json.loads(said[0])["steps"] == facts["steps"]


def test_the_place_of_a_process_is_read_from_torchruns_variables():
    told = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
    told |= {"MASTER_ADDR": "x", "MASTER_PORT": "1"}
    assert place(told) == ProcessGroup(5, 8, 1)
    assert place({}) == place({"WORLD_SIZE": "1", "RANK": "0"}) == ALONE
    with pytest.raises(UserError, match="WORLD_SIZE is 8 but LOCAL_RANK is not set"):
        place({k: v for k, v in told.items() if k != "LOCAL_RANK"})
    with pytest.raises(UserError, match="must be numbers, got RANK=a"):
        place({**told, "RANK": "a"})
    with pytest.raises(UserError, match="from 0 to WORLD_SIZE - 1, got 8 of 8"):
        place({**told, "RANK": "8"})


def test_a_process_alone_joins_no_group():
    with joined({}) as world:
        assert not torch.distributed.is_initialized()
        assert world.exchange([1]) == [[1]] and world.total(3) == world.agree(3) == 3
        assert (
            world.build_then_open(lambda: 1, lambda: 2)
            == world.broadcast_from_rank0(lambda: 1)
            == 1
        )
        module = torch.nn.Linear(1, 1)
        assert world.spread(module, torch.device("cpu")) is module


def test_each_process_takes_the_gpu_of_its_number(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("auto", "cuda"):
        assert choose_device(name, ProcessGroup(5, 8, 1)) == torch.device("cuda:1")
    with pytest.raises(UserError, match="cuda:2 asked for, but this machine has 2"):
        choose_device("auto", ProcessGroup(2, 8, 2))
    with pytest.raises(UserError, match="cuda:1 is one GPU, but 8 processes train"):
        choose_device("cuda:1", ProcessGroup(1, 8, 1))
    assert "torchrun --nproc-per-node 2 -m regard train" in idle(torch.device("cuda"))
    assert not idle(torch.device("cuda:1"))
    assert not idle(torch.device("cuda"), ProcessGroup(1, 2, 1))


def test_a_signal_that_comes_twice_from_a_launcher_is_one():
    with Interrupt(repeated=True) as interrupt:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
    assert interrupt.asked == signal.SIGINT


# Under torchrun

OPTIONS = ["model.n_layers=1", "model.d_model=8", "model.max_len=12", "train.steps=1000000"]
OPTIONS += ["train.batch_tokens=64", "train.checkpoint_every=5", "train.eval_every=500000"]
OPTIONS += ["train.device=cpu"]


def start(words: Path, run: Path) -> subprocess.Popen:
    """The command of the manual, with two processes on this machine."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, "--nproc-per-node", "2", "-m", "regard", "train", str(words)]
    command += ["--out", str(run), "--resume", *(f"--set={option}" for option in OPTIONS)]
    clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**clean, "OMP_NUM_THREADS": "1"}
    )


def workers(job: subprocess.Popen) -> dict[int, int]:
    """The process id of every rank."""
    found = {}
    for pid in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split():
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        ranks = [int(v[5:]) for v in variables if v.startswith(b"RANK=")]
        found |= {rank: int(pid) for rank in ranks}
    return found


def until_a_new_checkpoint(job: subprocess.Popen, run: Path) -> None:
    before, deadline = set(checkpoint.steps(run)), time.monotonic() + 60
    while not set(checkpoint.steps(run)) - before:
        assert job.poll() is None, job.communicate()[1]
        assert time.monotonic() < deadline, "no checkpoint within a minute"
        time.sleep(0.05)


def end(job: subprocess.Popen, pids: list[int]) -> str:
    """What the job said; it must end with an error within 40 seconds and leave nobody behind."""
    try:
        _, said = job.communicate(timeout=40)
    finally:
        job.kill()
    assert job.returncode != 0
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert "src/regard" not in said, "a traceback from our code"
    return said


def killed(arguments: list[str]) -> None:
    """Train; the second process is killed after step 7."""
    report = Trainer.report

    def end_at_7(trainer, *arguments):
        report(trainer, *arguments)
        if trainer.world.rank == 1 and trainer.progress.step == 7:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "report", end_at_7)
        regard.cli.main(arguments)


def test_a_killed_process_ends_the_other_which_keeps_its_checkpoint(group, words, tmp_path):
    run = tmp_path / "run"
    options = [f"--set={option}" for option in OPTIONS]
    codes, said = group(2, killed, ["train", str(words), "--out", str(run), *options])
    assert codes == [1, -signal.SIGKILL]
    assert said[0].count("error: process 0 of 2 has lost another, and stops") == 1
    assert "Traceback" not in said[0]
    _, state = checkpoint.newest(run, pytest.fail)
    assert state["step"] == 5


needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")


@pytest.mark.slow
@needs_proc
def test_a_killed_process_ends_the_job(words, tmp_path):
    run = tmp_path / "run"
    job = start(words, run)
    until_a_new_checkpoint(job, run)
    pids = workers(job)
    os.kill(pids[1], signal.SIGKILL)
    said = end(job, list(pids.values()))
    # once, unless torchrun was quicker to end it than it to notice
    assert said.count("error: process 0 of 2 has lost another, and stops") <= 1
    assert "SIGKILL" in said  # torchrun's report names it
    _, state = checkpoint.newest(run, pytest.fail)
    assert state["step"] % 5 == 0 and state["step"] > 0


@needs_proc
def test_a_signal_to_the_job_saves_it(words, tmp_path):
    run = tmp_path / "run"
    recipe, _ = plan_recipe([words], assignments=OPTIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "report", interrupt_at(5))
        assert train_recipe(recipe, run).steps == 5  # the job goes on from here
    job = start(words, run)
    until_a_new_checkpoint(job, run)
    pids = workers(job)
    job.send_signal(signal.SIGTERM)
    said = end(job, list(pids.values()))
    _, saved = checkpoint.newest(run, pytest.fail)
    assert saved["step"] > 5
    assert said.count(f"stopped at step {saved['step']:,}, saved. Go on with the same command") == 1
    assert not list(run.glob("checkpoints/.*"))

    session = Session(run, True, Reporter(quiet=True), 0.0)
    alone = session.trainer(build(read(run / "recipe.toml")), reopen(run), None)
    assert alone.resume() and alone.progress.step == saved["step"]
    assert alone.take_step(saved["step"])[1] > 0
