"""What a URI says of how its store is to be reached, as libraries of object stores are told that.

pyarrow has it all in the URI: keys before the host, and options behind the path. The libraries that are made on Rust's
`object_store` want a plain URI, and options beside it. Calls nobody.
"""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit


def plain_uri(address: str) -> tuple[str, dict[str, str]]:
    """Part a URI into one without keys and options, and these by the names that `object_store` knows.

    Examples
    --------
    >>> plain_uri("s3://key:secret@bucket/jobs?region=eu-west-1")[0]
    's3://bucket/jobs'
    >>> plain_uri("/var/jobs")
    ('/var/jobs', {})
    """
    parts = urlsplit(address)
    if not parts.scheme or parts.scheme == "file":
        return address, {}
    given = {name: values[0] for name, values in parse_qs(parts.query).items()}
    options = {}
    if parts.scheme == "s3":
        if "region" in given:
            options["aws_region"] = given["region"]
        if parts.username:
            options |= {
                "aws_access_key_id": unquote(parts.username),
                "aws_secret_access_key": unquote(parts.password or ""),
            }
            parts = parts._replace(netloc=parts.hostname or "")
        if "endpoint_override" in given:
            scheme = given.get("scheme", "https")
            options["aws_endpoint"] = f"{scheme}://{given['endpoint_override']}"
            if scheme == "http":
                options["allow_http"] = "true"
    return parts._replace(query="").geturl(), options
