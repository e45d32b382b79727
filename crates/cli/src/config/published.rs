//! Published environment variables: names that connectors and deployments use already.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tenure_core::{Code, StoreError};

use crate::args::{DEFAULT_STORE, duration, quoted};
use crate::env::{
    BACKEND, CURSOR_PATH, DATABASE_URL, ETCD_ENDPOINTS, LEASE_TTL, LOG_FORMAT, LOG_LEVEL,
    POLL_INTERVAL, PORT, PUBLISHED, REDIS_DB, REDIS_HOST, REDIS_PASSWORD, REDIS_PORT, REDIS_URL,
    REDIS_USERNAME,
};

/// Variables by name. An empty one counts as unset.
pub(super) type VariableLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads a variable of this process.
pub(super) fn process_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// A variable, and the value that it gives an option.
#[derive(Debug, PartialEq)]
pub(super) struct PublishedValue {
    pub(super) variable: &'static str,
    pub(super) value: String,
}

fn bad(detail: String) -> StoreError {
    StoreError::refused(Code::BadVariable, detail)
}

/// Returns the value of an option from the variable that is published for it.
pub(super) fn of_option(
    command: &str,
    option: &str,
    variables: VariableLookup<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<PublishedValue>, StoreError> {
    let mut rows = PUBLISHED.iter();
    let row = rows.find(|(of, name, _)| (of.is_empty() || *of == command) && *name == option);
    let Some((variable, text)) = row.and_then(|(_, _, name)| Some((*name, variables(name)?)))
    else {
        return Ok(None);
    };
    let text = text.trim();
    let wrong = |what| bad(format!("{variable} is {}: {what}", quoted(text)));
    let value = match variable {
        LEASE_TTL | POLL_INTERVAL => Some(
            seconds(text).ok_or_else(|| wrong("it takes a number of seconds, as in 30 or 0.5"))?,
        ),
        PORT => match text.parse::<u16>() {
            Ok(port) if port > 0 => Some(format!("0.0.0.0:{port}")),
            _ => return Err(wrong("it takes a port, 1 to 65535")),
        },
        // The store has its cursor in this file: it is not the command's.
        CURSOR_PATH if backend(variables).is_some_and(|name| name == "file") => None,
        LOG_LEVEL | LOG_FORMAT => {
            let known = of_log(variable, text);
            if known.is_none() {
                let text = quoted(text);
                warnings.push(format!("{variable} is {text}, which --{option} does not know"));
            }
            known.map(str::to_owned)
        }
        _ => Some(text.to_owned()),
    };
    Ok(value.map(|value| PublishedValue { variable, value }))
}

fn seconds(text: &str) -> Option<String> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let time = format!("{text}s");
    (is_number && duration(&time).is_ok()).then_some(time)
}

/// Returns the name that Tenure has for a level or a format.
fn of_log(variable: &str, text: &str) -> Option<&'static str> {
    match (variable, text.to_ascii_lowercase().as_str()) {
        (LOG_LEVEL, "error" | "err" | "critical" | "fatal") => Some("error"),
        (LOG_LEVEL, "warn" | "warning") => Some("warn"),
        (LOG_LEVEL, "info" | "notice") => Some("info"),
        (LOG_LEVEL, "debug" | "trace") => Some("debug"),
        (LOG_FORMAT, "json") => Some("json"),
        (LOG_FORMAT, "human" | "text" | "plain" | "console" | "pretty" | "logfmt") => Some("human"),
        _ => None,
    }
}

/// Returns the kind of store that the environment names.
fn backend(variables: VariableLookup<'_>) -> Option<String> {
    let name = variables(BACKEND)?.trim().to_ascii_lowercase();
    Some(match name.as_str() {
        "rediss" => "redis".to_owned(),
        "postgresql" => "postgres".to_owned(),
        _ => name,
    })
}

/// Returns a warning if the environment names another kind of store than the URL that is used.
pub(super) fn contradiction(url: &str, variables: VariableLookup<'_>) -> Option<String> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    let used = match scheme {
        "rediss" => "redis",
        "postgresql" => "postgres",
        other => other,
    };
    let named = backend(variables).filter(|named| named != used)?;
    let (named, used) = (quoted(&named), quoted(used));
    Some(format!("{BACKEND} is {named} and has no effect: the store is given, and it is {used}"))
}

/// Returns the URL of the store that the environment names.
pub(super) fn store(variables: VariableLookup<'_>) -> Result<Option<PublishedValue>, StoreError> {
    let Some(backend) = backend(variables) else { return Ok(None) };
    let found = match backend.as_str() {
        "redis" if variables(REDIS_URL).is_none() => redis(variables)?,
        "redis" => url(REDIS_URL, ["redis", "rediss"], variables)?,
        "postgres" => url(DATABASE_URL, ["postgres", "postgresql"], variables)?,
        "etcd" => {
            let value = etcd(&needed(&[ETCD_ENDPOINTS], "etcd", variables)?);
            PublishedValue { variable: ETCD_ENDPOINTS, value }
        }
        "file" => {
            let value = format!("file:{}", needed(&[CURSOR_PATH], "file", variables)?);
            PublishedValue { variable: CURSOR_PATH, value }
        }
        "sqlite" => PublishedValue { variable: BACKEND, value: DEFAULT_STORE.to_owned() },
        other => {
            let known = "redis, postgres, etcd, sqlite or file";
            return Err(bad(format!("{BACKEND} is {}: it takes {known}", quoted(other))));
        }
    };
    Ok(Some(found))
}

