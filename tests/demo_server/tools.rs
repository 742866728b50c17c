//! The tools: what they are called, and what they do.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::session::{Cancellation, Session};

/// How a tool ended.
pub(crate) enum Ending {
    Text(String),
    ToolError(String),
    Cancelled,
    /// A text, after which the session is to be forgotten.
    Expire(String),
}

/// A tool with the arguments it was called with.
pub(crate) struct Call {
    tool: &'static Tool,
    arguments: Map<String, Value>,
}

struct Tool {
    name: &'static str,
    description: &'static str,
    /// Name, JSON type and description of each argument; all are needed.
    arguments: &'static [(&'static str, &'static str, &'static str)],
    hints: Hints,
    run: fn(&mut Context<'_>) -> Ending,
}

/// What a host may be told about a tool before it calls it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hints {
    /// Changes nothing.
    ReadOnly,
    /// Changes something, and a second call changes it again.
    Changes,
    /// Destroys something.
    Destructive,
}

struct Context<'a> {
    session: &'a Session,
    arguments: &'a Map<String, Value>,
    cancellation: &'a Cancellation,
    progress: &'a mut dyn FnMut(u64, u64),
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "echo",
        description: "Gives the text back.",
        arguments: &[("text", "string", "What to give back")],
        hints: Hints::ReadOnly,
        run: |context| Ending::Text(context.text("text").to_owned()),
    },
    Tool {
        name: "add",
        description: "Adds two numbers.",
        arguments: &[
            ("a", "number", "The first number"),
            ("b", "number", "The second number"),
        ],
        hints: Hints::ReadOnly,
        run: |context| Ending::Text((context.number("a") + context.number("b")).to_string()),
    },
    Tool {
        name: "sleep",
        description: "Waits, telling its progress every 50 ms; stops when cancelled.",
        arguments: &[("ms", "integer", "How long to wait, in milliseconds")],
        hints: Hints::ReadOnly,
        run: sleep,
    },
    Tool {
        name: "crash",
        description: "Ends the server at once, without an answer.",
        arguments: &[],
        hints: Hints::Destructive,
        run: |_| std::process::exit(3),
    },
    Tool {
        name: "whoami",
        description: "Tells the process and the session that answer.",
        arguments: &[],
        hints: Hints::ReadOnly,
        run: |context| {
            Ending::Text(format!(
                "pid {} session {}",
                std::process::id(),
                context.session.name
            ))
        },
    },
    Tool {
        name: "fail",
        description: "Answers with an error of its own.",
        arguments: &[],
        hints: Hints::ReadOnly,
        run: |_| Ending::ToolError("this tool always fails".to_owned()),
    },
    Tool {
        name: "counter",
        description: "Counts its calls in this session.",
        arguments: &[],
        hints: Hints::Changes,
        run: |context| Ending::Text(context.session.next_count().to_string()),
    },
    Tool {
        name: "expire",
        description: "Answers, and with that the session is over: forgotten over HTTP, a process that exits over stdio.",
        arguments: &[],
        hints: Hints::Destructive,
        run: |_| Ending::Expire("this session is over now".to_owned()),
    },
];

/// The tools as `tools/list` shows them.
pub(crate) fn catalogue() -> Vec<Value> {
    TOOLS.iter().map(Tool::describe).collect()
}

/// The call that `tools/call` asks for; an error says what is wrong with the request.
pub(crate) fn find(params: &Value) -> Result<Call, String> {
    let name = params
        .get("name")
        .and_then(Value::as_str)
        .ok_or("params.name is missing")?;
    let tool = TOOLS
        .iter()
        .find(|tool| tool.name == name)
        .ok_or_else(|| format!("no tool {name}"))?;
    let arguments = match params.get("arguments") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments.clone(),
        Some(_) => return Err("params.arguments must be an object".to_owned()),
    };
    Ok(Call { tool, arguments })
}

impl Call {
    pub(crate) fn name(&self) -> &'static str {
        self.tool.name
    }

    pub(crate) fn run(
        &self,
        session: &Session,
        cancellation: &Cancellation,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Ending {
        // Arguments that do not fit are the tool's error, so that a model can read it and do better.
        for (name, kind, _) in self.tool.arguments {
            if !self
                .arguments
                .get(*name)
                .is_some_and(|value| is_a(value, kind))
            {
                return Ending::ToolError(format!(
                    "{} needs {name}, of type {kind}",
                    self.tool.name
                ));
            }
        }
        (self.tool.run)(&mut Context {
            session,
            arguments: &self.arguments,
            cancellation,
            progress,
        })
    }
}

impl Tool {
    fn describe(&self) -> Value {
        let properties: Map<String, Value> = self
            .arguments
            .iter()
            .map(|(name, kind, about)| {
                (
                    (*name).to_owned(),
                    json!({ "type": kind, "description": about }),
                )
            })
            .collect();
        let required: Vec<&str> = self.arguments.iter().map(|(name, ..)| *name).collect();
        json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": { "type": "object", "properties": properties, "required": required },
            "annotations": {
                "readOnlyHint": self.hints == Hints::ReadOnly,
                "destructiveHint": self.hints == Hints::Destructive,
                "idempotentHint": self.hints == Hints::ReadOnly,
                "openWorldHint": false,
            },
        })
    }
}

impl Context<'_> {
    fn text(&self, name: &str) -> &str {
        self.arguments[name].as_str().unwrap_or_default()
    }

    fn number(&self, name: &str) -> f64 {
        self.arguments[name].as_f64().unwrap_or_default()
    }
}

fn is_a(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        _ => value.is_number(),
    }
}

fn sleep(context: &mut Context<'_>) -> Ending {
    const STEP: u64 = 50;
    let total = context.arguments["ms"].as_u64().unwrap_or_default();
    let start = Instant::now();
    let mut done = 0;
    while done < total {
        done = total.min(done + STEP);
        if context
            .cancellation
            .wait_until(start + Duration::from_millis(done))
        {
            return Ending::Cancelled;
        }
        (context.progress)(done, total);
    }
    Ending::Text(format!("slept {total} ms"))
}
