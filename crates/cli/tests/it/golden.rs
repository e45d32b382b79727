//! The JSON output and exit codes of the commands, compared with recorded ones.
//!
//! `tests/golden/NAME.json` has the output of version 0.1.0. To record a command with the binary of
//! a given version:
//!
//! ```sh
//! TENURE_REFRESH=1 TENURE_TEST_BINARY=/path/to/tenure cargo test -p tenure-cli --test it golden
//! ```
//!
//! Identifiers and times are replaced by placeholders. So is every text with a space in it: it is
//! written for people, and its wording may change.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Map, Value, json};
use tenure_store::signing::IdentityKey;

use crate::switchboard::{INGEST, Place, Server, envelope};
use crate::tenure::Ran;
use crate::{checkpoint, operate};

/// Name of the recording, arguments (and `< STDIN`).
pub type Case = (&'static str, &'static str);

const COORDINATION: &[Case] = &[
    ("ls", "ls"),
    ("ls-group", "ls poll"),
    ("ls-unknown-group", "ls typo"),
    ("top-once", "top --once"),
    ("explain", "explain poll/a"),
    ("explain-free", "explain poll/d"),
    ("explain-at", "explain poll/a --at 1h"),
    ("explain-unknown", "explain poll/typo"),
    ("plan", "plan poll"),
    ("plan-changes", "plan poll --join new --leave host-1 --weight host-2=3 --out plan.json"),
    ("apply-dry-run", "apply plan.json --dry-run"),
    ("apply-no-file", "apply none.json"),
    ("drain-dry-run", "drain poll host-1 --dry-run"),
    ("drain-undo", "drain poll host-1 --undo"),
    ("drain-timeout", "drain poll host-1 --timeout 1ms"),
    ("drain-undo-again", "drain poll host-1 --undo"),
    ("drain-unknown", "drain poll host-9"),
    ("pause-dry-run", "pause poll/a --dry-run"),
    ("pause", "pause poll/a"),
    ("pause-again", "pause poll/a"),
    ("explain-paused", "explain poll/a"),
    ("resume", "resume poll/a"),
    ("pause-group", "pause poll"),
    ("resume-group", "resume poll"),
    ("pin", "pin poll/a host-2"),
    ("pin-taken", "pin poll/a --zone eu"),
    ("pin-replace", "pin poll/a --zone eu --replace"),
    ("pin-list", "pin poll"),
    ("explain-pinned", "explain poll/a"),
    ("pin-remove", "pin poll/a --remove"),
    ("cordon", "cordon poll host-2"),
    ("cordon-undo", "cordon poll host-2 --undo"),
    ("weight", "weight poll host-2 3"),
    ("ls-in-force", "ls poll"),
    ("weight-remove", "weight poll host-2 --remove"),
    ("apply-outdated", "apply plan.json"),
    ("plan-leave", "plan poll --leave host-2 --out leave.json"),
    ("apply", "apply leave.json"),
    ("evict-dry-run", "evict poll host-2 --dry-run"),
    ("evict", "evict poll host-2 --now"),
    ("ls-evicted", "ls poll"),
    ("forget-dry-run", "forget poll/d --dry-run"),
    ("forget-held", "forget poll/a poll/d poll/none"),
    ("run", "run --duty jobs/one --ttl 10m -- true"),
    ("run-exit-code", "run --duty jobs/one --ttl 10m -- sh -c exit${IFS}7"),
    ("run-held", "run --duty poll/a --no-wait -- true"),
    ("store-retention", "store retention"),
    ("store-retention-set", "store retention --history 3 --audit 5000"),
    ("doctor", "doctor"),
    ("doctor-require", "doctor --require exclusive-effects"),
    ("store-adopt-dry-run", "store adopt --floor 100 --dry-run"),
    ("store-adopt-unconfirmed", "store adopt --floor 100"),
    ("store-adopt", "store adopt --floor 100 --yes"),
    ("migrate", "migrate"),
    ("migrate-new", "migrate --store sqlite:other.db"),
    ("migrate-print", "migrate --print"),
    ("ls-no-store", "ls --store sqlite:none.db"),
    ("ls-no-scheme", "ls --store nothing"),
    ("errors", "errors"),
    ("errors-code", "errors ST002"),
    ("errors-unknown", "errors XX999"),
    ("config", "config"),
    ("config-command", "config doctor --require fenced"),
    ("config-check-no-file", "config check none.toml"),
    ("completions", "completions bash"),
    ("man", "man"),
    ("usage", "ls --no-such-flag"),
];

