//! Requests to join whose body comes slowly: they end within bounds, and delay no other join.

use super::*;
use crate::connections::tls;
use meridian_shared::identity::JOIN_PATH;
use std::time::Instant;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The time that a body has to arrive, and then to be drained, and more for a busy machine.
const BOUND: Duration = Duration::from_secs(25);

/// Begins to join, then sends a space of the body now and then, for as long as the manager lets it. Returns
/// all that the manager sent until it closed the connection. `begun` gets a message once a part was sent.
async fn trickle(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    content_length: usize,
    begun: tokio::sync::oneshot::Sender<()>,
) -> String {
    let (mut from, mut to) = tokio::io::split(stream);
    let head = format!("POST {JOIN_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {content_length}\r\n\r\n{{");
    to.write_all(head.as_bytes()).await.unwrap();
    to.flush().await.unwrap();
    begun.send(()).unwrap();
    let sending = async {
        while to.write_all(b" ").await.is_ok() && to.flush().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        std::future::pending::<()>().await;
    };
    let mut answer = Vec::new();
    tokio::select! {
        // a server that cuts doesn't always say goodbye
        _ = from.read_to_end(&mut answer) => {}
        () = sending => {}
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn slow_bodies_end_within_bounds_while_others_join() {
    let port = Port::open(Millis::secs(5)).await;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let address = port.url.strip_prefix("https://").unwrap();
    let began = Instant::now();
    let mut slow = Vec::new();
    // one that is short enough, and one of which the head says that it is too long
    for (content_length, code) in [(60_000, 408), (70_000, 413)] {
        let stream = tls(address, &port.authorities, b"").await.unwrap();
        let (begun, begins) = tokio::sync::oneshot::channel();
        slow.push((code, tokio::spawn(trickle(stream, content_length, begun))));
        tokio::time::timeout(DEADLINE, begins).await.unwrap().unwrap();
    }
    port.agent("eu", 1).await;
    assert!(!slow[0].1.is_finished(), "the join waits for none of them");
    for (code, task) in slow {
        let answer = tokio::time::timeout(DEADLINE, task).await.expect("the manager closes it").unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{answer}");
    }
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    port.close().await;
}
