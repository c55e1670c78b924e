"""Builds and starts the clients of tests/system/docs/clients. Their code contains the snippets of
docs/guides/proxy-by-language.md."""

import pathlib
import shutil
import subprocess
import sys

CLIENTS = pathlib.Path(__file__).resolve().parent / "clients"
_SDK = CLIENTS.parents[3] / "sdk"
_PATIENCE = 500  # seconds for a build
_PROXY = "http://127.0.0.1:7400"


class Missing(Exception):
    """The machine lacks a part that a language needs; the message names it."""


def _run(tool, *command, **options):
    """Runs a build, which downloads libraries from the tool's default registry."""
    if not shutil.which(tool):
        raise Missing(f"there is no {tool}; tests/install-languages installs it")
    try:
        made = subprocess.run([tool, *command], capture_output=True, text=True, timeout=_PATIENCE, check=False, **options)
    except subprocess.TimeoutExpired:
        raise Missing(f"{tool} did not end within {_PATIENCE} s") from None
    return made.returncode, made.stdout + made.stderr


def fetch(tool, *command, **options):
    """Raises Missing if the tool or its libraries cannot be had."""
    code, output = _run(tool, *command, **options)
    if code != 0:
        raise Missing(f"{tool} cannot have the libraries, which needs a network once: {output.strip()[-300:]}")


def build(tool, *command, **options):
    """Raises AssertionError if the build fails."""
    code, output = _run(tool, *command, **options)
    if code != 0:
        raise AssertionError(f"{tool} {' '.join(command)}: {output}")


def python_with_grpc():
    for interpreter in (sys.executable, "/usr/bin/python3"):  # Debian's packages work only with Debian's Python
        if subprocess.run([interpreter, "-c", "import grpc"], capture_output=True, check=False).returncode == 0:
            return interpreter
    raise Missing("Python has no grpcio; it is in Debian's package python3-grpcio")


def _python(_folder):
    return [python_with_grpc(), CLIENTS / "python/client.py"]


def _go(folder):
    fetch("go", "mod", "download", cwd=CLIENTS / "go")
    build("go", "build", "-o", str(folder / "client"), ".", cwd=CLIENTS / "go")
    return [folder / "client"]


def _node(folder):
    for file in ("package.json", "client.js"):
        shutil.copy(CLIENTS / "node" / file, folder)
    if not shutil.which("node"):
        raise Missing("there is no node; tests/install-languages installs it")
    if not (folder / "node_modules/@grpc/grpc-js").exists():
        fetch("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", cwd=folder)
    package = folder / "node_modules/sluice-rpc"
    package.mkdir(exist_ok=True)
    for file in ("package.json", "index.js"):
        shutil.copy(_SDK / "node" / file, package)
    return ["node", folder / "client.js"]


def _java(folder):
    if not shutil.which("javac"):
        raise Missing("there is no javac; tests/install-languages installs it")
    maven = ["--batch-mode", "--no-transfer-progress", f"-Dsluice.build={folder}", f"--file={CLIENTS}/java/pom.xml"]
    libraries = [*maven, "dependency:copy-dependencies", f"-DoutputDirectory={folder}/lib"]
    if _run("mvn", "--offline", *libraries)[0] != 0:
        fetch("mvn", *libraries)
    sources = [CLIENTS / "java/src/main/java/sluice/Client.java", *sorted((_SDK / "java/src/main/java/sluice/rpc").glob("*.java"))]
    build("javac", "-d", str(folder / "classes"), "-cp", f"{folder}/lib/*", *map(str, sources))
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{folder}/classes:{folder}/lib/*", "sluice.Client"]


def _rust(folder):
    shutil.copytree(CLIENTS / "rust", folder / "source", dirs_exist_ok=True)
    shutil.copytree(_SDK / "rust", folder / "sluice-rpc", dirs_exist_ok=True)
    manifest = f"--manifest-path={folder}/source/Cargo.toml"
    fetch("cargo", "fetch", manifest)
    target = cargo_target(folder)
    build("cargo", "build", "--jobs=2", f"--target-dir={target}", manifest)
    return [target / "debug/sluice-docs"]


def cargo_target(folder):
    """Returns the folder of what cargo makes: one for all crates of a build, which share most of their dependencies."""
    return folder.parent.parent / "cargo"


_BUILDS = {"python": _python, "go": _go, "node": _node, "java": _java, "rust": _rust}
# The environment that sends an unchanged program through the proxy. Rust's needs the connector of sdk/rust.
ENVIRONMENT = {
    "python": {"http_proxy": _PROXY},
    "go": {"HTTPS_PROXY": _PROXY},
    "node": {"http_proxy": _PROXY},
    "rust": {"http_proxy": _PROXY},
    "java": {"JAVA_TOOL_OPTIONS": "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=7400"},
}


def client(language, build_folder):
    """Returns the command that starts the client; the way and the workers follow it. Raises Missing if it cannot be
    built here."""
    folder = pathlib.Path(build_folder).resolve() / "docs-clients" / language
    folder.mkdir(parents=True, exist_ok=True)
    return [str(word) for word in _BUILDS[language](folder)]


def source(language):
    (file,) = [path for path in sorted((CLIENTS / language).rglob("*")) if path.suffix in (".py", ".go", ".js", ".java", ".rs")]
    return file.read_text()
