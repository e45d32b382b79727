//! Connectors, one by one.

use hyper::body::Incoming;

use super::answer::{Answer, Refusal, Refused};
use super::inbox::Page;
use super::{Asked, State};
use crate::storage::Name;

/// How many connectors a page has, and how many at most.
pub(crate) const USUAL: usize = 1_000;
pub(crate) const MOST: usize = 10_000;

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

/// A page of connectors as JSON: `{"data":[..],"meta":{"next_after":..}}`. `after` is what the page
/// before has as `next_after`.
pub(crate) async fn list<'a>(
    _state: &'a State,
    _after: Option<&str>,
    _limit: usize,
    _archived: bool,
) -> Result<Page<'a>, Refused> {
    Err(Refusal::internal())
}

/// Everything that is known of a connector as JSON: `{"data":{..},"meta":{}}`.
pub(crate) async fn show<'a>(_state: &'a State, _name: &Name) -> Result<Page<'a>, Refused> {
    Err(Refusal::internal())
}
