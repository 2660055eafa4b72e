//! Reads the flags of `plan` into settings.

use crate::args::{PlanArgs, QuotaCheck};
use crate::error::Error;
use jiff::Timestamp;
use meridian_objects::{ResourceRules, suggest};
use meridian_planning::load::LoadOptions;
use meridian_queueing::settings::{FairSharing, FairStrategy, Gates, Settings};
use std::path::Path;

const STRATEGIES: [(&str, FairStrategy); 2] = [
    ("LessThanOrEqualToFinalShare", FairStrategy::LessThanOrEqualToFinalShare),
    ("LessThanInitialShare", FairStrategy::LessThanInitialShare),
];

/// Fails if a value is malformed, or if the file of `--resources` can't be read. `clock` is the current time.
pub(super) fn read(args: &PlanArgs, clock: Timestamp) -> Result<LoadOptions, Error> {
    let mut options = LoadOptions::default();
    let mut settings = Settings {
        ignore_undeclared: args.quota_check_strategy == QuotaCheck::IgnoreUndeclared,
        ..Settings::default()
    };
    for gate in args.feature_gates.iter().map(|gate| gate.trim()).filter(|gate| !gate.is_empty()) {
        set_gate(&mut settings.gates, &mut options, gate)?;
    }
    settings.fair_sharing = args.fair_sharing.as_deref().map(fair_sharing).transpose()?;
    let history = args.admission_fair_sharing.as_deref().map(str::parse).transpose();
    settings.admission_fair_sharing =
        history.map_err(|problem: String| usage("--admission-fair-sharing", problem))?;
    let now = match &args.now {
        None => clock,
        Some(text) => text.parse().map_err(|_| {
            usage("--now", format!("`{text}` is not a time; write it as `2026-06-01T12:00:00Z`"))
        })?,
    };
    if let Some(path) = &args.resources {
        options.resources = resources(path)?;
    }
    (options.settings, options.now) = (settings, now.as_millisecond());
    Ok(options)
}

/// Reads the `resources` section of Kueue's configuration: the whole configuration, or the section alone.
fn resources(path: &Path) -> Result<ResourceRules, Error> {
    let failed = |problem: String| usage("--resources", format!("{}: {problem}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let config: serde_json::Value = meridian_objects::settings::read(&text)
        .map_err(|error| usage("--resources", format!("{}:{error}", path.display())))?;
    ResourceRules::from_json(config.get("resources").unwrap_or(&config)).map_err(failed)
}

fn usage(flag: &str, problem: impl std::fmt::Display) -> Error {
    Error::Usage(format!("`{flag}`: {problem}"))
}

/// Suggests the known name that is most similar, or lists all of them.
fn suggestion<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
    let known: Vec<&str> = known.collect();
    match suggest::nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("valid names are {}", known.join(", ")),
    }
}

fn set_gate(gates: &mut Gates, options: &mut LoadOptions, text: &str) -> Result<(), Error> {
    const FLAG: &str = "--feature-gates";
    let Some((name, value)) = text.split_once('=') else {
        return Err(usage(FLAG, format!("`{text}` has no value; write `{text}=true` or `{text}=false`")));
    };
    let on = match value {
        "true" => true,
        "false" => false,
        _ => {
            return Err(usage(
                FLAG,
                format!("the value `{value}` of `{name}` is neither `true` nor `false`"),
            ));
        }
    };
    match name {
        "PriorityBoost" => options.priority_boost = on,
        "ReclaimablePods" => options.reclaimable_pods = on,
        _ if gates.set(name, on) => {}
        _ => {
            let known = Gates::names().chain(["PriorityBoost", "ReclaimablePods"]);
            return Err(usage(FLAG, format!("unknown feature gate `{name}`; {}", suggestion(name, known))));
        }
    }
    Ok(())
}

