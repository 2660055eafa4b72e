//! Carries out the actions of orders at the API server.

use super::manifest::{self, Objects};
use crate::error::words;
use crate::hub;
use crate::labels::{self, OFFER};
use crate::objects::{Answer, create, delete, in_time};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client};
use meridian_kubernetes::connection::ANSWER_WITHIN;
use meridian_shared::ids::OfferId;

/// Number of objects in one page of a list.
const PAGE: u32 = 500;

/// Performs actions at one API server.
#[derive(Clone)]
pub(super) struct Performer {
    client: Client,
    requests: ApiResource,
    /// The cluster's name at the manager.
    cluster: String,
}

impl Performer {
    pub(super) fn new(client: Client, requests: ApiResource, cluster: String) -> Self {
        Self { client, requests, cluster }
    }

    /// Creates the templates and the request. One that exists already was made by an earlier attempt.
    pub(super) async fn create(&self, namespace: &str, objects: &Objects) -> Answer {
        in_time(async {
            let templates = self.templates(namespace);
            for template in &objects.templates {
                match create(&templates, template).await {
                    Answer::Done => {}
                    other => return other,
                }
            }
            create(&self.requests(namespace), &objects.request).await
        })
        .await
    }

    /// Deletes a request and its templates. Absent ones count as deleted.
    pub(super) async fn delete(&self, namespace: &str, request: &str, templates: &[String]) -> Answer {
        in_time(async {
            match delete(&self.requests(namespace), request).await {
                Answer::Done => {}
                other => return other,
            }
            for template in templates {
                match delete(&self.templates(namespace), template).await {
                    Answer::Done => {}
                    other => return other,
                }
            }
            Answer::Done
        })
        .await
    }

    /// Deletes one template.
    pub(super) async fn delete_template(&self, namespace: &str, name: &str) -> Answer {
        in_time(delete(&self.templates(namespace), name)).await
    }

    /// The templates that agents made, by namespace and name, with the offer of each.
    pub(super) async fn list_templates(&self) -> Result<Vec<(String, String, Option<OfferId>)>, String> {
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &templates());
        let mut params = ListParams::default().labels(&labels::all(&self.cluster)).limit(PAGE);
        let mut found = Vec::new();
        loop {
            let page = match tokio::time::timeout(ANSWER_WITHIN, all.list(&params)).await {
                Ok(Ok(page)) => page,
                Ok(Err(error)) => return Err(words(&error)),
                Err(_) => return Err("the API server gave no answer in time".to_owned()),
            };
            found.extend(page.items.into_iter().filter_map(|template| {
                let offer = template.metadata.labels.as_ref().and_then(|all| all.get(OFFER)?.parse().ok());
                Some((template.metadata.namespace?, template.metadata.name?, offer))
            }));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    fn requests(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &self.requests)
    }

    fn templates(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &templates())
    }
}

/// The names of the templates of a request.
pub(super) fn template_names(request: &str, shapes: usize) -> Vec<String> {
    (0..shapes).map(|shape| manifest::template_name(request, shape)).collect()
}

fn templates() -> ApiResource {
    hub::resource("", "v1", "PodTemplate", "podtemplates")
}
