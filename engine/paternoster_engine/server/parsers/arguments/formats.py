"""``format`` of JSON schema as regular expressions: some of what each allows, as far as they can tell."""

_MONTH_AND_DAY = "(?:0[13-9]|1[0-2])-(?:0[1-9]|[12][0-9]|30)|(?:0[13578]|1[02])-31|02-(?:0[1-9]|1[0-9]|2[0-8])"
_DAY = f"(?:[1-9][0-9]{{3}}-(?:{_MONTH_AND_DAY}))"
_TIME = r"(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]))"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,3}}"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_CHARACTER = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"

FORMATS = {
    "date": _DAY,
    "time": _TIME,
    "date-time": f"{_DAY}T{_TIME}",
    "uuid": "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "hostname": _HOST,
    "email": rf"[A-Za-z0-9_+-]{{1,32}}(?:\.[A-Za-z0-9_+-]{{1,16}}){{0,1}}@{_LABEL}(?:\.{_LABEL}){{1,3}}",
    "uri": rf"[a-z][a-z0-9+.-]*://{_HOST}(?::[0-9]{{1,5}})?(?:/{_CHARACTER}*)*(?:\?(?:{_CHARACTER}|[/?])*)?"
    rf"(?:#(?:{_CHARACTER}|[/?])*)?",
}
