// Calls a tool of an MCP server and prints its answer: hello ECHO-SERVER-COMMAND
package main

// #cgo LDFLAGS: -lmcpconn
// #include <mcpconn.h>
// #include <stdlib.h>
import "C"

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"unsafe"
)

// Text for the library, in memory of C: it is gone when free is called.
func str(text string) (s C.mcpconn_str, free func()) {
	bytes := C.CString(text)
	return C.mcpconn_str{ptr: bytes, len: C.size_t(len(text))}, func() { C.free(unsafe.Pointer(bytes)) }
}

func goString(s C.mcpconn_str) string {
	return C.GoStringN(s.ptr, C.int(s.len))
}

func check(status C.mcpconn_status, failure *C.mcpconn_error) error {
	if status >= 0 {
		return nil
	}
	defer C.mcpconn_error_free(failure)
	return errors.New(goString(C.mcpconn_error_message(failure)))
}

func callEcho(command string) (string, error) {
	config, err := json.Marshal(map[string]any{
		"mcpServers": map[string]any{"demo": map[string]any{"command": command}},
	})
	if err != nil {
		return "", err
	}
	servers, freeServers := str(string(config))
	defer freeServers()
	domain, freeDomain := str("deployment")
	defer freeDomain()
	server, freeServer := str("demo")
	defer freeServer()
	tool, freeTool := str("echo")
	defer freeTool()
	arguments, freeArguments := str(`{"text": "hello"}`)
	defer freeArguments()

	var client *C.mcpconn_client
	var failure *C.mcpconn_error
	status := C.mcpconn_client_new(nil, &client, &failure)
	if err := check(status, failure); err != nil {
		return "", err
	}
	defer C.mcpconn_client_free(client)
	status = C.mcpconn_client_configure(client, domain, servers, nil, &failure)
	if err := check(status, failure); err != nil {
		return "", err
	}
	var call C.uint64_t
	status = C.mcpconn_client_call_tool(client, nil, server, tool, arguments, nil, &call, &failure)
	if err := check(status, failure); err != nil {
		return "", err
	}
	for {
		if err := check(C.mcpconn_client_wait(client, C.MCPCONN_FOREVER), nil); err != nil {
			return "", err
		}
		var event *C.mcpconn_event
		for C.mcpconn_client_next_event(client, &event) == C.MCPCONN_OK {
			id, kind := C.mcpconn_event_id(event), C.mcpconn_event_kind(event)
			text := goString(C.mcpconn_event_text(event))
			C.mcpconn_event_free(event)
			if id == call && kind == C.MCPCONN_EVENT_RESULT {
				return text, nil
			}
			if id == call && kind == C.MCPCONN_EVENT_ERROR {
				return "", errors.New(text)
			}
		}
	}
}

func main() {
	command := ""
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	text, err := callEcho(command)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
	fmt.Println(text)
}
