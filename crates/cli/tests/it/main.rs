//! The command as its users meet it: arguments in, text and exit code out.

mod errors;
mod ls;
mod migrate;
mod stores;
mod tenure;
