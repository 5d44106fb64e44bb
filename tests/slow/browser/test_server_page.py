"""The page to try the judge in a real browser: what it asks and shows, and keeps when a call fails."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from threading import Event
from typing import Any

import pytest
from served import serving
from servers import Answer, Call, ScriptedServer

from empathy_judge.data.records import LABELS, Exchange
from empathy_judge.judge.base import load_judge
from empathy_judge.server.app import page_html

PHONE, SMALL, DESK = 375, 320, 1180
NASTY = (
    "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'>"
    "\"'`${1}&amp;\u202eabc \U0001f600 \u05e9\u05dc\u05d5\u05dd"
)


def judgment(name: str, **changes: Any) -> dict[str, Any]:
    """A judgment as the server gives it; its parts are what the reply is made of."""
    said = {
        "id": name,
        "label": "Good",
        "probabilities": {"Bad": 0.1, "Okay": 0.34, "Good": 0.56},
        "score": 2.46,
        "rationale": None,
        "unscored": None,
        "parts": [
            {"text": "I am so sorry. ", "effect": 0.304},
            {"text": "Cheer up! ", "effect": -0.25},
            {"text": "Well. ", "effect": 0.001},
            {"text": "How long was he with you?", "effect": None},
        ],
    }
    return said | changes


def answer(*judgments: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "judge": {"name": "classifier", "version": "c3487a7435c5ffff"},
        "calibration": "ec477460e182ffff",
        "note": "calibration ec477460e182 fits: 8,000 ratings",
        "caveats": ["Nobody measured humour or verse."],
        "judgments": list(judgments or [judgment("a")]),
    } | changes


def replied(body: Any = None, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(body=answer() if body is None else body, status=status, headers=named)


class Served(ScriptedServer):
    """The page and a scripted `/v1/score` behind one address; `hold` keeps answers back until it is set."""

    def __init__(self) -> None:
        super().__init__(self.reply)
        self.replies: list[Answer] = []
        self.asked: list[Call] = []
        self.hold = Event()
        self.url = self.base_url.removesuffix("v1")

    def reply(self, call: Call) -> Answer:
        if call.method == "GET":
            is_page = call.path == "/"
            headers = {"Content-Type": "text/html; charset=utf-8"}
            return Answer(body=page_html("c2VjcmV0"), headers=headers) if is_page else Answer(status=404)
        assert call.path == "/v1/score"
        self.asked.append(call)
        assert self.hold.wait(20)
        return self.replies.pop(0)


@pytest.fixture
def served() -> Iterator[Served]:
    with Served() as server:
        server.hold.set()
        yield server
        server.hold.set()


@pytest.fixture
def visit(open_tab: Callable[..., Any], served: Served) -> Callable[..., Any]:
    return partial(open_tab, served.url)


def judge(page: Any, *, prompt: str = "My dog died.", reply: str = "I am so sorry.", other: str = "") -> Any:
    """Type an exchange and judge it from the keyboard, as far as the result."""
    page.fill("#prompt", prompt)
    page.fill("#reply-a", reply)
    if other:
        page.click("#compare")
        page.fill("#reply-b", other)
    page.keyboard.press("Control+Enter")
    result = page.locator("#result")
    result.wait_for(state="visible")
    return result


def test_a_reply_is_judged_from_the_keyboard_and_everything_said(visit: Any, served: Served) -> None:
    served.replies = [replied()]
    page = visit()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.keyboard.type("My dog died.")
    for _ in range(2):
        page.keyboard.press("Tab")
    page.keyboard.type("I am so sorry.")
    page.keyboard.press("Control+Enter")
    page.locator("#result").wait_for(state="visible")
    assert page.evaluate("document.activeElement.id") == "result"
    text = page.locator("#result").inner_text().replace("\N{NO-BREAK SPACE}", "")
    shown = ("Good", "2.46", "10.0%", "34.0%", "56.0%", "8,000 ratings", "Nobody measured humour or verse.")
    assert all(item in text for item in shown)
    exchange = {"id": "a", "prompt": "My dog died.", "response": "I am so sorry."}
    assert served.asked[0].body == {"exchanges": [exchange], "explain": True}
    assert "authorization" not in served.asked[0].headers


def test_parts_show_their_effect_and_are_reached_by_arrow_keys(visit: Any, served: Served) -> None:
    served.replies = [replied()]
    page = visit()
    judge(page)
    marks = page.locator("mark")
    assert marks.evaluate_all("all => all.map(item => item.className)") == ["raised", "lowered", "", ""]
    effects = page.locator("mark .effect").all_text_contents()
    shown = [re.sub(r"[^-\N{MINUS SIGN}.\d]", "", text) for text in effects]
    assert shown == ["0.30", "\N{MINUS SIGN}0.25", "0.00", ""]
    heard = page.locator("mark .unseen").all_text_contents()
    assert "2.16" in heard[0] and "2.71" in heard[1]
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "MARK"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert "0.25" in page.locator(".effect-line").inner_text()
    marks.nth(0).hover()
    assert "0.30" in page.locator(".effect-line").inner_text()


def test_two_replies_stand_side_by_side_with_a_word_on_the_pair(visit: Any, served: Served) -> None:
    worse = judgment("b", label="Okay", score=1.95)
    same = judgment("b")
    lost = judgment("b", label=None, probabilities=None, score=None, unscored="refused to answer", parts=[])
    served.replies = [replied(answer(judgment("a"), other)) for other in (worse, same, lost)]
    page = visit()
    result = judge(page, other="Get over it.")
    asked = [item["response"] for item in served.asked[0].body["exchanges"]]
    assert asked == ["I am so sorry.", "Get over it."]
    assert "Reply A scores higher, 2.46 vs. 1.95." in result.inner_text()
    for said in ("Both replies score 2.46.", "no score"):
        page.keyboard.press("Control+Enter")
        page.locator(".winner", has_text=said).wait_for()
    assert "refused to answer" in result.inner_text()
    page.click("#compare")
    assert page.locator("#reply-b").is_hidden() and page.input_value("#reply-b") == "Get over it."
    assert page.locator(".changed").is_visible()


def test_no_text_becomes_markup_or_breaks_the_page(visit: Any, served: Served) -> None:
    long = NASTY + "x" * (50_000 - len(NASTY))
    parts = [{"text": long, "effect": 0.2}, {"text": NASTY, "effect": -0.2}]
    nasty = judgment("a", parts=parts, rationale=NASTY, flag=NASTY)
    names = {"name": NASTY, "version": NASTY}
    served.replies = [
        replied(answer(nasty, note=NASTY, caveats=[NASTY], judge=names)),
        replied({"error": {"message": long}}, 422),
    ]
    page = visit(width=PHONE)
    judge(page, prompt=NASTY, reply=long)
    sent = served.asked[0].body["exchanges"][0]
    assert (sent["prompt"], sent["response"]) == (NASTY, long)
    assert 0 <= page.evaluate("document.querySelector('#result').getBoundingClientRect().top") < 40
    assert page.locator("mark bdi").all_text_contents() == [long, NASTY]
    assert page.locator("#result :is(script, img)").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE
    page.keyboard.press("Control+Enter")
    page.locator(".problem").wait_for()
    assert long in page.locator(".problem").text_content()
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE
    assert page.evaluate("window.hit") is None
    assert page.input_value("#prompt") == NASTY


FAILURES = (
    (replied({"error": {"message": "queue is full"}}, 503, Retry_After="7"), "Try again in 7 seconds"),
    (replied({"error": {"message": "queue is full"}}, 503), "Try again in a moment"),
    (replied({"error": {"message": "response: too long"}}, 422), "response: too long"),
    (replied("<html>", 502), "status 502"),
    (replied({}), "cannot read the server"),
    (replied(answer(judgment("a", probabilities=None))), "cannot show the server"),
    (replied("", 302, Location="http://127.0.0.1:1/"), "did not answer"),
)


def test_a_failed_call_says_so_and_keeps_what_was_typed(visit: Any, served: Served) -> None:
    page = visit()
    for reply, said in FAILURES:
        served.replies = [replied(), reply]
        judge(page, prompt="My dog died.")
        assert page.locator("#problem").inner_text() == ""
        page.keyboard.press("Control+Enter")
        page.locator("#problem", has_text=said).wait_for()
        assert page.locator("#result").is_hidden()
        assert page.input_value("#prompt") == "My dog died."
        assert page.input_value("#reply-a") == "I am so sorry."


def test_a_key_is_allowed_sent_and_kept_nowhere(visit: Any, served: Served) -> None:
    wrong = replied({"error": {"message": "wrong key"}}, 401)
    served.replies, page = [wrong, wrong, replied()], visit()
    assert page.locator("#key").is_hidden()
    page.fill("#prompt", "My dog died.")
    page.fill("#reply-a", "I am so sorry.")
    page.click("#judge")
    page.locator(".problem", has_text="needs a key").wait_for()
    assert page.evaluate("document.activeElement.id") == "key"
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    page.locator(".problem", has_text="not accepted").wait_for()
    page.fill("#key", "\u043a\u043b\u044e\u0447")
    page.keyboard.press("Enter")
    page.locator(".problem", has_text="not accepted").wait_for()
    page.fill("#key", "open sesame")
    judge(page)
    assert [call.headers.get("authorization") for call in served.asked] == [
        *(None, "Bearer wrong", "Bearer open sesame")
    ]
    kept = page.evaluate("[localStorage.length, sessionStorage.length, document.cookie, location.href]")
    assert kept == [0, 0, "", served.url]
    page.reload()
    assert page.input_value("#key") == ""


def test_an_empty_field_is_named_and_nothing_is_asked(visit: Any, served: Served) -> None:
    page = visit()
    page.click("#judge")
    assert "What the person said" in page.locator("#problem").inner_text()
    page.fill("#prompt", "My dog died.")
    page.fill("#reply-a", " \n ")
    page.click("#judge")
    assert "Reply" in page.locator("#problem").inner_text()
    assert page.evaluate("document.activeElement.id") == "reply-a"
    assert page.get_attribute("#reply-a", "aria-invalid") == "true"
    assert served.asked == []


@pytest.mark.parametrize(("width", "scheme"), [(DESK, "light"), (PHONE, "dark"), (SMALL, "dark")])
def test_the_page_is_readable(
    visit: Any, served: Served, width: int, scheme: str, assert_readable: Callable[..., None]
) -> None:
    lost = judgment("b", label=None, probabilities=None, score=None, unscored="refused", parts=[])
    served.replies = [
        replied(answer(judgment("a", flag="suicide", rationale="It reads warm."), judgment("b"))),
        replied(answer(judgment("a"), lost)),
        replied({"error": {"message": "wrong key"}}, 401),
    ]
    page = visit(width=width, scheme=scheme)
    page.click("#example")
    for shown in (".flag", ".label.none", ".problem"):
        page.keyboard.press("Control+Enter")
        page.locator(shown).first.wait_for()
        assert_readable(page)


def test_the_real_server_judges_the_example_as_score_does(open_tab: Callable[..., Any]) -> None:
    """With the key; every figure is the judge's own."""
    with serving(load_judge("classifier"), key="sesame") as url:
        page = open_tab(f"{url}/")
        page.click("#example")
        page.keyboard.press("Control+Enter")
        page.locator(".problem", has_text="needs a key").wait_for()
        page.keyboard.type("sesame")
        page.keyboard.press("Enter")
        page.locator("#result").wait_for(state="visible")
    about = {name: page.input_value(f"#{name}") for name in ("prompt", "emotion", "situation")}
    for place, name in enumerate("ab"):
        exchange = Exchange(id=name, response=page.input_value(f"#reply-{name}"), **about)
        said = load_judge("classifier").judge(exchange)
        card = page.locator(".card").nth(place)
        shown = [float(text.rstrip("%")) for text in card.locator("dd.figure").all_text_contents()]
        assert card.locator(".label").inner_text() == said.label
        assert shown == pytest.approx([100 * said.probabilities[label] for label in LABELS], abs=0.051)
        parts = "".join(card.locator("mark bdi").all_text_contents())
        assert "".join(parts.split()) == "".join(exchange.response.split())
