//! Table of settings and the level that each value allows.

use std::fmt;

use super::Level;
use Pattern::{All, AtLeast, Below, Else, Has, Is, Within};

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its name in a survey.
    pub name: &'static str,
    /// The level with the best settings.
    pub best: Level,
    /// The rights that make its settings readable.
    pub rights: &'static str,
}

impl Backend {
    /// Finds a backend by name.
    pub fn named(name: &str) -> Option<&'static Self> {
        BACKENDS.iter().find(|backend| backend.name == name)
    }
}

const fn backend(name: &'static str, best: Level, rights: &'static str) -> Backend {
    Backend { name, best, rights }
}

/// Every kind of store.
pub const BACKENDS: &[Backend] = &[
    backend("postgres", Level::ExclusiveEffects, "grant pg_monitor to Tenure's role"),
    backend("etcd", Level::Fenced, "let the user read the cluster's status and its alarms"),
    backend(
        "redis",
        Level::Fenced,
        "allow the user +info and +config|get, or check the server's configuration file",
    ),
    backend("sqlite", Level::Fenced, "check that the directory is readable"),
    backend("file", Level::Fenced, "check that the directory is readable"),
    backend("memory", Level::BestEffort, "use another store"),
];

/// Values that a row matches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// One of these words.
    Is(&'static [&'static str]),
    /// A text that contains this.
    Has(&'static str),
    /// `N of N`, above zero.
    All,
    /// A number not below this.
    AtLeast(f64),
    /// A number below this.
    Below(f64),
    /// A number whose absolute value is at most this.
    Within(f64),
    /// Any value that no earlier row matches.
    Else,
}

impl Pattern {
    /// Whether a value matches.
    pub fn matches(&self, value: &str) -> bool {
        let number = || value.parse::<f64>().ok();
        match self {
            Is(words) => words.contains(&value),
            Has(part) => value.contains(part),
            All => value.split_once(" of ").is_some_and(|(some, all)| some == all && some != "0"),
            AtLeast(limit) => number().is_some_and(|number| number >= *limit),
            Below(limit) => number().is_some_and(|number| number < *limit),
            Within(limit) => number().is_some_and(|number| number.abs() <= *limit),
            Else => true,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Is(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                f.write_str(&words.join(", "))
            }
            Has(part) => write!(f, "with `{}`", part.trim()),
            All => f.write_str("`N of N`"),
            AtLeast(limit) => write!(f, "at least {limit}"),
            Below(limit) => write!(f, "below {limit}"),
            Within(limit) => write!(f, "-{limit} to {limit}"),
            Else => f.write_str("anything else"),
        }
    }
}

/// Level that a setting allows with certain values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SettingRule {
    /// The kinds of store that it applies to.
    pub backends: &'static [&'static str],
    /// The setting.
    pub setting: &'static str,
    /// Its values; the first matching row counts.
    pub pattern: Pattern,
    /// The highest level that they allow.
    pub level: Level,
    /// Meaning, in one sentence.
    pub sentence: &'static str,
    /// The recommended change.
    pub change: Option<&'static str>,
}

impl SettingRule {
    /// Whether it applies to this kind of store.
    pub fn is_of(&self, backend: &str) -> bool {
        self.backends.contains(&backend)
    }
}

/// Whether the table has a setting for a kind of store.
pub fn has_setting(backend: &str, setting: &str) -> bool {
    TABLE.iter().any(|row| row.is_of(backend) && row.setting == setting)
}

/// The setting lowers nothing.
const FINE: Level = Level::ExclusiveEffects;
const REPEATS: Level = Level::AtLeastOnce;
const LOSES: Level = Level::BestEffort;

