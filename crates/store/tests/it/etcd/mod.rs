//! etcd: what a cluster can lose, how it can fail, and who may use it.

mod access;
mod adopt;
mod batch;
mod cluster;
mod evict;
mod kit;
mod quota;
mod reset;
mod survey;
mod wipe;
mod wire;
