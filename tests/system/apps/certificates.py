"""Creates certificates for tests with the openssl command."""

import os
import subprocess


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

    @staticmethod
    def _new_key(path):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path)

    @staticmethod
    def _openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
