//! Places where a mutant breaks its rule, found in the sources.

use crate::tidy::File;

/// Part of the project that keeps a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Engine,
    Guard,
    Simulator,
    SwitchboardSimulator,
    Memory,
    CursorFile,
    Sqlite,
    Postgres,
    Redis,
    Etcd,
    SwitchboardSqlite,
    SwitchboardPostgres,
}

impl Place {
    /// The stores.
    pub(super) const STORES: [Self; 6] =
        [Self::Memory, Self::CursorFile, Self::Sqlite, Self::Postgres, Self::Redis, Self::Etcd];
    /// The databases of the switchboard.
    pub(super) const DATABASES: [Self; 2] = [Self::SwitchboardSqlite, Self::SwitchboardPostgres];

    /// Returns the name of a backend in tests.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Guard => "guard",
            Self::Simulator | Self::SwitchboardSimulator => "simulator",
            Self::Memory => "memory",
            Self::CursorFile => "file",
            Self::Sqlite | Self::SwitchboardSqlite => "sqlite",
            Self::Postgres | Self::SwitchboardPostgres => "postgres",
            Self::Redis => "redis",
            Self::Etcd => "etcd",
        }
    }

    /// Returns the folders of its own code, and those of code that it shares.
    const fn folders(self) -> (&'static [&'static str], &'static [&'static str]) {
        const STATE: &[&str] = &["store/src/state"];
        const STORAGE: &[&str] = &["switchboard/src/storage"];
        match self {
            Self::Engine => (&["core/src"], &[]),
            Self::Guard => (&["supervise/src"], &[]),
            Self::Simulator => (&["sim/src", "core/src", "store/src/state"], &[]),
            Self::SwitchboardSimulator => (&["switchboard/src/storage/sqlite"], STORAGE),
            Self::Memory => (&["store/src/memory"], STATE),
            Self::CursorFile => (&["store/src/file"], STATE),
            Self::Sqlite => (&["store/src/sqlite"], STATE),
            Self::Postgres => (&["store/src/postgres"], &[]),
            Self::Redis => (&["store/src/redis"], &[]),
            Self::Etcd => (&["store/src/etcd"], &[]),
            Self::SwitchboardSqlite => (&["switchboard/src/storage/sqlite"], STORAGE),
            Self::SwitchboardPostgres => (&["switchboard/src/storage/postgres"], STORAGE),
        }
    }

    /// Chooses the files of a mutant that are in this place: its own, or else shared ones.
    pub(super) fn files(self, all: &[String]) -> Vec<String> {
        let (own, shared) = self.folders();
        let others = ["switchboard/src/storage/sqlite", "switchboard/src/storage/postgres"];
        let is_in = |file: &str, folder: &&str| {
            file.strip_prefix(*folder).is_some_and(|rest| rest.starts_with('/'))
        };
        let of = |folders: &[&str]| -> Vec<String> {
            let file = |file: &&String| folders.iter().any(|folder| is_in(file, folder));
            all.iter().filter(file).cloned().collect()
        };
        let files = of(own);
        if !files.is_empty() {
            return files;
        }
        of(shared).into_iter().filter(|it| !others.iter().any(|other| is_in(it, other))).collect()
    }
}

/// Sources in which mutants are looked for, by their path from `crates` or the root.
#[derive(Debug)]
pub(crate) struct Sources<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Sources<'a> {
    /// Chooses what may break a rule: Rust that is not a test.
    pub(crate) fn new(files: &'a [File]) -> Self {
        let is_source = |file: &&File| {
            let path = file.path.as_str();
            (path.starts_with("crates/") || path.starts_with("sim/"))
                && path.ends_with(".rs")
                && !path.contains("/tests/")
        };
        let named = |file: &'a File| {
            (file.path.strip_prefix("crates/").unwrap_or(&file.path), file.text.as_str())
        };
        Self(files.iter().filter(is_source).map(named).collect())
    }

    /// Returns the files in which a mutant breaks its rule: Rust that asks for it, and the files
    /// that the tables of swaps name for it.
    pub(crate) fn of(&self, mutant: &str) -> Vec<String> {
        let variant: String = mutant.split('-').map(capital).collect();
        let asked = format!("Mutant::{variant}.is_on()");
        let row = format!("    {variant} \"");
        let mut files = Vec::new();
        for (path, text) in &self.0 {
            if text.contains(&asked) {
                files.push((*path).to_owned());
            }
            let Some(folder) = path.strip_suffix("mutants.rs") else { continue };
            for line in text.lines() {
                let file = line.strip_prefix(&row).and_then(|rest| rest.split('"').next());
                files.extend(file.map(|file| format!("{folder}{file}")));
            }
        }
        files.dedup();
        files
    }
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[&str]) -> Vec<String> {
        list.iter().map(|file| (*file).to_owned()).collect()
    }

    #[test]
    fn a_mutant_is_found_in_rust_and_in_tables() {
        let of = |path: &str, text: &str| File::new(path, text.to_owned());
        let files_of = [
            of("crates/store/src/state/rules.rs", "if Mutant::R2Same.is_on() {"),
            of("crates/store/src/redis/mutants.rs", "    R2Same \"lua/a.lua\" \"x\" => \"y\";\n"),
            of("crates/store/src/redis/script.rs", "Mutant::R2SameNot.is_on()"),
            of("crates/store/tests/it/main.rs", "Mutant::R2Same.is_on()"),
        ];
        let sources = Sources::new(&files_of);
        let found = ["store/src/state/rules.rs", "store/src/redis/lua/a.lua"];
        assert_eq!(sources.of("r2-same"), files(&found));
        assert_eq!(sources.of("r3-name"), files(&[]));
    }

    #[test]
    fn a_place_has_its_own_files_or_shared_ones() {
        let all = files(&["store/src/state/rules.rs", "store/src/redis/lua/a.lua"]);
        assert_eq!(Place::Memory.files(&all), files(&["store/src/state/rules.rs"]));
        assert_eq!(Place::Sqlite.files(&all), files(&["store/src/state/rules.rs"]));
        assert_eq!(Place::Redis.files(&all), files(&["store/src/redis/lua/a.lua"]));
        assert_eq!(Place::Etcd.files(&all), files(&[]));
        let storage =
            files(&["switchboard/src/storage/inbox.rs", "switchboard/src/storage/postgres/x.sql"]);
        assert_eq!(Place::SwitchboardSqlite.files(&storage), storage[..1]);
        assert_eq!(Place::SwitchboardPostgres.files(&storage), storage[1..]);
    }
}
