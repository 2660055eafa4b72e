//! What people mean by `jobs`, `job train`, `job/train cq/gpus`: kinds and names from the words of a command line.

use crate::args::is_object_name;
use crate::error::Error;
use meridian_objects::Kind;

/// One kind, and names of it; no names mean all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) kind: Kind,
    pub(super) name: Option<String>,
}

/// Reads the words: one kind and names, or any number of `kind/name`. A lone kind is a target without name.
pub(super) fn read(words: &[String]) -> Result<Vec<Target>, Error> {
    let Some(first) = words.first() else {
        return Err(Error::Usage("a kind is missing, such as `jobs`".to_owned()));
    };
    if words.iter().any(|word| word.contains('/')) {
        return words.iter().map(|word| pair(word)).collect();
    }
    let kind = kind(first)?;
    if words.len() == 1 {
        return Ok(vec![Target { kind, name: None }]);
    }
    words[1..].iter().map(|word| Ok(Target { kind, name: Some(name(word)?) })).collect()
}

/// As [`read`], but every target has a name.
pub(super) fn read_named(words: &[String]) -> Result<Vec<(Kind, String)>, Error> {
    let missing = |kind: Kind| Error::Usage(format!("the name of a {} is missing", kind.singular()));
    read(words)?
        .into_iter()
        .map(|target| target.name.map(|name| (target.kind, name)).ok_or_else(|| missing(target.kind)))
        .collect()
}

fn pair(word: &str) -> Result<Target, Error> {
    let Some((left, right)) = word.split_once('/') else {
        return Err(Error::Usage(format!("`{word}` is not KIND/NAME, as the other arguments are")));
    };
    Ok(Target { kind: kind(left)?, name: Some(name(right)?) })
}

fn kind(word: &str) -> Result<Kind, Error> {
    Kind::from_word(word).ok_or_else(|| {
        let remedy = match Kind::nearest_word(word) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the kinds are {}", Kind::ALL.map(Kind::plural).join(", ")),
        };
        Error::Usage(format!("`{word}` is not a kind; {remedy}"))
    })
}

fn name(word: &str) -> Result<String, Error> {
    if is_object_name(word) {
        Ok(word.to_owned())
    } else {
        Err(Error::Usage(format!("`{word}` is not a name; a name has letters, digits, `-` and `.`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn words_become_targets() {
        let target = |kind, name: &str| Target { kind, name: Some(name.to_owned()) };
        assert_eq!(read(&words("jobs")).unwrap(), [Target { kind: Kind::Job, name: None }]);
        assert_eq!(
            read(&words("cq a b")).unwrap(),
            [target(Kind::ClusterQueue, "a"), target(Kind::ClusterQueue, "b")]
        );
        assert_eq!(
            read(&words("job/a cluster/eu")).unwrap(),
            [target(Kind::Job, "a"), target(Kind::Cluster, "eu")]
        );
    }

    #[test]
    fn slips_are_usage_errors() {
        let check = |text: &str, expect: &str| {
            let error = read_named(&words(text)).unwrap_err();
            assert!(error.to_string().contains(expect), "{error}");
            assert_eq!(error.exit_code(), 2);
        };
        check("jbos a", "did you mean `jobs`?");
        check("pods", "the kinds are namespaces,");
        check("job", "the name of a job is missing");
        check("job/a b", "`b` is not KIND/NAME");
        check("job ..", "`..` is not a name");
        check("job/../x", "`../x` is not a name");
    }
}
