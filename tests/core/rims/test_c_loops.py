"""The loops in C: test_layer.py holds them to the equations; here is what is special about them."""

import copy
import fcntl
import os
import pickle
import shutil
import subprocess
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from rims_rl import RIM
from rims_rl.core import weights_at_rest
from rims_rl.core.rims.engines import c_struct
from tests.helpers.engines import needs_c

pytestmark = needs_c


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """An empty cache, and nothing in memory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(c_struct, "_warned", False)
    c_struct._load.cache_clear()
    yield monkeypatch, tmp_path / "rims-rl" / "loops"
    monkeypatch.undo()
    c_struct._load.cache_clear()


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    """What CC may name: it writes down each call, and copies loops that the real compiler made."""
    folder = tmp_path_factory.mktemp("compiler")
    flags = [*c_struct._FLAGS, "-Dreal=float"]
    subprocess.run(["cc", *flags, "-o", folder / "loops.so", c_struct._SOURCE, "-lm"], check=True)
    script = folder / "cc"
    script.write_text(
        f'#!/bin/sh\necho called >> {folder}/calls\nwhile [ "$1" != -o ]; do shift; done\ncp {folder}/loops.so "$2"\n'
    )
    script.chmod(0o700)
    return script


def calls(compiler):
    log = compiler.with_name("calls")
    return len(log.read_text().splitlines()) if log.exists() else 0


def run(rim, x, starts=None):
    """Outputs and all gradients."""
    rim.zero_grad()
    torch.manual_seed(1)  # of dropout
    x = x.clone().requires_grad_()
    output, (h, c) = rim(x, episode_starts=starts)
    (output.square().sum() + h.sum() + c.sum()).backward()
    return [output.detach(), c.detach(), x.grad, *(p.grad.clone() for p in rim.parameters())]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"input_heads": 2, "input_value_size": 34},
        {"input_attention": False},
        {"communication": False},
        {"input_dropout": 0.2, "comm_dropout": 0.3},
        {"cell": "gru"},
        {"comm_top_k": 2},
    ],
)
@pytest.mark.parametrize("elements", [1, 3])
def test_float32_is_as_in_torch_for_sizes_that_are_no_multiples_of_a_vector(options, elements):
    torch.manual_seed(0)
    rim = RIM(10, 7 * 19, 7, 3, comm_heads=3, comm_key_size=17, comm_value_size=5, **options)
    x, starts = torch.randn(9, 300, elements, 10), torch.rand(9, 300) < 0.2  # more rows than one piece has
    ours = run(rim, x, starts)
    rim.engine = "torch"
    for a, b in zip(ours, run(rim, x, starts), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-4)


def test_a_row_does_not_depend_on_the_rows_beside_it_nor_on_the_number_of_threads():
    rim = RIM(10, 60, 6, 4, input_heads=2)
    x = torch.randn(20, 13, 2, 10)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        whole = rim(x)[0]
        torch.set_num_threads(1)
        assert torch.equal(rim(x)[0], whole)
        assert torch.equal(rim(x[:, 4:7])[0], whole[:, 4:7])
    finally:
        torch.set_num_threads(threads)


def test_what_is_not_a_number_stays_so():
    rim, x = RIM(10, 60, 6, 4), torch.randn(5, 3, 10)
    x[2, 1] = torch.nan
    output = rim(x)[0]
    assert output[2:, 1].isnan().any() and output[:2].isfinite().all() and output[:, [0, 2]].isfinite().all()


def test_large_numbers_saturate_as_they_do_in_torch():
    rim, x = RIM(10, 60, 6, 4), torch.randn(5, 3, 10) * 1e4
    ours = rim(x)[0]
    rim.engine = "torch"
    torch.testing.assert_close(ours, rim(x)[0], rtol=1e-4, atol=1e-4)


def test_they_are_compiled_once_and_kept_with_their_seal(fresh, compiler):
    monkeypatch, folder = fresh
    monkeypatch.setenv("CC", str(compiler))
    before = calls(compiler)
    for _ in range(3):
        c_struct._load.cache_clear()
        assert c_struct.library(torch.float32) is not None and c_struct.loops_here() == "C"
    assert calls(compiler) == before + 1
    assert sorted(file.suffix for file in folder.iterdir()) == [".sha256", ".so"]
    assert [oct(file.stat().st_mode)[-2:] for file in (folder, *folder.iterdir())] == ["00"] * 3


def fifo(path):
    path.unlink()
    os.mkfifo(path)


def link(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


DAMAGES = {
    "cut short": lambda so, seal: os.truncate(so, 5000),
    "of no length": lambda so, seal: os.truncate(so, 0),
    "one byte changed": lambda so, seal: so.write_bytes(b"\x7fELG" + so.read_bytes()[4:]),
    "longer": lambda so, seal: so.write_bytes(so.read_bytes() + b"x"),
    "gone": lambda so, seal: so.unlink(),
    "a pipe": lambda so, seal: fifo(so),
    "a link": lambda so, seal: link(so),
    "others may write": lambda so, seal: so.chmod(0o722),
    "no seal": lambda so, seal: seal.unlink(),
    "an empty seal": lambda so, seal: seal.write_bytes(b""),
    "a seal that is a pipe": lambda so, seal: fifo(seal),
    "a seal that others may write": lambda so, seal: seal.chmod(0o666),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_in_the_cache_is_never_loaded_and_is_built_again_once(fresh, compiler, damage):
    monkeypatch, folder = fresh
    monkeypatch.setenv("CC", str(compiler))
    assert c_struct.library(torch.float32) is not None
    (so,), (seal,) = folder.glob("*.so"), folder.glob("*.sha256")
    shutil.copy2(so, folder / "copy")
    (folder / "copy").rename(so)  # this process goes on with the file that it has mapped
    DAMAGES[damage](so, seal)
    before = calls(compiler)
    for _ in range(2):
        c_struct._load.cache_clear()
        assert c_struct.library(torch.float32) is not None
    assert calls(compiler) == before + 1


def test_what_killed_compilers_leave_is_cleared_but_not_while_somebody_is_at_work(fresh, compiler):
    monkeypatch, folder = fresh
    monkeypatch.setenv("CC", str(compiler))
    (folder / "build_left").mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    at_work = os.open(folder, os.O_RDONLY)
    fcntl.flock(at_work, fcntl.LOCK_SH)
    assert c_struct.library(torch.float32) is not None and (folder / "build_left").exists()
    os.close(at_work)
    c_struct._load.cache_clear()
    assert c_struct.library(torch.float32) is not None and not (folder / "build_left").exists()


def test_a_cache_folder_that_others_could_fill_is_refused(fresh, compiler):
    monkeypatch, folder = fresh
    monkeypatch.setenv("CC", str(compiler))
    folder.mkdir(parents=True)
    folder.chmod(0o770)
    with pytest.warns(UserWarning, match="must belong to you and be closed to others' writing"):
        assert c_struct.library(torch.float32) is None
    folder.chmod(0o700)
    monkeypatch.chdir(folder.parents[1])
    monkeypatch.setenv("XDG_CACHE_HOME", ".")
    monkeypatch.setattr(c_struct, "_warned", False)
    c_struct._load.cache_clear()
    with pytest.warns(UserWarning, match="must have an absolute path, got rims-rl/loops"):
        assert c_struct.library(torch.float32) is None
    assert c_struct.loops_here() == "torch" and not list(folder.iterdir())


@pytest.mark.parametrize(
    "compiler, words",
    [("no-such-compiler", "no C compiler 'no-such-compiler'; install"), ("false", "false ended with code 1"),
     ("true", "true ended with code 0"), ("", "no C compiler ''"), ("'", "No closing quotation")],
)  # fmt: skip
def test_without_a_compiler_the_layer_works_and_one_warning_says_why(fresh, compiler, words):
    monkeypatch, folder = fresh
    monkeypatch.setenv("CC", compiler)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for dtype in (torch.float32, torch.float64):
            output, _ = RIM(10, 60, 6, 4, dtype=dtype)(torch.randn(5, 3, 10, dtype=dtype))
            assert output.shape == (5, 3, 60)
    (one,) = said
    assert words in str(one.message) and "RIMS_RL_NATIVE=0" in str(one.message)
    assert not folder.exists() or not list(folder.iterdir())


@pytest.mark.parametrize("unknown", ["-fopenmp", "-fopenmp|-march=native"])
def test_what_a_compiler_does_not_know_is_left_out(fresh, tmp_path, unknown):
    """Apple's clang has no OpenMP."""
    monkeypatch, folder = fresh
    compiler = tmp_path / "strict-cc"
    refuse = f'case "$flag" in {unknown}) echo unknown >&2; exit 1;; esac'
    compiler.write_text(f'#!/bin/sh\nfor flag in "$@"; do {refuse}; done\nexec cc "$@"\n')
    compiler.chmod(0o700)
    rim, x = RIM(10, 60, 6, 4), torch.randn(5, 300, 10)
    expected = run(rim, x)
    monkeypatch.setenv("CC", str(compiler))
    c_struct._load.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = run(rim, x)
    assert c_struct.loops_here() == "C" and len(list(folder.glob("*.so"))) == 2
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_unwanted_they_are_not_compiled_and_nothing_is_said(fresh):
    monkeypatch, folder = fresh
    monkeypatch.setenv("RIMS_RL_NATIVE", "0")
    output, _ = RIM(10, 60, 6, 4)(torch.randn(5, 3, 10))
    assert output.shape == (5, 3, 60) and c_struct.loops_here() == "torch" and not folder.exists()


