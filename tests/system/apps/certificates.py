"""Creates certificates for tests with the openssl command."""

import os
import shutil
import socket
import ssl
import subprocess

_PATIENCE = 60  # seconds that a server may take for a handshake


class Authority:
    """Signs certificates. All files are in one folder."""

    def __init__(self, folder, name):
        self.folder = folder
        self.file = os.path.join(folder, f"{name}.pem")
        self.key = os.path.join(folder, f"{name}.key")
        self._openssl("req", "-x509", *self._new_key(self.key), "-subj", f"/CN={name}", "-days", "1", "-out", self.file)

    def issue(self, name, hosts="DNS:localhost,IP:127.0.0.1", days=1):
        """Returns the files of a certificate and its key, and replaces existing ones. A negative `days` makes the
        certificate expired."""
        certificate = os.path.join(self.folder, f"{name}.pem")
        key = os.path.join(self.folder, f"{name}.key")
        request = os.path.join(self.folder, f"{name}.csr")
        extensions = os.path.join(self.folder, f"{name}.ext")
        with open(extensions, "w", encoding="ascii") as file:
            file.write(f"subjectAltName={hosts}\n")
        self._openssl("req", *self._new_key(f"{key}.new"), "-subj", f"/CN={name}", "-out", request)
        self._openssl("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self.key, "-CAcreateserial", "-days",
                      str(days), "-extfile", extensions, "-out", f"{certificate}.new")
        os.replace(f"{key}.new", key)
        os.replace(f"{certificate}.new", certificate)
        return certificate, key

    def revoke(self, name, *certificates):
        """Writes a list of the certificates revoked until now, replaces an existing list, and returns its path."""
        crl = os.path.join(self.folder, name)
        database = os.path.join(self.folder, "revoked.txt")
        config = os.path.join(self.folder, "revoked.cnf")
        with open(config, "w", encoding="ascii") as file:
            file.write(f"[ca]\ndefault_ca=a\n[a]\ndatabase={database}\ndefault_md=sha256\ndefault_crl_days=1\n")
        open(database, "a", encoding="ascii").close()
        flags = ("-config", config, "-keyfile", self.key, "-cert", self.file)
        for certificate in certificates:
            self._openssl("ca", *flags, "-revoke", certificate)
        self._openssl("ca", *flags, "-gencrl", "-out", f"{crl}.new")
        os.replace(f"{crl}.new", crl)
        return crl

    @staticmethod
    def _new_key(path):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path)

    @staticmethod
    def _openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


class Mounted:
    """The certificate files of programs in a folder behind a symbolic link, as Kubernetes mounts a Secret."""

    def __init__(self, folder):
        self._folder = folder
        self._installed = 0
        self.ca, self.certificate, self.key = (os.path.join(folder, "tls", name) for name in ("ca.pem", "own.pem", "own.key"))

    def install(self, authorities, identity):
        """Replaces all files at once."""
        self._installed += 1
        folder = os.path.join(self._folder, f"files-{self._installed}")
        os.mkdir(folder)
        with open(os.path.join(folder, "ca.pem"), "wb") as bundle:
            for authority in authorities:
                with open(authority.file, "rb") as file:
                    bundle.write(file.read())
        for file, name in zip(identity, ("own.pem", "own.key")):
            shutil.copy(file, os.path.join(folder, name))
        link = os.path.join(self._folder, "link")
        os.symlink(folder, link)
        os.replace(link, os.path.join(self._folder, "tls"))


def handshake(address, authority, identity):
    """Returns the serial of the server's certificate, or None if the server rejects this client."""
    context = ssl.create_default_context(cafile=authority.file)
    context.load_cert_chain(*identity)
    context.set_alpn_protocols(["h2"])
    host, port = address.split(":")
    try:
        with socket.create_connection((host, port), _PATIENCE) as connection:
            with context.wrap_socket(connection, server_hostname=host) as tls:
                # With TLS 1.3 the server checks the client's certificate only after the client has finished its
                # handshake. The proxy waits for the start of HTTP/2.
                tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
                return int(tls.getpeercert()["serialNumber"], 16) if tls.recv(1) else None
    except (ssl.SSLError, ConnectionError):
        return None


def serial(identity):
    output = subprocess.run(["openssl", "x509", "-noout", "-serial", "-in", identity[0]], check=True, capture_output=True,
                            timeout=_PATIENCE).stdout  # fmt: skip
    return int(output.decode().partition("=")[2], 16)
