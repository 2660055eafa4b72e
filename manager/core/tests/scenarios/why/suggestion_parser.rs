//! Parses the changes that `why` suggests from the text.

/// A change, as parsed from the text. The `&str` is the kind that it counts as.
#[derive(Clone, Debug)]
pub(super) enum Remedy {
    /// Raise nominal quotas: flavor, resource and new quota.
    RaiseQuota(&'static str, Vec<(String, String, i64)>),
    /// The named job ends.
    End(&'static str, String),
    /// The named job is deleted.
    Delete(String),
    /// Submit the workload again with a priority above this one.
    Priority(&'static str, i64),
    /// All running workloads end.
    EndAll,
    /// A missing object is created. The workload may still be pending for another reason then.
    CreateMissing(&'static str),
    /// A change without names and numbers, one of [`PLAIN`].
    Plain(&'static str),
    /// All of these changes.
    All(&'static str, Vec<Remedy>),
}

/// A change and its conditions.
#[derive(Clone, Debug)]
pub(super) struct Suggestion {
    pub(super) remedy: Remedy,
    /// Other workloads that may start first: the one that is named, and the number of them.
    pub(super) rivals: Option<(String, usize)>,
    /// With a priority above this one, the workload comes before the rivals.
    pub(super) unless_above: Option<i64>,
}

impl Remedy {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::RaiseQuota(kind, _)
            | Self::End(kind, _)
            | Self::Plain(kind)
            | Self::Priority(kind, _)
            | Self::All(kind, _) => kind,
            Self::Delete(_) => "deletion of the head",
            Self::EndAll => "ends",
            Self::CreateMissing(_) => "what is missing",
        }
    }

    /// Whether other workloads may take the capacity first.
    pub(super) fn has_rivals(&self) -> bool {
        match self {
            Self::RaiseQuota(kind, _) => kind.contains("rivals"),
            Self::All(_, all) => all.iter().any(Self::has_rivals),
            Self::End(..)
            | Self::Delete(_)
            | Self::Plain(_)
            | Self::Priority(..)
            | Self::EndAll
            | Self::CreateMissing(_) => false,
        }
    }
}

fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn number(text: &str) -> i64 {
    text.chars()
        .take_while(char::is_ascii_digit)
        .collect::<String>()
        .parse()
        .unwrap_or_else(|_| panic!("no number: {text}"))
}

fn job_name(text: &str) -> String {
    quoted(text)[0].strip_prefix("default/").unwrap().to_owned()
}

fn parse_raise(text: &str) -> Option<Remedy> {
    let (_, rest) = text.split_once("raise the queue's nominal quota of ")?;
    let one = |part: &str| {
        let names = quoted(part);
        (names[1].to_owned(), names[0].to_owned(), number(part.rsplit_once("` to ").unwrap().1))
    };
    let (quotas, rivals) =
        rest.split_once(", which is enough for ").map_or((rest, false), |(quotas, _)| (quotas, true));
    let quotas = quotas.split(", or request less").next().unwrap();
    let all: Vec<_> = quotas
        .split(" and of ")
        .flat_map(|part| part.split(", and of "))
        .map(|part| one(part.trim_end_matches(',')))
        .collect();
    let kind = match (all.len(), rivals) {
        (1, false) => "raise",
        (1, true) => "raise before rivals",
        (_, false) => "raise several",
        (_, true) => "raise several before rivals",
    };
    Some(Remedy::RaiseQuota(kind, all))
}

/// Parts of the texts of changes without names and numbers.
const PLAIN: &[&str] = &[
    "uncordon the cluster",
    "start or join its agent",
    "add the cluster to the queue's MultiKueueConfig",
    "raise the cluster's limit of",
    "set the stopPolicy of",
    "create local queue",
    "create cluster queue",
    "create resource flavor",
    "namespaceSelector",
    "to a resource group",
    "add a flavor with matching labels, taints and topology",
    "meridian resume job",
    "add or enlarge nodes there",
    "wait until a workload there ends",
    "wait for the next attempt",
    "submit the job again without a region",
];

pub(super) fn parse_cluster_remedy(text: &str) -> Option<Remedy> {
    if text.contains(", and ") {
        let all = text.split(", and ").map(parse_cluster_remedy).collect::<Option<Vec<_>>>()?;
        return Some(Remedy::All("several obstacles there", all));
    }
    let ends = text
        .split_once("wait until ")
        .filter(|(_, rest)| rest.ends_with("` ends") || rest.ends_with("` end"));
    if let Some((_, rest)) = ends {
        let all: Vec<Remedy> = quoted(rest)
            .into_iter()
            .map(|name| Remedy::End("end of one there", name.strip_prefix("default/").unwrap().to_owned()))
            .collect();
        return Some(if all.len() > 1 { Remedy::All("end of several there", all) } else { all[0].clone() });
    }
    PLAIN.iter().find(|plain| text.contains(**plain)).map(|plain| Remedy::Plain(plain))
}

/// The number that follows this text.
fn number_after(text: &str, words: &str) -> Option<i64> {
    text.split_once(words).map(|(_, rest)| number(rest))
}

/// Parses a change that is enough by itself.
fn parse_sole_remedy(part: &str, steps: &[Suggestion]) -> Remedy {
    if let Some(raise) = part.split_once(" (enough by itself").and_then(|(change, _)| parse_raise(change)) {
        return raise;
    }
    if let Some(above) = number_after(part, "a priority above ") {
        return Remedy::Priority("priority alone", above);
    }
    if let Some(to) = number_after(part, "raise the nominal quota to ") {
        let Remedy::RaiseQuota(_, quotas) = &steps[0].remedy else { panic!("of which quota: {part}") };
        return Remedy::RaiseQuota(
            "raise for the fewest",
            vec![(quotas[0].0.clone(), quotas[0].1.clone(), to)],
        );
    }
    if part.contains("wait until workloads that use ") {
        return Remedy::EndAll;
    }
    if part.contains("wait until workload ") {
        Remedy::End("end of one", job_name(part))
    } else {
        Remedy::Delete(job_name(part))
    }
}

/// Parses the named rival of a condition, and the number of rivals.
fn parse_rivals(part: &str) -> (String, usize) {
    let more = part.split_once(" and ").map_or(0, |(_, rest)| usize::try_from(number(rest)).unwrap());
    (job_name(part), more + 1)
}

/// Parses all suggestions of a help text.
pub(super) fn parse_suggestions(help: &str) -> Vec<Suggestion> {
    let plain = |remedy| Suggestion { remedy, rivals: None, unless_above: None };
    // `complete`: every part of the text was parsed as a step, so that all steps together must start the
    // workload.
    let (mut steps, mut found, mut complete) = (Vec::<Suggestion>::new(), Vec::new(), true);
    for part in
        help.split("; ").filter(|part| !part.is_empty() && *part != "no single change is known to start it")
    {
        let part = part.trim_start_matches("first: ");
        if part.contains("(enough by itself") {
            found.push(plain(parse_sole_remedy(part, &steps)));
        } else if part.contains("may take it first") {
            let Some(last) = steps.last_mut() else { continue };
            (last.rivals, last.unless_above) = (
                Some(parse_rivals(part)),
                number_after(part, "unless this job is submitted again with a priority above "),
            );
        } else if let Some(above) = number_after(part, "submit the job again with a priority above ") {
            let Some(Remedy::RaiseQuota(_, quotas)) = steps.last().map(|step| step.remedy.clone()) else {
                panic!("of which quota: {part}")
            };
            let quota = (
                quotas[0].0.clone(),
                quotas[0].1.clone(),
                number_after(part, "raise the quota to ").unwrap(),
            );
            found.push(plain(Remedy::All(
                "raise and priority",
                vec![Remedy::Priority("", above), Remedy::RaiseQuota("raise", vec![quota])],
            )));
        } else if part.contains("what comes next depends") {
            complete = false;
            found
                .extend(parse_cluster_remedy(help).map(|remedy| plain(Remedy::CreateMissing(remedy.kind()))));
        } else if part.contains(", and that of ") || part.ends_with(" before it") {
            complete = false;
        } else if let (Some(Remedy::RaiseQuota("raise" | "raise several", _)), true, 0) =
            (parse_raise(part), part.starts_with("wait until workloads that use "), steps.len())
        {
            found.push(plain(Remedy::EndAll));
            steps.extend(parse_raise(part).map(plain));
        } else if let Some(remedy) = parse_raise(part).or_else(|| parse_cluster_remedy(part)) {
            steps.push(plain(remedy));
        } else if part.contains(" starts, or delete it") && help.contains("no single change") {
            steps.push(plain(Remedy::Delete(job_name(part))));
        } else {
            complete = false;
        }
    }
    // A suggested priority, or the suggested ends, are needed in addition to all other steps.
    found.retain(|suggestion| {
        steps.len() < 2 || !matches!(suggestion.remedy, Remedy::All("raise and priority", _) | Remedy::EndAll)
    });
    match steps.as_slice() {
        _ if !complete => {}
        [] => {}
        [one] => found.push(one.clone()),
        many => found.push(Suggestion {
            remedy: Remedy::All(
                if matches!(many[0].remedy, Remedy::RaiseQuota(..)) {
                    "quota and capacity"
                } else {
                    "several steps"
                },
                many.iter().map(|step| step.remedy.clone()).collect(),
            ),
            rivals: many.iter().find_map(|step| step.rivals.clone()),
            unless_above: None,
        }),
    }
    found
}
