//! A server built with rmcp, with the same tools as the servers in Python beside it, listed in pages of two.
//!
//! Usage: rmcp-server [--log FILE] stdio | http

use std::{error::Error, fs::OpenOptions, io::Write, sync::Arc, time::Duration};

use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
        PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
    transport::{
        stdio,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
        },
    },
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

const PAGE: usize = 2;

#[derive(Clone, Default)]
struct Server {
    log: Option<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut server = Server::default();
    let mut over_http = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--log" => server.log = arguments.next(),
            "stdio" => over_http = false,
            "http" => over_http = true,
            other => return Err(format!("what is {other}?").into()),
        }
    }
    if over_http {
        serve_http(server).await
    } else {
        server.serve(stdio()).await?.waiting().await?;
        Ok(())
    }
}

async fn serve_http(server: Server) -> Result<(), Box<dyn Error>> {
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    loop {
        let (connection, _) = listener.accept().await?;
        connection.set_nodelay(true)?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(connection), service));
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let begin: usize = match cursor {
            None => 0,
            Some(cursor) => cursor
                .parse()
                .map_err(|_| ErrorData::invalid_params("what cursor is that?", None))?,
        };
        let tools = tools();
        let end = (begin + PAGE).min(tools.len());
        let mut page = ListToolsResult::with_all_items(tools[begin.min(end)..end].to_vec());
        page.next_cursor = (end < tools.len()).then(|| end.to_string());
        Ok(page)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        match &*request.name {
            "greet" => {
                let name = arguments["name"].as_str().unwrap_or("World");
                Ok(text(format!("Hello, {name}!")).into())
            }
            "fail" => {
                let why = ContentBlock::text("this tool always fails");
                Ok(CallToolResult::error(vec![why]).into())
            }
            "work" => self
                .work(arguments["steps"].as_u64().unwrap_or(1), context)
                .await
                .map(Into::into),
            other => Err(ErrorData::invalid_params(format!("no tool {other}"), None)),
        }
    }
}

impl Server {
    /// Takes 50 ms a step, and notes that it was cancelled.
    async fn work(
        &self,
        steps: u64,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let token = context.meta.get_progress_token();
        for step in 1..=steps {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
                () = context.ct.cancelled() => {
                    self.note("cancelled work");
                    return Err(ErrorData::internal_error("cancelled", None));
                }
            }
            if let Some(token) = &token {
                let progress = ProgressNotificationParam::new(token.clone(), step as f64)
                    .with_total(steps as f64);
                // A client that is gone ends the call in its own way.
                drop(context.peer.notify_progress(progress).await);
            }
        }
        Ok(text(format!("worked {steps} steps")))
    }

    fn note(&self, line: &str) {
        let Some(log) = &self.log else { return };
        let file = OpenOptions::new().create(true).append(true).open(log);
        if let Err(error) = file.and_then(|mut file| writeln!(file, "{line}")) {
            eprintln!("cannot write to {log}: {error}");
        }
    }
}

fn text(text: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

fn tools() -> Vec<Tool> {
    let tool = |name: &'static str, about: &'static str, properties: Value| {
        let schema = json!({ "type": "object", "properties": properties });
        let Value::Object(schema) = schema else {
            unreachable!("it was written as an object")
        };
        Tool::new(name, about, schema)
    };
    vec![
        tool(
            "greet",
            "Greet someone.",
            json!({ "name": { "type": "string" } }),
        ),
        tool("fail", "Fail.", json!({})),
        tool(
            "work",
            "Work for some steps, with progress.",
            json!({ "steps": { "type": "integer" } }),
        ),
    ]
}
