"""WMT and IWSLT, from a server on this machine in the place of theirs."""

import functools
import hashlib
import io
import tarfile
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from sacrebleu.dataset import DATASETS

from rims_rl.supervised.data import wmt
from rims_rl.supervised.data.parallel import read_corpora
from tests.helpers.verbs import user_error


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(tmp_path):
    """The folder that it serves, and its address."""
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()


def archive(path, files):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as made:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data := text.encode())
            made.addfile(member, io.BytesIO(data))
    return path.read_bytes()


@pytest.fixture
def served(server, monkeypatch):
    """Archives as WMT's, of a few lines."""
    folder, address = server
    archives = {}
    for path, (name, _) in wmt.ARCHIVES.items():
        texts = {
            f"training/{name}.{target}-en.{language}": "".join(f"{name} {language} {n}\n" for n in range(3))
            for target in wmt.WMT_LANGUAGES
            for language in (target, "en")
        }
        archives[path] = name, hashlib.sha256(archive(folder / path, texts)).hexdigest()
    monkeypatch.setattr(wmt, "ARCHIVES", archives)
    monkeypatch.setattr(wmt, "URL", address)
    return folder


def test_wmt_is_downloaded_checked_and_kept(served, tmp_path, monkeypatch):
    found = read_corpora("wmt", "en", ["de", "fr"], tmp_path)
    assert found["fr"].source[0] == "europarl-v7 en 0" and found["fr"].target[-2] == "news-commentary-v9 fr 2"
    assert len(found["de"].source) == len(found["de"].target) == 8  # with the empty line at the end of each file
    monkeypatch.setattr(wmt, "URL", "http://127.0.0.1:9/")  # nobody listens there
    assert read_corpora("wmt", "en", ["de", "fr"], tmp_path) == found


def test_an_archive_that_is_not_what_it_was_is_refused(served, tmp_path):
    path = served / next(iter(wmt.ARCHIVES))
    path.write_bytes(path.read_bytes() + b"more")
    with user_error(r"europarl-v7.tgz is not what it was, or is damaged: its checksum is wrong"):
        read_corpora("wmt", "en", ["de"], tmp_path)
    assert not list(tmp_path.glob("wmt*"))


def test_without_a_network_there_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(wmt, "URL", "http://127.0.0.1:9/")
    with user_error(r"cannot be downloaded \(.*refused\); give parallel files of your own"):
        read_corpora("wmt", "en", ["de"], tmp_path)


@pytest.mark.parametrize(("source", "target", "got"), [("en", "it", "en-it"), ("de", "fr", "de-fr")])
def test_a_pair_that_wmt_has_not_is_one_sentence(source, target, got, tmp_path):
    with user_error(f"wmt has en-de and en-fr here, got {got}; give parallel files"):
        read_corpora("wmt", source, [target], tmp_path)


def test_a_pair_that_iwslt_has_not_is_one_sentence(tmp_path):
    with user_error("iwslt has no en-xx; it has ar-en, "):
        read_corpora("iwslt", "en", ["xx"], tmp_path)


def test_iwslt_comes_through_sacrebleu(server, tmp_path, monkeypatch):
    folder, address = server
    talks, sums = DATASETS["iwslt17"], []
    for pair in ("en-de", "de-en"):
        language = pair[:2]
        text = f'<doc>\n<seg id="1"> Hello {language} . </seg>\n<seg id="2"> Bye {language} </seg>\n</doc>\n'
        data = archive(folder / f"{pair}.tgz", {f"{pair}/IWSLT17.TED.tst2017.{pair}.{language}.xml": text})
        sums.append(hashlib.md5(data).hexdigest())
    monkeypatch.setattr(talks, "data", [f"{address}{pair}.tgz" for pair in ("en-de", "de-en")])
    monkeypatch.setattr(talks, "md5", sums)
    for name, place in (("_outdir", "iwslt17"), ("_rawdir", "iwslt17/raw")):
        monkeypatch.setattr(talks, name, str(tmp_path / place))
    found = read_corpora("iwslt", "en", ["de"], tmp_path)["de"]
    assert found.source[:2] == ["Hello en .", "Bye en"] and found.target[:2] == ["Hello de .", "Bye de"]


def test_iwslt_that_is_damaged_is_one_sentence(server, tmp_path, monkeypatch):
    folder, address = server
    archive(folder / "en-de.tgz", {"x": "y"})
    talks = DATASETS["iwslt17"]
    monkeypatch.setattr(talks, "data", [f"{address}en-de.tgz"])
    monkeypatch.setattr(talks, "md5", ["0" * 32])
    for name, place in (("_outdir", "iwslt17"), ("_rawdir", "iwslt17/raw")):
        monkeypatch.setattr(talks, name, str(tmp_path / place))
    with user_error(r"IWSLT cannot be downloaded by sacrebleu \(its checksum is wrong\); give parallel files"):
        read_corpora("iwslt", "en", ["de"], tmp_path)
