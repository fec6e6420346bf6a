"""Bad input to daemon and command line: one line that says what is wrong, an exit code, and nothing half-applied."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from pinfold.cli.main import RUN_FAILED
from pinfold.errors import PinfoldError
from tests.e2e.daemon import (
    ONLINE,
    RESERVED,
    SPARE,
    Daemon,
    allowed,
    assert_no_traceback,
    best_kind,
    needs_two_cpus,
    pod,
    process_of,
    wait_for,
)
from tests.needs import needs_root

pytestmark = [needs_two_cpus]

NOBODY = 65534
HOSTILE = [
    "../../escape",
    "..",
    "/etc/passwd",
    "UPPER",
    "a b",
    "a\nb",
    "a/b",
    "ä",
    "a" * 64,
    "-x",
    "x-",
    ".x",
    "cgroup.procs\0",
    "\ud800",
]
WRONG: list[object] = [None, True, 1.5, -1, 1 << 70, "", "x", [], [1], {}, {"a": 1}]
GOOD: dict[str, dict[str, object]] = {
    "/v1/pods": {"files": [{"text": pod("x"), "source": "test"}]},
    "/v1/run": {"name": "x", "milli": 1000, "shared": False},
    "/v1/adopt": {"name": "x", "milli": 1000, "shared": False, "pid": 0},
    "/v1/run/run-x/attach": {"pid": 0},
}
OUTSIDE = str(max(ONLINE) + 1000)


def one_line(error: str) -> str:
    """Return the only line of an error, without the words that begin every one."""
    lines = error.splitlines()
    assert len(lines) == 1, error
    assert lines[0].startswith("pinfold: error: "), error
    return lines[0].removeprefix("pinfold: error: ")


def raw(daemon: Daemon, data: bytes, *, within: float = 20) -> bytes:
    """Send bytes to the control socket and return all that comes back."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(within)
        sock.connect(str(daemon.socket))
        sender = threading.Thread(target=_send, args=[sock, data])
        sender.start()
        received = b""
        try:
            while chunk := sock.recv(65536):
                received += chunk
        except ConnectionError:
            pass
        sender.join()
    return received


def _send(sock: socket.socket, data: bytes) -> None:
    try:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        return


def post(path: str, body: object) -> bytes:
    data = json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (
        path.encode(),
        len(data),
        data,
    )


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


# -- pinfold serve


@pytest.mark.parametrize(
    ("options", "problem", "allowed_values"),
    [
        (["--policy", "statik"], "statik", ["none", "static"]),
        (["--policy-options", "full-pcpus=true"], "full-pcpus", ["full-pcpus-only"]),
        (["--policy-options", "full-pcpus-only=maybe"], "maybe", ["true", "false"]),
        (["--reserved-cpus", OUTSIDE], OUTSIDE, [str(ONLINE)]),
        (["--reserved-cpus", "0-"], "0-", []),
        (["--cpu-manager-reconcile-period", "soon"], "soon", []),
        (["--cpu-manager-reconcile-period", "1ms"], "1ms", ["10ms"]),
        (["--groups", "docker"], "docker", ["cgroup-v1", "cgroup-v2", "affinity"]),
        (["--runtime", "docker"], "docker", ["processes", "simulated"]),
        (["--groups", "affinity", "--local-memory"], "--local-memory needs cgroups", []),
        (["--group-name", "../x"], "cannot be the name of a group", ["letters"]),
        (["--config", "/no/such/file"], "/no/such/file", []),
        (["--state-dir", ""], "--state-dir", []),
        (["--socket", "/run/" + "x" * 110], "107", []),
    ],
    ids=lambda value: value[0] + " " + value[1][:12] if isinstance(value, list) and len(value) == 2 else "",
)
def test_a_wrong_setting_is_named_with_what_is_allowed(
    daemon: Daemon, options: list[str], problem: str, allowed_values: list[str]
) -> None:
    result = daemon.try_to_start(*options)
    said = one_line(result.stderr)
    assert (result.returncode, result.stdout) == (2, "")
    assert problem in said
    assert all(value in said for value in allowed_values)
    assert daemon.place.groups() == set()
    assert not daemon.socket.exists()
    assert not (daemon.state_dir / "cpu_manager_state").exists()


