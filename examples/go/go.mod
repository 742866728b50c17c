module mcpconn/examples/go

go 1.21
