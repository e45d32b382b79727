//! A consumer says what became of a message.

use hyper::body::Incoming;

use super::Asked;
use super::answer::{Answer, Refusal, Refused};

impl Asked<'_> {
    /// `POST /api/switchboard/inbox/{request_id}/outcome`.
    pub(super) async fn outcome(self, _body: Incoming) -> Result<Answer, Refused> {
        Err(Refusal::internal())
    }
}
