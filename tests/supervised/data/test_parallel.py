"""Parallel files of the user's, and what is fetched by name."""

import pytest

from rims_rl.common.errors import UserError
from rims_rl.supervised.data import parallel
from rims_rl.supervised.data.parallel import Corpus, clean, read_corpora, shuffled, split


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def test_files_of_the_users_are_read_in_both_forms(tmp_path):
    write(tmp_path / "talks.en", "one", "two")
    write(tmp_path / "talks.de", "eins", "zwei")
    write(tmp_path / "talks.en-fr.en", "three")
    write(tmp_path / "talks.en-fr.fr", "trois")
    found = read_corpora(str(tmp_path / "talks"), "en", ["de", "fr"])
    assert found == {"de": (["one", "two"], ["eins", "zwei"]), "fr": (["three"], ["trois"])}


def test_files_of_unequal_length_are_one_sentence(tmp_path):
    write(tmp_path / "talks.en", "one", "two")
    write(tmp_path / "talks.de", "eins")
    with pytest.raises(
        UserError, match=r"talks.en has 2 lines and .*talks.de has 1; each line must be the translation"
    ):
        read_corpora(str(tmp_path / "talks"), "en", ["de"])


def test_a_language_without_a_file_is_one_sentence(tmp_path):
    write(tmp_path / "talks.en", "one")
    write(tmp_path / "talks.de", "eins")
    with pytest.raises(UserError, match=r"there is no .*talks.it; a corpus is debian, wesnoth, iwslt, wmt, or how"):
        read_corpora(str(tmp_path / "talks"), "en", ["de", "it"])


@pytest.mark.parametrize(
    ("data", "words"), [(b"\xff\xfe\n", "cannot be read .it is not text in UTF-8"), (b"", "are empty; give sentences")]
)
def test_what_is_no_text_is_one_sentence(tmp_path, data, words):
    for language in ("en", "de"):
        (tmp_path / f"talks.{language}").write_bytes(data)
    with pytest.raises(UserError, match=words):
        read_corpora(str(tmp_path / "talks"), "en", ["de"])


def test_a_separator_inside_a_line_does_not_shift_the_lines(tmp_path):
    write(tmp_path / "talks.en", "one\u2028still one", "two\x0cstill two")
    write(tmp_path / "talks.de", "eins", "zwei")
    assert len(read_corpora(str(tmp_path / "talks"), "en", ["de"])["de"].source) == 2


def test_what_is_fetched_is_kept_and_fetched_once(tmp_path, monkeypatch):
    asked = []

    def fetch(source, targets):
        asked.append((source, *targets))
        return {target: [("one", target), ("two", target)] for target in targets}

    monkeypatch.setitem(parallel.FETCHED, "debian", fetch)
    for targets in (["de"], ["de", "fr"], ["fr", "de"]):
        found = read_corpora("debian", "en", targets, tmp_path)
        assert found == {target: (["one", "two"], [target] * 2) for target in targets}
    assert asked == [("en", "de"), ("en", "fr")]


def test_pairs_that_teach_nothing_are_left_out():
    pairs = [("a b", "x y"), ("a  b", "again"), ("same", "same"), ("", "x"), ("one", "w " * 7), ("two", "w " * 6)]
    assert list(clean(pairs)) == [("a b", "x y"), ("two", "w w w w w w")]


def test_what_is_held_out_follows_from_the_sentence_alone():
    sentences = [f"sentence {number}" for number in range(2000)]
    first, held_out = split(Corpus(sentences, [f"x {text}" for text in sentences]))
    assert set(first.source) | set(held_out.source) == set(sentences) and not set(first.source) & set(held_out.source)
    assert 60 <= len(held_out.source) <= 140 and all(b == f"x {a}" for a, b in zip(*held_out, strict=True))
    few = sentences[::-3]
    assert set(split(Corpus(few, [f"y {text}" for text in few]))[1].source) == set(held_out.source) & set(few)


def test_tests_begin_with_sentences_from_all_over_the_corpus():
    sentences = [f"sentence {number}" for number in range(1000)]
    first = shuffled(Corpus(sentences, sentences[::-1]))
    assert sorted(first.source) == sorted(sentences) and first == shuffled(Corpus(sentences[::-1], sentences))
    places = [sentences.index(text) for text in first.source[:40]]
    assert min(places) < 200 and max(places) > 800
