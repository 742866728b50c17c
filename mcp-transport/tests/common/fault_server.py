"""A server that speaks the wire and can be told to go wrong.

Its arguments say what it does at its start; tools say what it does in a call.
Everything it writes goes out in whole writes at known points, so that tests need not wait for luck.
"""

import fcntl
import itertools
import json
import os
import signal
import subprocess
import struct
import sys
import termios
import time

out = sys.stdout.buffer


def raw(data):
    out.write(data)
    out.flush()


def send(message, end=b"\n"):
    raw(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode() + end)


def split(message, at):
    """Writes a message in two parts, the second once the first has been read."""
    line = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode() + b"\n"
    raw(line[:at])
    while struct.unpack("i", fcntl.ioctl(1, termios.FIONREAD, b"\0" * 4))[0] > 0:
        os.sched_yield()
    raw(line[at:])


def notify(method, **params):
    send({"method": method, "params": params})


def text(value):
    return {"content": [{"type": "text", "text": value}]}


# What was read before its turn.
ahead = []


def read():
    if ahead:
        return ahead.pop(0)
    line = sys.stdin.buffer.readline()
    if line and "log" in options:
        with open(options["log"], "ab") as log:
            log.write(line[:200].rstrip() + b"\n")
    return json.loads(line) if line else None


def read_answer():
    others = []
    message = read()
    while message and "method" in message:
        others.append(message)
        message = read()
    ahead.extend(others)
    return message


def initialize_result(version="2025-11-25"):
    return {
        "protocolVersion": version,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "fault", "version": "1"},
        "instructions": "break me",
    }


waiting = []
canceled = []


def call(message):
    id, params = message["id"], message["params"]
    name, args = params["name"], params.get("arguments", {})
    if name == "echo":
        send({"id": id, "result": text(args["text"])})
    elif name == "id":
        send({"id": {"string": str, "float": float}[args["as"]](id), "result": {}})
    elif name == "error":
        send({"id": id, "error": {"code": -32602, "message": "no\nsuch thing", "data": {"a": 1}}})
    elif name == "size":
        head = b'{"jsonrpc":"2.0","id":%d,"result":{"x":"' % id
        raw(head + b"x" * (args["bytes"] - len(head) - 3) + b'"}}\n')
    elif name == "raw":
        raw(args["text"].replace("$ID", str(id)).encode("utf-8", "surrogateescape") + b"\n")
    elif name == "bytes":
        raw(bytes.fromhex(args["hex"]).replace(b"$ID", str(id).encode()))
    elif name == "hold":
        waiting.append(id)
        notify("test/held", id=id, meta=params.get("_meta"))
    elif name == "release":
        for held in waiting:
            send({"id": held, "result": {"late": True}})
        waiting.clear()
        send({"id": id, "result": {}})
    elif name == "progress":
        token = params["_meta"]["progressToken"]
        if args.get("as") == "string":
            token = str(token)
        for n in range(args["count"]):
            notify("notifications/progress", progressToken=token, progress=n)
        if args.get("answer", True):
            send({"id": id, "result": {}})
    elif name == "canceled":
        send({"id": id, "result": {"ids": canceled}})
    elif name == "die":
        notify("test/dying")
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "exit":
        sys.stderr.write(args.get("stderr", ""))
        sys.stderr.flush()
        if args.get("answer"):
            send({"id": id, "result": {"last": True}}, args.get("end", "\n").encode())
        os._exit(args.get("code", 0))
    elif name == "stderr":
        sys.stderr.write("e" * args["bytes"])
        sys.stderr.flush()
        send({"id": id, "result": {}})
    elif name == "ask":
        # The same id as ours: a request all the same.
        send({"id": id, "method": args["method"]})
        answer = read_answer()
        send({"id": id, "result": {"answer": answer}})
    elif name == "split":
        split({"id": id, "result": text(args["text"])}, args["at"])
    elif name == "elicit":
        # What the host answers comes before the answer to the call, and the list has changed meanwhile.
        notify("notifications/tools/list_changed")
        send({"id": "e", "method": "elicitation/create", "params": args["params"]})
        answer = read_answer()
        send({"id": id, "result": {"answer": answer}})
    elif name == "burst":
        line = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'
        raw(line * args["count"])
        send({"id": id, "result": {}})
    elif name == "results":
        # One answer to each of the calls that wait, all as large.
        waiting.append(id)
        if len(waiting) == args["of"]:
            for held in waiting:
                send({"id": held, "result": {"x": "x" * args["bytes"]}})
            waiting.clear()
            notify("test/all-written")
    elif name == "stop-reading":
        os.close(0)
        send({"id": id, "result": {}})
        raw_wait()
    elif name == "stop-writing":
        os.close(1)
        raw_wait()
    elif name == "env":
        send({"id": id, "result": {"env": dict(os.environ), "cwd": os.getcwd(), "fds": open_fds(),
                                   "sid": os.getsid(0), "pgid": os.getpgid(0), "pid": os.getpid()}})
    elif name == "signals":
        lines = open("/proc/self/status").read().splitlines()
        wanted = ("SigBlk", "SigIgn", "SigCgt")
        send({"id": id, "result": dict(l.split(":\t") for l in lines if l.startswith(wanted))})
    elif name == "deaf":
        # Reads nothing more, and goes on living.
        send({"id": id, "result": {}})
        raw_wait()
    else:
        send({"id": id, "error": {"code": -32602, "message": "unknown tool " + name}})


