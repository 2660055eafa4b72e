//! Parsers of single values, with the message that clap prints.

use super::{Format, Output, ResourceRequest};
use crate::client::JobName;
use crate::output::template::Template;
use clap_complete::CompletionCandidate;
use jiff::SignedDuration;
use meridian_objects::Kind;

/// The formats that are one word.
const FORMATS: [(&str, Format); 5] = [
    ("json", Format::Json),
    ("yaml", Format::Yaml),
    ("wide", Format::Wide),
    ("name", Format::Name),
    ("text", Format::Text),
];

/// The value of `--output`.
pub(super) fn output(text: &str) -> Result<Output, String> {
    if let Some((_, format)) = FORMATS.iter().find(|(word, _)| *word == text) {
        return Ok(Output { format: *format, template: None });
    }
    let (name, template) = text.split_once('=').unwrap_or((text, ""));
    let template = match name {
        "jsonpath" | "custom-columns" if template.is_empty() => {
            return Err(format!("write the template after it: {name}=…"));
        }
        "jsonpath" => Template::jsonpath(template)?,
        "custom-columns" => Template::custom_columns(template)?,
        "jsonpath-file"
        | "custom-columns-file"
        | "go-template"
        | "go-template-file"
        | "template"
        | "templatefile"
        | "jsonpath-as-json" => {
            return Err("templates are jsonpath=TEMPLATE or custom-columns=NAME:PATH,..".to_owned());
        }
        _ => {
            let words = FORMATS.map(|(word, _)| word).join(", ");
            return Err(format!("the formats are {words}, jsonpath=TEMPLATE, custom-columns=NAME:PATH,.."));
        }
    };
    Ok(Output { format: Format::Json, template: Some(template) })
}

pub(super) fn output_candidates() -> Vec<CompletionCandidate> {
    let words = FORMATS.iter().map(|(word, _)| *word).chain(["jsonpath=", "custom-columns="]);
    words.map(CompletionCandidate::new).collect()
}

/// An address that a client can ask without further settings.
pub(super) fn web_url(text: &str) -> Result<String, String> {
    let url: reqwest::Url = text.parse().map_err(|error| format!("{error}"))?;
    let is_web = ["http", "https"].contains(&url.scheme()) && url.has_host();
    if is_web { Ok(text.to_owned()) } else { Err("write `http://` or `https://` and the host".to_owned()) }
}

/// An amount of a resource, such as `cpu=100m`.
pub(super) fn resource_request(text: &str) -> Result<ResourceRequest, String> {
    match text.split_once('=') {
        Some((resource, amount)) if !resource.is_empty() && !amount.is_empty() => {
            Ok(ResourceRequest { resource: resource.to_owned(), amount: amount.to_owned() })
        }
        _ => Err("write NAME=AMOUNT, such as cpu=100m".to_owned()),
    }
}

/// A name that is safe in a URL. The manager checks Kubernetes' stricter rules.
pub(super) fn object_name(text: &str) -> Result<String, String> {
    let is_safe = !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
        && !matches!(text, "." | "..");
    if is_safe { Ok(text.to_owned()) } else { Err("a name has letters, digits, `-` and `.`".to_owned()) }
}

/// A job's name, with or without its kind in front.
pub(super) fn job_name(text: &str) -> Result<JobName, String> {
    let Some((word, name)) = text.split_once('/') else {
        return Ok(JobName::new(None, &object_name(text)?));
    };
    match Kind::from_word(word).filter(|kind| kind.is_job() || *kind == Kind::Workload) {
        Some(kind) => Ok(JobName::new(Some(kind), &object_name(name)?)),
        None => Err(format!("`{word}` is neither a job nor a workload: write NAME or job/NAME")),
    }
}

/// A duration of at least a second.
pub(super) fn positive_duration(text: &str) -> Result<SignedDuration, String> {
    let duration: Result<SignedDuration, _> = text.parse();
    duration
        .ok()
        .filter(|duration| duration.as_secs() > 0)
        .ok_or_else(|| "write a duration of at least 1s, such as 90s, 15m or 2h".to_owned())
}

/// How much faster than real time a simulation runs.
pub(super) fn speed(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().map_err(|_| "not a number".to_owned())?;
    if number > 0.0 && number <= meridian_agent::SPEED_MAX {
        Ok(number)
    } else {
        Err(format!("must be above 0 and at most {}", meridian_agent::SPEED_MAX))
    }
}

/// The demo's speed: below 10 its jobs outlive their time limits, above 30 its races may be over before the
/// demo has seen what each region answered.
pub(super) fn demo_speed(text: &str) -> Result<f64, String> {
    let number = speed(text)?;
    if (10.0..=30.0).contains(&number) { Ok(number) } else { Err("must be from 10 to 30".to_owned()) }
}
