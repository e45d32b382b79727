//! etcd: data loss, failures and access control.

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
