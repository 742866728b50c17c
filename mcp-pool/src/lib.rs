//! A busy-aware session pool.
