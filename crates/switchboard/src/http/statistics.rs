//! What connectors have done.

use super::Asked;
use super::answer::{Answer, Refusal, Refused};

impl Asked<'_> {
    /// `GET /api/connectors/summary`.
    pub(super) async fn connector_summary(self) -> Result<Answer, Refused> {
        Err(Refusal::internal())
    }

    /// `GET /api/connectors/fanout`.
    pub(super) async fn fanout(self) -> Result<Answer, Refused> {
        Err(Refusal::internal())
    }

    /// `GET /api/connectors/{type}/{identity}/stats`.
    pub(super) async fn connector_stats(self) -> Result<Answer, Refused> {
        Err(Refusal::internal())
    }
}