const CHECKPOINTS: &[Case] = &[
    ("checkpoint-get", "checkpoint get telegram/bot-42"),
    ("checkpoint-get-lease", "checkpoint get telegram/bot-42 --schema lease"),
    ("checkpoint-get-none", "checkpoint get telegram/none"),
    ("checkpoint-put-dry-run", "checkpoint put telegram/bot-42 cursor.json --dry-run"),
    ("checkpoint-put-conflict", "checkpoint put telegram/bot-42 cursor.json --if-version 99"),
    ("checkpoint-put", "checkpoint put telegram/new cursor.json"),
    ("checkpoint-put-no-duty", "checkpoint put"),
    ("hold-check-no-hold", "hold check"),
    ("checkpoint-history", "checkpoint history telegram/bot-42"),
    ("checkpoint-verify", "checkpoint verify --signing-keys-file keys"),
    ("checkpoint-rewind-dry-run", "checkpoint rewind telegram/bot-42 --to 1 --dry-run"),
    ("checkpoint-rewind", "checkpoint rewind telegram/bot-42 --to 1"),
    ("checkpoint-rewind-unknown", "checkpoint rewind telegram/bot-42 --to 99"),
    ("checkpoint-move-nowhere", "checkpoint move sqlite:tenure.db sqlite:new.db --dry-run"),
    ("checkpoint-move", "checkpoint move sqlite:tenure.db sqlite:new.db telegram/bot-42"),
    ("checkpoint-move-dry-run", "checkpoint move sqlite:tenure.db sqlite:new.db --dry-run"),
    ("checkpoint-get-moved", "checkpoint get telegram/bot-42"),
    ("checkpoint-verify-moved", "checkpoint verify telegram --signing-keys-file keys"),
    ("checkpoint-verify-no-keys", "checkpoint verify telegram"),
    ("checkpoint-move-from-file", "checkpoint move file:cursor.json#telegram/bot-7 sqlite:new.db"),
    ("checkpoint-get-from-file", "checkpoint get telegram/bot-7 --store sqlite:new.db"),
    ("checkpoint-move-to-file", "checkpoint move sqlite:new.db file:back.json telegram/bot-42"),
    ("checkpoint-ls", "ls --store sqlite:new.db"),
    ("doctor-file", "doctor --store file:back.json"),
    ("identity-new-exists", "identity new id.pem --name host-1"),
    ("identity-show", "identity show id.pem --name host-1"),
    ("bucket", "bucket key entity 7"),
    ("bucket-zero", "bucket key entity 0"),
    ("bucket-plan", "bucket plan --key key --total 3 < a\nb\nc\n\n"),
    ("bucket-filter", "bucket filter --key key --id 1 --total 2 < a\nb\nc\nd\n"),
    ("bucket-schema", "bucket schema"),
    ("bucket-next", "bucket next --config config.json --state state.json --write"),
    ("bucket-next-again", "bucket next --config config.json --state state.json"),
    ("bucket-next-id", "bucket next --config config.json --state state.json --print id"),
    ("bucket-next-duty", "bucket next --config config.json --state state.json --duty sync/r"),
    ("bucket-next-no-config", "bucket next --config none.json --state state.json"),
];

const TOKENS: &[Case] = &[
    ("token-create", "token create --channel telegram --provider telegram --endpoint test_bot"),
    ("token-create-dry-run", "token create --role read --env dev --dry-run"),
    ("token-list", "token list"),
    ("token-show", "token show {token_id}"),
    ("token-show-unknown", "token show tok_0000000000000000"),
];

const WITH_SERVER: &[Case] = &[
    ("beat", "beat --ingested 5 --failed 1 --version 1.4.2 --uptime 60 --cursor 12"),
    ("beat-degraded", "beat --ingested 9 --state degraded --message slow --uptime 90"),
    ("beat-other-endpoint", "beat --endpoint other_bot --uptime 1"),
];

const SWITCHBOARD: &[Case] = &[
    ("beat-no-server", "beat --uptime 120"),
    ("connectors-ls", "connectors ls"),
    ("connectors-show", "connectors show telegram_bot test_bot"),
    ("connectors-show-unknown", "connectors show slack none"),
    ("connectors-add", "connectors add slack team"),
    ("connectors-archive", "connectors archive slack team --reason moved"),
    ("connectors-ls-archived", "connectors ls --archived"),
    ("connectors-recount", "connectors recount telegram_bot test_bot --reason wrong --dry-run"),
    ("connectors-delete", "connectors delete slack team --reason gone"),
    ("channel-ls", "channel ls"),
    ("channel-add", "channel add voice --provider twilio --alias telegram"),
    ("channel-add-dry-run", "channel add fax --provider paper --dry-run"),
    ("channel-rm", "channel rm voice"),
    ("channel-rm-unknown", "channel rm none"),
    ("fence-list", "fence list"),
    ("fence-reset-dry-run", "fence reset telegram/bot-42 --reason test --dry-run"),
    ("fence-reset", "fence reset telegram/bot-42 --reason test"),
    ("token-usage", "token usage"),
    ("token-revoke-in-use", "token revoke {token_id} --reason leaked"),
    ("token-revoke-dry-run", "token revoke {token_id} --reason leaked --force --dry-run"),
    ("token-revoke", "token revoke {token_id} --reason leaked --force"),
    ("token-revoke-again", "token revoke {token_id} --reason leaked"),
    ("token-audit", "token audit"),
];

