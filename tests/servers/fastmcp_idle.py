"""A FastMCP server over Streamable HTTP that ends sessions which were idle for some seconds.

Usage: fastmcp_idle.py [--idle-seconds N] [--sse]

Prints one line, `listening on URL`, once it accepts connections.
"""

import argparse

import uvicorn
from mcp.server.fastmcp import FastMCP


class AnnouncingServer(uvicorn.Server):
    """Says where it listens as soon as it does, so that nobody has to guess or poll."""

    async def startup(self, sockets=None):
        await super().startup(sockets=sockets)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        print(f"listening on http://{host}:{port}/mcp", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--idle-seconds", type=float, default=3.0)
    parser.add_argument("--sse", action="store_true", help="answer POSTs with SSE instead of JSON")
    arguments = parser.parse_args()

    server = FastMCP("IdleTimeoutDemo", json_response=not arguments.sse, session_idle_timeout=arguments.idle_seconds)

    @server.tool()
    def greet(name: str = "World") -> str:
        """Greet someone."""
        return f"Hello, {name}!"

    app = server.streamable_http_app()
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1)
    AnnouncingServer(config).run()


if __name__ == "__main__":
    main()
