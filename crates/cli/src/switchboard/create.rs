//! `tenure token create`: creates a token, or a replacement for one.

use std::time::Duration;

use clap::ValueEnum;
use serde_json::json;
use tenure_core::text::{counted, span};
use tenure_core::{Code, StoreError};
use tenure_duty::process;
use tenure_store::IfAbsent;
use tenure_switchboard::storage::{NewToken, SourceScope, Token};
use tenure_switchboard::token::{Environment, Minted, Role, mint};
use tenure_wire::ingest::{Fields, MAX_IDENTITY_BYTES, Rules};

use super::connectors::identity;
use super::token::{TokenState, micros};
use super::{
    at, change, channel, check_text, find_token, no_such_token, open, open_or, operator,
    scope_shown, scope_value, token_id,
};
use crate::args::{Global, duration, words};
use crate::failure::Failure;
use crate::limits::{MAX_AGE, check_time};
use crate::output::{self, document, to_stderr};

const MIN_LIFETIME: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub(crate) struct CreateArgs {
    /// Use of the token: its default environment is live or dev
    #[arg(long = "type", value_enum)]
    kind: Option<TokenKind>,
    /// Environment, a part of the token; default lifetimes are 90, 30 and 7 days
    #[arg(long, value_name = "ENV", value_parser = words(Environment::ALL, Environment::as_str))]
    env: Option<Environment>,
    /// Channel of the scope, from `tenure channel ls`
    #[arg(long, value_name = "NAME", value_parser = channel::plain_name)]
    channel: Option<String>,
    /// Provider of the scope
    #[arg(long, value_name = "NAME", value_parser = channel::plain_name)]
    provider: Option<String>,
    /// Endpoint identity of the scope, exactly as in the envelope
    #[arg(long, value_name = "IDENTITY")]
    endpoint: Option<String>,
    /// Role of the token; repeatable [default: ingest, or the roles of --replaces]
    #[arg(long = "role", value_parser = words(Role::ALL, Role::as_str))]
    roles: Vec<Role>,
    /// Lifetime, 1m to 3650d [default: by environment]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    expires_in: Option<Duration>,
    /// Description of the token
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Id of the token to replace; both are valid until the old one is revoked
    #[arg(long, value_name = "ID")]
    replaces: Option<String>,
    /// Print what would be created and create nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum TokenKind {
    /// Program that submits events; environment live
    Connector,
    /// Development and testing; environment dev
    Development,
}

/// A token to be created. Missing values come from the token that is replaced.
struct TokenRequest {
    environment: Option<Environment>,
    roles: Vec<Role>,
    scope: Option<SourceScope>,
    expires_in: Option<Duration>,
    description: Option<String>,
    replaces: Option<String>,
    dry_run: bool,
}

impl TokenRequest {
    fn new(args: &CreateArgs) -> Result<Self, Failure> {
        let of_kind = args.kind.map(|kind| match kind {
            TokenKind::Connector => Environment::Live,
            TokenKind::Development => Environment::Dev,
        });
        let mut roles = args.roles.clone();
        roles.sort_unstable();
        roles.dedup();
        if let Some(time) = args.expires_in {
            check_time("--expires-in", time, MIN_LIFETIME, MAX_AGE)?;
        }
        let description = args.description.as_deref().map(|text| check_text("--description", text));
        let mut request = Self {
            environment: args.env.or(of_kind),
            roles,
            scope: scope(args)?,
            expires_in: args.expires_in,
            description: description.transpose()?,
            replaces: args.replaces.as_deref().map(token_id).transpose()?,
            dry_run: args.dry_run,
        };
        // Values inherited from the replaced token are not known yet.
        if request.replaces.is_none() {
            request.complete(None)?;
        }
        Ok(request)
    }

