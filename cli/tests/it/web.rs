//! The explorer's page, as the command serves it and hands it out. What the page
//! does is tested in a browser (`cargo xtask test page`).

use crate::support::{Desk, trinity};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// `trinity web` while a test asks it.
struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_trinity"))
            .args(["web", "--port", "0", "-q"])
            .args(more)
            .env_remove("BROWSER")
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        while !said.contains("http://") {
            assert!(stdout.read_line(&mut said).unwrap() > 0, "it said no address: {said}");
        }
        let address = said.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        Self { child, address }
    }

    /// What it answers to a request, head and all.
    fn ask(&self, request: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "{request}\r\nHost: {}\r\nContent-Length: {}\r\n\r\n", self.address, body.len())
            .unwrap();
        stream.write_all(body).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// What the page would be told.
    fn answer(&self, asked: &Value) -> Value {
        let asked = asked.to_string();
        let headers = format!("Trinity-Lane: test\r\nTrinity-Request: {}", asked.len());
        let answer = self.ask(&format!("POST /answer HTTP/1.1\r\n{headers}"), asked.as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{answer}");
        serde_json::from_str(body).unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_explorer_answers_from_any_build_with_the_commands_digits() {
    let serving = Serving::start(&[]);
    let page = serving.ask("GET / HTTP/1.1", b"");
    assert!(
        page.starts_with("HTTP/1.1 200 OK") && page.contains("<title>Trinity explorer</title>"),
        "{page}"
    );
    assert!(serving.ask("GET /main.js HTTP/1.1", b"").contains("text/javascript"));
    let study = json!({ "sweep": "sweeps/llama-7b", "sets": ["budget=30000 mm2"] });
    let told = serving.answer(&json!({ "do": "sweep", "study": study }));
    let desk = Desk::new();
    let printed = desk.json("sweep sweeps/llama-7b --set 'budget=30000 mm2' --points none --json -q");
    assert_eq!(told["answer"]["outcome"], printed);
    let refused = serving.answer(&json!({ "do": "sweep", "study": { "sweep": "sweeps/lama" } }));
    assert!(refused["refused"]["error"].is_string(), "{refused}");
}

#[test]
fn ctrl_c_ends_the_explorer_and_json_is_its_address() {
    let mut serving = Serving::start(&["--json"]);
    assert!(Command::new("kill").args(["-INT", &serving.child.id().to_string()]).status().unwrap().success());
    assert_eq!(serving.child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_port_that_is_taken_is_said_with_a_way_out() {
    let serving = Serving::start(&[]);
    let port = serving.address.rsplit(':').next().unwrap();
    let run = trinity(["web", "--no-open", "--port", port]);
    assert_eq!(run.code(), 1);
    assert!(run.stderr().contains(port) && run.stderr().contains("leave `--port` out"), "{}", run.stderr());
}

#[test]
fn the_page_as_one_file_is_written_like_any_other_result() {
    let desk = Desk::new();
    let first = desk.run("web -o trinity.html");
    if first.code() == 1 {
        // `cargo xtask web` builds the file, where it can.
        let said = first.stderr();
        assert!(said.contains("as one file") || said.contains("other sources"), "{said}");
        assert!(said.contains("cargo xtask web"), "no way out: {said}");
        assert!(!desk.at("trinity.html").exists());
        eprintln!("SKIPPED: {said}");
        return;
    }
    first.ok();
    let page = desk.text("trinity.html");
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    // Twice the same is no overwriting; something else in its place is.
    desk.ok("web -o trinity.html");
    desk.write("trinity.html", "mine");
    desk.refused("web -o trinity.html");
    assert_eq!(desk.text("trinity.html"), "mine");
    desk.ok("web -o trinity.html --force");
    assert!(desk.refused("web -o page.png").contains("HTML"));
    assert_eq!(desk.ok("web -o -"), page);
}
