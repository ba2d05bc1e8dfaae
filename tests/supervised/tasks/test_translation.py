"""`rims-rl supervised translation`, on parallel files that are written here."""

import importlib.util
import json
import sys

import numpy as np
import pytest
import torch

from rims_rl import cli
from rims_rl.core import RIM
from rims_rl.supervised.data.parallel import read_corpora
from rims_rl.supervised.task import load
from rims_rl.supervised.tasks import translation
from rims_rl.supervised.tasks.translation import Translation, batch_rows, bleu
from tests.helpers.verbs import user_error

WORDS = {"the": ("das", "le"), "small": ("kleine", "petit"), "big": ("grosse", "grand"), "red": ("rote", "rouge")}
NOUNS = {"horse": ("Pferd", "cheval"), "house": ("Haus", "mur"), "book": ("Buch", "livre"), "boat": ("Boot", "bateau")}
VERBS = {"sees": ("sieht", "voit"), "wants": ("will", "veut"), "has": ("hat", "a"), "finds": ("findet", "trouve")}
TINY = [
    "vocabulary=60", "longest=40", "embedding_size=8", "hidden_size=12", "batch_size=8", "iterations=2", "test_every=2",
    "test_sequences=12", "dropout=0",
]  # fmt: skip


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """A small language, in three: those to learn from, and others whose sentences are longer."""
    folder, random = tmp_path_factory.mktemp("corpora"), np.random.default_rng(0)

    def phrase():
        words = [*random.choice(["small", "big", "red"], random.integers(0, 3)), random.choice(list(NOUNS))]
        return ["the", *map(str, words)]

    def translated(words, language):
        known = WORDS | NOUNS | VERBS
        return " ".join(words if language is None else [known[word][language] for word in words]) + "."

    for name, parts in (("near", 1), ("far", 2)):
        sentences = {}
        for _ in range(400):
            words = phrase()
            for _ in range(parts):
                words += [str(random.choice(list(VERBS))), *phrase()]
            sentences[translated(words, None)] = words
        for suffix, language in (("en", None), ("de", 0), ("fr", 1)):
            lines = [translated(words, language) for words in sentences.values()]
            (folder / f"{name}.{suffix}").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def make(corpora, tmp_path_factory):
    """A task with tiny settings, but for those given."""

    def one(*settings):
        names = [f"train={corpora}/near", f"test={corpora}/far"]
        return Translation(load(Translation, [*TINY, *names, *settings]), corpora / "kept")

    return one


CORES = ["rims", "rims-robust", "rims-released", "scoff", "brims", "rims-workspace", "block-gru", "lstm", "gru", "rnn",
         "none", "rmc", "ntm", "dnc", "entnet", "transformer"]  # fmt: skip


@pytest.mark.parametrize("core", CORES)
def test_every_core_is_tested_on_both_domains(make, core):
    task = make(f"core={core}", "languages=[de,fr]", "hidden_size=12")
    network = task.network().eval()
    with torch.no_grad():
        found = task.tests(network, 5)
    assert list(found) == [f"en-{to}, {domain} domain" for to in ("de", "fr") for domain in ("same", "other")]
    size = len(task._data.subwords["de"])
    for each in found.values():
        assert 0 <= each["BLEU"] <= 100 and abs(each["cross entropy"] - np.log(size)) < 3
    loss = task.loss(network.train(), *task.batch(0, 0))
    loss.backward()
    assert torch.isfinite(loss) and network.core is not None


def test_the_loss_is_the_mean_over_languages(make):
    both, one = make("core=gru", "languages=[de,fr]"), make("core=gru", "languages=[de]")
    network = both.network().eval()
    batch = both.batch(3, 7)
    with torch.no_grad():
        german = one.loss(network, *batch[:2])
        french = make("core=gru", "languages=[fr]").loss(network, *batch[2:])
        assert both.loss(network, *batch).item() == pytest.approx((german + french).item() / 2)
    assert all(torch.equal(a, b) for a, b in zip(batch[:2], one.batch(3, 7), strict=True))  # as much German as alone


def test_another_language_beside_it_changes_nothing_of_the_first(make):
    alone, both = (make(f"languages={languages}", "longest=24")._data for languages in ("[de]", "[de,fr]"))
    assert alone.facts["en-de"] == both.facts["en-de"]
    for one, other in ((alone.training, both.training), (alone.tests["de"], both.tests["de"])):
        for name, pairs in one.items():
            assert pairs.texts == other[name].texts
            assert pairs.source.sources([0, 1]).equal(other[name].source.sources([0, 1]))


