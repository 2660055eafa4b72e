//! Kinds and names on a command line: `jobs`, `job train`, `job/train cq/gpus`.

use super::values::object_name;
use crate::error::Error;
use meridian_objects::Kind;

/// A kind and one of its objects; all of them if there is no name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) name: Option<String>,
}

/// Reads one kind with any number of names, or any number of `kind/name`. A kind alone is a target without
/// name. Fails for unknown kinds and impossible names.
pub(crate) fn parse(words: &[String]) -> Result<Vec<Target>, Error> {
    let Some(first) = words.first() else {
        return Err(Error::Usage("a kind is missing, such as `jobs`".to_owned()));
    };
    if words.iter().any(|word| word.contains('/')) {
        return words.iter().map(|word| parse_pair(word)).collect();
    }
    let kind = parse_kind(first)?;
    if words.len() == 1 {
        return Ok(vec![Target { kind, name: None }]);
    }
    words[1..].iter().map(|word| Ok(Target { kind, name: Some(parse_name(word)?) })).collect()
}

/// As [`parse`], but also fails for a target without name.
pub(crate) fn parse_named(words: &[String]) -> Result<Vec<(Kind, String)>, Error> {
    let missing = |kind: Kind| Error::Usage(format!("name the {} after its kind", kind.singular()));
    parse(words)?
        .into_iter()
        .map(|target| target.name.map(|name| (target.kind, name)).ok_or_else(|| missing(target.kind)))
        .collect()
}

fn parse_pair(word: &str) -> Result<Target, Error> {
    let Some((left, right)) = word.split_once('/') else {
        return Err(Error::Usage(format!("`{word}` must be KIND/NAME, like the other arguments")));
    };
    Ok(Target { kind: parse_kind(left)?, name: Some(parse_name(right)?) })
}

fn parse_kind(word: &str) -> Result<Kind, Error> {
    Kind::from_word(word).ok_or_else(|| {
        let remedy = match Kind::nearest_word(word) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the kinds are {}", Kind::ALL.map(Kind::plural).join(", ")),
        };
        Error::Usage(format!("unknown kind `{word}`; {remedy}"))
    })
}

fn parse_name(word: &str) -> Result<String, Error> {
    object_name(word).map_err(|why| Error::Usage(format!("`{word}` is not a name; {why}")))
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
        assert_eq!(parse(&words("jobs")).unwrap(), [Target { kind: Kind::Job, name: None }]);
        assert_eq!(
            parse(&words("cq a b")).unwrap(),
            [target(Kind::ClusterQueue, "a"), target(Kind::ClusterQueue, "b")]
        );
        assert_eq!(
            parse(&words("job/a cluster/eu")).unwrap(),
            [target(Kind::Job, "a"), target(Kind::Cluster, "eu")]
        );
    }

    #[test]
    fn wrong_words_are_usage_errors() {
        let check = |text: &str, expect: &str| {
            let error = parse_named(&words(text)).unwrap_err();
            assert!(error.to_string().contains(expect), "{error}");
            assert_eq!(error.exit_code(), 2);
        };
        check("jbos a", "unknown kind `jbos`; did you mean `jobs`?");
        check("pods", "the kinds are namespaces,");
        check("job", "name the job after its kind");
        check("job/a b", "`b` must be KIND/NAME");
        check("job ..", "`..` is not a name; a name has letters");
        check("job/../x", "`../x` is not a name");
    }
}
