//! `tenure beat` with a real switchboard.

use rustix::process::Signal;
use testkit::Certificates;

use super::{beat, run};
use crate::switchboard::{Place, address};

const BOT: [&str; 6] =
    ["--channel", "telegram", "--provider", "telegram", "--endpoint", "test_bot"];

/// Creates a token.
fn token(place: &Place, more: &[&str]) -> String {
    let made = place.tenure(&[&["token", "create", "--json"], more].concat()).json();
    made["token"].as_str().unwrap().to_owned()
}

#[test]
fn the_switchboard_takes_it_from_whoever_has_the_token() {
    let place = Place::sqlite();
    let bot = token(&place, &BOT);
    let reader = token(&place, &["--role", "read"]);
    let server = place.serve(&[]);
    let url = server.url("");
    let (tenure, words) = (&place.tenure, ["--ingested", "3", "--version", "7"]);
    std::fs::write(tenure.path("token"), format!("{bot}\n")).unwrap();
    let text = run(beat(tenure, &url, &words).env("SWITCHBOARD_API_TOKEN", &bot)).ok();
    assert!(text.starts_with("accepted: telegram_bot test_bot at 20"), "{text}");
    let words = ["--ingested", "5", "--token-file", "token", "--state", "degraded"];
    let ran = run(beat(tenure, &url, &words).env("SWITCHBOARD_API_TOKEN", "sw_live_other"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.stderr, "warning: state is degraded without an error_message\n");
    ran.hides(&bot);
    let shown = place.tenure(&["connectors", "show", "telegram_bot", "test_bot", "--json"]).json();
    assert_eq!(shown["liveness"], "online", "{shown}");
    assert_eq!(shown["state"], "degraded", "{shown}");
    assert_eq!(shown["counters"]["messages_ingested"], 5, "{shown}");
    is_cut(&place, &url, &bot);
    for (words, token, says) in [
        (&[][..], None, "401 Unauthorized: "),
        (&[], Some("sw_live_0123456789012345678901234567890123"), "401 Unauthorized: "),
        (&[], Some(&*reader), "403 Forbidden: "),
        (&["--endpoint", "other_bot"], Some(&*bot), "403 Forbidden: Token scope does not permit"),
        (&["--type", "slack"], Some(&*bot), "403 Forbidden: Token scope does not permit"),
    ] {
        let mut command = beat(tenure, &url, words);
        if let Some(token) = token {
            command.env("SWITCHBOARD_API_TOKEN", token);
        }
        let ran = run(&mut command);
        ran.refused("SW006");
        assert!(ran.stderr.contains(says), "{says}: {ran:?}");
        if let Some(token) = token {
            ran.hides(token);
        }
    }
    server.stop();
    run(beat(tenure, &url, &[]).env("SWITCHBOARD_API_TOKEN", &bot)).refused("SW005");
}

/// A heartbeat with a message that is too long is accepted; the message is cut.
fn is_cut(place: &Place, url: &str, token: &str) {
    let long = "m".repeat(5_000);
    let words = ["--state", "error", "--message", &long];
    let ran = run(beat(&place.tenure, url, &words).env("SWITCHBOARD_API_TOKEN", token));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let says = "warning: status.error_message was longer than 4096 bytes and was truncated\n";
    assert_eq!(ran.stderr, says);
    let shown = place.tenure(&["connectors", "show", "telegram_bot", "test_bot", "--json"]).json();
    let kept = shown["error_message"].as_str().unwrap();
    assert!(kept.len() <= 4_096 && kept.ends_with("m... [cut: 5000 bytes]"), "{shown}");
}

#[test]
fn the_way_may_be_encrypted() {
    let place = Place::sqlite();
    let certificates = Certificates::make("client").unwrap();
    let (certificate, key) = certificates.server();
    let [certificate, key] = [certificate, key].map(|path| path.display().to_string());
    let authority = certificates.authority().display().to_string();
    let fixed = ["--store", &place.url, "serve", "--listen", "127.0.0.1:0"];
    let words = ["--tls-cert", certificate.as_str(), "--tls-key", key.as_str()];
    let running = place.tenure.start("tls", &[&fixed[..], &words].concat());
    place.tenure.said(&running, "https://127.0.0.1:");
    let port = address(&place.tenure.text("tls.err")).unwrap().port();
    let url = format!("https://localhost:{port}");
    run(&mut beat(&place.tenure, &url, &["--cacert", &authority])).ok();
    // An unknown certificate authority is refused, and so is plain HTTP.
    run(&mut beat(&place.tenure, &url, &[])).refused("ST018");
    let ran = run(&mut beat(&place.tenure, &format!("http://localhost:{port}"), &[]));
    assert!(ran.stderr.starts_with("SW00"), "{ran:?}");
    running.signal(Signal::TERM);
    running.exits(0);
}
