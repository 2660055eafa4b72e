//! The one port. Connections are accepted at once, and TLS handshakes run in separate tasks, bounded in
//! number and time, so that a slow or hostile peer never blocks the next one. Finished streams carry their
//! [`Peer`], and other code can cut them.
//!
//! Works with [`super::serve()`] and, as an [`axum::serve::Listener`], with `axum::serve`.

use super::limits::{Deadlines, Limits};
use super::peer::{self, Connections, Peer, Registered};
use super::shares::{Address, ConnectionClass, Shares};
use crate::locks;
use crate::log_limit::LogLimit;
use crate::metrics::ConnectionMetrics;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, RwLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::AbortOnDropHandle;

/// Finished streams that wait to be accepted.
const READY_MAX: usize = 64;
/// Pause after the system refuses a connection, for example because no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The TLS settings of the next handshake. Clones share them.
#[derive(Clone, Debug)]
pub struct Settings(Arc<RwLock<Arc<rustls::ServerConfig>>>);

impl Settings {
    pub fn new(config: Arc<rustls::ServerConfig>) -> Self {
        Self(Arc::new(RwLock::new(config)))
    }

    /// Makes later handshakes use `config`. Open connections stay as they are.
    pub fn swap(&self, config: Arc<rustls::ServerConfig>) {
        *locks::write(&self.0) = config;
    }

    fn current(&self) -> Arc<rustls::ServerConfig> {
        locks::read(&self.0).clone()
    }
}

/// Accepts TLS connections. Dropping it closes the port.
#[derive(Debug)]
pub struct TlsListener {
    addr: SocketAddr,
    ready: mpsc::Receiver<Stream>,
    connections: Connections,
    deadlines: Deadlines,
    _acceptor: AbortOnDropHandle<()>,
}

impl TlsListener {
    /// Starts to accept on `tcp`. Must be called in a tokio runtime. Fails if the socket has no address.
    pub fn start(
        tcp: TcpListener,
        settings: Settings,
        limits: Limits,
        metrics: ConnectionMetrics,
    ) -> io::Result<Self> {
        let addr = tcp.local_addr()?;
        let (sender, ready) = mpsc::channel(READY_MAX);
        let connections = Connections::default();
        let acceptor = Acceptor {
            settings,
            connections: connections.clone(),
            shares: Shares::new(&limits, metrics),
            failures: Arc::default(),
            timeout: limits.deadlines.handshake,
            ready: sender,
        };
        let acceptor = AbortOnDropHandle::new(tokio::spawn(acceptor.run(tcp)));
        Ok(Self { addr, ready, connections, deadlines: limits.deadlines, _acceptor: acceptor })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn connections(&self) -> Connections {
        self.connections.clone()
    }

    pub(super) fn deadlines(&self) -> Deadlines {
        self.deadlines
    }

    /// The next stream with a finished handshake.
    pub async fn next(&mut self) -> Stream {
        match self.ready.recv().await {
            Some(stream) => stream,
            // the acceptor lives as long as this listener; it is gone only if the whole runtime shuts down
            None => std::future::pending().await,
        }
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = Stream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Stream, SocketAddr) {
        let stream = self.next().await;
        let addr = stream.peer.addr;
        (stream, addr)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }
}

impl axum::extract::connect_info::Connected<axum::serve::IncomingStream<'_, TlsListener>> for Peer {
    fn connect_info(stream: axum::serve::IncomingStream<'_, TlsListener>) -> Self {
        stream.io().peer.clone()
    }
}

#[derive(Clone)]
struct Acceptor {
    settings: Settings,
    connections: Connections,
    shares: Arc<Shares>,
    /// Addresses of failed handshakes that were logged.
    failures: Arc<LogLimit<IpAddr>>,
    /// Longest time from a connection to its finished handshake.
    timeout: Duration,
    ready: mpsc::Sender<Stream>,
}

