"""Text in a grammar."""

import json
import re
from collections.abc import Iterator, Mapping

SPACE = r"/[ \n\t]{0,3}/"


def write_terms(text: str, special: Mapping[str, int], *, loose: bool = False) -> Iterator[str]:
    """Write the terms of a rule, one after another. ``special``: marks that are control tokens -> their ids.

    ``loose``: where the text has a space there may be white space or none.
    """
    marks = [*special, *([" "] if loose else ())]
    for piece in re.split("(" + "|".join(map(re.escape, marks)) + ")", text) if marks else [text]:
        if piece in special:
            yield f"<[{special[piece]}]>"
        elif loose and piece == " ":
            yield SPACE
        elif piece:
            yield json.dumps(piece)
