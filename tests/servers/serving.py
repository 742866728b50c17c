"""How the servers in Python are started, whatever SDK they are built with.

Usage: SERVER [--log FILE] stdio | sse | http [--idle-seconds N] [--json]

Over HTTP a server takes a free port and prints one line, `listening on URL`, once it accepts connections. With
--idle-seconds it ends sessions that were idle for so long; with --json it answers POSTs with JSON instead of SSE.
"""

import argparse
import logging

import anyio
import uvicorn


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", help="append a line here for each call that was cancelled")
    parser.add_argument("over", choices=["stdio", "sse", "http"])
    parser.add_argument("--idle-seconds", type=float)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


async def work(steps: int, report_progress, log: str | None) -> str:
    """What each server's tool of this name does: takes 50 ms a step, and notes that it was cancelled."""
    try:
        for step in range(steps):
            await anyio.sleep(0.05)
            await report_progress(step + 1, steps)
    except anyio.get_cancelled_exc_class():
        if log:
            with open(log, "a") as file:
                print("cancelled work", file=file)
        raise
    return f"worked {steps} steps"


class Announcing(uvicorn.Server):
    """Says where it listens as soon as it does, so that nobody has to guess or poll."""

    def __init__(self, app, path: str) -> None:
        super().__init__(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1))
        self.path = path

    async def startup(self, sockets=None):
        await super().startup(sockets=sockets)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        print(f"listening on http://{host}:{port}{self.path}", flush=True)


def serve(app, path: str) -> None:
    # One line for each thing said, whatever the SDK would make of it: the end of an idle session is waited for.
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
    Announcing(app, path).run()
