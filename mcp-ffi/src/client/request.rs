//! Requests and notifications of any method, as the host words them.

use super::{
    Client,
    call::Call,
    deadline,
    error::{Error, Kind},
    options::CallOptions,
    prepared::{PreparedCall, Work, object},
    scope::Scope,
};

impl Client {
    /// Prepares a request of any method but those that are the client's own: `resources/read`, `prompts/get`,
    /// `completion/complete`, `logging/setLevel`, … `params` is a JSON object, or empty for none. The answer's JSON is
    /// the result as it came.
    ///
    /// Subscriptions to resources and the log level of a home session outlive it: a new one is asked for them again,
    /// and while a subscription stands, the home session is opened again whenever it is lost. Those of a scoped session
    /// go with it.
    ///
    /// # Errors
    /// As for [`Client::prepare_tool_call`]; [`Kind::Invalid`] for `initialize` and for notifications.
    pub fn prepare_request(
        &self,
        scope: &Scope,
        server: &str,
        method: &str,
        params: &str,
        options: CallOptions,
    ) -> Result<PreparedCall, Error> {
        self.shared.check_open()?;
        let why_not = match method {
            "" => Some("the method is empty"),
            "initialize" => Some("the client sends it itself when it opens a session"),
            _ if method.starts_with("notifications/") => {
                Some("it is a notification and has no answer: use notify")
            }
            _ => None,
        };
        if let Some(why) = why_not {
            let message = format!("no request \"{method}\": {why}");
            return Err(Error::new(Kind::Invalid, message));
        }
        let call = Call {
            server: self.shared.open_servers()?.get(&scope.domain, server)?,
            scope: scope.name.clone(),
            method: method.to_owned().into(),
            params: object("the params", params)?.map(|params| params.to_owned().into()),
            deadline: deadline::of(&options),
            options,
        };
        PreparedCall::admit(&self.shared, call, Work::Request)
    }

    /// Sends a request of any method; see [`Client::prepare_request`].
    ///
    /// # Errors
    /// As there.
    pub fn request(
        &self,
        scope: &Scope,
        server: &str,
        method: &str,
        params: &str,
        options: CallOptions,
    ) -> Result<u64, Error> {
        Ok(self
            .prepare_request(scope, server, method, params, options)?
            .start())
    }

    /// Sends a notification on the session of this scope that is open now. `false` if none is: a notification opens
    /// no session. `params` is a JSON object, or empty for none.
    ///
    /// It may still be lost with the connection.
    ///
    /// # Errors
    /// [`Kind::Invalid`], also for those that are the client's own (`notifications/initialized`,
    /// `notifications/cancelled`); [`Kind::UnknownServer`], [`Kind::Config`], [`Kind::Closed`].
    pub fn notify(
        &self,
        scope: &Scope,
        server: &str,
        method: &str,
        params: &str,
    ) -> Result<bool, Error> {
        self.shared.check_open()?;
        let why_not = match method {
            "" => Some("the method is empty"),
            "notifications/initialized" => {
                Some("the client sends it itself when it opens a session")
            }
            "notifications/cancelled" => Some("cancel the call instead"),
            _ => None,
        };
        if let Some(why) = why_not {
            let message = format!("no notification \"{method}\": {why}");
            return Err(Error::new(Kind::Invalid, message));
        }
        let params = object("the params", params)?.map(|params| params.to_owned().into());
        let server = self.shared.open_servers()?.get(&scope.domain, server)?;
        let open = self.shared.live.newest(&(server.lane, scope.name.clone()));
        // One that has just ended is open no more.
        Ok(open.is_some_and(|session| session.notify(method, params).is_ok()))
    }

    /// The host's roots have changed: every open session is told, and may ask for them anew.
    pub fn roots_changed(&self) {
        self.shared.live.roots_changed();
    }

    /// Answers a request of a server with this result, a JSON object. `false` if no such request is open: it was
    /// answered, refused or withdrawn before.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if it is no JSON object; the request is open still.
    pub fn answer(&self, id: u64, result: &str) -> Result<bool, Error> {
        self.shared.asked.answer(id, result)
    }

    /// Answers a request of a server with an error, of which the server is told code and message. `false` as for
    /// [`Client::answer`].
    pub fn refuse(&self, id: u64, code: i32, message: &str) -> bool {
        self.shared.asked.refuse(id, code, message)
    }
}
