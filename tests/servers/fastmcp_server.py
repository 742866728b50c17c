"""A server of the package fastmcp, which lists its tools in pages of two."""

from fastmcp import Context, FastMCP

import serving

arguments = serving.arguments()
server = FastMCP("fastmcp", list_page_size=2)


@server.tool
def greet(name: str = "World") -> str:
    """Greet someone."""
    return f"Hello, {name}!"


@server.tool
def fail() -> str:
    """Fail."""
    raise RuntimeError("this tool always fails")


@server.tool
async def work(steps: int, context: Context) -> str:
    """Work for some steps, with progress."""
    return await serving.work(steps, context.report_progress, arguments.log)


match arguments.over:
    case "stdio":
        server.run(show_banner=False)
    case "sse":
        serving.serve(server.http_app(path="/sse", transport="sse"), "/sse")
    case "http":
        idle = arguments.idle_seconds
        app = server.http_app(path="/mcp", json_response=arguments.json, session_idle_timeout=idle)
        serving.serve(app, "/mcp")
