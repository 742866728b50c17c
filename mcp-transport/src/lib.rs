//! MCP transports, and one client session over them.
