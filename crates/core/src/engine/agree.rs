//! Agreeing on the settings of the group: its layout is every member's, its TTL the longest.
//!
//! The deadlines of a member follow its own session, whatever the TTLs of the others. Only the wait
//! after a reset depends on them: it must outlast every session that the store has forgotten (R21).
//! So each member publishes the TTL of its session and the longest one that it knows of, and claims
//! nothing until all others know of one as long as its own. The longest is also in the document: a
//! rolling restart raises it with the first member, or lowers it with the last.
//!
//! A look lowers it only if it shows this member's session, and no wait is under way. Otherwise the
//! store may have dropped all sessions, and those of members that still work are missing, too.

use super::{Engine, GroupConfig, MemberStatus};
use crate::store::{GroupDocument, Member};
use crate::text::span;
use crate::{Change, Code, LocalInstant, Mutant, StoreError, Ttl};

/// TTLs of the members of a group, as far as one of them knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupTtl {
    pub(super) longest: Ttl,
    /// Whether all others know of one as long as this member's.
    pub(super) is_known: bool,
    /// A longer one in the document, while members that have it may be missing from the look.
    pub(super) written: Option<Ttl>,
}

impl GroupTtl {
    /// Returns the longest TTL that a session may have that the store has forgotten (R21).
    pub(super) fn to_outlast(self) -> Ttl {
        self.written.map_or(self.longest, |written| written.max(self.longest))
    }
}

impl Engine {
    /// Reads the group's document; fails if this member does not fit it. Writes it if the TTL is
    /// not the longest, or if the store has lost the settings.
    pub(super) fn agree_on(
        &mut self,
        document: &GroupDocument,
        members: &[Member],
        now: LocalInstant,
    ) -> Option<GroupConfig> {
        let group = match GroupConfig::read(document) {
            Ok(group) => group,
            // The previous document stays in force.
            Err(error) => {
                self.complain(now, Change::LookFailed, error.problem().to_string());
                return None;
            }
        };
        let layout = self.settings.layout;
        let fits = group.admits(layout, false, false);
        match fits.and_then(|_| self.agree_on_ttl(&group, members, now)) {
            Ok(ttl) => {
                if !self.is_shown(members) {
                    // The answer says whether the session has ended.
                    self.renew_now(now);
                } else if group.settings != Some((ttl, layout)) && !self.is_closing() {
                    self.settle(group.clone(), ttl, document.version, now);
                }
                Some(group)
            }
            Err(error) => {
                self.fail(error.problem().clone(), now);
                None
            }
        }
    }

    /// Compares the TTLs of the members, and returns the one that the document should have.
    pub(super) fn agree_on_ttl(
        &mut self,
        group: &GroupConfig,
        members: &[Member],
        now: LocalInstant,
    ) -> Result<Ttl, StoreError> {
        let (me, mine) = (&self.settings.instance, self.settings.ttl);
        let written = group.settings.map(|(ttl, _)| ttl);
        let complete = self.live.is_some() && self.is_shown(members) && self.waiting.is_none();
        let complete = complete || Mutant::R21Look.is_on();
        let kept = if complete { mine } else { self.group_ttl.longest };
        let (mut longest, mut is_known, mut older) = (kept, true, None);
        for member in members.iter().filter(|member| &member.instance != me) {
            let Some(status) = MemberStatus::read(&member.note) else { continue };
            longest = longest.max(status.ttl.or(written).unwrap_or(mine));
            is_known &= status.longest.or(written).is_none_or(|known| known >= mine);
            older = older.or(status.ttl.is_none().then_some(&member.instance));
        }
        let unseen = written.filter(|written| !complete && *written > longest);
        let heard = GroupTtl { longest, is_known, written: unseen };
        let agreed = match (older, written) {
            (Some(older), Some(written)) if mine > written => {
                let (theirs, mine) = (span(written.get()), span(mine.get()));
                let detail = format!(
                    "the group's TTL is {theirs}, this instance's is {mine}, and {older} runs an \
                     earlier version, which cannot follow"
                );
                return Err(StoreError::refused(Code::SettingsDiffer, detail));
            }
            // The older member would leave if the document changed.
            (older, Some(written)) if older.is_some() || !complete => written,
            _ => longest,
        };
        self.hear(heard, now);
        Ok(agreed)
    }

    /// Whether these members include this session; without a session nothing is missing.
    fn is_shown(&self, members: &[Member]) -> bool {
        let nonce = self.live.as_ref().map(|live| live.session.nonce);
        nonce.is_none() || members.iter().any(|member| member.nonce == nonce)
    }

    fn hear(&mut self, heard: GroupTtl, now: LocalInstant) {
        let before = std::mem::replace(&mut self.group_ttl, heard);
        let more = heard.to_outlast().get().saturating_sub(before.to_outlast().get());
        self.waiting = self.waiting.map(|until| until.plus(more * 51 / 50));
        if heard.longest == before.longest {
            return;
        }
        let (longest, mine) = (span(heard.longest.get()), span(self.settings.ttl.get()));
        let why = format!("the longest TTL of the members is {longest}, this instance's is {mine}");
        self.record(now, Change::GroupTtl, None, None, why);
        self.say_status(now);
    }
}
