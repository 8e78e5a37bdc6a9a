"""Remove credentials from URLs: everything that is shown or stored goes through here.

Credentials are the user information of a URL, and the values of query parameters whose names suggest a signature, a
token, a key or a password. Only the URL with which a store is opened keeps them.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

_IN_AUTHORITY = re.compile(r"(?<=://)[^/?#\s'\"<>]*@")
_BEFORE_SLASH = re.compile(r"(?<=://)(?!\[?[^/?#@\s]*:\d+[/?#])[^/?#:@\s]*:[^@\s'\"<>]*@")
"""User information whose password has a slash, as secret keys of S3 may; `host:port/` does not match."""
_SECRET = r"x-(?:amz|goog|oss|obs|ms|bz)-|[^=&#;\s/]*(?:sig|token|secret|pass|pwd|cred|key|auth|session|code|jwt)"
_PARAMETER = re.compile(rf"(?P<name>[?&;#](?:{_SECRET})[^=&#;\s/]*=)(?P<value>[^&#;\s'\"<>]+)", re.IGNORECASE)
HIDDEN = "***"
"""Replacement of the value of a parameter."""


def without_credentials(text: str, url: str = "") -> str:
    """Remove the credentials of all URLs in a text, and those of `url` from the whole text."""
    for secret in _secrets(url):
        text = text.replace(f"{secret}@", "").replace(secret, HIDDEN)
    text = _IN_AUTHORITY.sub("", _BEFORE_SLASH.sub("", text))
    return _PARAMETER.sub(rf"\g<name>{HIDDEN}", text)


def _secrets(url: str) -> list[str]:
    """List the credentials of a URL, as written and percent-decoded, the longest first."""
    found: set[str] = set()
    for pattern in (_IN_AUTHORITY, _BEFORE_SLASH):
        if match := pattern.search(url):
            whole = match[0].removesuffix("@")
            found |= {whole, whole.partition(":")[2]}
    found |= {match["value"] for match in _PARAMETER.finditer(url)}
    found |= {unquote(secret) for secret in found}
    return sorted((secret for secret in found - {HIDDEN} if len(secret) >= _SHORTEST), key=len, reverse=True)


_SHORTEST = 3
"""Fewest characters of a credential that is removed outside its URL: shorter ones occur in ordinary words."""
