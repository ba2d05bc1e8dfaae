"""The page in a real browser, opened from disk."""

import base64
import json
import re
import shutil
import time

import cv2
import numpy as np
import pytest

from rims_rl.inspect.inspection_page import write_page
from rims_rl.inspect.record import InspectOptions, inspect
from rims_rl.inspect.recording import write_recording
from tests.helpers.untrained_runs import save_untrained

STEPS = 40


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """A recording and its page for each kind of input."""
    made = {}
    brims = {"input": "spatial", "core": "brims"}
    for name, env, kwargs in (
        ("Breakout", "Breakout", {"input": "spatial"}), ("PickupKnown", "PickupKnown", {}),
        ("Pendulum-v1", "Pendulum-v1", {}), ("Breakout, brims", "Breakout", brims),
        ("PickupKnown, cells", "PickupKnown", {"input": "cells"}),
    ):  # fmt: skip
        folder = tmp_path_factory.mktemp(name)
        run = save_untrained(folder, env, **kwargs)
        options = {"out": folder / "x.npz", "html": folder / "x.html", "episodes": 100, "max_steps": STEPS}
        inspect(InspectOptions(run=run, deterministic=False, threads=1, **options))
        with np.load(folder / "x.npz") as arrays:
            made[name] = folder / "x.html", dict(arrays)
    return made


