"""``format`` of JSON schema as regular expressions of the whole string, narrow enough that every reader accepts it.

Sources: RFC 3339, 3986, 4291, 4648, 6901, 9562; the OpenAPI format registry; what pydantic and zod write.
"""

from collections.abc import Iterator

from paternoster_engine.sampling.grammars.number_bound import MOST_DIGITS

HEX = "[0-9a-fA-F]"
_WHOLE = f"(?:0|[1-9][0-9]{{0,{MOST_DIGITS - 1}}})"
_DIGITS = f"[0-9]{{1,{MOST_DIGITS}}}"
_LABEL = "[A-Za-z0-9]{1,30}(?:-[A-Za-z0-9]{1,10}){0,3}"
"""One label of a host name: at most 63 characters, without two hyphens in a row, which mark an encoded label."""
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,5}}"
_PORT = "(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})"
_CHARACTER = f"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%{HEX}{{2}})"
_QUERY = rf"(?:\?(?:{_CHARACTER}|[/?])*)?"
_FRAGMENT = f"(?:#(?:{_CHARACTER}|[/?])*)?"
_SCHEME = "[a-z][a-z0-9+.-]*://"
_FIRST = f"(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%{HEX}{{2}})"
"""A character of a relative reference's first segment, which has no colon."""


def _date_pattern() -> str:
    year = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
    fours = "0[48]|[2468][048]|[13579][26]"
    leap = f"(?:[0-9]{{2}}(?:{fours})|(?:{fours})00)"
    days = "(?:0[13-9]|1[0-2])-(?:0[1-9]|[12][0-9]|30)|(?:0[13578]|1[02])-31|02-(?:0[1-9]|1[0-9]|2[0-8])"
    return f"(?:{year}-(?:{days})|{leap}-02-29)"


_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"(?:{_CLOCK}:[0-5][0-9](?:\.[0-9]{{1,9}})?(?:Z|[+-]{_CLOCK}))"
"""Without leap seconds, which are valid in few minutes only."""


def _duration_pattern() -> str:
    def unit_pattern(units: str) -> str:
        first, rest = units[0], units[1:]
        return _DIGITS + first + (f"(?:{unit_pattern(rest)})?" if rest else "")

    def from_any(units: str) -> str:
        return "|".join(unit_pattern(units[i:]) for i in range(len(units)))

    time = f"T(?:{from_any('HMS')})"
    return f"P(?:(?:{from_any('YMD')})(?:{time})?|{time}|{_DIGITS}W)"


def _uuid_pattern(version: str = HEX, variant: str = HEX) -> str:
    return f"{HEX}{{8}}-{HEX}{{4}}-{version}{HEX}{{3}}-{variant}{HEX}{{3}}-{HEX}{{12}}"


_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"


def _ipv4_networks() -> Iterator[str]:
    """Addresses whose bits behind the prefix are 0, as ``ipaddress`` has them."""
    yield rf"0(?:\.0){{3}}/0|{_IPV4}(?:/32)?"
    for octet in range(4):
        before = rf"{_BYTE}\." * octet
        for bits in range(1, 9 if octet < 3 else 8):
            last = "|".join(str(number) for number in range(0, 256, 2 ** (8 - bits)))
            yield before + f"(?:{last})" + r"\.0" * (3 - octet) + f"/{8 * octet + bits}"


def _ipv6_pattern() -> str:
    group = f"{HEX}{{1,4}}"
    options = [f"{group}(?::{group}){{7}}"]
    for left in range(8):
        before = f"{group}(?::{group}){{{left - 1}}}" if left else ""
        after = f"(?:{group}(?::{group}){{0,{6 - left}}})?" if left < 7 else ""
        options.append(f"{before}::{after}")
    return f"(?:{'|'.join(options)})"


def _ipv6_networks() -> Iterator[str]:
    yield f"{_ipv6_pattern()}(?:/128)?|::/0"
    for groups in range(1, 8):
        yield f"{HEX}{{1,4}}(?::{HEX}{{1,4}}){{{groups - 1}}}::/{16 * groups}"


