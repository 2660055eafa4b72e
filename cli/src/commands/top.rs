//! `top`: the load of clusters, queues and jobs; again and again on a terminal, once elsewhere.

mod page;
mod screen;

use self::page::Load;
use self::screen::Screen;
use crate::args::{Format, TopArgs, TopView};
use crate::client::{self, Client, Selection};
use crate::error::Error;
use crate::fleet::interrupts::Interrupts;
use crate::session::Session;
use meridian_objects::Kind;
use meridian_objects::job::SUBMITTED_KIND;
use serde_json::{Value, json};
use std::time::Duration;

/// Time between two refreshes.
const REFRESH: Duration = Duration::from_secs(2);

pub(super) async fn run(session: &mut Session, args: TopArgs) -> Result<(), Error> {
    let reader = LoadReader {
        client: session.client()?,
        view: args.view,
        namespace: if args.all_namespaces { None } else { Some(session.namespace()?) },
    };
    match session.format() {
        Some(Format::Json) => return session.out.json(&reader.read().await?.document()),
        Some(Format::Yaml) => return session.out.yaml(&reader.read().await?.document()),
        Some(Format::Name | Format::Wide | Format::Text) | None => {}
    }
    if session.out.answers_to_terminal && !args.once {
        return live(session, &reader).await;
    }
    let text = reader.read().await?.text(session.now(), session.out.colour);
    session.out.raw(text.as_bytes())
}

/// Shows the load until the user ends it.
async fn live(session: &mut Session, reader: &LoadReader) -> Result<(), Error> {
    let mut interrupts = Interrupts::listen()?;
    // Read before the screen is switched, so that an error stays readable.
    let mut load = reader.read().await?;
    let screen = Screen::open(&mut session.out)?;
    let mut trouble = None;
    let result = loop {
        let note = trouble.take().unwrap_or_else(|| format!("every {}s; Ctrl-C ends it", REFRESH.as_secs()));
        let text = load.text(session.now(), session.out.colour);
        if let Err(error) = screen.show(&mut session.out, &note, &text) {
            break Err(error);
        }
        tokio::select! {
            () = tokio::time::sleep(REFRESH) => {}
            () = interrupts.recv() => break Ok(()),
        }
        tokio::select! {
            read = reader.read() => match read {
                Ok(new) => load = new,
                Err(error) => trouble = Some(format!("old: {error}")),
            },
            () = interrupts.recv() => break Ok(()),
        }
    };
    screen.close(&mut session.out)?;
    result
}

struct LoadReader {
    client: Client,
    view: Option<TopView>,
    /// The namespace of the jobs; all without one.
    namespace: Option<String>,
}

impl LoadReader {
    /// Fails if a request to the manager does. Objects that the user may not list are left out, unless the
    /// user named their kind.
    async fn read(&self) -> Result<Load, Error> {
        let jobs = Selection { namespace: self.namespace.clone(), ..Selection::all(SUBMITTED_KIND) };
        let (clusters, queues, jobs) = tokio::join!(
            self.list(TopView::Clusters, Selection::all(Kind::Cluster)),
            self.list(TopView::Queues, Selection::all(Kind::ClusterQueue)),
            self.list(TopView::Jobs, jobs),
        );
        let namespaces = self.namespace.is_none();
        Ok(Load { clusters: clusters?, queues: queues?, jobs: jobs?, namespaces })
    }

    /// `None` if the view isn't shown.
    async fn list(&self, view: TopView, selection: Selection) -> Result<Option<Vec<Value>>, Error> {
        if self.view.is_some_and(|wanted| wanted != view) {
            return Ok(None);
        }
        let forbidden = |error: &client::Error| error.status().is_some_and(|status| status.code == 403);
        match self.client.list(&selection).await {
            Ok(list) => Ok(Some(list.items)),
            Err(error) if self.view.is_none() && forbidden(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Load {
    fn document(self) -> Value {
        let items: Vec<Value> =
            [self.clusters, self.queues, self.jobs].into_iter().flatten().flatten().collect();
        json!({"apiVersion": "v1", "kind": "List", "items": items})
    }
}
