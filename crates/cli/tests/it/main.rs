//! Tests of the `tenure` command: arguments in, text and exit code out.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails, in its helpers as well"
)]

mod api;
mod beat;
mod bucket;
mod checkpoint;
mod config;
mod connectors;
mod doctor;
mod drain;
mod each;
mod encryption;
mod errors;
mod formats;
mod golden;
mod guard;
mod guide;
mod identity;
mod kernel;
mod listen;
mod ls;
mod migrate;
mod operate;
mod past;
mod poll;
mod run;
mod running;
mod secrets;
mod serving;
mod share;
mod shell;
mod state;
mod stores;
mod stories;
mod switchboard;
mod tenure;
mod terminal;
mod token;
mod troubles;
mod typed;
mod upkeep;
mod why;
