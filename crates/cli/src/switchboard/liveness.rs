//! Value parser of `--liveness`.

use tenure_switchboard::liveness::Policy;

use super::token::micros;
use crate::args::duration;
use crate::limits::MAX_AGE;

/// Values of `--liveness`, for help texts.
pub(crate) const WORDS: &str = "usual|observed|spec5|ONLINE,STALE";

/// Parses `usual`, `observed`, `spec5`, or two times as in `120s,600s`: online up to the first,
/// stale up to the second.
pub(crate) fn policy(text: &str) -> Result<Policy, String> {
    match text.trim() {
        "usual" => return Ok(Policy::Usual),
        "observed" => return Ok(Policy::Observed),
        "spec5" => return Ok(Policy::Spec5),
        _ => {}
    }
    let (online, stale) = text.split_once(',').ok_or_else(|| {
        "usual, observed, spec5, or two times: up to which a connector is online, and up to which \
         it is stale, as in 120s,600s"
            .to_owned()
    })?;
    let (online, stale) = (duration(online.trim())?, duration(stale.trim())?);
    if online.is_zero() || stale < online || stale > MAX_AGE {
        let what = "the first time is more than 0, the second at least as long and at most 3650d";
        return Err(what.to_owned());
    }
    Ok(Policy::Fixed { online: micros(online), stale: micros(stale) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read() {
        let fixed = |online: i64, stale: i64| Policy::Fixed {
            online: online * 1_000_000,
            stale: stale * 1_000_000,
        };
        for (text, expected) in [
            ("usual", Policy::Usual),
            (" observed ", Policy::Observed),
            ("spec5", Policy::Spec5),
            ("120s,600s", fixed(120, 600)),
            ("5m, 1h", fixed(300, 3600)),
            ("1d,1d", fixed(86_400, 86_400)),
        ] {
            assert_eq!(policy(text), Ok(expected), "{text}");
        }
        for text in ["", "Usual", "120s", "120,600", "600s,120s", "0s,1s", "1s,-2s", "1s,9999d"] {
            assert!(policy(text).is_err(), "{text}");
        }
    }
}
