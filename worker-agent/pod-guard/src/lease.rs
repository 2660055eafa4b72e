//! The lease of a gang as text: what an agent writes into a pod's annotation, and a guard reads from a file.
//!
//! `v1 clock=ID sent=MS left=MS stop=MS ends=MS`, or with `left=never` and without `ends`.

use std::fmt;

/// First word of this version of the text.
const VERSION: &str = "v1";

/// A lease as its agent wrote it into the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The clock of `sent`, named by the boot of the agent's machine. Times of different clocks can't be
    /// compared.
    pub clock: String,
    /// When the agent wrote this, by that clock, in milliseconds. Larger in each later text.
    pub sent: i64,
    /// How long the command must be told to stop before the lease ends, in milliseconds.
    pub stop: i64,
    /// `None`: the gang continues without its manager.
    pub end: Option<End>,
}

/// The end of a lease by both clocks, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// How long the lease lasts, counted from `sent`.
    pub left: i64,
    /// Wall-clock time since 1970.
    pub wall: i64,
}

impl Lease {
    /// Reads the text. Fails with what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        match words.next() {
            Some(VERSION) => {}
            Some(other) => {
                return Err(format!("it is of version `{other}`, and this guard knows `{VERSION}`"));
            }
            None => return Err("it is empty: no agent has written the pod's annotation".to_owned()),
        }
        let pairs: Vec<(&str, &str)> = words.filter_map(|word| word.split_once('=')).collect();
        let text_of = |name: &str| {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| *value).ok_or_else(|| format!("it has no `{name}`"))
        };
        let number = |name: &str| {
            let text = text_of(name)?;
            text.parse::<i64>().map_err(|_| format!("`{name}={text}` is not a number of milliseconds"))
        };
        let end = match text_of("left")? {
            "never" => None,
            _ => Some(End { left: number("left")?, wall: number("ends")? }),
        };
        Ok(Self { clock: text_of("clock")?.to_owned(), sent: number("sent")?, stop: number("stop")?, end })
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clock, sent, stop, end } = self;
        match end {
            Some(End { left, wall }) => {
                write!(f, "{VERSION} clock={clock} sent={sent} left={left} stop={stop} ends={wall}")
            }
            None => write!(f, "{VERSION} clock={clock} sent={sent} left=never stop={stop}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_read_as_they_are_written() {
        let ending = Lease {
            clock: "boot-1".into(),
            sent: 5,
            stop: 30_000,
            end: Some(End { left: 900_000, wall: 1_767_225_600_000 }),
        };
        let text = "v1 clock=boot-1 sent=5 left=900000 stop=30000 ends=1767225600000";
        assert_eq!(ending.to_string(), text);
        assert_eq!(Lease::parse(text), Ok(ending.clone()));
        let endless = Lease { end: None, ..ending };
        assert_eq!(Lease::parse(&format!("{endless}\n")), Ok(endless));
        for (text, why) in [
            ("", "no agent has written"),
            ("v2 clock=a", "version `v2`"),
            ("v1 clock=a sent=1 stop=1", "no `left`"),
            ("v1 clock=a sent=1 left=5 stop=1", "no `ends`"),
            ("v1 clock=a sent=soon left=never stop=1", "`sent=soon` is not a number"),
        ] {
            assert!(Lease::parse(text).unwrap_err().contains(why), "{text}");
        }
    }
}
