//! Moves money once, under a hold, in the user's own tables.
//!
//! `TENURE_STORE` names a PostgreSQL database. The example creates the table `guarded_example` in
//! it, with a guard that allows changes only under a hold.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use tenure::store::{ClaimRequest, Claimed, IfAbsent, OpenSession, StoreUrl, postgres};
use tenure::{Code, DutyKey, Note, Reason, Ttl, process};
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TENURE_STORE")?;
    let store = StoreUrl::parse(&url)?.open(IfAbsent::Create, process::entropy()).await?;
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    let connection = tokio::spawn(connection);
    let table = "CREATE TABLE IF NOT EXISTS guarded_example (id int PRIMARY KEY, balance int);
        SELECT tenure.guard_table('guarded_example', 'billing')";
    client.batch_execute(table).await?;

    let duty = DutyKey::new("billing", "account-7")?;
    let open = OpenSession {
        group: duty.group.clone(),
        instance: process::instance().id().clone(),
        nonce: process::fresh_nonce(),
        ttl: Ttl::new(Duration::from_secs(30))?,
        note: Note::default(),
    };
    store.open_session(&open).await?;
    let session = open.session();
    let why = Reason::new("example")?;
    let claimed = store.claim(&session, &[ClaimRequest::new(duty)], &why).await?.remove(0);
    let Claimed::Granted(hold) = claimed else {
        return Err(format!("not granted: {claimed:?}").into());
    };

    // Before the first effect: from here to the commit no other instance is granted the duty.
    let transaction = client.transaction().await?;
    postgres::fence(&transaction, &hold).await?;
    let update = "INSERT INTO guarded_example AS e VALUES (7, 99)
        ON CONFLICT (id) DO UPDATE SET balance = e.balance - 1 RETURNING balance";
    let balance: i32 = transaction.query_one(update, &[]).await?.get(0);
    transaction.commit().await?;
    println!("under epoch {} the balance became {balance}", hold.epoch);

    // A hold that has ended is refused, whatever its former holder believes.
    store.release(&session, std::slice::from_ref(&hold), &why).await?;
    let transaction = client.transaction().await?;
    let refused = postgres::fence(&transaction, &hold).await.err();
    transaction.rollback().await?;
    let code = refused.map(|error| error.code());
    println!("after the release the fence said {code:?}");
    assert_eq!(code, Some(Code::Fenced));

    // Without a fence the table cannot be changed at all.
    let unfenced = client.batch_execute("DELETE FROM guarded_example").await.err();
    let state = unfenced.as_ref().and_then(tokio_postgres::Error::code).map(SqlState::code);
    println!("without a fence the table said {state:?}");
    assert_eq!(state, Some("TN002"));

    store.close_session(&session, &why).await?;
    drop(client);
    connection.await??;
    Ok(())
}
