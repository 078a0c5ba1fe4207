"""One run of ``paternoster bench offline``: from its flags to the report, at one pace or at several."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paternoster_contract.cli.terminal import print_json, print_text
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.bench.offline import Offline
from paternoster_load.reports.charts import load_page
from paternoster_load.reports.goodput import Goodput
from paternoster_load.reports.html import write_page
from paternoster_load.reports.report import format_report, list_details
from paternoster_load.reports.sweep import format_sweep, sweep_page
from paternoster_load.session import Pace, check_percentiles
from paternoster_load.traffic import Traffic


@dataclass
class OfflineSession:
    """Settings of a run, checked; :meth:`run` carries it out."""

    options: argparse.Namespace
    args: EngineArgs
    traffic: Traffic
    paces: list[Pace]
    goodput: Goodput | None

    @classmethod
    def from_namespace(cls, options: argparse.Namespace, args: EngineArgs) -> "OfflineSession":
        """Check everything before the model is loaded; raises :class:`ValueError`."""
        check_percentiles(options.metric_percentiles)
        traffic = Traffic.from_namespace(options)
        paces = Pace.list_points(options)
        for pace in paces:
            traffic.list_timed(pace.request_rate)
        goodput = Goodput.parse(options.goodput) if options.goodput else None
        return cls(options, args, traffic, paces, goodput)

    def run(self) -> list[dict[str, Any]]:
        """Serve the traffic, print and write what was asked for, and return a result document for each pace."""
        options = self.options
        offline = Offline.load(options, self.args, self.traffic)
        offline.warm_up()
        runs = [
            offline.run("requests", pace=pace, live_cap=self.args.live_cap, goodput=self.goodput) for pace in self.paces
        ]
        reports = [report for report, _ in runs]
        single = len(reports) == 1
        if options.json:
            print_json(reports[0] if single else {"sweep": reports}, indent=2)
        else:
            print_text(format_report(reports[0]) if single else format_sweep(reports))
        if options.save_result:
            whole = [{**report, **(list_details(of) if options.save_detailed else {})} for report, of in runs]
            text = json.dumps(whole[0] if single else {"sweep": whole}, indent=2) + "\n"
            Path(options.save_result).write_text(text, encoding="utf-8")
        if options.html:
            write_page(options.html, load_page(*runs[0]) if single else sweep_page(reports))
        return reports
