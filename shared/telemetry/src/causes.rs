//! Errors with their causes, as text.

use std::error::Error;

/// The message of an error followed by those of its causes. A cause that a message already contains isn't
/// repeated.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    enum Sample {
        #[error("cannot read `a`: {source}; look there")]
        Said { source: io::Error },
        #[error("cannot start")]
        Unsaid(#[source] Box<Sample>),
    }

    #[test]
    fn every_cause_appears_once() {
        let said = Sample::Said { source: io::Error::other("no such file") };
        assert_eq!(with_causes(&said), "cannot read `a`: no such file; look there");
        assert_eq!(
            with_causes(&Sample::Unsaid(Box::new(said))),
            "cannot start: cannot read `a`: no such file; look there"
        );
    }
}
