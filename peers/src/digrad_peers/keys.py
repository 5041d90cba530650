"""Key pairs: one for each node, the private half in a file of its own.

A key file is PEM: an Ed25519 private key and a certificate that it signed itself. The certificate
is the public half. It says nothing worth believing but the key; who may take part, and under
which name, the membership file alone decides.
"""

import binascii
import os
import ssl
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from pathlib import Path

from digrad.base.errors import FileFormatError, ParameterError, short_repr
from digrad.base.files import WriteError, plain_bytes

LARGEST = 1 << 16  # bytes of a key file
BEGIN = "-----BEGIN CERTIFICATE-----"
# "No well-defined expiration date" (RFC 5280, 4.1.2.5): the membership file says who is valid.
NEVER = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def make_key(path: Path) -> str:
    """Write a new key pair where nobody else may read it, and return its public half."""
    content = _pair()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        hint = "a key that others know must not change; choose another name, or delete it yourself"
        raise WriteError(f"{path} is there already", hint=hint) from None
    except OSError as error:
        hint = "choose a folder that can be written to"
        raise WriteError(f"cannot write {path}: {error}", hint=hint) from error
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return public_half(path)


def _pair() -> bytes:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.x509.oid import NameOID
    except ImportError:
        hint = "pip install 'digrad[peers]'; only making keys needs it, not using them"
        raise ParameterError("cryptography is not installed", hint=hint) from None
    key = Ed25519PrivateKey.generate()
    number = x509.random_serial_number()
    # A subject of its own for each: OpenSSL looks trusted certificates up by it.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"digrad-{number:x}"[:60])])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(number)
        .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
        .not_valid_after(NEVER)
        .sign(key, None)
    )
    pem = form.Encoding.PEM
    private = key.private_bytes(pem, form.PrivateFormat.PKCS8, form.NoEncryption())
    return bytes(private + made.public_bytes(pem))


def public_half(path: Path) -> str:
    """Return the public half of a key file, as membership files hold it."""
    try:
        raw = plain_bytes(path, LARGEST).decode("ascii")
        _, begin, rest = raw.partition(BEGIN)
        return b64encode(ssl.PEM_cert_to_DER_cert(begin + rest)).decode()
    except FileNotFoundError:
        hint = "`digrad keys new NAME` makes one, as keys/NAME.key; name it with its folder"
        raise FileFormatError(f"{path}: no such key file", hint=hint) from None
    except (OSError, ValueError) as error:
        hint = "`digrad keys new NAME` makes one"
        raise FileFormatError(f"{path} is no key file: {error}", hint=hint) from error


def certificate(public: str, whose: str) -> bytes:
    """Return the certificate that a public half is."""
    try:
        made = b64decode(public, validate=True)
        # Reading it back is what a connection would do with it.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=made)
    except (binascii.Error, ValueError, ssl.SSLError):
        hint = "copy the line that `digrad keys new` or `digrad keys show` prints"
        what = f"{whose} has no valid key: {short_repr(public)}"
        raise FileFormatError(what, hint=hint) from None
    return made
