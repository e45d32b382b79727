//! Linearizable reads, in transactions and pages of limited size.

use std::time::Duration;

use futures_util::future::join_all;
use tenure_core::StoreResult;
use tenure_etcd::{Client, KeyValue, Range, Txn, TxnOp, TxnOpResponse, TxnOutcome};

use super::cluster::{ATTEMPT_TIMEOUT, EtcdCluster, KEEP_ALIVE_TIMEOUT};
use super::error::{self, RequestError};
use super::{MAX_CONCURRENT_TXNS, MAX_TXN_READS};

impl EtcdCluster {
    /// Reads keys at one, current revision; at most [`MAX_TXN_READS`]. A transaction without writes
    /// costs the cluster no more than a read.
    async fn read_once(&self, limit: Duration, gets: &[TxnOp]) -> StoreResult<Vec<Vec<KeyValue>>> {
        let txn = &Txn::new().and_then(gets);
        let sent = |client: Client| async move { client.txn(txn).await };
        let response = self.repeat(limit, sent).await.map_err(RequestError::into_error)?;
        self.saw(response.header.as_ref());
        Ok(response.responses.into_iter().map(found).collect())
    }

    /// Reads up to one transaction's worth of keys.
    pub(super) async fn read<const N: usize>(
        &self,
        gets: [TxnOp; N],
    ) -> StoreResult<[Vec<KeyValue>; N]> {
        let read = self.read_once(ATTEMPT_TIMEOUT, &gets).await?;
        read.try_into().map_err(|_| error::unexpected("a part is missing"))
    }

    /// Like [`Self::read`], with the shorter timeout of keep-alives.
    pub(super) async fn read_quick<const N: usize>(
        &self,
        gets: [TxnOp; N],
    ) -> StoreResult<[Vec<KeyValue>; N]> {
        let read = self.read_once(KEEP_ALIVE_TIMEOUT, &gets).await?;
        read.try_into().map_err(|_| error::unexpected("a part is missing"))
    }

    /// Reads any number of keys, each at its current value.
    pub(super) async fn read_all(&self, keys: &[String]) -> StoreResult<Vec<Option<KeyValue>>> {
        self.read_by(keys, MAX_TXN_READS).await
    }

    /// Like [`Self::read_all`], with at most `most` keys in one response.
    pub(super) async fn read_by(
        &self,
        keys: &[String],
        most: usize,
    ) -> StoreResult<Vec<Option<KeyValue>>> {
        let mut all = Vec::with_capacity(keys.len());
        let parts: Vec<Vec<TxnOp>> =
            keys.chunks(most).map(|part| part.iter().map(|key| get(key)).collect()).collect();
        for wave in parts.chunks(MAX_CONCURRENT_TXNS) {
            for read in
                join_all(wave.iter().map(|gets| self.read_once(ATTEMPT_TIMEOUT, gets))).await
            {
                all.extend(read?.into_iter().map(|found| found.into_iter().next()));
            }
        }
        Ok(all)
    }

    /// Reads everything below a folder at one revision, in pages.
    pub(super) async fn range(&self, folder: &str, page: i64) -> StoreResult<Vec<KeyValue>> {
        self.pages(folder, Range { limit: page, ..Range::default() }).await
    }

    /// Like [`Self::range`], without values.
    pub(super) async fn keys(&self, folder: &str, page: i64) -> StoreResult<Vec<KeyValue>> {
        self.pages(folder, Range { limit: page, keys_only: true, ..Range::default() }).await
    }

    async fn pages(&self, folder: &str, options: Range) -> StoreResult<Vec<KeyValue>> {
        let mut all = Vec::new();
        let mut take = |page| {
            all.extend::<Vec<KeyValue>>(page);
            Ok(())
        };
        self.walk(folder, options, &mut take).await?;
        Ok(all)
    }

    /// Passes everything below a folder to `take`, page by page.
    pub(super) async fn each_page(
        &self,
        folder: &str,
        page: i64,
        take: &mut (dyn FnMut(Vec<KeyValue>) -> StoreResult<()> + Send),
    ) -> StoreResult<()> {
        self.walk(folder, Range { limit: page, ..Range::default() }, take).await
    }

    async fn walk(
        &self,
        folder: &str,
        mut range: Range,
        take: &mut (dyn FnMut(Vec<KeyValue>) -> StoreResult<()> + Send),
    ) -> StoreResult<()> {
        (range.key, range.range_end) = (folder.into(), end_of(folder));
        loop {
            let page = &range;
            let sent = |client: Client| async move { client.range(page).await };
            let response =
                self.repeat(ATTEMPT_TIMEOUT, sent).await.map_err(RequestError::into_error)?;
            self.saw(response.header.as_ref());
            if range.revision == 0 {
                range.revision = response.header.as_ref().map_or(0, |header| header.revision);
            }
            let (more, page) = (response.more, response.kvs);
            let next = page.last().map(|last| [&last.key[..], &[0]].concat());
            take(page)?;
            match next {
                Some(next) if more => range.key = next,
                _ => return Ok(()),
            }
        }
    }
}

pub(super) fn get(key: &str) -> TxnOp {
    TxnOp::get(Range::of(key))
}

/// Reads everything below a folder.
pub(super) fn below(folder: &str) -> TxnOp {
    TxnOp::get(Range::between(folder, end_of(folder)))
}

/// Returns the first key after all keys that begin with `folder`. A folder ends in `/`, so its last
/// byte can be incremented.
pub(super) fn end_of(folder: &str) -> Vec<u8> {
    let mut end = folder.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// Returns the key-value pairs of a read inside a transaction.
pub(super) fn found(response: TxnOpResponse) -> Vec<KeyValue> {
    match response.outcome {
        Some(TxnOutcome::Get(got)) => got.kvs,
        _ => Vec::new(),
    }
}
