//! Kinds and names on a command line: `jobs`, `job train`, `job/train cq/gpus`.

use super::values::object_name;
use crate::error::Error;
use meridian_objects::Kind;
use meridian_objects::job::JobKind;

/// A kind and one of its objects; all of them if there is no name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) name: Option<String>,
}

/// The kinds that `get all` lists beside jobs: what a user of queues works with.
const ALL_OF_USERS: [Kind; 3] = [Kind::Workload, Kind::LocalQueue, Kind::ClusterQueue];

/// Reads kinds with any number of names, or any number of `kind/name`. A kind alone is a target without name;
/// `all` is several kinds. Fails for unknown kinds and impossible names.
pub(crate) fn parse(words: &[String]) -> Result<Vec<Target>, Error> {
    parse_with(words, |word| match word {
        "all" => Ok(JobKind::all().map(JobKind::kind).chain(ALL_OF_USERS).collect()),
        word => kinds(word),
    })
}

/// As [`parse`], without `all`: for commands that change the named objects.
pub(crate) fn parse_exact(words: &[String]) -> Result<Vec<Target>, Error> {
    parse_with(words, |word| match word {
        "all" => Err(Error::Usage("`all` is for `get` only; name the kinds, such as `jobs`".to_owned())),
        word => kinds(word),
    })
}

fn parse_with(
    words: &[String],
    kinds_of: impl Fn(&str) -> Result<Vec<Kind>, Error>,
) -> Result<Vec<Target>, Error> {
    let Some(first) = words.first() else {
        return Err(Error::Usage("a kind is missing, such as `jobs`".to_owned()));
    };
    if words.iter().any(|word| word.contains('/')) {
        return words.iter().map(|word| parse_pair(word)).collect();
    }
    let kinds = kinds_of(first)?;
    if words.len() == 1 {
        return Ok(kinds.into_iter().map(|kind| Target { kind, name: None }).collect());
    }
    let named = |kind: Kind| words[1..].iter().map(move |word| (kind, word));
    let targets = kinds.into_iter().flat_map(named);
    targets.map(|(kind, word)| Ok(Target { kind, name: Some(parse_name(word)?) })).collect()
}

/// The kinds of `jobs` or `jobs,cq`, each once.
fn kinds(words: &str) -> Result<Vec<Kind>, Error> {
    let mut kinds = Vec::new();
    for word in words.split(',') {
        let kind = parse_kind(word)?;
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    Ok(kinds)
}

/// As [`parse_exact`], but also fails for a target without name.
pub(crate) fn parse_named(words: &[String]) -> Result<Vec<(Kind, String)>, Error> {
    let missing = |kind: Kind| Error::Usage(format!("name the {} after its kind", kind.singular()));
    parse_exact(words)?
        .into_iter()
        .map(|target| target.name.map(|name| (target.kind, name)).ok_or_else(|| missing(target.kind)))
        .collect()
}

/// As [`parse_named`], but words that name no kind are names of jobs of any kind: `train` as well as
/// `job train`.
pub(crate) fn parse_jobs(words: &[String]) -> Result<Vec<(Option<Kind>, String)>, Error> {
    let is_kind = |word: &String| word.contains('/') || Kind::from_word(word).is_some();
    if words.first().is_none_or(is_kind) {
        return Ok(parse_named(words)?.into_iter().map(|(kind, name)| (Some(kind), name)).collect());
    }
    words.iter().map(|word| Ok((None, parse_name(word)?))).collect()
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
        let all = |kind| Target { kind, name: None };
        assert_eq!(parse(&words("jobs,cq,job")).unwrap(), [all(Kind::Job), all(Kind::ClusterQueue)]);
        assert_eq!(
            parse(&words("cq,lq a")).unwrap(),
            [target(Kind::ClusterQueue, "a"), target(Kind::LocalQueue, "a")]
        );
        assert_eq!(parse(&words("all")).unwrap()[0], all(Kind::Job));
        let jobs = |kind| [(kind, "a".to_owned()), (kind, "b".to_owned())];
        assert_eq!(parse_jobs(&words("a b")).unwrap(), jobs(None));
        assert_eq!(parse_jobs(&words("jobset a b")).unwrap(), jobs(Some(Kind::JobSet)));
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
        check("nodes", "the kinds are namespaces,");
        check("job", "name the job after its kind");
        check("job/a b", "`b` must be KIND/NAME");
        check("all a", "`all` is for `get` only");
        check("job,jbos a", "unknown kind `jbos`");
        check("job ..", "`..` is not a name; a name has letters");
        check("job/../x", "`../x` is not a name");
    }
}
