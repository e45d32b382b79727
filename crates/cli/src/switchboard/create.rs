//! `tenure token create`: creates a token, or a replacement for one.

use std::time::Duration;

use clap::ValueEnum;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use tenure_core::text::{counted, span};
use tenure_core::{Code, StoreError};
use tenure_duty::process;
use tenure_store::{IfAbsent, StoreUrl};
use tenure_switchboard::storage::{NewToken, SourceScope, Token};
use tenure_switchboard::token::{Environment, Minted, Role, mint};
use tenure_wire::ingest::{Fields, MAX_IDENTITY_BYTES, Rules};

use super::token::{TokenState, micros};
use super::{
    at, channel, check_text, find_token, no_such_token, open, open_or, operator, scope_shown,
    scope_value, token_id,
};
use crate::args::duration;
use crate::failure::Failure;
use crate::limits::{MAX_AGE, check_time};
use crate::output::{self, DRY_RUN, document, to_stderr};

const MIN_LIFETIME: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub(crate) struct CreateArgs {
    /// Use of the token: its default environment is live or dev
    #[arg(long = "type", value_enum)]
    kind: Option<TokenKind>,
    /// Environment, a part of the token; default lifetimes are 90, 30 and 7 days
    #[arg(long, value_name = "ENV", value_parser = environments())]
    env: Option<String>,
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
    #[arg(long = "role", value_parser = roles())]
    roles: Vec<String>,
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
    /// Trying things out; environment dev
    Development,
}

fn environments() -> PossibleValuesParser {
    PossibleValuesParser::new(Environment::ALL.map(Environment::as_str))
}

fn roles() -> PossibleValuesParser {
    PossibleValuesParser::new(Role::ALL.map(Role::as_str))
}