@pytest.mark.parametrize("options", [{}, {"input_heads": 2}, {"communication": False}, {"num_active": 6}])
@pytest.mark.parametrize("elements", [1, 3])
def test_steps_with_weights_at_rest_are_the_same_and_changed_weights_are_noticed(options, elements):
    torch.manual_seed(0)
    rim = RIM(10, 60, **{"num_rims": 6, "num_active": 4, "num_layers": 2, **options})
    other = RIM(10, 60, **{"num_rims": 6, "num_active": 4, "num_layers": 2, **options})
    optimizer = torch.optim.Adam(rim.parameters(), lr=0.1)

    def steps():
        """Some with resets, with another batch size, with a RIM dropped, and with weights that have changed."""
        rim.load_state_dict(start)
        outputs, state = [], None
        for t in range(12):
            with torch.no_grad():
                output, state = rim(x[t : t + 1], state, starts[t : t + 1] if t % 2 else None)
            outputs.append(output)
            if t == 3:
                outputs.append(rim(x[:1, :2])[0].detach())
            if t == 5:
                with rim.drop(1), torch.no_grad():
                    outputs.append(rim(x[:1])[0])
            if t == 7:
                rim(x)[0].sum().backward()
                optimizer.step()
            if t == 9:
                rim.load_state_dict(other.state_dict())
        return outputs

    start = {name: weight.clone() for name, weight in rim.state_dict().items()}
    x, starts = torch.randn(12, 5, elements, 10), torch.rand(12, 5) < 0.3
    expected = steps()
    optimizer = torch.optim.Adam(rim.parameters(), lr=0.1)
    rim.zero_grad()
    with weights_at_rest(rim):
        assert [torch.equal(a, b) for a, b in zip(steps(), expected, strict=True)] == [True] * 14
    assert not any(layer.at_rest for layer in rim.layers)


