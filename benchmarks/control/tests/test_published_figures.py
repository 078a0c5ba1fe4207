"""The README's sentence on scaling policies follows from the table in docs/control.md."""

import re
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).parents[3]
OURS = "paternoster"


def published() -> dict[str, list[tuple[float, float]]]:
    """Figures of each policy (percent within the objective, GPU-hours) in the six scenarios."""
    section = (ROOT / "docs" / "control.md").read_text(encoding="utf-8").split("## Beside other policies")[1]
    table = section.split("\n\nCode completion")[0]
    rows: dict[str, list[tuple[float, float]]] = {}
    for name, cells in re.findall(r"^\| ([^|]+) \|(.+)\|$", table, re.MULTILINE):
        found = re.findall(r"([\d.]+) % · ([\d.]+) ·", cells)
        if found:
            rows[name] = [(float(attained), float(hours)) for attained, hours in found]
    return rows


def test_the_readme_says_what_the_table_has() -> None:
    rows = published()
    ours, peers = rows.pop(OURS), rows
    assert len(peers) == 7
    assert {len(scores) for scores in [ours, *peers.values()]} == {6}
    ratios = []
    for scenario, (attained, hours) in enumerate(ours):
        scores = [peer[scenario] for peer in peers.values()]
        as_many = [cost for share, cost in scores if share >= attained]
        ratios.append(hours / (min(as_many) if as_many else max(scores)[1]))
    least, most = min(score[0] for score in ours), max(score[0] for score in ours)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{least:.1f} to {most:.1f} % of the requests within their objective" in readme
    assert f"for {100 * (1 - fmean(ratios)):.0f} % fewer hours on average" in readme
