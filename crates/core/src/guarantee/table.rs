//! The one table of settings and what they allow.

use std::fmt;

use super::Level;
use Pattern::{All, AtLeast, Below, Else, Has, Is, Within};

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    /// As a survey names it.
    pub name: &'static str,
    /// The level with the best settings.
    pub best: Level,
    /// The rights that make its settings readable.
    pub rights: &'static str,
}

impl Backend {
    /// Finds it by name.
    pub fn named(name: &str) -> Option<&'static Self> {
        BACKENDS.iter().find(|backend| backend.name == name)
    }
}

/// Every kind of store.
pub const BACKENDS: &[Backend] = &[
    Backend {
        name: "postgres",
        best: Level::ExclusiveEffects,
        rights: "grant pg_monitor to the role that asks",
    },
    Backend {
        name: "etcd",
        best: Level::Fenced,
        rights: "let the user read the cluster's status and its alarms",
    },
    Backend {
        name: "redis",
        best: Level::Fenced,
        rights: "allow the user +info and +config|get, or look at the server's own file",
    },
    Backend { name: "sqlite", best: Level::Fenced, rights: "look whether the folder can be read" },
    Backend { name: "file", best: Level::Fenced, rights: "look whether the folder can be read" },
    Backend { name: "memory", best: Level::BestEffort, rights: "use another store" },
];

/// Which values a row is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// One of these words.
    Is(&'static [&'static str]),
    /// A text with this in it.
    Has(&'static str),
    /// `N of N`, above zero.
    All,
    /// A number, so large or larger.
    AtLeast(f64),
    /// A smaller number.
    Below(f64),
    /// A number that is not further from zero.
    Within(f64),
    /// Any value that no earlier row matches.
    Else,
}

impl Pattern {
    /// Whether a value is meant.
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

/// Level that some values of a setting allow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SettingRule {
    /// The kinds of store that it is about.
    pub backends: &'static [&'static str],
    /// The setting.
    pub setting: &'static str,
    /// Its values; the first row that matches counts.
    pub pattern: Pattern,
    /// The highest level that they allow.
    pub level: Level,
    /// One sentence that says what they mean.
    pub sentence: &'static str,
    /// The recommended change.
    pub change: Option<&'static str>,
}

impl SettingRule {
    /// Whether it is about this kind of store.
    pub fn is_of(&self, backend: &str) -> bool {
        self.backends.contains(&backend)
    }
}

/// Whether the table has a setting for a kind of store.
pub fn has_setting(backend: &str, setting: &str) -> bool {
    TABLE.iter().any(|row| row.is_of(backend) && row.setting == setting)
}

