//! The exporter of spans: OTLP over HTTP, protobuf.
//!
//! The SDK's batch processor blocks on its own thread, while the HTTP client needs a tokio runtime. So the
//! exporter has a small runtime of its own, so that the last flush works on any thread, inside another
//! runtime or outside.

use crate::Error;
use crate::trace::ChosenIds;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};

/// Longest wait for the collector, for one batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for the last batches when the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Path of OTLP over HTTP for spans.
const PATH: &str = "/v1/traces";

#[derive(Debug)]
pub(crate) struct Exporter {
    provider: SdkTracerProvider,
    runtime: Option<Runtime>,
}

impl Exporter {
    /// Exports to `endpoint`, the collector's address without a path. Spans wait in the SDK's bounded queue
    /// (2,048) and are dropped when it is full. Fails when the endpoint or the client can't be used.
    pub(crate) fn start(endpoint: &str, service_name: &str) -> Result<Self, Error> {
        let failed = |reason: String| Error::Exporter { endpoint: endpoint.to_owned(), reason };
        check_endpoint(endpoint).map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("otlp")
            .enable_all()
            .build()
            .map_err(|e| failed(e.to_string()))?;
        let client = client(endpoint).map_err(|e| failed(e.to_string()))?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(OnRuntime { client, runtime: runtime.handle().clone() })
            .with_endpoint(format!("{}{PATH}", endpoint.trim_end_matches('/')))
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(|e| failed(e.to_string()))?;
        let provider = SdkTracerProvider::builder()
            .with_id_generator(ChosenIds::default())
            .with_resource(Resource::builder().with_service_name(service_name.to_owned()).build())
            .with_batch_exporter(exporter)
            .build();
        opentelemetry::global::set_tracer_provider(provider.clone());
        Ok(Self { provider, runtime: Some(runtime) })
    }

    pub(crate) fn tracer(&self) -> SdkTracer {
        self.provider.tracer("meridian")
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        if let Err(error) = self.provider.shutdown_with_timeout(FLUSH_TIMEOUT) {
            tracing::warn!(%error, "some traces were not exported");
        }
        if let Some(runtime) = self.runtime.take() {
            // In the background, because waiting would panic if the guard is dropped inside another runtime.
            runtime.shutdown_background();
        }
    }
}

/// Checks that spans can be sent to `endpoint`, because otherwise a mistake would show only when the first
/// batch is dropped. Fails with a message and a remedy.
pub fn check_endpoint(endpoint: &str) -> Result<(), String> {
    let remedy = "write the collector's address, such as `http://127.0.0.1:4318`";
    let url = reqwest::Url::parse(endpoint)
        .map_err(|error| format!("`{endpoint}` is not an address: {error}; {remedy}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("`{endpoint}` is neither `http` nor `https`: {remedy}"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("`{endpoint}` has more than an address and a path: {remedy}"));
    }
    Ok(())
}

/// A client for the endpoint. Without TLS it needs no certificates, so that a machine without a certificate
/// store can reach a collector.
fn client(endpoint: &str) -> Result<reqwest::Client, String> {
    let builder = reqwest::Client::builder().timeout(EXPORT_TIMEOUT).no_proxy();
    let builder = if endpoint.starts_with("http://") {
        let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?;
        builder.tls_backend_preconfigured(
            config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth(),
        )
    } else {
        // Reading the system's certificates needs the process-wide provider. An error only means that the
        // provider is already installed.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        builder
    };
    builder.build().map_err(|e| e.to_string())
}

/// Runs each request on the exporter's runtime.
#[derive(Debug)]
struct OnRuntime {
    client: reqwest::Client,
    runtime: Handle,
}

impl HttpClient for OnRuntime {
    fn send_bytes<'a, 'f>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        'a: 'f,
        Self: 'f,
    {
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move { client.send_bytes(request).await });
        Box::pin(async move { sent.await? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Interval, SpanOutcome, record_submission};
    use meridian_shared::ids::Uid;
    use meridian_shared::time::Wall;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;

    /// Takes one HTTP/1.1 request, answers 200, and returns the request line and the body.
    fn collect_one(listener: &TcpListener) -> (String, Vec<u8>) {
        let (mut socket, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(socket.try_clone().unwrap());
        let mut first = String::new();
        reader.read_line(&mut first).unwrap();
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            match line.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().unwrap()
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
        (first, body)
    }

    #[test]
    fn dropping_the_exporter_flushes_inside_a_runtime() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}/", listener.local_addr().unwrap());
        let collector = std::thread::spawn(move || collect_one(&listener));
        let uid = Uid(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        let busy = tokio::runtime::Builder::new_current_thread().build().unwrap();
        busy.block_on(async {
            let exporter = Exporter::start(&endpoint, "meridian-test").unwrap();
            record_submission(uid, Interval { from: Wall(1), to: Wall(2) }, SpanOutcome::Good);
            drop(exporter);
        });
        let (first, body) = collector.join().unwrap();
        assert!(first.starts_with("POST /v1/traces "), "{first}");
        assert!(body.windows(16).any(|w| w == uid.0.to_be_bytes()), "the trace id is the uid");
        assert!(body.windows(13).any(|w| w == b"meridian-test"));
    }
}