def test_the_page_needs_nothing_else_and_no_text_of_a_recording_becomes_part_of_it(tmp_path):
    with write_recording(tmp_path / "x.npz", {"run": "</script><script>alert(1)</script>"}) as recorder:
        recorder.add(np.zeros((2, 2, 3), np.uint8), active=np.ones(3, bool))
    write_page(tmp_path / "x.npz", tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert "<script>alert" not in page and "{{" not in page
    assert not any(word in page for word in ("http://", "https://", "src=", "@import", "url("))
    data = json.loads(page.split('id="recording">')[1].split("</script>")[0])
    assert data["about"]["run"] == "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def browser():
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("there is no chromium and chromedriver here; Debian: apt-get install chromium chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield started
    started.quit()


class Page:
    """What a person does with the page, and sees of it."""

    def __init__(self, browser, path):
        self.browser = browser
        browser.execute_cdp_cmd("Network.enable", {})
        browser.execute_cdp_cmd(
            "Network.emulateNetworkConditions",
            {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
        )
        browser.get(path.as_uri())
        self.wait_for_frame()

    def press(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.browser).send_keys(*keys).perform()

    def drag(self, begin, end):
        """The mouse over the timeline, from one x to another, in pixels from its left edge."""
        from selenium.webdriver.common.action_chains import ActionChains

        timeline = self.find("timeline")
        left = timeline.size["width"] // 2  # Selenium counts from the middle
        mouse = ActionChains(self.browser).move_to_element_with_offset(timeline, begin - left, 0).click_and_hold()
        mouse.move_to_element_with_offset(timeline, end - left, 0).release().perform()

    def find(self, name):
        return self.browser.find_element("id", name)

    @property
    def step(self):
        return int(self.find("timeline").get_attribute("aria-valuenow"))

    def wait_for_frame(self):
        until = time.monotonic() + 30
        while self.find("game").get_attribute("data-step") != str(self.step):
            assert time.monotonic() < until, "the frame of this step is never drawn"
            time.sleep(0.02)

    def pixels(self, canvas):
        self.wait_for_frame()
        url = self.browser.execute_script("return document.getElementById(arguments[0]).toDataURL()", canvas)
        picture = np.frombuffer(base64.b64decode(url.split(",")[1]), np.uint8)
        return cv2.cvtColor(cv2.imdecode(picture, cv2.IMREAD_UNCHANGED), cv2.COLOR_BGRA2RGBA)

    def errors(self):
        return [entry["message"] for entry in self.browser.get_log("browser")]


@pytest.fixture
def opened(browser, recordings):
    pages = []

    def open_page(name):
        pages.append(Page(browser, recordings[name][0]))
        return pages[0], recordings[name][1]

    yield open_page
    (page,) = pages
    assert page.errors() == [] and not page.find("failure").is_displayed()


def frame(recorded, step):
    part = np.split(recorded["frames"], recorded["frame_ends"][:-1])[step]
    return cv2.imdecode(part, cv2.IMREAD_COLOR)[..., ::-1]


def grouped(shares, about):
    """What the bars are about, and how long they are: positions are one bar, and so are the words of a mission."""
    positions = about["grid"]["rows"] * about["grid"]["columns"] if about["grid"] else 0
    names = ["all positions"] * positions + [re.sub(r" \d+$", "", name) for name in about["elements"][positions:]]
    bars = {}
    for name, share in zip([*names, "null"], shares, strict=True):
        bars[name] = bars.get(name, 0) + share
    return bars


@pytest.mark.browser
@pytest.mark.parametrize("name", ["Breakout", "PickupKnown", "Pendulum-v1", "Breakout, brims", "PickupKnown, cells"])
def test_every_step_shows_its_frame_its_numbers_and_its_rims(name, opened):
    page, recorded = opened(name)
    about = json.loads(str(recorded["about"]))
    for step in (0, 1, 2, STEPS - 1):
        page.press({1: "\ue014", 2: "\ue014", STEPS - 1: "\ue010"}.get(step, "\ue011"))  # →, End, Home
        assert page.step == step
        np.testing.assert_array_equal(page.pixels("game")[..., :3], frame(recorded, step))
        facts = page.find("facts").text
        assert f"{recorded['values'][step]:.2f}" in facts and f"{step} of {STEPS - 1}" in facts
        if about["action_names"]:
            assert about["action_names"][recorded["actions"][step]].lower() in facts
        happens = [name for name, there in zip(about["events"], recorded["events"][step], strict=True) if there]
        assert page.find("happens").text == ", ".join(name for name in happens if "in view" in name or "lost" in name)
        lit = ["active" in rim.get_attribute("class") for rim in page.browser.find_elements("class name", "rim")]
        assert lit == recorded["active"][step].tolist()
        for rim in range(3):
            page.press(str(rim))
            shares, heard = (
                np.round(recorded[part][step, rim] * 65535) / 65535  # a page has two bytes for each
                for part in ("input_attention", "communication")
            )
            for line, share in grouped(shares, about).items():
                assert f"{line}\n{100 * share:.1f} %" in page.find("attention").text
            text = page.find("heard").text
            if recorded["communication"][step, rim].any():
                assert ", ".join(f"{k}: {100 * share:.1f} %" for k, share in enumerate(heard)) in text
            else:
                assert text == f"RIM {rim} listens to nobody now."


@pytest.mark.browser
def test_dragging_moves_through_time(opened):
    page, recorded = opened("Breakout")
    width, gutter = page.find("timeline").size["width"], 74
    middle = gutter + (width - gutter - 8) * 20.5 / STEPS
    page.drag(gutter + 40, middle)
    assert page.step == 20
    np.testing.assert_array_equal(page.pixels("game")[..., :3], frame(recorded, 20))
    page.drag(middle, width + 50)
    assert page.step == STEPS - 1, "beyond the end is the end"


@pytest.mark.browser
def test_keys_step_play_and_choose(opened):
    page, _ = opened("PickupKnown")
    right, left, home, end, space = "\ue014", "\ue012", "\ue011", "\ue010", " "
    for keys, step in (((right, right, right), 3), ((left,), 2), ((home, left), 0), ((end,), STEPS - 1)):
        page.press(*keys)
        assert page.step == step
    page.press("2")
    assert page.find("attention-title").text == "Input attention of RIM 2"
    page.press("9")
    assert page.find("attention-title").text == "Input attention of RIM 2", "there is no RIM 9"
    page.press(home, space)
    until = time.monotonic() + 30
    while page.step < 5 and time.monotonic() < until:
        time.sleep(0.05)
    page.press(space)
    paused = page.step
    time.sleep(0.5)
    assert 5 <= paused == page.step and page.find("play").text == "Play"
    page.find("forward").click()
    page.press(space, space)  # it has the focus, and must not be pressed by the space bar
    assert page.step <= paused + 2


@pytest.mark.browser
def test_attention_to_positions_is_drawn_where_it_is(opened):
    page, recorded = opened("Breakout")
    about = json.loads(str(recorded["about"]))
    page.press("\ue010", "1")
    heat, grid = page.pixels("heat")[..., 3].astype(float), about["grid"]
    attention = recorded["input_attention"][-1, 1, :-1].reshape(7, 7)
    centres = [
        ((np.arange(7) * pitch + field / 2) * size).astype(int)
        for pitch, field, size in zip(grid["pitch"], grid["field"], heat.shape, strict=True)
    ]
    shown = heat[np.ix_(*centres)]
    dashed = np.unravel_index(attention.argmax(), (7, 7))  # its frame may run through centres of others
    far = np.abs(np.indices((7, 7)) - np.reshape(dashed, (2, 1, 1))).max(0) != 2
    most = max(recorded["input_attention"][..., :-1].max(), 4 / 49)
    np.testing.assert_allclose(shown[far], 255 * 0.85 * attention[far] / most, atol=4)
    assert heat[:10, :].max() == 0 or dashed[0] == 0, "no position is centred at the border"


@pytest.mark.browser
def test_light_and_dark_follow_the_system_until_switched(opened):
    page, _ = opened("PickupKnown")

    def prefer(scheme):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        time.sleep(0.2)

    def colours():
        return page.pixels("timeline").tobytes(), page.find("theme").value_of_css_property("background-color")

    def theme():
        return page.browser.execute_script("return document.documentElement.dataset.theme")

    prefer("light")
    light = colours()
    prefer("dark")
    assert theme() == "dark" and all(a != b for a, b in zip(colours(), light, strict=True))
    page.find("theme").click()
    assert theme() == "light" and colours() == light
    prefer("light")
    page.find("theme").click()
    prefer("light")
    assert theme() == "dark", "what was chosen stays"
    prefer("")
