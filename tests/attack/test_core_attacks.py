"""Attacks on the core: damaged caches, many threads, and tensors of every wrong kind. Nothing may crash, hang, or be
wrong without a word. What could end the process runs in another one."""

import copy
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch

from rims_rl import RIM
from rims_rl.core import weights_at_rest
from rims_rl.core.rims.engines import c_struct

pytestmark = pytest.mark.slow


def run(script, *arguments, **environment):
    """A script in another process, which must end well within its time; what it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


# ---- the cache -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    """What CC may name: copies loops that the real compiler made, at once."""
    folder = tmp_path_factory.mktemp("compiler")
    subprocess.run(
        ["cc", *c_struct._FLAGS, "-Dreal=float", "-o", folder / "loops.so", c_struct._SOURCE, "-lm"], check=True
    )
    script = folder / "cc"
    script.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ncp {folder}/loops.so "$2"\n')
    script.chmod(0o700)
    return script


# Each attack has a process of its own, a child of one that has torch in memory already.
IN_CHILDREN = """
    import os, random, shutil, signal, sys, warnings
    from pathlib import Path
    import torch
    torch.set_num_threads(1)
    from rims_rl import RIM
    from rims_rl.core.rims.engines import c_struct

    home, loops = Path(sys.argv[1]), Path(sys.argv[1]) / "rims-rl" / "loops"
    torch.manual_seed(0)
    rim, x = RIM(5, 18, 6, 4), torch.randn(4, 3, 5)
    os.environ["RIMS_RL_NATIVE"] = "0"
    expected = rim(x)[0]
    del os.environ["RIMS_RL_NATIVE"]

    def start():
        "What a new process finds: 'C', or why not; negative if it dies."
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            c_struct._load.cache_clear()
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                output = rim(x)[0]
            output.sum().backward()
            right = torch.allclose(output, expected, atol=1e-5)
            said = " ".join(str(one.message) for one in said)
            os.write(writing, f"{c_struct.loops_here() if right else 'wrong'} {said}".encode())
            os._exit(0)
        os.close(writing)
        _, status = os.waitpid(child, 0)
        text = os.fdopen(reading).read()
        assert status == 0, f"the child ended with {status}: {text}"
        return text

    assert start().strip() == "C"
    (so,), (seal,) = loops.glob("*.so"), loops.glob("*.sha256")
    good = so.read_bytes(), seal.read_bytes()

    def remove(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def restore():
        os.chmod(loops, 0o700)
        for path, contents, mode in ((so, good[0], 0o700), (seal, good[1], 0o600)):
            remove(path)
            path.write_bytes(contents)
            path.chmod(mode)
"""


def test_whatever_lies_in_the_cache_no_process_crashes_or_hangs(tmp_path, compiler):
    script = (
        IN_CHILDREN
        + """
    random.seed(0)
    def put(path, make):
        remove(path)
        make(path)

    other = home / "other"
    other.write_bytes(good[0])
    attacks = {f"cut at {at}": lambda at=at: so.write_bytes(good[0][:at])
               for at in (0, 1, 64, 4096, len(good[0]) - 1, *(random.randrange(len(good[0])) for _ in range(12)))}
    for at in (random.randrange(len(good[0])) for _ in range(12)):
        attacks[f"flipped at {at}"] = lambda at=at: so.write_bytes(
            good[0][:at] + bytes([good[0][at] ^ 255]) + good[0][at + 1:])
    for size in (0, 10, 10000, len(good[0])):
        attacks[f"{size} bytes of garbage"] = lambda size=size: so.write_bytes(random.randbytes(size))
        attacks[f"{size} bytes of garbage as seal"] = lambda size=size: seal.write_bytes(random.randbytes(size))
    for path in (so, seal):
        attacks |= {
            f"{path.suffix} pipe": lambda path=path: put(path, os.mkfifo),
            f"{path.suffix} link": lambda path=path: put(path, lambda p: p.symlink_to(other)),
            f"{path.suffix} link to itself": lambda path=path: put(path, lambda p: p.symlink_to(p)),
            f"{path.suffix} link to nothing": lambda path=path: put(path, lambda p: p.symlink_to("/nothing")),
            f"{path.suffix} gone": lambda path=path: remove(path),
            f"{path.suffix} open to others": lambda path=path: path.chmod(0o777),
            f"{path.suffix} not readable": lambda path=path: path.chmod(0),
        }
    for name, attack in attacks.items():
        restore()
        attack()
        assert start().strip() == "C", name
        assert so.read_bytes() == good[0] and seal.read_bytes() == good[1], name
        assert start().strip() == "C", name
    for path in (so, seal):
        restore()
        put(path, os.mkdir)
        said = start()
        assert said.startswith("torch the loops of RIMs run in torch") and "directory" in said, said
        remove(path)
    restore()
    os.chmod(loops, 0o777)
    said = start()
    assert said.startswith("torch ") and "closed to others' writing" in said, said
    for what in (os.mkfifo, lambda p: p.write_text("a file"), lambda p: p.symlink_to(p)):
        remove(loops)
        what(loops)
        assert start().startswith("torch the loops of RIMs run in torch")
    loops.unlink()
    os.chdir(home)
    os.environ["XDG_CACHE_HOME"] = "."
    said = start()
    assert said.startswith("torch ") and "absolute path" in said, said
    print(len(attacks), "attacks")
    """
    )
    assert "51 attacks" in run(script, tmp_path, XDG_CACHE_HOME=str(tmp_path), CC=str(compiler))


def test_killed_compilers_leave_nothing_and_those_at_work_are_left_alone(tmp_path, compiler):
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\nsleep 3\nexec {compiler} "$@"\n')
    slow.chmod(0o700)
    script = (
        IN_CHILDREN
        + """
    import time
    remove(loops)
    os.environ["CC"] = sys.argv[2]

    def compiling():
        child = os.fork()
        if child == 0:
            c_struct._load.cache_clear()
            os._exit(0 if c_struct.library(torch.float32) is not None else 3)
        return child

    def wait_for_folders(count):
        while len(list(loops.glob("build_*"))) < count:
            time.sleep(0.02)

    killed, alive = compiling(), compiling()
    wait_for_folders(2)
    os.kill(killed, signal.SIGKILL)
    os.waitpid(killed, 0)
    os.environ["CC"] = sys.argv[3]
    assert start().strip() == "C" and len(list(loops.glob("build_*"))) == 2  # one of them is in use
    assert os.waitpid(alive, 0)[1] == 0
    assert start().strip() == "C" and sorted(path.suffix for path in loops.iterdir()) == [".sha256"] * 2 + [".so"] * 2
    """
    )
    run(script, tmp_path, slow, compiler, XDG_CACHE_HOME=str(tmp_path), CC=str(compiler))


# ---- threads ---------------------------------------------------------------------------------------------------------


def train(seed, at_rest, barrier=None):
    """Rollouts and steps of a fused optimizer by turns, as in PPO: all outputs, and the weights at the end."""
    generator = torch.Generator().manual_seed(seed)
    rim = MODELS[seed][0]
    rim.load_state_dict(MODELS[seed][1])
    optimizer = torch.optim.Adam(rim.parameters(), 1e-2, fused=True)
    outputs = []
    for _ in range(6):
        state = None
        with weights_at_rest(rim) if at_rest else nullcontext():
            for step in range(30):
                if barrier is not None and step % 10 == 0:
                    barrier.wait(60)  # so that the other's steps fall into this rollout
                with torch.no_grad():
                    output, state = rim(torch.randn(1, 3, 10, generator=generator), state)
                outputs.append(output)
                if step == 20:  # nobody should, but if it happens it is noticed
                    rim(torch.randn(4, 3, 10, generator=generator))[0].square().sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
    return [*outputs, *(weight.detach().clone() for weight in rim.parameters())]


MODELS = {}


def test_two_trainings_in_two_threads_are_what_they_are_alone_bit_for_bit():
    torch.manual_seed(0)
    for seed in range(2):
        rim = RIM(10, 60, 6, 4, num_layers=2)
        MODELS[seed] = rim, copy.deepcopy(rim.state_dict())
    expected = [train(seed, at_rest=False) for seed in range(2)]
    for _ in range(3):
        barrier = threading.Barrier(2)
        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(train, range(2), [True] * 2, [barrier] * 2))
        for ours, alone in zip(results, expected, strict=True):
            assert all(map(torch.equal, ours, alone))
    assert not any(layer.at_rest for layer in rim.layers)


def test_many_threads_in_one_layer_with_steps_of_an_optimizer_in_between():
    torch.manual_seed(0)
    rim = RIM(10, 60, 6, 4, num_layers=2)
    begin = copy.deepcopy(rim.state_dict())
    xs, starts = torch.randn(4, 25, 1, 3, 10), torch.rand(4, 25, 1, 3) < 0.1

    def roll_out(i):
        outputs, state = [], None
        for t in range(25):
            batch = 1 + (i + t) % 3
            with torch.no_grad():
                output, new = rim(xs[i, t], state, starts[i, t])
                outputs += [output, *rim(xs[i, t, :, :batch])[1]]
            if t % 5 == 0:
                trained, _ = rim(xs[i, t], state)
                outputs += [trained.detach(), *torch.autograd.grad(trained.square().sum(), list(rim.parameters()))]
            state = new
        return outputs

    def rounds(run_all):
        rim.load_state_dict(begin)
        optimizer = torch.optim.Adam(rim.parameters(), 1e-2, fused=True)
        for _ in range(4):
            yield run_all()
            rim.zero_grad()
            rim(xs[0, :, 0])[0].square().sum().backward()
            optimizer.step()

    alone = list(rounds(lambda: [roll_out(i) for i in range(4)]))
    with weights_at_rest(rim), ThreadPoolExecutor(4) as pool:
        together = list(rounds(lambda: list(pool.map(roll_out, range(4)))))
    for ours, expected in zip(together, alone, strict=True):
        for mine, theirs in zip(ours, expected, strict=True):
            assert all(map(torch.equal, mine, theirs))


# ---- tensors ---------------------------------------------------------------------------------------------------------


def test_tensors_of_any_kind_are_either_right_or_named():
    script = """
    import random
    from contextlib import nullcontext
    import torch
    torch.set_num_threads(1)
    from rims_rl import RIM, RIMCell
    from rims_rl.core.rims.engines import c_struct
    from rims_rl.core import weights_at_rest
    from rims_rl.core.rims.engines.choose import ENGINES

    random.seed(0)
    torch.manual_seed(0)
    rims = [RIM(5, 18, 6, 4, **options) for options in
            ({}, {"input_heads": 2}, {"cell": "gru"}, {"comm_top_k": 2}, {"position_competition": True},
             {"num_layers": 2}, {"batch_first": True}, {"input_attention": False}, {"communication": False})]
    cell = RIMCell(5, 18)
    dtypes = [torch.float32] * 12 + [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool,
                                     torch.complex64]

    def tensor(*shape, any_dtype=dtypes):
        shape = [max(0, size + random.choice([0] * 30 + [1, -1])) for size in shape]
        if random.random() < 0.03:
            shape = shape[1:] if random.random() < 0.5 else [1, *shape]
        value = torch.randn(shape).to(random.choice(any_dtype))
        way = random.random()
        if way < 0.05:
            return value.to("meta")
        if way < 0.15 and value.dim() > 1:
            return value.transpose(0, -1).contiguous().transpose(0, -1)
        if way < 0.25:
            return torch.stack([value, value], -1)[..., 0]
        if way < 0.3 and value.dim() > 1 and value.numel():
            return value[:1].expand_as(value)
        if way < 0.32:
            return random.choice([value.tolist(), None, "a word", value.to_sparse()])
        return value.requires_grad_() if value.is_floating_point() and way > 0.8 else value

    counts = {"right": 0, "named": 0}
    for i in range(1500):
        rim = random.choice(rims)
        layers, T, B = rim.num_layers, random.choice([1, 4]), 3
        lead = (B, T) if rim.batch_first else (T, B)
        x = tensor(*lead, 5) if random.random() < 0.7 else tensor(*lead, 2, 5)
        state = random.choice([None, (tensor(layers, B, 18), tensor(layers, B, 18))])
        starts = random.choice([None, tensor(*lead, any_dtype=dtypes[11:])])
        entry = random.choice(["call"] * 6 + ["step", "cell"])
        at_rest = weights_at_rest(rim) if random.random() < 0.5 else nullcontext()
        try:
            with torch.set_grad_enabled(random.random() < 0.5), at_rest:
                if entry == "step":
                    rim.step(tensor(B, 5), (tensor(layers, B, 18), tensor(layers, B, 18)))
                    counts["right"] += 1
                    continue
                if entry == "cell":
                    cell(tensor(B, 5), random.choice([None, (tensor(B, 18), tensor(B, 18))]))
                    counts["right"] += 1
                    continue
                output, (h, c) = rim(x, state, starts)
                if output.requires_grad:
                    (output.sum() + h.sum() + c.sum()).backward()
        except (ValueError, TypeError) as error:
            assert " must " in str(error) and "got " in str(error), error
            counts["named"] += 1
            continue
        if x.dim() == 2:  # one sequence without a batch
            alone = 0 if rim.batch_first else 1
            x, output = x.unsqueeze(alone), output.unsqueeze(alone)
            starts = None if starts is None else starts.unsqueeze(alone)
            state = None if state is None else tuple(part.unsqueeze(1) for part in state)
        turn = (lambda t: t.transpose(0, 1)) if rim.batch_first else (lambda t: t)
        below = turn(x if x.dim() == 4 else x.unsqueeze(2))
        zeros = torch.zeros(layers, below.shape[1], 18)
        h_0, c_0 = state or (zeros, zeros)
        for layer, one_h, one_c in zip(rim.layers, h_0, c_0):
            below, *_ = ENGINES["readable"].run(layer, below, one_h, one_c, None if starts is None else turn(starts))
            below = below.unsqueeze(2)
        torch.testing.assert_close(output, turn(below.squeeze(2)), rtol=1e-4, atol=1e-4)
        counts["right"] += 1
    print(counts)
    assert min(counts.values()) > 300, counts
    """
    run(script)