def test_all_wrong_settings_are_named_at_once(daemon: Daemon) -> None:
    lines = daemon.try_to_start("--policy", "statik", "--groups", "docker").stderr.splitlines()
    assert [line.partition(" is unknown")[0] for line in lines] == [
        'pinfold: error: --policy: "statik"',
        'pinfold: error: --groups: "docker"',
    ]


@pytest.mark.parametrize(
    "same",
    [
        "state directory",
        "socket",
        "groups",
    ],
)
def test_a_second_daemon_is_refused_and_changes_nothing(daemon: Daemon, same: str) -> None:
    if same != "state directory" and best_kind() == "affinity":
        pytest.skip("affinity has no groups that two could share")
    daemon.start()
    run = daemon.run("owner", "sleep", "1000", options=["--cpus", str(SPARE)])
    before = (daemon.state(), daemon.containers(), daemon.place.groups())
    elsewhere = daemon.place.directory / "elsewhere"
    options = {"--state-dir": str(elsewhere), "--socket": str(elsewhere / "s.sock"), "--group-name": daemon.place.name}
    options |= {
        "state directory": {"--state-dir": str(daemon.state_dir)},
        "socket": {"--socket": str(daemon.socket)},
        "groups": {},
    }[same]
    arguments = [word for option in options.items() for word in option]
    second = subprocess.Popen(
        [*daemon.arguments, *arguments],
        env=daemon.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert second.stdout is not None
    ready = second.stdout.readline()
    if ready:
        second.kill()
    _, error = second.communicate(timeout=30)
    assert ready == ""
    assert second.returncode == 5
    assert "daemon" in one_line(error)
    if best_kind() != "affinity":
        assert daemon.place.cpuset("shared").read_text().strip() == str(RESERVED)
    assert (daemon.state(), daemon.containers(), daemon.place.groups()) == before
    daemon.check()
    run.terminate()
    run.wait()
    daemon.idle()


def test_a_socket_that_a_dead_daemon_has_left_is_replaced(daemon: Daemon) -> None:
    daemon.start()
    daemon.kill()
    assert daemon.socket.is_socket()
    daemon.start()
    daemon.check()


def test_a_file_in_the_place_of_the_socket_is_left_alone(daemon: Daemon) -> None:
    daemon.socket.write_text("mine")
    result = daemon.try_to_start()
    assert result.returncode == 2
    assert str(daemon.socket) in one_line(result.stderr)
    assert daemon.socket.read_text() == "mine"
    assert daemon.place.groups() == set()


@pytest.mark.parametrize("what", ["a file", "no permission"])
def test_a_state_directory_that_cannot_be_written_is_named(daemon: Daemon, what: str) -> None:
    if what == "a file":
        daemon.state_dir.write_text("mine")
    else:
        daemon.state_dir = Path("/proc/pinfold")
        daemon.where = ["--state-dir", str(daemon.state_dir), "--socket", str(daemon.socket)]
    result = daemon.try_to_start()
    assert result.returncode == 2
    assert str(daemon.state_dir) in one_line(result.stderr)
    assert daemon.place.groups() == set()


def test_an_empty_lock_is_no_hindrance(daemon: Daemon) -> None:
    daemon.state_dir.mkdir()
    (daemon.state_dir / "lock").write_text("")
    (daemon.state_dir / "workloads.json").write_text("")
    daemon.start()
    daemon.check()


def test_sighup_with_a_wrong_configuration_keeps_the_one_before(daemon: Daemon) -> None:
    config = daemon.place.directory / "kubelet.yaml"
    text = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\ncpuManagerPolicy: static\n"
    config.write_text(text)
    daemon.start("--config", str(config))
    before = daemon.client.get("/v1/node")

    def refused(times: int) -> bool:
        return len(daemon.events("reload-refused")) == times

    for seen, wrong in enumerate(("{", text.replace("static", "statik"), ""), 1):
        config.write_text(wrong)
        os.kill(daemon.pid, signal.SIGHUP)
        wait_for(partial(refused, seen), "it is refused")
        assert daemon.client.get("/v1/node") == before
    daemon.check()


# -- clients


@pytest.mark.parametrize(
    "verb",
    [
        ["run", "--", "echo", "started"],
        ["adopt", "1"],
        ["apply", "-"],
        ["delete", "x"],
        ["get"],
        ["get", "--watch"],
        ["events"],
        ["events", "--watch"],
        ["top", "--once"],
    ],
    ids=" ".join,
)
def test_without_a_daemon_a_client_says_so(daemon: Daemon, verb: list[str]) -> None:
    result = daemon.verb(*verb) if "--watch" in verb else daemon.say(*verb)
    assert (result.returncode, result.stdout) == (RUN_FAILED if verb[0] == "run" else 3, "")
    assert str(daemon.socket) in one_line(result.stderr)
    assert "pinfold serve" in result.stderr


@pytest.mark.parametrize(
    ("cpus", "code", "said"),
    [
        ("0", 2, "whole"),
        ("1.5", 2, "whole"),
        ("500m", 2, "whole"),
        ("abc", 2, "--cpus"),
        ("", 2, "--cpus"),
        ("-1", 2, "--cpus"),
        ("1e99", 2, "--cpus"),
        ("999", 4, "not enough cpus"),
        ("99999999", 2, "CPUs"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "adopt"])
def test_a_wrong_amount_of_cpus_is_refused_with_what_is_allowed(
    host: Daemon, verb: str, cpus: str, code: int, said: str
) -> None:
    with process_of("sleep", "1000") as bystander:
        rest = ["--", "echo", "started"] if verb == "run" else [str(bystander.pid)]
        result = host.say(verb, f"--cpus={cpus}", *rest)
        assert bystander.poll() is None
    assert (result.returncode, result.stdout) == (RUN_FAILED if verb == "run" else code, "")
    assert said in one_line(result.stderr)
    assert host.pools()["shared"] == ONLINE


def test_run_without_a_command_says_how_to_write_it(host: Daemon) -> None:
    for arguments in (["run"], ["run", "--"], ["run", "--cpus", "1", "--"]):
        result = host.say(*arguments)
        assert result.returncode == RUN_FAILED
        assert "--" in one_line(result.stderr)


@pytest.mark.parametrize("name", [name for name in HOSTILE if "\0" not in name and "\ud800" not in name])
def test_a_hostile_name_is_refused_with_what_is_allowed(host: Daemon, name: str) -> None:
    result = host.say("run", f"--name={name}", "--", "echo", "started")
    assert (result.returncode, result.stdout) == (RUN_FAILED, "")
    assert "a-z" in one_line(result.stderr)
    assert host.place.groups() <= {".", "shared", "exclusive"}
    assert host.containers() == []


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["run", "--cpus", "70000", "--", "true"], "--cpus"),
        (["run", "--name", "A B", "--", "true"], "--name"),
        (["resize", "x", "--cpus", "0"], "--cpus"),
        (["adopt", "1"], "PID"),
        (["history", "--cpu", "4711"], "--cpu"),
        (["history", "--container", "a/b/c/d"], "--container"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_a_wrong_value_is_named_as_the_user_typed_it(host: Daemon, arguments: list[str], option: str) -> None:
    assert one_line(host.say(*arguments).stderr).startswith(f"{option}: ")


@pytest.mark.parametrize("pid", ["0", "1", "-1", "99999999", "4194303"])
def test_a_process_that_is_not_there_cannot_be_adopted(host: Daemon, pid: str) -> None:
    result = host.say("adopt", "--name=x", "--", pid)
    assert result.returncode == 2
    assert "process" in one_line(result.stderr)


@pytest.mark.parametrize(
    "name",
    ["nobody", "a b", "ä", "%2e%2e"],
)
def test_a_pod_that_is_not_there_cannot_be_deleted(host: Daemon, name: str) -> None:
    result = host.say("delete", name)
    assert result.returncode == 2
    assert f"no pod {name} " in one_line(result.stderr)


def test_a_path_is_not_the_name_of_a_pod(host: Daemon) -> None:
    result = host.say("delete", "../../x")
    assert result.returncode == 2
    assert '"../../x" is not a pod; expected' in one_line(result.stderr)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "document 1"),
        ("just text", "document 1"),
        ("kind: Pod\nmetadata: {name: Up}\nspec: {containers: [{name: a, command: [x]}]}", "Up"),
        ("kind: Pod\nmetadata: {name: a}\nspec: {containers: []}", "containers"),
        ("kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a}]}", "no command"),
        ("kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, command: x}]}", "command"),
        ("&a [*a, *a]", "document 1"),
        ("\x00", "control characters"),
    ],
)
def test_a_file_that_is_no_pod_is_refused_and_nothing_is_started(host: Daemon, text: str, said: str) -> None:
    result = host.say("apply", "-", text=text)
    assert (result.returncode, result.stdout) == (2, "")
    assert said in one_line(result.stderr)
    assert host.containers() == []