#[test]
fn coordination() {
    let golden = Golden::new();
    operate::prepare(&golden.place.url);
    golden.compare(COORDINATION);
}

#[test]
fn checkpoints() {
    let golden = Golden::new();
    let documents = ["{\"last_update_id\":1}", "{\"last_update_id\":12345}"];
    checkpoint::prepare(&golden.place.url, &[("bot-42", &documents), ("bot-43", &["7"])]);
    let config = json!({ "bucket_total": 3, "round_robin_bucket_execution": true });
    for (file, content) in [
        ("config.json", config.to_string()),
        ("cursor.json", json!({ "offset": 7 }).to_string()),
        ("keys", format!("k1 sign {}", "5e".repeat(32))),
        ("id.pem", IdentityKey::pem(&[0x5e; 32])),
    ] {
        std::fs::write(golden.place.tenure.path(file), content).unwrap();
    }
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(golden.place.tenure.path("id.pem"), private).unwrap();
    golden.compare(CHECKPOINTS);
}

#[test]
fn switchboard() {
    let mut golden = Golden::new();
    golden.compare(TOKENS);
    let mut server = golden.place.serve(&[]);
    golden.server = server.url("");
    server.token = Some(golden.token("token"));
    send_events(&server);
    golden.compare(WITH_SERVER);
    server.stop();
    golden.compare(SWITCHBOARD);
}

/// Every recording is compared.
#[test]
fn every_recording_belongs_to_a_command() {
    let cases = [COORDINATION, CHECKPOINTS, TOKENS, WITH_SERVER, SWITCHBOARD].concat();
    let names: BTreeSet<String> = cases.iter().map(|(name, _)| format!("{name}.json")).collect();
    assert_eq!(names.len(), cases.len(), "a name is used twice");
    let files = std::fs::read_dir(folder()).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(files.collect::<BTreeSet<_>>(), names);
}

