//! As much of HTTP/1.1 (RFC 9112) as one page on one machine needs: its files,
//! and questions that it posts.
//!
//! A request for another host is refused, so no site can have its name lead
//! here; a question carries headers that a browser sends to other origins only
//! with permission, which nobody gets. Nothing of the file system is served.

use super::{lanes::Lanes, page};
use crate::failure::Failure;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Bytes that a request line and its headers may take.
const MOST_HEAD: u64 = 16 << 10;
/// A browser that stops in the middle is not waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers until the process ends.
pub fn serve(listener: &TcpListener, port: u16) -> Result<(), Failure> {
    let lanes = Arc::new(Lanes::default());
    for stream in listener.incoming() {
        // A connection that failed on its way here is the browser's to make again.
        let Ok(stream) = stream else { continue };
        let lanes = Arc::clone(&lanes);
        let handled = std::thread::Builder::new().spawn(move || drop(handle(&stream, port, &lanes)));
        handled.map_err(|error| Failure::run(format_args!("cannot start a thread: {error}")))?;
    }
    Ok(())
}

fn handle(stream: &TcpStream, port: u16, lanes: &Lanes) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let answer = match Head::read(&mut reader)? {
        Some(head) => answer(&head, &mut reader, port, lanes)?,
        None => Answer::refusal("400 Bad Request", "this is not a request that the explorer knows\n"),
    };
    answer.send(stream)
}

fn answer(head: &Head, body: &mut impl Read, port: u16, lanes: &Lanes) -> io::Result<Answer> {
    let own = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    if !head.header("host").is_some_and(|host| own.iter().any(|own| own == host)) {
        return Ok(Answer::refusal("421 Misdirected Request", "the explorer answers this machine alone\n"));
    }
    let path = head.target.split('?').next().unwrap_or_default();
    Ok(match (head.method.as_str(), path) {
        ("GET", "/") => Answer::new("200 OK", "text/html; charset=utf-8", page::index().into_bytes()),
        ("GET", path) => match page::resource(path) {
            Some(found) => Answer::new("200 OK", found.kind, found.text.as_bytes().to_vec()),
            None => Answer::refusal("404 Not Found", "the explorer is at /\n"),
        },
        ("POST", "/answer") => {
            let number = |name| head.header(name)?.parse::<u64>().ok();
            let (Some(lane), Some(asked), Some(length)) =
                (head.header("trinity-lane"), number("trinity-request"), number("content-length"))
            else {
                return Ok(Answer::refusal("403 Forbidden", "only the explorer's own page may ask\n"));
            };
            let mut request = Vec::new();
            let mut file = Vec::new();
            body.take(asked.min(length)).read_to_end(&mut request)?;
            body.take(length.saturating_sub(asked)).read_to_end(&mut file)?;
            if (request.len() + file.len()) as u64 != length {
                return Ok(Answer::refusal("400 Bad Request", "the question was cut off on its way\n"));
            }
            Answer::new("200 OK", "application/json", lanes.answer(lane, &request, file))
        }
        _ => Answer::refusal("405 Method Not Allowed", "the explorer is at /\n"),
    })
}

/// The request line and the headers, names in small letters.
struct Head {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
}

impl Head {
    /// Reads up to the empty line; `None` for what is no request.
    fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut reader = reader.take(MOST_HEAD);
        let mut line = || -> io::Result<Option<String>> {
            let mut bytes = Vec::new();
            reader.read_until(b'\n', &mut bytes)?;
            let text = bytes.strip_suffix(b"\n").map(|own| own.strip_suffix(b"\r").unwrap_or(own));
            Ok(text.and_then(|own| String::from_utf8(own.to_vec()).ok()))
        };
        let Some(first) = line()? else { return Ok(None) };
        let words: Vec<&str> = first.split(' ').collect();
        let [method, target, version] = words[..] else { return Ok(None) };
        if !version.starts_with("HTTP/1.") {
            return Ok(None);
        }
        let mut headers = Vec::new();
        loop {
            let Some(header) = line()? else { return Ok(None) };
            if header.is_empty() {
                break;
            }
            let Some((name, value)) = header.split_once(':') else { return Ok(None) };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Some(Self { method: method.to_owned(), target: target.to_owned(), headers }))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

struct Answer {
    status: &'static str,
    kind: &'static str,
    body: Vec<u8>,
}

impl Answer {
    fn new(status: &'static str, kind: &'static str, body: Vec<u8>) -> Self {
        Self { status, kind, body }
    }

    fn refusal(status: &'static str, why: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", why.as_bytes().to_vec())
    }

    fn send(&self, mut to: &TcpStream) -> io::Result<()> {
        let Self { status, kind, body } = self;
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
            body.len()
        );
        to.write_all(head.as_bytes())?;
        to.write_all(body)?;
        to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str) -> String {
        let mut reader = request.as_bytes();
        match Head::read(&mut reader).unwrap() {
            Some(head) => {
                let answer = answer(&head, &mut reader, 8265, &Lanes::default()).unwrap();
                format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body))
            }
            None => "unread".into(),
        }
    }

    #[test]
    fn only_this_machines_own_page_is_answered() {
        let host = "Host: 127.0.0.1:8265\r\n";
        assert!(status(&format!("GET / HTTP/1.1\r\n{host}\r\n")).starts_with("200 OK <!doctype html>"));
        assert!(status("GET / HTTP/1.1\r\nHost: evil.example:8265\r\n\r\n").starts_with("421"));
        assert!(status("GET / HTTP/1.1\r\n\r\n").starts_with("421"));
        assert!(status(&format!("GET /../Cargo.toml HTTP/1.1\r\n{host}\r\n")).starts_with("404"));
        // A form of another site cannot set headers of its own.
        let form = format!("POST /answer HTTP/1.1\r\n{host}Content-Length: 16\r\n\r\n{{\"do\":\"catalog\"}}");
        assert!(status(&form).starts_with("403"));
        let asks = "Trinity-Lane: a\r\nTrinity-Request: 16\r\n";
        let page =
            format!("POST /answer HTTP/1.1\r\n{host}{asks}Content-Length: 16\r\n\r\n{{\"do\":\"catalog\"}}");
        assert!(status(&page).starts_with("200 OK {\"answer\""), "{}", status(&page));
        let cut =
            format!("POST /answer HTTP/1.1\r\n{host}{asks}Content-Length: 99\r\n\r\n{{\"do\":\"catalog\"}}");
        assert!(status(&cut).starts_with("400"));
        // Nor may its script ask for leave to.
        assert!(status(&format!("OPTIONS /answer HTTP/1.1\r\n{host}\r\n")).starts_with("405"));
    }

    #[test]
    fn what_is_no_request_is_refused_and_not_waited_for() {
        for text in ["", "GET /", "GET / HTTP/1.1\r\nHost", "GET / SPDY/3\r\n\r\n", "\x16\x03\x01\r\n\r\n"] {
            assert_eq!(status(text), "unread", "{text:?}");
        }
        assert_eq!(status(&format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000))), "unread");
    }
}