def test_files_that_cannot_be_read_are_named(host: Daemon, tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    for name in (str(binary), str(tmp_path), "/no/such/file"):
        result = host.say("apply", name)
        assert result.returncode == 2
        assert name in one_line(result.stderr)


def test_of_several_files_with_one_that_is_missing_nothing_is_started(host: Daemon, tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(pod("good"))
    assert host.say("apply", str(good), "/no/such/file").returncode == 2
    assert host.containers() == []


def test_a_file_that_is_too_large_is_refused_as_such(host: Daemon, tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    large.write_text("# " + "x" * (20 << 20) + "\n" + pod("large"))
    result = host.say("apply", str(large))
    assert result.returncode == 2
    assert f"{large}: text of 20,9" in one_line(result.stderr)
    assert host.containers() == []


@pytest.mark.parametrize(
    "verb", [["get", "everything"], ["get", "-o", "xml"], ["events", "-o", "xml"], ["top", "--interval", "x"], ["what"]]
)
def test_a_wrong_call_says_what_is_allowed(host: Daemon, verb: list[str]) -> None:
    result = host.say(*verb)
    assert (result.returncode, result.stdout) == (2, "")
    assert_no_traceback(result.stderr)
    assert verb[-1] in result.stderr


# -- the control socket


def test_the_control_socket_is_for_its_owner_alone(host: Daemon) -> None:
    assert stat.S_IMODE(host.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(host.state_dir.stat().st_mode) == 0o700


@needs_root
@pytest.mark.parametrize("opened", [False, True], ids=["as it is", "made writable for all"])
def test_other_users_are_refused(daemon: Daemon, *, opened: bool) -> None:
    daemon.start()
    if opened:
        daemon.socket.chmod(0o666)
    script = (
        "import os, socket, sys\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "sock = socket.socket(socket.AF_UNIX)\n"
        "try: sock.connect(sys.argv[1])\n"
        "except OSError as error: sys.exit(error.strerror)\n"
        "sock.sendall(b'GET /v1/node HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
        "sys.exit(sock.recv(65536).decode())\n"
    )
    result = subprocess.run(
        [sys.executable, "-ISc", script, daemon.socket], capture_output=True, text=True, timeout=30, check=False
    )
    assert ("403" if opened else "Permission denied") in result.stderr
    assert "policy" not in result.stderr.partition("\n\n")[2]  # the headers name policies for browsers
    daemon.check()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"hello\r\n\r\n", {0, 400}),
        (b"\x00" * 1000, {0, 400}),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", {0, 400}),
        (b"GET /v1/node HTTP/1.1\r\n\r\n", {0, 400}),
        (b"GET /v1/node HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", {0, 400, 431}),
        (b"GET /" + b"y" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", {0, 400, 414, 431}),
        (b"POST /v1/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n" + b"x" * 20_000_000, {413}),
        (b"POST /v1/pods HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", {0, 400}),
        (b"POST /v1/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nshort", {0, 400}),
        (b"POST /v1/pods HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", {0, 400}),
        (b"GET /v1/nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", {404}),
        (b"GET /v1/../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", {404}),
        (b"BREW /v1/node HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", {404, 405}),
        (b"GET /v1/events?after=\xb2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", {400}),
        (b"GET /v1/events?after=" + b"9" * 5000 + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", {400}),
        (b"DELETE /v1/pods/a/b/c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", {404}),
    ],
    ids=[
        *("no HTTP", "zeros", "TLS", "no host", "huge header", "huge target", "huge body", "negative length"),
        *("short body", "broken chunk", "unknown path", "dots", "unknown method", "superscript", "huge number", "deep"),
    ],
)
def test_garbage_on_the_socket_does_no_harm(host: Daemon, data: bytes, expected: set[int]) -> None:
    assert status(raw(host, data)) in expected
    assert host.client.get("/v1/node")["policy"] == "static"


def test_clients_that_send_nothing_delay_no_other_client(host: Daemon) -> None:
    idle = [socket.socket(socket.AF_UNIX) for _ in range(50)]
    try:
        for number, sock in enumerate(idle):
            sock.connect(str(host.socket))
            sock.sendall(b"GET /v1/node HTTP/1.1\r\nHost: x"[: number % 30])
        assert host.verb("run", "--", "true").returncode == 0
    finally:
        for sock in idle:
            sock.close()
    host.idle()


@pytest.mark.parametrize(
    "path",
    GOOD,
)
def test_a_request_without_what_it_needs_is_refused(host: Daemon, path: str) -> None:
    for body in WRONG:
        assert status(raw(host, post(path, body))) == 400, body
    assert status(raw(host, b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path.encode())) == 400


@pytest.mark.parametrize(
    ("path", "field"),
    [(path, field) for path, fields in GOOD.items() for field in fields],
)
def test_a_field_of_the_wrong_type_is_refused(host: Daemon, path: str, field: str) -> None:
    with process_of("sleep", "1000") as bystander:
        good = {name: bystander.pid if name == "pid" else value for name, value in GOOD[path].items()}
        for value in WRONG:
            if type(value) is not type(good[field]) or value in (-1, 1 << 70):
                answer = raw(host, post(path, {**good, field: value}))
                assert status(answer) == 400, (field, value, answer)
        assert host.containers() == []
        assert bystander.poll() is None
    assert host.pools()["shared"] == ONLINE


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_refused_on_the_socket_too(host: Daemon, name: str) -> None:
    assert status(raw(host, post("/v1/run", {"name": name, "milli": 1000}))) == 400
    assert host.containers() == []


def test_a_process_cannot_be_attached_to_what_was_not_reserved_for_it(host: Daemon) -> None:
    host.apply(pod("app", uid="u1"))
    pid = host.running("app")
    with process_of("sleep", "1000") as bystander:
        before = allowed(bystander.pid)
        for uid in ("u1", "run-app", "app", "..", "%2e%2e"):
            assert status(raw(host, post(f"/v1/run/{uid}/attach", {"pid": bystander.pid}))) in {400, 404, 409}
        assert allowed(bystander.pid) == before
    assert host.running("app") == pid
    host.delete("app")
    host.idle()


def test_only_one_process_can_be_attached_to_a_reservation(host: Daemon) -> None:
    uid = host.client.post("/v1/run", {"name": "x", "milli": 1000})["uid"]
    with process_of("sleep", "1000") as first, process_of("sleep", "1000") as second:
        host.client.post(f"/v1/run/{uid}/attach", {"pid": first.pid})
        before = allowed(second.pid)
        with pytest.raises(PinfoldError):
            host.client.post(f"/v1/run/{uid}/attach", {"pid": second.pid})
        assert allowed(second.pid) == before
        assert host.running("x") == first.pid
        assert first.poll() is None
    host.idle()
