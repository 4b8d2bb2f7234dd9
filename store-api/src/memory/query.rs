//! placeholder
impl crate::Queries for super::MemoryStore {}
