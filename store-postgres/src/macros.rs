//! The loop around every operation.

/// The parameters of a statement.
macro_rules! args {
    ($($value:expr),* $(,)?) => {{
        #[allow(unused_mut, reason = "a statement may have no parameter")]
        let mut arguments = sqlx::postgres::PgArguments::default();
        $(
            sqlx::Arguments::add(&mut arguments, $value)
                .map_err(|_| $crate::fault::Fault::from(wow_store_api::Error::internal("a parameter was refused")))?;
        )*
        arguments
    }};
}
pub(crate) use args;

/// Runs `$body` on a connection until it succeeds, is refused, or the time is over. `$body` is a block that may use `?`
/// on faults; it may run more than once.
macro_rules! attempt {
    ($inner:expr, $kind:expr, $operation:expr, |$conn:ident| $body:expr) => {{
        let mut attempts = $crate::attempts::Attempts::new(&$inner, $kind, $operation);
        loop {
            let result = match attempts.take().await {
                Ok(mut taken) => {
                    let result = {
                        let $conn = &mut taken;
                        attempts.limit(async { $body }).await
                    };
                    if result.is_err() {
                        taken.rollback().await;
                    }
                    result
                }
                Err(fault) => Err(fault),
            };
            match result {
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