impl Acceptor {
    /// Accepts without waiting for anything else, because an agent's connection may wait in the kernel's
    /// queue behind connections that never send.
    async fn run(self, tcp: TcpListener) {
        loop {
            let (socket, addr) = match tcp.accept().await {
                Ok(accepted) => accepted,
                Err(e) if is_peers_fault(&e) => continue,
                Err(error) => {
                    self.shares.refused("system");
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let cut = CancellationToken::new();
            let handshake = self.shares.begin_handshake(Address::of(addr.ip()), cut.clone());
            let acceptor = self.clone();
            tokio::spawn(async move {
                tokio::select! {
                    // cut, because a later handshake needs the place
                    () = cut.cancelled() => {}
                    stream = acceptor.handshake(socket, addr) => {
                        drop(handshake);
                        if let Some(stream) = stream {
                            // fails only if the listener was dropped, and then the stream isn't needed
                            let _ = acceptor.ready.send(stream).await;
                        }
                    }
                }
            });
        }
    }

    async fn handshake(&self, socket: TcpStream, addr: SocketAddr) -> Option<Stream> {
        // without Nagle's algorithm, so that small requests don't wait for the acknowledgement of earlier
        // ones
        let _ = socket.set_nodelay(true);
        let acceptor = TlsAcceptor::from(self.settings.current());
        match tokio::time::timeout(self.timeout, acceptor.accept(socket)).await {
            Ok(Ok(tls)) => Some(Stream::new(tls, addr, &self.connections, &self.shares)),
            Ok(Err(error)) => {
                // Log only peers that sent a bad answer, such as a wrong certificate. Load balancers' probes
                // only connect.
                let is_answer = error.kind() == io::ErrorKind::InvalidData;
                match is_answer.then(|| self.failures.permit(addr.ip(), Instant::now())).flatten() {
                    Some(left_out) => tracing::info!(%addr, %error, left_out, "a TLS handshake failed"),
                    None => tracing::debug!(%addr, %error, "a TLS handshake failed"),
                }
                None
            }
            Err(_) => {
                self.shares.refused("handshake_timeout");
                tracing::debug!(%addr, "a TLS handshake took too long");
                None
            }
        }
    }
}

fn is_peers_fault(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// A TLS connection with a known peer. Reads and writes fail as soon as the connection is cut.
#[derive(Debug)]
pub struct Stream {
    tls: TlsStream<TcpStream>,
    peer: Peer,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    registered: Registered,
    class: ConnectionClass,
}

impl Stream {
    fn new(
        tls: TlsStream<TcpStream>,
        addr: SocketAddr,
        connections: &Connections,
        shares: &Arc<Shares>,
    ) -> Self {
        let agent = tls
            .get_ref()
            .1
            .peer_certificates()
            .and_then(|chain| chain.first())
            .and_then(peer::agent_identity);
        let registered = connections.register(agent.clone());
        let cluster = agent.as_ref().map(|agent| &agent.cluster);
        let class = shares.classify(Address::of(addr.ip()), cluster, registered.cut.clone());
        let cut = Box::pin(registered.cut.clone().cancelled_owned());
        Self { tls, peer: Peer { addr, agent }, cut, registered, class }
    }

    pub(super) fn class(&self) -> ConnectionClass {
        self.class.clone()
    }

    /// Cancelled when the connection is cut.
    pub(super) fn cut(&self) -> CancellationToken {
        self.registered.cut.clone()
    }

    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether HTTP/2 was negotiated.
    pub fn is_http2(&self) -> bool {
        self.tls.get_ref().1.alpn_protocol() == Some(b"h2")
    }

    fn refuse_if_cut(&self) -> io::Result<()> {
        match self.registered.cut.is_cancelled() {
            true => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was cut")),
            false => Ok(()),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.refuse_if_cut()?;
        // poll the cut too, so that it wakes a connection that waits for its peer
        if self.cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(self.refuse_if_cut());
        }
        Pin::new(&mut self.tls).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.refuse_if_cut()?;
        Pin::new(&mut self.tls).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.refuse_if_cut()?;
        Pin::new(&mut self.tls).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(cx)
    }
}
