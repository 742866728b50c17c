/*
 * mcpconn.h: an MCP client's connections, for C and C++. Generated from mcp-ffi/src/abi/; MIT OR Apache-2.0.
 *
 * A client keeps sessions with any number of MCP servers, opens them anew when they are lost, parks a server that
 * flaps, and lends each scope a session of its own. What happens is an event; a host takes events in one of three ways
 * and may mix them: mcpconn_client_wait() in a program without a loop, mcpconn_client_next_event() or
 * mcpconn_client_dispatch() in one that polls mcpconn_client_fd().
 *
 * A server is a program, a URL or a link, under a name; a domain is whose servers they are, such as a user's or
 * tenant's, and a host that has only one calls it "deployment"; a scope is a conversation or thread, whose calls share a
 * session with each server apart from all other scopes; the home session of a server is the one of calls without a
 * scope.
 *
 * The usual order: mcpconn_client_new(), mcpconn_client_configure(), mcpconn_client_call_tool(), then until the call's
 * event came mcpconn_client_wait(), mcpconn_client_next_event() and mcpconn_event_free(), and at the end
 * mcpconn_client_free().
 *
 * Beside that, each where its functions are, in this order:
 *
 * - other requests, lists and notifications: mcpconn_client_request(), mcpconn_client_list(), mcpconn_client_notify();
 * - what servers ask (roots, sampling, elicitation): host_takes, MCPCONN_EVENT_REQUEST, mcpconn_client_answer();
 * - credentials: MCPCONN_EVENT_CREDENTIALS_NEEDED, mcpconn_client_set_header();
 * - how it stands with servers, and trying again: mcpconn_client_server_info(), mcpconn_client_wake();
 * - closing sessions, at once or gently: mcpconn_client_close_scope(), mcpconn_client_drain_scope() and their like;
 * - a status page: mcpconn_client_status();
 * - links, whose bytes the host moves, be it over a socket, a serial line or a web worker: mcpconn_link;
 * - no client at all, for a host that has one: mcpconn_budget, when to try again, and mcpconn_pool, who may use which
 *   session.
 *
 * Threads    [any]: any thread at any time, also from inside a callback. [one]: one thread at a time; a client answers
 *            MCPCONN_ERR_BUSY to a second one, a budget does not look. Only mcpconn_client_wait() and
 *            mcpconn_client_free() block. A client works without the host: a thread of its own does its input and output
 *            whenever no thread of the host's is inside mcpconn_client_wait(). Callbacks run inside mcpconn_client_dispatch() alone, on its thread, but for
 *            mcpconn_free_fn, which runs on any.
 * Ownership  A handle that comes through an out-parameter is the host's and goes through its own _free, never
 *            free(); a mcpconn_str got from a handle lives as long as the handle. What a function is given is only
 *            read during the call. Every _free takes NULL.
 * Errors     A function that can fail returns a mcpconn_status and, where it has an err and that is not NULL, a
 *            mcpconn_error through it. Outputs are written on success only, unless the function says otherwise, err on
 *            failure only: begin with NULL, and look at err in a statement after the call, for the arguments of one
 *            expression are evaluated in any order.
 * Signals    Neither threads of the library nor its writes ever raise or take a signal of the host; SIGCHLD is not
 *            touched. A child process that it starts has a session of its own and default signals.
 * Fork       In a forked child every call with a client, a link or a pool of the parent that can fail does so with
 *            MCPCONN_ERR_FORKED; their _free is fine. A budget is memory alone, and goes on.
 */
#ifndef MCPCONN_H
#define MCPCONN_H


#include <stddef.h>
#include <stdint.h>



// As a time: without end.
#define MCPCONN_FOREVER UINT64_MAX

// In host_takes: roots/list.
#define MCPCONN_TAKES_ROOTS 1

// In host_takes: sampling/createMessage.
#define MCPCONN_TAKES_SAMPLING 2

// In host_takes: sampling/createMessage that gives the model tools.
#define MCPCONN_TAKES_SAMPLING_TOOLS 4

// In host_takes: sampling/createMessage that asks for the context of other servers.
#define MCPCONN_TAKES_SAMPLING_CONTEXT 8

// In host_takes: elicitation/create with a form to fill in.
#define MCPCONN_TAKES_ELICITATION_FORM 16

// In host_takes: elicitation/create with a URL to open.
#define MCPCONN_TAKES_ELICITATION_URL 32

// In host_takes: log messages, MCPCONN_EVENT_LOG.
#define MCPCONN_TAKES_LOGS 64

// In host_takes: notifications that no event of their own stands for, MCPCONN_EVENT_NOTIFICATION.
#define MCPCONN_TAKES_NOTIFICATIONS 128

// In host_takes: what happens to scoped sessions, MCPCONN_EVENT_SESSION.
#define MCPCONN_TAKES_SESSIONS 256

// In flags of a client's options: starts no guardian, a small process, begun with the first child process, that ends
// what is left of those when this process ends without closing its clients, in whatever way. Without it the kernel
// still kills each server then, but nobody ends what a server has started itself (the real server behind an npx, a
// browser), nor is a server asked to end before it is killed. Closing and freeing the client leave nothing behind
// either way.
#define MCPCONN_CLIENT_NO_GUARDIAN 1

// The values of a mcpconn_status.
typedef enum {
  // Good.
  MCPCONN_OK = 0,
  // Good, but there is nothing there (any more).
  MCPCONN_EMPTY = 1,
  // An argument is not what it must be; the text, where there is an err, says which.
  MCPCONN_ERR_INVALID = -1,
  // The configuration is not usable: bad JSON, command not found, directory missing, bad URL.
  MCPCONN_ERR_CONFIG = -2,
  // No server of that name is configured in that domain.
  MCPCONN_ERR_UNKNOWN_SERVER = -3,
  // The connection could not be made or broke.
  MCPCONN_ERR_TRANSPORT = -4,
  // The server does not speak MCP as it must, or no revision that this library speaks.
  MCPCONN_ERR_PROTOCOL = -5,
  // The server answered with a JSON-RPC error; mcpconn_error_json() has it.
  MCPCONN_ERR_SERVER = -6,
  // A deadline passed.
  MCPCONN_ERR_TIMEOUT = -7,
  // The call was cancelled.
  MCPCONN_ERR_CANCELED = -8,
  // Every session is busy and the pool is full, too many calls are in flight, or a link takes nothing for now.
  MCPCONN_ERR_CAPACITY = -9,
  // The server's reconnect budget is spent; mcpconn_client_wake() tries again.
  MCPCONN_ERR_PARKED = -10,
  // The server wants credentials.
  MCPCONN_ERR_AUTH = -11,
  // The client, the session, the link or the pool is closed.
  MCPCONN_ERR_CLOSED = -12,
  // Another thread is taking this client's events; one may at a time.
  MCPCONN_ERR_BUSY = -13,
  // This side lacks something: descriptors, memory, processes, a network.
  MCPCONN_ERR_LOCAL = -14,
  // The handle was made before a fork, and this is the child.
  MCPCONN_ERR_FORKED = -15,
  // A fault of this library. Of an event: that call alone. Returned by a function: the handle only takes its _free
  // any more.
  MCPCONN_ERR_INTERNAL = -16,
  // The server is not tried now: the next attempt to connect lies beyond the call's deadline, or it did not answer
  // the last calls and gets a minute's rest. mcpconn_error_next_try_in_ms() says when to come again.
  MCPCONN_ERR_WAITING = -17,
} mcpconn_status_code;

// What is known of a call that ended with an error. The first two are safe to send again.
typedef enum {
  // The call never left: the server cannot have run it.
  MCPCONN_OUTCOME_NOT_SENT = 1,
  // The server refused it before running it.
  MCPCONN_OUTCOME_REJECTED = 2,
  // The server answered.
  MCPCONN_OUTCOME_ANSWERED = 3,
  // It was sent and no answer came: it may have run.
  MCPCONN_OUTCOME_UNKNOWN = 4,
} mcpconn_outcome;

// The kinds of events. Values may be added: a program ignores those that it does not know.
typedef enum {
  // A call was answered: mcpconn_event_json() has the result, mcpconn_event_text() its text. It ends the call.
  MCPCONN_EVENT_RESULT = 1,
  // A call failed: mcpconn_event_error() has why. It ends the call.
  MCPCONN_EVENT_ERROR = 2,
  // A call reports progress: mcpconn_event_json() has the params of the notification. A host that is slow to take
  // them gets the newest.
  MCPCONN_EVENT_PROGRESS = 3,
  // A server asks something of the host: mcpconn_event_method() says what, mcpconn_event_json() has the params. The
  // host says mcpconn_client_answer() or mcpconn_client_refuse() to mcpconn_event_id(), at any time and from any
  // thread, also from inside the callback. What it has not answered after five minutes is refused. Only what the
  // host takes comes (host_takes of the client's options), and a 65th request of one session while 64 are open is
  // refused at once.
  MCPCONN_EVENT_REQUEST = 4,
  // Nobody waits any more for the answer to the request of this mcpconn_event_id(): the server cancelled it, its
  // session ended, or its time is over; mcpconn_event_text() says which. It comes after its MCPCONN_EVENT_REQUEST, at
  // most once, and never for a request that the host has answered; a request that was not taken yet is taken back
  // without a word.
  MCPCONN_EVENT_REQUEST_WITHDRAWN = 5,
  // A server wants credentials, or others than those it was shown: mcpconn_client_set_header() gives them.
  // mcpconn_event_json() has what it asks for: an object with "status" (401 for credentials, 403
  // for such with more rights, 0 if that is not known) and "challenges", an array of objects with the "scheme" of
  // each and its parameters as they came ("realm", "scope", "resource_metadata", "error" …). It is the server's
  // word.
  //
  // Said once, however many calls are refused, until the host gives something else or calls are answered again. The
  // calls fail with MCPCONN_ERR_AUTH and the outcome MCPCONN_OUTCOME_REJECTED or MCPCONN_OUTCOME_NOT_SENT; they do
  // not wait for the host, who makes them again. Only one whose refusal comes after new credentials were given is
  // sent again by itself.
  MCPCONN_EVENT_CREDENTIALS_NEEDED = 6,
  // A server changed its state: mcpconn_event_server_info() has it, mcpconn_event_text() says it for a person. Of
  // one session a host that is slow to take them gets the newest. Of a server that another configuration replaced nothing
  // more is told.
  MCPCONN_EVENT_SERVER_STATE = 7,
  // A list of a server's is new: mcpconn_event_list() says which. The tools were asked for again and are in
  // mcpconn_client_tools(); the others are for the host to list, resources standing for their templates too. Of one
  // list a host that is slow to take them gets the newest, and a server that changes without rest is heard once in a
  // while.
  MCPCONN_EVENT_CATALOGUE_CHANGED = 8,
  // A resource that the host subscribed to (resources/subscribe) may have changed: mcpconn_event_json() has the
  // params of the notification, with its "uri", which mcpconn_event_text() is.
  MCPCONN_EVENT_RESOURCE_UPDATED = 9,
  // A server logs something: mcpconn_event_json() has the params of the notification ("level", "logger", "data"),
  // mcpconn_event_text() logger and data for a person, mcpconn_event_log_level() how grave it is. Only for a host
  // that takes it (MCPCONN_TAKES_LOGS); how much a server logs is asked for by the request logging/setLevel.
  MCPCONN_EVENT_LOG = 10,
  // The host was slow, and the oldest of a server's log messages, resource updates and other notifications were
  // dropped, of which at most 1,024 wait for each server: mcpconn_event_json() is an object that counts them ("logs",
  // "resource_updates", "notifications"). It comes where they would have come.
  MCPCONN_EVENT_DROPPED = 11,
  // The host is asked to open a link: mcpconn_event_link() has it, mcpconn_event_server() the server,
  // mcpconn_event_json() what the configuration has for the host ("link" in the server's "mcpconn", else null).
  // mcpconn_link says what follows.
  MCPCONN_EVENT_LINK_OPEN = 12,
  // mcpconn_event_json() has bytes to write to a link, whole with the newline that ends each message, or one message
  // with "framing": "message". Until the event is taken, the library may take it back. mcpconn_event_token() has what
  // mcpconn_link_set_token() attached.
  MCPCONN_EVENT_LINK_SEND = 13,
  // The host is asked to close a link, what was written before gone or not, and says mcpconn_link_closed() when it
  // is done: whoever closes waits for that, within the close timeout. It is the last event of the link. It comes once
  // for each link that the host was asked to open and has not said to be closed itself, and before
  // MCPCONN_EVENT_CLOSED; but not where the client is freed without taking its events.
  MCPCONN_EVENT_LINK_CLOSE = 14,
  // The client is closed. It is the last event.
  MCPCONN_EVENT_CLOSED = 15,
  // Something happened to a scoped session: mcpconn_event_session_info() has what, mcpconn_event_text() says it for a
  // person. It comes only to a host that takes it (MCPCONN_TAKES_SESSIONS). Of one session a host that is slow to take
  // them gets the newest.
  MCPCONN_EVENT_SESSION = 16,
  // Any other notification of a server: mcpconn_event_method() says which, mcpconn_event_json() has its params. Only
  // for a host that takes them (MCPCONN_TAKES_NOTIFICATIONS); one that takes elicitation with a URL
  // gets notifications/elicitation/complete without that.
  MCPCONN_EVENT_NOTIFICATION = 17,
  // The link takes what comes from the server again, after mcpconn_link_received() answered MCPCONN_ERR_CAPACITY.
  MCPCONN_EVENT_LINK_RESUME = 18,
} mcpconn_event_code;