/// Returns the first of these variables that is set.
fn needed(
    names: &[&str],
    backend: &str,
    variables: VariableLookup<'_>,
) -> Result<String, StoreError> {
    names.iter().find_map(|name| variables(name)).ok_or_else(|| {
        let names = names.join(" or ");
        bad(format!("{BACKEND} is {backend}, which needs {names}: set it, or unset {BACKEND}"))
    })
}

/// Checks that a variable holds a URL of the backend. The URL is not shown.
fn url(
    variable: &'static str,
    schemes: [&str; 2],
    variables: VariableLookup<'_>,
) -> Result<PublishedValue, StoreError> {
    let value = needed(&[variable], schemes[0], variables)?;
    match value.split_once("://") {
        Some((scheme, _)) if schemes.contains(&scheme) => Ok(PublishedValue { variable, value }),
        _ => Err(bad(format!("{variable} is not a {}:// URL", schemes[0]))),
    }
}

/// Composes the URL of a Redis server from its parts.
fn redis(variables: VariableLookup<'_>) -> Result<PublishedValue, StoreError> {
    let host = needed(&[REDIS_URL, REDIS_HOST], "redis", variables)?;
    // Kubernetes sets the port of a service named `redis` as `tcp://10.0.0.5:6379`.
    let port = variables(REDIS_PORT).unwrap_or_else(|| "6379".to_owned());
    let port =
        if port.contains("://") { port.rsplit(':').next().unwrap_or_default() } else { &port };
    let host =
        if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
    let part =
        |name| variables(name).map(|text| utf8_percent_encode(&text, NON_ALPHANUMERIC).to_string());
    let login = part(REDIS_PASSWORD).map_or_else(String::new, |password| {
        format!("{}:{password}@", part(REDIS_USERNAME).unwrap_or_default())
    });
    let number = part(REDIS_DB).unwrap_or_else(|| "0".to_owned());
    Ok(PublishedValue {
        variable: REDIS_HOST,
        value: format!("redis://{login}{host}:{port}/{number}"),
    })
}

/// Converts a list of endpoints, with or without schemes, to a URL.
fn etcd(endpoints: &str) -> String {
    let host = |endpoint: &str| {
        let endpoint = endpoint.trim().trim_end_matches('/');
        endpoint.split_once("://").map_or(endpoint, |(_, host)| host).to_owned()
    };
    let hosts: Vec<String> = endpoints.split(',').map(host).collect();
    let tls = if endpoints.contains("https://") { "?tls=on" } else { "" };
    format!("etcd://{}{tls}", hosts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_store::StoreUrl;

    /// Returns the URL of the store for these variables, written as `NAME=VALUE`.
    fn of(given: &[&str]) -> String {
        let variables = |name: &str| {
            let mut given = given.iter().filter_map(|text| text.split_once('='));
            given.find(|(given, _)| *given == name).map(|(_, value)| value.to_owned())
        };
        let found = store(&variables).unwrap().unwrap();
        StoreUrl::parse(&found.value).unwrap();
        found.value
    }

    #[test]
    fn a_store_is_composed() {
        let redis = "CONNECTOR_COORDINATION_BACKEND=redis";
        let etcd = "CONNECTOR_COORDINATION_BACKEND=etcd";
        for (variables, url) in [
            (&[redis, "REDIS_HOST=h"][..], "redis://h:6379/0"),
            (&[redis, "REDIS_HOST=fd00::1", "REDIS_PORT=7"], "redis://[fd00::1]:7/0"),
            (
                &[redis, "REDIS_HOST=h", "REDIS_PASSWORD=a/b@c", "REDIS_DB=3"],
                "redis://:a%2Fb%40c@h:6379/3",
            ),
            (
                &[redis, "REDIS_HOST=h", "REDIS_USERNAME=me", "REDIS_PASSWORD=x"],
                "redis://me:x@h:6379/0",
            ),
            (&[redis, "REDIS_HOST=h", "REDIS_URL=rediss://other"], "rediss://other"),
            (&[etcd, "ETCD_ENDPOINTS=a:1,b:2"], "etcd://a:1,b:2"),
            (&[etcd, "ETCD_ENDPOINTS=http://a:1, http://b:2/"], "etcd://a:1,b:2"),
            (&[etcd, "ETCD_ENDPOINTS=https://a:1"], "etcd://a:1?tls=on"),
            (&[etcd, "ETCD_ENDPOINTS=etcd://me:x@a:1"], "etcd://me:x@a:1"),
            (&["CONNECTOR_COORDINATION_BACKEND=sqlite"], "sqlite:tenure.db"),
        ] {
            assert_eq!(of(variables), url);
        }
    }

    /// The store `file:` keeps the cursor in this file itself.
    #[test]
    fn a_cursor_file_is_a_store_or_a_state_file() {
        let state = |backend: Option<&str>| {
            let variables = |name: &str| match name {
                CURSOR_PATH => Some("cursor.json".to_owned()),
                BACKEND => backend.map(str::to_owned),
                _ => None,
            };
            of_option("run", "state", &variables, &mut Vec::new()).unwrap()
        };
        assert_eq!(state(Some("file")), None);
        for backend in [None, Some("redis")] {
            assert_eq!(state(backend).map(|found| found.value).as_deref(), Some("cursor.json"));
        }
    }
    #[test]
    fn every_variable_is_documented() {
        let page = include_str!("../../../../docs/reference/configuration.md");
        let store = [BACKEND, DATABASE_URL, ETCD_ENDPOINTS, REDIS_DB, REDIS_HOST, REDIS_PASSWORD];
        let store = store.into_iter().chain([REDIS_PORT, REDIS_URL, REDIS_USERNAME]);
        for variable in PUBLISHED.iter().map(|(_, _, variable)| *variable).chain(store) {
            assert!(page.contains(&format!("`{variable}`")), "{variable}");
        }
    }
}
