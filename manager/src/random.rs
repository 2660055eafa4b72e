//! Random numbers from the system.

/// The system's random source failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system's random source failed: {0}")]
pub struct Error(String);

/// Random bytes. Fails if the system's random source does.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| Error(error.to_string()))?;
    Ok(bytes)
}