// The state of a server's home session and its reconnect budget.
typedef enum {
  // Not connected; the next call connects.
  MCPCONN_STATE_IDLE = 1,
  // An attempt is under way.
  MCPCONN_STATE_CONNECTING = 2,
  // Connected, but it has not yet answered a request of the host: a handshake proves nothing.
  MCPCONN_STATE_UNPROVEN = 3,
  // Connected, and it answered a request of the host.
  MCPCONN_STATE_PROVEN = 4,
  // Lost; next_try_in_ms says when the next attempt comes.
  MCPCONN_STATE_WAITING = 5,
  // The budget is spent. Only mcpconn_client_wake() or a slow probe tries again.
  MCPCONN_STATE_PARKED = 6,
  // It is not tried any more: it was removed, the client closes, its configuration is unusable, or a fault of this
  // library ended it.
  MCPCONN_STATE_STOPPED = 7,
} mcpconn_state;

// What brought a server into its state.
typedef enum {
  // Nobody has wanted a home session yet.
  MCPCONN_REASON_FRESH = 1,
  // A call or the host wants it.
  MCPCONN_REASON_WANTED = 2,
  // The backoff of an earlier failure is over.
  MCPCONN_REASON_RETRY = 3,
  // A parked server is probed.
  MCPCONN_REASON_PROBE = 4,
  // The host woke it.
  MCPCONN_REASON_WOKEN = 5,
  // The handshake succeeded.
  MCPCONN_REASON_OPENED = 6,
  // It gave proof: it answered a request of the host.
  MCPCONN_REASON_ANSWERED = 7,
  // The attempt failed.
  MCPCONN_REASON_FAILED = 8,
  // The session was lost.
  MCPCONN_REASON_LOST = 9,
  // This side lacks something: descriptors, memory, processes, a network.
  MCPCONN_REASON_LOCAL = 10,
  // The session ended as sessions do: idle close or expiry.
  MCPCONN_REASON_ENDED = 11,
  // More failures without proof than the budget allows.
  MCPCONN_REASON_SPENT = 12,
  // It never connected, in as many attempts as are allowed for that.
  MCPCONN_REASON_NEVER_CONNECTED = 13,
  // Trying again cannot help.
  MCPCONN_REASON_PERMANENT = 14,
  // Credentials are needed.
  MCPCONN_REASON_AUTH = 15,
  // Lost, and the policy allows no reconnect at all.
  MCPCONN_REASON_NO_RETRIES = 16,
  // A fault of this library ended it.
  MCPCONN_REASON_FATAL = 17,
  // It was removed, or the client closes.
  MCPCONN_REASON_SHUTDOWN = 18,
  // None of the above: the library is newer than the header.
  MCPCONN_REASON_OTHER = 99,
} mcpconn_reason;

// The lists of a server.
typedef enum {
  // tools/list.
  MCPCONN_LIST_TOOLS = 1,
  // resources/list.
  MCPCONN_LIST_RESOURCES = 2,
  // resources/templates/list.
  MCPCONN_LIST_RESOURCE_TEMPLATES = 3,
  // prompts/list.
  MCPCONN_LIST_PROMPTS = 4,
} mcpconn_list_code;

// How grave a log message is, as in RFC 5424; the greater, the graver.
typedef enum {
  // Details for who looks for a fault.
  MCPCONN_LOG_DEBUG = 1,
  // What is done.
  MCPCONN_LOG_INFO = 2,
  // What is worth to be noticed, and normal.
  MCPCONN_LOG_NOTICE = 3,
  // What may be wrong.
  MCPCONN_LOG_WARNING = 4,
  // What went wrong.
  MCPCONN_LOG_ERROR = 5,
  // A part of the server fails.
  MCPCONN_LOG_CRITICAL = 6,
  // Somebody must do something now.
  MCPCONN_LOG_ALERT = 7,
  // The server cannot be used.
  MCPCONN_LOG_EMERGENCY = 8,
} mcpconn_log_level;

// What happened to a scoped session.
typedef enum {
  // It opened.
  MCPCONN_SESSION_OPENED = 1,
  // No call begins on it any more; it is closed when the last one ended. Another may serve its scope meanwhile.
  MCPCONN_SESSION_DRAINING = 2,
  // It broke, expired or fell silent. The scope's next call has another opened.
  MCPCONN_SESSION_LOST = 3,
  // It left the pool, and closes.
  MCPCONN_SESSION_CLOSED = 4,
  // None of the above: the library is newer than the header.
  MCPCONN_SESSION_OTHER = 99,
} mcpconn_session_change;

// Why a scoped session that was not lost had to go.
typedef enum {
  // It was idle, and its slot was needed: "capacity" or "sessions_per_server" of pool_json.
  MCPCONN_CLOSE_DISPLACED = 1,
  // It was idle for too long: "idle_ttl_ms" of pool_json.
  MCPCONN_CLOSE_IDLE = 2,
  // It had lived for long enough: "max_lifetime_ms" of pool_json.
  MCPCONN_CLOSE_LIFETIME = 3,
  // The host closed or drained it, or closed the client.
  MCPCONN_CLOSE_HOST = 4,
  // The configuration of its server changed or went.
  MCPCONN_CLOSE_RECONFIGURED = 5,
  // None of the above: the library is newer than the header.
  MCPCONN_CLOSE_OTHER = 99,
} mcpconn_close_reason;

// What a budget is told.
typedef enum {
  // The home session is needed: it is opened as soon as may be, and kept.
  MCPCONN_BUDGET_WANTED = 1,
  // Calls wait for the home session: the delays that spare a server nobody waits for do not hold. An attempt that
  // fails clears it, for then all who wait are told.
  MCPCONN_BUDGET_CALLS_WAIT = 2,
  // No call waits for the home session any more.
  MCPCONN_BUDGET_NO_CALL_WAITS = 3,
  // A call was refused because the server is parked: its probe comes sooner.
  MCPCONN_BUDGET_CALL_REFUSED = 4,
  // Try now: ends waiting and parking for one attempt.
  MCPCONN_BUDGET_WAKE = 5,
  // The session of this generation is open. That proves nothing.
  MCPCONN_BUDGET_OPENED = 6,
  // The session of this generation answered a request of the host, also with an error.
  MCPCONN_BUDGET_PROVEN = 7,
  // The attempt of this generation failed, or its session ended; cause and not_before_ns say more.
  MCPCONN_BUDGET_LOST = 8,
  // The host closed the session of this generation, or gave its opening up: no loss and no charge.
  MCPCONN_BUDGET_CLOSED = 9,
  // It is over: nothing is opened any more.
  MCPCONN_BUDGET_STOP = 10,
} mcpconn_budget_word;

// How grave a loss is. Of several causes that come together the gravest decides, which is the least number.
typedef enum {
  // A panic or the owner's own cancellation: never reconnect.
  MCPCONN_CAUSE_FATAL = 1,
  // Credentials are needed.
  MCPCONN_CAUSE_AUTH = 2,
  // Trying again cannot help: command missing, bad URL, no MCP server.
  MCPCONN_CAUSE_PERMANENT = 3,
  // It broke; trying again may help.
  MCPCONN_CAUSE_TRANSIENT = 4,
  // The fault is on our side: descriptors, memory, no network. It costs no charge.
  MCPCONN_CAUSE_LOCAL = 5,
  // A normal end after a proven life, such as expiry. It costs no charge.
  MCPCONN_CAUSE_ROUTINE = 6,
} mcpconn_cause;

// What a budget answers to do.
typedef enum {
  // Open a session, and tell MCPCONN_BUDGET_OPENED or MCPCONN_BUDGET_LOST with its generation.
  MCPCONN_ACTION_CONNECT = 1,
  // Ask the home session for any answer, and tell MCPCONN_BUDGET_PROVEN or MCPCONN_BUDGET_LOST.
  MCPCONN_ACTION_PROBE = 2,
} mcpconn_action_code;

// What a pool answers to do.
typedef enum {
  // Open a session: session_id, epoch, domain, server and scope say which. Then tell mcpconn_pool_opened() or
  // mcpconn_pool_failed().
  MCPCONN_POOL_OPEN = 1,
  // Nobody wants the session any more that is being opened: stop, if that can be, and tell mcpconn_pool_failed() or
  // mcpconn_pool_closed() when it is over. If it opens all the same, mcpconn_pool_opened() answers MCPCONN_EMPTY.
  MCPCONN_POOL_STOP_OPENING = 2,
  // Close session at once, also if calls run on it: they are to end as closed. Then tell mcpconn_pool_closed().
  // reason says why.
  MCPCONN_POOL_CLOSE = 3,
  // The request of token may call session. Then tell mcpconn_pool_release() with request_id.
  MCPCONN_POOL_GIVE = 4,
  // The request of token gets no session; status, reason and text say why. Nothing reached any session, and there is
  // nothing to release.
  MCPCONN_POOL_REFUSE = 5,
} mcpconn_pool_action_code;

