"""A server of the official SDK's 1.x line."""

from mcp.server.fastmcp import Context, FastMCP

import serving

arguments = serving.arguments()
server = FastMCP("mcp-1", json_response=arguments.json, session_idle_timeout=arguments.idle_seconds)


@server.tool()
def greet(name: str = "World") -> str:
    """Greet someone."""
    return f"Hello, {name}!"


@server.tool()
def fail() -> str:
    """Fail."""
    raise RuntimeError("this tool always fails")


@server.tool()
async def work(steps: int, context: Context) -> str:
    """Work for some steps, with progress."""
    return await serving.work(steps, context.report_progress, arguments.log)


match arguments.over:
    case "stdio":
        server.run()
    case "sse":
        serving.serve(server.sse_app(), "/sse")
    case "http":
        serving.serve(server.streamable_http_app(), "/mcp")