    /// Adds the values that the token inherits, and checks that roles and scope fit.
    fn complete(&mut self, replaced: Option<&Token>) -> Result<(), Failure> {
        if self.roles.is_empty() {
            self.roles = match replaced {
                Some(token) => token.roles.iter().filter_map(|role| Role::parse(role)).collect(),
                None => vec![Role::Ingest],
            };
        }
        let submits = self.roles.contains(&Role::Ingest);
        let has_scope = submits || self.roles == [Role::Read];
        if let Some(token) = replaced {
            self.environment = self.environment.or(Environment::parse(&token.environment));
            self.description.get_or_insert_with(|| token.description.clone());
            self.scope = self.scope.take().or_else(|| token.scope.clone().filter(|_| has_scope));
        }
        match &self.scope {
            None if submits => Err(Failure::Usage(
                "a token that submits (--role ingest) needs --channel, --provider and --endpoint: \
                 it may submit for one endpoint only"
                    .to_owned(),
            )),
            Some(_) if !has_scope => Err(Failure::Usage(
                "--channel, --provider and --endpoint are for tokens that submit or read: add \
                 --role ingest, take --role read alone, or leave them out"
                    .to_owned(),
            )),
            _ => Ok(()),
        }
    }

    fn environment(&self) -> Environment {
        self.environment.unwrap_or(Environment::Live)
    }

    fn lifetime(&self) -> Duration {
        self.expires_in.unwrap_or(self.environment().lifetime())
    }

    fn role_names(&self) -> Vec<String> {
        self.roles.iter().map(|role| role.as_str().to_owned()).collect()
    }

    fn sentence(&self) -> String {
        let roles = self.role_names().join(", ");
        match &self.scope {
            Some(scope) => format!("{roles} for {}", scope_shown(scope)),
            None => roles,
        }
    }

    fn value(&self) -> serde_json::Value {
        json!({
            "dry_run": self.dry_run,
            "token": null,
            "token_id": null,
            "environment": self.environment().as_str(),
            "roles": self.role_names(),
            "scope": scope_value(self.scope.as_ref()),
            "expires_in_seconds": self.lifetime().as_secs(),
            "expires_at": null,
            "description": self.description.as_deref().unwrap_or_default(),
            "replaces": self.replaces,
            "next": [],
        })
    }
}

/// Parses the scope: all three parts or none. The store knows which channels and providers exist.
fn scope(args: &CreateArgs) -> Result<Option<SourceScope>, Failure> {
    let (channel, provider, endpoint) = match (&args.channel, &args.provider, &args.endpoint) {
        (None, None, None) => return Ok(None),
        (Some(channel), Some(provider), Some(endpoint)) => (channel, provider, endpoint),
        _ => {
            let what = "--channel, --provider and --endpoint go together: all three or none";
            return Err(Failure::Usage(what.to_owned()));
        }
    };
    let endpoint_identity = identity(endpoint).ok_or_else(|| {
        let what = format!("--endpoint takes 1 to {MAX_IDENTITY_BYTES} bytes of text, without NUL");
        Failure::Usage(what)
    })?;
    let (channel, provider) = (channel.clone(), provider.clone());
    Ok(Some(SourceScope { channel, provider, endpoint_identity }))
}

pub(super) async fn run(args: &CreateArgs, global: &Global) -> Result<String, Failure> {
    let mut request = TokenRequest::new(args)?;
    check_scope(&request, global).await?;
    if request.dry_run {
        return preview(request, global).await;
    }
    // Create a missing store: a switchboard that others can reach needs a token first.
    let storage = open_or(global, IfAbsent::Create).await?;
    let replaced = match &request.replaces {
        Some(id) => Some(find_token(&*storage, id).await?),
        None => None,
    };
    request.complete(replaced.as_ref())?;
    let Minted { token_id, secret } = mint(request.environment(), process::entropy);
    let new = NewToken {
        token_id: token_id.clone(),
        hash: secret.digest(),
        environment: request.environment().as_str().to_owned(),
        roles: request.role_names(),
        scope: request.scope.clone(),
        lifetime: micros(request.lifetime()),
        by: operator(),
        description: request.description.clone().unwrap_or_default(),
        replaces: request.replaces.clone(),
    };
    let made = storage.create_token(&new).await.map_err(|error| match error.is_unknown() {
        false => Failure::from(error),
        true => Failure::from(error).keeping(
            "a token may have been created and not printed: revoke it (`tenure token list`)",
        ),
    })?;
    if !made {
        return Err(no_such_token(request.replaces.as_deref().unwrap_or_default()));
    }
    let token = find_token(&*storage, &token_id).await?;
    let next = replaced.as_ref().map(|old| next_steps(old, &token_id)).unwrap_or_default();
    if global.json {
        let mut value = request.value();
        value["token"] = secret.reveal().into();
        value["token_id"] = token_id.as_str().into();
        value["expires_at"] = at(token.expires_at).into();
        value["next"] = next.into();
        return print_secret(&document(&value), &token_id);
    }
    to_stderr(&format!("{token_id}: {}, until {}", request.sentence(), at(token.expires_at)));
    to_stderr("the token cannot be shown again: only its digest is stored");
    if !next.is_empty() {
        let steps = next.iter().zip(1..).map(|(step, number)| format!("  {number}. {step}\n"));
        to_stderr(&format!("next:\n{}", steps.collect::<String>()));
    }
    print_secret(&format!("{}\n", secret.reveal()), &token_id)
}

