"""An isolated environment for one test network: its own network, mount and process namespaces, and a tmpfs for all
files.

The process that the user started stays outside and only waits. All other processes run in a process namespace whose
first process is the same script. If either of these two processes ends, for any reason, the kernel ends the others.
"""

import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys

EXIT_UNSUPPORTED = 77  # ctest's SKIP_RETURN_CODE
_MARKER = "SLUICE_TESTBED_SANDBOX"
_TOOLS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "ss": "iproute2",
    "ethtool": "ethtool",
    "sysctl": "procps",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "mount": "util-linux",
}

WORK = pathlib.Path("/run/sluice")  # inside the sandbox; on its own tmpfs


class Unsupported(Exception):
    """The machine lacks something that the network needs. The message names the missing part and the remedy."""


def run_inside(main):
    """Runs main() in a sandbox and exits with its code. A script calls this first, once it has read its flags."""
    if os.environ.get(_MARKER) == str(os.getpid()):
        sys.exit(_inside(main))
    sys.exit(_outside())


def _outside():
    add_sbin_to_path()
    try:
        _check_tools()
        _probe()
    except Unsupported as error:
        return _report_unsupported(error)
    # setpriv is needed because unshare would outlive a killed parent. sh sets the marker to the id of the first process
    # inside, which distinguishes a sandbox that was started from within a sandbox.
    command = ["setpriv", "--pdeathsig", "KILL", *_unshare_command(), "sh", "-c", f'{_MARKER}=$$ exec "$@"', "sh"]
    command += [sys.executable, *sys.argv]
    # A session of its own limits Ctrl-C to this process, which then kills the others.
    child = subprocess.Popen(command, start_new_session=True)

    try:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, _raise_stopped)
        code = child.wait()
        return code if code >= 0 else 128 - code
    except _Stopped as stopped:
        print(f"stopped by {stopped.signal.name}; the test network is gone", file=sys.stderr)
        return 128 + stopped.signal
    finally:
        child.kill()
        child.wait()


class _Stopped(Exception):
    def __init__(self, signum):
        super().__init__()
        self.signal = signal.Signals(signum)


def _raise_stopped(signum, _frame):
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)  # one signal is enough: the cleanup takes milliseconds
    raise _Stopped(signum)


def _inside(main):
    try:
        _mount_run()
        _raise_file_limit()
        _keep_java_out_of_tmp()
        return main()
    except Unsupported as error:
        return _report_unsupported(error)
    except (RuntimeError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _report_unsupported(error):
    print(f"SKIPPED: {error}", file=sys.stderr)
    return EXIT_UNSUPPORTED


def add_sbin_to_path():
    # Debian keeps ip and tc there, and only root has these folders on the path.
    os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"


def _check_tools():
    missing = {tool: package for tool, package in _TOOLS.items() if not shutil.which(tool)}
    if missing:
        raise Unsupported(
            f"missing tools: {', '.join(missing)}; on Debian: apt-get install {' '.join(sorted(set(missing.values())))}"
        )


def _unshare_command():
    flags = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        flags = ["--user", "--map-root-user", *flags]
    return ["unshare", *flags]


def _probe():
    result = subprocess.run([*_unshare_command(), "true"], stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        hint = "" if os.geteuid() == 0 else "; without root this needs user namespaces (kernel.unprivileged_userns_clone=1)"
        raise Unsupported(f"cannot make namespaces: {result.stderr.strip()}{hint}")


def _mount_run():
    # `ip netns` keeps its names under /run, so two networks with a tmpfs each do not see each other's names.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)
    WORK.mkdir()


def _raise_file_limit():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _keep_java_out_of_tmp():
    # A JVM locks /tmp/hsperfdata_USER/PID. Sandboxes share /tmp, and each counts its processes from 1, so a second JVM with
    # the same PID would print a warning into its output.
    os.environ["JDK_JAVA_OPTIONS"] = "-XX:-UsePerfData"