// Why a request is refused, or why a session has to go.
typedef enum {
  // Every slot is taken by a session with a call in flight, or promised to those who wait: busy of limit. For a
  // request that waited: still, at its deadline.
  MCPCONN_POOL_REASON_CAPACITY = 1,
  // Every slot that the server may have is taken by a session with a call in flight: busy of limit.
  MCPCONN_POOL_REASON_SERVER_CAPACITY = 2,
  // The session has all the calls that it may have at a time: busy of limit.
  MCPCONN_POOL_REASON_SATURATED = 3,
  // The host could not open the session; status is what it said.
  MCPCONN_POOL_REASON_FAILED = 4,
  // The configuration of the server changed or was removed.
  MCPCONN_POOL_REASON_STALE = 5,
  // An explicit close, or the pool is shut down. Of a request also: its session died before it could be given.
  MCPCONN_POOL_REASON_CLOSED = 6,
  // mcpconn_pool_cancel().
  MCPCONN_POOL_REASON_CANCELED = 7,
  // The session was idle, and its slot was needed.
  MCPCONN_POOL_REASON_DISPLACED = 8,
  // The session was idle for longer than idle_ttl_ms.
  MCPCONN_POOL_REASON_IDLE = 9,
  // The session lived for longer than max_lifetime_ms.
  MCPCONN_POOL_REASON_LIFETIME = 10,
  // The host said that the session is dead.
  MCPCONN_POOL_REASON_DEAD = 11,
  // A drain: no call was left on the session, or its deadline came.
  MCPCONN_POOL_REASON_DRAINED = 12,
  // Nobody waits for the opening any more.
  MCPCONN_POOL_REASON_ABANDONED = 13,
  // The session opened, and every slot had become busy meanwhile.
  MCPCONN_POOL_REASON_NO_SLOT = 14,
  // None of the above: the library is newer than the header.
  MCPCONN_POOL_REASON_OTHER = 99,
} mcpconn_pool_reason;

// What mcpconn_pool_close() closes and mcpconn_pool_drain() drains. Sessions that are being opened are always meant too.
typedef enum {
  // The sessions of one scope of a domain with all servers.
  MCPCONN_POOL_TARGET_SCOPE = 1,
  // The sessions of all scopes of a domain with one server.
  MCPCONN_POOL_TARGET_SERVER = 2,
  // The session of one scope with one server, and what drains of it.
  MCPCONN_POOL_TARGET_SESSION = 3,
  // The same, only if it is the session of session_id, so that whoever comes late spares its replacement.
  MCPCONN_POOL_TARGET_SESSION_IF_CURRENT = 4,
  // All sessions of a domain.
  MCPCONN_POOL_TARGET_DOMAIN = 5,
  // All sessions.
  MCPCONN_POOL_TARGET_ALL = 6,
} mcpconn_pool_target;

// A reconnect budget of one server: told what happened and when, it answers what to do and when. It has no thread, no
// input or output, no clock and no callback; one thread at a time may use it. Every now_ns is of a monotonic clock of
// the host's, in nanoseconds; one that lies before the last is taken as the last. It goes through
// mcpconn_budget_free().
typedef struct mcpconn_budget mcpconn_budget;

// A client: its servers, their sessions, and one queue of events. It goes through mcpconn_client_free().
typedef struct mcpconn_client mcpconn_client;

// What went wrong. One that comes through an out-parameter is the host's and goes through mcpconn_error_free();
// one got from an event lives as long as the event.
typedef struct mcpconn_error mcpconn_error;

// What happened. One that came from mcpconn_client_next_event() is the host's: it owns what it says, may be kept,
// given to another thread and freed after its client, and goes through mcpconn_event_free(). One that a callback
// was given is the library's and is gone when the callback returns. Every mcpconn_str got from it lives as long as
// it does.
typedef struct mcpconn_event mcpconn_event;

// A link to a server, whose bytes the host moves. It carries one session: a lost one is followed by another link, by
// the rules by which any server is opened anew, and each scope has its own.
//
// 1. MCPCONN_EVENT_LINK_OPEN asks for it. The host takes the handle by mcpconn_event_link(), attaches what it knows the
//    link by with mcpconn_link_set_token(), connects, and says mcpconn_link_opened(), at once or later; or
//    mcpconn_link_closed() with the reason.
// 2. Each MCPCONN_EVENT_LINK_SEND has bytes to write. mcpconn_link_sent() says that they have gone: all, or as many
//    as have. Bytes that came are given to mcpconn_link_received().
// 3. The link ends by mcpconn_link_closed(), the host's word that it is closed: when it broke, or as the answer to
//    MCPCONN_EVENT_LINK_CLOSE. Then mcpconn_link_free() gives the handle back.
//
// A host with a socket for each link, which it polls beside mcpconn_client_fd(), takes events like this:
//
//   case MCPCONN_EVENT_LINK_OPEN:
//     conn = connect_to(mcpconn_event_json(event));
//     mcpconn_event_link(event, &conn->link);
//     mcpconn_link_set_token(conn->link, (uint64_t)(uintptr_t)conn);
//     mcpconn_link_opened(conn->link);
//     break;
//   case MCPCONN_EVENT_LINK_SEND:
//     conn = (struct conn *)(uintptr_t)mcpconn_event_token(event);
//     bytes = mcpconn_event_json(event);
//     write_all(conn->fd, bytes.ptr, bytes.len);
//     mcpconn_link_sent(conn->link, bytes.len);
//     break;
//   case MCPCONN_EVENT_LINK_CLOSE:
//     conn = (struct conn *)(uintptr_t)mcpconn_event_token(event);
//     close(conn->fd);
//     mcpconn_link_closed(conn->link, MCPCONN_OK, mcpconn_cstr(""));
//     mcpconn_link_free(conn->link);
//     free(conn);
//     break;
//
// and gives what it reads to mcpconn_link_received(); at the end of the stream it closes and frees as above. After
// mcpconn_link_closed() no event of the link is given any more. The library sends over a link on its own too (the
// handshake, the list of tools): a link works only while the host takes events.
//
// A handle is the host's until it is freed, whatever becomes of link and client: when the link is over, or the client
// is freed, each function answers MCPCONN_ERR_CLOSED and does nothing, from whichever thread it comes, and late bytes
// touch no other link.
typedef struct mcpconn_link mcpconn_link;

// A pool of sessions that the host opens and closes itself, whatever they are: which session a call may use, which one
// has to go when there is no room, and who is next. It has no thread, no input or output, no clock and no callback.
//
// The host binds the servers, asks for sessions with mcpconn_pool_acquire(), and reports what became of what it was told
// to do. What there is to do comes out of mcpconn_pool_next(): ask it after every word until it answers MCPCONN_EMPTY,
// and again at the time that it then says.
//
// The rules:
//
// - A session is pooled under a domain, a server and a scope. Whoever asks for one that is there is given it, busy or
//   not; whoever asks for one that is being opened joins those who wait for it: one opening, one answer for all.
// - Every request that mcpconn_pool_acquire() accepted is answered by exactly one MCPCONN_POOL_GIVE or
//   MCPCONN_POOL_REFUSE.
// - A session is busy from MCPCONN_POOL_GIVE until every call that was given it is released, and as long no want of room
//   and no limit of time takes it. Else it is idle, and the one that is idle longest makes room: only when another has
//   opened, so that an opening that fails costs nobody, and it is closed before the other is given.
// - Where every slot is busy a request is refused before anything is opened, or waits for room in order of arrival, if
//   it has a deadline; nobody who comes later overtakes it. Where every slot became busy while a session opened, all
//   who wait for that are refused, and it is closed.
// - An explicit close is immediate, and takes what is busy or being opened too. Nothing comes back from an opening that
//   was closed meanwhile. A drain lets running calls end first, and no other begins.
// - The configuration of a server is bound by mcpconn_pool_bind(). Another one closes all sessions of the old one, and
//   whoever waits for one is refused as stale; what is stale never becomes current again.
// - A session is named by its id, which is not used again: a word about an old one changes nothing, and spares the
//   session that replaced it.
//
// Any thread may use a pool at any time: each function holds a lock for the few steps of one decision, or of one for
// each session that goes. Where several threads take actions, each action goes to one of them, and nothing orders what
// they do then: one thread may close a session before another has looked at it, though that was given it first. So a
// host that frees its sessions takes actions under a lock of its own, notes there who uses which session, and frees one
// when it is closed and unused.
//
// Every now_ns is of one monotonic clock of the host's, in nanoseconds; one that lies before the last is taken as the
// last. Names are copied; an empty domain is "deployment". A pool goes through mcpconn_pool_free().
typedef struct mcpconn_pool mcpconn_pool;

// A scope: a conversation or thread whose calls share one session a server, apart from all other scopes'. Made once,
// used in any number of calls. It goes through mcpconn_scope_free().
typedef struct mcpconn_scope mcpconn_scope;

// Text that the host owns; it goes through mcpconn_text_free().
typedef struct mcpconn_text mcpconn_text;

// Text. Coming in, it is UTF-8 that is only read during the call; len is its length in bytes, or MCPCONN_NUL
// for "up to its NUL"; ptr may be NULL if len is 0. Going out, it lives as long as the handle that it was got
// from, ptr is never NULL, and text for a person and names have a NUL behind them, so that ptr is a C string; JSON has
// none, for it is the bytes that came.
typedef struct {
  // The first byte.
  const char *ptr;
  // The length in bytes, without any NUL.
  size_t len;
} mcpconn_str;

// What every function that can fail returns: 0 and above is good, below 0 is bad. The values are those of
// mcpconn_status_code; values may be added, and none is ever used again for something else.
typedef int32_t mcpconn_status;

// Hears an event, from inside mcpconn_client_dispatch() and on its thread. The event is the library's and is gone
// when the function returns. It may call every function of the client but those that take events; it must neither
// throw nor longjmp: an exception that leaves it ends the process.
typedef void (*mcpconn_event_fn)(void *user_data, const mcpconn_event *event);

// Gives user data back to the host: exactly once, on any thread, when the library needs it no more, also when the
// function that was given it failed; but not where the options as such could not be read, for which a program has
// to be wrong: no alignment, a struct_size that no version has, a member that this library is too old to know. It must
// not call the library.
typedef void (*mcpconn_free_fn)(void *user_data);

// What a client is made with. Begin with MCPCONN_CLIENT_OPTIONS_INIT; a member that is 0 has its default.
typedef struct {
  // sizeof(mcpconn_client_options), so that a later library knows what this program knew.
  size_t struct_size;
  // What the host takes of what servers say and ask on their own: any of the MCPCONN_TAKES_ flags, joined by |.
  // Servers are told when a session is opened, and what is not taken is refused at once. Default nothing.
  uint32_t host_takes;
  // Any of the MCPCONN_CLIENT_ flags, joined by |. Default none.
  uint32_t flags;
  // How long the closing of the client may take, in milliseconds. Default 3800.
  uint64_t close_timeout_ms;
  // How many bytes of what one server said may wait for the host, until it has freed the events that bear them. Over
  // that, and one message, nothing more is read from that server, and its silence is no fault then. Default 67108864
  // (64 MiB).
  uint64_t max_queued_bytes;
  // The bounds of the pool of scoped sessions, a JSON object, or empty for the defaults. What a member says by name
  // has no bound; what is absent is the default, and 0 is 0:
  //
  // "capacity": the most sessions over all domains (256). "sessions_per_server": the most of one server of one domain,
  // or "unlimited" (the default). "calls_per_session": the most calls in flight on one, or "unlimited" (the default).
  // "wait_ms": how long a call waits for room, in order of arrival and within its own deadline, where it would be
  // refused with MCPCONN_ERR_CAPACITY; or "forever" (0). "idle_ttl_ms": how long one may be idle, counted from the end
  // of its last call, or "never" for as long as it likes (1800000). "max_lifetime_ms": how long one may live; then it
  // is closed when its last call ended; or "never" (the default). "openings", "closings": how many are opened, or
  // closed and waited for, at a time (16, 32). "close_limit_ms": how long one closing is waited for (5000).
  mcpconn_str pool_json;
  // The name of the program, which servers are told (clientInfo). Only read during the call. Default "mcpconn".
  mcpconn_str client_name;
  // The version of the program, which servers are told. Default that of this library.
  mcpconn_str client_version;
  // Hears what no call's own on_event hears.
  mcpconn_event_fn on_event;
  // For on_event.
  void *user_data;
  // Gives user_data back, once the client is freed.
  mcpconn_free_fn free_user_data;
} mcpconn_client_options;

