//! Dev tasks.
fn main() {}
