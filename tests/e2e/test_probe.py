"""The door while everything behind it changes: a probe knocks on, streams go on, and counters add up."""

import http.client
import json
import os
import re
import signal
import ssl
import threading
from collections.abc import Iterator
from typing import Self

import pytest
from cryptography import x509
from tests.e2e.machine import Machine, machine
from tests.e2e.manifests import document, gateway, scripted, service, text
from tests.gateway.door.certificates import make
from tests.gateway.identity.issuer import AUDIENCE, NAME, key_set, token

from stoker.base import clock

WORKERS = 2


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Two workers behind TLS; ``tiny`` answers at once, ``slow`` takes its time."""
    folder = tmp_path_factory.mktemp("secured")
    cert, key = make(folder, 1)
    (folder / "slow.json").write_text(json.dumps({"tokens": 160, "tokens_per_second": 20}))
    slow = scripted("slow", engine={"extraArgs": ["--script", str(folder / "slow.json")]})
    with machine(folder / "state") as made:
        made.start("--workers", str(WORKERS), "--tls-cert", str(cert), "--tls-key", str(key))
        made.ok("apply", "-f", "-", stdin=text(rules(), scripted("tiny"), service("tiny"), slow, service("slow")))
        for name in ("tiny", "slow"):
            made.wait("ready", lambda name=name: made.condition("ms", name, "RoutingReady")["status"] == "True")
        yield made


def rules(**changes: object) -> dict[str, object]:
    return gateway(accessLog={"to": "File"}, cors={"origins": ["https://app.test"]}, **changes)


def secure(made: Machine) -> http.client.HTTPSConnection:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # which one is shown is what is asked here
    return http.client.HTTPSConnection("127.0.0.1", made.port, timeout=30, context=context)


def stream(made: Machine, key: str, model: str) -> http.client.HTTPResponse:
    body = {"model": model, "messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 200}
    asked = secure(made)
    asked.request("POST", "/v1/chat/completions", json.dumps(body), {"authorization": f"Bearer {key}"})
    return asked.getresponse()


def status(made: Machine, path: str) -> int:
    asked = secure(made)
    try:
        asked.request("GET", path)
        return asked.getresponse().status
    finally:
        asked.close()


def answered(made: Machine) -> dict[int, float]:
    """Answered requests by worker, as its metrics page counts them."""
    found = {}
    for number in range(WORKERS):
        page = http.client.HTTPConnection("127.0.0.1", made.admin + number, timeout=10)
        page.request("GET", "/metrics")
        counts = re.findall(r'stoker_requests_total\{[^}]*status="200"\} (\S+)', page.getresponse().read().decode())
        found[number] = sum(map(float, counts))
        page.close()
    return found


def test_a_probe_finds_every_door_closed_and_leaves_nobody_behind(secured: Machine) -> None:
    told = json.loads(secured.ok("probe", "--origin", "https://app.test", "-o", "json"))
    assert told["offending"] == []
    assert {"good key", "expired key", "revoked key", "other caller's key"} <= {row["who"] for row in told["all"]}
    secured.wait("removed", lambda: "probe-" not in secured.ok("get", "caller"))
    secured.ok("apply", "-f", "-", stdin=text(rules(open=["Health", "Root", "Metrics"])))
    secured.wait("open", lambda: status(secured, "/metrics") == 200)
    found = secured.run("probe")
    assert found.returncode == 1
    assert set(re.findall(r" (?:GET|POST|HEAD|OPTIONS|DELETE) +(\S+)", found.stdout)) == {"/metrics"}, found.stdout
    secured.ok("apply", "-f", "-", stdin=text(rules()))


def test_a_token_opens_what_its_caller_may_use(secured: Machine) -> None:
    """From the manifest to the answer: issuer, audience, claim and keys are those that were declared."""
    keys = secured.root.parent / "jwks.json"
    keys.write_bytes(key_set("es-1"))
    jwt = {"issuer": NAME, "audience": [AUDIENCE], "jwksFile": str(keys), "clockSkew": "5s"}
    subject = {"credentials": [{"type": "JWT", "subject": "ann"}], "allow": {"services": ["default/tiny"]}}
    declared = text(rules(auth={"methods": ["APIKey", "JWT"], "jwt": jwt}), document("Caller", "ann", subject))
    secured.ok("apply", "-f", "-", stdin=declared)
    secured.wait("let in", lambda: stream(secured, token("es-1"), "tiny").status == 200)
    assert stream(secured, token("es-1"), "slow").status == 404
    assert stream(secured, token("es-1", aud="other"), "tiny").status == 401
    assert stream(secured, token("es-2"), "tiny").status == 401
    assert stream(secured, secured.key, "tiny").status == 200
    secured.ok("apply", "-f", "-", stdin=text(rules()))
    secured.wait("closed", lambda: stream(secured, token("es-1"), "tiny").status == 401)


def test_an_interrupted_probe_removes_its_callers(secured: Machine) -> None:
    process = secured.begin("probe", "--loop", "60")
    secured.wait("its callers", lambda: secured.ok("get", "caller").count("probe-") == 2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode != 0
    secured.wait("removed", lambda: "probe-" not in secured.ok("get", "caller"))


@pytest.mark.timeout(150)
def test_a_probe_knocks_while_keys_routes_certificate_and_workers_change(secured: Machine) -> None:
    made, before = secured, answered(secured)
    replicas = [r["metadata"]["uid"] for r in made.replicas("tiny")]
    good = made.ok("key", "create", "streams").strip()
    open_stream = stream(made, good, "slow")
    assert open_stream.status == 200
    probe = made.begin("probe", "--loop", "12", "-o", "json")
    with Traffic(made) as traffic:
        # What may not touch an open stream: its key is revoked, routes, certificate and an engine are replaced.
        (key_id,) = re.findall(r"(k-\w+) +streams", made.ok("key", "list"))
        made.ok("key", "revoke", key_id)
        made.ok("apply", "-f", "-", stdin=text(rules(keepAlive="16s"), scripted("tiny", engine={"maxSequences": 7})))
        make(made.root.parent, 2)
        made.wait("the new certificate", lambda: shown(made) == 2)
        assert stream(made, good, "tiny").status == 401
        assert open_stream.read().endswith(b"data: [DONE]\n\n")
        made.wait("the rollout", lambda: [r["metadata"]["uid"] for r in made.replicas("tiny")] != replicas)

        shown_before = answered(made)
        for number in (signal.SIGTERM, signal.SIGKILL):
            pids = made.pids("stoker.gateway")
            os.kill(pids[0], number)
            made.wait("another worker", lambda pids=pids: set(made.pids("stoker.gateway")) - set(pids))
            made.wait("its page", lambda: answered(made))
            now = answered(made)
            assert all(now[worker] >= count for worker, count in shown_before.items()), (shown_before, now)
            shown_before = now
        said, _ = probe.communicate(timeout=60)

    told = json.loads(said)
    assert (told["offending"], probe.returncode) == ([], 0)
    assert told["rounds"] >= 1
    assert sum(answered(made).values()) - sum(before.values()) >= traffic.whole > 0


class Traffic:
    """Somebody who asks without pause, and counts the answers that came whole."""

    def __init__(self, made: Machine) -> None:
        self.whole = 0
        self._made = made
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        while not self._over.is_set():
            try:
                with stream(self._made, self._made.key, "tiny") as reply:
                    self.whole += reply.read().endswith(b"data: [DONE]\n\n")
            except (OSError, http.client.HTTPException):
                clock.sleep(0.05)  # its worker was killed: the ledger knows the request as lost

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)


def shown(made: Machine) -> int:
    """The serial number of the certificate that the port shows now."""
    asked = secure(made)
    asked.connect()
    try:
        return x509.load_der_x509_certificate(asked.sock.getpeercert(binary_form=True)).serial_number
    finally:
        asked.close()
