use std::time::Duration;

use testkit::{Certificates, EtcdOptions, EtcdServer, wait_until};

#[test]
fn keeps_its_data_across_a_kill() {
    let password = Some("secret".to_owned());
    let server = EtcdServer::start(EtcdOptions { password, ..EtcdOptions::default() }).unwrap();
    assert_eq!(server.url(), format!("etcd://root:secret@127.0.0.1:{}", server.port(0)));
    server.etcdctl(&["put", "kept", "yes"]).unwrap();
    server.kill(0).unwrap();
    assert!(server.etcdctl(&["get", "kept"]).is_err());
    server.start_again(0).unwrap();
    assert_eq!(server.etcdctl(&["get", "kept", "--print-value-only"]).unwrap(), "yes");
    server.pause(0).unwrap();
    let frozen = server.etcdctl(&["--command-timeout", "500ms", "get", "kept"]);
    assert!(frozen.is_err(), "a frozen server answered");
    server.resume(0).unwrap();
}

#[test]
fn three_members_elect_another_leader() {
    let server = EtcdServer::start(EtcdOptions { members: 3, ..EtcdOptions::default() }).unwrap();
    let leader = server.leader().unwrap();
    server.kill(leader).unwrap();
    wait_until("another leader", Duration::from_secs(30), || {
        server.leader().is_ok_and(|next| next != leader)
    })
    .unwrap();
    server.start_again(leader).unwrap();
}

#[test]
fn encrypts_when_it_is_told_to() {
    let certificates = Certificates::make("client").unwrap();
    let tls = Some(&certificates);
    let options = EtcdOptions { tls, client_certificates: true, ..EtcdOptions::default() };
    let server = EtcdServer::start(options).unwrap();
    server.etcdctl(&["put", "key", "value"]).unwrap();
}
