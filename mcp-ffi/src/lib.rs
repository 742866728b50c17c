//! The MCP client and its C face.
