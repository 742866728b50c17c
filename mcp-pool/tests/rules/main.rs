//! The pool's rules, each as a test whose name says it.

mod active_calls;
mod bindings;
mod closings;
mod creations;
mod fake;
mod leases;
mod registry_model;
mod storm;
