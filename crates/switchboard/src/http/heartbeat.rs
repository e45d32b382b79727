//! A connector says that it lives.

use hyper::body::Incoming;

use super::Asked;
use super::answer::{Answer, Refusal, Refused};

impl Asked<'_> {
    /// `POST /api/switchboard/heartbeat`.
    pub(super) async fn heartbeat(self, _body: Incoming) -> Result<Answer, Refused> {
        Err(Refusal::internal())
    }
}
