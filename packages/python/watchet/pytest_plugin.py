"""The pytest plugin: the fixtures `watchet`, a running server, and `watchet_namespace`, a new namespace in it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from watchet.server import Server

SCOPES = ["function", "class", "module", "package", "session"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds --watchet-scope, and watchet_scope and watchet_flags of the configuration file."""
    group = parser.getgroup("watchet")
    group.addoption(
        "--watchet-scope",
        choices=SCOPES,
        help="how long a server of the fixture `watchet` runs (default: function, one server per test)",
    )
    parser.addini("watchet_scope", "scope of the fixture `watchet`", default="function")
    parser.addini("watchet_flags", "further flags of `watchet serve`, one per line", type="linelist", default=[])


def _scope(fixture_name: str, config: pytest.Config) -> str:
    scope = config.getoption("--watchet-scope") or config.getini("watchet_scope")
    if scope not in SCOPES:
        raise pytest.UsageError(f"watchet_scope {scope!r} is not one of {', '.join(SCOPES)}")
    return scope


@pytest.fixture(scope=_scope)  # type: ignore[arg-type]
def watchet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running watchet server, with `url`, `kubeconfig` (a path), `client()` and `request()`."""
    directory = tmp_path_factory.mktemp("watchet")
    with Server(request.config.getini("watchet_flags"), directory) as server:
        yield server


@pytest.fixture
def watchet_namespace(watchet: Server) -> Iterator[str]:
    """The name of a new namespace for the test. Its deletion begins after the test."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    watchet.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    watchet.request("DELETE", f"/api/v1/namespaces/{name}")
