"""Text to train on, out of documentation that Debian packages carry.

    text.py OUT

Downloads the packages below (`apt-get download`), turns their pages into plain text and writes one file: kinds one
after the other, each opened by a line `\x1e KIND`, and OUT.sha256 beside it. The same packages give the same bytes.
Nothing of a package is installed or run.
"""
import contextlib
import hashlib
import html.parser
import pathlib
import re
import subprocess
import sys
import tempfile

# Kind, package, licence, which files of it, and how many bytes at most.
KINDS = [
    ("python", "python3.11-doc", "PSF-2.0", r"usr/share/doc/python3\.11/html/.*\.html$", 7 << 20),
    ("postgresql", "postgresql-doc-15", "PostgreSQL", r"usr/share/doc/postgresql-doc-15/html/.*\.html$", 5 << 20),
    ("rust", "rust-doc", "MIT OR Apache-2.0", r"usr/share/doc/rust-doc/html/(book|reference|nomicon|rust-by-example|std/(vec|string|iter|sync|io|collections|option|result|fs|net|path|slice|primitive\.[a-z]+)).*\.html$", 7 << 20),
    ("sqlite", "sqlite3-doc", "public domain", r"usr/share/doc/sqlite3/.*\.html$", 5 << 20),
]
SKIPPED = {"script", "style", "nav", "head", "noscript", "button"}
BLOCKS = {"p", "div", "li", "tr", "br", "h1", "h2", "h3", "h4", "h5", "pre", "dt", "dd", "table", "section"}


class Plain(html.parser.HTMLParser):
    """A page's text: blocks on lines of their own, code as it stands."""

    def __init__(self):
        super().__init__()
        self.parts, self.skipping, self.literal = [], 0, 0

    def handle_starttag(self, tag, attributes):
        self.skipping += tag in SKIPPED
        self.literal += tag == "pre"
        if tag in BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag):
        self.skipping = max(0, self.skipping - (tag in SKIPPED))
        self.literal = max(0, self.literal - (tag == "pre"))
        if tag in BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data):
        if not self.skipping:
            self.parts.append(data if self.literal else re.sub(r"\s+", " ", data))

    def text(self):
        return re.sub(r"\n\s*\n+", "\n\n", "".join(self.parts)).strip() + "\n"


def pages(folder, pattern):
    wanted = re.compile(pattern)
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    named = sorted((str(path.relative_to(folder)), path) for path in found)
    # Neither alphabet nor folders decide what is held out, or falls to the limit.
    named = [(name, path) for name, path in named if wanted.match(name)]
    return sorted(named, key=lambda item: hashlib.sha256(item[0].encode()).digest())


def kind_text(folder, pattern, most, unwanted=lambda page: False):
    seen, parts, size = set(), [], 0
    for _, path in pages(folder, pattern):
        page = path.read_text("utf-8", "replace")
        if path.suffix in (".html", ".xhtml"):
            plain = Plain()
            plain.feed(page)
            page = plain.text()
        if unwanted(page):
            continue
        # Lines that every page has are said once.
        lines = []
        for line in page.split("\n"):
            if len(line) > 40 and line in seen:
                continue
            seen.add(line)
            lines.append(line)
        body = "\n".join(lines).replace("\x1e", " ").encode()
        if len(body) < 500:
            continue
        parts.append(body)
        size += len(body)
        if size >= most:
            break
    return b"\n".join(parts)[:most]


@contextlib.contextmanager
def unpacked(package):
    """A package's name with its version, and a folder of its files."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        folder.chmod(0o755)
        done = subprocess.run(["apt-get", "download", "-q", package], cwd=folder, capture_output=True, text=True)
        debs = list(folder.glob("*.deb"))
        if not debs:
            sys.exit(f"cannot download {package}: {done.stderr.strip()}\nhelp: run `apt-get update` first; this needs Debian 12")
        subprocess.run(["dpkg-deb", "-x", debs[0], folder / "x"], check=True)
        yield debs[0].name, folder / "x"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    out.parent.mkdir(parents=True, exist_ok=True)
    whole = b""
    for kind, package, licence, pattern, most in KINDS:
        with unpacked(package) as (name, folder):
            body = kind_text(folder, pattern, most)
            print(f"{kind}: {len(body):,} bytes of {name} ({licence})")
            if not body:
                sys.exit(f"{package} has no pages where they were expected: is it of another release of Debian?")
            whole += b"\x1e " + kind.encode() + b"\n" + body + b"\n"
    digest = hashlib.sha256(whole).hexdigest()
    part = out.with_suffix(".part")
    part.write_bytes(whole)
    part.replace(out)
    out.with_name(out.name + ".sha256").write_text(f"{digest}  {out.name}\n")
    print(f"{out}: {len(whole):,} bytes, SHA-256 {digest}")


if __name__ == "__main__":
    main()