def test_no_sentence_is_learned_from_and_tested_on(make):
    data = make("languages=[de,fr]")._data
    for language in ("de", "fr"):
        learned = set(data.training[language].texts.source)
        for each in ("de", "fr"):
            assert not learned & set(data.tests[each]["same"].texts.source)
    facts = data.facts["en-fr"]
    assert facts["sentences"]["training"] > 100 and facts["sentences"]["same"] > 5


def test_an_epoch_has_every_sentence_once_in_batches_of_a_length():
    lengths = np.random.default_rng(0).integers(1, 50, 1000)
    epoch = [batch_rows(lengths, 10, (5, 0), index) for index in range(100)]
    assert sorted(row for rows in epoch for row in rows) == list(range(1000))
    spread = np.mean([np.ptp(lengths[rows]) for rows in epoch])
    assert spread < 5 and epoch != [batch_rows(lengths, 10, (5, 0), 100 + index) for index in range(100)]
    assert epoch[3] == batch_rows(lengths, 10, (5, 0), 3) != batch_rows(lengths, 10, (6, 0), 3)


def test_cross_entropy_is_per_piece_of_all_sentences(make):
    task = make("core=lstm", "batch_size=3")
    network = task.network().double().eval()
    pairs = task._data.tests["de"]["same"]
    total, pieces = 0.0, 0
    with torch.no_grad():
        for row in range(7):
            target = pairs.target.targets([row])
            logs = network(pairs.source.sources([row]), target[:-1], "de").log_softmax(-1)
            total -= sum(logs[step, 0, piece].item() for step, piece in enumerate(target[1:, 0]))
            pieces += len(target) - 1
        assert task.tests(network, 7)["en-de, same domain"]["cross entropy"] == pytest.approx(total / pieces)


def test_bleu_of_the_truth_and_of_something_else():
    wanted = ["das kleine Pferd sieht das Haus.", "das rote Boot hat das Buch."]
    assert bleu(wanted, wanted) == pytest.approx(100)
    assert bleu(["nein"] * 2, wanted) == 0


def test_what_is_recorded_is_what_the_network_does(make):
    torch.manual_seed(0)
    task = make("core=rims", "longest=24")
    network = task.network().eval()
    with torch.no_grad():
        record = task.record(network)
    assert json.loads(json.dumps(record)) == record
    assert [each["domain"] for each in record["translations"]] == ["same", "same"] + ["other"] * (
        len(record["translations"]) - 2
    )
    first = record["attention"][0]
    assert len(first["reading"]) == 6 and len(first["attention"]) == len(first["said"]) == len(first["speaking"][0])
    np.testing.assert_allclose(np.sum(first["attention"], 1), 1, atol=0.01 * len(first["source"]))
    active = np.array([[step == "1" for step in rim] for rim in first["reading"]])
    assert (active.sum(0) == 4).all() and (np.array(first["read"])[~active] == 0).all()
    assert isinstance(network.core, RIM) and "".join(first["source"]).replace("▁", " ").strip().endswith(".</s>")


def test_a_small_language_is_learned(make):
    """Everything together: some hundred steps, and most pieces are right, also in longer sentences than were read."""
    from rims_rl.supervised.training import Training

    task = make("core=gru", "hidden_size=48", "embedding_size=24", "iterations=300", "learning_rate=1e-2",
                "batch_size=16", "test_every=1000", "max_grad_norm=1.0")  # fmt: skip
    training = Training(task, 0)
    for index in range(300):
        training.iterate(task.batch(0, index))
    found = training._test(20)
    assert found["en-de, same domain"]["BLEU"] > 50 > found["en-de, same domain"]["cross entropy"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["train=nowhere"], "there is no nowhere.en and no nowhere.de; a corpus is debian"),
        (["languages=[de,de]"], "languages.* must be different ones, and not .*source.* 'en', got"),
        (["languages=[en]"], "must be different ones"),
        (["languages=[de,it]"], "there is no .*near.it"),
        (["batch_size=100000"], r"batch_size must be at most \d+, all sentences of training, got 100000"),
        (["longest=2"], "has no sentences of at most 2 pieces for training; give more text, or a larger"),
        (["vocabulary=11"], "a vocabulary of 11 pieces cannot be made of"),
        (["core=transformer", "hidden_size=13"], "hidden_size must be even and a multiple of heads=4, got 13"),
        (["core=transformer", "core_kwargs.num_heads=3"], "core 'transformer' has no option 'num_heads'"),
    ],
)
def test_mistakes_get_one_sentence(make, settings, words):
    with user_error(words):
        make(*settings).network()


