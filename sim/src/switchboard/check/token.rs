//! Checker *token*.

use std::collections::BTreeMap;

use tenure_switchboard::storage::TokenEnd;

use super::{HistoryJudge, SubmissionFate, SwitchStep};

/// Expiry of each token, and whether it was revoked.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenJudge(BTreeMap<usize, (i64, bool)>);

impl TokenJudge {
    /// Compares whether a token was accepted with whether it was valid.
    fn used(&self, token: Option<usize>, wall: i64, ended: Option<TokenEnd>) -> Result<(), String> {
        let Some(token) = token else { return Ok(()) };
        let expected = match self.0.get(&token) {
            None => Some(TokenEnd::Gone),
            Some((_, true)) => Some(TokenEnd::Revoked),
            Some((expires_at, _)) => (*expires_at <= wall).then_some(TokenEnd::Expired),
        };
        if ended == expected {
            return Ok(());
        }
        Err(format!("token {token} at {wall} has {ended:?} instead of {expected:?}"))
    }
}

impl HistoryJudge for TokenJudge {
    const NAME: &'static str = "token";

    fn see(&mut self, step: &SwitchStep) -> Result<(), String> {
        match step {
            SwitchStep::TokenMade { token, expires_at } => {
                self.0.insert(*token, (*expires_at, false));
            }
            SwitchStep::TokenRevoked(token) => {
                if let Some(known) = self.0.get_mut(token) {
                    known.1 = true;
                }
            }
            SwitchStep::Committed { wall, sent, .. } => {
                for sent in sent {
                    match &sent.fate {
                        SubmissionFate::Ended(end) => self.used(sent.token, *wall, Some(*end))?,
                        SubmissionFate::Failed(_) => {}
                        _ => self.used(sent.token, *wall, None)?,
                    }
                }
            }
            SwitchStep::Beat(beat) => {
                let Some(token) = beat.token else { return Ok(()) };
                let known = self.0.get(&token);
                let is_valid = |known: &(i64, bool)| !known.1 && known.0 > beat.wall;
                if beat.is_ended == known.is_some_and(is_valid) {
                    return Err(format!("{beat:?}: expiry and revocation are {known:?}"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