// What a call is made with. Begin with MCPCONN_CALL_OPTIONS_INIT; a member that is 0 has its default.
typedef struct {
  // sizeof(mcpconn_call_options), so that a later library knows what this program knew.
  size_t struct_size;
  // The host's own; each event of the call bears it.
  uint64_t token;
  // The most that the call may take in all, waiting for a connection included, in milliseconds, or
  // MCPCONN_FOREVER. Default 300000.
  uint64_t timeout_ms;
  // The most that may pass without progress of the call, in milliseconds, or MCPCONN_FOREVER; counted from when it was
  // sent. Default: for ever.
  uint64_t idle_timeout_ms;
  // Asks the server for progress, heard as MCPCONN_EVENT_PROGRESS, if it is not 0.
  int32_t progress;
  // If it is not 0, the call ends with an error (as a rule MCPCONN_ERR_TRANSPORT, and safe to send again) where
  // another session would take the place of one that turned out to be gone, for what the server kept for it is gone
  // too. Of two calls a host compares mcpconn_event_generation().
  int32_t same_session;
  // Hears this call's events instead of the client's on_event.
  mcpconn_event_fn on_event;
  // For on_event.
  void *user_data;
  // Gives user_data back, after the event that ends the call.
  mcpconn_free_fn free_user_data;
} mcpconn_call_options;

// How it stands with a server. Begin with MCPCONN_SERVER_INFO_INIT.
typedef struct {
  // sizeof(mcpconn_server_info), so that a later library knows what this program knew.
  size_t struct_size;
  // A mcpconn_state.
  int32_t state;
  // Why, a mcpconn_reason.
  int32_t reason;
  // Charges that stand against the reconnect budget.
  uint32_t charges;
  // Attempts to connect since it last proved itself.
  uint32_t attempt;
  // Live scoped sessions.
  uint32_t sessions;
  // Calls in flight.
  uint32_t calls;
  // Counts the sessions of the server; the newest.
  uint64_t generation;
  // When it is tried again, in milliseconds from now; 0 if that is not planned.
  uint64_t next_try_in_ms;
  // The process of the home session; -1 if it has none.
  int64_t pid;
} mcpconn_server_info;

// What a MCPCONN_EVENT_SESSION is about. Begin with MCPCONN_SESSION_INFO_INIT. Its server, domain and scope are told by
// mcpconn_event_server(), mcpconn_event_domain() and mcpconn_event_scope().
typedef struct {
  // sizeof(mcpconn_session_info), so that a later library knows what this program knew.
  size_t struct_size;
  // Names this very session, for mcpconn_client_close_session(); never 0, and never used again.
  uint64_t session_id;
  // Counts the sessions of its server; results that it answers bear the same mcpconn_event_generation().
  uint64_t generation;
  // What happened, a mcpconn_session_change.
  int32_t change;
  // Why, a mcpconn_close_reason, for MCPCONN_SESSION_DRAINING and MCPCONN_SESSION_CLOSED; else 0.
  int32_t reason;
} mcpconn_session_info;

// What is to be done, and when. Begin with MCPCONN_ACTION_INIT.
typedef struct {
  // sizeof(mcpconn_action), so that a later library knows what this program knew.
  size_t struct_size;
  // A mcpconn_action_code; 0 if there is nothing to do now.
  int32_t kind;
  // Of an attempt: its number since the last proof, from 1.
  uint32_t attempt;
  // The generation of the session that it is about; counted from 1 over all sessions of the budget.
  uint64_t generation;
  // If there is nothing to do now: when to ask again, on the host's clock; UINT64_MAX for not before something is
  // told.
  uint64_t at_ns;
} mcpconn_action;

// What a request is made with. Begin with MCPCONN_POOL_ACQUIRE_OPTIONS_INIT; a member that is 0 has its default.
typedef struct {
  // sizeof(mcpconn_pool_acquire_options), so that a later library knows what this program knew.
  size_t struct_size;
  // The host's own; the answer bears it.
  uint64_t token;
  // The configuration that the caller knows, as mcpconn_pool_bind() said it: if it is not the current one, the
  // request is refused as stale. Default: whichever is current.
  uint64_t epoch;
  // Until when it waits for room, on the host's clock, if there is none: a slot, or a place on a session that has all
  // the calls that it may have. A time that is over: not at all; MCPCONN_FOREVER: without end. Default: wait_ms of
  // pool_json. It bounds no opening: cancel what takes too long.
  uint64_t deadline_ns;
} mcpconn_pool_acquire_options;

// What is to be done, and with what. Begin with MCPCONN_POOL_ACTION_INIT. Members that the kind has no use for are 0.
typedef struct {
  // sizeof(mcpconn_pool_action), so that a later library knows what this program knew.
  size_t struct_size;
  // A mcpconn_pool_action_code; 0 if there is nothing to do now.
  int32_t kind;
  // Of a refusal, of a session to close and of an opening to stop: why, a mcpconn_pool_reason.
  int32_t reason;
  // Of a refusal: MCPCONN_ERR_CAPACITY, MCPCONN_ERR_CLOSED, MCPCONN_ERR_CANCELED, or what mcpconn_pool_failed() was
  // given.
  mcpconn_status status;
  // Of a session that is given: 1 if nobody was given it before, so that it knows nothing of its scope yet.
  int32_t fresh;
  // Whose request is answered: as mcpconn_pool_acquire() was given it.
  uint64_t token;
  // The request that is answered; once it is given a session, the call to release.
  uint64_t request_id;
  // The session that it is about. Never that of a request.
  uint64_t session_id;
  // The host's own, as mcpconn_pool_opened() was given it.
  void *session;
  // Of the session that it is about: in which configuration of its server it is to be, or was, opened, as
  // mcpconn_pool_bind() said it.
  uint64_t epoch;
  // If there is nothing to do now: when to ask again, on the host's clock; UINT64_MAX for not before something is
  // told.
  uint64_t at_ns;
  // Of a refusal for want of room: how many sessions, or calls, are busy.
  uint32_t busy;
  // Of a refusal for want of room: how many there may be.
  uint32_t limit;
  // Of the session that it is about: whose it is. It has a NUL behind it and lives, as server and scope do, until
  // mcpconn_pool_failed() or mcpconn_pool_closed() was told of the session, or the pool is freed.
  mcpconn_str domain;
  // Of the session that it is about: its server.
  mcpconn_str server;
  // Of the session that it is about: for whom it is.
  mcpconn_str scope;
  // Of a refusal: one line for a person. It has a NUL behind it and lives for ever.
  mcpconn_str text;
} mcpconn_pool_action;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// [any] The text; it has a NUL behind it. Empty for NULL.
mcpconn_str mcpconn_text_str(const mcpconn_text *text);

// [any] Frees it; NULL is fine.
void mcpconn_text_free(mcpconn_text *text);

// [any] The status, for a program to match on; MCPCONN_OK for NULL.
mcpconn_status mcpconn_error_status(const mcpconn_error *error);

// [any] What is known of the call that failed, a mcpconn_outcome; 0 for NULL.
int32_t mcpconn_error_outcome(const mcpconn_error *error);

// [any] One line for a person: what was wrong, with its name, and what to do about it. It never holds a secret of
// the configuration. It has a NUL behind it. Empty for NULL.
mcpconn_str mcpconn_error_message(const mcpconn_error *error);

// [any] The JSON-RPC error object that the server answered with, the bytes that came, for MCPCONN_ERR_SERVER; else
// empty.
mcpconn_str mcpconn_error_json(const mcpconn_error *error);

// [any] When the server is tried again, in milliseconds from when the error was made, for MCPCONN_ERR_WAITING and
// MCPCONN_ERR_PARKED; 0 if that is not known.
uint64_t mcpconn_error_next_try_in_ms(const mcpconn_error *error);

// [any] Frees an error that came through an out-parameter; NULL is fine.
void mcpconn_error_free(mcpconn_error *error);

// [any] Makes a client. It has no servers yet. options may be NULL for the defaults. It starts one thread, which
// blocks every signal.
//
// Fails with MCPCONN_ERR_INVALID for options that are not what they must be, with MCPCONN_ERR_CONFIG for a pool_json
// that is not usable, and with MCPCONN_ERR_LOCAL if there is no descriptor or no thread to be had.
mcpconn_status mcpconn_client_new(const mcpconn_client_options *options,
                                  mcpconn_client **out,
                                  mcpconn_error **err);

// [any] Makes the servers of this JSON the servers of a domain, and no others; for the first time or again: servers
// whose configuration changed are replaced, those that are not named any more are closed, all others are untouched.
// domain is whose the servers are; empty is "deployment".
//
// The JSON is what every MCP host reads: {"mcpServers": {"name": {...}}} or the inner object alone. A server is one of
//
// - a child process: "command", and if need be "args", "env" and "cwd". Of this process's environment it gets what a
//   program needs to run (PATH, HOME and their like), and beside that what "env" says. A command without a slash is
//   looked for in the PATH that it gets, one that is a relative path from "cwd". What it writes to its stderr is kept for
//   the texts of its errors, the last of it, and goes nowhere else;
// - remote: "url", "headers", and "type", which is "http" (Streamable HTTP, the default; a server that turns out to
//   speak the older HTTP+SSE is spoken to in that) or "sse" (HTTP+SSE from the start);
// - reached over a link that the host moves: "type": "host"; see mcpconn_link.
//
// In "command", "args", "env", "cwd", "url" and "headers" the library puts the value of an environment variable of this
// process in the place of ${NAME}, and what follows the :- in that of ${NAME:-default} if it is not set or empty. A
// variable that is not set and has no default makes the entry invalid.
//
// The member "mcpconn" of a server holds what is ours: "eager" (true: connect now instead of at the first call),
// "listen" (false: hold no stream open for what the server says on its own; for remote servers that count an open
// stream), "connect_timeout_ms" (60000, and 30000 for a remote server; a slow start gets twice as long at each retry,
// up to 180000), "close_timeout_ms" (3800), and "budget", an object with any of the constants that mcpconn_budget_new()
// names.
//
// For a remote server it holds as well what makes the connection: "tls", an object with "ca_file" (PEM, trusted in
// place of the platform's authorities), "cert_file" and "key_file" (PEM, shown to a server that asks); "proxy", a URL or
// "none" in place of what the environment names, with "no_proxy", a list with commas of what is reached without it;
// "deny_addresses", an array of kinds that are not connected to ("loopback", "private", "link_local", "metadata",
// "special"); and "redirects" (false: each is an error). Files are read now, by this call: after one was renewed, give
// the JSON again, and the server is "changed".
//
// For a link it holds "framing", which is "line" or "message", and "link", any JSON that the host wants to have again
// when it is to open one.
//
// report, unless NULL, gets a JSON object that says which servers were "added", "changed", "removed" and
// "unchanged", lists of their names, and which are "invalid", a list of objects with "server" and "message"; one of
// those that was there before is among the removed ones too. A server with an unusable entry does not hold up the
// others, and the answer is MCPCONN_OK all the same: look into the report. Calls to it fail with MCPCONN_ERR_CONFIG, as
// do those to a server whose command or directory turns out to be missing, which is looked for when it is started.
//
// Fails with MCPCONN_ERR_CONFIG, and changes nothing, if it is no JSON or not of that shape.
mcpconn_status mcpconn_client_configure(const mcpconn_client *client,
                                        mcpconn_str domain,
                                        mcpconn_str servers_json,
                                        mcpconn_text **report,
                                        mcpconn_error **err);

