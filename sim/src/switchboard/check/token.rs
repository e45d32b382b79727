//! Checker *token*.

use std::collections::BTreeMap;

use tenure_switchboard::storage::TokenEnd;

use super::{BeatAnswer, HistoryJudge, SubmissionFate, SwitchStep};

/// Expiry of each token, and whether it was revoked.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenJudge(BTreeMap<usize, (i64, bool)>);

impl TokenJudge {
    /// Compares whether a request was refused for its token with whether that had ended.
    fn used(&self, token: Option<usize>, wall: i64, ended: Option<TokenEnd>) -> Result<(), String> {
        let expected = token.and_then(|token| match self.0.get(&token) {
            None => Some(TokenEnd::Gone),
            Some((_, true)) => Some(TokenEnd::Revoked),
            Some((expires_at, _)) => (*expires_at <= wall).then_some(TokenEnd::Expired),
        });
        if ended == expected {
            return Ok(());
        }
        Err(format!("token {token:?} at {wall} has {ended:?} instead of {expected:?}"))
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
            SwitchStep::Committed { wall, sent } => {
                for sent in sent {
                    match &sent.fate {
                        SubmissionFate::Ended(end) => self.used(sent.token, *wall, Some(*end))?,
                        SubmissionFate::Failed(_) => {}
                        _ => self.used(sent.token, *wall, None)?,
                    }
                }
            }
            SwitchStep::Beat(beat) => match beat.answer {
                BeatAnswer::Accepted { .. } => return self.used(beat.token, beat.wall, None),
                BeatAnswer::Ended(end) => return self.used(beat.token, beat.wall, Some(end)),
                BeatAnswer::TooMany => return Err(format!("{beat:?}: there are few connectors")),
            },
            _ => {}
        }
        Ok(())
    }
}