/// Findings of `doctor` that depend on the machine.
const MACHINE: [&str; 3] = ["filesystem", "free_bytes", "round_trip_ms"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Sends two events under a hold, and one after it was fenced.
fn send_events(server: &Server) {
    for (event, epoch, instance, status) in
        [("1", "19", "a", 202), ("2", "20", "b", 202), ("3", "19", "a", 409)]
    {
        let headers = [
            ("content-type", "application/json"),
            ("tenure-duty", "telegram/bot-42"),
            ("tenure-epoch", epoch),
            ("tenure-instance", instance),
        ];
        let body = envelope(event).to_string();
        server.post_with(INGEST, body.as_bytes(), &headers).is(status);
    }
}

/// A store, and the commands that run on it one after the other.
pub struct Golden {
    pub place: Place,
    /// URL of the switchboard.
    pub server: String,
    pub folder: PathBuf,
    /// Whether identifiers and times are replaced; otherwise the store has fixed ones.
    masked: bool,
}

impl Golden {
    fn new() -> Self {
        Self { place: Place::sqlite(), server: String::new(), folder: folder(), masked: true }
    }

    /// Compares exact values of a stored fixture.
    pub fn exact(place: Place, folder: PathBuf) -> Self {
        Self { place, server: String::new(), folder, masked: false }
    }

    /// Returns a field of the token that the first command created.
    pub fn token(&self, field: &str) -> String {
        let text = self.place.tenure.text("token-create.out");
        let made: Value = serde_json::from_str(&text).unwrap_or_default();
        made[field].as_str().unwrap_or_default().to_owned()
    }

    fn run(&self, (name, line): Case) -> Ran {
        let (arguments, input) = line.split_once(" < ").unwrap_or((line, ""));
        let arguments = arguments.replace("{token_id}", &self.token("token_id"));
        let words: Vec<&str> = ["--json"].into_iter().chain(arguments.split(' ')).collect();
        let mut command = self.place.tenure.command(&words);
        if !self.masked {
            command.env("TENURE_STORE", &self.place.url);
        }
        command.env("TENURE_OPERATOR", "ann").env("SWITCHBOARD_API_BASE_URL", &self.server);
        command.env("SWITCHBOARD_API_TOKEN", self.token("token"));
        command.env("CONNECTOR_PROVIDER", "telegram_bot");
        command.env("CONNECTOR_ENDPOINT_IDENTITY", "test_bot");
        command.env("CONNECTOR_INSTANCE_ID", "0198c5a1-7b1e-7c3f-9d55-5f0a2b6c8e10");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that does not read its input may have ended.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let ran = Ran::of(child.wait_with_output().unwrap());
        std::fs::write(self.place.tenure.path(&format!("{name}.out")), &ran.stdout).unwrap();
        ran
    }

    #[track_caller]
    pub fn compare(&self, cases: &[Case]) {
        let results = cases.iter().map(|case| {
            let ran = self.run(*case);
            let result = json!({
                "command": format!("tenure --json {}", case.1),
                "exit_code": ran.code,
                "stdout": self.printed(&ran.stdout),
                "stderr": self.printed(&ran.stderr),
            });
            (case.0, result)
        });
        self.compare_values(results);
    }

    /// Compares each value with the recording of that name.
    #[track_caller]
    pub fn compare_values(&self, values: impl IntoIterator<Item = (&'static str, Value)>) {
        let mut differences = String::new();
        for (name, value) in values {
            let file = self.folder.join(format!("{name}.json"));
            let seen = format!("{value:#}\n");
            if std::env::var_os("TENURE_REFRESH").is_some() {
                std::fs::create_dir_all(&self.folder).unwrap();
                std::fs::write(&file, &seen).unwrap();
            }
            let recorded = std::fs::read_to_string(&file).unwrap_or_default();
            if seen != recorded {
                differences += &format!("{name}: recorded {recorded}now {seen}");
            }
        }
        assert!(differences.is_empty(), "{differences}");
    }

    /// Parses JSON documents and replaces values that differ between runs; null for no output.
    fn printed(&self, text: &str) -> Value {
        let documents = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        let stable =
            |document| if self.masked { stable("", document) } else { timeless("", document) };
        match documents.collect::<Result<Vec<Value>, _>>() {
            Ok(mut documents) if documents.len() <= 1 => {
                documents.pop().map_or(Value::Null, stable)
            }
            Ok(documents) => documents.into_iter().map(stable).collect(),
            Err(_) => json!(stable_text(text)),
        }
    }
}

/// Replaces values that depend on the time of the test, and prose.
pub fn timeless(key: &str, value: Value) -> Value {
    match value {
        _ if key == "liveness" || key == "today" => json!("<now>"),
        Value::Object(members) => {
            let members =
                members.into_iter().map(|(key, value)| (key.clone(), timeless(&key, value)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        Value::Array(items) => {
            // On PostgreSQL, opening a dump on another server adds an entry.
            let items = items.into_iter().filter(|item| item["action"] != "inbox_adopt");
            items.map(|item| timeless(key, item)).collect()
        }
        Value::String(text) if text.contains(' ') => json!("<text>"),
        Value::Number(_) if key.ends_with("_ms") => json!("<now>"),
        other => other,
    }
}

/// Replaces identifiers, times and prose. `key` is the name of the member with the value.
fn stable(key: &str, value: Value) -> Value {
    match value {
        Value::Object(members)
            if MACHINE.iter().any(|name| members.get("setting") == Some(&json!(name))) =>
        {
            json!("<machine>")
        }
        Value::Object(members) => {
            let members =
                members.into_iter().map(|(key, value)| (key.clone(), stable(&key, value)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.into_iter().map(|item| stable(key, item)).collect(),
        Value::String(text) if key == "view" && !text.is_empty() => json!("<view>"),
        Value::String(text) if key == "moved_to" => {
            json!(text.split_once('#').map_or("", |(_store, duty)| duty))
        }
        Value::String(text) => json!(stable_text(&text)),
        Value::Number(_) if key == "clock_drift_s" => json!("<number>"),
        Value::Number(_) if key.ends_with("_ms") || key.ends_with("_ns") => json!("<number>"),
        other => other,
    }
}

fn stable_text(text: &str) -> String {
    let placeholder = if text.starts_with("sw_") {
        "<token>"
    } else if text.starts_with("tok_") {
        "<token id>"
    } else if uuid::Uuid::parse_str(text).is_ok() {
        "<uuid>"
    } else if text.parse::<jiff::Timestamp>().is_ok() || text.parse::<jiff::civil::Date>().is_ok() {
        "<time>"
    } else if text.split('-').any(|part| part.len() == 19 && part.parse::<u64>().is_ok()) {
        "<instance>"
    } else if text.contains(' ') {
        "<text>"
    } else {
        text
    };
    placeholder.to_owned()
}