// [any] A descriptor that is readable while an event waits: poll it for reading, and do nothing else with it. It is
// the client's and is closed with it. A host that is told of edges only takes events until MCPCONN_EMPTY. When the last
// event, MCPCONN_EVENT_CLOSED, was taken, it stays readable, and whatever takes events answers MCPCONN_ERR_CLOSED: take
// it off the loop then. -1 for a client that cannot be used, NULL among them.
int mcpconn_client_fd(const mcpconn_client *client);

// [one] Waits until an event is there, and does the client's input and output on this thread meanwhile, which spares
// each call two switches of threads. Where nobody waits, a thread of the library's does it. timeout_ms is
// in milliseconds, or MCPCONN_FOREVER; with 0 it only looks.
//
// That thread takes over again when nobody has waited for 1 ms, so that one wait after the other costs no
// switch of threads. A call that is made within that time leaves with the next wait, or up to 1 ms later if none follows.
//
// MCPCONN_OK: an event is there. MCPCONN_EMPTY: the time is over. MCPCONN_ERR_CLOSED: the last event was taken.
// MCPCONN_ERR_BUSY: another thread takes events, or this is called from inside a callback. Any other below 0 is for good
// too, such as MCPCONN_ERR_INVALID for NULL: end the loop.
mcpconn_status mcpconn_client_wait(const mcpconn_client *client,
                                   uint64_t timeout_ms);

// [one] Takes the next event; it is the host's then, and goes through mcpconn_event_free(). Servers are served in
// turn, and the events of one server come in order.
//
// MCPCONN_EMPTY: there is none, and out is left as it was. MCPCONN_ERR_CLOSED: the last event was taken.
// MCPCONN_ERR_BUSY: another thread takes events, or this is called from inside a callback.
mcpconn_status mcpconn_client_next_event(const mcpconn_client *client,
                                         mcpconn_event **out);

// [one] Takes up to max events (0: all that are there) and gives each to its listener, on this thread: to the call's
// on_event, else to the client's, else to nobody. n, unless NULL, gets how many there were, also with
// MCPCONN_ERR_CLOSED.
//
// MCPCONN_OK: at least one. MCPCONN_EMPTY: there was none. MCPCONN_ERR_CLOSED: the last event was taken before, or a
// callback freed the client, which is gone now. MCPCONN_ERR_BUSY: another thread takes events, or this is called from
// inside a callback.
mcpconn_status mcpconn_client_dispatch(mcpconn_client *client,
                                       size_t max,
                                       size_t *n);

// [any] Closes the client and returns at once: new calls are refused, every call completes, sessions and child
// processes end, and MCPCONN_EVENT_CLOSED is the last event. timeout_ms is the most that it may take in milliseconds;
// what has not ended by then is cut. 0 is the client's close_timeout_ms. Closing twice is fine.
mcpconn_status mcpconn_client_close(const mcpconn_client *client,
                                    uint64_t timeout_ms);

// [one] Frees the client; NULL is fine. It closes first if that was not done, and blocks at most for the
// close_timeout_ms of the client's options and half a second; what has not ended by then is cut, and events that were
// not taken are dropped. Links are over at once, and what the host moves for them is its own to close. No other call
// may be inside the client or come after, but events and links that were taken stay valid. From inside a callback it
// returns at once: no event is given any more, and the client is gone when the dispatch returns.
//
// In a forked child it takes no lock, blocks for nothing and leaves the parent's sessions and processes alone. It closes
// the child's copies of what leads to servers that are child processes and to the guardian, which would otherwise not
// hear of the parent's close for as long as the child lives. Connections to remote servers, and what nobody else sees,
// the child keeps until it ends or calls exec.
void mcpconn_client_free(mcpconn_client *client);

// [any] Makes a scope. domain is whose it is, and which set of servers it sees; empty is "deployment". An empty scope
// stands for the home sessions of the domain, which all calls without a scope share. Nothing is opened.
mcpconn_status mcpconn_scope_new(mcpconn_str domain,
                                 mcpconn_str scope,
                                 mcpconn_scope **out,
                                 mcpconn_error **err);

// [any] Frees the handle and closes nothing; NULL is fine.
void mcpconn_scope_free(mcpconn_scope *scope);

// [any] Calls a tool. It returns at once; the call ends with exactly one MCPCONN_EVENT_RESULT or MCPCONN_EVENT_ERROR.
//
// scope: whose session is used; NULL is the home session of the domain "deployment", which all calls without a scope
// share. server: its name in the configuration; empty if tool is a name of mcpconn_client_tools(), which tells the
// server too. arguments_json: an object, or empty for none; it is sent as it is. options may be NULL. id, unless NULL,
// gets the call's id, before its first event can come.
//
// A server that is not connected is connected first. If that fails, every call that waits for it fails with its error;
// a call that comes while the server is waiting for its next attempt waits for it, or fails with MCPCONN_ERR_WAITING if
// its own deadline is sooner. Two attempts of a server that has not proved itself begin at least a second apart
// (floor_ms), and at most four of its sessions (max_unproven) are open at a time before one of them has answered a call:
// further scopes wait for that within their deadlines. A short first call, or one without a scope, spares them that.
//
// Fails at once, without an event, with MCPCONN_ERR_INVALID for an argument that is not what it must be,
// MCPCONN_ERR_UNKNOWN_SERVER, MCPCONN_ERR_CAPACITY if 4096 calls are in flight or wait for their last event to be
// taken, and MCPCONN_ERR_CLOSED. A tool that the server does not know is told by the server, in an event.
mcpconn_status mcpconn_client_call_tool(const mcpconn_client *client,
                                        const mcpconn_scope *scope,
                                        mcpconn_str server,
                                        mcpconn_str tool,
                                        mcpconn_str arguments_json,
                                        const mcpconn_call_options *options,
                                        uint64_t *id,
                                        mcpconn_error **err);

// [any] Sends a request of any method but those that are the client's own ("initialize"): resources/read, prompts/get,
// resources/subscribe, completion/complete, logging/setLevel (the messages come to a host that takes them,
// MCPCONN_TAKES_LOGS), tools/list with a cursor, and what a server has of its own. It returns at once; the call ends with exactly one MCPCONN_EVENT_RESULT, whose JSON is the result as it came, or
// MCPCONN_EVENT_ERROR. params_json: an object, or empty for none; it is sent as it is. The rest as of
// mcpconn_client_call_tool().
//
// Subscriptions to resources and the log level of a home session outlive it: a new one is asked for them again, with a
// MCPCONN_EVENT_RESOURCE_UPDATED for each, and while a subscription stands, the home session is opened again whenever
// it is lost. Those of a scoped session go with it.
mcpconn_status mcpconn_client_request(const mcpconn_client *client,
                                      const mcpconn_scope *scope,
                                      mcpconn_str server,
                                      mcpconn_str method,
                                      mcpconn_str params_json,
                                      const mcpconn_call_options *options,
                                      uint64_t *id,
                                      mcpconn_error **err);

// [any] Asks a server for one of its lists, a mcpconn_list_code, page by page to its end. It returns at once; the call
// ends with exactly one MCPCONN_EVENT_RESULT, whose JSON is an array of the items as they came and whose text is one
// line an item, or MCPCONN_EVENT_ERROR. An item without what names it is left out, and takes no other along. A server
// that does not know the method has none: the array is empty. The rest as of mcpconn_client_call_tool().
mcpconn_status mcpconn_client_list(const mcpconn_client *client,
                                   const mcpconn_scope *scope,
                                   mcpconn_str server,
                                   int32_t list,
                                   const mcpconn_call_options *options,
                                   uint64_t *id,
                                   mcpconn_error **err);

// [any] Sends a notification on the session of this scope (NULL: the home session) that is open now; it has no answer,
// and may still be lost with the connection. params_json: an object, or empty for none; it is sent as it is.
//
// MCPCONN_EMPTY: no session is open, and none is opened for it. Fails with MCPCONN_ERR_INVALID for an argument that is
// not what it must be and for those that are the client's own ("notifications/initialized",
// "notifications/cancelled"), with MCPCONN_ERR_UNKNOWN_SERVER, and with MCPCONN_ERR_CLOSED.
mcpconn_status mcpconn_client_notify(const mcpconn_client *client,
                                     const mcpconn_scope *scope,
                                     mcpconn_str server,
                                     mcpconn_str method,
                                     mcpconn_str params_json,
                                     mcpconn_error **err);

// [any] Asks a server for its tools, connecting to it if need be; an empty server asks every server of the domain. It
// returns at once; the call ends with exactly one MCPCONN_EVENT_RESULT, whose JSON is that of mcpconn_client_tools()
// and whose text is one line a tool, or, for a single server, with MCPCONN_EVENT_ERROR if it cannot be had.
//
// Fails at once as mcpconn_client_call_tool() does.
mcpconn_status mcpconn_client_list_tools(const mcpconn_client *client,
                                         mcpconn_str domain,
                                         mcpconn_str server,
                                         const mcpconn_call_options *options,
                                         uint64_t *id,
                                         mcpconn_error **err);

// [any] The tools of a domain's servers that are known now, as one JSON array ready for a model: each has "name" (of
// letters, digits, _ and -, at most 64; it depends on server and tool alone), "description" and "input_schema". It
// asks no server. The names go to mcpconn_client_call_tool() as they are, with an empty server.
//
// missing, unless NULL, gets a JSON array with an object for each server whose tools are not in it: "server", "state"
// and "message". Both go through mcpconn_text_free().
mcpconn_status mcpconn_client_tools(const mcpconn_client *client,
                                    mcpconn_str domain,
                                    mcpconn_text **tools,
                                    mcpconn_text **missing,
                                    mcpconn_error **err);

// [any] Asks for the end of a call. It completes nothing itself: the call's one completion tells whether the cancel or
// the answer came first. MCPCONN_EMPTY: no such call is in flight (any more).
mcpconn_status mcpconn_client_cancel(const mcpconn_client *client,
                                     uint64_t id);

// [any] What happened, a mcpconn_event_code; 0 for NULL.
int32_t mcpconn_event_kind(const mcpconn_event *event);

// [any] The token that the host gave the call or the link; 0 if the event is about neither.
uint64_t mcpconn_event_token(const mcpconn_event *event);

// [any] The id of the call, or of the server's request; 0 if the event is about neither.
uint64_t mcpconn_event_id(const mcpconn_event *event);

// [any] The name of the server that the event is about, with a NUL behind it; empty for the client itself and for a
// call to all servers.
mcpconn_str mcpconn_event_server(const mcpconn_event *event);

