from __future__ import annotations

import re

import pytest

from pinfold.serve.http.answers import prepare
from pinfold.serve.http.messages import HTTPError
from pinfold.serve.page import POLICY, Page

PAGE = Page()


def source(name: str) -> str:
    return (PAGE.response(("static", name)).content or b"").decode()


def scripts() -> list[str]:
    return sorted(name for name in PAGE.names if name.endswith(".js"))


def test_everything_the_page_names_is_there() -> None:
    index = source("index.html")
    named = set(re.findall(r'(?:href|src)="/static/([^"]+)"', index))
    imported = {name for script in scripts() for name in re.findall(r'from "\./([^"]+)"', source(script))}
    assert named | imported | {"index.html"} == PAGE.names
    assert imported | {"page.js", "theme.js"} == set(scripts())


def test_nothing_is_fetched_from_elsewhere() -> None:
    for name in PAGE.names:
        hosts = set(re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]+[^\s\"']*", source(name)))
        assert hosts <= {"http://www.w3.org/2000/svg"}, name


@pytest.mark.parametrize("name", scripts())
def test_script_makes_no_markup_of_text(name: str) -> None:
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc|\.onclick|setHTML"
    assert not re.findall(ways, source(name))


def test_page_has_no_script_or_style_of_its_own() -> None:
    index = source("index.html")
    assert not re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon[a-z]+=", index)


def test_every_file_brings_the_policy() -> None:
    for name in PAGE.names:
        answer = prepare(PAGE.response(("static", name)))
        headers = dict(line.split(": ", 1) for line in answer.head.decode().splitlines()[1:])
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-type"].split(";")[0] in {"text/html", "text/css", "text/javascript", "image/svg+xml"}


@pytest.mark.parametrize(
    "segments",
    [("static",), ("static", "none.js"), ("static", "..", "page.py"), ("static", "../page.py"), ("index.html",)],
)
def test_other_paths_are_not_served(segments: tuple[str, ...]) -> None:
    assert not PAGE.serves(segments)
    with pytest.raises(HTTPError) as caught:
        PAGE.response(segments)
    assert caught.value.status == 404
