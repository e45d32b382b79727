//! Effects in the user's own transaction.

use tenure_core::{Hold, StoreResult};
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use super::{error, schema};

/// Lets a transaction commit only under a valid hold in the schema `tenure` of the same database.
///
/// Call it before the first effect and the first savepoint: a rollback to an earlier savepoint
/// undoes it. Tables under `tenure.guard_table` then refuse changes. While the transaction runs,
/// the duty is granted to nobody else (R12). If the hold is not valid, the error has
/// [`tenure_core::Code::Fenced`] and PostgreSQL refuses every further statement of the transaction.
/// A client that stalls in it loses its connection when the hold ends: by a timeout of the server,
/// or by the next claim.
///
/// ```no_run
/// # async fn example(client: &mut tokio_postgres::Client, hold: &tenure_core::Hold)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let transaction = client.transaction().await?;
/// tenure_store::postgres::fence(&transaction, hold).await?;
/// transaction.execute("UPDATE account SET balance = balance - 1 WHERE id = 7", &[]).await?;
/// transaction.commit().await?;
/// # Ok(()) }
/// ```
pub async fn fence(transaction: &Transaction<'_>, hold: &Hold) -> StoreResult<()> {
    fence_in(transaction, "tenure", hold).await
}

/// Like [`fence`], for another schema.
pub async fn fence_in(
    transaction: &Transaction<'_>,
    schema_name: &str,
    hold: &Hold,
) -> StoreResult<()> {
    schema::check_name(schema_name)?;
    let sql = schema::in_schema(include_str!("sql/hold/assert.sql"), schema_name);
    let (duty, epoch) = (hold.duty.to_string(), hold.epoch.as_i64());
    let parameters: [super::Parameter<'_>; 3] =
        [(&duty, Type::TEXT), (&epoch, Type::INT8), (&hold.instance.as_str(), Type::TEXT)];
    let asserted = transaction.query_typed(&sql, &parameters).await;
    asserted.map(drop).map_err(error::statement_error)
}