// [any] The domain of that server, with a NUL behind it; empty for the client itself.
mcpconn_str mcpconn_event_domain(const mcpconn_event *event);

// [any] The scope whose session the event is about, with a NUL behind it; empty for a home session and for the client
// itself.
mcpconn_str mcpconn_event_scope(const mcpconn_event *event);

// [any] The method, with a NUL behind it, of a MCPCONN_EVENT_REQUEST ("roots/list", "sampling/createMessage" or
// "elicitation/create") or MCPCONN_EVENT_NOTIFICATION; else empty.
mcpconn_str mcpconn_event_method(const mcpconn_event *event);

// [any] As JSON, the bytes that came: the result of a MCPCONN_EVENT_RESULT, or the params of what a server said
// (progress, a request, a log message, a resource update, a notification), empty if there were none. What a
// MCPCONN_EVENT_CREDENTIALS_NEEDED asks for, and the counts of a MCPCONN_EVENT_DROPPED. Of a MCPCONN_EVENT_LINK_OPEN
// what the configuration has for the host, of a MCPCONN_EVENT_LINK_SEND what is to be written, which is JSON as long as
// the link carries MCP. Else empty.
mcpconn_str mcpconn_event_json(const mcpconn_event *event);

// [any] The event's text for a person: the text blocks of a tool's result joined with newlines, the message of an
// error, the sentence of a server state, of a session or of a want of credentials, logger and data of a log message, the
// URI of a resource update, why a request was withdrawn, what was dropped; else empty. It has a NUL behind it.
mcpconn_str mcpconn_event_text(const mcpconn_event *event);

// [any] Which list is new, of a MCPCONN_EVENT_CATALOGUE_CHANGED, a mcpconn_list_code; else 0.
int32_t mcpconn_event_list(const mcpconn_event *event);

// [any] How grave it is, of a MCPCONN_EVENT_LOG, a mcpconn_log_level; 0 if the server says nothing that MCP knows, and
// for any other event.
int32_t mcpconn_event_log_level(const mcpconn_event *event);

// [any] 1 if the event is the result of a tool that says that it failed (`isError`), else 0.
int32_t mcpconn_event_is_tool_error(const mcpconn_event *event);

// [any] Which session of the server answered, or a MCPCONN_EVENT_SESSION is about, counted from 1 since the server was
// configured or what makes its connection changed; 0 for other events.
uint64_t mcpconn_event_generation(const mcpconn_event *event);

// [any] 1 if the session was replaced during the call that this result answers: what the server kept for it is
// gone. Else 0, also if it was replaced before the call: a host that relies on what a server keeps compares
// mcpconn_event_generation() with that of the call before.
int32_t mcpconn_event_session_replaced(const mcpconn_event *event);

// [any] Why the call failed; NULL if the event is no MCPCONN_EVENT_ERROR. It lives as long as the event and is not
// to be freed.
const mcpconn_error *mcpconn_event_error(const mcpconn_event *event);

// [any] How it stands with the server, of a MCPCONN_EVENT_SERVER_STATE; MCPCONN_EMPTY if it is none. Begin out with
// MCPCONN_SERVER_INFO_INIT.
mcpconn_status mcpconn_event_server_info(const mcpconn_event *event,
                                         mcpconn_server_info *out);

// [any] What happened to which session, of a MCPCONN_EVENT_SESSION; MCPCONN_EMPTY if it is none. Begin out with
// MCPCONN_SESSION_INFO_INIT.
mcpconn_status mcpconn_event_session_info(const mcpconn_event *event,
                                          mcpconn_session_info *out);

// [any] Frees an event that came from mcpconn_client_next_event(), before or after its client; NULL is fine.
void mcpconn_event_free(mcpconn_event *event);

// [any] Answers a request of a server, the mcpconn_event_id() of a MCPCONN_EVENT_REQUEST. result_json is an object of
// the shape that MCP gives the method's result; it is sent as it is.
//
// MCPCONN_OK: this is the request's one answer. MCPCONN_EMPTY: no such request is open (any more): it was answered or
// refused before, or nobody waits for it. Fails with MCPCONN_ERR_INVALID if result_json is no JSON object; the request
// then stays open.
mcpconn_status mcpconn_client_answer(const mcpconn_client *client,
                                     uint64_t request_id,
                                     mcpconn_str result_json,
                                     mcpconn_error **err);

// [any] Answers a request of a server with an error of JSON-RPC: code, such as -1 for "the user rejected it" or -32603
// for "it failed", and message, which the server is told. Statuses as of mcpconn_client_answer().
//
// A user who declines an elicitation is no error: answer it with {"action": "decline"}.
mcpconn_status mcpconn_client_refuse(const mcpconn_client *client,
                                     uint64_t request_id,
                                     int32_t code,
                                     mcpconn_str message,
                                     mcpconn_error **err);

// [any] The host's roots have changed: every open session of every server is told, and may ask for them anew. For a
// host that takes roots (MCPCONN_TAKES_ROOTS).
mcpconn_status mcpconn_client_roots_changed(const mcpconn_client *client);

// [any] Has a header shown to a remote server with every request of all its sessions from now on, in place of what its
// configuration says under that name; the answer to a MCPCONN_EVENT_CREDENTIALS_NEEDED, and as well before a token
// runs out. An empty value takes it back: what the configuration says is shown again. A server that is parked for want
// of credentials is tried as soon as the least time between two attempts (floor_ms) allows.
//
// The value is a secret: no log, error or event of this library has it. It is kept for the server as it is configured
// now, and is forgotten with it: when what makes its connection is configured anew, or the server is removed.
//
// Fails with MCPCONN_ERR_INVALID for what is no header, for one that is the library's own (Content-Type,
// Mcp-Session-Id …) and for a server that is not remote; with MCPCONN_ERR_UNKNOWN_SERVER, MCPCONN_ERR_CONFIG for
// a server whose entry is unusable, and MCPCONN_ERR_CLOSED.
mcpconn_status mcpconn_client_set_header(const mcpconn_client *client,
                                         mcpconn_str domain,
                                         mcpconn_str server,
                                         mcpconn_str name,
                                         mcpconn_str value,
                                         mcpconn_error **err);

// [any] How it stands with a server now. Begin out with MCPCONN_SERVER_INFO_INIT.
mcpconn_status mcpconn_client_server_info(const mcpconn_client *client,
                                          mcpconn_str domain,
                                          mcpconn_str server,
                                          mcpconn_server_info *out,
                                          mcpconn_error **err);

// [any] Tries a parked or waiting server again, as soon as the least distance between two attempts allows. Nothing
// happens to a server that is connected; wakes that come together are one.
mcpconn_status mcpconn_client_wake(const mcpconn_client *client,
                                   mcpconn_str domain,
                                   mcpconn_str server,
                                   mcpconn_error **err);

// [any] As mcpconn_client_wake(), for every server of every domain. They go through the client's limit of connects all
// the same.
mcpconn_status mcpconn_client_wake_all(const mcpconn_client *client);

// [any] The host's network changed, or its machine slept: what may have died unseen is looked at, parked servers are
// tried again, and all of that spread over some time. A sleep of the machine is noticed without it.
mcpconn_status mcpconn_client_network_changed(const mcpconn_client *client);

// [any] Closes the sessions of a scope, busy or not. Home sessions are not closed: a scope without a name has none that
// it could close.
//
// It returns at once, as all of mcpconn_client_close_*() do. Every session that is meant is told before; each then
// closes by itself, within the "close_timeout_ms" of its server. Calls in flight end with MCPCONN_ERR_CLOSED, as
// MCPCONN_OUTCOME_UNKNOWN if they were sent, else as MCPCONN_OUTCOME_NOT_SENT; a session that is being opened is given
// up. Nothing is unconfigured and no scope is used up: the next call has a session opened again. That there is nothing
// to close is good too.
mcpconn_status mcpconn_client_close_scope(const mcpconn_client *client,
                                          const mcpconn_scope *scope,
                                          mcpconn_error **err);

// [any] The gentle form of mcpconn_client_close_scope(): calls that run may go on for limit_ms milliseconds, or
// MCPCONN_FOREVER for as long as they take. A session closes when its last call ended; what still runs at the limit
// ends as closed.
//
// It returns at once, as all of mcpconn_client_drain_*() do. A call that comes meanwhile has a new session opened, so
// that the server may have two of the scope for a while. A session that is being opened is given up, and the calls that
// wait for it end with MCPCONN_ERR_CLOSED, MCPCONN_OUTCOME_NOT_SENT.
mcpconn_status mcpconn_client_drain_scope(const mcpconn_client *client,
                                          const mcpconn_scope *scope,
                                          uint64_t limit_ms,
                                          mcpconn_error **err);

// [any] Closes the sessions of a server, busy or not: those of all scopes, and its home session. Else as
// mcpconn_client_close_scope(). An attempt to connect that is under way is given up, and costs the server nothing; a
// server that is parked or waits for its next attempt still does.
//
// Fails with MCPCONN_ERR_UNKNOWN_SERVER, with MCPCONN_ERR_CONFIG for a server whose entry is not usable, and with
// MCPCONN_ERR_CLOSED.
mcpconn_status mcpconn_client_close_server(const mcpconn_client *client,
                                           mcpconn_str domain,
                                           mcpconn_str server,
                                           mcpconn_error **err);

// [any] The gentle form of mcpconn_client_close_server(), as mcpconn_client_drain_scope() says. Fails as it does.
mcpconn_status mcpconn_client_drain_server(const mcpconn_client *client,
                                           mcpconn_str domain,
                                           mcpconn_str server,
                                           uint64_t limit_ms,
                                           mcpconn_error **err);

// [any] Closes one scoped session, busy or not, and never the one that took its place. session_id is from
// mcpconn_event_session_info() or mcpconn_client_status(). Else as mcpconn_client_close_scope(). MCPCONN_EMPTY: no such
// session is there (any more).
mcpconn_status mcpconn_client_close_session(const mcpconn_client *client,
                                            uint64_t session_id,
                                            mcpconn_error **err);

// [any] The gentle form of mcpconn_client_close_session(), as mcpconn_client_drain_scope() says.
mcpconn_status mcpconn_client_drain_session(const mcpconn_client *client,
                                            uint64_t session_id,
                                            uint64_t limit_ms,
                                            mcpconn_error **err);

// [any] Closes every session of a domain, busy or not, home sessions among them; empty is "deployment". Else as
// mcpconn_client_close_scope().
mcpconn_status mcpconn_client_close_domain(const mcpconn_client *client,
                                           mcpconn_str domain,
                                           mcpconn_error **err);

// [any] The gentle form of mcpconn_client_close_domain(), as mcpconn_client_drain_scope() says.
mcpconn_status mcpconn_client_drain_domain(const mcpconn_client *client,
                                           mcpconn_str domain,
                                           uint64_t limit_ms,
                                           mcpconn_error **err);

// [any] Closes every session of every domain, busy or not, home sessions among them. Else as
// mcpconn_client_close_scope(). The client goes on; mcpconn_client_close() is its end.
mcpconn_status mcpconn_client_close_all(const mcpconn_client *client, mcpconn_error **err);

// [any] The gentle form of mcpconn_client_close_all(), as mcpconn_client_drain_scope() says.
mcpconn_status mcpconn_client_drain_all(const mcpconn_client *client, uint64_t limit_ms, mcpconn_error **err);

