//! Paths of fields within an object.

use std::fmt;

/// The first key of a JSON pointer, and the rest of it; `None` for the empty pointer.
pub(super) fn split_pointer(pointer: &str) -> Option<(&str, &str)> {
    let keys = pointer.strip_prefix('/')?;
    Some(keys.split_at(keys.find('/').unwrap_or(keys.len())))
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    Key(String),
    /// A position in a list, from 0.
    Index(usize),
}

/// Path from an object's root to one field; displayed as `spec.resourceGroups[0].flavors[1].name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(pub Vec<Segment>);

impl FieldPath {
    /// This path, below `step`.
    pub(crate) fn below(mut self, step: Segment) -> Self {
        self.0.insert(0, step);
        self
    }

    /// A path from dotted text of plain keys, such as `spec.cohortName`.
    pub fn of(dotted: &str) -> Self {
        Self(
            dotted.split('.').filter(|key| !key.is_empty()).map(|key| Segment::Key(key.to_owned())).collect(),
        )
    }

    /// Parses a displayed path, such as `metadata.labels[kueue.x-k8s.io/queue-name]`.
    pub fn parse(shown: &str) -> Self {
        let (mut path, mut rest) = (Self::default(), shown);
        while !rest.is_empty() {
            let bracketed = rest.strip_prefix('[').and_then(|inner| inner.split_once(']'));
            let (segment, after) = if let Some((inner, after)) = bracketed {
                (inner.parse().map_or_else(|_| Segment::Key(inner.to_owned()), Segment::Index), after)
            } else {
                let plain = rest.trim_start_matches(['.', '[']);
                let end = plain.find(['.', '[']).unwrap_or(plain.len());
                (Segment::Key(plain[..end].to_owned()), &plain[end..])
            };
            path.0.push(segment);
            rest = after;
        }
        path
    }

    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.0.push(Segment::Key(key.into()));
        self
    }

    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        self.0.push(Segment::Index(index));
        self
    }

    /// Replaces the leading keys `from` by `to`. Returns whether the path began with `from`.
    pub(crate) fn replace_prefix(&mut self, from: &str, to: &str) -> bool {
        let (from, to) = (Self::of(from), Self::of(to));
        if !self.0.starts_with(&from.0) {
            return false;
        }
        self.0.splice(..from.0.len(), to.0);
        true
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) if key.contains(['.', '/', '[', ' ']) => write!(f, "[{key}]")?,
                Segment::Key(key) if at == 0 => f.write_str(key)?,
                Segment::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}
