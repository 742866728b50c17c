//! The pool's rules, each as a test whose name says it.

mod active_calls;
mod bindings;
mod closings;
mod creations;
mod desk;
mod drains;
mod fake;
mod leases;
mod limits;
mod registry_model;
mod storm;