_IPV4_NETWORK = f"(?:{'|'.join(_ipv4_networks())})"
_IPV6_NETWORK = f"(?:{'|'.join(_ipv6_networks())})"
_IPV4_INTERFACE = f"{_IPV4}(?:/(?:3[0-2]|[12]?[0-9]))?"
_IPV6_INTERFACE = f"{_ipv6_pattern()}(?:/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9]))?"
_POINTER = "(?:/(?:[^~/]|~[01])*)*"
_BASE64 = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_COLORS = (
    "aqua|black|blue|fuchsia|gray|green|lime|maroon|navy|olive|orange|purple|red|silver|teal|white|yellow"
)  # fmt: skip
_EMAIL = rf"[A-Za-z0-9_+-]{{1,32}}(?:\.[A-Za-z0-9_+-]{{1,15}}){{0,2}}@{_LABEL}(?:\.{_LABEL}){{1,3}}"
_URI = rf"{_SCHEME}{_HOST}(?::{_PORT})?(?:/{_CHARACTER}*)*{_QUERY}{_FRAGMENT}"
_REFERENCE = rf"(?:/?{_FIRST}+(?:/{_CHARACTER}*)*|/)?{_QUERY}{_FRAGMENT}"

OF_ENGINE = frozenset({"ipv6", "uri"})
"""Formats that llguidance has itself, and defines more widely than here: in JSON they stay as they are."""
FORMATS = {
    "base64": _BASE64,
    "base64url": _BASE64.replace("+/", "_-"),
    "byte": _BASE64,
    "color": f"(?:#(?:{HEX}{{3}}|{HEX}{{6}})|{_COLORS})",
    "date": _date_pattern(),
    "date-time": f"{_date_pattern()}T{_TIME}",
    "decimal": rf"-?{_WHOLE}(?:\.{_DIGITS})?",
    "duration": _duration_pattern(),
    "e164": r"\+[1-9][0-9]{6,14}",
    "email": _EMAIL,
    "fraction": f"-?{_WHOLE}(?:/[1-9][0-9]{{0,{MOST_DIGITS - 1}}})?",
    "hex": f"{HEX}*",
    "hostname": _HOST,
    "ipv4": _IPV4,
    "ipv4interface": _IPV4_INTERFACE,
    "ipv4network": _IPV4_NETWORK,
    "ipv6": _ipv6_pattern(),
    "ipv6interface": _IPV6_INTERFACE,
    "ipv6network": _IPV6_NETWORK,
    "ipvanyaddress": f"(?:{_IPV4}|{_ipv6_pattern()})",
    "ipvanyinterface": f"(?:{_IPV4_INTERFACE}|{_IPV6_INTERFACE})",
    "ipvanynetwork": f"(?:{_IPV4_NETWORK}|{_IPV6_NETWORK})",
    "json-pointer": _POINTER,
    "mac": f"(?:{HEX}{{2}}:){{5}}{HEX}{{2}}",
    "multi-host-uri": rf"{_SCHEME}(?:[A-Za-z0-9._~-]+(?::[A-Za-z0-9._~-]+)?@)?{_HOST}(?::{_PORT})?"
    rf"(?:,{_HOST}(?::{_PORT})?)*(?:/{_CHARACTER}*)?{_QUERY}",
    "relative-json-pointer": f"{_WHOLE}(?:#|{_POINTER})",
    "time": _TIME,
    "ulid": "[0-7][0-9A-HJKMNP-TV-Z]{25}",
    "uri": _URI,
    "uri-reference": _REFERENCE,
    "uuid": _uuid_pattern(),
} | {f"uuid{version}": _uuid_pattern(str(version), "[89abAB]") for version in range(1, 9)}
"""Format -> regular expression of the whole string."""
ALIASES = {
    "idn-email": "email", "idn-hostname": "hostname", "iri": "uri", "iri-reference": "uri-reference",
    "mac-address": "mac", "url": "uri", "uri-template": "uri-reference", "base16": "hex",
    "name-email": "email",
}  # fmt: skip
"""Format -> a format whose strings it also allows."""
OF_ANY_TEXT = frozenset((
    "binary", "commonmark", "directory-path", "file-path", "html", "markdown", "multiline", "password", "path",
    "string", "text", "textarea",
))  # fmt: skip
"""Formats that allow every string: they say how it is displayed or what it refers to."""
LARGEST = 2**63 - 1024
"""Largest bound of numbers that llguidance accepts, exact as a double."""
OF_NUMBERS = {
    "int8": (-(2**7), 2**7 - 1), "int16": (-(2**15), 2**15 - 1), "int32": (-(2**31), 2**31 - 1),
    "int64": (-LARGEST, LARGEST), "uint8": (0, 2**8 - 1), "uint16": (0, 2**16 - 1), "uint32": (0, 2**32 - 1),
    "uint64": (0, LARGEST),
}  # fmt: skip
"""Formats of numbers -> the least and the largest."""
