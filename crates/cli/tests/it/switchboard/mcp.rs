//! MCP: third-party clients, and clients that misbehave.

mod abuse;
mod clients;
mod replicas;
mod stream;
