//! A reconnect budget.
