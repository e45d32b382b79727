//! Tokens that an operator creates and revokes.

use tenure_switchboard::storage::{NewToken, Tokens as _};

use super::SwitchWorld;
use super::convert::scope;
use crate::switchboard::story::SwitchStep;
use crate::switchboard::{DAY, SECOND, SwitchFault};

impl SwitchWorld {
    /// Returns a token of a source that was not revoked, or creates one.
    pub(super) fn token(&mut self, source: usize) -> usize {
        let valid = self.tokens.iter().rposition(|(of, revoked)| *of == source && !revoked);
        match valid.filter(|_| !self.rng.chance(200)) {
            Some(token) => token,
            None => self.make_token(source),
        }
    }

    pub(super) fn make_token(&mut self, source: usize) -> usize {
        let number = self.tokens.len();
        let is_short = self.strikes(SwitchFault::TokenShort, 500);
        let lifetime = if is_short { self.scenario.heal / 8 } else { 500 * DAY };
        let token = NewToken {
            token_id: format!("tok_{number}"),
            hash: std::array::from_fn(|n| (number >> (8 * (n % 4))) as u8),
            environment: "dev".to_owned(),
            roles: vec!["ingest".to_owned()],
            scope: Some(scope(source)),
            lifetime,
            by: "sim".to_owned(),
            description: String::new(),
            replaces: None,
        };
        let answer = self.runtime.block_on(self.storage.create_token(&token));
        self.sound("create_token", answer);
        self.tokens.push((source, false));
        let expires_at = self.wall() + lifetime;
        self.line("operator", || {
            format!("creates t{number} of e{source} for {} s", lifetime / SECOND)
        });
        self.history.push(SwitchStep::TokenMade { token: number, expires_at });
        number
    }

    /// Revokes a token. Returns whether there was one.
    pub(super) fn revoke_token(&mut self) -> bool {
        let valid: Vec<usize> =
            (0..self.tokens.len()).filter(|token| !self.tokens[*token].1).collect();
        let Some(token) = self.rng.pick(&valid) else { return false };
        let id = format!("tok_{token}");
        let answer = self.runtime.block_on(self.storage.revoke_token(&id, "sim", ""));
        self.tokens[token].1 = true;
        let revoked = self.sound("revoke_token", answer).flatten();
        self.line("operator", || match revoked {
            Some(true) => format!("revokes t{token}"),
            Some(false) => format!("revokes t{token}, which was revoked before"),
            None => format!("revokes t{token}, which is unknown"),
        });
        if revoked.is_some() {
            self.history.push(SwitchStep::TokenRevoked(token));
        }
        revoked.is_some()
    }
}
