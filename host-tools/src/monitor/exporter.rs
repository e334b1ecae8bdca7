//! HTTP for Prometheus: the latest sample at /metrics. Another thread makes the text, so a scrape only copies
//! it and accesses no device.

use crate::output::openmetrics::{Exposition, ExpositionForm, ScrapeTexts};
use anyhow::Context as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest request in bytes.
const LONGEST_REQUEST: usize = 8192;
/// Most headers of a request.
const HEADERS: usize = 64;
/// Time limit for one client, as a rule. Clients are served one after the other, so a slow one delays the next by no
/// more than this.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Serves the latest sample.
pub(crate) struct Exporter {
    latest: Arc<Mutex<Arc<ScrapeTexts>>>,
    address: SocketAddr,
}

impl Exporter {
    /// Listens, and answers from a separate thread until the process ends.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub(crate) fn bind(address: SocketAddr) -> anyhow::Result<Self> {
        Self::bind_with(address, TIMEOUT)
    }

    /// [`Self::bind`] with another time limit for a client.
    pub(super) fn bind_with(address: SocketAddr, limit: Duration) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
        let address = listener.local_addr().context("asking for the port")?;
        let latest = Arc::new(Mutex::new(Arc::new(Exposition::new().finish())));
        let shared = latest.clone();
        std::thread::Builder::new()
            .name("openmetrics".to_owned())
            .spawn(move || serve(&listener, &shared, limit))
            .context("starting the exporter")?;
        Ok(Self { latest, address })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the latest texts.
    pub(crate) fn publish(&self, texts: ScrapeTexts) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = texts.into();
    }
}

fn serve(listener: &TcpListener, latest: &Mutex<Arc<ScrapeTexts>>, limit: Duration) {
    for client in listener.incoming() {
        match client {
            // A client that disconnects or sends nonsense does no harm.
            Ok(mut client) => drop(answer(&mut client, latest, limit)),
            Err(error) => {
                tracing::warn!("a scrape could not be accepted: {error}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Answers one client.
fn answer(client: &mut TcpStream, latest: &Mutex<Arc<ScrapeTexts>>, limit: Duration) -> std::io::Result<()> {
    client.set_write_timeout(Some(limit))?;
    let answer = match request(client, limit)? {
        Ok(Wanted::Metrics(form)) => {
            let texts = latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
            response("200 OK", form.content_type(), texts.of(form))
        }
        Ok(Wanted::Other) => response("404 Not Found", "text/plain", "the figures are at /metrics\n"),
        Err(status) => response(status, "text/plain", "this serves GET /metrics\n"),
    };
    client.write_all(answer.as_bytes())
}

/// The path and format that a client requests.
enum Wanted {
    Metrics(ExpositionForm),
    Other,
}

/// Parses a request; the outer error is that of the socket.
fn request(client: &mut TcpStream, limit: Duration) -> std::io::Result<Result<Wanted, &'static str>> {
    let deadline = Instant::now() + limit;
    let (mut bytes, mut length) = ([0; LONGEST_REQUEST], 0);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Err("408 Request Timeout"));
        }
        if length == bytes.len() {
            return Ok(Err("431 Request Header Fields Too Large"));
        }
        client.set_read_timeout(Some(left))?;
        match client.read(&mut bytes[length..])? {
            0 => return Ok(Err("400 Bad Request")),
            more => length += more,
        }
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes[..length]) {
            Ok(httparse::Status::Partial) => {}
            Ok(httparse::Status::Complete(_)) => return Ok(wanted(&request)),
            Err(_) => return Ok(Err("400 Bad Request")),
        }
    }
}

fn wanted(request: &httparse::Request<'_, '_>) -> Result<Wanted, &'static str> {
    match (request.method, request.path) {
        (Some("GET"), Some("/metrics")) => Ok(Wanted::Metrics(ExpositionForm::wanted(&accept(request)))),
        (Some("GET"), _) => Ok(Wanted::Other),
        _ => Err("405 Method Not Allowed"),
    }
}

/// The value of its Accept header, if it has one.
fn accept(request: &httparse::Request<'_, '_>) -> String {
    let headers = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    headers.map(|header| String::from_utf8_lossy(header.value)).collect::<Vec<_>>().join(",")
}

fn response(status: &str, content_type: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
