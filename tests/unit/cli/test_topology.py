import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pinfold.cli.main import VERBS, main
from pinfold.core.machine.presets import preset
from pinfold.formats.machine.lscpu import format_lscpu
from pinfold.formats.machine.topologyjson import format_topology_json, parse_topology_json

PINFOLD = [sys.executable, "-m", "pinfold"]
EPYC = ["topology", "--preset", "epyc-7303-2s"]
PLAIN = {
    name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR", "TERM", "PYTHONUNBUFFERED"}
}
CADVISOR = """{"num_cores": 2, "num_sockets": 1, "topology": [{"node_id": 0, "cores": [
  {"core_id": 0, "thread_ids": [0, 1], "socket_id": 0}]}]}"""


def pinfold(*args: str, stdin: str | bytes = "", **environment: str) -> tuple[int, str, str]:
    """Run the command as a user would, in a pipe; return exit code, stdout and stderr."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run([*PINFOLD, *args], input=data, capture_output=True, env=PLAIN | environment, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def on_terminal(*args: str, **environment: str) -> str:
    """Return what the command prints on a terminal."""
    ours, theirs = pty.openpty()
    done = subprocess.Popen([*PINFOLD, *args], stdout=theirs, env=PLAIN | environment)
    os.close(theirs)
    output = b""
    while chunk := read_or_nothing(ours):
        output += chunk
    os.close(ours)
    assert done.wait() == 0
    return output.decode().replace("\r\n", "\n")


def read_or_nothing(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other side is closed
        return b""


def test_alone_it_prints_help() -> None:
    code, output, _ = pinfold()
    assert code == 0
    assert all(verb in output for verb in VERBS)


def test_version_is_told() -> None:
    code, output, _ = pinfold("--version")
    assert code == 0
    assert re.fullmatch(r"pinfold \d+\.\d+\.\d+\n", output)


def test_version_needs_no_verb_imported() -> None:
    script = "import sys; from pinfold.cli.main import main; main(['--version']); print([*sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pinfold.cli.main" in done.stdout
    assert "pinfold.cli.topology" not in done.stdout


def test_this_host_is_shown_by_default() -> None:
    code, output, _ = pinfold("topology")
    assert code == 0
    assert re.search(r"\d+ CPUs?\b", output.splitlines()[0])


def test_piped_map_is_80_columns_wide_and_plain() -> None:
    code, output, errors = pinfold(*EPYC)
    assert (code, errors) == (0, "")
    assert "\x1b" not in output
    assert max(map(len, output.splitlines())) == 75


@pytest.mark.parametrize(("columns", "widest"), [("1", 39), ("40", 39), ("60", 58), ("120", 95), ("200", 143)])
def test_columns_are_respected_from_40_on(columns: str, widest: int) -> None:
    _, output, _ = pinfold(*EPYC, COLUMNS=columns)
    assert max(map(len, output.splitlines())) == widest


def test_terminal_has_colours() -> None:
    output = on_terminal(*EPYC, TERM="xterm", COLUMNS="80")
    assert "\x1b[34m╭─ Socket 0" in output
    assert re.sub("\x1b\\[[0-9;]*m", "", output) == pinfold(*EPYC)[1]


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}], ids=str)
def test_terminal_without_colours_gets_none(environment: dict[str, str]) -> None:
    assert "\x1b" not in on_terminal(*EPYC, **environment)


def test_empty_no_color_is_no_wish() -> None:
    assert "\x1b" in on_terminal(*EPYC, NO_COLOR="", TERM="xterm")


def test_boxes_are_ascii_where_the_encoding_has_no_others() -> None:
    _, output, _ = pinfold(*EPYC, PYTHONIOENCODING="ascii")
    assert output.startswith("2 sockets, 2 NUMA nodes, 8 L3, 32 cores, 64 CPUs, SMT2\n\n+- Socket 0, NUMA 0 -")


@pytest.mark.parametrize("output", ["map", "table", "json", "svg", "lscpu"])
def test_every_output_goes_through_ascii_pipes(output: str) -> None:
    code, text, errors = pinfold(*EPYC, "-o", output, PYTHONIOENCODING="ascii")
    assert (code, errors) == (0, "")
    assert text.isascii()


def test_table_has_a_row_for_each_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*EPYC, "-o", "table"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["CPU", "CORE", "SOCKET", "NUMA", "L3", "STATE"]
    assert lines[-1].split() == ["63", "31", "1", "1", "7", "online"]
    assert len(lines) == 65
    assert len({line.index(line.split()[-1]) for line in lines}) == 1


def test_table_tells_states_and_unknowns(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cpus = [{"cpu": cpu, "core": None, "socket": 0, "numa": None, "uncore": None} for cpu in (0, 1)]
    file = tmp_path / "machine.json"
    file.write_text(json.dumps({"cpus": cpus, "offline": "2", "isolated": "1-2"}))
    assert main(["topology", "--from", str(file), "-o", "table"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [
        ["0", "-", "0", "-", "-", "online"],
        ["1", "-", "0", "-", "-", "isolated"],
        ["2", "-", "-", "-", "-", "offline"],
    ]


def test_json_can_be_given_back() -> None:
    _, text, _ = pinfold("topology", "--preset", "gb200", "-o", "json")
    code, again, errors = pinfold("topology", "--from", "-", "-o", "json", stdin=text)
    assert (code, again, errors) == (0, text, "")
    assert parse_topology_json(text) == preset("gb200")


def test_lscpu_text_can_be_given_back() -> None:
    _, text, _ = pinfold(*EPYC, "-o", "lscpu")
    assert text == format_lscpu(preset("epyc-7303-2s"))
    code, again, _ = pinfold("topology", "--from", "-", "-o", "table", stdin=text)
    assert (code, again) == (0, pinfold(*EPYC, "-o", "table")[1])


def test_svg_is_titled_with_the_machine(tmp_path: Path) -> None:
    file = tmp_path / "rack-7.json"
    file.write_text(format_topology_json(preset("cores:2")))
    assert "<title>epyc-7303-2s: 2 sockets" in pinfold(*EPYC, "-o", "svg")[1]
    assert "<title>rack-7.json: 1 socket" in pinfold("topology", "--from", str(file), "-o", "svg")[1]


def test_picture_of_the_readme_is_what_the_command_draws() -> None:
    picture = Path(__file__).parents[3] / "docs/images/epyc-7303-2s.svg"
    assert picture.read_text(encoding="ascii") == pinfold(*EPYC, "-o", "svg")[1]


def sysfs(root: Path) -> None:
    for name, text in {"cpu/online": "0-1", "cpu/present": "0-2", "cpu/isolated": "1"}.items():
        path = root / "sys/devices/system" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_sysroot_is_read(tmp_path: Path) -> None:
    sysfs(tmp_path)
    code, output, _ = pinfold("topology", "--sysroot", str(tmp_path))
    assert code == 0
    assert "cores unknown · 2 CPUs, 1 offline, 1 isolated" in output.replace("\n", " ")
    assert "0  1!" in re.sub(r" +", "  ", output)


def test_cadvisor_can_be_seen_as_the_kubelet_does() -> None:
    args = ("topology", "--from", "-", "-o", "table")
    assert pinfold(*args, stdin=CADVISOR)[1].splitlines()[1].split()[4] == "-"
    assert pinfold(*args, "--as", "kubelet", stdin=CADVISOR)[1].splitlines()[1].split()[4] == "0"


def test_preset_as_the_kubelet_sees_it_has_no_unknowns() -> None:
    code, output, _ = pinfold("topology", "--preset", "sockets:2,numa:1,l3:0,cores:2", "--as", "kubelet", "-o", "table")
    assert code == 0
    assert [line.split()[4] for line in output.splitlines()[1:]] == ["0", "0", "1", "1"]


def one_error(result: tuple[int, str, str]) -> str:
    """Return the text of the one error that a failed command must have printed."""
    code, output, errors = result
    assert (code, output) == (2, "")
    assert errors.startswith("pinfold: error: ")
    assert errors.count("\n") == 1
    return errors.removeprefix("pinfold: error: ").rstrip("\n")


def test_missing_file_is_one_line() -> None:
    assert one_error(pinfold("topology", "--from", "/no/such")) == "/no/such: No such file or directory"


def test_unprintable_names_stay_on_one_line() -> None:
    assert one_error(pinfold("topology", "--from", "/no\n/such")).startswith("/no\\n/such: ")


def test_directory_is_sent_to_sysroot(tmp_path: Path) -> None:
    assert one_error(pinfold("topology", "--from", str(tmp_path))).endswith("has sys/ in it use --sysroot")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x1f\x8b\x08\x00", "is compressed; unpack it, then use --sysroot"),
        (b"\x7fELF\x02\x01\x01\xff", "is not text (byte 8 is not UTF-8)"),
        (b"0,0\x00,0,0", "is not text (it has NUL bytes)"),
        (b"", "no CPUs found; expected the output of lscpu"),
        (b"hello", "is not a description of a machine; expected hwloc XML"),
        (b"<topology", "line 1: not XML"),
        (b"{", "line 1, column 2: not JSON"),
        (b'{"lscpu": []}', "lscpu's JSON leaves out too much"),
        (b" " * ((64 << 20) + 1), "is larger than 64 MiB"),
    ],
    ids=["tar.gz", "program", "NUL", "empty", "words", "half XML", "half JSON", "lscpu -J", "too large"],
)
def test_unusable_content_is_one_line(
    data: bytes, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "machine"
    file.write_bytes(data)
    code = main(["topology", "--from", str(file)])
    assert one_error((code, *capsys.readouterr())).startswith(f"{file}: {problem}")


def test_errors_call_standard_input_by_its_name() -> None:
    assert one_error(pinfold("topology", "--from", "-", stdin="hello")).startswith("stdin: is not a")


def test_kubelet_view_of_lscpu_text_is_refused() -> None:
    text = format_lscpu(preset("cores:2"))
    problem = one_error(pinfold("topology", "--from", "-", "--as", "kubelet", stdin=text))
    assert problem == "stdin: a kubelet's view needs cAdvisor JSON, not lscpu text"


def test_unknown_preset_names_others() -> None:
    assert "epyc-7303-2s" in one_error(pinfold("topology", "--preset", "epyc-7303"))


def test_sysroot_without_sys_says_what_was_expected(tmp_path: Path) -> None:
    assert "expected the root directory" in one_error(pinfold("topology", "--sysroot", str(tmp_path)))


@pytest.mark.parametrize(
    "args",
    [["nope"], ["topology", "-o", "png"], ["topology", "--preset", "x", "--from", "y"], ["topology", "--pre", "x"]],
    ids=" ".join,
)
def test_wrong_call_exits_with_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    assert "error: " in capsys.readouterr().err


def warned(number: int) -> str:
    return format_topology_json(preset("cores:1")).replace(
        '"warnings": []', f'"warnings": {json.dumps([f"oddity {i}" for i in range(number)])}'
    )


@pytest.mark.parametrize("output", ["map", "table"])
def test_warnings_go_to_stderr(output: str) -> None:
    code, _, errors = pinfold("topology", "--from", "-", "-o", output, stdin=warned(2))
    assert (code, errors) == (0, "pinfold: warning: oddity 0\npinfold: warning: oddity 1\n")


def test_more_than_ten_warnings_are_counted() -> None:
    _, _, errors = pinfold("topology", "--from", "-", stdin=warned(13))
    assert errors.splitlines()[9:] == ["pinfold: warning: oddity 9", "pinfold: warning: and 3 more; see -o json"]


def test_json_carries_its_warnings_itself() -> None:
    _, output, errors = pinfold("topology", "--from", "-", "-o", "json", stdin=warned(13))
    assert len(json.loads(output)["warnings"]) == 13
    assert errors == ""


def test_reader_that_goes_away_is_no_error() -> None:
    command = [*PINFOLD, "topology", "--preset", "cores:9999", "-o", "table"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=PLAIN) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*PINFOLD, *EPYC], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "pinfold: error: No space left on device\n")


def test_closed_stdout_is_no_error() -> None:
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *PINFOLD, *EPYC], stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_is_quiet(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = [*PINFOLD, "topology", "--from", str(fifo)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        with fifo.open("wb"):  # opens once the command reads
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate()
        assert (process.returncode, output, errors) == (130, b"", b"")
