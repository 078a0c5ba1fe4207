"""What is kept of answers is counted as bodies are, and journals are dropped before any request is refused."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from paternoster_http.errors.refusal import Refusal
from paternoster_http.open_requests import MOST_GIVING_WAY, OpenRequest, OpenRequests, SpareBytes, State

ROOT = Path(__file__).parents[3]
COUNTED = {
    "gateway/paternoster_gateway/proxy/answer_progress.py head": "MAX_HEAD_BYTES, for as long as a line has no end",
    "gateway/paternoster_gateway/proxy/forwarded_answer.py body": "hold_answer, MAX_ERROR_BYTES",
    "gateway/paternoster_gateway/call/journaled_stream.py _buffer": "hold_answer",
    "gateway/paternoster_gateway/call/journaled_stream.py lines": "SpareBytes",
    "gateway/paternoster_gateway/table/rows.py rest": "MOST_BYTES, of the operator's table",
    "gateway/paternoster_gateway/table/source.py text": "MOST_BYTES, of the operator's table",
    "common/paternoster_contract/text_chains/stream.py _data": "TextChainFollower, by num_bytes",
    "common/paternoster_http/vendor_rewriting.py _body": "hold_answer",
}
"""What counts or bounds each buffer that grows by what a peer sends."""
SOURCES = ("gateway/paternoster_gateway", "common/paternoster_http", "common/paternoster_contract/text_chains")


def find_buffers(path: Path) -> Iterator[str]:
    """Names of bytes that grow by others: ``name += ...`` where ``name`` is bytes, as far as the file shows."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    begun: set[str] = set()
    for _ in range(2):  # a name may be given what another one has
        begun |= {name_of(target) for target, value in list_assigned(nodes) if makes_bytes(value, begun)}
    for node in nodes:
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and name_of(node.target) in begun:
            yield name_of(node.target)


def list_assigned(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.AST, ast.AST]]:
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    yield from zip(target.elts, node.value.elts, strict=True)
                yield target, node.value


def makes_bytes(value: ast.AST, begun: set[str]) -> bool:
    match value:
        case ast.Constant(value=bytes()) | ast.Call(func=ast.Name(id="bytes" | "bytearray")):
            return True
        case ast.Subscript(slice=ast.Slice()):
            return True
        case ast.Attribute(attr=name):
            return name in begun
    return False


def name_of(target: ast.AST) -> str:
    return str(getattr(target, "attr", getattr(target, "id", "")))


def test_each_buffer_that_grows_by_what_a_peer_sends_is_counted() -> None:
    found = {
        f"{path.relative_to(ROOT)} {name}"
        for source in SOURCES
        for path in (ROOT / source).rglob("*.py")
        for name in find_buffers(path)
    }
    assert found == set(COUNTED)


class Port:
    """A port of 1,000 bytes, and the requests of it that gave way."""

    def __init__(self) -> None:
        self.requests = OpenRequests(1000, 1000)
        self.gave_way: list[OpenRequest] = []
        self.dropped: list[str] = []

    def open(self, tenant: str, body: int = 0) -> OpenRequest:
        request = self.requests.add_request("a", lambda request, _: self.gave_way.append(request))
        request.charge_party(("fleet", tenant))
        request.hold_body(body)
        request.set_state(State.UNANSWERED)
        return request

    def stream(self, tenant: str) -> OpenRequest:
        request = self.open(tenant)
        request.cycle = SimpleNamespace(response_started=True)
        return request

    def journal(self, tenant: str, size: int) -> SpareBytes:
        name = f"{tenant} {size}"
        spare = SpareBytes(self.stream(tenant), lambda: self.dropped.append(name))
        assert spare.hold_bytes(size)
        return spare

    def held(self, *group: str) -> int:
        return self.requests.bytes.shares.held_by(group)


def test_the_largest_journals_of_a_tenant_go_before_its_own_requests_are_refused() -> None:
    port = Port()
    for size in (100, 300, 200):
        port.journal("one", size)
    port.open("one", 450)
    assert port.dropped == ["one 300"]
    port.open("one", 150)
    assert port.dropped == ["one 300", "one 200"]
    assert port.gave_way == []
    with pytest.raises(Refusal):
        port.open("one", 300)
    assert port.dropped[2:] == ["one 100"]


def test_journals_of_a_larger_tenant_go_for_a_smaller_one_and_never_the_other_way() -> None:
    port = Port()
    port.journal("small", 100)
    for size in (250, 200, 190):
        port.journal("large", size)
    port.open("small", 250)
    assert port.dropped == ["large 250"]
    spare = SpareBytes(port.stream("large"), lambda: port.dropped.append("itself"))
    assert not spare.hold_bytes(700)
    assert port.dropped == ["large 250", "large 200", "large 190"]
    assert (port.held("fleet", "small"), port.held("fleet", "large"), spare.held) == (350, 0, 0)


def test_a_journal_that_is_its_tenants_largest_is_dropped_itself() -> None:
    port = Port()
    port.journal("one", 50)
    spare = SpareBytes(port.stream("one"), lambda: port.dropped.append("itself"))
    assert spare.hold_bytes(500)
    assert not spare.hold_bytes(900)
    assert port.dropped == ["itself"]
    assert not spare.hold_bytes(10)
    assert port.held() == 50


def test_what_has_ended_holds_no_journal() -> None:
    port = Port()
    spare = SpareBytes(request := port.stream("one"), lambda: port.dropped.append("itself"))
    assert spare.hold_bytes(500)
    request.release_all()
    assert (port.held(), spare.held) == (0, 0)
    assert not spare.hold_bytes(10)
    assert spare.hold_bytes(0)
    assert (port.held(), port.dropped) == (0, [])


def test_parts_of_an_answer_are_counted_and_give_way_last() -> None:
    port = Port()
    stream, shorter, waiting = port.stream("large"), port.stream("large"), port.open("large", 100)
    stream.hold_answer("frame", 300)
    stream.hold_answer("head", 200)
    stream.hold_answer("frame", 250)
    shorter.hold_answer("frame", 120)
    assert (port.held("fleet", "large"), stream.state) == (670, State.ASSEMBLING)
    with pytest.raises(Refusal):
        stream.hold_answer("frame", 900)
    assert port.held("fleet", "large") == 670
    port.open("small", 250)
    assert port.gave_way == [waiting]
    port.open("small", 80)
    assert port.gave_way == [waiting, shorter]
    assert port.held() == 780


def test_a_frame_that_is_whole_is_counted_no_more() -> None:
    port = Port()
    stream = port.stream("one")
    stream.hold_answer("frame", 300)
    stream.hold_unread(200)
    assert stream.state is State.BLOCKED
    stream.hold_answer("frame", 0)
    assert (port.held(), stream.state) == (200, State.BLOCKED)
    stream.hold_unread(0)
    assert (port.held(), stream.state) == (0, None)


def test_what_a_client_has_not_read_yet_is_counted_at_once() -> None:
    port = Port()
    stream = port.stream("one")
    stream.hold_unread(300, blocked=False)
    assert (port.held(), stream.state) == (300, State.UNANSWERED)
    stream.hold_unread(0)
    assert port.held() == 0


def test_many_small_requests_do_not_shield_the_large_ones_of_their_tenant() -> None:
    port = Port()
    large = [port.open("large", 300) for _ in range(2)]
    small = [port.open("large", 1) for _ in range(MOST_GIVING_WAY + 10)]
    port.open("small", 270)
    assert port.gave_way == large[1:]
    assert all(request.held[port.requests.bytes] for request in small)
