//! The loops around every operation.

/// Runs `$body` until it succeeds, is refused, or the time is over. It may use `?` on faults, and may run more than
/// once.
macro_rules! attempt {
    ($inner:expr, $kind:expr, $operation:expr, $body:expr) => {{
        let mut attempts = $crate::attempts::Attempts::new(&$inner, $kind, $operation);
        loop {
            match attempts.limit(async { $body }).await {
                Ok(value) => break Ok(value),
                Err(fault) => {
                    if let Err(error) = attempts.again(fault).await {
                        break Err(error);
                    }
                }
            }
        }
    }};
}
pub(crate) use attempt;

/// The same inside a transaction, which is committed if `$body` succeeds.
macro_rules! transaction {
    ($inner:expr, $kind:expr, $operation:expr, |$transaction:ident| $body:expr) => {
        $crate::macros::attempt!($inner, $kind, $operation, {
            let mut begun = $inner.db.begin().await?;
            let result = {
                let $transaction = &mut begun.work()?;
                async { $body }.await
            };
            match result {
                Ok(value) => {
                    begun.commit().await?;
                    Ok(value)
                }
                Err(fault) => {
                    begun.abort(&fault).await;
                    Err($crate::fault::Fault::before_commit(fault))
                }
            }
        })
    };
}
pub(crate) use transaction;
