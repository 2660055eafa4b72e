//! The socket of the one port, and the reasons why it can't be opened.

use anyhow::Context as _;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that the kernel keeps until they are accepted. The system may permit fewer (`somaxconn`).
const ACCEPT_QUEUE_MAX: u32 = 4_096;
/// State of a listening socket in `/proc/net/tcp`.
const LISTENS: &str = "0A";

/// A socket that listens at `address`, like [`TcpListener::bind`], but with a longer queue. The error names
/// the cause.
pub(super) fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    listen(address).with_context(|| format!("cannot listen at `{address}`")).map_err(|error| {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        match kind.and_then(|kind| remedy(address, kind)) {
            Some(remedy) => anyhow::anyhow!("{error:#}: {remedy}"),
            None => error,
        }
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(ACCEPT_QUEUE_MAX)
}

fn remedy(address: SocketAddr, kind: io::ErrorKind) -> Option<String> {
    match kind {
        io::ErrorKind::AddrInUse => {
            let holder = holder(address.port()).unwrap_or_else(|| "another process".to_owned());
            Some(format!("{holder} listens there; stop it, or choose another address with `--listen`"))
        }
        io::ErrorKind::AddrNotAvailable => Some(
            "no interface of this machine has this address; choose another one with `--listen`".to_owned(),
        ),
        io::ErrorKind::PermissionDenied => Some(
            "ports below 1024 need the capability CAP_NET_BIND_SERVICE; choose another one with `--listen`"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The process that listens on a port, with its number and name. Unknown for processes of other users.
fn holder(port: u16) -> Option<String> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let sockets: Vec<String> = tables
        .iter()
        .flat_map(|table| table.lines().skip(1))
        .filter_map(|line| inode(line, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let has_socket = |process: &Path| {
        let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| std::fs::read_link(file.path()).ok())
            .any(|link| link.to_str().is_some_and(|link| sockets.iter().any(|socket| socket == link)))
    };
    let processes = std::fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path());
    let process = processes
        .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_number))
        .find(|path| has_socket(path))?;
    let name = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
    Some(format!("process {} (`{}`)", process.file_name()?.to_str()?, name.trim()))
}

fn is_number(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit())
}

/// The inode of a line's socket, if it listens on the port.
fn inode(line: &str, port: u16) -> Option<&str> {
    let mut fields = line.split_whitespace();
    let (_, local) = fields.nth(1)?.rsplit_once(':')?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?;
    (state == LISTENS && u16::from_str_radix(local, 16) == Ok(port)).then_some(inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_names_its_process() {
        let taken = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = taken.local_addr().unwrap();
        let error = format!("{:#}", bind(address).unwrap_err());
        assert!(error.starts_with(&format!("cannot listen at `{address}`: ")), "{error}");
        let process = format!("process {} (`", std::process::id());
        assert!(error.contains(&process) && error.ends_with("`--listen`"), "{error}");
        let elsewhere = format!("{:#}", bind("192.0.2.1:9".parse().unwrap()).unwrap_err());
        assert!(elsewhere.contains("no interface of this machine"), "{elsewhere}");
    }

    #[test]
    fn a_listening_socket_is_found_by_its_port() {
        let line =
            "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 4242 1";
        assert_eq!(inode(line, 8080), Some("4242"));
        assert_eq!((inode(line, 8081), inode(&line.replace(" 0A ", " 01 "), 8080)), (None, None));
    }
}
