"""``paternoster bench offline``: the same traffic through an engine in this process."""

import argparse

from paternoster_engine.commands.bench.serve_flags import add_serve_flags, read_serve_flags
from paternoster_load.commands.outcome import finish_command
from paternoster_load.commands.traffic_flags import add_pace_flags, add_report_flags, add_traffic_flags

HELP = "the same traffic through an engine in this process, with no HTTP around it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_pace_flags(parser)
    add_traffic_flags(parser)
    add_report_flags(parser)
    add_serve_flags(parser)


def run(args: argparse.Namespace) -> int:
    def run_session() -> int:
        from paternoster_engine.bench.offline_session import OfflineSession

        engine_args = read_serve_flags("paternoster bench offline", args.serve_flags)
        reports = OfflineSession.from_namespace(args, engine_args).run()
        return 1 if any(report["lost"] for report in reports) else 0

    return finish_command("paternoster bench offline", run_session)