// [any] How it stands with everything of the client now, as a JSON object for a status page. It asks no server, looks at
// every session, and holds no secret of the configuration. out goes through mcpconn_text_free(). Times are whole
// milliseconds; what is not there is null; members may be added.
//
// "servers": every configured server, by domain and name: "domain", "server"; "state" ("idle", "connecting", "unproven",
// "proven", "waiting", "parked", "stopped") and "reason" (a mcpconn_reason in lower case, such as "never_connected"; or
// "invalid" of a server whose entry is not usable); "charges", "attempt", "generation", "sessions" and "calls" as in
// mcpconn_server_info; "next_try_in_ms": how long from now it is tried again; "pid" of the home session; "text": one line
// for a person.
//
// "sessions": every scoped session, oldest first: "session_id", for mcpconn_client_close_session();
// "domain", "server", "scope"; "generation", null until it has opened; "state" ("waiting" for a slot, "opening", "live",
// "draining"); "calls" in flight, or, until it has opened, those that wait for it; "queued_calls": those that wait for a
// place on it; "idle_ms": how long no call has been in flight, null while one is; "age_ms", null until it has opened.
//
// "pool": "capacity" in sessions, "live" ones, "busy" and "draining" ones among these; "opening" and "waiting": sessions
// on their way; "queued_calls"; "closing": closings under way; and "tally" since the client was made: calls that found
// a session ("reused") or one that was being opened ("joined"); sessions that "opened", openings that "failed", and those
// "abandoned" for nobody waited any more; calls "refused" because every slot was busy, or "saturated" because their
// session had all the calls it may have; calls that "waited" for either; sessions that were "displaced" by a new one,
// "idle_too_long", of "lifetime_over", "lost", "closed" or "drained" by the host or "reconfigured"; and closings that were
// given up at the limit, "overdue".
mcpconn_status mcpconn_client_status(const mcpconn_client *client,
                                     mcpconn_text **out,
                                     mcpconn_error **err);

// [any] A handle to the link that the event is about, of any MCPCONN_EVENT_LINK_*; MCPCONN_EMPTY, and out is left as it
// was, if it is about none. The handle is the host's, outlives the event, and goes through mcpconn_link_free(); one is
// enough, got from MCPCONN_EVENT_LINK_OPEN, and another one is of the same link.
mcpconn_status mcpconn_event_link(const mcpconn_event *event,
                                  mcpconn_link **out);

// [any] The name of the server, with a NUL behind it; empty for NULL.
mcpconn_str mcpconn_link_server(const mcpconn_link *link);

// [any] The domain that the server is configured in, with a NUL behind it; empty for NULL.
mcpconn_str mcpconn_link_domain(const mcpconn_link *link);

// [any] The scope whose session the link carries, with a NUL behind it; empty for the home session, and for NULL.
mcpconn_str mcpconn_link_scope(const mcpconn_link *link);

// [any] Which session of the server the link carries, counted from 1; 0 for NULL.
uint64_t mcpconn_link_generation(const mcpconn_link *link);

// [any] Attaches a number of the host's own, an index or a pointer: mcpconn_event_token() has it in each event of the
// link that is taken from now on. 0 until then.
mcpconn_status mcpconn_link_set_token(const mcpconn_link *link,
                                      uint64_t token);

// [any] Says that the link is open: what is to be sent comes from now on. Bytes may come from the server before that.
// Said again, it changes nothing. While it is not said, the connect timeout of the server runs, by default 60 s.
//
// MCPCONN_ERR_CLOSED: the link is over, or MCPCONN_EVENT_LINK_CLOSE has asked for its end.
mcpconn_status mcpconn_link_opened(const mcpconn_link *link);

// [any] Gives what came from the server, which is read during the call. With "framing": "line", the default, these
// are bytes of a stream of lines and may be cut anywhere; with "message", each call gives one whole message. Bytes of
// one link must come in order, so from one thread at a time. What is no message is skipped and counted.
//
// MCPCONN_ERR_CAPACITY: nothing was taken, because what came before still waits for the host to take its events; give
// the same again after MCPCONN_EVENT_LINK_RESUME. MCPCONN_ERR_CLOSED: as for mcpconn_link_opened().
mcpconn_status mcpconn_link_received(const mcpconn_link *link,
                                     const void *bytes,
                                     size_t len);

// [any] Says that so many bytes more have gone to the server, of those that the events MCPCONN_EVENT_LINK_SEND had. It
// is to be said as soon as it is so: while more than 64 KiB have not gone, no further event comes, and the calls to
// this server wait, and no other's. It also decides what is known of a call when the link breaks: one whose bytes had
// not all gone was not sent, and may be sent again over another link.
//
// MCPCONN_ERR_INVALID: there are not so many that have not gone, and nothing was counted. MCPCONN_ERR_CLOSED: the link
// is over.
mcpconn_status mcpconn_link_sent(const mcpconn_link *link,
                                 uint64_t bytes);

// [any] Says that the link is closed, or could not be opened: the last word about it. What was received before is
// heard first. text says why, for a person, and may be empty. why says what that means for the next link:
//
// - MCPCONN_OK: it ended in good order, as idle connections do. A server that has proved itself is opened again when it
//   is needed.
// - MCPCONN_ERR_TRANSPORT, or any other status but these: it broke, or did not come about, and is tried again within the
//   server's budget.
// - MCPCONN_ERR_LOCAL: this side lacks something. It is tried again, and not held against the server.
// - MCPCONN_ERR_CONFIG, MCPCONN_ERR_PROTOCOL: trying again cannot help. MCPCONN_ERR_AUTH: credentials are needed.
//
// As the answer to MCPCONN_EVENT_LINK_CLOSE it may be any of them. MCPCONN_ERR_INVALID: why is no status, or text no
// UTF-8, and nothing happened. MCPCONN_ERR_CLOSED: the link is over.
mcpconn_status mcpconn_link_closed(const mcpconn_link *link,
                                   mcpconn_status why,
                                   mcpconn_str text);

// [any] Frees the handle, before or after the client, and closes nothing: a link whose last handle is freed without
// mcpconn_link_closed() stays open until it times out. NULL is fine, and in a forked child it is fine too.
void mcpconn_link_free(mcpconn_link *link);

// [any] Makes a budget that nothing has happened to. seed spreads the delays: the same seed makes the same, so give
// each server its own. policy_json is an object with any of these constants, or empty for the defaults; 0 is 0:
//
// - max_retries: the charges that a server may bear; one more parks it. With 0 nothing is reconnected after a loss, and
//   only a wake tries again. Default 5.
// - max_initial_retries: the same for a server that was never connected. Default 3.
// - max_unproven: how many scoped sessions may be unproven at a time where no session was ever proven. Default 4.
// - backoff_ms, backoff_max_ms: the first delay after a failure, and to what further ones double it. Default 1000 and
//   60000.
// - backoff_max_proven_ms: to what they double it where nobody waits and the server cannot be parked, such as one that
//   proves itself and dies young. Default 300000.
// - jitter_percent: by how much of itself each delay is moved up or down. Default 20.
// - floor_ms: the least time between the starts of two attempts, whatever asked for them. Default 1000.
// - healthy_after_ms: the age at which an unproven home session is probed, and an answer proves it. Default 180000.
// - probe_deadline_ms: how long a probe may stay unanswered before the session is taken as lost. Default 20000.
// - stable_after_ms: the life of a proven session that clears the delays of reconnects nobody waits for. Default 600000.
// - park_probe_ms, park_probe_max_ms: from parking to the first probe, and to what failed ones double that. Default
//   300000 and 3600000.
// - auth_probe_ms: between the probes of a server that was proven once and wants credentials. Default 3600000.
// - not_before_max_ms: how long a server's wish to be left alone (Retry-After) is heeded. Default 3600000.
// - keepalive_ms: the silence after which a session is pinged, or "never". Default 60000.
// - check_spread_ms: over how long the checks are spread after the machine slept. Default 10000.
// - breaker_failures, breaker_open_ms: how many calls in a row may time out before the server gets a rest, or 0 for no
//   such rest, and how long that is. Default 3 and 60000. A budget alone does not count calls.
//
// Fails with MCPCONN_ERR_CONFIG if the policy cannot be read.
mcpconn_status mcpconn_budget_new(mcpconn_str policy_json,
                                  uint64_t seed,
                                  mcpconn_budget **out,
                                  mcpconn_error **err);

// [one] Says what happened: what is a mcpconn_budget_word. generation names the session for those that are about one;
// cause is a mcpconn_cause and not_before_ns the least time from now to the next attempt that the server asked for (0
// for none), both for MCPCONN_BUDGET_LOST alone.
//
// MCPCONN_EMPTY: that changed nothing, for it is about an old session. After MCPCONN_BUDGET_OPENED it means that nobody
// wants the session any more: close it. Ask mcpconn_budget_next() afterwards.
mcpconn_status mcpconn_budget_tell(mcpconn_budget *budget,
                                   uint64_t now_ns,
                                   int32_t what,
                                   uint64_t generation,
                                   int32_t cause,
                                   uint64_t not_before_ns,
                                   mcpconn_error **err);

// [one] What to do now; ask until MCPCONN_EMPTY, when out says when to ask again if nothing is told before.
mcpconn_status mcpconn_budget_next(mcpconn_budget *budget, uint64_t now_ns, mcpconn_action *out);

// [one] Asks leave to open one session beside the home session now, as for a scope. MCPCONN_OK: out is an attempt, to be
// told of as one of mcpconn_budget_next(). MCPCONN_EMPTY: not now, and out says when to ask again.
// MCPCONN_ERR_PARKED: not before the server is woken, or, if out says a time, not before that. MCPCONN_ERR_CLOSED: never
// again. out is written with all of these.
mcpconn_status mcpconn_budget_leave(mcpconn_budget *budget,
                                    uint64_t now_ns,
                                    mcpconn_action *out);

// [one] Where it stands: state, reason, charges, attempt, sessions, generation and next_try_in_ms of out are written,
// the rest is as if there were no process and no call. Begin out with MCPCONN_SERVER_INFO_INIT.
mcpconn_status mcpconn_budget_info(mcpconn_budget *budget,
                                   uint64_t now_ns,
                                   mcpconn_server_info *out);

// [one] Frees it; NULL is fine.
void mcpconn_budget_free(mcpconn_budget *budget);

// [any] Makes a pool without sessions. pool_json is an object with any of these members, or empty; absent is the
// default, and 0 is 0:
//
// - capacity: how many sessions may hold a slot at a time. Default 256.
// - sessions_per_server: how many of them may be of one server of one domain. Default "unlimited".
// - calls_per_session: how many calls may be in flight on one session, at least 1. Default "unlimited".
// - openings: how many sessions are opened at a time, at least 1; the others wait in order. Default 16.
// - wait_ms: how long a request waits for room if it names no deadline, or "forever". Default 0.
// - idle_ttl_ms: how long a session may be idle before it is closed, or "never". Default 1800000.
// - max_lifetime_ms: how long a session may live, or "never": then no call begins on it any more, and it is closed when
//   none runs. Default "never".
// - close_limit_ms: how long a new session waits for the closing of the one that made room for it. Default 5000.
// - closings: is read and of no use here, for the host closes as many at a time as it likes.
//
// Fails with MCPCONN_ERR_CONFIG if pool_json cannot be read.
mcpconn_status mcpconn_pool_new(mcpconn_str pool_json,
                                mcpconn_pool **out,
                                mcpconn_error **err);

