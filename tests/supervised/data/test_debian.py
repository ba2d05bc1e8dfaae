"""Corpora through apt: what its files hold, and what happens without it."""

import io

import pytest
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo

from rims_rl.supervised.data.debian import (
    descriptions,
    dialogue,
    fetch_descriptions,
    fetch_dialogues,
    paired,
    read_catalog,
)
from tests.helpers.verbs import user_error

ENGLISH = """\
Package: chess
Description-md5: aa11
Description-en: a game of chess
 This is a game that
 two people play.
 .
 It has:
  * a board
  * pieces

Package: cards
Description-md5: bb22
Description-en: card game
 Play alone.
"""
GERMAN = """\
Package: chess
Description-md5: aa11
Description-de: ein Schachspiel
 Dies ist ein Spiel
 für zwei.
 .
 Es hat:
  * ein Brett
  * Figuren

Package: cards
Description-md5: bb22
Description-de: Kartenspiel
 Spiele allein.
 .
 Oder nicht.

Package: other
Description-md5: cc33
Description-de: <trans>
"""


def test_descriptions_are_titles_and_paragraphs():
    found = descriptions(ENGLISH)
    assert found["aa11"] == [
        "a game of chess",
        "This is a game that two people play.",
        "It has:",
        "* a board",
        "* pieces",
    ]
    assert descriptions(GERMAN)["cc33"] == ["<trans>"]


def test_descriptions_are_paired_by_checksum_and_paragraph():
    pairs = paired(descriptions(ENGLISH), descriptions(GERMAN))
    assert ("This is a game that two people play.", "Dies ist ein Spiel für zwei.") in pairs
    assert ("card game", "Kartenspiel") in pairs  # its paragraphs are not as many, so only the title is sure
    assert len(pairs) == 6 and not any("allein" in german for _, german in pairs)


def test_a_catalog_is_read_as_gettext_writes_it():
    catalog, file = Catalog(locale="de"), io.BytesIO()
    catalog.add("We ride at dawn.", "Wir reiten im Morgengrauen.")
    catalog.add("Who is there?", "Wer da?", context="scene")
    catalog.add(("one orc", "%d orcs"), ("ein Ork", "%d Orks"))
    write_mo(file, catalog)
    found = read_catalog(file.getvalue())
    assert found["We ride at dawn."] == "Wir reiten im Morgengrauen." and found["scene\x04Who is there?"] == "Wer da?"
    assert dialogue(found) == [("We ride at dawn.", "Wir reiten im Morgengrauen."), ("Who is there?", "Wer da?")]
    with pytest.raises(ValueError, match=r"no \.mo file"):
        read_catalog(b"something else")


def test_dialogue_has_no_names_no_markup_and_no_variables():
    catalog = {
        "": "Project-Id-Version: x", "Walking Corpse": "Wandelnder Leichnam", "female^Halt!": "Stehen bleiben!",
        "<i>Run!</i>": "<i>Lauf!</i>", "You have $gold gold.": "Du hast $gold Gold.",
        "First.\n\nSecond?": "Erstens.\n\nZweitens?", "One.\nTwo.": "Eins und zwei.",
    }  # fmt: skip
    assert dialogue(catalog) == [("Halt!", "Stehen bleiben!"), ("First.", "Erstens."), ("Second?", "Zweitens?")]


@pytest.mark.parametrize("fetch", [fetch_descriptions, fetch_dialogues])
def test_without_apt_there_is_one_sentence(fetch, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with user_error("are fetched with apt, and there is no apt-get here; give parallel files of your own"):
        fetch("en", ["de"])


@pytest.mark.parametrize("fetch", [fetch_descriptions, fetch_dialogues])
def test_they_are_translated_from_english(fetch):
    with user_error(r"is translated from en only, got .*source.* 'de'"):
        fetch("de", ["fr"])


def test_apt_that_does_not_work_is_one_sentence(tmp_path, monkeypatch):
    for program in ("apt-get", "apt-cache", "dpkg-deb"):
        (tmp_path / program).write_text("#!/bin/sh\necho 'E: no network today' >&2\nexit 100\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with user_error(r"`apt-get update` failed \(no network today\); see whether apt works here"):
        fetch_descriptions("en", ["de"])