@pytest.mark.parametrize("setting", ["languages=[German]", "languages=[]", "source=1", "longest=1", "vocabulary=2"])
def test_settings_that_cannot_be_are_refused(setting):
    with user_error(f"{setting.split('=')[0]} must be"):
        load(Translation, [setting])


@pytest.mark.parametrize("package", ["sentencepiece", "sacrebleu"])
def test_a_missing_package_is_said_before_anything_is_read(make, package, monkeypatch):
    def find(name):
        return None if name == package else importlib.util.find_spec(name)

    monkeypatch.setattr(translation, "find_spec", find)
    with user_error(rf"translation needs {package}, which is not installed; run: pip install 'rims-rl\[translation\]'"):
        make("train=nowhere").network()


def test_mistakes_are_found_before_anything_is_fetched(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))  # no apt: fetching would be another sentence
    for setting, words in (
        ("core=lstn", "did you mean 'lstm'?"),
        ("core_kwargs.cel=gru", "core 'rims' has no option 'cel'"),
        ("train=nowhere", "there is no nowhere.en"),
        ("test=nowhere", "there is no nowhere.en"),
        ("seeds=3", "there is no key 'seeds'"),
        ("train=debian", "there is no apt-get here"),
    ):
        command = ["rims-rl", "supervised", "translation", "--data-dir", str(tmp_path), "--set", setting]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 2 and words in capsys.readouterr().err


def test_checking_draws_no_random_numbers(make):
    task = make("core=rims")
    torch.manual_seed(3)
    task.check()
    first = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(first, torch.rand(1))


def test_the_command_trains_tests_and_writes_the_page(corpora, tmp_path, monkeypatch, capsys):
    sets = [*TINY, f"train={corpora}/near", f"test={corpora}/far", "longest=24"]
    arguments = ["supervised", "translation", "--core=rims", "--core=lstm", "--core=transformer", "--threads=1",
                 f"--results={tmp_path}", f"--logdir={tmp_path}", f"--data-dir={corpora}/kept",
                 *(f"--set={each}" for each in sets)]  # fmt: skip
    for languages in ("[de]", "[de,fr]"):
        monkeypatch.setattr(sys, "argv", ["rims-rl", *arguments, f"--set=languages={languages}"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 0, capsys.readouterr().err
    page = (tmp_path / "translation.md").read_text()
    for part in ("## Corpora", "**This is not the paper's experiment.**", "## BLEU", "## Cross entropy",
                 "## Against rims 6/4", "## Translations", "![attention](translation_attention.png)"):  # fmt: skip
        assert part in page
    lines = [line for line in page.split("## BLEU")[1].split("\n## ")[0].splitlines() if line.startswith("| ")]
    cells = {line.split(" | ")[0]: line.split(" | ") for line in lines}
    assert cells and [cells[name][3] for name in cells if "lstm" in name] == ["21.32", "20.37"]
    assert [cells[name][3] for name in cells if "transformer" in name] == ["22.89", "22.92"]
    assert "## Ablations" not in page and "None" not in page  # several languages are no part that RIMs do without
    assert (tmp_path / "translation_attention.png").stat().st_size > 10_000
    result = next((tmp_path / "translation").glob("rims_0_*.json"))
    assert json.loads(result.read_text())["record"]["corpora"]["en-de"]["sha256"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_from_nothing_debian_and_wesnoth_come_through_apt_and_are_learned_from(tmp_path, monkeypatch, capsys):
    sets = ["languages=[de,fr]", "iterations=200", "test_every=200", "test_sequences=40"]
    places = [f"--results={tmp_path}", f"--logdir={tmp_path}", f"--data-dir={tmp_path}"]
    arguments = ["supervised", "translation", "--threads=1", *places, *(f"--set={each}" for each in sets)]
    monkeypatch.setattr(sys, "argv", ["rims-rl", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert ended.value.code == 0, said.err
    assert f"fetching wesnoth for en-de, en-fr; it is kept in {tmp_path}" in said.out
    result = json.loads(next((tmp_path / "translation").glob("*.json")).read_text())
    assert result["curve"][1][1] < result["curve"][0][1] - 0.3
    read = {name: read_corpora(name, "en", ["de", "fr"], tmp_path) for name in ("debian", "wesnoth")}
    for name, fewest in (("debian", 20_000), ("wesnoth", 4_000)):
        assert all(len(corpus.source) > fewest for corpus in read[name].values())
    words = {name: " ".join(read[name]["de"].target).lower().split() for name in read}
    assert words["debian"].count("paket") > 1000 > words["wesnoth"].count("paket")
    assert words["wesnoth"].count("orks") > 100
    with user_error("debian has no translations from en into 'xx'"):
        read_corpora("debian", "en", ["xx"], tmp_path)