// [any] Makes this the configuration of a server of the domain. fingerprint is any text that is another one if anything
// changed that makes the connection; only a keyed digest of it is kept, so that it may hold secrets. epoch, which may be
// NULL, is a number for this configuration, that no other ever has: the same fingerprint again keeps the epoch; another
// one, and the same after mcpconn_pool_unbind(), gets a new one, and all sessions of the old are to be closed.
mcpconn_status mcpconn_pool_bind(const mcpconn_pool *pool,
                                 uint64_t now_ns,
                                 mcpconn_str domain,
                                 mcpconn_str server,
                                 mcpconn_str fingerprint,
                                 uint64_t *epoch,
                                 mcpconn_error **err);

// [any] The domain has this server no more: all its sessions are to be closed, and requests for them are refused.
// MCPCONN_EMPTY: it had none.
mcpconn_status mcpconn_pool_unbind(const mcpconn_pool *pool,
                                   uint64_t now_ns,
                                   mcpconn_str domain,
                                   mcpconn_str server,
                                   mcpconn_error **err);

// [any] Somebody wants to call the session of this scope with this server. options may be NULL for the defaults. The
// answer is an action, MCPCONN_POOL_GIVE or MCPCONN_POOL_REFUSE, exactly one for every request that was accepted;
// id, which may be NULL, names the request there and to mcpconn_pool_cancel().
//
// Fails, and accepts nothing, with MCPCONN_ERR_UNKNOWN_SERVER if no such server is bound in the domain and options name
// no epoch.
mcpconn_status mcpconn_pool_acquire(const mcpconn_pool *pool,
                                    uint64_t now_ns,
                                    mcpconn_str domain,
                                    mcpconn_str server,
                                    mcpconn_str scope,
                                    const mcpconn_pool_acquire_options *options,
                                    uint64_t *id,
                                    mcpconn_error **err);

// [any] Whoever made the request waits no more: it is answered by a refusal with MCPCONN_ERR_CANCELED, and if it was the
// last that waited for an opening, that is stopped. MCPCONN_EMPTY: it was answered before, and that answer stands. A
// session that it was given has to be released.
//
// Fails with MCPCONN_ERR_INVALID if no request of this pool had the id.
mcpconn_status mcpconn_pool_cancel(const mcpconn_pool *pool,
                                   uint64_t now_ns,
                                   uint64_t request_id,
                                   mcpconn_error **err);

// [any] A call that was given a session ended, however it did: answered, failed, timed out or cancelled. Also to be told
// of a call whose session was closed meanwhile.
//
// Fails with MCPCONN_ERR_INVALID, and changes nothing, if the request was not given a session yet, was refused, was
// released before, or never was.
mcpconn_status mcpconn_pool_release(const mcpconn_pool *pool,
                                    uint64_t now_ns,
                                    uint64_t request_id,
                                    mcpconn_error **err);

// [any] Begins one more call on this very session, and not on one that replaced it. out is then as after
// MCPCONN_POOL_GIVE, without token and fresh: request_id is to be released.
//
// Fails with MCPCONN_ERR_CLOSED if no call begins on it any more, or it was not given to anybody yet, with
// MCPCONN_ERR_CAPACITY if it has all the calls that it may have, and with MCPCONN_ERR_INVALID if it is not open or no
// session of this pool had the id.
mcpconn_status mcpconn_pool_begin(const mcpconn_pool *pool,
                                  uint64_t now_ns,
                                  uint64_t session_id,
                                  mcpconn_pool_action *out,
                                  mcpconn_error **err);

// [any] Has the session of this scope with this server opened ahead of need, if it is not there and a slot is free:
// nothing idle has to go for it. Nobody is given it, and nobody is told if it fails. epoch is as that of
// mcpconn_pool_acquire_options.
//
// Fails with MCPCONN_ERR_CAPACITY if no slot is free, with MCPCONN_ERR_UNKNOWN_SERVER if no such server is bound, and
// with MCPCONN_ERR_CLOSED if the epoch is not the current one or the pool is shut down.
mcpconn_status mcpconn_pool_warm_up(const mcpconn_pool *pool,
                                    uint64_t now_ns,
                                    mcpconn_str domain,
                                    mcpconn_str server,
                                    mcpconn_str scope,
                                    uint64_t epoch,
                                    mcpconn_error **err);

// [any] The host opened this session, as MCPCONN_POOL_OPEN said. session is the host's own, may be NULL, is never
// followed, and comes with every action about the session.
//
// MCPCONN_OK: it is the pool's, and what becomes of it is an action. MCPCONN_EMPTY: nobody wants it any more, and no
// MCPCONN_POOL_CLOSE will say so: close it, and tell mcpconn_pool_closed().
//
// Fails with MCPCONN_ERR_INVALID if it was reported open before, or no session of this pool had the id.
mcpconn_status mcpconn_pool_opened(const mcpconn_pool *pool,
                                   uint64_t now_ns,
                                   uint64_t session_id,
                                   void *session,
                                   mcpconn_error **err);

// [any] The host could not open this session: all who wait for it are refused with this status, any number below 0, also
// one of the host's own. MCPCONN_EMPTY: nobody waited for it any more.
//
// Fails with MCPCONN_ERR_INVALID if the status is not below 0, if the session was reported open, or if no session of this
// pool had the id.
mcpconn_status mcpconn_pool_failed(const mcpconn_pool *pool,
                                   uint64_t now_ns,
                                   uint64_t session_id,
                                   mcpconn_status status,
                                   mcpconn_error **err);

// [any] The session is closed: as MCPCONN_POOL_CLOSE or MCPCONN_POOL_STOP_OPENING said, or on its own, and then no call
// begins on it any more. Calls on it are to be released all the same. MCPCONN_EMPTY: that was known, or it took longer
// than close_limit_ms and was waited for no more.
//
// Fails with MCPCONN_ERR_INVALID if the session is being opened, or no session of this pool had the id.
mcpconn_status mcpconn_pool_closed(const mcpconn_pool *pool,
                                   uint64_t now_ns,
                                   uint64_t session_id,
                                   mcpconn_error **err);

// [any] The session is found dead and is to be closed, now: no call begins on it any more, and whoever asks has another
// opened. The session that replaced it is spared. MCPCONN_EMPTY: it had left the pool before.
//
// Fails with MCPCONN_ERR_INVALID if the session is being opened, or no session of this pool had the id.
mcpconn_status mcpconn_pool_evict(const mcpconn_pool *pool,
                                  uint64_t now_ns,
                                  uint64_t session_id,
                                  mcpconn_error **err);

// [any] Closes what is meant, busy or not, and what is being opened: what, a mcpconn_pool_target, says which of domain,
// server, scope and session_id it is named by; the others must be empty or 0. Each session is told to the host by an
// action of its own, and requests that wait for one are refused. What is closed holds no slot any more, also while its
// closing or a call on it still runs; whoever asks afterwards has another opened. MCPCONN_EMPTY: there was nothing.
mcpconn_status mcpconn_pool_close(const mcpconn_pool *pool,
                                  uint64_t now_ns,
                                  int32_t what,
                                  mcpconn_str domain,
                                  mcpconn_str server,
                                  mcpconn_str scope,
                                  uint64_t session_id,
                                  mcpconn_error **err);

// [any] As mcpconn_pool_close(), but calls that run may end: no other begins on what is meant, and each session is to be
// closed when its last call was released, at the latest at deadline_ns, or MCPCONN_FOREVER for no such time. Until then
// it keeps its slot; whoever asks meanwhile has another opened. What is idle or being opened goes at once.
mcpconn_status mcpconn_pool_drain(const mcpconn_pool *pool,
                                  uint64_t now_ns,
                                  int32_t what,
                                  mcpconn_str domain,
                                  mcpconn_str server,
                                  mcpconn_str scope,
                                  uint64_t session_id,
                                  uint64_t deadline_ns,
                                  mcpconn_error **err);

// [any] Closes everything, and refuses whatever is asked for afterwards. The end of a pool in order: this, then the
// actions, until every session is closed and every call released; then mcpconn_pool_free(). MCPCONN_EMPTY: there was
// nothing to close.
mcpconn_status mcpconn_pool_shutdown(const mcpconn_pool *pool,
                                     uint64_t now_ns,
                                     mcpconn_error **err);

// [any] What to do now; ask until MCPCONN_EMPTY, when out says when to ask again if nothing is told before. Begin out with
// MCPCONN_POOL_ACTION_INIT. Where several threads tell, each asks after its own word; an action goes to one of them.
mcpconn_status mcpconn_pool_next(const mcpconn_pool *pool,
                                 uint64_t now_ns,
                                 mcpconn_pool_action *out);

// [any] How the pool stands, for a status page: an object with capacity, live (slots taken), busy (of them, those with
// a call in flight), draining, opening, waiting (openings that wait for a slot), queued_calls (requests that wait for
// a place on a session), closing, requests (that wait, or were given a session and not released); tally, how often
// what was decided; and sessions, oldest first, each with session_id, domain, server, scope, state ("waiting",
// "opening", "arriving", "live", "draining"), calls (in flight, or who wait for it), queued_calls, age_ms and idle_ms,
// which are null where they make no sense. Members may be added. It looks at every session, and no other function gets
// on meanwhile.
mcpconn_status mcpconn_pool_info(const mcpconn_pool *pool,
                                 uint64_t now_ns,
                                 mcpconn_text **json,
                                 mcpconn_error **err);

// [one] Frees it, when no other thread uses it any more; NULL is fine. Nothing is closed by it, for the sessions are the
// host's: see mcpconn_pool_shutdown(). In a forked child it does nothing.
void mcpconn_pool_free(mcpconn_pool *pool);

// [any] The version of the library, such as "0.1.0": a C string that is always there.
const char *mcpconn_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

// As the len of a mcpconn_str that comes in: the text ends at its NUL.
#define MCPCONN_NUL SIZE_MAX

// A C string as a mcpconn_str.
static inline mcpconn_str mcpconn_cstr(const char *text)
{
  mcpconn_str str = { text, MCPCONN_NUL };
  return str;
}

// The domain of a host that has only one.
#define MCPCONN_DEPLOYMENT mcpconn_cstr("deployment")

// A mcpconn_str variable as the two arguments of printf's "%.*s".
#define MCPCONN_PRINTF(str) (int)(str).len, (str).ptr

// What a struct begins with that has a struct_size: every member is its default.
#define MCPCONN_CLIENT_OPTIONS_INIT \
  { sizeof(mcpconn_client_options), 0, 0, 0, 0, { NULL, 0 }, { NULL, 0 }, { NULL, 0 }, NULL, NULL, NULL }
#define MCPCONN_CALL_OPTIONS_INIT { sizeof(mcpconn_call_options), 0, 0, 0, 0, 0, NULL, NULL, NULL }
#define MCPCONN_ACTION_INIT { sizeof(mcpconn_action), 0, 0, 0, 0 }
#define MCPCONN_POOL_ACTION_INIT \
  { sizeof(mcpconn_pool_action), 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0, { NULL, 0 }, { NULL, 0 }, { NULL, 0 }, { NULL, 0 } }
#define MCPCONN_POOL_ACQUIRE_OPTIONS_INIT { sizeof(mcpconn_pool_acquire_options), 0, 0, 0 }
#define MCPCONN_SESSION_INFO_INIT { sizeof(mcpconn_session_info), 0, 0, 0, 0 }
#define MCPCONN_SERVER_INFO_INIT { sizeof(mcpconn_server_info), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

#endif /* MCPCONN_H */
