//! MCP clients, as others write them, and those that misbehave.

mod abuse;
mod clients;
mod replicas;
mod stream;