/// Prints the token. It cannot be printed again, so a closed pipe is an error here.
fn print_secret(text: &str, token_id: &str) -> Result<String, Failure> {
    let written = output::all_to_stdout(text.as_bytes());
    written.map(|()| String::new()).map_err(|error| {
        let detail = format!(
            "{token_id} was created but not printed ({error}): revoke it with `tenure token revoke \
             {token_id} --reason unseen`"
        );
        let error = StoreError::refused(Code::Machine, detail);
        Failure::from(error).keeping("the token was created; only its digest is stored")
    })
}

/// Prints the token that would be created. A missing store would be created, too.
async fn preview(mut request: TokenRequest, global: &Global) -> Result<String, Failure> {
    let replaced = match (open(global).await, &request.replaces) {
        (Ok(storage), Some(id)) => Some(find_token(&*storage, id).await?),
        (Ok(_), None) => None,
        (Err(error), None) if error.code() == Code::Absent => None,
        (Err(error), _) => return Err(error.into()),
    };
    request.complete(replaced.as_ref())?;
    let lifetime = match (request.lifetime().as_secs(), request.lifetime()) {
        (seconds, _) if seconds % 86_400 == 0 => counted(seconds / 86_400, "day", "days"),
        (_, lifetime) => span(lifetime),
    };
    let text = format!("a token would be created: {}, for {lifetime}\n", request.sentence());
    Ok(change(global, true, &request.value(), text))
}

/// Checks channel and provider against the list in the store, or that of a new store. An inherited
/// scope is not checked again.
async fn check_scope(request: &TokenRequest, global: &Global) -> Result<(), Failure> {
    let Some(SourceScope { channel, provider, .. }) = &request.scope else { return Ok(()) };
    let rules = match open(global).await {
        Ok(storage) => Rules::new(storage.channels().await?, Fields::Refused),
        Err(error) if error.code() == Code::Absent => Rules::default(),
        Err(error) => return Err(error.into()),
    };
    let known = rules.channel(channel).ok_or_else(|| channel::no_such_channel(channel))?;
    match known.providers.contains(provider) {
        true => Ok(()),
        false => Err(channel::no_such_channel(&format!(
            "{channel} with provider {provider}; its providers are {}",
            known.providers.join(", ")
        ))),
    }
}

/// Lists the steps that replace the old token without an outage.
fn next_steps(old: &Token, new: &str) -> Vec<String> {
    let old_id = &old.token_id;
    let mut steps = vec![
        "store the new token where the connector reads it".to_owned(),
        "restart the connector, or let it reload the token".to_owned(),
        format!("check that the new token is used: tenure token show {new}"),
    ];
    if TokenState::of(old) == TokenState::Good {
        steps.push(format!(
            "check that the old token, still valid, is not used for a day: tenure token usage \
             {old_id}"
        ));
        let reason = format!("--reason 'replaced by {new}'");
        steps.push(format!("revoke the old token: tenure token revoke {old_id} {reason}"));
    }
    steps
}
