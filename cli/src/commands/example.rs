//! `example`: the embedded manifests.

use crate::args::{ExampleArgs, Format};
use crate::client::{ApplyOptions, Client};
use crate::error::Error;
use crate::examples::{self, EXAMPLES, Example};
use crate::output::table::{Cell, Table};
use crate::session::Session;
use meridian_objects::parse;
use serde_json::{Value, json};

pub(super) fn run(session: &mut Session, args: &ExampleArgs) -> Result<(), Error> {
    let Some(name) = &args.name else { return list(session) };
    match examples::find(name) {
        Some(example) => session.out.raw(example.text.as_bytes()),
        None => {
            let names: Vec<&str> = EXAMPLES.iter().map(|example| example.name).collect();
            Err(Error::Usage(format!("there is no example `{name}`; there are {}", names.join(", "))))
        }
    }
}

fn list(session: &mut Session) -> Result<(), Error> {
    let documents = || {
        EXAMPLES.iter().map(|one| json!({"name": one.name, "about": one.about, "usage": one.usage})).collect()
    };
    match session.format() {
        Some(Format::Json) => return session.out.json(&Value::Array(documents())),
        Some(Format::Yaml) => return session.out.yaml(&Value::Array(documents())),
        Some(Format::Name) => return EXAMPLES.iter().try_for_each(|one| session.out.line(one.name)),
        Some(Format::Wide | Format::Text) | None => {}
    }
    let mut table = Table::new(["NAME", "USE WITH", "SHOWS"]);
    for example in &EXAMPLES {
        let usage = format!("meridian {}", example.usage);
        table.push([example.name, &usage, example.about].map(Cell::new).into());
    }
    let text = table.text(session.out.colour);
    session.out.raw(text.as_bytes())?;
    session.out.line("\n`meridian example NAME` prints one: meridian example tutorial | meridian apply -f -")
}

/// Applies an example, for one worker cluster if it is named. Fails if the manager refuses.
pub(super) async fn apply(client: &Client, example: &Example, cluster: Option<&str>) -> Result<(), Error> {
    let objects = objects(example)?;
    client.apply(&objects, ApplyOptions { cluster, ..ApplyOptions::default() }).await?;
    Ok(())
}

/// The objects of an example.
pub(super) fn objects(example: &Example) -> Result<Vec<Value>, Error> {
    let parsed = parse(example.name, example.text);
    match parsed.errors.first() {
        Some(problem) => Err(Error::Refused(problem.to_string())),
        None => Ok(parsed.objects.into_iter().map(|object| object.value.stored).collect()),
    }
}