def assign_other_memory(rim):
    """The memory of the first weights is free by then, and could be given to the last."""
    for _ in range(4):
        for weight in rim.parameters():
            weight.data = weight.data * 1.1


def fused_step(rim):
    rim(torch.randn(5, 3, 10))[0].sum().backward()
    torch.optim.Adam(rim.parameters(), lr=0.1, fused=True).step()


CHANGES = {
    "a fused optimizer": fused_step,
    "load_state_dict": lambda rim: rim.load_state_dict({n: w * 2 for n, w in rim.state_dict().items()}),
    "load_state_dict, assigned": lambda rim: rim.load_state_dict(
        {n: w * 2 for n, w in rim.state_dict().items()}, assign=True
    ),
    "other memory": assign_other_memory,
    "another dtype and back": lambda rim: rim.bfloat16().float(),
    "another parameter": lambda rim: setattr(rim.layers[0], "weight_hh", torch.nn.Parameter(torch.ones(6, 40, 10))),
    "in place": lambda rim: torch.nn.init.zeros_(rim.layers[0].comm_out),
}


@pytest.mark.parametrize("change", CHANGES)
def test_weights_that_change_at_rest_are_noticed(change):
    rim, x = RIM(10, 60, 6, 4), torch.randn(1, 3, 10)
    state = tuple(torch.randn(1, 3, 60) for _ in range(2))
    with torch.no_grad(), weights_at_rest(rim):
        before = rim(x, state)[0]
        with torch.enable_grad():
            CHANGES[change](rim)
        after = rim(x, state)[0]
        in_between = copy.deepcopy(rim), pickle.loads(pickle.dumps(rim))
    with torch.no_grad():
        assert not torch.equal(before, after)
        assert all(torch.equal(other(x, state)[0], after) for other in (rim, *in_between))


def test_scopes_of_the_same_layer_may_overlap_and_nothing_is_held_after_the_last():
    rim, other = RIM(10, 60, 6, 4), RIM(10, 60, 6, 4)
    first, second = weights_at_rest(rim), weights_at_rest(torch.nn.Sequential(rim, other))
    first.__enter__()
    second.__enter__()
    with torch.no_grad():
        rim(torch.randn(1, 3, 10))
    kept = weakref.ref(rim.layers[0].at_rest._made[-1])
    first.__exit__(None, None, None)
    assert kept() is not None and rim.layers[0].at_rest and other.layers[0].at_rest
    second.__exit__(None, None, None)
    assert kept() is None and not rim.layers[0].at_rest and not other.layers[0].at_rest


@pytest.mark.parametrize("grad", [False, True])
def test_threads_may_share_a_layer(grad):
    rim, xs = RIM(10, 60, 6, 4), torch.randn(4, 40, 1, 3, 10)

    def steps(i):
        outputs, state = [], None
        with torch.set_grad_enabled(grad):
            for x in xs[i]:
                output, state = rim(x, state)
                outputs.append(output.detach())
        return torch.cat(outputs)

    expected = [steps(i) for i in range(4)]
    with weights_at_rest(rim), ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert all(map(torch.equal, pool.map(steps, range(4)), expected))