/// It takes nothing away.
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
        /// Every row, by store and setting.
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
            Is(&["primary"]) => FINE "the server takes writes";
            Is(&["standby"]) => LOSES "a standby has no leases of its own"
                "connect to the primary";
        }
        "fsync" {
            Is(&["on"]) => FINE "the server waits for its disk";
            Is(&["off"]) => LOSES "a crash of the machine may damage the whole database"
                "set fsync = on";
        }
        "full_page_writes" {
            Is(&["on"]) => FINE "a page that is half written in a crash is repaired";
            Is(&["off"]) => LOSES "a page that is half written in a crash stays damaged"
                "set full_page_writes = on";
        }
        "synchronous_commit" {
            Is(&["on", "remote_apply"]) => FINE "what is answered is on disk, here and there";
            Has(", nobody to wait for") => FINE "what is answered is on disk; no standby is named";
            Is(&["remote_write"]) => REPEATS "a standby may not have it on disk when it is answered"
                "set synchronous_commit = on";
            Is(&["local"]) => REPEATS "no standby is waited for: a failover may lose grants"
                "set synchronous_commit = on";
            Is(&["off"]) => REPEATS "a crash loses what was answered in the last moment"
                "set synchronous_commit = on, at least for the role that runs Tenure";
        }
        "standbys" {
            Is(&["none"]) => FINE "no standby is connected: there is nothing to fail over to";
            Is(&["synchronous"]) => FINE "every standby has what was answered";
            Is(&["missing"]) => FINE "writes wait: no synchronous standby is connected"
                "start the standbys of synchronous_standby_names, or empty it";
            Is(&["mixed"]) => REPEATS "not every standby has all that was answered"
                "make all that may be promoted synchronous: FIRST N or ANY N with all N of them";
            Is(&["asynchronous"]) => REPEATS "a failover may lose grants that were answered"
                "name the standbys in synchronous_standby_names";
        }
        "default_transaction_read_only" {
            Is(&["off"]) => FINE "transactions may write";
            Is(&["on"]) => LOSES "every write is refused"
                "set default_transaction_read_only = off for the role that runs Tenure";
        }
        "pooled" {
            Is(&["direct"]) => FINE "nothing stands between";
            Is(&["pooled"]) => FINE "a pooler or several hosts: hints may not arrive"
                "give programs that watch the server's own address, or let them poll";
        }
        "idle_in_transaction_session_timeout" {
            AtLeast(1.0) => FINE "a client that is stuck in its own transaction is cut off";
            Is(&["0"]) => FINE "a client that is stuck in its own transaction keeps its locks"
                "set idle_in_transaction_session_timeout, e.g. to 60s";
        }
        "server_version" {
            AtLeast(14.0) => FINE "Tenure is tested with 15";
            Below(14.0) => FINE "older than what Tenure is tested with, and without updates"
                "update the server";
        }
        "tls" {
            Is(&["on"]) => FINE "the connection is encrypted";
            Is(&["socket"]) => FINE "the connection does not leave the machine";
            Is(&["off"]) => FINE "who listens on the network reads checkpoints"
                "use sslmode=require, or a private network";
        }
        "clock_difference_ms" {
            Within(5000.0) => FINE "the server's clock judges expiry, and agrees with ours";
            Else => FINE "times look wrong here; expiry follows the server's clock alone"
                "let time be kept on both, by slewing: a step ends holds early or late";
        }
    }
    ["redis"] {
        "appendonly" {
            Is(&["yes"]) => FINE "writes go to the append-only file";
            Is(&["no"]) => LOSES "a restart loses what came after the last snapshot, if any"
                "set appendonly yes";
        }
        "appendfsync" {
            Is(&["always"]) => FINE "what is answered is on disk";
            Is(&["everysec"]) => REPEATS "a crash of the machine loses the last second or two"
                "set appendfsync always";
            Is(&["no"]) => LOSES "a crash of the machine loses what the system had not written yet"
                "set appendfsync always";
        }
        "no-appendfsync-on-rewrite" {
            Is(&["no"]) => FINE "the disk is waited for during a rewrite, too";
            Is(&["yes"]) => LOSES "during a rewrite it is as with appendfsync no"
                "set no-appendfsync-on-rewrite no";
        }
        "maxmemory" {
            AtLeast(1.0) => FINE "a full server refuses writes instead of being killed";
            Is(&["0"]) => FINE "without a limit the system may kill a server that grows"
                "set maxmemory, with maxmemory-policy noeviction";
        }
        "maxmemory-policy" {
            Is(&["noeviction"]) => FINE "a full server refuses writes and keeps its keys";
            Has(", not in force") => FINE "with a maxmemory it would evict leases and checkpoints"
                "set maxmemory-policy noeviction";
            Else => LOSES "a full server evicts leases, fences or checkpoints"
                "set maxmemory-policy noeviction, and keep caches in another server";
        }
        "role" {
            Is(&["master"]) => FINE "the server takes writes";
            Is(&["slave"]) => LOSES "a replica has no leases of its own"
                "connect to the primary";
        }
        "connected_replicas" {
            Is(&["0"]) => FINE "no replica is connected: there is nothing to fail over to";
            AtLeast(1.0) => REPEATS "a replica that is promoted may lack grants that were answered"
                "do without failover, or use etcd or PostgreSQL with synchronous standbys";
        }
        "min-replicas-to-write" {
            Is(&["0"]) => FINE "writes do not wait for replicas";
            AtLeast(1.0) => FINE "a failover loses less, but may still lose what was answered";
        }
        "cluster_enabled" {
            Is(&["no"]) => FINE "one server has all keys";
            Is(&["yes"]) => LOSES "a lease and its fence may live on different servers"
                "use a single server";
        }
        "tls" {
            Is(&["on"]) => FINE "the connection is encrypted";
            Is(&["off"]) => FINE "who listens on the network reads the password and checkpoints"
                "use rediss://, or a private network";
        }
        "clock_difference_ms" {
            Within(5000.0) => FINE "TTLs follow the server's wall clock, and it agrees with ours";
            Else => FINE "times look wrong here; TTLs follow the server's wall clock alone"
                "let time be kept on both, by slewing: a step ends holds early or late";
        }
    }
    ["sqlite"] {
        "journal_mode" {
            Is(&["wal"]) => FINE "a commit is whole or not there";
            Else => LOSES "Tenure is proved with WAL only"
                "put the file where WAL works: on a local disk";
        }
        "synchronous" {
            Is(&["full", "extra"]) => FINE "what is answered is on disk";
            Is(&["normal"]) => REPEATS "power loss takes the last commits back"
                "set PRAGMA synchronous = FULL";
            Is(&["off"]) => LOSES "power loss may damage the file"
                "set PRAGMA synchronous = FULL";
        }
        "free_bytes" {
            AtLeast(104857600.0) => FINE "there is room";
            Below(104857600.0) => FINE "little room is left; without any, commits are refused"
                "make room on that file system";
        }
        "file_mode" {
            Is(&["0600", "0400", "0700", "0500"]) => FINE "only its owner may read the file";
            Else => FINE "other users may open it: checkpoints, messages and digests of tokens"
                "chmod 600 the file and its companions (PATH-*), unless a group shares it";
        }
    }
    ["sqlite", "file"] {
        "filesystem" {
            Is(&["ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs"]) => FINE
                "a local disk: locks and fsync work";
            Is(&["overlay"]) => FINE "the layer of a container: gone when it is removed"
                "put the file on a volume";
            Is(&["tmpfs", "ramfs"]) => LOSES "in memory: gone after a reboot"
                "put the file on a disk";
            Is(&["nfs", "cifs", "smb", "9p", "ceph", "afs", "lustre", "gfs2", "ocfs2"]) => LOSES
                "shared by a network: locks and fsync are not to be relied on"
                "put the file on a local disk, or share PostgreSQL, etcd or Redis";
            Is(&["fuse"]) => LOSES "a program serves it, and what it does with fsync is not known"
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
            Is(&["one"]) => FINE "this process alone has it open";
            Else => LOSES "several processes share a file that is made for one"
                "use SQLite on one host, or PostgreSQL, etcd or Redis";
        }
    }
    ["etcd"] {
        "members" {
            AtLeast(3.0) => FINE "one member may fail";
            Is(&["1"]) => FINE "the only member is a single point of failure"
                "run three members, or five";
            Is(&["2"]) => FINE "both members are needed: two fail more often than one"
                "run three members, or five";
        }
        "healthy_members" {
            All => FINE "every member answers";
            Is(&["0"]) => LOSES "no member answers" "start the members";
            Has(" of ") => FINE "a member does not answer; writes need more than half"
                "start or replace that member";
            AtLeast(1.0) => FINE "so many members answer";
        }
        "database_bytes" {
            AtLeast(0.0) => FINE "its share of the quota is what counts";
        }
        "quota_percent" {
            Below(80.0) => FINE "there is room";
            AtLeast(80.0) => FINE "a full database takes no more writes"
                "compact and defragment, or raise --quota-backend-bytes";
        }
        "alarms" {
            Is(&["none"]) => FINE "no alarm is raised";
            Has("corrupt") => LOSES "the members' data differ"
                "restore the member that is wrong, then disarm the alarm";
            Has("nospace") => FINE "no writes are taken until there is room; nothing is lost"
                "compact, defragment, then `etcdctl alarm disarm`";
        }
        "uncompacted_revisions" {
            Below(100000.0) => FINE "old revisions are removed in time";
            AtLeast(100000.0) => FINE "old revisions pile up and fill the quota"
                "turn on --auto-compaction-retention";
        }
        "auth" {
            Is(&["on"]) => FINE "users need a password or a certificate";
            Is(&["off"]) => FINE "whoever reaches the port may write"
                "turn on authentication, or ask for client certificates";
        }
        "tls" {
            Is(&["on"]) => FINE "the connection is encrypted";
            Is(&["off"]) => FINE "who listens on the network reads the password and checkpoints"
                "use etcds://, or a private network";
        }
    }
    ["postgres", "etcd", "redis", "sqlite", "file"] {
        "round_trip_ms" {
            Within(300.0) => FINE "short beside a TTL";
            AtLeast(300.0) => FINE "a renewal may come too late when a packet or two are lost"
                "bring the store nearer, or use longer TTLs";
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/guarantees.md");
    const BEGIN: &str = "<!-- guarantee-table -->\n";
    const END: &str = "<!-- /guarantee-table -->\n";

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

    /// `TENURE_REFRESH=1` writes the table into the page instead.
    #[test]
    fn the_page_has_the_table() {
        let page = std::fs::read_to_string(PAGE).unwrap();
        let (head, rest) = page.split_once(BEGIN).expect("the table's beginning");
        let (there, tail) = rest.split_once(END).expect("the table's end");
        let expected = published();
        if std::env::var_os("TENURE_REFRESH").is_some() {
            std::fs::write(PAGE, format!("{head}{BEGIN}{expected}{END}{tail}")).unwrap();
            return;
        }
        let differs = there.lines().zip(expected.lines()).find(|(there, here)| there != here);
        assert!(there == expected, "{PAGE}, {differs:#?}; it should be:\n{expected}");
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
            // Who is told that something lowers a level is told what to do.
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