const fn first(change: &[&'static str]) -> Option<&'static str> {
    match change {
        [first, ..] => Some(first),
        [] => None,
    }
}

macro_rules! table {
    ($($backends:tt { $($setting:literal {
        $($pattern:expr => $level:ident $sentence:literal $($change:literal)?;)+
    })+ })+) => {
        /// All rows, grouped by store and setting.
        pub const TABLE: &[SettingRule] = &[$($($(SettingRule {
            backends: &$backends,
            setting: $setting,
            pattern: $pattern,
            level: $level,
            sentence: $sentence,
            change: first(&[$($change)?]),
        },)+)+)+];
    };
}

table! {
    ["postgres"] {
        "recovery" {
            Is(&["primary"]) => FINE "the server accepts writes";
            Is(&["standby"]) => LOSES "a standby is read-only and grants no leases"
                "connect to the primary";
        }
        "fsync" {
            Is(&["on"]) => FINE "the server waits for the disk";
            Is(&["off"]) => LOSES "a machine crash may corrupt the whole database"
                "set fsync = on";
        }
        "full_page_writes" {
            Is(&["on"]) => FINE "a page torn by a crash is repaired";
            Is(&["off"]) => LOSES "a page torn by a crash stays corrupt"
                "set full_page_writes = on";
        }
        "synchronous_commit" {
            Is(&["on", "remote_apply"]) => FINE "acknowledged writes are on disk, on standbys too";
            Has(", nobody to wait for") => FINE "acknowledged writes are on disk, with no standby";
            Is(&["remote_write"]) => REPEATS "a standby acknowledges before it is on its disk"
                "set synchronous_commit = on";
            Is(&["local"]) => REPEATS
                "commits do not wait for a standby: a failover may lose grants"
                "set synchronous_commit = on";
            Is(&["off"]) => REPEATS "a crash loses the most recently acknowledged writes"
                "set synchronous_commit = on, at least for the role that runs Tenure";
        }
        "standbys" {
            Is(&["none"]) => FINE "no standby is connected: there is nothing to fail over to";
            Is(&["synchronous"]) => FINE "every standby has all acknowledged writes";
            Is(&["missing"]) => FINE "writes wait: no synchronous standby is connected"
                "start the standbys of synchronous_standby_names, or empty it";
            Is(&["mixed"]) => REPEATS "some standbys may lack acknowledged writes"
                "make every standby that may be promoted synchronous: FIRST N or ANY N over all N";
            Is(&["asynchronous"]) => REPEATS "a failover may lose acknowledged grants"
                "name the standbys in synchronous_standby_names";
        }
        "default_transaction_read_only" {
            Is(&["off"]) => FINE "transactions may write";
            Is(&["on"]) => LOSES "every write is refused"
                "set default_transaction_read_only = off for the role that runs Tenure";
        }
        "pooled" {
            Is(&["direct"]) => FINE "a direct connection";
            Is(&["pooled"]) => FINE "a pooler or several hosts: change notifications may not arrive"
                "give watchers the server's own address, or let them poll";
        }
        "idle_in_transaction_session_timeout" {
            AtLeast(1.0) => FINE "a client that hangs inside a transaction is disconnected";
            Is(&["0"]) => FINE "a client that hangs inside a transaction keeps its locks"
                "set idle_in_transaction_session_timeout, e.g. to 60s";
        }
        "server_version" {
            AtLeast(14.0) => FINE "Tenure is tested with 15";
            Below(14.0) => FINE "older than the tested versions and no longer supported"
                "update the server";
        }
        "tls" {
            Is(&["on"]) => FINE "the connection is encrypted";
            Is(&["socket"]) => FINE "the connection stays on this machine";
            Is(&["off"]) => FINE "checkpoints cross the network unencrypted"
                "use sslmode=require, or a private network";
        }
        "clock_difference_ms" {
            Within(5000.0) => FINE "the server's clock decides expiry and agrees with ours";
            Else => FINE "displayed times are off; only the server's clock decides expiry"
                "synchronize both clocks by slewing: a step ends holds early or late";
        }
    }
    ["redis"] {
        "appendonly" {
            Is(&["yes"]) => FINE "writes go to the append-only file";
            Is(&["no"]) => LOSES "a restart loses everything since the last snapshot"
                "set appendonly yes";
        }
        "appendfsync" {
            Is(&["always"]) => FINE "acknowledged writes are on disk";
            Is(&["everysec"]) => REPEATS "a machine crash loses the last second or two"
                "set appendfsync always";
            Is(&["no"]) => LOSES "a machine crash loses whatever the system had not written yet"
                "set appendfsync always";
        }
        "no-appendfsync-on-rewrite" {
            Is(&["no"]) => FINE "the server waits for the disk during a rewrite, too";
            Is(&["yes"]) => LOSES "during a rewrite it behaves like appendfsync no"
                "set no-appendfsync-on-rewrite no";
        }
        "maxmemory" {
            AtLeast(1.0) => FINE "a full server refuses writes instead of being killed";
            Is(&["0"]) => FINE "without a limit, the system may kill a growing server"
                "set maxmemory, with maxmemory-policy noeviction";
        }
        "maxmemory-policy" {
            Is(&["noeviction"]) => FINE "a full server refuses writes and keeps its keys";
            Has(", not in force") => FINE "with maxmemory it would evict leases and checkpoints"
                "set maxmemory-policy noeviction";
            Else => LOSES "a full server evicts leases, fences or checkpoints"
                "set maxmemory-policy noeviction, and keep caches in another server";
        }
        "role" {
            Is(&["master"]) => FINE "the server accepts writes";
            Is(&["slave"]) => LOSES "a replica is read-only and grants no leases"
                "connect to the primary";
        }
        "connected_replicas" {
            Is(&["0"]) => FINE "no replica is connected: there is nothing to fail over to";
            AtLeast(1.0) => REPEATS "a promoted replica may lack acknowledged grants"
                "disable failover, or use etcd or PostgreSQL with synchronous standbys";
        }
        "min-replicas-to-write" {
            Is(&["0"]) => FINE "writes do not wait for replicas";
            AtLeast(1.0) => FINE "a failover loses less, but may still lose acknowledged writes";
        }
        "cluster_enabled" {
            Is(&["no"]) => FINE "one server has all keys";
            Is(&["yes"]) => LOSES "a lease and its fence may be on different servers"
                "use a single server";
        }
        "tls" {
            Is(&["on"]) => FINE "the connection is encrypted";
            Is(&["off"]) => FINE "the password and checkpoints cross the network unencrypted"
                "use rediss://, or a private network";
        }
        "clock_difference_ms" {
            Within(5000.0) => FINE "TTLs follow the server's clock, which agrees with ours";
            Else => FINE "displayed times are off; only the server's clock decides expiry"
                "synchronize both clocks by slewing: a step ends holds early or late";
        }
    }
    ["sqlite"] {
        "journal_mode" {
            Is(&["wal"]) => FINE "commits are atomic";
            Else => LOSES "Tenure is tested with WAL only"
                "put the file where WAL works: on a local disk";
        }
        "synchronous" {
            Is(&["full", "extra"]) => FINE "acknowledged writes are on disk";
            Is(&["normal"]) => REPEATS "power loss undoes the last commits"
                "set PRAGMA synchronous = FULL";
            Is(&["off"]) => LOSES "power loss may corrupt the file"
                "set PRAGMA synchronous = FULL";
        }
        "free_bytes" {
            AtLeast(104857600.0) => FINE "enough space is left";
            Below(104857600.0) => FINE "little space is left; on a full disk, commits fail"
                "free disk space";
        }
        "file_mode" {
            Is(&["0600", "0400", "0700", "0500"]) => FINE "only the owner can read the file";
            Else => FINE "other users can read checkpoints, messages and token digests"
                "chmod 600 the file and its companions (PATH-*), unless a group shares it";
        }
    }
    ["sqlite", "file"] {
        "filesystem" {
            Is(&["ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs"]) => FINE
                "a local disk: locks and fsync work";
            Is(&["overlay"]) => FINE "a container layer: deleted with the container"
                "put the file on a volume";
            Is(&["tmpfs", "ramfs"]) => LOSES "in memory: lost at reboot"
                "put the file on a disk";
            Is(&["nfs", "cifs", "smb", "9p", "ceph", "afs", "lustre", "gfs2", "ocfs2"]) => LOSES
                "a network file system: locks and fsync are unreliable"
                "put the file on a local disk, or share PostgreSQL, etcd or Redis";
            Is(&["fuse"]) => LOSES "served by a program; its fsync behaviour is unknown"
                "put the file on a local disk";
            Else => LOSES "Tenure does not know this file system"
                "put the file on ext4, xfs, btrfs or zfs";
        }
    }
    ["file"] {
        "lock" {
            Is(&["flock"]) => FINE "a second process is refused";
            Else => LOSES "a second process may write the same file"
                "put the file where flock works: on a local disk";
        }
        "users" {
            Is(&["one"]) => FINE "only this process has it open";
            Else => LOSES "several processes share a file made for one"
                "use SQLite on one host, or PostgreSQL, etcd or Redis";
        }
    }
    ["etcd"] {
        "members" {
            AtLeast(3.0) => FINE "one member may fail";
            Is(&["1"]) => FINE "the only member is a single point of failure"
                "run three members, or five";
            Is(&["2"]) => FINE "both members are required: two fail more often than one"
                "run three members, or five";
        }
        "healthy_members" {
            All => FINE "every member answers";
            Is(&["0"]) => LOSES "no member answers" "start the members";
            Has(" of ") => FINE "a member does not answer; writes need more than half"
                "start or replace that member";
            AtLeast(1.0) => FINE "this many members answer";
        }
        "database_bytes" {
            AtLeast(0.0) => FINE "see quota_percent";
        }
        "quota_percent" {
            Below(80.0) => FINE "enough space is left";
            AtLeast(80.0) => FINE "a full database refuses writes"
                "compact and defragment, or raise --quota-backend-bytes";
        }
        "alarms" {
            Is(&["none"]) => FINE "no alarm is raised";
            Has("corrupt") => LOSES "the members' data differs"
                "restore the corrupt member, then disarm the alarm";
            Has("nospace") => FINE "writes are refused until there is space; nothing is lost"
                "compact, defragment, then `etcdctl alarm disarm`";
        }
        "uncompacted_revisions" {
            Below(100000.0) => FINE "old revisions are removed in time";
            AtLeast(100000.0) => FINE "old revisions accumulate and fill the quota"
                "enable --auto-compaction-retention";
        }
        "auth" {
            Is(&["on"]) => FINE "users need a password or a certificate";
            Is(&["off"]) => FINE "anyone who reaches the port can write"
                "enable authentication, or require client certificates";
        }
        "tls" {
            Is(&["on"]) => FINE "the connection is encrypted";
            Is(&["off"]) => FINE "the password and checkpoints cross the network unencrypted"
                "use etcds://, or a private network";
        }
    }
    ["postgres", "etcd", "redis", "sqlite", "file"] {
        "round_trip_ms" {
            Within(300.0) => FINE "short compared with a TTL";
            AtLeast(300.0) => FINE "a renewal may be late if packets are lost"
                "move the store closer, or use longer TTLs";
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published() -> String {
        let mut text = "| store | setting | value | at most | what it means | what to change |\n\
            |---|---|---|---|---|---|\n"
            .to_owned();
        for row in TABLE {
            let at_most = if row.level == FINE { "-" } else { row.level.as_str() };
            let cells = [
                &row.backends.join(", "),
                &format!("`{}`", row.setting),
                &row.pattern.to_string(),
                at_most,
                row.sentence,
                row.change.unwrap_or("-"),
            ];
            text.push_str(&format!(
                "| {} |\n",
                cells.map(|cell| cell.replace('|', "\\|")).join(" | ")
            ));
        }
        text
    }

    #[test]
    fn the_page_has_the_table() {
        crate::tests::check_page("guarantees", "guarantee-table", &published());
    }

    #[test]
    fn rows_name_stores_that_exist_and_all_are_reached() {
        for (n, row) in TABLE.iter().enumerate() {
            assert!(row.backends.iter().all(|name| Backend::named(name).is_some()), "{row:?}");
            let hidden = |earlier: &SettingRule| {
                earlier.setting == row.setting
                    && earlier.backends == row.backends
                    && (earlier.pattern == Else || earlier.pattern == row.pattern)
            };
            assert!(!TABLE[..n].iter().any(hidden), "never reached: {row:?}");
            // A row that lowers a level must recommend a change.
            assert!(row.level == FINE || row.change.is_some(), "{row:?}");
        }
    }

    #[test]
    fn patterns_match_what_they_say() {
        for (pattern, yes, no) in [
            (Is(&["a", "b"]), &["a", "b"][..], &["", "ab", "A"][..]),
            (Has(" of "), &["1 of 3"], &["3", "of"]),
            (All, &["3 of 3"], &["2 of 3", "0 of 0", "3"]),
            (AtLeast(80.0), &["80", "80.5", "100"], &["79.9", "-80", "x", "", "NaN"]),
            (Below(14.0), &["13.9", "-1"], &["14", "x", "NaN"]),
            (Within(5.0), &["5", "-5", "0"], &["5.1", "-6", "x", "NaN"]),
            (Else, &["", "x"], &[]),
        ] {
            assert!(yes.iter().all(|value| pattern.matches(value)), "{pattern:?} {yes:?}");
            assert!(!no.iter().any(|value| pattern.matches(value)), "{pattern:?} {no:?}");
        }
    }
}