/// Checked arguments. Missing values come from the token that is replaced.
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
        let mut roles: Vec<Role> = args.roles.iter().filter_map(|role| Role::parse(role)).collect();
        roles.sort_unstable();
        roles.dedup();
        if let Some(time) = args.expires_in {
            check_time("--expires-in", time, MIN_LIFETIME, MAX_AGE)?;
        }
        let description = args.description.as_deref().map(|text| check_text("--description", text));
        let request = Self {
            environment: args.env.as_deref().and_then(Environment::parse).or(of_kind),
            roles,
            scope: scope(args)?,
            expires_in: args.expires_in,
            description: description.transpose()?,
            replaces: args.replaces.as_deref().map(token_id).transpose()?,
            dry_run: args.dry_run,
        };
        // Inherited values are known later.
        if request.replaces.is_none() {
            request.plan(None)?;
        }
        Ok(request)
    }

    /// Adds the values that the token inherits.
    fn plan(&self, replaced: Option<&Token>) -> Result<PlannedToken, Failure> {
        let inherited = replaced.map(|token| {
            let roles = token.roles.iter().filter_map(|role| Role::parse(role)).collect::<Vec<_>>();
            (Environment::parse(&token.environment), roles)
        });
        let (environment, inherited) = inherited.unwrap_or((None, vec![Role::Ingest]));
        let roles = if self.roles.is_empty() { inherited } else { self.roles.clone() };
        let environment = self.environment.or(environment).unwrap_or(Environment::Live);
        let submits = roles.contains(&Role::Ingest);
        let reads = roles == [Role::Read];
        let scope = match (&self.scope, submits) {
            (Some(scope), true) => Some(scope.clone()),
            (Some(scope), false) if reads => Some(scope.clone()),
            (None, false) if reads => replaced.and_then(|token| token.scope.clone()),
            (None, true) => {
                Some(replaced.and_then(|token| token.scope.clone()).ok_or_else(|| {
                    Failure::Usage(
                        "a token that submits (--role ingest) needs --channel, --provider and \
                     --endpoint: it may submit for one endpoint only"
                            .to_owned(),
                    )
                })?)
            }
            (Some(_), false) => {
                return Err(Failure::Usage(
                    "--channel, --provider and --endpoint are for tokens that submit or read: add \
                     --role ingest, take --role read alone, or leave them out"
                        .to_owned(),
                ));
            }
            (None, false) => None,
        };
        let description = replaced.map(|token| token.description.clone()).unwrap_or_default();
        Ok(PlannedToken {
            environment,
            roles,
            scope,
            lifetime: self.expires_in.unwrap_or(environment.lifetime()),
            description: self.description.clone().unwrap_or(description),
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
    // Trimmed as envelopes are: with the four separators of ASCII.
    let blank = |c: char| c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}');
    let endpoint_identity = endpoint.trim_matches(blank);
    if endpoint_identity.is_empty()
        || endpoint_identity.len() > MAX_IDENTITY_BYTES
        || endpoint_identity.contains('\0')
    {
        let what = format!("--endpoint takes 1 to {MAX_IDENTITY_BYTES} bytes of text, without NUL");
        return Err(Failure::Usage(what));
    }
    Ok(Some(SourceScope {
        channel: channel.clone(),
        provider: provider.clone(),
        endpoint_identity: endpoint_identity.to_owned(),
    }))
}

/// A token to be created.
struct PlannedToken {
    environment: Environment,
    roles: Vec<Role>,
    scope: Option<SourceScope>,
    lifetime: Duration,
    description: String,
}

pub(super) async fn run(url: &StoreUrl, args: &CreateArgs, json: bool) -> Result<String, Failure> {
    let request = TokenRequest::new(args)?;
    if request.dry_run {
        return foresee(url, &request, json).await;
    }
    check_scope(url, &request).await?;
    // Created if it does not exist: a switchboard that others can reach needs a token first.
    let storage = open_or(url, IfAbsent::Create).await?;
    let replaced = match &request.replaces {
        Some(id) => Some(find_token(&*storage, id).await?),
        None => None,
    };
    let plan = request.plan(replaced.as_ref())?;
    let Minted { token_id, secret } = mint(plan.environment, process::entropy);
    let new = NewToken {
        token_id: token_id.clone(),
        hash: secret.digest(),
        environment: plan.environment.as_str().to_owned(),
        roles: plan.role_names(),
        scope: plan.scope.clone(),
        lifetime: micros(plan.lifetime),
        by: operator(),
        description: plan.description.clone(),
        replaces: request.replaces.clone(),
    };
    let made = storage.create_token(&new).await.map_err(|error| match error.is_unknown() {
        false => Failure::from(error),
        true => Failure::Kept {
            error: error.into(),
            kept: "a token may have been created that nobody has: see `tenure token list`, and \
                   revoke it",
        },
    })?;
    if !made {
        return Err(no_such_token(request.replaces.as_deref().unwrap_or_default()));
    }
    let token = find_token(&*storage, &token_id).await?;
    let next = replaced.as_ref().map(|old| next_steps(old, &token_id)).unwrap_or_default();
    if json {
        let mut value = plan.value(&request);
        value["token"] = secret.reveal().into();
        value["token_id"] = token_id.as_str().into();
        value["expires_at"] = at(token.expires_at).into();
        value["next"] = next.into();
        return print_secret(&document(&value), &token_id);
    }
    to_stderr(&format!("{token_id}: {}, until {}", plan.sentence(), at(token.expires_at)));
    to_stderr("the token is shown this once: only its digest is stored");
    if !next.is_empty() {
        let steps = next.iter().zip(1..).map(|(step, number)| format!("  {number}. {step}\n"));
        to_stderr(&format!("next:\n{}", steps.collect::<String>()));
    }
    print_secret(&format!("{}\n", secret.reveal()), &token_id)
}

/// Prints the token. It cannot be printed again, so a closed pipe is an error here.
fn print_secret(text: &str, token_id: &str) -> Result<String, Failure> {
    let written = output::all_to_stdout(text.as_bytes());
    written.map(|()| String::new()).map_err(|error| Failure::Kept {
        error: StoreError::refused(
            Code::Machine,
            format!(
                "{token_id} was created but not printed ({error}): revoke it with `tenure \
                 token revoke {token_id} --reason unseen`"
            ),
        ),
        kept: "the token was created; only its digest is stored",
    })
}

/// Prints the token that would be created. A missing store would be created, too.
async fn foresee(url: &StoreUrl, request: &TokenRequest, json: bool) -> Result<String, Failure> {
    check_scope(url, request).await?;
    let replaced = match (open(url).await, &request.replaces) {
        (Ok(storage), Some(id)) => Some(find_token(&*storage, id).await?),
        (Ok(_), None) => None,
        (Err(error), None) if error.code() == Code::Absent => None,
        (Err(error), _) => return Err(error.into()),
    };
    let plan = request.plan(replaced.as_ref())?;
    if json {
        return Ok(document(&plan.value(request)));
    }
    to_stderr(DRY_RUN);
    let lifetime = match (plan.lifetime.as_secs() / 86_400, plan.lifetime.as_secs() % 86_400) {
        (days, 0) => counted(days, "day", "days"),
        _ => span(plan.lifetime),
    };
    Ok(format!("a token would be created: {}, for {lifetime}\n", plan.sentence()))
}

/// Checks channel and provider against the list in the store, or that of a new store. An inherited
/// scope was checked before.
async fn check_scope(url: &StoreUrl, request: &TokenRequest) -> Result<(), Failure> {
    let Some(SourceScope { channel, provider, .. }) = &request.scope else { return Ok(()) };
    let rules = match open(url).await {
        Ok(storage) => Rules::new(storage.channels().await?, Fields::Refused),
        Err(error) if error.code() == Code::Absent => Rules::default(),
        Err(error) => return Err(error.into()),
    };
    let known = rules.channel(channel).ok_or_else(|| channel::no_such_channel(channel))?;
    match known.providers.contains(provider) {
        true => Ok(()),
        false => Err(channel::no_such_channel(&format!(
            "{channel} with provider {provider}; it goes with {}",
            known.providers.join(" or ")
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

impl PlannedToken {
    fn role_names(&self) -> Vec<String> {
        self.roles.iter().map(|role| role.as_str().to_owned()).collect()
    }

    fn sentence(&self) -> String {
        let roles = self.role_names().join(", ");
        match &self.scope {
            Some(scope) => format!("{roles} for {}", scope_shown(Some(scope))),
            None => roles,
        }
    }

    fn value(&self, request: &TokenRequest) -> serde_json::Value {
        json!({
            "dry_run": request.dry_run,
            "token": null,
            "token_id": null,
            "environment": self.environment.as_str(),
            "roles": self.role_names(),
            "scope": scope_value(self.scope.as_ref()),
            "expires_in_seconds": self.lifetime.as_secs(),
            "expires_at": null,
            "description": self.description,
            "replaces": request.replaces,
            "next": [],
        })
    }
}
