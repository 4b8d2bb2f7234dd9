//! placeholder
use async_trait::async_trait;
/// placeholder
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadPreference {
    /// placeholder
    Primary,
}
/// placeholder
#[async_trait]
pub trait Queries: Send + Sync {}
