//! Clients that open sessions and leave them.

use super::clients::metric;
use super::stream::{Session, list_tools, sessions_become};
use crate::switchboard::overload::peak_memory;
use crate::switchboard::{Place, envelope};

/// A thousand sessions are opened and left, half of them in the middle of an answer. Whoever else
/// asks is served meanwhile, and nothing is left of them.
#[test]
fn a_thousand_abandoned_sessions_leave_nothing() {
    const AT_ONCE: usize = 250;
    let place = Place::sqlite();
    let server = place.serve(&["--max-connections", "1024"]);
    let mut faithful = Session::open(&server);
    let before = peak_memory(&server);
    for round in 0..4 {
        let sessions: Vec<Session> = (0..AT_ONCE).map(|_| Session::open(&server)).collect();
        assert_eq!(metric(&server, "switchboard_sse_sessions"), AT_ONCE + 1);
        for session in sessions.iter().step_by(2) {
            session.post(&server, &list_tools(1)).is(202);
        }
        server.ingest(&envelope(&round.to_string())).is(202);
        faithful.post(&server, &list_tools(round)).is(202);
        assert_eq!(faithful.told()["id"], round);
        // With bytes unread a connection is reset, without any it is closed.
        drop(sessions);
        sessions_become(&server, 1);
    }
    let grown = peak_memory(&server) - before;
    assert!(grown < 64 << 10, "{grown} KiB");
    assert_eq!(metric(&server, "switchboard_budget_bytes"), 0);
    drop(faithful);
    sessions_become(&server, 0);
    server.stop();
}
