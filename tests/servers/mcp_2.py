"""A server of the official SDK's 2.x line."""

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

import serving

arguments = serving.arguments()
server = MCPServer("mcp-2")


@server.tool()
def greet(name: str = "World") -> str:
    """Greet someone."""
    return f"Hello, {name}!"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("this tool always fails")


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
        app = server.streamable_http_app(json_response=arguments.json, session_idle_timeout=arguments.idle_seconds)
        serving.serve(app, "/mcp")
