"""Parts of a Grafana dashboard as JSON: panels, variables and where they stand."""

from typing import Any

Json = dict[str, Any]

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
"""Whatever the dashboard's variable ``datasource`` says."""
COLUMNS = 24
HEIGHT = 8


def panel(
    title: str,
    *targets: tuple[str, str],
    unit: str = "short",
    width: int = 8,
    kind: str = "timeseries",
    help: str,
    top: float | None = None,
    steps: tuple[tuple[str, float | None], ...] = (("green", None),),
    bars: bool = False,
) -> Json:
    """A panel still without a place.

    ``targets``: (expression, legend). ``kind``: timeseries, stat, or table, which shows the labels as columns.
    ``help``: what it shows. ``top``: the axis's highest value. ``steps``: (colour, from this value on).
    """
    defaults: Json = {
        "unit": unit,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": [{"color": color, "value": value} for color, value in steps]},
    }
    if top is not None:
        defaults["max"] = top
    options: Json = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    if kind == "timeseries":
        options = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
        defaults["custom"] = {
            "drawStyle": "bars" if bars else "line",
            "fillOpacity": 60 if bars else 10,
            "stacking": {"mode": "normal" if bars else "none"},
            "showPoints": "never",
            "thresholdsStyle": {"mode": "dashed" if len(steps) > 1 else "off"},
        }
    if kind == "table":
        options = {"showHeader": True, "sortBy": [{"displayName": "Value", "desc": True}]}
    panel: Json = {
        "type": kind,
        "title": title,
        "description": help,
        "datasource": DATASOURCE,
        "gridPos": {"w": width, "h": HEIGHT},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": DATASOURCE, "expr": expression, "legendFormat": legend}
            for i, (expression, legend) in enumerate(targets)
        ],
    }
    if kind == "table":
        panel["targets"] = [{**target, "instant": True, "format": "table"} for target in panel["targets"]]
        panel["transformations"] = [{"id": "organize", "options": {"excludeByName": {"Time": True}}}]
    return panel


def variable(name: str, label: str, values: str, *, several: bool, hidden: bool = False) -> Json:
    """A choice of label values; with ``several``, "all" matches everything, so that panels outlive the operator."""
    choice: Json = {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "query": {"query": f"label_values({values})", "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": several,
        "includeAll": several,
        "hide": 2 if hidden else 0,
    }
    if several:
        choice |= {"allValue": ".+", "current": {"text": ["All"], "value": ["$__all"]}}
    return choice


def annotation(name: str, expression: str, title: str, text: str, color: str) -> Json:
    """Marks on all time axes wherever ``expression`` has a series; looked at once a minute."""
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": color,
        "expr": expression,
        "step": "60s",
        "titleFormat": title,
        "textFormat": text,
    }


def dashboard(
    uid: str, title: str, variables: list[Json], annotations: list[Json], rows: dict[str, list[Json]]
) -> Json:
    datasource = {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus"}
    return {
        "uid": uid,
        "title": title,
        "tags": ["paternoster", "llm"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [
            {
                "type": "dashboards",
                "title": "Paternoster",
                "tags": ["paternoster"],
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": [datasource, *variables]},
        "annotations": {"list": annotations},
        "panels": place(rows),
    }


def place(rows: dict[str, list[Json]]) -> list[Json]:
    """All panels in reading order, each row under its title."""
    placed: list[Json] = []
    y = 0
    for title, panels in rows.items():
        grid = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        placed.append({"type": "row", "title": title, "collapsed": False, "gridPos": grid, "panels": []})
        x, y = 0, y + 1
        for each_panel in panels:
            width = each_panel["gridPos"]["w"]
            if x + width > COLUMNS:
                x, y = 0, y + HEIGHT
            placed.append({**each_panel, "gridPos": {**each_panel["gridPos"], "x": x, "y": y}})
            x += width
        y += HEIGHT
    return [{"id": i, **each_panel} for i, each_panel in enumerate(placed, 1)]
