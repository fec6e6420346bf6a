"""The pages name files, modules, code and commands that exist, and quote what these print."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.cli.main import VERBS, main

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src/pinfold"
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("changes/*.md"), *ROOT.glob("tests/lab/*.md")]
)
STATE_FILES = {"claim.json", "workloads.json"}
"""Files of a state directory."""
_BUILT = {"build", "dist"}
"""Folders that `make` fills, so what is in them differs from one checkout to the next."""
_FOUND = {found.parent.name for place in (ROOT, SOURCE) for found in place.glob("[a-z]*/*")}
FOLDERS = "|".join([r"\.ci", *sorted(_FOUND - _BUILT)])
_PATH = re.compile(rf"(?<![\w/.~$-])((?:{FOLDERS})/[\w./{{}},-]*)")
_BARE = re.compile(r"`([\w-]+\.(?:py|js|md|json|sh))`")
_BRACES = re.compile(r"(.*)\{(.*)\}(.*)")
_OUTSIDE = re.compile(r"\]\((http[^)]*)\)")
_ADDRESS = re.compile(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+(/[\w./%#~+-]*)?")
_LINK = re.compile(r"\]\((?!http)([^)#]*)(?:#([^)]+))?\)")
_MODULE = re.compile(rf"python -m ([\w.]+)|\b(pinfold\.(?:{FOLDERS})[\w.]*)")
_CODE = re.compile(r"`([\w/]+\.py)` `(\w+)(?:\.(\w+))?`")
_SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)
_QUOTED = re.compile(r"```sh\n(pinfold [^\n]+)\n```\n\n```\n(.*?)(?:…\n)?```", re.DOTALL)
_COMMAND = re.compile(r"(?:\.venv/bin/)?(pinfold|make) [a-z][^`]*")

page = pytest.mark.parametrize("page", PAGES, ids=[str(found.relative_to(ROOT)) for found in PAGES])


def paths(text: str) -> Iterator[str]:
    """Yield the paths in a text; `a/{b,c}` is two."""
    for found in _PATH.findall(text):
        path = found.rstrip(".,")
        braces = _BRACES.fullmatch(path)
        yield from (f"{braces[1]}{part}{braces[3]}" for part in braces[2].split(",")) if braces else [path]


def exists(path: str, *places: Path) -> bool:
    """Return whether a path exists below one of these places; NAME stands for a name of your own."""
    return "NAME" in path or any((place / path).exists() for place in places)


def commands(text: str) -> Iterator[list[str]]:
    """Yield the commands `pinfold` and `make` in a page, in words, without pipes and comments."""
    spans = re.findall(r"`([^`\n]+)`", _SHELL.sub("", text))
    lines = [line for block in _SHELL.findall(text) for line in block.replace("\\\n", "").splitlines()]
    for span in (*spans, *lines):
        if _COMMAND.fullmatch(span):
            words = shlex.split(span, comments=True)
            yield list(takewhile(lambda word: word not in ("|", "&", ">", "--"), words))


@page
def test_every_link_to_another_site_has_the_form_of_an_address(page: Path) -> None:
    assert not [link for link in _OUTSIDE.findall(page.read_text()) if not _ADDRESS.fullmatch(link)]


@page
def test_every_path_exists(page: Path) -> None:
    text = page.read_text()
    named = set(paths(text))
    below = [place / path for path in named for place in (ROOT, SOURCE)]
    folders = {*below, *(path.parent for path in below)}
    missing = {path for path in named if not exists(path, ROOT, SOURCE, page.parent)}
    missing |= {name for name in _BARE.findall(text) if not exists(name, ROOT, page.parent, *folders)}
    assert not missing - STATE_FILES


@page
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    for link, heading in _LINK.findall(page.read_text()):
        target = page.parent / link if link else page
        assert target.exists(), link
        if heading:
            headings = re.findall(r"^#+ (.*)", target.read_text(), re.MULTILINE)
            assert heading in [re.sub(r"[^\w -]", "", found.lower()).replace(" ", "-") for found in headings]


@page
def test_every_module_exists(page: Path) -> None:
    named = {(run or module).rstrip(".") for run, module in _MODULE.findall(page.read_text())}
    assert not {name for name in named if find_spec(name) is None}


@page
def test_every_class_and_function_beside_a_file_is_in_that_file(page: Path) -> None:
    for path, *names in _CODE.findall(page.read_text()):
        text = (SOURCE / path).read_text()
        assert not [name for name in names if name and not re.search(rf"(class|def) {name}\b", text)], path


@page
def test_every_command_and_option_exists(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for program, what, *words in commands(page.read_text()):
        if program == "make":
            assert what in targets
            continue
        assert what in VERBS
        assert main([what, "--help"]) == 0
        if words and words[0].isalpha():  # it may be an action with options of its own
            main([what, words[0], "--help"])
        help_text = capsys.readouterr().out
        flags = [word.partition("=")[0] for word in words if word.startswith("--")]
        assert not [flag for flag in flags if not re.search(rf"{flag}\b", help_text)], what


def test_every_test_that_the_pages_on_security_name_exists() -> None:
    defined = {name for path in ROOT.glob("tests/**/*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}
    for page in ("SECURITY.md", "docs/reference/entry-points.md"):
        named = set(re.findall(r"`(test_\w+)`", (ROOT / page).read_text()))
        assert named
        assert named <= defined


@pytest.mark.parametrize(
    "page", ["docs/how-to/plan.md", pytest.param("docs/how-to/fleet.md", marks=pytest.mark.slow)], ids=["plan", "fleet"]
)
def test_a_command_prints_what_its_page_quotes(
    page: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    ((command, quoted),) = _QUOTED.findall((ROOT / page).read_text())
    main(shlex.split(command)[1:])
    assert capsys.readouterr().out.startswith(quoted)
