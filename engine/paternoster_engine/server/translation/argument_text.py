"""Stream the string of a call whose only argument is a string, out of its JSON."""

import json
import re

_ESCAPE = re.compile(r'\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt])')
_PLAIN = re.compile(r'[^"\\]+')


class ArgumentText:
    """Reads the string of ``{"input": "the text"}`` while the JSON is written."""

    def __init__(self, name: str) -> None:
        """``name``: the argument's name."""
        self._begin = re.compile(rf'\s*\{{\s*"{re.escape(name)}"\s*:\s*"')
        self._written: list[str] = []
        self._unread = ""
        self._begun = False
        self._over = False

    def add_json(self, written: str) -> str:
        """Return what ``written`` adds to the string; nothing until the JSON shows that it has this form."""
        self._written.append(written)
        if self._over:
            return ""
        self._unread += written
        if not self._begun:
            # Behind that much white space rest() reads the whole JSON instead.
            found = self._begin.match(self._unread) if len(self._unread) < 4096 else None
            if found is None:
                return ""
            self._begun, self._unread = True, self._unread[found.end() :]
        return self._read()

    def read_rest(self) -> str:
        """Return what is left at the end: everything where the JSON has another form."""
        if self._begun:
            return ""
        written = "".join(self._written)
        try:
            value = json.loads(written)
        except (ValueError, RecursionError):
            return written
        texts = list(value.values()) if isinstance(value, dict) else []
        return texts[0] if len(texts) == 1 and isinstance(texts[0], str) else written

    def _read(self) -> str:
        text, place = self._unread, 0
        pieces: list[str] = []
        while place < len(text):
            plain = _PLAIN.match(text, place)
            if plain is not None:
                pieces.append(plain[0])
                place = plain.end()
            elif text[place] == '"':
                self._over = True
                break
            else:
                end = self._end_of_escapes(text, place)
                if end == place:
                    break
                pieces.append(_decode_escapes(text[place:end]))
                place = end
        self._unread = text[place:]
        return "".join(pieces)

    def _end_of_escapes(self, text: str, place: int) -> int:
        """Return the end of the complete escapes at ``place``; the first half of a surrogate pair is incomplete."""
        while (found := _ESCAPE.match(text, place)) is not None:
            high = found[0][:3].lower() == "\\ud" and found[0][3] in "89abAB"
            if high and len(text) - found.end() < 6 and "\\u".startswith(text[found.end() : found.end() + 2]):
                return place
            place = found.end()
        return place


def _decode_escapes(escapes: str) -> str:
    text: str = json.loads(f'"{escapes}"')
    # A half without the other is no character.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
