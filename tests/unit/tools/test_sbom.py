"""The bill of materials: every package that pinfold needs, and no test tool."""

from __future__ import annotations

import json

from tests.unit.tools.tool import run


def test_it_lists_what_the_daemon_needs_and_no_tools() -> None:
    done = run("sbom")
    assert done.returncode == 0, done.stderr
    bill = json.loads(done.stdout)
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "pinfold")
    names = {one["name"] for one in bill["components"]}
    assert names == {"h11", "h2", "hpack", "hyperframe", "protobuf", "pyyaml"}
    refs = {one["ref"] for one in bill["dependencies"]}
    assert {ref for one in bill["dependencies"] for ref in one["dependsOn"]} <= refs
    assert all(one["licenses"] for one in bill["components"])


def test_the_same_packages_give_the_same_text() -> None:
    assert run("sbom").stdout == run("sbom").stdout
