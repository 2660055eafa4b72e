//! The requested validity of a token.

use crate::api::response::error::Error;
use jiff::SignedDuration;

/// The durations that one kind of token may have.
pub(super) struct TtlRange {
    /// Default, if the request has no `ttl`.
    pub(super) usual: SignedDuration,
    pub(super) most: SignedDuration,
    /// Example of a usual value, for the message.
    pub(super) example: &'static str,
}

impl TtlRange {
    /// Reads the field `ttl`. Fails if it isn't a duration, or out of range.
    pub(super) fn read(&self, text: Option<&str>) -> Result<SignedDuration, Error> {
        let Some(text) = text else { return Ok(self.usual) };
        let refused =
            |why: String| Error::BadRequest(format!("ttl: Invalid value: \"{text}\": must be {why}"));
        let ttl: SignedDuration =
            text.parse().map_err(|_| refused(format!("a number with a unit, such as `{}`", self.example)))?;
        if ttl <= SignedDuration::ZERO || ttl > self.most {
            return Err(refused(format!("between 0 and {} h", self.most.as_hours())));
        }
        Ok(ttl)
    }
}
