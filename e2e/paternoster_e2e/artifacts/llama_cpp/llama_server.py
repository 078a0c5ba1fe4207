#!/usr/bin/python3
"""llama.cpp's server with the flags of upstream's program that a manifest needs.

The server runs in threads of this process. At SIGTERM it ends with its requests, as upstream's does.
"""

import argparse
import os
import signal

import xllamacpp  # type: ignore[import-not-found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--ctx-size", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--metrics", action="store_true")
    given = parser.parse_args()
    # The first process of a container has no default action.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    params = xllamacpp.CommonParams()
    params.hostnames, params.port = [given.host], given.port
    params.model.path, params.model_alias = given.model, {given.alias}
    params.n_parallel, params.n_ctx = given.parallel, given.ctx_size
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = given.threads
    params.endpoint_metrics, params.ui = given.metrics, False
    server = xllamacpp.Server(params)
    print(f"serving {given.alias} on {server.listening_address}", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