fn fair_sharing(text: &str) -> Result<FairSharing, Error> {
    const FLAG: &str = "--fair-sharing";
    if text.is_empty() {
        return Ok(FairSharing::default());
    }
    let mut strategies = Vec::new();
    for name in text.split(',').map(str::trim) {
        let names = STRATEGIES.iter().map(|(name, _)| *name);
        let Some((_, strategy)) = STRATEGIES.iter().find(|(known, _)| *known == name) else {
            return Err(usage(FLAG, format!("`{name}` is not a strategy; {}", suggestion(name, names))));
        };
        if strategies.contains(strategy) {
            return Err(usage(FLAG, format!("`{name}` is listed twice")));
        }
        strategies.push(*strategy);
    }
    Ok(FairSharing { strategies })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_line(change: impl FnOnce(&mut PlanArgs)) -> Result<LoadOptions, String> {
        let mut args = PlanArgs::default();
        change(&mut args);
        read(&args, Timestamp::UNIX_EPOCH).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_become_settings() {
        let options = read_line(|args| {
            args.feature_gates = vec![
                "PartialAdmission=false".into(),
                "TASBalancedPlacement=true".into(),
                "PriorityBoost=true".into(),
            ];
            args.fair_sharing = Some("LessThanInitialShare".into());
            args.admission_fair_sharing =
                Some("half-life=168h,sampling=90s,weight.nvidia.com/gpu=2.5".into());
            args.now = Some("1970-01-01T00:00:01Z".into());
            args.quota_check_strategy = QuotaCheck::IgnoreUndeclared;
        })
        .unwrap();
        let LoadOptions { settings, now, priority_boost, reclaimable_pods, .. } = options;
        assert!(priority_boost && reclaimable_pods);
        assert!(
            !settings.gates.partial_admission
                && settings.gates.topology_balanced
                && settings.ignore_undeclared
        );
        assert_eq!(settings.fair_sharing.unwrap().strategies, [FairStrategy::LessThanInitialShare]);
        let afs = settings.admission_fair_sharing.unwrap();
        assert_eq!((afs.half_life_ms, afs.sampling_ms), (604_800_000, 90_000));
        assert_eq!(afs.resource_weights, [("nvidia.com/gpu".to_owned(), 2_500_000_000)]);
        assert_eq!(now, 1_000);
        let usual = read_line(|args| args.fair_sharing = Some(String::new())).unwrap();
        assert_eq!(usual.settings.fair_sharing, Some(FairSharing::default()));
    }

    #[test]
    fn an_error_says_what_to_write() {
        let gate = |text: &str| read_line(|args| args.feature_gates = vec![text.to_owned()]).unwrap_err();
        assert_eq!(
            gate("PartialAdmision=true"),
            "`--feature-gates`: unknown feature gate `PartialAdmision`; did you mean `PartialAdmission`?"
        );
        assert!(
            gate("Nonsense=true").contains("valid names are PrioritySortingWithinCohort, FlavorFungibility,"),
            "{}",
            gate("Nonsense=true")
        );
        assert_eq!(
            gate("PartialAdmission"),
            "`--feature-gates`: `PartialAdmission` has no value; write `PartialAdmission=true` or \
             `PartialAdmission=false`"
        );
        assert_eq!(
            gate("PartialAdmission=on"),
            "`--feature-gates`: the value `on` of `PartialAdmission` is neither `true` nor `false`"
        );
        let fair = |text: &str| read_line(|args| args.fair_sharing = Some(text.to_owned())).unwrap_err();
        assert_eq!(
            fair("LessThanInitalShare"),
            "`--fair-sharing`: `LessThanInitalShare` is not a strategy; did you mean `LessThanInitialShare`?"
        );
        assert!(
            fair("LessThanInitialShare,LessThanInitialShare")
                .ends_with("`LessThanInitialShare` is listed twice")
        );
        let history =
            |text: &str| read_line(|args| args.admission_fair_sharing = Some(text.to_owned())).unwrap_err();
        assert_eq!(
            history("sampling=5m"),
            "`--admission-fair-sharing`: `half-life` is missing; write `half-life=168h`"
        );
        assert!(history("half-life=soon").contains("`soon` of `half-life` is not a time"));
        assert!(history("half-live=1h").ends_with("did you mean `half-life`?"));
        assert!(history("half-life=1h,weight.cpu=much").contains("is not a weight"));
        assert!(
            history("half-life=1h,sampling=0s")
                .ends_with("`0s` of `sampling` never passes; write it as `5m`")
        );
        assert_eq!(
            read_line(|args| args.now = Some("noon".into())).unwrap_err(),
            "`--now`: `noon` is not a time; write it as `2026-06-01T12:00:00Z`"
        );
    }
}
