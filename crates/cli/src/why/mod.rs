//! Why duties are where they are, and what would be if something changed.
//!
//! All of it is computed from what the store shows, by the roster that the members plan with.

pub(crate) mod apply;
mod changes;
pub(crate) mod explain;
mod file;
mod past;
pub(crate) mod plan;
mod state;
pub(crate) mod top;
mod trail;

use tenure_core::{Code, StoreError};
use tenure_store::StoreUrl;

use crate::failure::Failure;
use crate::group::duties;
pub(crate) use trail::Trail;

/// A command that was read and checked.
#[derive(Debug)]
pub(crate) enum Task {
    Explain(explain::Task),
    Plan(plan::Task),
    Apply(apply::Task),
    Top(top::Task),
}

pub(crate) async fn run(url: &StoreUrl, task: Task, json: bool) -> Result<String, Failure> {
    match task {
        Task::Explain(task) => explain::run(url, task, json).await,
        Task::Plan(task) => plan::run(url, task, json).await,
        Task::Apply(task) => apply::run(url, task, json).await,
        // It has printed all that it has to say.
        Task::Top(task) => top::run(url, task, json).await.map(|()| String::new()),
    }
}

fn refused(code: Code, detail: impl Into<String>) -> Failure {
    Failure::Store(StoreError::refused(code, detail))
}
