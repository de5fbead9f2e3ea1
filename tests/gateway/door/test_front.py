"""TLS from files: who is served under which certificate while the files change, break and come back."""

import asyncio
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from tests.gateway.door.certificates import make
from tests.gateway.identity.test_credentials import held, rest
from tests.gateway.rig import DONE, Client, ask, endpoint, engines, gateway, post, routes, until, whole

from stoker.base.errors import Invalid
from stoker.facts.door import Door, Listener
from stoker.gateway.worker import Options, Worker, listen

pytestmark = pytest.mark.anyio


def under(folder: Path) -> Door:
    listener = Listener(port=0, cert_file=str(folder / "cert.pem"), key_file=str(folder / "key.pem"))
    return Door(listeners=(listener,))


async def connect(port: int) -> tuple[Client, int]:
    """Connect and tell the serial number of the certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return Client(reader, writer), x509.load_der_x509_certificate(shown).serial_number


async def serial(port: int) -> int:
    client, number = await connect(port)
    client.close()
    return number


async def secure(port: int, request: bytes) -> tuple[int, bytes]:
    client, _ = await connect(port)
    client.send(request)
    reply = await asyncio.wait_for(client.reply(), 10)
    client.close()
    return reply.status, reply.body


async def becomes(port: int, number: int) -> None:
    async with asyncio.timeout(5):
        while await serial(port) != number:  # noqa: ASYNC110 -- only a handshake can tell
            await asyncio.sleep(0.05)


async def test_certificates_change_under_open_streams(tmp_path: Path) -> None:
    make(tmp_path, 1)
    async with engines(held) as (engine,), gateway(tmp_path, routes(endpoint(engine), door=under(tmp_path))) as rig:
        client, number = await connect(rig.port)
        assert number == 1
        client.send(post(ask(stream=True)))
        await client.reader.readuntil(b"\n\n\r\n")
        make(tmp_path, 2)
        await becomes(rig.port, 2)

        for spoil in (lambda p: p.write_bytes(b"no certificate"), lambda p: p.unlink()):
            spoil(tmp_path / "cert.pem")
            await until(lambda: "cert.pem" in rig.worker.live().routes_error)
            assert await serial(rig.port) == 2
        make(tmp_path, 3)
        await becomes(rig.port, 3)
        (tmp_path / "key.pem").write_bytes((tmp_path / "cert.pem").read_bytes())  # a pair that does not fit
        await until(lambda: "cert.pem" in rig.worker.live().routes_error)
        assert await serial(rig.port) == 3
        assert rig.worker.live().tls_cert_file == str(tmp_path / "cert.pem")

        engine.release.set()
        assert DONE in await rest(client)
        client.close()
        await rig.idle()


async def test_a_port_becomes_secure_and_plain_again_while_streams_go_on(tmp_path: Path) -> None:
    make(tmp_path, 1)
    async with engines(held) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        plain = await rig.connect()
        plain.send(post(ask(stream=True)))
        await plain.reader.readuntil(b"\n\n\r\n")
        await rig.load(routes(endpoint(engine), door=under(tmp_path)))
        await until(lambda: bool(rig.worker.live().tls_cert_file))
        assert (await secure(rig.port, post(ask(), key="wrong")))[0] == 401
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await rig.once(post(ask(stream=True)))  # nobody's key goes in the clear any more
        await rig.load(routes(endpoint(engine)))
        await until(lambda: not rig.worker.live().tls_cert_file)
        assert (await rig.once(post(ask(), key="wrong"))).status == 401
        engine.release.set()
        assert DONE in await rest(plain)


async def test_a_port_stays_closed_until_its_first_certificate_is_good(tmp_path: Path) -> None:
    async with engines(whole) as (engine,):
        (tmp_path / "keys").mkdir()
        (tmp_path / "routes.json").write_bytes(b"")
        worker = Worker(
            Options(folder=tmp_path, cert_file=str(tmp_path / "cert.pem"), key_file=str(tmp_path / "key.pem"))
        )
        public, stop = listen("127.0.0.1:0"), asyncio.Event()
        port = public.getsockname()[1]
        task = asyncio.create_task(worker.run(public, None, stop=stop))
        try:
            await until(lambda: "cert.pem" in worker.live().routes_error)
            with pytest.raises((ConnectionError, TimeoutError)):
                await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 0.3)
            make(tmp_path, 7)
            await until(lambda: bool(worker.live().tls_cert_file))
            assert await serial(port) == 7
            assert engine.seen == []
        finally:
            stop.set()
            await asyncio.wait_for(task, 10)


async def test_early_answers_reach_secure_clients(tmp_path: Path) -> None:
    """TLS has no half-closed state: the answer before a body that nobody reads must come all the same."""
    make(tmp_path, 1)
    async with engines(whole) as (engine,):
        policy = routes(endpoint(engine), door=under(tmp_path), body_bytes=2000)
        async with gateway(tmp_path, policy) as rig:
            assert (await secure(rig.port, post(b"x" * 60_000)))[0] == 413
            assert (await secure(rig.port, post(b"x" * 60_000, key=None)))[0] == 401
            assert (await secure(rig.port, b"\x00\x01\r\n\r\n"))[0] == 400
            status, body = await secure(rig.port, post(ask(stream=True)))
            assert (status, body[-len(DONE) :]) == (200, DONE)


async def test_other_machines_are_served_in_the_clear_only_where_somebody_said_so(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    with pytest.raises(Invalid, match="--tls-cert and --tls-key, or say --insecure-bind"):
        await Worker(Options(folder=tmp_path)).run(listen("0.0.0.0:0"), None, stop=asyncio.Event())
    (tmp_path / "meant" / "keys").mkdir(parents=True)
    worker = Worker(Options(folder=tmp_path / "meant", insecure=True))
    public, stop = listen("0.0.0.0:0"), asyncio.Event()
    port = public.getsockname()[1]
    task = asyncio.create_task(worker.run(public, None, stop=stop))
    await until(lambda: worker._front is not None and worker._front._server is not None)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
    assert b"200" in await reader.readline()
    writer.close()
    stop.set()
    await asyncio.wait_for(task, 10)
