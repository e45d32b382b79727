//! Connectors, one by one.

use hyper::body::Incoming;

use super::Asked;
use super::answer::{Answer, Refusal, Refused};

impl Asked<'_> {
    /// `GET /api/connectors`.
    pub(super) async fn connectors(self) -> Result<Answer, Refused> {
        Err(Refusal::internal())
    }

    /// `GET /api/connectors/{type}/{identity}`.
    pub(super) async fn connector(self) -> Result<Answer, Refused> {
        Err(Refusal::internal())
    }

    /// `GET /api/connectors/{type}/{identity}/heartbeats`.
    pub(super) async fn heartbeats(self) -> Result<Answer, Refused> {
        Err(Refusal::internal())
    }

    /// `POST /api/connectors/{type}/{identity}/archive`.
    pub(super) async fn archive(self, _body: Incoming) -> Result<Answer, Refused> {
        Err(Refusal::internal())
    }

    /// `DELETE /api/connectors/{type}/{identity}`.
    pub(super) async fn delete_connector(self, _body: Incoming) -> Result<Answer, Refused> {
        Err(Refusal::internal())
    }
}
