// Calls a tool of an MCP server and prints its answer:  hello ECHO-SERVER-COMMAND
#include <mcpconn.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

template <auto Free> struct Deleter {
    template <typename T> void operator()(T *handle) const { Free(handle); }
};
using Client = std::unique_ptr<mcpconn_client, Deleter<mcpconn_client_free>>;
using Event = std::unique_ptr<mcpconn_event, Deleter<mcpconn_event_free>>;
using Error = std::unique_ptr<mcpconn_error, Deleter<mcpconn_error_free>>;

static std::string_view view(mcpconn_str str) { return {str.ptr, str.len}; }
static mcpconn_str str(std::string_view text) { return {text.data(), text.size()}; }

/* Calls a function that takes an error's address last, and throws the error. */
template <typename Call> static void check(Call call)
{
    mcpconn_error *error = nullptr;
    const mcpconn_status status = call(&error);
    const Error owned(error);
    if (status < 0)
        throw std::runtime_error(std::string(view(mcpconn_error_message(error))));
}

static Event next_event(mcpconn_client *client)
{
    for (;;) {
        mcpconn_event *event = nullptr;
        switch (mcpconn_client_next_event(client, &event)) {
        case MCPCONN_OK:
            return Event(event);
        case MCPCONN_EMPTY:
            mcpconn_client_wait(client, MCPCONN_FOREVER);
            break;
        default:
            throw std::runtime_error("the client is closed");
        }
    }
}

int main(int argc, char **argv)
try {
    const std::string command = argc > 1 ? argv[1] : "";
    const std::string servers = R"({"mcpServers": {"demo": {"command": ")" + command + R"("}}})";
    mcpconn_client *made = nullptr;
    std::uint64_t call = 0;

    check([&](auto err) { return mcpconn_client_new(nullptr, &made, err); });
    const Client client(made);
    check([&](auto err) {
        return mcpconn_client_configure(made, MCPCONN_DEPLOYMENT, str(servers), nullptr, err);
    });
    check([&](auto err) {
        return mcpconn_client_call_tool(made, nullptr, str("demo"), str("echo"), str(R"({"text": "hello"})"), nullptr,
                                        &call, err);
    });
    for (;;) {
        const Event event = next_event(made);
        if (mcpconn_event_id(event.get()) != call)
            continue;
        if (mcpconn_event_kind(event.get()) == MCPCONN_EVENT_ERROR)
            throw std::runtime_error(std::string(view(mcpconn_event_text(event.get()))));
        if (mcpconn_event_kind(event.get()) == MCPCONN_EVENT_RESULT) {
            std::cout << view(mcpconn_event_text(event.get())) << '\n';
            return 0;
        }
    }
} catch (const std::exception &error) {
    std::cerr << "hello: " << error.what() << '\n';
    return 1;
}
