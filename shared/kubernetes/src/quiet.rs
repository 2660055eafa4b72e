//! Requests about objects whose content must not get into a log, such as Secrets.
//!
//! The client's usual calls log the whole answer if it can't be parsed. These calls take the answer as text
//! and drop it.

use kube::Client;
use kube::api::{ApiResource, DynamicObject, GetParams, PostParams};
use kube::core::Request;
use kube::core::Resource as _;
use serde_json::Value;

/// The objects of one resource and namespace.
#[derive(Clone)]
pub struct QuietApi {
    client: Client,
    request: Request,
}

impl QuietApi {
    pub fn new(client: Client, resource: &ApiResource, namespace: &str) -> Self {
        Self { client, request: Request::new(DynamicObject::url_path(resource, Some(namespace))) }
    }

    /// Reads an object with its content.
    pub async fn get(&self, name: &str) -> kube::Result<Value> {
        let request = self.request.get(name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
        let text = self.client.request_text(request).await?;
        // The parser's error has a position, but no part of the text.
        serde_json::from_str(&text).map_err(kube::Error::SerdeError)
    }

    pub async fn create(&self, object: &Value, writer: &str) -> kube::Result<()> {
        let request = self.request.create(&params(writer), object.to_string().into_bytes());
        let request = request.map_err(kube::Error::BuildRequest)?;
        self.client.request_text(request).await.map(drop)
    }

    /// Replaces an object, if it still has the version that `object` names.
    pub async fn replace(&self, name: &str, object: &Value, writer: &str) -> kube::Result<()> {
        let request = self.request.replace(name, &params(writer), object.to_string().into_bytes());
        let request = request.map_err(kube::Error::BuildRequest)?;
        self.client.request_text(request).await.map(drop)
    }
}

impl std::fmt::Debug for QuietApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuietApi").field("path", &self.request.url_path).finish_non_exhaustive()
    }
}

fn params(writer: &str) -> PostParams {
    PostParams { field_manager: Some(writer.to_owned()), ..PostParams::default() }
}