def open_fds():
    return sorted(int(fd) for fd in os.listdir("/proc/self/fd"))


def raw_wait():
    while True:
        signal.pause()


def only_progress(id):
    """Sounds as if an answer were near, for ever."""
    for n in itertools.count():
        notify("notifications/progress", progressToken=id, progress=n)
        time.sleep(0.05)


def silent_until(path):
    while not os.path.exists(path):
        time.sleep(0.005)


def tool(name):
    return {"name": name, "inputSchema": {"type": "object"}}


def pages(message):
    id, kind = message["id"], message["params"].get("cursor") if "params" in message else None
    mode = options.get("pages")
    if mode == "three":
        n = int(kind or 0)
        result = {"tools": [tool(f"tool-{n}-{i}") for i in range(2)]}
        if n < 2:
            result["nextCursor"] = str(n + 1)
    elif mode == "repeat":
        result = {"tools": [tool("again")], "nextCursor": "same"}
    elif mode == "alternate":
        result = {"tools": [tool("again")], "nextCursor": "b" if kind == "a" else "a"}
    elif mode == "empty":
        result = {"tools": [], "nextCursor": str(int(kind or 0) + 1)}
    elif mode == "odd":
        result = {"tools": [tool("good"), {"name": 7}, None, "x", {"inputSchema": []}, tool("better")]}
    else:
        result = {"tools": [tool("echo")]}
    send({"id": id, "result": result})
    if "changes" in options:
        notify("notifications/tools/list_changed")


def serve():
    while True:
        message = read()
        if message is None:
            if "ignore-eof" in options:
                raw_wait()
            return
        method = message.get("method")
        if method == "initialize":
            if "exit-on-initialize" in options:
                sys.exit(0)
            if "never-answer" in options:
                continue
            if "only-progress" in options:
                only_progress(message["id"])
            if "silent-until" in options:
                silent_until(options["silent-until"])
            if "early" in options:
                notify("notifications/tools/list_changed")
                send({"id": "early", "method": "roots/list"})
            if "refuse" in options:
                send({"id": message["id"], "error": {"code": -32602, "message": "not you"}})
                continue
            result = initialize_result(options.get("version") or "2025-11-25")
            if "batch" in options:
                answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                note = {"jsonrpc": "2.0", "method": "test/batched"}
                raw(json.dumps([answer, note]).encode() + b"\n")
            else:
                send({"id": message["id"], "result": result})
        elif method == "notifications/cancelled":
            canceled.append(message["params"]["requestId"])
        elif method == "tools/call":
            call(message)
        elif method == "tools/list":
            pages(message)
        elif method == "ping":
            send({"id": message["id"], "result": {}})


options = dict(arg.partition("=")[::2] for arg in sys.argv[1:])

if "ignore-term" in options:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "exit" in options:
    sys.stderr.write(options.get("stderr", ""))
    sys.stderr.flush()
    sys.exit(int(options["exit"]))
if "garbage" in options:
    for n in range(3):
        raw(b"this is line %d of a web server\n" % n)
if "flood" in options:
    try:
        while True:
            raw(b"x" * 65536)
    except BrokenPipeError:
        os._exit(0)
if "noise" in options:
    raw(b"starting...\n\n[INFO] up\n{\n  \"pretty\": 1\n}\n{broken\n")
if "stderr-first" in options:
    sys.stderr.write("e" * int(options["stderr-first"]))
    sys.stderr.flush()
if "wrapper" in options:
    # The real server is a child of this one, in its group; this one only waits, and dies at TERM.
    child = subprocess.Popen([sys.executable, __file__, *filter(None, options["wrapper"].split(","))])
    sys.stdin.close()
    os.close(1)
    child.wait()
    sys.exit(0)
if "orphan" in options:
    # A child of the group that outlives its leader; it holds stdout as asked, and tells its id when it is ready.
    code = """
import os, signal, sys
if 'ignore' in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(int(sys.argv[1]), b'ready')
os.close(int(sys.argv[1]))
while True: signal.pause()
"""
    ready, theirs = os.pipe()
    stdout = None if "hold" in options["orphan"] else subprocess.DEVNULL
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(theirs), *options["orphan"].split(",")],
        stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.DEVNULL, pass_fds=[theirs],
    )
    os.close(theirs)
    os.read(ready, 5)
    notify("test/orphan", pid=child.pid)
serve()
