"""``[TOOL_CALLS]``, and after it a list of objects, or for each call ``f{...}`` or ``f[ARGS]{...}``: Mistral.

Its templates refuse ids of calls that have not nine letters and digits.
"""

import hashlib
import re
from collections.abc import Collection

from paternoster_engine.server.parsers.call_form import CallForm, CallSpelling
from paternoster_engine.server.parsers.calls.json_calls import pass_object, read_calls
from paternoster_engine.server.parsers.events import CallBegin, Content, Read
from paternoster_engine.server.parsers.reader import Reader

BEGIN = "[TOOL_CALLS]"
ARGS = "[ARGS]"
CALL_ID = "[CALL_ID]"
LIST = CallForm(
    '{"name": "%s", "arguments": ',
    "}",
    between=", ",
    opening=f"{BEGIN} [",
    closing="]",
    begun=CallSpelling(re.escape(BEGIN), ('{ "name": "%s", "arguments": ',), " }", listed=True),
)
NAMED = CallForm(f"{BEGIN}%s{ARGS}", "", between="", begun=CallSpelling(re.escape(BEGIN), (f"%s{ARGS}", "%s"), ""))
"""Form of later vocabularies."""
_NAME = re.compile(r"[\w.-]+")
_ID = re.compile(r"[a-zA-Z0-9]{9}")


def find_form(template: str) -> CallForm:
    return NAMED if ARGS in template else LIST


def read_answer(reader: Reader, names: Collection[str]) -> Read[None]:
    while (yield from reader.pass_until((BEGIN,), Content)):
        opened = reader.place
        reader.starved = False
        if (yield from reader.peek_solid()) in ("[", "{"):
            called = yield from read_calls(reader, names)
            cut = reader.starved
        else:
            called = yield from _read_named(reader, names)
            cut = reader.ended and _begins_name(reader.held[opened:].strip(), names)
        if called:
            yield from reader.drop_leftover()
        elif cut:
            reader.drop_cut_call()
        else:
            yield Content(reader.reject(opened))


def _read_named(reader: Reader, names: Collection[str]) -> Read[bool]:
    name = yield from reader.match_pattern(_NAME, 1024)
    if name is None or name not in names or (yield from reader.peek()) == "":
        return False
    if (yield from reader.match_option(CALL_ID)):
        yield from reader.match_pattern(_NAME, 1024)
    yield from reader.match_option(ARGS)
    if (yield from reader.peek_solid()) == "{":
        reader.commit()
        yield CallBegin(name)
        yield from pass_object(reader)
        return True
    if not reader.ends_in((ARGS, CALL_ID)):
        return False
    yield CallBegin(name)
    reader.reject(len(reader.held))
    return True


def _begins_name(text: str, names: Collection[str]) -> bool:
    return text != "" and any(name.startswith(text) for name in names)


def call_id(digits: str) -> str:
    return digits[:9]


def id_for_template(call_id: str) -> str:
    """Make nine letters of an id, always the same ones of one id."""
    return call_id if _ID.fullmatch(call_id) else hashlib.sha256(call_id.encode()).hexdigest()[:9]
